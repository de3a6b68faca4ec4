#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The tests of backends on engines that a machine has to have: Ceph. Starts a small cluster (tools/ceph-cluster.sh) in a
# directory of its own, runs the tests, and ends and removes it, also after an error. As root; some 4 min beside the build.
#
#   tools/test-engines.sh [FILTER]    runs only tests whose names hold FILTER, and no OSD is stopped
#
# KEEP=DIR uses the cluster in DIR, which it starts where it does not run, and leaves it running. TEST_SECONDS_MAX bounds
# each of the three groups of tests.
set -euo pipefail

root=$(dirname "$(dirname "$(realpath "$0")")")
cluster="$root/tools/ceph-cluster.sh"
filter=${1:-}
TEST_SECONDS_MAX=${TEST_SECONDS_MAX:-1200}

if [ -n "${KEEP:-}" ]; then
    mkdir -p "$KEEP"
    state=$(realpath "$KEEP")
else
    state=$(mktemp -d "${TMPDIR:-/var/tmp}/terrace-ceph.XXXXXX")
    # shellcheck disable=SC2064 # the directory as it is now
    trap "'$cluster' down '$state'; rm -rf '$state'" EXIT
fi

run() {
    timeout --kill-after=10 "$TEST_SECONDS_MAX" cargo test --locked --manifest-path "$root/Cargo.toml" "$@"
}

# Built before the cluster runs: it takes a core.
cargo test --locked --manifest-path "$root/Cargo.toml" -p terrace-backends -p terrace-store \
    --features terrace-backends/engines,terrace-store/engines --test rados --no-run
export TERRACE_CEPH=$state
SECONDS=0
"$cluster" up "$state"
echo "test-engines: the cluster runs after $SECONDS s"
run -p terrace-backends --features engines --test rados -- "$filter"
run -p terrace-store --features engines --test rados -- "$filter"
if [ -z "$filter" ]; then
    # One after the other: they stop OSDs.
    run -p terrace-backends --features engines --test rados -- --ignored --test-threads 1
fi
echo "test-engines: everything passed, $SECONDS s with the cluster"
