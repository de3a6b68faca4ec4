#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Takes CephFS down: the mount, all daemons of its network, its stores.
declare -F make_state >/dev/null || . "$(dirname "$0")/common.sh"
fuse_is_gone() { ! pgrep -f "^ceph-fuse -c $LAB_STATE/ceph.conf"; }
unmount
# It writes back what it holds before it goes, for which the servers must be there.
wait_for 30 fuse_is_gone
remove_network
remove_state
