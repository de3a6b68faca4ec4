#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Takes the file system on a loop device down, and removes its file.
declare -F make_state >/dev/null || . "$(dirname "$0")/common.sh"
unmount
for device in $(losetup -n -O NAME -j "$LAB_STATE/image" 2>/dev/null); do
  losetup -d "$device" || fail "cannot detach $device"
done
remove_state
