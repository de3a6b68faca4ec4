#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Takes Terrace down: the mount, the servers, the stores with their tiers.
declare -F make_state >/dev/null || . "$(dirname "$0")/common.sh"
mount_is_gone() { ! pgrep -f -- " mount .* $LAB_MOUNT\$"; }
unmount
# Its process closes the store behind the unmount.
wait_for 30 mount_is_gone || fail "the process of the mount does not end"
for file in "$LAB_STATE"/server-*.pid; do
  [ ! -e "$file" ] || end_process "$(cat "$file")"
done
if [ -e "$LAB_STATE/tiers" ]; then
  while read -r tier; do
    case $tier in "$LAB_STATE"/*) ;; *) rm -rf --one-file-system "$tier" ;; esac
  done <"$LAB_STATE/tiers"
fi
remove_state
