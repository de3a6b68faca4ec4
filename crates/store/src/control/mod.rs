// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control plane: other processes work with a store through the one that owns it.
//!
//! `call` is what can be asked (`docs/formats/control.md`), `service` carries it out, `link` asks,
//! and `socket` is how processes of one machine reach each other.

mod call;
pub(crate) mod fuzzing;
mod link;
mod service;
mod socket;

use std::time::Duration;

pub(crate) use call::Call;
pub(crate) use link::{Asking, Link, space_on};
pub(crate) use service::{Answer, Offer};
pub(crate) use socket::serve;

/// A duration as it crosses the socket; 584 years at most.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
