#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Takes the file system in main memory down.
declare -F make_state >/dev/null || . "$(dirname "$0")/common.sh"
unmount
remove_state
