// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store and the server that serves it, for calls that are about the server.

use std::sync::{Arc, OnceLock, Weak};

use serde_json::json;
use terrace_core::{Access, Backend, Error, ErrorKind, Kv, Result};
use terrace_server::{Call, Called, Caller, Kept, Openings, Server, Service};
use terrace_store::{ServerCall, ServerReport};

use crate::log::Log;

/// A store and the server that serves it.
pub(super) struct Served {
    store: Arc<dyn Service>,
    log: Log,
    server: OnceLock<Weak<Server>>,
}

impl Served {
    pub(super) fn new(store: Arc<dyn Service>, log: Log) -> Self {
        Self { store, log, server: OnceLock::new() }
    }

    /// Which server it is; set once, before clients come.
    pub(super) fn set_server(&self, server: &Arc<Server>) {
        // Only the first one serves it.
        let _ = self.server.set(Arc::downgrade(server));
    }

    fn status(&self) -> ServerReport {
        let status = self.server.get().and_then(Weak::upgrade).map(|server| server.status());
        ServerReport::of_process(status.unwrap_or_default(), self.log.level())
    }
}

impl Service for Served {
    fn store_id(&self) -> u128 {
        self.store.store_id()
    }

    fn openings(&self) -> Openings {
        self.store.openings()
    }

    fn backend(&self) -> &dyn Backend {
        self.store.backend()
    }

    fn kv(&self, namespace: &str) -> Result<Arc<dyn Kv>> {
        self.store.kv(namespace)
    }

    fn files(&self, namespace: &str, kept: &Kept, request: &[u8]) -> Result<Vec<u8>> {
        self.store.files(namespace, kept, request)
    }

    fn ends(&self) {
        self.store.ends();
    }

    fn call(&self, call: &Call<'_>, caller: &mut dyn Caller) -> Result<Called> {
        let answer = match serde_json::from_slice(call.json) {
            Ok(ServerCall::ServerStatus) => json!(self.status()),
            Ok(ServerCall::SetLogLevel { .. }) if call.access == Access::Read => {
                return Err(Error::new(ErrorKind::Denied, "change the log level")
                    .because("the store is open for reading only"));
            }
            Ok(ServerCall::SetLogLevel { level }) => {
                self.log.set_level(&level)?;
                tracing::info!(level, "log level changed");
                json!(null)
            }
            Err(_) => return self.store.call(call, caller),
        };
        Ok(Called { json: answer.to_string().into_bytes(), body: Vec::new() })
    }
}
