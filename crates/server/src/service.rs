// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is served.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terrace_core::{Access, Backend, Kv, Result};
use terrace_wire::Openings;

/// What a server serves.
pub trait Service: Send + Sync {
    /// The number of the store, the same at all times.
    fn store_id(&self) -> u128;

    /// Which opening of the store it is.
    fn openings(&self) -> Openings;

    /// Its objects.
    fn backend(&self) -> &dyn Backend;

    /// The key-value pairs of a namespace.
    ///
    /// # Errors
    ///
    /// `Invalid` for a namespace that cannot be, `Unsupported` where no pairs are kept.
    fn kv(&self, namespace: &str) -> Result<Arc<dyn Kv>>;

    /// Asks the metadata of the file system in a namespace; request and answer are bytes that only
    /// the service and its clients understand. `kept` is what is kept for the session of the
    /// client.
    ///
    /// # Errors
    ///
    /// `Invalid` for what is no request, `Unsupported` where there are no file systems, `NotFound`
    /// where the namespace has none. What a program is to see is in the answer.
    fn files(&self, namespace: &str, kept: &Kept, request: &[u8]) -> Result<Vec<u8>>;

    /// Called once, when the server ends: what is kept for sessions is dropped after that, although
    /// their clients have not gone. They come back to the next server.
    fn ends(&self);

    /// Carries out a call of the control plane.
    ///
    /// # Errors
    ///
    /// `Invalid` for what is no call, `Denied` for a change with [`Access::Read`]; what the call says.
    fn call(&self, call: &Call<'_>, caller: &mut dyn Caller) -> Result<Called>;
}

/// What a service keeps for a session, by name. It is dropped when the session ends: some time
/// after its client has gone.
pub struct Kept {
    access: Access,
    values: Mutex<Values>,
}

type Values = HashMap<String, Arc<dyn Any + Send + Sync>>;

impl Kept {
    pub(crate) fn new(access: Access) -> Self {
        Self { access, values: Mutex::default() }
    }

    /// Drops it all, before the session ends.
    pub(crate) fn end(&self) {
        let values = std::mem::take(&mut *self.values());
        drop(values);
    }

    /// What the client of the session may do.
    pub fn access(&self) -> Access {
        self.access
    }

    /// What is kept under a name; made where there is nothing yet, or something of another type.
    ///
    /// # Errors
    ///
    /// Those of `make`.
    pub fn get_or_make<T: Any + Send + Sync>(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        let mut values = self.values();
        let known = values.get(name).cloned().and_then(|value| value.downcast().ok());
        if let Some(value) = known {
            return Ok(value);
        }
        let value = Arc::new(make()?);
        values.insert(name.into(), Arc::clone(&value) as _);
        Ok(value)
    }

    fn values(&self) -> MutexGuard<'_, Values> {
        // Values are put in as wholes.
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

/// The client of a call, while it is carried out.
pub trait Caller {
    /// Tells how far it is; whether the caller still is there to hear of it.
    fn progress(&mut self, done: u64, total: u64) -> bool;

    /// Tells something before the end: JSON, and bytes that belong to it. Waits for a caller that
    /// reads slowly. Whether to go on, as [`Caller::goes_on`].
    fn notice(&mut self, json: &[u8], body: &[u8]) -> bool;

    /// Whether a call that has no end by itself is to go on: the caller is there, and the server
    /// is not about to end.
    fn goes_on(&mut self) -> bool;
}

/// A call of the control plane.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// What the client may do.
    pub access: Access,
    /// Whether the client is a process of this machine, of the same user or root: every peer on a
    /// Unix socket is.
    pub is_local: bool,
    /// What is asked for, as JSON.
    pub json: &'a [u8],
    /// Bytes that belong to it.
    pub body: &'a [u8],
}

/// The result of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Called {
    /// The result, as JSON.
    pub json: Vec<u8>,
    /// Bytes that belong to it.
    pub body: Vec<u8>,
}
