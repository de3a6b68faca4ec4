// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tests of `session.rs`, with requests that come over `io_uring`.

#[path = "session.rs"]
mod session;
