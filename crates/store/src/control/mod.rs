// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control plane: other processes work with a store through the one that owns it.
//!
//! `call` is what can be asked (`docs/formats/control.md`), `service` carries it out, `link` asks,
//! `socket` is how processes of one machine reach each other, and
//! `cluster` several servers.

mod call;
mod cluster;
mod link;
mod service;
mod socket;

pub(crate) use call::Call;
pub use call::{FilesReport, Recording};
pub(crate) use link::Link;
pub use link::Seen;
pub(crate) use service::{Offer, carry_out};
pub(crate) use socket::serve;
