// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes that go through a phase together, on one host or several.
//!
//! A coordinator speaks with each worker over a stream of JSON lines: a socket pair on its own
//! host, TCP otherwise, which the worker's parent has opened and on which both sides have proved
//! that they know the secret. A step begins once all have reported the end of the one before.

pub(crate) mod coordinator;
mod handshake;
mod line;
pub(crate) mod member;
mod message;
mod secret;
mod spawn;
pub(crate) mod worker;
