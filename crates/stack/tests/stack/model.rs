// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random operations on a stack and on a plain map, which must agree.
//!
//! `TERRACE_SEED=7` replays one seed, `TERRACE_SEEDS=1000` runs that many from
//! `TERRACE_SEED_FIRST` on.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::common::random_run::Run;
use terrace_testkit::seeds;

/// Bounds the time of an ordinary test run.
const SEEDS: u64 = 24;

#[test]
fn a_stack_under_random_operations_is_a_plain_map() {
    let mut verified_bytes = 0;
    for seed in seeds(SEEDS) {
        match catch_unwind(AssertUnwindSafe(|| Run::new(seed).go())) {
            Ok(bytes) => verified_bytes += bytes,
            Err(panic) => {
                eprintln!("TERRACE_SEED={seed} cargo test -p terrace-stack --test model");
                resume_unwind(panic);
            }
        }
    }
    println!("verified_bytes={verified_bytes}");
}
