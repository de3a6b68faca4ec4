#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# NFS by a client in user space, fuse-nfs of libnfs, for kernels that have none: LAB_EXPORT of LAB_ADDRESS, or
# of nfs-ganesha, which serves a directory of the state here.
declare -F make_state >/dev/null || . "$(dirname "$0")/common.sh"
undo_on_failure
need fuse-nfs
done_if_mounted
make_state
mount_from() { # ADDRESS EXPORT [wrapper]
  "${@:3}" setsid fuse-nfs -n "nfs://$1$2?version=4" -m "$LAB_MOUNT" \
    >"$LAB_STATE/log/fuse.log" 2>&1 </dev/null &
  # It goes to the background or stays, depending on how it was built; its mount counts.
  wait_for 30 is_mounted || fail "cannot mount: $(tail -n 5 "$LAB_STATE/log/fuse.log")"
}
if [ -n "$LAB_ADDRESS" ]; then
  mount_from "$LAB_ADDRESS" "$LAB_EXPORT"
  exit 0
fi
need ganesha.nfsd ip nsenter
start_ganesha
mount_from "$ganesha_address" "$LAB_EXPORT" in_network
