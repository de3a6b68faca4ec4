// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures of servers.

use std::sync::{Arc, Weak};

use terrace_server::{RequestsReport, Server, Status};
use terrace_store::Store;

use crate::samples::{Samples, Source};

/// Figures of a server of `terrace serve`.
pub struct ServerSource(Weak<Server>);

impl ServerSource {
    /// Of this server, as long as there is one.
    pub fn new(server: &Arc<Server>) -> Self {
        Self(Arc::downgrade(server))
    }
}

impl Source for ServerSource {
    fn collect(&self, samples: &mut Samples) {
        if let Some(server) = self.0.upgrade() {
            collect("network", &server.status(), &server.requests(), samples);
        }
    }
}

/// Figures of the server behind the control socket of a store, for commands and mounts on this machine.
pub struct ControlSource(Store);

impl ControlSource {
    /// Of this store.
    pub fn new(store: &Store) -> Self {
        Self(store.clone())
    }
}

impl Source for ControlSource {
    fn collect(&self, samples: &mut Samples) {
        if let Some((status, requests)) = self.0.control_server() {
            collect("control", &status, &requests, samples);
        }
    }
}

fn collect(server: &str, status: &Status, requests: &RequestsReport, samples: &mut Samples) {
    for (state, count) in [("served", status.connections), ("greeting", status.strangers)] {
        samples.count("terrace_server_connections", &[server, state], count);
    }
    for (name, value) in [
        ("terrace_server_sessions", status.sessions),
        ("terrace_server_open_objects", status.handles),
        ("terrace_server_refused_connections", status.refused),
        ("terrace_server_requests", status.requests),
        ("terrace_server_operations", status.operations),
        ("terrace_server_received_bytes", status.received_bytes),
        ("terrace_server_sent_bytes", status.sent_bytes),
    ] {
        samples.count(name, &[server], value);
    }
    for (request, latencies) in &requests.latencies {
        samples.latencies("terrace_server_request_seconds", &[server, request], latencies);
    }
    for (kind, count) in &requests.errors {
        samples.count("terrace_server_errors", &[server, kind.word()], *count);
    }
}
