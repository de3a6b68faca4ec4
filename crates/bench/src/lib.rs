// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Benchmarks: what stores cost beside what lies below them, in turns on one machine.
//!
//! Each part is a module with its `Settings`, a `run` that measures until it is done or interrupted, and rows
//! that are JSON for programs; [`tables`] shows them to people. How sides are measured is in `terrace-measure`.
//!
//! - [`micro`]: single operations on objects and pairs; [`served`]: the same over servers, with many clients.
//! - [`overhead`]: nanoseconds that the stack adds. [`net`], [`mount`]: what network and mounts add.
//! - [`migrate`], [`size`]: one large object, and many small ones.
//! - [`files`]: directories of any file systems, side by side.
//! - [`amr`], [`study`]: a program with an adaptive mesh, and every policy over pairs of tiers.
//! - [`prediction`]: how well replays foresee what stores do.
//!
//! Some parts start this command again, in processes that serve, mount or measure with them: `terrace serve`,
//! `terrace mount`, and what `terrace bench` does with `--obey`, `--fill` and `--mirror`.

pub mod amr;
pub mod files;
pub mod micro;
pub mod migrate;
pub mod mount;
pub mod net;
pub mod overhead;
mod place;
pub mod prediction;
pub mod served;
pub mod size;
pub mod study;
pub mod tables;

pub use place::{fast_place, slow_place};
