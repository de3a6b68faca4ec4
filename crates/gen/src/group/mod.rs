// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes that go through a phase together, on one host or several.
//!
//! A coordinator speaks with each worker over a stream of JSON lines: a socket pair on its own host,
//! TCP otherwise, which the worker's parent has opened and on which both sides have shown that they know the
//! secret. A step begins once all have said that they are through the one before.

pub(crate) mod coordinator;
mod handshake;
mod line;
pub(crate) mod member;
mod message;
mod secret;
mod spawn;
pub(crate) mod worker;
