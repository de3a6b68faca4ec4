// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store as something that a server serves.

use std::cell::Cell;
use std::sync::Arc;

use terrace_core::{Backend, Error, ErrorKind, Kv, Result};
use terrace_server::{Called, Service};

use super::call::Call;
use super::session::Session;
use crate::owner::Owned;

/// An owned store as something that a server serves.
pub(crate) struct Offer {
    owned: Arc<Owned>,
}

impl Offer {
    pub(crate) fn new(owned: &Arc<Owned>) -> Self {
        Self { owned: Arc::clone(owned) }
    }
}

impl Service for Offer {
    fn store_id(&self) -> u128 {
        self.owned.stack.store_id()
    }

    fn backend(&self) -> &dyn Backend {
        &self.owned.stack
    }

    fn kv(&self, namespace: &str) -> Result<Arc<dyn Kv>> {
        self.owned.stack.kv(namespace)
    }

    fn call(
        &self,
        call: &terrace_server::Call<'_>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Called> {
        let asked: Call = serde_json::from_slice(call.json).map_err(|error| {
            Error::invalid("serve a call", "it is not one of those there are").caused_by(error)
        })?;
        check_reach(&asked)?;
        // Every call has a session of its own: objects are opened in another way.
        let session = Session::new(call.access);
        let is_gone = Cell::new(false);
        let mut progress = |done, total| is_gone.set(!progress(done, total));
        let answer =
            session.carry_out(&self.owned, asked, call.body, &mut progress, &|| is_gone.get())?;
        Ok(Called { json: answer.json, body: answer.bytes })
    }
}

/// Refuses what names files of the server's machine, or loads code there: it is for who has that
/// machine, and goes through the control socket.
fn check_reach(call: &Call) -> Result<()> {
    let what = match call {
        Call::Backup { .. } => "write a backup",
        Call::AddTier { .. } => "add a tier",
        Call::RemoveTier { .. } => "remove a tier",
        Call::SetPolicy { name, .. } if name.contains(['/', '.']) => "load a policy",
        Call::Record(recording) if recording.directory.is_some() => "record a trace elsewhere",
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::Denied, what).because(
        "it concerns files of the server; run the command there, with the store's directory",
    ))
}
