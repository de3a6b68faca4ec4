#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Two hosts: the playbook of BeeGFS with stub packages, which record what they are asked.

    beegfs_test.py ANSIBLE_BIN

It shows that the roles ask for what the filters planned, in which order, and once; not that BeeGFS understands it.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from playbooks import Playbooks
from steps import TestBed, bound, expect, step

TIME_MAX_S = 1200
WORK = Path("/var/tmp/terrace-beegfs-test")
RECORD = "/var/log/beegfs-stub"
SETUP = f"""#!/bin/sh
echo "${{0##*/}} $*" >>{RECORD}
while getopts p:s:i:m:c:S: option; do
    if [ "$option" = p ]; then
        mkdir -p "$OPTARG" && touch "$OPTARG/format.conf"
    fi
done
"""
# It remembers mirror groups, and prints them and the root as the documentation of BeeGFS 7.4 shows them.
TOOL = f"""#!/bin/sh
echo "${{0##*/}} $*" >>{RECORD}
mkdir -p /var/lib/beegfs-stub && cd /var/lib/beegfs-stub || exit 1
kind=${{2#--nodetype=}}
case $1 in
--addmirrorgroup) echo "  ${{5#--groupid=}}  ${{3#--primary=}}  ${{4#--secondary=}}" >>$kind ;;
--listmirrorgroups)
    printf '  BuddyGroupID  Primary  Secondary\\n  ============  =======  =========\\n'
    cat $kind 2>/dev/null || true
    ;;
--mirrormd) touch mirrored && echo "clients are $(systemctl is-active beegfs-client)" >>{RECORD} ;;
--getentryinfo)
    if [ -e mirrored ]; then
        printf 'Metadata buddy group: 1\\nCurrent primary metadata node: h1 [ID: 1]\\n'
    else
        echo 'Metadata node: h1 [ID: 1]'
    fi
    ;;
esac
"""
CONFIGURATION = "sysMgmtdHost =\nconnAuthFile =\nconnStoragePortTCP = 8003\nconnStoragePortUDP = 8003\n"


def unit(name: str, instance: str = "") -> str:
    start = f"/bin/sh -c 'echo start {name}{instance} >>{RECORD}; exec sleep infinity'"
    return f"[Unit]\nDescription=stub\n[Service]\nExecStart={start}\n[Install]\nWantedBy=multi-user.target\n"


# Of each package: its files.
STUBS = {
    "beegfs-mgmtd": {"opt/beegfs/sbin/beegfs-setup-mgmtd": SETUP},
    "beegfs-meta": {"opt/beegfs/sbin/beegfs-setup-meta": SETUP},
    "beegfs-storage": {"opt/beegfs/sbin/beegfs-setup-storage": SETUP},
    "beegfs-helperd": {},
    "beegfs-client": {},
    "beegfs-utils": {"usr/bin/beegfs-ctl": TOOL},
}


def make_stubs(repository: Path) -> None:
    for name, files in STUBS.items():
        tree = WORK / "stubs" / name
        texts = dict(files)
        if name != "beegfs-utils":
            texts[f"usr/lib/systemd/system/{name}.service"] = unit(name)
            texts[f"etc/beegfs/{name}.conf"] = CONFIGURATION
        if name == "beegfs-storage":
            texts[f"usr/lib/systemd/system/{name}@.service"] = unit(name, "@%i")
        texts["DEBIAN/control"] = (
            f"Package: {name}\nVersion: 7.4.0\nArchitecture: all\nMaintainer: stub <stub@example.org>\nDescription: stub\n"
        )
        for path, text in texts.items():
            file = tree / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            file.chmod(0o755 if "bin/" in path else 0o644)
        subprocess.run(["dpkg-deb", "--build", "--root-owner-group", tree, repository], check=True, stdout=subprocess.DEVNULL)
    with (repository / "Packages").open("w", encoding="utf-8") as index:
        subprocess.run(["dpkg-scanpackages", "."], cwd=repository, stdout=index, stderr=subprocess.DEVNULL, check=True)


MIRRORS = [
    {"id": 1, "kind": "meta", "primary": "h1", "secondary": "h2"},
    {"id": 1, "kind": "storage", "primary": "h1:s1", "secondary": "h2:s1"},
]


def inventory(bed: TestBed, metas: tuple[str, ...] = ("h1",)) -> dict:
    volumes = [
        {"name": name, "layout": "xfs", "devices": [f"/dev/disk/by-id/testbed-{disk}"]} for name, disk in (("s1", "a"), ("s2", "b"))
    ]
    shared = {
        "storage_service_mode": "multi_mode",
        "storage_volumes": volumes,
        "mirror_groups": MIRRORS,
        "beegfs_repository": "deb [trusted=yes] file:/srv/repository ./",
    }
    groups = {"beegfs_mgmtd": ["h1"], "beegfs_meta": list(metas), "beegfs_storage": ["h1", "h2"], "beegfs_client": ["h1"]}
    return {
        "all": {
            "vars": shared,
            "hosts": {host.name: bed.host_variables(host) for host in bed.hosts},
            "children": {group: {"hosts": dict.fromkeys(names, {})} for group, names in groups.items()},
        }
    }


def recorded(bed: TestBed, number: int) -> list[str]:
    return bed.hosts[number].run(f"cat {RECORD}").splitlines()


def mirror(bed: TestBed, playbooks: Playbooks) -> None:
    site = inventory(bed, metas=("h1", "h2"))
    with step("a second metadata node is added"):
        playbooks.run(site, "beegfs", "-e", "beegfs_client_any_kernel=true")
    with step("mirror groups are made once, and metadata are not mirrored unasked"):
        bed.hosts[0].run(f"rm {RECORD}")
        playbooks.run(site, "beegfs_mirror")
        made = [line for line in recorded(bed, 0) if "--addmirrorgroup" in line or "--mirrormd" in line]
        expect(made == [
            "beegfs-ctl --addmirrorgroup --nodetype=meta --primary=1 --secondary=2 --groupid=1",
            "beegfs-ctl --addmirrorgroup --nodetype=storage --primary=101 --secondary=201 --groupid=1",
        ], made)  # fmt: skip
        expect("-e activate=true" in playbooks.printed(), playbooks.log[-2000:])
        counts = playbooks.run(site, "beegfs_mirror")
        expect(counts["changed"] == 0, playbooks.changed_tasks())
    with step("metadata are mirrored while no client runs, then metadata services are restarted"):
        for host in bed.hosts:
            host.run(f"rm -f {RECORD}")
        playbooks.run(site, "beegfs_mirror", "-e", "activate=true")
        steps = [line for line in recorded(bed, 0) if "--mirrormd" in line or line.startswith(("start", "clients"))]
        order = ["start beegfs-meta", "start beegfs-helperd", "start beegfs-client"]
        expect(steps == ["beegfs-ctl --mirrormd", "clients are inactive", *order], steps)
        expect(recorded(bed, 1) == ["start beegfs-meta"], recorded(bed, 1))
        counts = playbooks.run(site, "beegfs_mirror", "-e", "activate=true")
        expect(counts["changed"] == 0, playbooks.changed_tasks())


def main() -> int:
    ansible = Path(sys.argv[1]).resolve()
    bound(TIME_MAX_S)
    shutil.rmtree(WORK, ignore_errors=True)
    (WORK / "repository").mkdir(parents=True)
    make_stubs(WORK / "repository")
    with TestBed(Path("/var/tmp/terrace-testbed-beegfs"), shared={WORK / "repository": "/srv/repository"}) as bed:
        with step("two hosts boot"):
            bed.up(2)
        playbooks = Playbooks(bed, ansible, WORK)
        with step("version 8 without a licence is refused"):
            playbooks.run(inventory(bed), "beegfs", "-e", "beegfs_version=8", fails=True)
            expect("asks for a licence" in playbooks.printed(), playbooks.log[-2000:])
        with step("a dry run ends"):
            playbooks.run(inventory(bed), "beegfs", "--check", "-e", "beegfs_client_any_kernel=true")
        with step("a kernel that the client is not known to build for is refused"):
            playbooks.run(inventory(bed), "beegfs", "-e", "beegfs_client_kernel_max=4.0", fails=True)
            expect("is known to build up to 4.0" in playbooks.printed(), playbooks.log[-2000:])
        with step("the file system is set up"):
            playbooks.run(inventory(bed), "beegfs", "-e", "beegfs_client_any_kernel=true")
            expect(recorded(bed, 1) == [
                "beegfs-setup-storage -p /srv/terrace/s1/beegfs-storage -s 201 -i 201 -m h1 -c /etc/beegfs/s1.d/beegfs-storage.conf"
                " -S storage-201",
                "start beegfs-storage@s1",
                "beegfs-setup-storage -p /srv/terrace/s2/beegfs-storage -s 202 -i 202 -m h1 -c /etc/beegfs/s2.d/beegfs-storage.conf"
                " -S storage-202",
                "start beegfs-storage@s2",
            ], recorded(bed, 1))  # fmt: skip
            starts = [line for line in recorded(bed, 0) if line.startswith("start")]
            order = ["mgmtd", "meta", "storage@s1", "storage@s2", "helperd", "client"]
            expect(starts == [f"start beegfs-{name}" for name in order], starts)
            port = bed.hosts[1].run("grep connStoragePortTCP /etc/beegfs/s2.d/beegfs-storage.conf")
            expect(port.strip() == "connStoragePortTCP = 8013", port)
            secrets = {host.run("sha256sum </etc/beegfs/connauthfile") for host in bed.hosts}
            expect(len(secrets) == 1, "all hosts have one secret")
        with step("a second run changes nothing"):
            counts = playbooks.run(inventory(bed), "beegfs", "-e", "beegfs_client_any_kernel=true")
            expect(counts["changed"] == 0, playbooks.changed_tasks())
        mirror(bed, playbooks)
        with step("a node is emptied, then removed"):
            bed.hosts[0].run(f"rm {RECORD}")
            playbooks.run(inventory(bed), "beegfs_remove_node", "-e", "node=h2")
            words = [line.removeprefix("beegfs-ctl --").split()[0] for line in recorded(bed, 0)]
            expected = ["migrate"] * 2 + ["find"] * 2 + ["removetarget"] * 2 + ["removenode"] * 2
            expect(words == expected, recorded(bed, 0))
    shutil.rmtree(WORK)
    print("beegfs_test: everything passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
