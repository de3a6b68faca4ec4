// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two ends of the control socket, which speaks the network protocol.

use std::sync::Arc;
use std::time::Duration;

use terrace_client::{Address, Options, Remote};
use terrace_core::{Access, Clock, Error, ErrorKind, Result, SystemClock};
use terrace_server::{Limits, Server};
use terrace_transport::Endpoint;

use super::service::Offer;
use crate::directory::Directory;
use crate::owned::Owned;

/// Connections at once; each is a thread.
const CONNECTIONS_MAX: usize = 256;

/// Connections of one client for large transfers and calls; more threads than that wait for each
/// other.
const CLIENT_CONNECTIONS_MAX: usize = 16;

/// Longest wait for an owner that does not greet: one that is stopped.
const GREETING_TIME_MAX: Duration = Duration::from_secs(2);

/// Longest wait for an answer. An owner that ends is noticed at once, and a device may take long.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(3600);

/// Serves an owned store to other processes of this machine, until the server is dropped.
pub(crate) fn serve(owned: &Arc<Owned>) -> Result<Server> {
    let limits = Limits {
        connections_max: CONNECTIONS_MAX,
        // A connection breaks with one of its processes, and is not made again.
        linger: Duration::ZERO,
        ..Limits::default()
    };
    let clock = Arc::new(SystemClock::default());
    let server = Server::new(Arc::new(Offer::new(owned)), None, limits, clock);
    server.listen(&Endpoint::Unix(owned.directory.socket()))?;
    Ok(server)
}

/// Reaches the owner of a store.
pub(super) fn connect(
    directory: &Directory,
    access: Access,
    clock: &Arc<dyn Clock>,
) -> Result<Remote> {
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
