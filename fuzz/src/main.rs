// SPDX-License-Identifier: Apache-2.0 OR MIT
//! libFuzzer over one target of `terrace-fuzzing`: the one that `TERRACE_TARGET` names.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use terrace_fuzzing::{TARGETS, Target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("TERRACE_TARGET").unwrap_or_default();
    Target::find(&name).unwrap_or_else(|| {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("fuzz: set TERRACE_TARGET to one of {}", names.join(", "));
        std::process::exit(2)
    })
});

fuzz_target!(|input: &[u8]| {
    TARGET.check(input);
});
