// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control socket: other processes work with a store through the one that owns it.
//!
//! `docs/formats/control.md` is the protocol. Inside, `frame` is the bytes, `call` the requests,
//! `server` and `session` the owner's side, `link`, `pool` and `remote` the other one.

mod call;
mod frame;
pub(crate) mod fuzzing;
mod link;
mod pool;
mod remote;
mod server;
mod service;
mod session;
mod socket;

use std::time::Duration;

pub(crate) use call::Call;
pub(crate) use link::{Asking, Link};
pub(crate) use server::Serving;
pub(crate) use service::Offer;
pub(crate) use session::Answer;

/// A duration as it crosses the socket; 584 years at most.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
