// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The server that a store is used through.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use terrace_client::Remote;
use terrace_core::{Error, ErrorKind, Result};
use terrace_server::{RequestsReport, Status};

use crate::Store;
use crate::store::Side;

/// What a server does at the moment, and did since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerReport {
    /// Its process on its machine.
    pub process: u32,
    /// What it does, and did.
    #[serde(flatten)]
    pub status: Status,
    /// CPU time of the process, user and system.
    pub cpu_ns: u64,
    /// What it logs.
    pub log_level: String,
}

/// A call that is about the server, not about its store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum ServerCall {
    /// Answered with a [`ServerReport`].
    ServerStatus,
    /// Changes what is logged.
    SetLogLevel {
        /// `off`, `error`, `warn`, `info`, `debug` or `trace`.
        level: String,
    },
}

impl ServerReport {
    /// Of this process, whose server does so much and whose log is at this level.
    pub fn of_process(status: Status, log_level: String) -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let cpu_ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        Self { process: std::process::id(), status, cpu_ns, log_level }
    }
}

impl Store {
    /// What the server does that this store is used through.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a store that is used without one; `Unreachable`.
    pub fn server(&self) -> Result<ServerReport> {
        self.ask_server(&ServerCall::ServerStatus)
    }

    /// Changes what that server logs. Errors: `Unsupported`, `Invalid`, `Denied`, `Unreachable`.
    pub fn set_server_log_level(&self, level: &str) -> Result<()> {
        self.ask_server(&ServerCall::SetLogLevel { level: level.into() })
    }

    /// What the server behind the control socket does, and did so far, where this process owns the store and serves
    /// others.
    pub fn control_server(&self) -> Option<(Status, RequestsReport)> {
        match &self.side {
            Side::Owned(owned) => owned.control_server(),
            Side::Attached(_) => None,
        }
    }

    /// What each of the servers does that this store is used through, with its name; nothing for a
    /// store that is used without one. Errors: `Unreachable`.
    pub fn servers(&self) -> Result<Vec<(String, ServerReport)>> {
        let Side::Attached(link) = &self.side else { return Ok(Vec::new()) };
        let ask = |(name, remote): (&str, &Remote)| {
            Ok((name.to_string(), ask(remote, &ServerCall::ServerStatus)?))
        };
        link.servers().into_iter().map(ask).collect()
    }

    fn ask_server<T: DeserializeOwned>(&self, call: &ServerCall) -> Result<T> {
        let no_server = || {
            Error::new(ErrorKind::Unsupported, "ask the server").because(
                "the store is not used through one; give --store terrace://HOST:PORT or its like",
            )
        };
        match &self.side {
            Side::Attached(link) => ask(link.remote()?.ok_or_else(no_server)?, call),
            Side::Owned(_) => Err(no_server()),
        }
    }
}

fn ask<T: DeserializeOwned>(remote: &Remote, call: &ServerCall) -> Result<T> {
    let odd = |error| {
        Error::new(ErrorKind::Corrupt, "ask the server").because("no JSON").caused_by(error)
    };
    let json = serde_json::to_vec(call).map_err(odd)?;
    let answer = remote.call(&json, &[], &mut |_, _| {})?;
    serde_json::from_slice(&answer.json).map_err(odd)
}
