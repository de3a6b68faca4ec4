#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Makes an ext4, xfs or btrfs (LAB_FILE_SYSTEM) on a loop device over a file of LAB_SIZE bytes.
declare -F make_state >/dev/null || . "$(dirname "$0")/common.sh"
undo_on_failure
need "mkfs.$LAB_FILE_SYSTEM" losetup
done_if_mounted
make_state
image=$LAB_STATE/image
if [ ! -e "$image.made" ]; then
  truncate -s "$LAB_SIZE" "$image"
  case $LAB_FILE_SYSTEM in
    # All of its tables now, or the kernel would write them during the measurement.
    ext4) mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$image" ;;
    xfs) mkfs.xfs -q -f "$image" ;;
    btrfs) mkfs.btrfs -q -f "$image" ;;
    *) fail "no such file system: $LAB_FILE_SYSTEM" ;;
  esac
  : >"$image.made"
fi
device=$(losetup -n -O NAME -j "$image")
[ -n "$device" ] || device=$(losetup --find --show --direct-io="$LAB_DIRECT_IO" "$image")
mount -t "$LAB_FILE_SYSTEM" -o "${LAB_MOUNT_OPTIONS:-defaults}" "$device" "$LAB_MOUNT"
