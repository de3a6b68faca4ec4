#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# NFS by the client of the kernel: LAB_EXPORT of LAB_ADDRESS, or of nfs-ganesha, which serves a directory
# of the state here.
declare -F make_state >/dev/null || . "$(dirname "$0")/common.sh"
undo_on_failure
need mount.nfs
done_if_mounted
make_state
mount_from() { # ADDRESS EXPORT [wrapper]
  local options="$LAB_MOUNT_OPTIONS,rsize=$LAB_REQUEST_BYTES,wsize=$LAB_REQUEST_BYTES"
  "${@:3}" mount -t nfs -o "$options" "$1:$2" "$LAB_MOUNT" 2>"$LAB_STATE/log/mount.out" ||
    fail "cannot mount: $(cat "$LAB_STATE/log/mount.out")"
}
if [ -n "$LAB_ADDRESS" ]; then
  mount_from "$LAB_ADDRESS" "$LAB_EXPORT"
  exit 0
fi
need ganesha.nfsd ip nsenter
start_ganesha
mount_from "$ganesha_address" "$LAB_EXPORT" in_network
