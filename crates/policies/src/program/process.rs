// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process of a policy.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};
use terrace_core::{Error, Result};

use super::socket::Socket;

/// What policies import as `terrace.policy`, and the module that serves them, each with the variable
/// in which it comes: so nothing needs to be installed, and both sides are of one version.
const MODULES: [(&str, &str); 2] = [
    ("TERRACE_POLICY_MODULE", include_str!("../../python/policy.py")),
    ("TERRACE_POLICY_HOST", include_str!("../../python/host.py")),
];

/// Makes these modules from the environment and runs the second.
const LOADER: &str = "\
import os, sys, types
package = sys.modules['terrace'] = types.ModuleType('terrace')
package.__path__ = []
for name, variable in ('policy', 'TERRACE_POLICY_MODULE'), ('host', 'TERRACE_POLICY_HOST'):
    module = sys.modules['terrace.' + name] = types.ModuleType('terrace.' + name)
    setattr(package, name, module)
    source = compile(os.environ.pop(variable), '<terrace.' + name + '>', 'exec')
    exec(source, module.__dict__)
module.main(sys.argv[1])
";

/// Names another Python than the first on the path.
const PYTHON_VARIABLE: &str = "TERRACE_PYTHON";
const PYTHON: &str = "python3";

/// NumPy's libraries of linear algebra begin a thread for each processor as soon as they are
/// loaded, which spin at first. The processors are the store's and its users'. Where one of these
/// is set, the user has decided, and none is: each library knows more than one of them.
const THREADS: [&str; 3] = ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"];

/// How long a process may take to end by itself once its connection is closed.
const END_TIME_MAX: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// Starts the policy of a file and the way to it.
pub(super) fn start(path: &Path) -> Result<(Socket, Process)> {
    let (ours, theirs) =
        UnixStream::pair().map_err(|error| Error::from_io("start the policy", error))?;
    let process = Process::start(path, theirs)?;
    Ok((Socket::new(ours), process))
}

/// A process with a policy. Where this is dropped it ends, with all that it has started.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts the policy of a file, which talks over `stream`. What it prints goes to standard
    /// error.
    ///
    /// # Errors
    ///
    /// `NotFound` where there is no such file or no Python.
    pub fn start(path: &Path, stream: UnixStream) -> Result<Self> {
        const OPERATION: &str = "start the policy";
        if let Err(error) = std::fs::metadata(path) {
            return Err(Error::from_io(OPERATION, error).with("program", path.display()));
        }
        let python = std::env::var_os(PYTHON_VARIABLE).unwrap_or_else(|| PYTHON.into());
        let is_decided = THREADS.iter().any(|variable| std::env::var_os(variable).is_some());
        let threads = if is_decided { &[][..] } else { &THREADS };
        Command::new(&python)
            .envs(threads.iter().map(|variable| (variable, "1")))
            .args(["-u", "-c", LOADER])
            .arg(path)
            .envs(MODULES)
            .stdin(OwnedFd::from(stream))
            .stdout(Stdio::from(io::stderr()))
            // Leads a group, in which are those that it starts.
            .process_group(0)
            .spawn()
            .map(Self)
            .map_err(|error| Error::from_io(OPERATION, error).with("python", python.display()))
    }

    /// How it ended, where it has.
    pub fn ended(&self) -> Option<String> {
        // It is not reaped: its number stays that of its group until that is ended, too.
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(Pid::from_child(&self.0)), how).ok().flatten()?;
        Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "killed".into(),
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It sees the end of its socket; one that does not look is ended.
        let pid = Pid::from_child(&self.0);
        if let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) {
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&END_TIME_MAX));
        }
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = self.0.wait();
    }
}
