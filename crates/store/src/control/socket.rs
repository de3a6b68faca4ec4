// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The owner's end of the control socket, which speaks the network protocol.

use std::sync::Arc;
use std::time::Duration;

use terrace_admin::Owned;
use terrace_core::{Result, SystemClock};
use terrace_server::{Limits, Server};
use terrace_transport::Endpoint;

use super::service::Offer;

/// Connections at once; each is a thread.
const CONNECTIONS_MAX: usize = 256;

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
