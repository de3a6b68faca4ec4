#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# CephFS on this machine: a monitor, a manager, LAB_OSDS stores on files of LAB_OSD_SIZE bytes, a metadata
# server, and ceph-fuse; or with LAB_ADDRESS the monitors of one that exists.
declare -F make_state >/dev/null || . "$(dirname "$0")/common.sh"
undo_on_failure
need ceph-fuse
done_if_mounted
make_state
mount_fuse() { # wrapper and options of ceph-fuse
  "$@" --client_oc_size $((LAB_CLIENT_CACHE_MB << 20)) "$LAB_MOUNT" >"$LAB_STATE/log/fuse.out" 2>&1 </dev/null ||
    fail "cannot mount: $(tail -n 5 "$LAB_STATE/log/fuse.out")"
  wait_for 30 is_mounted || fail "cannot mount: $(tail -n 5 "$LAB_STATE/log/fuse.out")"
}
if [ -n "$LAB_ADDRESS" ]; then
  mount_fuse setsid ceph-fuse -m "$LAB_ADDRESS" --id "$LAB_USER" ${LAB_KEYRING:+-k "$LAB_KEYRING"}
  exit 0
fi
need ceph ceph-mon ceph-mgr ceph-osd ceph-mds ceph-authtool monmaptool ip nsenter
# Its ports are fixed, so that it has a network of its own.
address=10.99.9.1
make_network $address
conf=$LAB_STATE/ceph.conf keyring=$LAB_STATE/keyring
mkdir -p "$LAB_STATE/run"
if [ ! -e "$conf" ]; then
  cat >"$conf" <<END
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon host = [v2:$address:3300,v1:$address:6789]
public network = 10.99.9.0/24
cluster network = 10.99.9.0/24
ms bind ipv6 = false
keyring = $keyring
run dir = $LAB_STATE/run
pid file = $LAB_STATE/run/\$name.pid
admin socket = $LAB_STATE/run/\$name.\$pid.asok
log file = $LAB_STATE/log/\$name.log
crash dir = $LAB_STATE/log
osd pool default size = $LAB_COPIES
osd pool default min size = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon warn on pool no redundancy = false
mon data avail crit = 1
auth allow insecure global id reclaim = false
osd memory target = 1073741824
[mon.a]
mon data = $LAB_STATE/mon
[mgr.x]
mgr data = $LAB_STATE/mgr
keyring = $LAB_STATE/mgr/keyring
[mds.a]
mds data = $LAB_STATE/mds
keyring = $LAB_STATE/mds/keyring
[osd]
osd data = $LAB_STATE/osd-\$id
keyring = $LAB_STATE/osd-\$id/keyring
bluestore block create = true
bluestore block size = $LAB_OSD_SIZE
bluestore block db create = false
bluestore block wal create = false
# The other queue measures each store at its start, for which small machines take minutes.
osd op queue = wpq
END
fi
ceph_() { in_network ceph -c "$conf" --connect-timeout 20 "$@"; }
# start PROGRAM ID: where it does not run.
start() {
  is_ours "$(cat "$LAB_STATE/run/${1#ceph-}.$2.pid" 2>/dev/null || echo none)" && return 0
  in_network setsid "$1" -c "$conf" -i "$2" >"$LAB_STATE/log/$1.$2.out" 2>&1 </dev/null ||
    fail "$1 $2 does not start: $(tail -n 5 "$LAB_STATE/log/$1.$2.out")"
}
if [ ! -e "$LAB_STATE/mon/made" ]; then
  rm -rf "$LAB_STATE/mon" && mkdir "$LAB_STATE/mon"
  {
    ceph-authtool --create-keyring "$keyring" --gen-key -n mon. --cap mon 'allow *'
    ceph-authtool "$keyring" --gen-key -n client.admin \
      --cap mon 'allow *' --cap osd 'allow *' --cap mds 'allow *' --cap mgr 'allow *'
    monmaptool --create --clobber --fsid "$(awk '/^fsid/ {print $3}' "$conf")" \
      --addv a "[v2:$address:3300,v1:$address:6789]" "$LAB_STATE/monmap"
    in_network ceph-mon -c "$conf" --mkfs -i a --monmap "$LAB_STATE/monmap" --keyring "$keyring"
  } >"$LAB_STATE/log/mon.mkfs" 2>&1 || fail "no monitor: $(tail -n 5 "$LAB_STATE/log/mon.mkfs")"
  : >"$LAB_STATE/mon/made"
fi
start ceph-mon a
wait_for 60 ceph_ -s || fail "the monitor does not answer"
ceph_ mon enable-msgr2 >/dev/null 2>&1
if [ ! -e "$LAB_STATE/mgr/keyring" ]; then
  mkdir -p "$LAB_STATE/mgr"
  ceph_ auth get-or-create mgr.x mon 'allow profile mgr' osd 'allow *' mds 'allow *' \
    >"$LAB_STATE/mgr/keyring"
fi
start ceph-mgr x
for number in $(seq 0 $((LAB_OSDS - 1))); do
  home=$LAB_STATE/osd-$number
  if [ ! -e "$home/made" ]; then
    mkdir -p "$home"
    uuid=$(cat /proc/sys/kernel/random/uuid) key=$(ceph-authtool --gen-print-key)
    ceph_ osd new "$uuid" "$number" -i - <<<"{\"cephx_secret\": \"$key\"}" >/dev/null
    ceph-authtool --create-keyring "$home/keyring" -n "osd.$number" --add-key "$key" >/dev/null
    in_network ceph-osd -c "$conf" -i "$number" --mkfs --osd-uuid "$uuid" \
      >"$LAB_STATE/log/osd-$number.mkfs" 2>&1 ||
      fail "no store $number: $(tail -n 5 "$LAB_STATE/log/osd-$number.mkfs")"
    : >"$home/made"
  fi
  start ceph-osd "$number"
done
all_are_up() { ceph_ osd stat -f json | grep -q "\"num_up_osds\":$LAB_OSDS[,}]"; }
wait_for 60 all_are_up || fail "not all stores come up: $(ceph_ osd stat 2>&1)"
if [ ! -e "$LAB_STATE/mds/keyring" ]; then
  mkdir -p "$LAB_STATE/mds"
  ceph_ auth get-or-create mds.a mon 'allow profile mds' mgr 'allow profile mds' \
    mds 'allow *' osd 'allow *' >"$LAB_STATE/mds/keyring"
fi
start ceph-mds a
if ! ceph_ fs ls 2>/dev/null | grep -q 'name: lab,'; then
  {
    ceph_ osd pool create lab-meta 16
    ceph_ osd pool set lab-meta size "$LAB_COPIES" --yes-i-really-mean-it
    if [ "$LAB_DATA_POOL" = erasure ]; then
      ceph_ osd erasure-code-profile set lab "k=$LAB_EC_DATA" "m=$LAB_EC_PARITY" crush-failure-domain=osd
      ceph_ osd pool create lab-data "$LAB_PG_NUM" "$LAB_PG_NUM" erasure lab
      # Files are overwritten in place, which such a pool allows when it is told to.
      ceph_ osd pool set lab-data allow_ec_overwrites true
      ceph_ fs new lab lab-meta lab-data --force
    else
      ceph_ osd pool create lab-data "$LAB_PG_NUM"
      ceph_ osd pool set lab-data size "$LAB_COPIES" --yes-i-really-mean-it
      ceph_ fs new lab lab-meta lab-data
    fi
  } >"$LAB_STATE/log/fs.out" 2>&1 || fail "no file system: $(tail -n 5 "$LAB_STATE/log/fs.out")"
fi
is_active() { ceph_ mds stat | grep -q up:active; }
wait_for 60 is_active || fail "the metadata server does not come up: $(ceph_ mds stat 2>&1)"
mount_fuse in_network setsid ceph-fuse -c "$conf" --id admin -k "$keyring"
# Files inherit their layout from the root.
if [ "$LAB_STRIPE_UNIT:$LAB_STRIPE_COUNT" != 4194304:1 ]; then
  need setfattr
  run_quietly setfattr -n ceph.dir.layout.stripe_unit -v "$LAB_STRIPE_UNIT" "$LAB_MOUNT"
  run_quietly setfattr -n ceph.dir.layout.stripe_count -v "$LAB_STRIPE_COUNT" "$LAB_MOUNT"
fi
