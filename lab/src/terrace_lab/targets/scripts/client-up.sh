#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Mounts what exists: LAB_COMMAND is run by the shell and mounts it at LAB_MOUNT.
declare -F make_state >/dev/null || . "$(dirname "$0")/common.sh"
undo_on_failure
done_if_mounted
[ -n "${LAB_ADDRESS:-}" ] || fail "no address of an installation was given"
make_state
bash -c "$LAB_COMMAND" || fail "the mount command failed: $LAB_COMMAND"
wait_for 30 is_mounted || fail "nothing is mounted after: $LAB_COMMAND"
