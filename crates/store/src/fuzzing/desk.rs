// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What fuzzers need of the calls of the control plane. Not for anybody else: they may change with
//! every version.

use terrace_core::{Access, Error, Result};
use terrace_server::Caller;

use crate::control::{Call, carry_out};
use crate::store::{Side, Store};

/// A caller who is not interested in how it goes on.
struct Nobody;

impl Caller for Nobody {
    fn progress(&mut self, _: u64, _: u64) -> bool {
        false
    }

    fn notice(&mut self, _: &[u8], _: &[u8]) -> bool {
        false
    }

    fn goes_on(&mut self) -> bool {
        false
    }
}

/// Somebody who calls a store of this process.
pub struct Desk<'a> {
    store: &'a Store,
    access: Access,
}

impl<'a> Desk<'a> {
    /// One who may do this.
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
        let mut call: Call = serde_json::from_slice(json)
            .map_err(|error| Error::invalid("serve a call", "it is none").caused_by(error))?;
        match &mut call {
            Call::Wait { timeout_ns, .. } | Call::WaitIdle { timeout_ns } => *timeout_ns = 0,
            Call::SetPolicy { name, .. } | Call::SetShadow { name, .. } => {
                name.retain(|letter| letter != '/' && letter != '.')
            }
            Call::UseGuest { socket, .. } => socket.clear(),
            _ => {}
        }
        let Side::Owned(owner) = &self.store.side else {
            return Err(Error::invalid("serve a call", "another process owns the store"));
        };
        let answer = carry_out(owner.owned(), self.access, call, body, &mut Nobody)?;
        Ok((answer.json, answer.bytes))
    }
}
