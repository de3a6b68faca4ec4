#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Installs the programs of BIN_DIRECTORY, their manual pages and completions, the units and the lab below
# $DESTDIR$PREFIX (default /usr/local). `make install` calls it, and so do the packages, with an empty tree.
set -eu

binaries=${1:?usage: install.sh BIN_DIRECTORY}
PREFIX=${PREFIX:-/usr/local}
DESTDIR=${DESTDIR:-}
SYSCONFDIR=${SYSCONFDIR:-/etc}
root=$DESTDIR$PREFIX
checkout=$(cd "$(dirname "$0")/.." && pwd -P)
umask 022

# Installs a text in which PREFIX stands in place of /usr, for programs that are named by their whole path.
install_text() { # FILE TARGET
    sed "s,/usr/bin/terrace,$PREFIX/bin/terrace,g" "$1" >"$2"
    chmod 644 "$2"
}

install -d "$root/bin" "$root/sbin" "$root/share/man/man1" "$root/share/doc/terrace" "$root/include" \
    "$root/share/bash-completion/completions" "$root/share/zsh/vendor-completions" \
    "$root/share/fish/vendor_completions.d" "$root/lib/systemd/system" "$root/lib/sysusers.d" \
    "$root/lib/tmpfiles.d" "$root/lib/terrace-lab" "$root/share/terrace/monitoring/prometheus" \
    "$root/share/terrace/monitoring/grafana"
install -d -m 755 "$DESTDIR$SYSCONFDIR/terrace/server" "$DESTDIR$SYSCONFDIR/terrace/mount"

for program in terrace terrace-gen partdiff; do
    # Beside it first: a program that runs cannot be written to.
    install -m 755 "$binaries/$program" "$root/bin/$program.new"
    if [ -n "${STRIP:-}" ]; then
        "$STRIP" "$root/bin/$program.new"
    fi
    mv "$root/bin/$program.new" "$root/bin/$program"
done
ln -sf ../bin/terrace "$root/sbin/mount.fuse.terrace"
install -m 644 "$checkout/crates/policies/include/terrace_policy.h" "$root/include/"

# Packages have no libraries; `make install` builds them.
if [ -e "$binaries/libterrace_c.so" ]; then
    PREFIX=$PREFIX DESTDIR=$DESTDIR "$checkout/bindings/c/install.sh" "$binaries"
fi

"$binaries/terrace" man "$root/share/man/man1"
gzip -9nf "$root"/share/man/man1/terrace*.1
"$binaries/terrace" completions bash >"$root/share/bash-completion/completions/terrace"
"$binaries/terrace" completions zsh >"$root/share/zsh/vendor-completions/_terrace"
"$binaries/terrace" completions fish >"$root/share/fish/vendor_completions.d/terrace.fish"
install -m 644 "$checkout/README.md" "$root/share/doc/terrace/"

for unit in terrace-server@.service terrace-mount@.service; do
    install_text "$checkout/packaging/systemd/$unit" "$root/lib/systemd/system/$unit"
done
install -m 644 "$checkout/packaging/sysusers.d/terrace.conf" "$root/lib/sysusers.d/terrace.conf"
install -m 644 "$checkout/packaging/tmpfiles.d/terrace.conf" "$root/lib/tmpfiles.d/terrace.conf"

# For clusters with Slurm (docs/how-to/slurm.md).
install -d "$root/share/terrace/slurm"
for script in prolog epilog task-prolog; do
    install -m 755 "$checkout/packaging/slurm/$script" "$root/share/terrace/slurm/"
done
install -m 644 "$checkout/packaging/slurm/job.sh" "$checkout/packaging/slurm/terrace-slurm.conf" "$root/share/terrace/slurm/"

# For hosts with Prometheus and Grafana (docs/how-to/monitor.md).
install -m 644 "$checkout"/packaging/monitoring/prometheus/*.yml "$root/share/terrace/monitoring/prometheus/"
install -m 644 "$checkout"/packaging/monitoring/grafana/*.json "$root/share/terrace/monitoring/grafana/"

# The lab needs Python 3.11 and the packages that lab/pyproject.toml names.
rm -rf "$root/lib/terrace-lab/terrace_lab"
cp -r "$checkout/lab/src/terrace_lab" "$root/lib/terrace-lab/"
find "$root/lib/terrace-lab" -name __pycache__ -prune -exec rm -rf {} +
chmod -R u=rwX,go=rX "$root/lib/terrace-lab"
cat >"$root/bin/terrace-lab" <<END
#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
import sys

sys.path.insert(0, "$PREFIX/lib/terrace-lab")
from terrace_lab.cli import main

sys.exit(main())
END
chmod 755 "$root/bin/terrace-lab"
