#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Guided fuzzing of the targets given, or of all, FUZZ_SECONDS each. libFuzzer needs instrumented
# code, which stable Rust makes with these flags; nothing here needs cargo-fuzz or a nightly compiler.
set -eu

cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-60}
directory=${CARGO_TARGET_DIR:-target}/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')

flags="-Cpasses=sancov-module -Ccodegen-units=1 -Cdebuginfo=line-tables-only"
for argument in -sanitizer-coverage-level=4 -sanitizer-coverage-inline-8bit-counters \
    -sanitizer-coverage-pc-table -sanitizer-coverage-trace-compares; do
    flags="$flags -Cllvm-args=$argument"
done
# With --target, build scripts and macros are built without the flags.
RUSTFLAGS="$flags" CARGO_TARGET_DIR="$directory" \
    cargo build --locked --quiet --release --manifest-path fuzz/Cargo.toml --target "$host"
program=$directory/$host/release/terrace-fuzz

[ $# -gt 0 ] || set -- $(ls crates/fuzzing/corpus)
failed=
for target in "$@"; do
    found=$directory/corpus/$target
    mkdir -p "$found" "$directory/artifacts"
    log=$directory/$target.log
    # A leak would be the allocator's to see; memory is bounded by the targets themselves.
    if TERRACE_TARGET=$target "$program" "$found" "crates/fuzzing/corpus/$target" \
        -max_total_time="$seconds" -max_len=65536 -timeout=20 -rss_limit_mb=2048 \
        -detect_leaks=0 -print_final_stats=1 -artifact_prefix="$directory/artifacts/$target-" \
        >"$log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        covered=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
        echo "fuzz: $target: $runs inputs, $covered edges, nothing found"
    else
        echo "fuzz: $target: FAILED; $log has the reason and the input's file" >&2
        echo "fuzz: replay: TERRACE_TARGET=$target $program FILE" >&2
        failed=1
    fi
done
[ -z "$failed" ]
