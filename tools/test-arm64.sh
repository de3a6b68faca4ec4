#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Builds for 64-bit ARM, runs the short tests and the command in qemu's emulation of a process.
# docs/how-to/arm64.md says what is left out, and why.
set -eu

cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu
emulator="qemu-aarch64 -L /usr/aarch64-linux-gnu"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$emulator"
# For crates that compile C.
export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc

# The command's own tests start it as a child, which the kernel cannot run without the emulator; those
# of the policy host build libraries with the machine's compiler; two more start themselves.
cargo test --locked --target "$target" -p terrace-core -p terrace-policy-abi -p terrace-backends \
    -p terrace-testkit -p terrace-trace -p terrace-settings -p terrace-recovery -p terrace-admin -p terrace-fs-client \
    -p terrace-store -p terrace-calibrate -p terrace-fuzzing -p terrace-policy -p partdiff \
    --lib --tests \
    -- --skip killed_processes_lose_no_commit --skip another_process_is_attached_to
cargo test --locked --target "$target" -p terrace-policies --lib
cargo test --locked --target "$target" -p terrace-stack --lib
cargo test --locked --target "$target" -p terrace-stack --test stack -- behaviour:: model:: migration:: \
    races:: capacity:: check:: policies:: bad_parts:: backup:: formats:: known_bugs:: quota:: scrub:: trace::

cargo build --locked --release --target "$target" -p terrace-cli
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
program=${CARGO_TARGET_DIR:-$PWD/target}/$target/release/terrace
export TERRACE_STORE="$directory/store"
terrace() { $emulator "$program" "$@"; }
terrace init "$TERRACE_STORE" --tier "fast=$directory/fast,capacity=1MB" \
    --tier "slow=$directory/slow,capacity=100MB" --policy lru >/dev/null
head -c 300000 /dev/urandom >"$directory/input"
terrace put run/a "$directory/input"
terrace migrate run/a --to slow >/dev/null
terrace get run/a >"$directory/output"
cmp "$directory/input" "$directory/output"
terrace ls run >/dev/null
terrace fsck --verify
terrace bench object --seconds 2
echo "test-arm64: everything passed"
