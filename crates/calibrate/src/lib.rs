// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures what the tiers of a store can do, for the figures of its configuration.
//!
//! - [`calibrate`]: all tiers of a store, of which nothing else may be open; [`write_calibration`] writes it down.
//! - [`Calibrated`]: what was measured of one tier, and the keys of its section.
//! - [`Switched`]: what a migration takes beside its bytes.

mod figures;
mod fit;
mod ground;
mod machine;
mod measure;
mod run;
mod switches;
mod tier;

pub use self::figures::{Calibrated, Sample, Threads};
pub use self::run::{CalibrateOptions, calibrate, write_calibration};
pub use self::switches::Switched;

const OPERATION: &str = "measure a tier";
