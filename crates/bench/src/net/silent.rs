// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Servers that do not answer: how long every verb takes to say so.

use std::net::TcpListener;
use std::process::{Command, Stdio};

use terrace_core::{Clock, Error, ErrorKind, Result, SystemClock};

/// What a user allows.
pub(super) const DEADLINE_S: f64 = 1.0;

/// A command line of each kind of verb that uses a store.
const VERBS: [&[&str]; 18] = [
    &["put", "a/x", "/dev/null"],
    &["get", "a/x"],
    &["cp", ":a/x", "-"],
    &["ls", "a"],
    &["stat", "a/x"],
    &["rm", "a/x"],
    &["kv", "get", "a/x"],
    &["kv", "scan", "a"],
    &["tiers"],
    &["explain", "a/x"],
    &["migrate", "a/x", "--to", "slow"],
    &["pin", "a/x"],
    &["unpin", "a/x"],
    &["policy", "show"],
    &["quota", "show"],
    &["scrub", "--status"],
    &["fsck"],
    &["server", "status"],
];

/// The longest time in seconds that any verb takes to fail: for a port without a listener, and
/// for a server that accepts connections and sends nothing.
pub(super) fn longest_s() -> Result<f64> {
    let failed = |error| Error::from_io("measure a silent server", error);
    let silent = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let closed = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let silent_port = silent.local_addr().map_err(failed)?;
    let closed_port = closed.local_addr().map_err(failed)?;
    drop(closed);
    let program = std::env::current_exe().map_err(failed)?;
    let clock = SystemClock::default();
    let mut longest_s = 0_f64;
    for address in [silent_port, closed_port] {
        for verb in VERBS {
            let started_ns = clock.now_ns();
            let status = Command::new(&program)
                .args([
                    "--store",
                    &format!("terrace://{address}?deadline={DEADLINE_S}s&secret=none"),
                ])
                .args(verb)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .map_err(failed)?;
            longest_s = longest_s.max((clock.now_ns() - started_ns) as f64 / 1e9);
            // 11: the target did not answer (docs/reference/cli.md).
            if status.code() != Some(11) {
                return Err(Error::new(ErrorKind::Io, "measure a silent server")
                    .because("a verb ended otherwise than unreachable")
                    .with("verb", verb.join(" "))
                    .with("status", status));
            }
        }
    }
    Ok(longest_s)
}
