#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Takes GlusterFS down: the mount, all daemons of its network, its bricks.
declare -F make_state >/dev/null || . "$(dirname "$0")/common.sh"
unmount
remove_network
remove_state
