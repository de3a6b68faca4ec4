// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Benchmarks: what the stack costs beside what lies below it, in turns and in one process.

pub(crate) mod amr;
pub(crate) mod files;
pub(crate) mod micro;
pub(crate) mod migrate;
pub(crate) mod mount;
pub(crate) mod net;
pub(crate) mod overhead;
mod place;
pub(crate) mod prediction;
pub(crate) mod served;
pub(crate) mod size;
pub(crate) mod study;

pub(crate) use place::{fast_place, slow_place};
