// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Serves a store over TCP and Unix sockets.
//!
//! A [`Server`] serves a [`Service`]: a connection is a thread, a client is a session that may have
//! several connections. `docs/formats/wire.md` is the protocol, [`Limits`] what clients can make a
//! server do.

mod buffers;
mod connection;
mod counts;
mod crew;
mod limits;
mod pace;
mod pairs;
mod pieces;
mod sending;
mod server;
mod service;
mod session;
mod sessions;
mod shared;
mod work;
mod workers;

pub use counts::RequestsReport;
pub use limits::Limits;
pub use server::{Server, Status};
pub use service::{Call, Called, Caller, Kept, Service};
pub use terrace_wire::Openings;
