#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Two hosts: GlusterFS and MooseFS from Debian's packages, set up by the playbooks to compare with, hold files.

    compare_test.py ANSIBLE_BIN

The hosts reach no network: the packages, and those that they need beyond the image, are fetched into a local repository.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from playbooks import Playbooks
from steps import Host, TestBed, bound, expect, make_image, run, step

TIME_MAX_S = 1200
WORK = Path("/var/tmp/terrace-compare-test")
PACKAGES = [
    "glusterfs-server", "glusterfs-client", "moosefs-master", "moosefs-chunkserver", "moosefs-client", "moosefs-cli",
]  # fmt: skip
FILES = 20


def fetch(repository: Path) -> None:
    """Fetches the packages with those that the image lacks; the lists are those of this machine."""
    status = make_image() / "var/lib/dpkg/status"
    (repository / "partial").mkdir(parents=True)
    run("apt-get", "install", "--yes", "--quiet", "--download-only", "--no-install-recommends",
        "-o", f"Dir::State::Status={status}", "-o", f"Dir::Cache::Archives={repository}", "-o", "Debug::NoLocking=true",
        "-o", "APT::Sandbox::User=root", *PACKAGES)  # fmt: skip
    (repository / "partial").rmdir()
    with (repository / "Packages").open("w", encoding="utf-8") as index:
        subprocess.run(["dpkg-scanpackages", "."], cwd=repository, stdout=index, stderr=subprocess.DEVNULL, check=True)


def inventory(bed: TestBed, volume: dict) -> dict:
    groups = {"gluster_server": ["h1", "h2"], "gluster_client": ["h1", "h2"]}
    groups |= {"moosefs_master": ["h1"], "moosefs_chunkserver": ["h1", "h2"], "moosefs_client": ["h1", "h2"]}
    return {
        "all": {
            # The disks of the test bed are smaller than what MooseFS leaves free by default.
            "vars": {"storage_volumes": [volume], "compare_moosefs_leave_space": "64MiB", "compare_moosefs_goal": 2},
            "hosts": {host.name: bed.host_variables(host) for host in bed.hosts},
            "children": {group: {"hosts": dict.fromkeys(names, {})} for group, names in groups.items()},
        }
    }


def holds_files(bed: TestBed, directory: str) -> None:
    """What one client writes, the other one reads."""
    one, other = bed.hosts
    wait = f"timeout 60 sh -c 'until [ $(stat -f -c %b {directory}) -gt 0 ] && touch {directory}/begun; do sleep 0.5; done'"
    one.run(wait)
    one.run(f"for i in $(seq {FILES}); do head -c 1000000 /dev/urandom >{directory}/$i || exit 1; done; sync")
    sums = one.run(f"cd {directory} && sha256sum [0-9]*")
    expect(len(sums.splitlines()) == FILES, sums)
    expect(other.run(f"cd {directory} && sha256sum [0-9]*") == sums, f"{other.name} reads what {one.name} wrote")


def bytes_below(host: Host, directory: str) -> int:
    return int(host.run(f"du -s --block-size=1 {directory}").split()[0])


def main() -> int:
    ansible = Path(sys.argv[1]).resolve()
    bound(TIME_MAX_S)
    shutil.rmtree(WORK, ignore_errors=True)
    with step("the packages are fetched"):
        fetch(WORK / "repository")
    with TestBed(Path("/var/tmp/terrace-testbed-compare"), shared={WORK / "repository": "/srv/repository"}) as bed:
        with step("two hosts boot"):
            bed.up(2)
            for host in bed.hosts:
                host.run(
                    "echo 'deb [trusted=yes] file:/srv/repository ./' >/etc/apt/sources.list.d/local.list && apt-get -qq update"
                )
        playbooks = Playbooks(bed, ansible, WORK)
        # Each on a disk of its own, with another file system.
        for name, directory, volume, disk, layout, place in [
            ("compare_gluster", "/mnt/gluster", "s1", "a", "xfs", "gluster-brick"),
            ("compare_moosefs", "/mnt/moosefs", "m1", "b", "ext4", "moosefs"),
        ]:
            site = inventory(bed, {"name": volume, "layout": layout, "devices": [f"/dev/disk/by-id/testbed-{disk}"]})
            with step(f"{name}: a dry run ends"):
                playbooks.run(site, name, "--check")
            with step(f"{name}: the file system is set up"):
                playbooks.run(site, name)
            with step(f"{name}: a second run changes nothing"):
                counts = playbooks.run(site, name)
                expect(counts["changed"] == 0, playbooks.changed_tasks())
            with step(f"{name}: one client reads what the other one wrote, and both servers hold some of it"):
                holds_files(bed, directory)
                for host in bed.hosts:
                    held = bytes_below(host, f"/srv/terrace/{volume}/{place}")
                    expect(held > 1_000_000, f"{host.name} holds {held} bytes")
    shutil.rmtree(WORK)
    print("compare_test: everything passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
