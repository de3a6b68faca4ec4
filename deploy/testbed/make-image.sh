#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Builds the root file system that the hosts of the test bed share: Debian 12 with systemd, sshd, Python and the tools that
# the roles call. The hosts see no network but their own, so that everything the packages depend on is in it. It is built once
# (some 90 s on an idle machine, 640 MB) below IMAGE_DIRECTORY and again where the list of packages or this script has changed.
set -eu

IMAGE_DIRECTORY=${1:?usage: make-image.sh IMAGE_DIRECTORY}
PACKAGES="systemd,systemd-sysv,dbus,libpam-systemd,udev,kmod,openssh-server,python3-minimal,python3-apt,
iproute2,iputils-ping,procps,util-linux,xfsprogs,e2fsprogs,fuse3,attr,fio,chrony,ca-certificates,
prometheus,prometheus-node-exporter"
# Units that only cost time in a container.
MASKED="systemd-udev-settle.service apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer
dpkg-db-backup.timer chrony.service"

packages=$(echo "$PACKAGES" | tr -d '\n')
version=$(cat "$0" | sha256sum | cut -d' ' -f1)
if [ "$(cat "$IMAGE_DIRECTORY/version" 2>/dev/null)" = "$version" ]; then
    exit 0
fi
echo "make-image: building $IMAGE_DIRECTORY/root"
rm -rf "$IMAGE_DIRECTORY"
mkdir -p "$IMAGE_DIRECTORY"
root=$IMAGE_DIRECTORY/root

# The package sources of this machine, as it may reach no others.
sources=$(find /etc/apt -maxdepth 2 -type f \( -name '*.list' -o -name '*.sources' \) -size +0)
# shellcheck disable=SC2086 # one word a file
mmdebstrap --quiet --variant=minbase --include="$packages" --aptopt='Apt::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    bookworm "$root" $sources

# One key for all hosts, of the hosts and of root.
ssh-keygen -q -t ed25519 -N '' -C testbed -f "$IMAGE_DIRECTORY/key"
install -d -m 700 "$root/root/.ssh"
install -m 600 "$IMAGE_DIRECTORY/key.pub" "$root/root/.ssh/authorized_keys"
rm -f "$root"/etc/ssh/ssh_host_*
ssh-keygen -q -t ed25519 -N '' -C testbed -f "$root/etc/ssh/ssh_host_ed25519_key"
printf 'PermitRootLogin prohibit-password\nUseDNS no\nPasswordAuthentication no\n' \
    >"$root/etc/ssh/sshd_config.d/testbed.conf"

: >"$root/etc/machine-id"
rm -f "$root/etc/resolv.conf"
for unit in $MASKED; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
# They run where a role starts them.
rm -f "$root"/etc/systemd/system/multi-user.target.wants/prometheus*
ln -sf /lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"
# The hosts have no network beyond the test bed: apt has the local repository alone.
rm -rf "$root/etc/apt/sources.list" "$root"/etc/apt/sources.list.d/* "$root"/var/lib/apt/lists/* \
    "$root"/var/cache/apt/archives/*.deb
# Last: an image that is not complete has no version.
echo "$version" >"$IMAGE_DIRECTORY/version"
