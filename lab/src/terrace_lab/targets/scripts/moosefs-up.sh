#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# MooseFS on this machine: a master and LAB_CHUNKSERVERS chunk servers, LAB_GOAL copies; or with
# LAB_ADDRESS the one whose master that is.
declare -F make_state >/dev/null || . "$(dirname "$0")/common.sh"
undo_on_failure
need mfsmount
done_if_mounted
make_state
mount_from() { # MASTER [wrapper]
  local cache="mfswritecachesize=$LAB_WRITE_CACHE_MB,mfsreadaheadsize=$LAB_READ_AHEAD_MB"
  wait_for 30 "${@:2}" mfsmount "$LAB_MOUNT" -H "$1" -o "allow_other,suid,dev,$cache" ||
    fail "cannot mount: $("${@:2}" mfsmount "$LAB_MOUNT" -H "$1" 2>&1 | tail -n 3)"
}
if [ -n "$LAB_ADDRESS" ]; then
  mount_from "$LAB_ADDRESS"
  exit 0
fi
need mfsmaster mfschunkserver mfscli mfssetgoal mfssettrashtime ip nsenter
# A chunk server refuses a master on 127.x.
address=10.99.8.1
make_network $address
# A user of the packages has no rights in our directories.
common="WORKING_USER = root
WORKING_GROUP = root
NICE_LEVEL = 0"
mkdir -p "$LAB_STATE/etc" "$LAB_STATE/master"
cat >"$LAB_STATE/etc/exports.cfg" <<END
10.99.8.0/24 / rw,alldirs,admin,maproot=0:0
10.99.8.0/24 . rw
END
: >"$LAB_STATE/etc/topology.cfg"
cat >"$LAB_STATE/etc/master.cfg" <<END
$common
SYSLOG_IDENT = $LAB_NETWORK-master
DATA_PATH = $LAB_STATE/master
EXPORTS_FILENAME = $LAB_STATE/etc/exports.cfg
TOPOLOGY_FILENAME = $LAB_STATE/etc/topology.cfg
MATOML_LISTEN_HOST = $address
MATOCS_LISTEN_HOST = $address
MATOCL_LISTEN_HOST = $address
END
start() { # PROGRAM CONFIGURATION [options]
  in_network "$1" -c "$2" test >/dev/null 2>&1 && return 0
  in_network setsid "$1" -c "$2" "${@:3}" start >"$LAB_STATE/log/start.out" 2>&1 ||
    fail "$1 does not start: $(cat "$LAB_STATE/log/start.out")"
}
[ -e "$LAB_STATE/master/metadata.mfs" ] || [ -e "$LAB_STATE/master/metadata.mfs.back" ] ||
  printf 'MFSM NEW' >"$LAB_STATE/master/metadata.mfs"
# -a: after an unclean end there are only changes to be applied to the last full state.
start mfsmaster "$LAB_STATE/etc/master.cfg" -a
for number in $(seq "$LAB_CHUNKSERVERS"); do
  home=$LAB_STATE/chunks-$number
  mkdir -p "$home/state" "$home/disk"
  echo "$home/disk" >"$LAB_STATE/etc/disks-$number.cfg"
  cat >"$LAB_STATE/etc/chunks-$number.cfg" <<END
$common
SYSLOG_IDENT = $LAB_NETWORK-chunks-$number
DATA_PATH = $home/state
HDD_CONF_FILENAME = $LAB_STATE/etc/disks-$number.cfg
HDD_LEAVE_SPACE_DEFAULT = 256MiB
HDD_FSYNC_BEFORE_CLOSE = $LAB_FSYNC
MASTER_HOST = $address
BIND_HOST = $address
CSSERV_LISTEN_HOST = $address
CSSERV_LISTEN_PORT = $((9500 + number))
END
  start mfschunkserver "$LAB_STATE/etc/chunks-$number.cfg"
done
all_are_there() { [ "$(in_network mfscli -H $address -SCS -p | grep -cF "$address")" -ge "$LAB_CHUNKSERVERS" ]; }
has_room() { [ "$(stat -f -c %b "$LAB_MOUNT")" -gt 0 ]; }
wait_for 30 all_are_there || fail "not all chunk servers come: $(in_network mfscli -H $address -SCS -p 2>&1)"
mount_from $address in_network
wait_for 30 has_room || fail "the chunk servers have no room"
run_quietly in_network mfssetgoal -r "$LAB_GOAL" "$LAB_MOUNT"
# Without trash, by default: what is removed frees its chunks.
run_quietly in_network mfssettrashtime -r "$LAB_TRASH_SECONDS" "$LAB_MOUNT"
