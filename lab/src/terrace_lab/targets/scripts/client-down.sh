#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Unmounts what client-up.sh has mounted; the installation stays as it is.
declare -F make_state >/dev/null || . "$(dirname "$0")/common.sh"
unmount
remove_state
