// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which seeds a random test tries.

use std::ops::Range;

/// The seeds that a random test tries: `count` of them, unless the environment asks for others.
///
/// `TERRACE_SEED=7` is one seed, to replay it; `TERRACE_SEEDS=1000` is that many, from
/// `TERRACE_SEED_FIRST` on or from 0.
///
/// # Panics
///
/// Where one of them is no number.
pub fn seeds(count: u64) -> Range<u64> {
    let number = |name| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name} is {text:?}, no number")))
    };
    match number("TERRACE_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("TERRACE_SEED_FIRST").unwrap_or(0);
            first..first + number("TERRACE_SEEDS").unwrap_or(count)
        }
    }
}
