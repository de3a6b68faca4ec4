#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Makes include/terrace.h anew with CBINDGEN; with --check it compares only, and fails where they differ.
set -eu

cd "$(dirname "$0")"
made=$(mktemp)
trap 'rm -f "$made"' EXIT
"${CBINDGEN:-cbindgen}" --quiet --config cbindgen.toml --output "$made" .
if [ "${1:-}" != --check ]; then
    cp "$made" include/terrace.h
elif ! diff -u include/terrace.h "$made"; then
    echo "header: bindings/c/include/terrace.h is not that of the sources; run bindings/c/header.sh" >&2
    exit 1
fi
