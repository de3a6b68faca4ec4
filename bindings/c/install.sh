#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Installs libterrace of BIN_DIRECTORY, where cargo has built it, with its header and its file for pkg-config, below
# $DESTDIR$PREFIX (default /usr/local).
set -eu

binaries=${1:?usage: install.sh BIN_DIRECTORY}
PREFIX=${PREFIX:-/usr/local}
root=${DESTDIR:-}$PREFIX
here=$(cd "$(dirname "$0")" && pwd -P)
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"$/\1/p' "$here/../../Cargo.toml")
soname=libterrace.so.${version%%.*}

install -d "$root/lib/pkgconfig" "$root/include"
# Beside it first: a library that is in use cannot be written to.
install -m 755 "$binaries/libterrace_c.so" "$root/lib/libterrace.so.$version.new"
mv "$root/lib/libterrace.so.$version.new" "$root/lib/libterrace.so.$version"
ln -sf "libterrace.so.$version" "$root/lib/$soname"
ln -sf "$soname" "$root/lib/libterrace.so"
install -m 644 "$binaries/libterrace_c.a" "$root/lib/libterrace.a"
install -m 644 "$here/include/terrace.h" "$root/include/terrace.h"
sed "s,@PREFIX@,$PREFIX,; s,@VERSION@,$version," "$here/terrace.pc.in" >"$root/lib/pkgconfig/terrace.pc"
chmod 644 "$root/lib/pkgconfig/terrace.pc"
