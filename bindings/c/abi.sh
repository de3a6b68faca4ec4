#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Fails where a program that was built with the header of a release, abi/terrace.h, cannot use the library that
# include/terrace.h describes. A release that may break programs has another soname, and records its header:
# `cp include/terrace.h abi/terrace.h`. Added functions break none.
set -eu

cd "$(dirname "$0")"
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

# A library with the types of a header: each declared function with a body.
library() { # HEADER NAME
    {
        echo "#include \"$1\""
        cc -E -P -nostdinc -I "$made/empty" "$1" | tr '\n' ' ' |
            grep -oE '(enum terrace_status|void|const char \*) *terrace_[a-z_]+\([^;]*\);' |
            sed 's/;$/ { __builtin_trap(); }/'
    } >"$made/$2.c"
    cc -std=c11 -g -shared -fPIC -Wl,-soname,libterrace.so -o "$made/$2.so" "$made/$2.c"
}

# The headers of C that it includes declare nothing that belongs to the interface.
mkdir "$made/empty"
for name in stdarg stdbool stddef stdint stdlib; do
    : >"$made/empty/$name.h"
done
library "$PWD/abi/terrace.h" before
library "$PWD/include/terrace.h" now
count=$(nm -D --defined-only "$made/before.so" | grep -c ' T terrace_')
abidiff --no-added-syms "$made/before.so" "$made/now.so" >"$made/differences" || {
    cat "$made/differences"
    echo "abi: include/terrace.h breaks programs that were built with abi/terrace.h" >&2
    exit 1
}
echo "abi: the $count functions of the released header are as they were"
