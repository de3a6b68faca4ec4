// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lives of a session: a server that forgot the session begins another one.

/// A life of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    /// Grows when the server has forgotten the session: handles and answers of former lives are
    /// lost.
    pub(super) number: u64,
    /// The first life of which nothing is lost: what was done and not synced in earlier ones may be.
    pub(super) whole_since: u64,
}

impl Default for Life {
    fn default() -> Self {
        Self { number: 1, whole_since: 1 }
    }
}
