// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tests of every crate share: behaviour suites, a simulated machine that forgets what was
//! not synced, a clock that stands still, bytes that say where they belong, certificates, and scrapes.

pub mod behaviour;
#[cfg(feature = "certificates")]
mod certificates;
mod clock;
mod crash;
#[cfg(feature = "dav")]
pub mod dav;
pub mod history;
#[cfg(any(feature = "dav", feature = "s3"))]
mod hold;
#[cfg(any(feature = "dav", feature = "s3"))]
mod http;
pub mod kv_behaviour;
mod kv_layer;
pub mod namespace;
pub mod once;
pub mod openmetrics;
mod pattern;
pub mod registers;
#[cfg(feature = "s3")]
pub mod s3;
mod seeds;
pub mod sim;
mod usage;
pub mod versions;
mod whole;
pub mod whole_behaviour;

#[cfg(feature = "certificates")]
pub use certificates::{Authority, Certificate, Validity};
pub use clock::ManualClock;
pub use crash::CrashAt;
pub use kv_layer::{Body, KvLayer, Layered};
pub use pattern::{assert_pattern, pattern, pattern_bytes};
pub use seeds::seeds;
pub use sim::{Operation, SimKv, SimTier, SimWorld, StoredFile};
pub use usage::{anonymous_mib, cpu_ns};
pub use whole::Whole;
