#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Two hosts, and what prepares them: files for installers, bootstrap, tuning, and bonds.

    prepare_test.py ANSIBLE_BIN

Pairs of veth are ports, which systemd-networkd configures. A kernel without the module of bonds makes none: the files are then
only read, and a bridge of the bond's name stands in for it, so that what checks a bond that is there runs, too.
"""

import json
import re
import shutil
import sys
from pathlib import Path

from playbooks import Playbooks
from steps import Host, TestBed, bound, expect, run, step

TIME_MAX_S = 600
WORK = Path("/var/tmp/terrace-prepare-test")
PORTS = ["s0", "s1"]
FILES = "ls /etc/systemd/network | grep terrace"


def add_ports(bed: TestBed) -> None:
    """Two ports for each host; the first ones are on one bridge, and the second ones lead nowhere."""
    run("ip", "-n", bed.lan, "link", "add", "br1", "mtu", "9000", "type", "bridge")
    run("ip", "-n", bed.lan, "link", "set", "br1", "up")
    for host in bed.hosts:
        for port in PORTS:
            end = f"{port}-{host.number}"
            run("ip", "link", "add", "name", port, "netns", host.namespace, "type", "veth", "peer", "name", end, "netns", bed.lan)
            run("ip", "-n", bed.lan, "link", "set", end, "mtu", "9000", "up")
        run("ip", "-n", bed.lan, "link", "set", f"s0-{host.number}", "master", "br1")


def inventory(bed: TestBed, members: list[str]) -> dict:
    hosts = {host.name: bed.host_variables(host) | {"network_address": f"10.99.0.{10 + host.number}/24"} for host in bed.hosts}
    bond = {"name": "bond0", "members": members, "mode": "active-backup", "mtu": 9000}
    return {
        "all": {
            "vars": {"network_bond": bond, "network_timeout_s": 15, "terrace_tuning": True, "terrace_time_servers": ["10.98.0.1"]},
            "hosts": hosts,
            "children": {group: {"hosts": dict.fromkeys(hosts, {})} for group in ("terrace_all", "terrace_servers")},
        }
    }


def bare(bed: TestBed) -> dict:
    """An inventory for the playbook of installers, which reaches no host."""
    site = inventory(bed, PORTS)
    site["all"]["vars"] |= {
        "installer_directory": str(WORK / "installer"),
        "installer_system": "debian12",
        "installer_disk": "/dev/disk/by-id/nvme-system",
        "installer_ssh_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey admin@controller",
        "installer_url": "http://10.98.0.1:8000/grub",
    }
    for number, variables in enumerate(site["all"]["hosts"].values(), start=1):
        variables["installer_mac"] = f"52:54:00:00:00:0{number}"
    return site


def asked_role() -> list[str]:
    """Options for a role in place of that of linux-system-roles; it records what it is asked, and makes no bond."""
    tasks = WORK / "recorder/tasks/main.yml"
    tasks.parent.mkdir(parents=True)
    copy = {"content": "{{ network_connections | to_json }}", "dest": "/root/asked.json", "mode": "0600"}
    tasks.write_text(json.dumps([{"name": "Record", "ansible.builtin.copy": copy}]), encoding="utf-8")
    variables = {"network_renderer": "system_roles", "network_system_role": str(WORK / "recorder"), "network_timeout_s": "1"}
    return [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]


def has_bonds(host: Host) -> bool:
    return "has" in host.run("ip link add probe type bond && echo has && ip link delete probe", check=False)


def stand_in(host: Host) -> None:
    """Makes by hand what would be there; systemd-networkd leaves a bridge of this name alone."""
    host.run(f"ip link add bond0 type bridge && ip link set bond0 up && ip address add 10.99.0.{10 + host.number}/24 dev bond0")
    for port in PORTS:
        host.run(f"ip link set {port} mtu 9000 master bond0 up")


def main() -> int:
    ansible = Path(sys.argv[1]).resolve()
    bound(TIME_MAX_S)
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    with TestBed(Path("/var/tmp/terrace-testbed-prepare")) as bed:
        with step("two hosts boot"):
            bed.up(2)
            add_ports(bed)
        playbooks = Playbooks(bed, ansible, WORK)
        with step("files for installers are written once, and a disk by an unstable name is refused"):
            playbooks.run(bare(bed), "installer", "--check")
            playbooks.run(bare(bed), "installer")
            names = {f"{host.name}.preseed" for host in bed.hosts} | {
                "grub.cfg",
                "grub.cfg-52:54:00:00:00:01",
                "grub.cfg-52:54:00:00:00:02",
            }
            found = {path.name for path in (WORK / "installer").iterdir()}
            expect(found == names, found)
            counts = playbooks.run(bare(bed), "installer")
            expect(counts["changed"] == 0, playbooks.changed_tasks())
            playbooks.run(bare(bed), "installer", "-e", "installer_disk=/dev/sda", fails=True)
            expect("is no name below /dev/disk/by-id or by-path" in playbooks.printed(), playbooks.log[-2000:])
        with step("hosts are bootstrapped and tuned, and not given bonds unasked"):
            playbooks.run(inventory(bed, PORTS), "bootstrap", "--check")
            playbooks.run(inventory(bed, PORTS), "bootstrap")
            host = bed.hosts[0]
            host.fails(FILES)
            # Both programs read what was written; the kernel of the machine is left alone.
            parsed = host.run("sysctl --dry-run --load=/etc/sysctl.d/60-terrace.conf")
            expect("vm.dirty_bytes = 1073741824" in parsed, parsed)
            used = host.run("systemd-tmpfiles --cat-config && chronyd -p -f /etc/chrony/chrony.conf")
            expect("w /sys/kernel/mm/transparent_hugepage/enabled - - - - madvise" in used, used)
            sources = host.run("cat /etc/chrony/sources.d/terrace.sources && grep sourcedir /etc/chrony/chrony.conf")
            expect("server 10.98.0.1 iburst" in sources and "sourcedir /etc/chrony/sources.d" in sources, sources)
        with step("a second bootstrap changes nothing"):
            counts = playbooks.run(inventory(bed, PORTS), "bootstrap")
            expect(counts["changed"] == 0, playbooks.changed_tasks())
        with step("the port that Ansible comes over is refused"):
            playbooks.run(inventory(bed, ["eth0", "s0"]), "network", fails=True)
            expect(
                "Ansible comes over eth0 (10.98.0.11): reach the host over another port" in playbooks.printed(),
                playbooks.log[-2000:],
            )
            bed.hosts[0].fails(FILES)
        with step("files that systemd-networkd would begin to use are refused"):
            bed.hosts[0].run("printf '[Match]\\nName=eth0\\n' >/etc/systemd/network/10-lan.network")
            playbooks.run(inventory(bed, PORTS), "network", "-l", "h1", fails=True)
            expect("would begin to use /etc/systemd/network/10-lan.network" in playbooks.printed(), playbooks.log[-2000:])
            bed.hosts[0].fails(FILES)
            bed.hosts[0].run("rm /etc/systemd/network/10-lan.network")
        with step("a dry run writes nothing"):
            playbooks.run(inventory(bed, PORTS), "network", "--check")
            bed.hosts[0].fails(FILES)
        with step("linux-system-roles is asked for bond, ports and address where it is chosen"):
            playbooks.run(inventory(bed, PORTS), "network", "-l", "h1", *asked_role(), fails=True)
            asked = json.loads(bed.hosts[0].run("cat /root/asked.json"))
            expect([one["name"] for one in asked] == ["bond0", "bond0-s0", "bond0-s1"], asked)
            expect(asked[0]["ip"]["address"] == ["10.99.0.11/24"], asked)
            bed.hosts[0].fails(FILES)
        is_real = has_bonds(bed.hosts[0])
        with step("the bond is made" if is_real else "this kernel makes no bond, and the playbook says so"):
            playbooks.run(inventory(bed, PORTS), "network", fails=not is_real)
            if not is_real:
                expect("bond0 is not up with 10.99.0.11/24" in playbooks.printed(), playbooks.log[-2000:])
            # What it does not understand it reports with file and line.
            log = bed.hosts[0].run("journalctl --unit=systemd-networkd --output=cat")
            expect("s0: Configuring with /etc/systemd/network/60-terrace-bond0-ports.network" in log, log)
            expect(re.search(r"/etc/systemd/\S+:\d+: ", log) is None, log)
        if not is_real:
            for host in bed.hosts:
                stand_in(host)
        with step("a second run changes nothing, and packets of full size pass"):
            counts = playbooks.run(inventory(bed, PORTS), "network")
            expect(counts["changed"] == 0, playbooks.changed_tasks())
        with step("a dry run with the bond changes nothing"):
            counts = playbooks.run(inventory(bed, PORTS), "network", "--check")
            expect(counts["changed"] == 0, playbooks.changed_tasks())
        with step("a switch that takes no jumbo frames is reported"):
            run("ip", "-n", bed.lan, "link", "set", "s0-1", "mtu", "1500")
            playbooks.run(inventory(bed, PORTS), "network", fails=True)
            expect("no packet of 9000 bytes reaches 10.99.0.12" in playbooks.printed(), playbooks.log[-2000:])
        with step("a port that has got an address is refused before anything is changed"):
            host = bed.hosts[0]
            host.run("ip link set s1 nomaster && ip address add 10.97.0.1/24 dev s1")
            playbooks.run(inventory(bed, PORTS), "network", "-l", "h1", fails=True)
            expect("s1 has the address 10.97.0.1/24" in playbooks.printed(), playbooks.log[-2000:])
    shutil.rmtree(WORK)
    print(f"prepare_test: everything passed{'' if is_real else ', without a bond: this kernel makes none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
