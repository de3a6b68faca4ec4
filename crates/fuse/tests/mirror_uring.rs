// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tests of `mirror.rs`, with requests that come over `io_uring`.

#[path = "mirror.rs"]
mod mirror;
