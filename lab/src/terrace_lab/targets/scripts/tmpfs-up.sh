#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Makes a file system in main memory: LAB_SIZE bytes at most.
declare -F make_state >/dev/null || . "$(dirname "$0")/common.sh"
undo_on_failure
done_if_mounted
make_state
mount -t tmpfs -o "size=$LAB_SIZE" lab-tmpfs "$LAB_MOUNT"
