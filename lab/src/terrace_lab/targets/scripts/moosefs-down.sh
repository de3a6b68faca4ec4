#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Takes MooseFS down: the mount, all daemons of its network, its chunks.
declare -F make_state >/dev/null || . "$(dirname "$0")/common.sh"
unmount
remove_network
remove_state
