#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# GlusterFS on this machine: LAB_BRICKS bricks, LAB_LAYOUT distribute, replicate or disperse.
# With LAB_ADDRESS its volume LAB_VOLUME is mounted in place of that.
declare -F make_state >/dev/null || . "$(dirname "$0")/common.sh"
undo_on_failure
need glusterfs
done_if_mounted
make_state
root_is_there() { [ "$(stat -c %i "$LAB_MOUNT")" = 1 ]; }
mount_volume() { # SERVER VOLUME [wrapper]
  # A server that has just come up may not have the volume yet.
  wait_for 10 "${@:3}" glusterfs --volfile-server="$1" --volfile-id="/$2" --acl \
    --log-file="$LAB_STATE/log/mount.log" "$LAB_MOUNT" ||
    fail "cannot mount: $(tail -n 5 "$LAB_STATE/log/mount.log")"
  # It returns before the volume is there.
  wait_for 30 root_is_there || fail "the volume does not come up"
}
if [ -n "$LAB_ADDRESS" ]; then
  mount_volume "$LAB_ADDRESS" "$LAB_VOLUME"
  exit 0
fi
need glusterd gluster ip nsenter
# Volumes on 127.x are refused.
address=10.99.7.1
make_network $address
mkdir -p "$LAB_STATE/work" "$LAB_STATE/run"
gluster_() { in_network gluster --mode=script "$@"; }
# It may be coming up still, where a script was ended before.
if ! pgrep -f "^glusterd -f $LAB_STATE/glusterd.vol" >/dev/null; then
  cat >"$LAB_STATE/glusterd.vol" <<END
volume management
    type mgmt/glusterd
    option working-directory $LAB_STATE/work
    option run-directory $LAB_STATE/run
    option transport-type socket
    option transport.socket.listen-port 24007
    option transport.address-family inet
end-volume
END
  in_network setsid glusterd -f "$LAB_STATE/glusterd.vol" -p "$LAB_STATE/run/glusterd.pid" \
    -l "$LAB_STATE/log/glusterd.log" >"$LAB_STATE/log/start.out" 2>&1 ||
    fail "glusterd does not start: $(tail -n 5 "$LAB_STATE/log/glusterd.log")"
fi
wait_for 30 gluster_ volume list || fail "glusterd does not answer"
if ! gluster_ volume info lab >/dev/null 2>&1; then
  case $LAB_LAYOUT in
    distribute) layout= ;;
    replicate) layout="replica $LAB_BRICKS" ;;
    disperse) layout="disperse $LAB_BRICKS redundancy $LAB_REDUNDANCY" ;;
    *) fail "no such layout: $LAB_LAYOUT" ;;
  esac
  bricks=
  for number in $(seq "$LAB_BRICKS"); do
    mkdir -p "$LAB_STATE/brick-$number"
    bricks="$bricks $address:$LAB_STATE/brick-$number"
  done
  # shellcheck disable=SC2086 # several words
  gluster_ volume create lab $layout $bricks force
  gluster_ volume set lab storage.reserve 0
fi >"$LAB_STATE/log/create.out" 2>&1 || fail "no volume: $(cat "$LAB_STATE/log/create.out")"
set_option() { gluster_ volume set lab "$1" "$2" >"$LAB_STATE/log/set.out" 2>&1 || fail "cannot set $1 to $2: $(cat "$LAB_STATE/log/set.out")"; }
set_option performance.write-behind "$LAB_WRITE_BEHIND"
set_option performance.io-cache "$LAB_IO_CACHE"
set_option performance.read-ahead "$LAB_READ_AHEAD"
set_option performance.io-thread-count "$LAB_IO_THREADS"
set_option performance.cache-size "$LAB_CACHE_SIZE"
gluster_ volume status lab >/dev/null 2>&1 || gluster_ volume start lab >"$LAB_STATE/log/start.out" 2>&1 ||
  fail "the volume does not start: $(cat "$LAB_STATE/log/start.out")"
mount_volume $address lab in_network
