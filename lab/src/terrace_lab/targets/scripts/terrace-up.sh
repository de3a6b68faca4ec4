#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Terrace on this machine: a store of two tiers behind LAB_SERVER_COUNT servers on ports of loopback
# from LAB_PORT on, mounted over TCP; with 0 servers the store is mounted directly.
declare -F make_state >/dev/null || . "$(dirname "$0")/common.sh"
undo_on_failure
command -v "$LAB_PROGRAM" >/dev/null || fail "$LAB_PROGRAM is not there"
done_if_mounted
for directory in "$LAB_FAST" "$LAB_SLOW"; do
  [ -z "$directory" ] || [ -d "$directory" ] || fail "there is no directory $directory"
done
make_state
# What is set for the user must not lead to another store.
unset TERRACE_STORE TERRACE_SECRET_FILE
if [ ! -e "$LAB_STATE/secret" ]; then
  (umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$LAB_STATE/secret")
fi
count=$LAB_SERVER_COUNT
addresses=
for number in $(seq $((count > 0 ? count : 1))); do
  store=$LAB_STATE/store-$number
  fast=${LAB_FAST:-$LAB_STATE}/fast-$number slow=${LAB_SLOW:-$LAB_STATE}/slow-$number
  if [ ! -e "$store" ]; then
    "$LAB_PROGRAM" init "$store" --catalog "$LAB_CATALOG" --policy "$LAB_POLICY" \
      --tier "fast=$fast,capacity=$LAB_FAST_CAPACITY" --tier "slow=$slow" >/dev/null
    printf '%s\n%s\n' "$fast" "$slow" >>"$LAB_STATE/tiers"
    # Not every policy has these marks.
    case $LAB_POLICY in
      lru | heat | s3-fifo | write-buffer)
        "$LAB_PROGRAM" --store "$store" policy set "high=$LAB_HIGH" "low=$LAB_LOW" >/dev/null ;;
    esac
  fi
  [ "$count" -gt 0 ] || continue
  port=$((LAB_PORT + number - 1))
  addresses=$addresses${addresses:+,}127.0.0.1:$port
  log=$LAB_STATE/log/server-$number.log
  if ! is_ours "$(cat "$LAB_STATE/server-$number.pid" 2>/dev/null || echo none)"; then
    setsid "$LAB_PROGRAM" --store "$store" serve --listen "127.0.0.1:$port" \
      --secret-file "$LAB_STATE/secret" >"$log" 2>&1 </dev/null &
    echo $! >"$LAB_STATE/server-$number.pid"
    wait_for 30 grep -q '^serving ' "$log" || fail "server $number does not come up: $(cat "$log")"
  fi
done
if [ "$count" -gt 0 ]; then
  from="terrace://$addresses/?secret=$LAB_STATE/secret&stripe=$LAB_STRIPE"
else
  from=$LAB_STATE/store-1
fi
setsid "$LAB_PROGRAM" mount --threads "$LAB_THREADS" --log-file "$LAB_STATE/log/mount.log" \
  "$from" "$LAB_MOUNT" >"$LAB_STATE/log/mount.out" 2>&1 </dev/null ||
  fail "cannot mount: $(cat "$LAB_STATE/log/mount.out")"
