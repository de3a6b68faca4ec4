// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What fuzzers need of the calls of the control plane. Not for anybody else: they may change with
//! every version.

use serde_json::Value;
use terrace_admin::{Admin as _, Request};
use terrace_core::{Access, Error, Result};
use terrace_server::Call;

use crate::store::{Side, Store};

/// A client that calls a store of this process.
pub struct Desk<'a> {
    store: &'a Store,
    access: Access,
}

impl<'a> Desk<'a> {
    /// A client that may do this.
    pub fn new(store: &'a Store, access: Access) -> Self {
        Self { store, access }
    }

    /// Carries out a call; returns the JSON of its answer, and bytes. What would only take time
    /// does not wait, and no policy comes from outside.
    ///
    /// # Errors
    ///
    /// `Invalid` where it is no call; what the store says.
    pub fn answer(&self, json: &[u8], body: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
        let mut content: Value = serde_json::from_slice(json)
            .map_err(|error| Error::invalid("serve a call", "it is none").caused_by(error))?;
        let verb = content["verb"].as_str().unwrap_or_default().replace('-', "_");
        if let Some(members) = content.as_object_mut() {
            members.entry("timeout_ns").and_modify(|timeout_ns| *timeout_ns = 0.into());
            members.entry("socket").and_modify(|socket| *socket = "".into());
            if let ("set_policy" | "set_shadow", Some(Value::String(name))) =
                (&*verb, members.get_mut("name"))
            {
                name.retain(|letter| letter != '/' && letter != '.');
            }
        }
        let Side::Owned(owner) = &self.store.side else {
            return Err(Error::invalid("serve a call", "another process owns the store"));
        };
        let json = content.to_string();
        let call = Call { access: self.access, is_local: true, json: json.as_bytes(), body };
        let answer = owner.owned().perform(&Request::read(&call)?, &mut |_, _| false)?;
        Ok((answer.json, answer.body))
    }
}
