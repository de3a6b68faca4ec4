#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Takes NFS by a client in user space down: the mount, and the server where it is ours.
declare -F make_state >/dev/null || . "$(dirname "$0")/common.sh"
unmount
remove_network
[ ! -e "$LAB_STATE/made-run" ] || rmdir /run/ganesha
remove_state
