// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts and ends the process of a policy.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use terrace_core::{Error, Result};

use super::socket::Socket;

/// The module that policies import as `terrace.policy`, so that nothing needs to be installed and
/// both sides are of one version.
const MODULE: &str = include_str!("../../../../bindings/python/terrace/policy.py");

/// Makes that module from the environment and runs it.
const LOADER: &str = "\
import os, sys, types
package, module = types.ModuleType('terrace'), types.ModuleType('terrace.policy')
package.__path__, package.policy = [], module
sys.modules.update({'terrace': package, 'terrace.policy': module})
source = os.environ.pop('TERRACE_POLICY_MODULE')
exec(compile(source, '<terrace.policy>', 'exec'), module.__dict__)
module.main(sys.argv[1])
";

/// Names another Python than the first on the path.
const PYTHON_VARIABLE: &str = "TERRACE_PYTHON";
const PYTHON: &str = "python3";

/// How long a process may take to end by itself.
const END_TIME_MAX: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// Starts the policy of a file, which talks over `stream`. What it prints goes to standard error.
///
/// # Errors
///
/// `NotFound` where there is no such file or no Python.
pub fn spawn(path: &Path, stream: UnixStream) -> Result<Child> {
    const OPERATION: &str = "start the policy";
    if let Err(error) = std::fs::metadata(path) {
        return Err(Error::from_io(OPERATION, error).with("program", path.display()));
    }
    let python = std::env::var_os(PYTHON_VARIABLE).unwrap_or_else(|| PYTHON.into());
    Command::new(&python)
        .args(["-u", "-c", LOADER])
        .arg(path)
        .env("TERRACE_POLICY_MODULE", MODULE)
        .stdin(OwnedFd::from(stream))
        .stdout(Stdio::from(io::stderr()))
        .spawn()
        .map_err(|error| Error::from_io(OPERATION, error).with("python", python.display()))
}

/// Starts the policy of a file and the way to it.
pub(super) fn start(path: &Path) -> Result<(Socket, Child)> {
    let (ours, theirs) =
        UnixStream::pair().map_err(|error| Error::from_io("start the policy", error))?;
    let child = spawn(path, theirs)?;
    Ok((Socket::new(ours), child))
}

/// A process that ends with its policy.
#[derive(Debug)]
pub(super) struct Ours(Child);

impl Ours {
    pub(super) fn new(child: Child) -> Self {
        Self(child)
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        // It sees the end of its socket; one that does not look is ended.
        let pid = Pid::from_child(&self.0);
        if let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) {
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&END_TIME_MAX));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
