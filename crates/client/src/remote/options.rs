// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a server is used.

use std::time::Duration;

use terrace_core::Access;
use terrace_wire::Secret;

/// How a server is used.
#[derive(Clone, Debug)]
pub struct Options {
    /// What this client may do.
    pub access: Access,
    /// What client and server share. With one, a server that does not know it is refused; without
    /// one, a server that asks for it cannot be used. Not needed over a Unix socket.
    pub secret: Option<Secret>,
    /// Longest time that an operation takes, connecting again and asking again included. Long
    /// transfers are given as long for each of their pieces.
    pub deadline: Duration,
    /// Longest time for one attempt to connect, greeting included.
    pub connect_timeout: Duration,
    /// Longest time that a server that went away is tried again, within the deadline. Zero for one
    /// that, once it is gone, is not expected back.
    pub reconnect_time_max: Duration,
    /// Connections for large transfers and long calls, beside the one that small requests share.
    pub connections_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            access: Access::Write,
            secret: None,
            deadline: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            reconnect_time_max: Duration::MAX,
            connections_max: 8,
        }
    }
}
