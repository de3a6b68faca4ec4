// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reaching the process of this machine that owns a store.

use std::sync::Arc;
use std::time::Duration;

use terrace_client::{Address, Options, Remote};
use terrace_core::{Access, Clock, Error, ErrorKind, Result};
use terrace_transport::Endpoint;

use crate::directory::Directory;

/// Connections of one client for large transfers and calls; more threads than that wait for each
/// other.
const CLIENT_CONNECTIONS_MAX: usize = 16;

/// Longest wait for an owner that does not greet: one that is stopped.
const GREETING_TIME_MAX: Duration = Duration::from_secs(2);

/// Longest wait for an answer. An owner that ends is noticed at once, and a device may take long.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(3600);

/// Reaches the owner of a store through its control socket.
///
/// # Errors
///
/// `Unreachable` where it has no owner, `Unsupported` (another version), `Denied`, `Busy`.
pub fn attach(directory: &Directory, access: Access, clock: &Arc<dyn Clock>) -> Result<Remote> {
    let options = Options {
        access,
        secret: None,
        deadline: ANSWER_TIME_MAX,
        connect_timeout: GREETING_TIME_MAX,
        reconnect_time_max: Duration::ZERO,
        connections_max: CLIENT_CONNECTIONS_MAX,
    };
    let endpoint = Endpoint::Unix(directory.socket());
    let dial = Box::new(Address { endpoint, clock: Arc::clone(clock) });
    Remote::connect(dial, options, Arc::clone(clock)).map_err(|error| match error.kind() {
        ErrorKind::Corrupt | ErrorKind::Invalid | ErrorKind::Unsupported => {
            Error::new(ErrorKind::Unsupported, "use the store through its owner")
                .because("the owner is another version of terrace")
                .caused_by(error)
        }
        _ => error,
    })
}
