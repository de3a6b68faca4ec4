// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients and a server over a simulated network that delays and loses messages, brings them twice
//! and breaks connections, by seeds: `TERRACE_SEED` and `TERRACE_SEEDS` choose them.

#[path = "../common/mod.rs"]
mod common;

mod histories;
mod net;
mod pipe;
