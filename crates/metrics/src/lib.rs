// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures of a running store in OpenMetrics, over HTTP.
//!
//! A [`Source`] reads the figures that the store, its servers and mounts count anyway, at each scrape. [`FAMILIES`] lists
//! all metrics; `docs/reference/metrics.md` is the same list for people. An [`Exporter`] answers `GET /metrics`.

mod exporter;
mod families;
mod http;
mod mount;
mod process;
mod samples;
mod server;
mod store;

pub use exporter::{Exporter, Limits, read_address};
pub use families::{FAMILIES, Family, Kind};
pub use mount::MountSource;
pub use process::ProcessSource;
pub use samples::{Samples, Source, textfile};
pub use server::{ControlSource, ServerSource};
pub use store::{StoreSource, tiers};
