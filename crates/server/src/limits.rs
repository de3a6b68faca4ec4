// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds on what clients can make a server do.

use std::time::Duration;

/// Bounds on what clients can make a server do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time; each is a thread.
    pub connections_max: usize,
    /// Connections at a time that have not proved themselves; the oldest makes room for a new one.
    pub strangers_max: usize,
    /// Sessions at a time, those without connections included.
    pub sessions_max: usize,
    /// Objects that one session may have open.
    pub handles_max: usize,
    /// Answers that are kept for one session, in case they were lost.
    pub replies_max: usize,
    /// Bytes of these answers, about; from three quarters on only that they were given.
    pub replies_bytes_max: usize,
    /// Requests of one connection that may wait for storage beside the one that is carried out.
    pub waiting_max: usize,
    /// Memory for payloads that must be whole before they are used, of all connections together.
    pub buffers_bytes_max: usize,
    /// Longest time until a stranger has proved itself.
    pub greeting_time_max: Duration,
    /// Longest silence in the middle of a message, and longest wait for a client that does not
    /// read.
    pub stall_max: Duration,
    /// How long a session is kept without a connection.
    pub linger: Duration,
    /// Longest time that requests may still run once the server is asked to end.
    pub drain_time_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            strangers_max: 64,
            sessions_max: 4096,
            handles_max: 1 << 16,
            replies_max: 4096,
            replies_bytes_max: 4 << 20,
            waiting_max: 64,
            buffers_bytes_max: 256 << 20,
            greeting_time_max: Duration::from_secs(5),
            stall_max: Duration::from_secs(20),
            linger: Duration::from_secs(60),
            drain_time_max: Duration::from_secs(30),
        }
    }
}
