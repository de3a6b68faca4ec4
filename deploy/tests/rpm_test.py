#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The .rpm packages are installed by rpm into a root file system and removed again; only the user's data are left.

    rpm_test.py PACKAGES      a directory that packaging/make-packages.py filled

No rpm distribution is reached: the root is a layer over the Debian image of the test bed, without booting it, and what the
packages require is only compared with what they were made to require. Files, scriptlets, verification and removal are rpm's.
"""

import shutil
import sys
from pathlib import Path

from steps import bound, expect, make_image, run, step

TIME_MAX_S = 300
WORK = Path("/var/tmp/terrace-rpm-test")
ROOT = WORK / "root"
NAMES = ["terrace", "terrace-server", "terrace-mount", "terrace-lab"]
# In the order of removal.
REVERSED = ["terrace-mount", "terrace-server", "terrace-lab", "terrace"]


def rpm(*words: str | Path) -> str:
    # Debian's rpm has its database in the home directory of the caller, that of RHEL in /var/lib/rpm.
    return run("rpm", "--root", ROOT, "--dbpath", "/var/lib/rpm", "--noplugins", *words)


def inside(command: str) -> str:
    return run("chroot", ROOT, "sh", "-c", command)


def check(packages: Path) -> None:
    files = sorted(packages.glob("*.rpm"))
    expect(len(files) == len(NAMES), files)
    with step("the packages require what they were made to"):
        for name in NAMES:
            (file,) = packages.glob(f"{name}-[0-9]*.rpm")
            required = run("rpm", "-qp", "--requires", file)
            words = ["glibc >= 2.28", "libgcc"] if name in ("terrace", "terrace-lab") else ["terrace = ", "systemd >= 239"]
            expect(all(word in required for word in words), f"{file.name}: {required}")
    with step("rpm installs and verifies them"):
        # rpm knows nothing of what dpkg installed in this root.
        rpm("--install", "--nodeps", *files)
        # Owner and mode of nothing differ, and no file is missing.
        expect(rpm("--verify", "--nodeps", *NAMES) == "", "rpm --verify finds nothing")
        expect("terrace" in inside("id terrace && terrace --version"), "the user is there, and the command runs")
        expect("../bin/terrace" in inside("ls -l /usr/sbin/mount.fuse.terrace"), "mount(8) finds its helper")
        inside("test -d /var/lib/terrace && test -d /etc/terrace && touch /var/lib/terrace/data")
    with step("rpm removes them, and leaves the data"):
        rpm("--erase", "--nodeps", *REVERSED)
        places = " ".join(f"-not -path '{place}*'" for place in ("/proc/", "/srv/", "/var/lib/terrace", "/etc/terrace"))
        left = inside(f"find / -xdev -name '*terrace*' {places}")
        expect(left == "", f"left behind: {left}")
        inside("test -e /var/lib/terrace/data")


def main() -> int:
    packages = Path(sys.argv[1]).resolve()
    bound(TIME_MAX_S)
    image = make_image()
    shutil.rmtree(WORK, ignore_errors=True)
    for part in ("upper", "work", "root"):
        (WORK / part).mkdir(parents=True)
    run(
        "mount",
        "-t",
        "overlay",
        "terrace-rpm-test",
        "-o",
        f"lowerdir={image},upperdir={WORK / 'upper'},workdir={WORK / 'work'}",
        ROOT,
    )
    try:
        run("mount", "-t", "proc", "proc", ROOT / "proc")
        check(packages)
    finally:
        run("umount", ROOT / "proc", check=False)
        run("umount", ROOT, check=False)
        shutil.rmtree(WORK, ignore_errors=True)
    print("rpm_test: everything passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
