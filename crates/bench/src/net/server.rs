// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A server in a process of its own, and clients of it.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use terrace_client::{Address, Options, Remote};
use terrace_core::{Clock, Error, ErrorKind, Result, SystemClock};
use terrace_measure::processes::cpu_ns;
use terrace_store::Store;
use terrace_transport::{Endpoint, make_secret_file, read_secret_file};
use terrace_wire::Secret;

/// Patient: what is measured is not how a busy machine fails.
const DEADLINE: Duration = Duration::from_secs(60);

/// A store that a process of its own serves over TCP and a Unix socket; ends with this.
pub(crate) struct Served {
    child: Child,
    pub(crate) tcp: Endpoint,
    pub(super) unix: Endpoint,
    secret: PathBuf,
}

impl Served {
    /// Makes a store in `directory`, with these tiers, and serves it to clients with the secret, which
    /// is made if it is missing.
    pub(crate) fn start(directory: &Path, settings: &str, secret: &Path) -> Result<Self> {
        Store::init(directory, settings)?;
        make_secret_file(secret)?;
        let failed = |error| Error::from_io("start a server", error);
        let program = std::env::current_exe().map_err(failed)?;
        // Short: the path of a socket has 107 bytes at most.
        let socket = directory.with_extension("s");
        let mut child = Command::new(program)
            .arg("--json")
            .arg("--store")
            .arg(directory)
            .args(["serve", "--listen", "127.0.0.1:0", "--log-level", "error", "--listen"])
            .arg(format!("unix:{}", socket.display()))
            .arg("--secret-file")
            .arg(secret)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Ctrl-C is for the command, which ends its servers when its clients are done.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let mut line = String::new();
        let output = child.stdout.take().expect("it was just piped");
        let read = BufReader::new(output).read_line(&mut line);
        // Made first, so that the process ends with an error, too.
        let mut served = Self {
            child,
            tcp: Endpoint::Unix(socket.clone()),
            unix: Endpoint::Unix(socket),
            secret: secret.into(),
        };
        read.map_err(failed)?;
        let ready: Value = serde_json::from_str(&line).map_err(|error| {
            Error::new(ErrorKind::Io, "start a server")
                .because("it did not come up")
                .caused_by(error)
        })?;
        let address = ready["listen"][0].as_str().unwrap_or_default();
        served.tcp = address.parse()?;
        Ok(served)
    }

    /// A client with a session of its own.
    pub(crate) fn client(&self, endpoint: &Endpoint) -> Result<Remote> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let options = Options {
            secret: Some(Secret::new(&read_secret_file(&self.secret)?)?),
            deadline: DEADLINE,
            ..Options::default()
        };
        let address = Address { endpoint: endpoint.clone(), clock: Arc::clone(&clock) };
        Remote::connect(Box::new(address), options, clock)
    }

    /// The process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// CPU time of the server so far, user and system.
    pub(crate) fn cpu_ns(&self) -> u64 {
        cpu_ns(&[self.process()])
    }

    /// Anonymous memory of the server.
    pub(crate) fn anonymous_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/smaps_rollup", self.process());
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::from_io("look at the server", error))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:"));
        let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kib.unwrap_or(0) * 1024)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            // It may have ended by itself; `wait` tells.
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}
