// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stores on other machines: one server as a backend, many as one.

mod deadline;
mod remote;
pub mod striped;

pub use remote::{
    Address, CallAnswer, Dial, Effect, Heard, Options, Remote, RemoteKv, ReopenGuard, TlsAddress,
    Unanswered,
};
