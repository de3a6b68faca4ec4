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
# Its port is fixed, and another server may have it.
address=10.99.10.1
make_network $address
mkdir -p "$LAB_STATE/export" "$LAB_STATE/recovery"
if ! is_ours "$(cat "$LAB_STATE/ganesha.pid" 2>/dev/null || echo none)"; then
  # It insists on this directory, whatever its configuration says.
  [ -d /run/ganesha ] || { mkdir /run/ganesha && : >"$LAB_STATE/made-run"; }
  cat >"$LAB_STATE/ganesha.conf" <<END
NFS_CORE_PARAM { Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = None; }
NFSv4 {
  Graceless = true;
  RecoveryBackend = fs;
  RecoveryRoot = $LAB_STATE/recovery;
  Only_Numeric_Owners = true;
}
EXPORT {
  Export_Id = 1;
  Path = $LAB_STATE/export;
  Pseudo = $LAB_EXPORT;
  Access_Type = RW;
  Squash = No_Root_Squash;
  SecType = sys;
  Protocols = 4;
  Transports = TCP;
  FSAL { Name = VFS; }
}
END
  in_network setsid ganesha.nfsd -f "$LAB_STATE/ganesha.conf" -L "$LAB_STATE/log/ganesha.log" \
    -p "$LAB_STATE/ganesha.pid" >"$LAB_STATE/log/start.out" 2>&1 </dev/null ||
    fail "ganesha.nfsd does not start: $(tail -n 5 "$LAB_STATE/log/ganesha.log")"
fi
is_listening() { in_network bash -c "exec 3<>/dev/tcp/$address/2049"; }
wait_for 30 is_listening ||
  fail "ganesha.nfsd does not listen: $(tail -n 5 "$LAB_STATE/log/ganesha.log")"
mount_from $address "$LAB_EXPORT" in_network
