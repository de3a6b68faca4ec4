# SPDX-License-Identifier: Apache-2.0 OR MIT
# What the scripts of targets share. They find in the environment:
#   LAB_TARGET   name of the target
#   LAB_STATE    directory that all of their state lies in, LAB_MOUNT their mount point in it
#   LAB_REMOUNT  1 where a system that is up is to be mounted again, to empty its caches
#   LAB_OPTION   each option and parameter of the preset, in capitals
# An up script that finds its system up does nothing; a down script leaves nothing behind.
set -u
: "${LAB_TARGET:?}" "${LAB_STATE:?}"
: "${LAB_MOUNT:=$LAB_STATE/mnt}"
LAB_OWNED=$LAB_STATE/.terrace-lab-state
# A network of its own, where a system refuses loopback addresses or has fixed ports.
LAB_NETWORK=lab-$(printf %s "$LAB_STATE" | cksum | cut -d' ' -f1)

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

# By hand an up script that failed is followed by its down script; the lab does so itself.
undo_on_failure() {
  trap 'code=$?; [ $code = 0 ] || [ ! -f "$0" ] || bash "${0%-up.sh}-down.sh"; exit $code' EXIT
  set -e
}

# Runs a command whose output matters only where it fails.
run_quietly() {
  local said
  said=$("$@" 2>&1) || fail "$1 failed: $said"
}

need() {
  local program
  for program; do
    command -v "$program" >/dev/null || fail "$program is not there"
  done
}

is_mounted() { mountpoint -q "$LAB_MOUNT"; }

# Ends the script where the system is up, unless it is to be mounted again.
done_if_mounted() {
  is_mounted || return 0
  [ "${LAB_REMOUNT:-}" = 1 ] || exit 0
  unmount
}

# Makes the state, or takes over its own; never somebody else's directory.
make_state() {
  if [ -d "$LAB_STATE" ] && [ ! -e "$LAB_OWNED" ] && [ -n "$(ls -A "$LAB_STATE")" ]; then
    fail "the directory of the state is not empty and not of the lab: $LAB_STATE"
  fi
  local above made_above=
  above=$(dirname "$LAB_STATE")
  [ -d "$above" ] || { mkdir -p "$above" && made_above=$above; }
  mkdir -p "$LAB_STATE"
  [ -e "$LAB_OWNED" ] || printf '%s' "$made_above" >"$LAB_OWNED"
  mkdir -p "$LAB_MOUNT" "$LAB_STATE/log"
}

remove_state() {
  [ -e "$LAB_OWNED" ] || return 0
  if grep -qF " $LAB_STATE/" /proc/self/mountinfo; then
    fail "something is still mounted below $LAB_STATE"
  fi
  local made_above
  made_above=$(cat "$LAB_OWNED")
  rm -rf --one-file-system "$LAB_STATE"
  [ -z "$made_above" ] || rmdir --ignore-fail-on-non-empty "$made_above"
}

# wait_for SECONDS COMMAND...: until the command succeeds; it is tried once at least.
wait_for() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.1
  done
}

# Unmounts, where it is mounted; a file system that is in use stays, and is told.
unmount() {
  is_mounted || return 0
  wait_for 20 umount "$LAB_MOUNT" || umount "$LAB_MOUNT" || fail "cannot unmount $LAB_MOUNT"
}

# is_ours PID: whether the process has our directory among its words.
is_ours() { [ -e "/proc/$1/cmdline" ] && tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline" | grep -qF "$LAB_STATE/"; }

# end_process PID: asks it to end, and makes it after 10 s; returns when it is gone.
end_process() {
  is_ours "$1" || return 0
  kill "$1" 2>/dev/null || return 0
  wait_for 10 is_gone "$1" && return 0
  kill -9 "$1" 2>/dev/null
  wait_for 10 is_gone "$1" || fail "process $1 does not end"
}

is_gone() { [ ! -e "/proc/$1" ] || grep -q '^State:.*Z' "/proc/$1/status"; }

# A network namespace with one address on its loopback interface. Commands in it keep our mounts,
# which `ip netns exec` would hide.
make_network() {
  [ -e "/run/netns/$LAB_NETWORK" ] || ip netns add "$LAB_NETWORK"
  in_network ip link set lo up
  in_network ip addr replace "$1/24" dev lo
}

in_network() { nsenter --net="/run/netns/$LAB_NETWORK" "$@"; }

# Ends all that lives in our network, and the network.
remove_network() {
  [ -e "/run/netns/$LAB_NETWORK" ] || return 0
  local signal
  for signal in TERM KILL; do
    # shellcheck disable=SC2046 # one word each
    kill -$signal $(ip netns pids "$LAB_NETWORK") 2>/dev/null || break
    wait_for 10 network_is_empty && break
  done
  network_is_empty || fail "processes in network $LAB_NETWORK do not end"
  ip netns delete "$LAB_NETWORK"
}

network_is_empty() { [ -z "$(ip netns pids "$LAB_NETWORK")" ]; }

# An NFS server of our own, nfs-ganesha, that serves a directory of the state as LAB_EXPORT.
ganesha_address=10.99.10.1
ganesha_is_listening() { in_network bash -c "exec 3<>/dev/tcp/$ganesha_address/2049"; }
start_ganesha() {
  # Its port is fixed, and another server may have it.
  make_network $ganesha_address
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
  wait_for 30 ganesha_is_listening ||
    fail "ganesha.nfsd does not listen: $(tail -n 5 "$LAB_STATE/log/ganesha.log")"
}
