// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processes of a host that joins others: connects for each, and waits for them.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use super::handshake;
use super::secret::Secret;
use super::spawn::{Workers, pause};
use crate::arguments::{Plan, Remote, resolve};
use crate::clock::raw_ns;
use crate::error::{Error, Result};

/// Between two tries to reach a coordinator that is not there yet.
const RETRY_MS: u64 = 50;

/// Longest wait for the answer of one address.
const CONNECT_MS_MAX: u64 = 3000;

/// Takes part with `processes` workers of ranks from `first_rank` on.
pub(crate) fn run(plan: &Plan, remote: &Remote, first_rank: u64, processes: u64) -> Result<()> {
    let secret = Secret::read(&remote.secret_file)?;
    let mut workers = Workers::default();
    let deadline_ns = raw_ns() + plan.wait.as_nanos() as u64;
    for rank in first_rank..first_rank + processes {
        let stream = connect(&remote.address, deadline_ns)?;
        let (total, stream) = handshake::offer(stream, &secret, plan.phase, &plan.pattern, rank)
            .map_err(|error| error.with("address", &remote.address))?;
        plan.pattern.check(total)?;
        workers.start(rank, total, stream.into())?;
    }
    workers.wait()
}

fn connect(address: &str, deadline_ns: u64) -> Result<TcpStream> {
    loop {
        let mut last = Error::new("reach the coordinator", "the name has no address");
        // A host that is only just coming up may not have its name yet either.
        match resolve(address) {
            Ok(found) => {
                for one in found {
                    let limit = Duration::from_millis(CONNECT_MS_MAX);
                    match TcpStream::connect_timeout(&one, limit) {
                        Ok(stream) => return Ok(stream),
                        Err(error) => last = unreachable(error, address),
                    }
                }
            }
            Err(error) => last = error,
        }
        if raw_ns() >= deadline_ns {
            return Err(last);
        }
        pause(Duration::from_millis(RETRY_MS));
    }
}

fn unreachable(error: io::Error, address: &str) -> Error {
    Error::system("reach the coordinator", error).with("address", address)
}
