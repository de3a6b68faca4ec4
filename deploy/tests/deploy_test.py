#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Three hosts: the playbooks install, extend, upgrade and take apart a file system from the built packages.

    deploy_test.py PACKAGES NEXT_PACKAGES ANSIBLE_BIN

PACKAGES and NEXT_PACKAGES are directories that packaging/make-packages.py filled, the second one with a later version; both
are removed by none of this. Each step prints what it took, and the playbooks' counts of changes.
"""

import json
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

from playbooks import Playbooks
from steps import Host, TestBed, bound, expect, step

TIME_MAX_S = 2400
# Scrapes and rules come every 15 s.
SCRAPED_MAX_S = 120
DIRECTORY = Path("/var/tmp/terrace-testbed-deploy")
WORK = Path("/var/tmp/terrace-deploy-test")
MOUNT = "/mnt/terrace"


class Site:
    """The inventory, which the test changes, and the playbooks run with it."""

    def __init__(self, bed: TestBed, ansible: Path):
        self.bed = bed
        self.playbooks = Playbooks(bed, ansible, WORK)
        self.servers = ["h1", "h2"]
        self.volumes = {name: [self.volume("s1", "a", "xfs", "performance")] for name in ("h1", "h2", "h3")}
        for name in ("h1", "h2"):
            self.volumes[name].append(self.volume("f1", "b", "ext4", "capacity"))
        self.variables: dict[str, dict] = {name: {} for name in ("h1", "h2", "h3")}

    @staticmethod
    def volume(name: str, disk: str, layout: str, tier: str) -> dict:
        return {"name": name, "layout": layout, "devices": [f"/dev/disk/by-id/testbed-{disk}"], "tier": tier}

    def inventory(self) -> dict:
        hosts = {
            host.name: self.bed.host_variables(host) | {"storage_volumes": self.volumes[host.name]} | self.variables[host.name]
            for host in self.bed.hosts
        }
        servers = {name: {} for name in self.servers}
        children = {
            "terrace_meta": {"hosts": {"h1": {}}},
            "terrace_storage": {"hosts": servers},
            "terrace_servers": {"children": {"terrace_meta": {}, "terrace_storage": {}}},
            "terrace_client": {"hosts": {"h3": {}}},
            "terrace_monitor": {"hosts": {"h3": {}}},
            "terrace_all": {"children": {"terrace_servers": {}, "terrace_client": {}}},
        }
        shared = {"terrace_repository": "deb [trusted=yes] file:/srv/repository ./", "preflight_memory_mib_min": 512}
        return {"all": {"vars": shared, "hosts": hosts, "children": children}}

    def play(self, name: str, *words: str, fails: bool = False) -> dict[str, int]:
        return self.playbooks.run(self.inventory(), name, *words, fails=fails)

    def printed(self) -> str:
        return self.playbooks.printed()


class Load:
    """A client that writes files and reads them back until it is stopped; any error counts."""

    SCRIPT = (
        f"i=0; while [ ! -e /run/stop-load ]; do i=$((i + 1)); f={MOUNT}/load/$((i % 50)); "
        "head -c 200000 /dev/urandom >/run/load && cp /run/load $f && cmp /run/load $f || exit 1; done; echo $i"
    )

    def __init__(self, host: Host):
        self.host = host
        host.run(f"mkdir -p {MOUNT}/load; rm -f /run/stop-load")
        self.output = ""
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        self.output = self.host.run(self.SCRIPT, check=False)

    def stop(self) -> None:
        self.host.run("touch /run/stop-load")
        self.thread.join()
        expect(self.output.strip().isdigit(), f"the load fails: {self.output}")
        print(f" ({self.output.strip()} files under load)", end="")


def main() -> int:
    packages, following, ansible = (Path(word).resolve() for word in sys.argv[1:4])
    bound(TIME_MAX_S)
    shutil.rmtree(WORK, ignore_errors=True)
    (WORK / "repository").mkdir(parents=True)
    fill(WORK / "repository", packages)
    with TestBed(DIRECTORY, shared={WORK / "repository": "/srv/repository"}) as bed:
        with step("three hosts boot"):
            bed.up(3)
        site = Site(bed, ansible)
        install(site)
        watch(site)
        use(site)
        cut_off(site)
        extend(site)
        upgrade(site, following)
        refuse(site)
        wipe(site)
    shutil.rmtree(WORK)
    print("deploy_test: everything passed")
    return 0


def fill(repository: Path, packages: Path) -> None:
    for package in packages.glob("*.deb"):
        shutil.copy(package, repository)
    with (repository / "Packages").open("w", encoding="utf-8") as index:
        subprocess.run(["dpkg-scanpackages", "--multiversion", "."], cwd=repository, stdout=index,
                       stderr=subprocess.DEVNULL, check=True)  # fmt: skip


def install(site: Site) -> None:
    with step("a dry run on fresh hosts ends"):
        site.play("site", "--check")
    with step("the site is installed"):
        site.play("site")
    with step("a second run changes nothing"):
        counts = site.play("site")
        expect(counts["changed"] == 0, site.playbooks.changed_tasks())
    with step("a dry run on installed hosts changes nothing"):
        counts = site.play("site", "--check")
        expect(counts["changed"] == 0, site.playbooks.changed_tasks())
    with step("the status is shown"):
        site.play("status")
        expect("s1, f1" in site.playbooks.log and MOUNT in site.playbooks.log, site.playbooks.log[-3000:])


def figures(host: Host, query: str) -> list[dict]:
    """The answer of the Prometheus on a host. The hosts have no HTTP client."""
    ask = 'exec 3<>/dev/tcp/127.0.0.1/9090; printf "GET /api/v1/query?query=%s HTTP/1.0\\r\\n\\r\\n" "$1" >&3; cat <&3'
    answer = host.run(f"bash -c '{ask}' bash {urllib.parse.quote(query, safe='')}", check=False)
    # Lines end as in every text that a host prints.
    _, _, body = answer.partition("\n\n")
    return json.loads(body)["data"]["result"] if body else []


def watch(site: Site) -> None:
    monitor = site.bed.hosts[2]
    with step("Prometheus scrapes servers, mount and hosts, and evaluates the rules"):
        ups: list[tuple[str, str, str]] = []
        end = time.monotonic() + SCRAPED_MAX_S
        # Itself, two servers, one mount, three hosts.
        while sum(value == "1" for *_, value in ups) < 7 and time.monotonic() < end:
            time.sleep(1)
            ups = [(one["metric"]["job"], one["metric"]["instance"], one["value"][1]) for one in figures(monitor, "up")]
        expect(len(ups) == 7 and all(value == "1" for *_, value in ups), ups)
        tiers = figures(monitor, "terrace_tier_online == 1")
        expect(sorted(one["metric"]["tier"] for one in tiers) == ["f1", "f1", "s1", "s1"], tiers)
        recorded = figures(monitor, "tier_operation:terrace_tier_operations:rate5m")
        while not recorded and time.monotonic() < end:
            time.sleep(1)
            recorded = figures(monitor, "tier_operation:terrace_tier_operations:rate5m")
        expect(recorded, "the rules are evaluated")
        expect(figures(monitor, "ALERTS") == [], figures(monitor, "ALERTS"))


def use(site: Site) -> None:
    client = site.bed.hosts[2]
    with step("the client writes and reads"):
        client.run(f"head -c 20000000 /dev/urandom >/root/sent && cp /root/sent {MOUNT}/sent && cmp /root/sent {MOUNT}/sent")
    with step("stopping is refused while clients are mounted, and names them"):
        site.play("stop", fails=True)
        expect("h3 still mounted" in site.printed(), site.playbooks.log[-2000:])
        client.run(f"cmp /root/sent {MOUNT}/sent")
    with step("it is stopped, started, and whole"):
        site.play("stop", "-e", "force=true")
        expect("active" not in site.bed.hosts[0].run("systemctl is-active terrace-server@main", check=False).split(), "stopped")
        site.play("start")
        client.run(f"cmp /root/sent {MOUNT}/sent")


def cut_off(site: Site) -> None:
    first, lost, client = site.bed.hosts
    with step("one server is cut off: the status and an upgrade name it, and no other server is restarted"):
        show = "systemctl show -P MainPID terrace-server@main"
        before = first.run(show)
        lost.cut_off()
        for name in ("status", "upgrade"):
            site.play(name, fails=True)
            expect("h2" in site.printed() and "UNREACHABLE" in site.printed(), site.playbooks.log[-2000:])
        expect(first.run(show) == before, "the server of h1 is restarted")
        lost.cut_off(False)
        client.run(f"cmp /root/sent {MOUNT}/sent")


def extend(site: Site) -> None:
    client = site.bed.hosts[2]
    with step("a server without an epoch of its own is refused"):
        site.servers.append("h3")
        site.play("add_server", fails=True)
        expect("terrace_since" in site.playbooks.log, site.playbooks.log[-2000:])
    with step("a server is added"):
        site.variables["h3"]["terrace_since"] = 1
        site.play("add_server")
        client.run(f"cmp /root/sent {MOUNT}/sent && cp /root/sent {MOUNT}/again")
        expect("h3:7420" not in client.run("findmnt -n -t fuse.terrace"), "it is mounted by the map")
        expect("since = 1" in site.bed.hosts[0].run("cat /etc/terrace/servers.toml"), "the map has it")
    with step("a tier is drained and removed while the client writes"):
        load = Load(client)
        try:
            site.play("drain_tier", "-e", "tier=f1", "-l", "h1,h2")
        finally:
            load.stop()
        tiers = site.bed.hosts[0].run("terrace --json --store /srv/terrace/s1/main-store tiers")
        expect([tier["name"] for tier in json.loads(tiers)["tiers"]] == ["s1"], tiers)
        for name in ("h1", "h2"):
            site.volumes[name] = site.volumes[name][:1]
        site.play("site")
        client.run(f"cmp /root/sent {MOUNT}/sent && cmp /root/sent {MOUNT}/again")


def upgrade(site: Site, following: Path) -> None:
    with step("the packages are upgraded host by host"):
        fill(WORK / "repository", following)
        before = site.bed.hosts[0].run("dpkg-query -W -f '${Version}' terrace-server")
        site.play("upgrade")
        for host in site.bed.hosts:
            after = host.run("dpkg-query -W -f '${Version}' terrace-server")
            expect(after != before, f"{before} is not upgraded on {host.name}")
        site.bed.hosts[2].run(f"cmp /root/sent {MOUNT}/sent")


def refuse(site: Site) -> None:
    host, client = site.bed.hosts[1:]
    with step("a disk that holds something is refused, and not touched"):
        disk = "/dev/disk/by-id/testbed-c"
        host.run(f"mkfs.ext4 -q -F -L precious {disk}")
        before = host.run(f"sha256sum {disk}")
        site.volumes["h2"].append(site.volume("x1", "c", "xfs", "archive"))
        site.play("site", fails=True)
        text = site.printed()
        for words in ("h2: " + disk, "precious", f"wipefs --all {disk}"):
            expect(words in text, f"{words} is not in:\n{site.playbooks.log[-3000:]}")
        expect(host.run(f"sha256sum {disk}") == before, "the disk is as it was")
        site.volumes["h2"].pop()
    with step("a wrong secret is refused, and says so"):
        client.run("echo 'another secret than that of the servers' >/etc/terrace/secret")
        client.fails("systemctl restart terrace-mount@mnt-terrace")
        text = client.run("journalctl -u terrace-mount@mnt-terrace -n 20 --no-pager")
        expect("does not know the secret" in text, text)
        site.play("site")
        client.run(f"cmp /root/sent {MOUNT}/sent")
    with step("the secret is rotated"):
        old = client.run("sha256sum /etc/terrace/secret")
        site.play("rotate_secret")
        expect(client.run("sha256sum /etc/terrace/secret") != old, "it is another one")
        client.run(f"cmp /root/sent {MOUNT}/sent")


def wipe(site: Site) -> None:
    with step("a host that is wiped has to be named"):
        site.play("wipe", "-l", "h2", fails=True)
        expect("this would destroy the volumes s1 of h2" in site.printed(), site.playbooks.log[-2000:])
        site.bed.hosts[1].run("mountpoint /srv/terrace/s1")
        site.play("stop", "-e", "force=true")
        site.play("wipe", "-l", "h2", "-e", "confirm=h2")
        expect(json.loads(site.bed.hosts[1].run("wipefs -n -J /dev/disk/by-id/testbed-a"))["signatures"] == [], "wiped")
        expect("s1" in site.bed.hosts[0].run("wipefs -n -J /dev/disk/by-id/testbed-a"), "the other hosts are left alone")


if __name__ == "__main__":
    sys.exit(main())
