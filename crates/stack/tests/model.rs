// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random operations on a stack and on a plain map, which must agree.
//!
//! `TERRACE_SEED=7` replays one seed, `TERRACE_SEEDS=1000` runs that many.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use common::random_run::Run;

/// Bounds the time of an ordinary test run.
const SEEDS: u64 = 24;

#[test]
fn a_stack_under_random_operations_is_a_plain_map() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seeds = match number("TERRACE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TERRACE_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        let run = catch_unwind(AssertUnwindSafe(|| Run::new(seed).go()));
        if let Err(panic) = run {
            eprintln!("TERRACE_SEED={seed} cargo test -p terrace-stack --test model");
            resume_unwind(panic);
        }
    }
}
