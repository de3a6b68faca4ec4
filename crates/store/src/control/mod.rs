// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control plane: other processes work with a store through the one that owns it.
//!
//! `service` is what a server serves, `socket` how processes of one machine reach each other, and `link` the
//! other side. What can be asked beside objects and pairs is in [`terrace_admin`].

mod link;
mod service;
mod socket;

pub(crate) use link::Link;
pub(crate) use service::Offer;
pub(crate) use socket::serve;
