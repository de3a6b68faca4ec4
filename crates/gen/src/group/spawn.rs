// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Workers on this host: this program again, with its connection as standard input.

use std::env;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::clock::raw_ns;
use crate::error::{Error, Result};

/// How long a worker that is to end may take before it is killed, and after.
const END_MS_MAX: u64 = 2000;

/// Between two looks whether one has ended.
const LOOK_MS: u64 = 5;

/// Workers of this process; those that are left are ended with it.
#[derive(Debug, Default)]
pub(crate) struct Workers(Vec<(u64, Child)>);

impl Workers {
    /// Starts one of `processes` that speaks over `connection`.
    pub(crate) fn start(&mut self, rank: u64, processes: u64, connection: OwnedFd) -> Result<()> {
        let failed = |error| Error::system("start a worker", error).with("rank", rank);
        let program = env::current_exe().map_err(failed)?;
        let child = Command::new(program)
            .args(env::args_os().skip(1))
            .arg("--worker")
            .arg(rank.to_string())
            .arg("--of")
            .arg(processes.to_string())
            .stdin(Stdio::from(connection))
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed)?;
        self.0.push((rank, child));
        Ok(())
    }

    /// Waits until all have ended by themselves.
    pub(crate) fn wait(&mut self) -> Result<()> {
        for (rank, mut child) in self.0.drain(..) {
            let ended = child.wait();
            let failed = |error| Error::system("wait for a worker", error).with("rank", rank);
            let status = ended.map_err(failed)?;
            if !status.success() {
                let error = Error::new("go on", "a worker ended").with("rank", rank);
                return Err(error.with("status", status));
            }
        }
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for step in 0..2 {
            let deadline_ns = raw_ns() + END_MS_MAX * 1_000_000;
            while raw_ns() < deadline_ns {
                self.0.retain_mut(|(_, child)| !matches!(child.try_wait(), Ok(Some(_)) | Err(_)));
                if self.0.is_empty() {
                    return;
                }
                pause(Duration::from_millis(LOOK_MS));
            }
            if step == 0 {
                for (_, child) in &mut self.0 {
                    // It has ended just now, or cannot be ended.
                    let _ = child.kill();
                }
            }
        }
    }
}

/// Does nothing for a while.
#[expect(clippy::disallowed_methods, reason = "a command runs in real time")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
