# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Bonds: files and variables of each system, compared with golden files, and ports that must not be taken.

`UPDATE_GOLDEN=1` writes the files anew; the difference is then looked at before it is committed.
"""

import importlib.util
import json
import os
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError

COLLECTION = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).resolve().parent / "golden"
SPEC = importlib.util.spec_from_file_location("network", COLLECTION / "plugins/filter/network.py")
network = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(network)

PORTS = ["ens1f0", "ens1f1"]
PLANS = {
    "lacp-vlan": ({"name": "bond0", "members": PORTS, "mode": "802.3ad", "mtu": 9000, "vlan": 100}, "10.10.0.11/24"),
    "backup-ipv6": ({"members": PORTS, "mode": "active-backup", "mtu": 1500}, "fd00:10::11/64"),
}
LACP = network.bond_plan(*PLANS["lacp-vlan"])


def compare(name, found):
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("renderer", ["networkd", "networkmanager"])
@pytest.mark.parametrize("plan", PLANS)
def test_files_are_as_in_the_golden_file(plan, renderer):
    files = network.bond_files(network.bond_plan(*PLANS[plan]), renderer)
    compare(f"network-{renderer}-{plan}.txt", "\n".join(f"==> {one['path']} {one['mode']}\n{one['text']}" for one in files))


@pytest.mark.parametrize("plan", PLANS)
def test_variables_of_linux_system_roles_are_as_in_the_golden_file(plan):
    connections = network.system_roles_connections(network.bond_plan(*PLANS[plan]))
    compare(f"network-system-roles-{plan}.json", json.dumps(connections, indent=1) + "\n")


@pytest.mark.parametrize(
    ("change", "address", "reason"),
    [
        ({"members": ["ens1f0"]}, "10.0.0.1/24", "two or more"),
        ({"members": ["ens1f0", "ens1f0"]}, "10.0.0.1/24", "different ports"),
        ({"members": ["ens1f0", "../x"]}, "10.0.0.1/24", "no name of a port"),
        ({"members": ["bond0", "ens1f0"]}, "10.0.0.1/24", "the bond and one of its members"),
        ({"mode": "lacp"}, "10.0.0.1/24", "is none of"),
        ({"mtu": 90000}, "10.0.0.1/24", "is not from"),
        ({"vlan": 4095}, "10.0.0.1/24", "is not from"),
        ({"name": "storage-bond1"}, "10.0.0.1/24", "no name of a port"),
        ({"slaves": []}, "10.0.0.1/24", "slaves is none of"),
        ({}, "10.0.0.1", "ADDRESS/PREFIX"),
        ({}, "ten/24", "ADDRESS/PREFIX"),
    ],
)
def test_wrong_bonds_are_refused(change, address, reason):
    with pytest.raises(AnsibleFilterError, match=reason):
        network.bond_plan(PLANS["lacp-vlan"][0] | change, address)


def link(name, address=None, kind=None, **more):
    local, _, prefix = (address or "").partition("/")
    found = {"ifname": name, "mtu": 9000, "addr_info": [], **more}
    if address:
        found["addr_info"] = [{"scope": "global", "local": local, "prefixlen": int(prefix)}]
    if kind:
        found["linkinfo"] = {"info_kind": kind}
    return found


MANAGEMENT = link("eno1", "192.0.2.11/24")
FREE = [MANAGEMENT, *map(link, PORTS)]
SET = [
    MANAGEMENT,
    *(link(port, master="bond0") for port in PORTS),
    link("bond0", kind="bond"),
    link("bond0.100", "10.10.0.11/24", kind="vlan", link="bond0"),
]


def problems(links, connection="192.0.2.11", interfaces=""):
    return network.bond_problems(LACP, links, connection, "h1", interfaces)


def test_free_ports_are_taken():
    assert problems(FREE) == []
    assert problems(FREE, connection=None) == []


def test_a_bond_that_is_there_can_be_changed_over_another_port():
    assert problems(SET) == []


@pytest.mark.parametrize(
    ("links", "connection", "reason"),
    [
        ([link("ens1f0", "192.0.2.11/24"), link("ens1f1")], "192.0.2.11", "Ansible comes over ens1f0 (192.0.2.11)"),
        (SET, "10.10.0.11", "Ansible comes over bond0.100 (10.10.0.11)"),
        (FREE, "", "SSH_CONNECTION is not set"),
        ([MANAGEMENT, link("ens1f0", "10.0.0.5/24"), link("ens1f1")], "192.0.2.11", "ens1f0 has the address 10.0.0.5/24"),
        ([MANAGEMENT, link("ens1f0", master="br0"), link("ens1f1")], "192.0.2.11", "ens1f0 belongs to br0"),
        ([*FREE, link("ens1f0.7", kind="vlan", link="ens1f0")], "192.0.2.11", "ens1f0.7 lies on ens1f0"),
        ([MANAGEMENT, link("ens1f0")], "192.0.2.11", "there is no port ens1f1, but eno1, ens1f0"),
        ([*FREE, link("bond0", kind="bridge")], "192.0.2.11", "bond0 is there, and is no bond but a bridge"),
    ],
)
def test_ports_in_use_are_refused(links, connection, reason):
    (problem,) = problems(links, connection)
    assert problem.startswith("h1: ")
    assert reason in problem


def test_the_other_end_of_a_veth_does_not_lie_on_it():
    assert problems([*FREE, link("peer", kind="veth", link="ens1f0")]) == []


def test_ports_of_ifupdown_are_refused():
    (problem,) = problems(FREE, interfaces="auto lo\niface lo inet loopback\niface ens1f1 inet dhcp\n")
    assert "ens1f1 is configured in /etc/network/interfaces" in problem


@pytest.mark.parametrize(
    ("change", "is_up"),
    [
        ({}, True),
        ({"bond0.100": {"mtu": 1500}}, False),
        ({"bond0.100": {"addr_info": []}}, False),
        ({"ens1f1": {"master": None}}, False),
        ({"ens1f1": {"mtu": 1500}}, False),
    ],
)
def test_a_bond_is_up_with_all_that_was_planned(change, is_up):
    assert network.bond_is_up(LACP, [one | change.get(one["ifname"], {}) for one in SET]) is is_up
    assert not network.bond_is_up(LACP, FREE)
