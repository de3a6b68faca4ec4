#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# A small cluster of Ceph on this machine, for tests: one monitor, one manager and OSDS OSDs on sparse files.
#
#   tools/ceph-cluster.sh up DIR         starts it; DIR is empty or as `down` left it; DIR/ceph.conf is its configuration
#   tools/ceph-cluster.sh start DIR N    starts the OSD N again
#   tools/ceph-cluster.sh stop DIR N     ends the OSD N
#   tools/ceph-cluster.sh down DIR       ends what runs there
#
# Needs root and the packages of `tools/setup.sh --ceph`. Environment: OSDS=2, BLOCK=4G (length of the file of an OSD).
# Pools: `terrace` (2 replicas), `small` (a quota of 8 MiB), `erasure` (an erasure code without overwrites).
# Users: client.admin, client.terrace with what docs/how-to/rados.md asks for, client.reader that may only read.
set -euo pipefail

command=${1:?up, start, stop or down}
state=$(realpath "${2:?the directory of the cluster}")
number=${3:-}
OSDS=${OSDS:-2}
BLOCK=${BLOCK:-4G}
# From a request to its end.
START_SECONDS_MAX=60
END_SECONDS_MAX=20

# Daemons are to hold no file of the caller open, as a lock.
for descriptor in /proc/self/fd/*; do
    opened=${descriptor##*/}
    if [ "$opened" -gt 2 ] && [ "$opened" -ne 255 ]; then eval "exec $opened>&-"; fi
done

ceph() { command ceph -c "$state/ceph.conf" --connect-timeout 20 "$@"; }

wait_until() {
    local seconds=$1
    shift
    for _ in $(seq $((seconds * 5))); do
        if "$@"; then return 0; fi
        sleep 0.2
    done
    echo "ceph-cluster: no answer within $seconds s: $*" >&2
    return 1
}

# Whether the daemon runs whose process id is in the file: of this cluster, as ids are used again.
runs() {
    local pid
    pid=$(cat "$state/run/$1.pid" 2>/dev/null) || return 1
    grep -qsz -- "$state/ceph.conf" "/proc/$pid/cmdline"
}

end() {
    runs "$1" || return 0
    local pid
    pid=$(cat "$state/run/$1.pid")
    # One that a test has stopped must hear the signal.
    kill "$pid" && kill -CONT "$pid"
    wait_until "$END_SECONDS_MAX" ended "$1" || kill -9 "$pid"
}

ended() { ! runs "$1"; }

start_osd() { ceph-osd -c "$state/ceph.conf" -i "$1" --keyring "$state/osd$1/keyring" >"$state/log/osd$1.out" 2>&1; }

up_osds() { [ "$(ceph osd stat -f json 2>/dev/null | grep -o '"num_up_osds":[0-9]*' | cut -d: -f2)" = "$1" ]; }

answers() { ceph -s >/dev/null 2>&1; }

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

configure() {
    cat >"$state/ceph.conf" <<END
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon host = [v2:127.0.0.1:$(free_port)]
public network = 127.0.0.0/8
cluster network = 127.0.0.0/8
ms bind ipv6 = false
keyring = $state/keyring
run dir = $state/run
log file = $state/log/\$name.log
admin socket = $state/run/\$name.\$pid.asok
pid file = $state/run/\$name.pid
crash dir = $state/log
setuser match path = $state/nothing
osd pool default size = 2
osd pool default min size = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon allow pool delete = true
mon data avail warn = 2
mon data avail crit = 1
mon osd down out interval = 600
osd heartbeat grace = 6
auth allow insecure global id reclaim = false
osd memory target = 1073741824
osd op queue = wpq
bluestore block create = true
[mon.a]
mon data = $state/mon
[mgr.x]
mgr data = $state/mgr
[osd]
osd data = $state/osd\$id
bluestore block size = $(numfmt --from=iec "$BLOCK")
bluestore block db create = false
bluestore block wal create = false
END
}

make_monitor() {
    mkdir -p "$state/mon"
    ceph-authtool --create-keyring "$state/keyring" --gen-key -n mon. --cap mon 'allow *' >/dev/null
    ceph-authtool "$state/keyring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *' >/dev/null
    local fsid address
    fsid=$(awk '/^fsid/ { print $3 }' "$state/ceph.conf")
    address=$(awk '/^mon host/ { print $4 }' "$state/ceph.conf")
    monmaptool --create --fsid "$fsid" --addv a "$address" "$state/monmap" >/dev/null
    ceph-mon -c "$state/ceph.conf" --mkfs -i a --monmap "$state/monmap" --keyring "$state/keyring"
}

make_manager() {
    mkdir -p "$state/mgr"
    ceph auth get-or-create mgr.x mon 'allow profile mgr' osd 'allow *' -o "$state/mgr/keyring"
}

make_osd() {
    local uuid key
    uuid=$(cat /proc/sys/kernel/random/uuid)
    key=$(ceph-authtool --gen-print-key)
    mkdir -p "$state/osd$1"
    printf '{"cephx_secret": "%s"}' "$key" | ceph osd new "$uuid" "$1" -i - >/dev/null
    ceph-authtool --create-keyring "$state/osd$1/keyring" -n "osd.$1" --add-key "$key" >/dev/null
    ceph-osd -c "$state/ceph.conf" -i "$1" --mkfs --osd-uuid "$uuid" --keyring "$state/osd$1/keyring" >"$state/log/mkfs$1.out" 2>&1
    touch "$state/osd$1/ready"
}

make_pools() {
    {
        ceph osd pool create terrace 16
        ceph osd pool create small 1
        ceph osd pool set-quota small max_bytes $((8 << 20))
        ceph osd erasure-code-profile set wide k=2 m=1 crush-failure-domain=osd
        ceph osd pool create erasure 1 1 erasure wide
        for pool in terrace small erasure; do ceph osd pool application enable "$pool" terrace; done
        ceph auth get-or-create client.terrace mon 'allow r' osd 'allow rw pool=terrace, allow rw pool=small' \
            -o "$state/terrace.keyring"
        ceph auth get-or-create client.reader mon 'allow r' osd 'allow r pool=terrace' -o "$state/reader.keyring"
    } >"$state/log/pools.out" 2>&1 || { cat "$state/log/pools.out" >&2; return 1; }
}

up() {
    mkdir -p "$state/run" "$state/log"
    [ -e "$state/ceph.conf" ] || configure
    [ -e "$state/mon/store.db" ] || make_monitor
    runs mon.a || ceph-mon -c "$state/ceph.conf" -i a
    wait_until "$START_SECONDS_MAX" answers
    [ -e "$state/mgr/keyring" ] || make_manager
    runs mgr.x || ceph-mgr -c "$state/ceph.conf" -i x --keyring "$state/mgr/keyring"
    for osd in $(seq 0 $((OSDS - 1))); do
        [ -e "$state/osd$osd/ready" ] || make_osd "$osd"
        runs "osd.$osd" || start_osd "$osd"
    done
    wait_until "$START_SECONDS_MAX" up_osds "$OSDS"
    [ -e "$state/reader.keyring" ] || make_pools
}

case $command in
    up) up ;;
    start) runs "osd.$number" || start_osd "$number" ;;
    stop) end "osd.$number" ;;
    down)
        for osd in $(seq 0 $((OSDS - 1))); do end "osd.$osd"; done
        end mgr.x
        end mon.a
        ;;
    *)
        echo "ceph-cluster: $command is none of up, start, stop, down" >&2
        exit 2
        ;;
esac
