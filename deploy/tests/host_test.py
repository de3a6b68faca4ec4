#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One host: the packages are installed, a store is served and mounted at boot, and nothing but the data is left.

host_test.py PACKAGES      a directory that packaging/make-packages.py filled
"""

import json
import sys
from pathlib import Path

from steps import Host, TestBed, bound, expect, step

TIME_MAX_S = 300
# What `systemd-analyze security` may say of a unit (man systemd-analyze: 0 is the least exposed).
EXPOSURE_MAX = 3.0
DISK = "/dev/disk/by-id/testbed-a"
TIER = "/srv/terrace/disk1"
DROP_IN = f"""[Unit]
RequiresMountsFor={TIER}
AssertPathIsMountPoint={TIER}
[Service]
ReadWritePaths={TIER}
"""
MOUNT_UNIT = f"""[Unit]
Before=local-fs.target
[Mount]
What={DISK}
Where={TIER}
Type=xfs
[Install]
WantedBy=local-fs.target
"""
FSTAB = (
    "terrace://127.0.0.1:7420/?secret=/etc/terrace/secret /mnt/files fuse.terrace "
    "_netdev,nofail,retry=60s,x-systemd.requires=terrace-server@main.service 0 0"
)


def write(host: Host, path: str, text: str, mode: str = "644") -> None:
    host.run(f"install -D -m {mode} /dev/stdin {path} <<'END'\n{text}\nEND")


def install(host: Host) -> None:
    host.run("echo 'deb [trusted=yes] file:/srv/repository ./' >/etc/apt/sources.list.d/terrace.list")
    host.run("apt-get -qq update && apt-get -qq install -y terrace-server terrace-mount 2>&1")
    expect("terrace" in host.run("id terrace"), "the package makes the user")


def make_store(host: Host) -> None:
    host.run(f"mkfs.xfs -q -L disk1 {DISK} && mkdir -p {TIER}")
    write(host, "/etc/systemd/system/srv-terrace-disk1.mount", MOUNT_UNIT)
    host.run("systemctl daemon-reload && systemctl -q enable --now srv-terrace-disk1.mount")
    host.run(f"chown terrace:terrace {TIER}")
    host.run(f"runuser -u terrace -- terrace init /var/lib/terrace/main --tier disk1={TIER}/tier")
    write(host, "/etc/terrace/secret", "a secret of this test", mode="400")
    write(host, "/etc/terrace/server/main.env", "TERRACE_SERVE_OPTIONS=--listen 127.0.0.1:7420")
    write(host, "/etc/systemd/system/terrace-server@main.service.d/disks.conf", DROP_IN)
    host.run("systemctl daemon-reload")


def serve(host: Host) -> None:
    host.run("systemctl -q enable terrace-server@main && systemctl start terrace-server@main")
    state = host.run("systemctl show -p NotifyAccess -p WatchdogUSec -p ActiveState terrace-server@main")
    expect("ActiveState=active" in state and "WatchdogUSec=1min" in state, state)
    check_exposure(host, "terrace-server@main")


def check_exposure(host: Host, unit: str) -> None:
    total = host.run(f"systemd-analyze security {unit} | tail -n 1")
    level = float(total.split(": ")[1].split()[0])
    settings = json.loads(host.run(f"systemd-analyze security --json=short {unit}"))
    expect(level <= EXPOSURE_MAX, f"{total} {[line['name'] for line in settings if line['exposure']]}")
    print(f" (exposure {level})", end="")


def scrape(host: Host, port: int) -> str:
    """The metrics at a port of the loopback. The hosts have no HTTP client."""
    write(host, "/root/scrape", f"exec 3<>/dev/tcp/127.0.0.1/{port}\nprintf 'GET /metrics HTTP/1.1\\r\\n\\r\\n' >&3\ncat <&3")
    return host.run("bash /root/scrape")


def metrics(host: Host) -> None:
    """The units listen on loopback alone, and say what they serve."""
    text = scrape(host, 9742)
    for line in ("terrace_build_info{version=", 'terrace_tier_online{tier="disk1"} 1'):
        expect(line in text, f"{line} is not in: {text}")
    expect(text.rstrip().endswith("# EOF"), text[-200:])
    listening = host.run("ss -Hltn 'sport = :9742'")
    expect("127.0.0.1:9742" in listening and "0.0.0.0:9742" not in listening, listening)
    host.run("ls /usr/share/terrace/monitoring/prometheus/terrace-alerts.yml")


def watchdog(host: Host) -> None:
    """A server that hangs is restarted: SIGSTOP stands for that."""
    write(host, "/etc/systemd/system/terrace-server@main.service.d/test.conf", "[Service]\nWatchdogSec=2s")
    host.run("systemctl daemon-reload && systemctl restart terrace-server@main")
    first = host.run("systemctl show -P MainPID terrace-server@main").strip()
    host.run(f"sleep 3; [ $(systemctl show -P MainPID terrace-server@main) = {first} ]")
    host.run(f"kill -STOP {first}")
    show = "systemctl show -P MainPID terrace-server@main"
    host.run(f"timeout 30 sh -c 'until p=$({show}) && [ $p != {first} ] && [ $p != 0 ]; do sleep 0.2; done'")
    host.run("rm /etc/systemd/system/terrace-server@main.service.d/test.conf && systemctl daemon-reload")
    host.run("systemctl restart terrace-server@main")


def mount_at_boot(host: Host) -> None:
    host.run(f"mkdir -p /mnt/files && echo '{FSTAB}' >>/etc/fstab")
    host.run("systemctl daemon-reload && mount /mnt/files && echo bytes >/mnt/files/file && sync")
    write(host, "/etc/terrace/mount/mnt-unit.env", "TERRACE_STORE=terrace://127.0.0.1:7420/")
    host.run("systemctl -q enable --now terrace-mount@mnt-unit && grep -q bytes /mnt/unit/file")
    check_exposure(host, "terrace-mount@mnt-unit")
    expect('terrace_mount_info{mountpoint="/mnt/unit"' in scrape(host, 9842), "the mount answers scrapes")
    killed_mount(host)
    host.stop()
    host.boot()
    host.wait()
    host.run("timeout 60 sh -c 'until grep -q bytes /mnt/files/file && grep -q bytes /mnt/unit/file; do sleep 0.2; done'")


def killed_mount(host: Host) -> None:
    """A mount whose process is killed is there again, and one that is in use is stopped all the same."""
    show = "systemctl show -P MainPID terrace-mount@mnt-unit"
    first = host.run(show).strip()
    spaces = host.run(f"readlink /proc/1/ns/mnt /proc/{first}/ns/mnt").split()
    expect(spaces[0] != spaces[1], "who serves a mount has a name space of mounts of its own")
    host.run(f"kill -KILL {first}")
    host.run(f"timeout 60 sh -c 'until p=$({show}) && [ $p != {first} ] && grep -q bytes /mnt/unit/file; do sleep 0.2; done'")
    host.run("sh -c 'exec 3</mnt/unit/file; sleep 5' >/dev/null 2>&1 & until [ -e /proc/$!/fd/3 ]; do sleep 0.1; done")
    host.run("systemctl stop terrace-mount@mnt-unit && ! findmnt /mnt/unit && systemctl start terrace-mount@mnt-unit")


def missing_disk(host: Host) -> None:
    host.run("systemctl stop terrace-mount@mnt-unit && umount /mnt/files && systemctl stop terrace-server@main")
    unit = "/etc/systemd/system/srv-terrace-disk1.mount"
    host.run(f"systemctl stop srv-terrace-disk1.mount && mv {unit} /root/ && systemctl daemon-reload")
    host.fails("systemctl start terrace-server@main")
    expect(host.run(f"ls -A {TIER}") == "", "nothing is written where the disk is missing")
    host.run(f"mv /root/srv-terrace-disk1.mount {unit} && systemctl daemon-reload && systemctl start terrace-server@main")


def uninstall(host: Host) -> None:
    host.run("systemctl start terrace-mount@mnt-unit && mount /mnt/files")
    host.run("umount /mnt/files && sed -i '/fuse.terrace/d' /etc/fstab && systemctl daemon-reload")
    host.run("apt-get -qq purge -y terrace terrace-server terrace-mount 2>&1")
    units = host.run("systemctl list-units --all --plain --no-legend 'terrace-*'; ls /etc/systemd/system/*.wants")
    expect("terrace-server@" not in units and "terrace-mount@" not in units, f"units are left: {units}")
    left = host.run(
        "find / -xdev -name '*terrace*' -not -path '/srv/*' -not -path '/proc/*' -not -path '/var/lib/terrace*' "
        "-not -path '/etc/systemd/system/*' -not -path '/root/*' -not -path '/etc/apt/*' -not -path '/var/lib/apt/*' "
        "-not -path '/var/lib/systemd/*' -not -path '/tmp/*'"
    )
    expect(left == "", f"left behind: {left}")
    expect(host.run(f"ls {TIER}/tier; ls /var/lib/terrace/main") != "", "the data stay")
    host.run("apt-get -qq install -y terrace 2>&1")
    host.run("mkdir -p /mnt/again && terrace mount /var/lib/terrace/main /mnt/again && grep -q bytes /mnt/again/file")
    host.run("umount /mnt/again")


def main() -> int:
    packages = Path(sys.argv[1]).resolve()
    bound(TIME_MAX_S)
    bed = TestBed(Path("/var/tmp/terrace-testbed-host"), shared={packages: "/srv/repository"})
    with bed:
        with step("a host boots"):
            bed.up(1)
        host = bed.hosts[0]
        for text, does in [
            ("the packages are installed", install),
            ("a store is made on a disk of its own", make_store),
            ("the server starts", serve),
            ("the server answers scrapes", metrics),
            ("a server that hangs is restarted", watchdog),
            ("the store is mounted by fstab and by a unit, also after a reboot", mount_at_boot),
            ("a server whose disk is missing does not start", missing_disk),
            ("nothing but the data is left", uninstall),
        ]:
            with step(text):
                does(host)
    print("host_test: everything passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
