// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measuring two or more sides in turns, so that whatever changes on the machine meets all of them.
//!
//! - [`blocks`]: interleaved blocks of an operation that one thread repeats.
//! - [`sides`]: cases that threads, or other processes, repeat at once, with histograms of latencies.
//! - [`team`]: processes of this command that do the same at the same time.
//! - [`Bound`] is a median with its bootstrap bound, [`Ratio`] a comparison of pairs with the bound of the sign test.
//! - [`compared`]: rows of a table that have to reach a bar; [`Verdict`] says whether they do.
//! - [`processes`] and [`Machine`]: what processes take, and what it was measured on.
//!
//! It knows neither stores nor what is measured: benchmarks and the demo bring the operations.

pub mod blocks;
mod clocks;
pub mod compared;
mod machine;
pub mod processes;
mod ratio;
pub mod sides;
mod statistics;
pub mod team;
mod verdict;

pub use self::clocks::{check_stop, cpu_ns, shared_now_ns};
pub use self::machine::{Machine, file_system};
pub use self::ratio::{Ratio, compare, gather};
pub use self::statistics::{Bound, median, quantile};
pub use self::verdict::Verdict;
