# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A bond of ports with a VLAN and jumbo frames: its plan, its files for NetworkManager and systemd-networkd, what forbids it."""

from __future__ import annotations

import ipaddress
import re
import uuid

from ansible.errors import AnsibleFilterError

# IFNAMSIZ of Linux without the byte behind the name.
NAME_MAX = 15
MTU_MIN, MTU_MAX = 1280, 9216
MODES = ("802.3ad", "active-backup", "balance-xor", "balance-rr", "broadcast", "balance-tlb", "balance-alb")
KEYS = ("name", "members", "mode", "mtu", "vlan")
# Modes that spread frames by a hash; by addresses and ports, so that the streams of one client use both ports.
HASHING = ("802.3ad", "balance-xor", "balance-tlb")
HASH_POLICY = "layer3+4"
MIIMON_MS = 100
# Kinds of links that lie on another one, whose name is their `link`. The `link` of a veth is its other end.
STACKED = ("vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec")
# Above 0, the priority of profiles that an installer has made for the same port.
PRIORITY = 10
NAMESPACE = uuid.UUID("6f1a52a3-6a53-4a5e-9a43-0d9b1d1a6e57")


def is_name(text):
    return isinstance(text, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", text) is not None and len(text) <= NAME_MAX


def bond_plan(bond, address):
    """Checks the variable `network_bond` and the host's `network_address` (ADDRESS/PREFIX); returns the plan.

    The plan has `bond`, `members`, `mode`, `mtu`, `vlan` (0 without one), `link` (which has the address) and `address`.
    """
    problems = [f"{key} is none of {', '.join(KEYS)}" for key in bond if key not in KEYS]
    name, members, mode = bond.get("name", "bond0"), bond.get("members") or [], bond.get("mode", "802.3ad")
    mtu, vlan = int(bond.get("mtu", 9000)), int(bond.get("vlan") or 0)
    link = f"{name}.{vlan}" if vlan else name
    if len(members) < 2 or len(set(members)) != len(members):
        problems.append("members are two or more different ports")
    problems += [f"{one} is no name of a port" for one in [link, *members] if not is_name(one)]
    if name in members:
        problems.append(f"{name} is the bond and one of its members")
    if mode not in MODES:
        problems.append(f"mode {mode} is none of {', '.join(MODES)}")
    if not MTU_MIN <= mtu <= MTU_MAX:
        problems.append(f"mtu {mtu} is not from {MTU_MIN} to {MTU_MAX}")
    if not 0 <= vlan <= 4094:
        problems.append(f"vlan {vlan} is not from 1 to 4094")
    try:
        if "/" not in str(address):
            raise ValueError
        ipaddress.ip_interface(address)
    except ValueError:
        problems.append(f"network_address {address!r} is not ADDRESS/PREFIX")
    if problems:
        raise AnsibleFilterError("network_bond: " + "; ".join(problems))
    return {
        "bond": name, "members": list(members), "mode": mode, "mtu": mtu, "vlan": vlan, "link": link, "address": str(address),
    }  # fmt: skip


def sections(parts):
    """Renders (section, {key: value}) as both systems read them."""
    texts = [f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in keys.items()) for name, keys in parts]
    return "# Written by terrace.storage.\n" + "\n".join(texts)


def networkd_file(name, parts):
    return {"path": f"/etc/systemd/network/60-terrace-{name}", "mode": "0644", "text": sections(parts)}


def networkd_files(plan):
    bond, link, mtu = plan["bond"], plan["link"], {"MTUBytes": plan["mtu"]}
    options = {"Mode": plan["mode"], "MIIMonitorSec": f"{MIIMON_MS}ms"}
    if plan["mode"] == "802.3ad":
        options["LACPTransmitRate"] = "fast"
    if plan["mode"] in HASHING:
        options["TransmitHashPolicy"] = HASH_POLICY
    # IPv6 does not work without an address of the link.
    local = "ipv6" if ipaddress.ip_interface(plan["address"]).version == 6 else "no"
    address = {"Address": plan["address"], "LinkLocalAddressing": local, "IPv6AcceptRA": "no"}
    none = {"LinkLocalAddressing": "no", "IPv6AcceptRA": "no"}
    files = [
        networkd_file(f"{bond}.netdev", [("NetDev", {"Name": bond, "Kind": "bond", **mtu}), ("Bond", options)]),
        # A port without carrier does not delay the boot.
        networkd_file(
            f"{bond}-ports.network",
            [
                ("Match", {"Name": " ".join(plan["members"])}),
                ("Link", {**mtu, "RequiredForOnline": "no"}),
                ("Network", {"Bond": bond, **none}),
            ],
        ),
    ]
    if not plan["vlan"]:
        return [*files, networkd_file(f"{bond}.network", [("Match", {"Name": bond}), ("Link", mtu), ("Network", address)])]
    carrier = {**mtu, "RequiredForOnline": "carrier"}
    return [
        *files,
        networkd_file(f"{bond}.network", [("Match", {"Name": bond}), ("Link", carrier), ("Network", {"VLAN": link, **none})]),
        networkd_file(f"{link}.netdev", [("NetDev", {"Name": link, "Kind": "vlan", **mtu}), ("VLAN", {"Id": plan["vlan"]})]),
        networkd_file(f"{link}.network", [("Match", {"Name": link}), ("Link", mtu), ("Network", address)]),
    ]


def profile(name, kind, connection, parts):
    """A profile of NetworkManager, whose identity follows from its name."""
    number = uuid.uuid5(NAMESPACE, name)
    head = {"id": name, "uuid": number, "type": kind, **connection}
    return {
        "path": f"/etc/NetworkManager/system-connections/{name}.nmconnection",
        # NetworkManager ignores profiles that others may read.
        "mode": "0600",
        "text": sections([("connection", head), *parts]),
    }


def networkmanager_files(plan):
    bond, link, mtu = plan["bond"], plan["link"], ("ethernet", {"mtu": plan["mtu"]})
    options = {"miimon": MIIMON_MS, "mode": plan["mode"]}
    if plan["mode"] == "802.3ad":
        options["lacp_rate"] = "fast"
    if plan["mode"] in HASHING:
        options["xmit_hash_policy"] = HASH_POLICY
    off = {"method": "disabled"}
    set_one = {"address1": plan["address"], "method": "manual", "never-default": "true"}
    version = ipaddress.ip_interface(plan["address"]).version
    address = [("ipv4", set_one if version == 4 else off), ("ipv6", set_one if version == 6 else off)]
    none = [("ipv4", off), ("ipv6", off)]
    # The bond brings its ports up. NetworkManager before 1.46 (AlmaLinux 8, Debian 12) has no other names for these keys.
    files = [
        profile(
            f"terrace-{bond}", "bond", {"interface-name": bond, "autoconnect-slaves": 1},
            [mtu, ("bond", options), *(none if plan["vlan"] else address)],
        )
    ]  # fmt: skip
    for member in plan["members"]:
        of_bond = {"autoconnect-priority": PRIORITY, "interface-name": member, "master": bond, "slave-type": "bond"}
        files.append(profile(f"terrace-{bond}-{member}", "ethernet", of_bond, [mtu]))
    if plan["vlan"]:
        vlan = ("vlan", {"flags": 1, "id": plan["vlan"], "parent": bond})
        files.append(profile(f"terrace-{link}", "vlan", {"interface-name": link}, [mtu, vlan, *address]))
    return files


def bond_files(plan, renderer):
    """Returns the files of a plan, each with `path`, `mode` and `text`; none for linux-system-roles, which writes its own."""
    return {"networkd": networkd_files, "networkmanager": networkmanager_files, "system_roles": lambda _: []}[renderer](plan)


def system_roles_connections(plan):
    """Returns the variable `network_connections` of the role `network` of linux-system-roles."""
    bond, link = plan["bond"], plan["link"]
    options = {"mode": plan["mode"], "miimon": MIIMON_MS}
    if plan["mode"] == "802.3ad":
        options["lacp_rate"] = "fast"
    if plan["mode"] in HASHING:
        options["xmit_hash_policy"] = HASH_POLICY
    none = {"dhcp4": False, "auto6": False}
    address = {**none, "address": [plan["address"]]}
    shared = {"state": "up", "mtu": plan["mtu"]}
    connections = [
        {"name": bond, "type": "bond", "interface_name": bond, "bond": options, "ip": none if plan["vlan"] else address, **shared}
    ]
    for member in plan["members"]:
        connections.append({"name": f"{bond}-{member}", "type": "ethernet", "interface_name": member, "controller": bond, **shared})
    if plan["vlan"]:
        vlan = {"parent": bond, "vlan": {"id": plan["vlan"]}, "ip": address}
        connections.append({"name": link, "type": "vlan", "interface_name": link, **vlan, **shared})
    return connections


def addresses(link):
    return [f"{one['local']}/{one['prefixlen']}" for one in link.get("addr_info", []) if one.get("scope") == "global"]


def bond_is_up(plan, links):
    """Whether the links (`ip -details -json address show`) are those of the plan, with its address and MTU."""
    known = {link["ifname"]: link for link in links}
    found, link = [known.get(member, {}) for member in plan["members"]], known.get(plan["link"], {})
    wanted = ipaddress.ip_interface(plan["address"])
    return (
        all(one.get("master") == plan["bond"] and one.get("mtu") == plan["mtu"] for one in found)
        and link.get("mtu") == plan["mtu"]
        and wanted in [ipaddress.ip_interface(one) for one in addresses(link)]
    )


def bond_problems(plan, links, connection, host, interfaces=""):
    """Returns why the bond must not be made or changed now; an empty list where nothing speaks against it.

    `connection` is the host's address of the connection that Ansible uses: empty where it is not known, None where Ansible runs on
    the host itself. `interfaces` is what ifupdown is configured with.
    """
    known = {link["ifname"]: link for link in links}
    problems = []
    if connection == "":
        problems.append("it is not known which port Ansible comes over: SSH_CONNECTION is not set")
    for name in dict.fromkeys([*plan["members"], plan["bond"], plan["link"]]):
        link = known.get(name)
        if link is None:
            if name in plan["members"]:
                problems.append(f"there is no port {name}, but {', '.join(sorted(set(known) - {'lo'}))}")
            continue
        local = addresses(link)
        if connection and connection in [one.split("/")[0] for one in local]:
            problems.append(f"Ansible comes over {name} ({connection}): reach the host over another port")
        elif name in plan["members"] and local:
            problems.append(f"{name} has the address {local[0]}: take it away first")
        kind = link.get("linkinfo", {}).get("info_kind", "")
        if name == plan["bond"] and kind != "bond":
            problems.append(f"{name} is there, and is no bond{f' but a {kind}' if kind else ''}")
        if name not in plan["members"]:
            continue
        if link.get("master", plan["bond"]) != plan["bond"]:
            problems.append(f"{name} belongs to {link['master']}")
        for upper in links:
            if upper.get("link") == name and upper.get("linkinfo", {}).get("info_kind") in STACKED:
                problems.append(f"{upper['ifname']} lies on {name}")
        if re.search(rf"^\s*iface\s+{re.escape(name)}\s", interfaces, re.M):
            problems.append(f"{name} is configured in /etc/network/interfaces: remove it there first")
    return [f"{host}: {problem}" for problem in problems]


class FilterModule:
    """The filters of this file."""

    def filters(self):
        return {
            "bond_plan": bond_plan,
            "bond_files": bond_files,
            "bond_is_up": bond_is_up,
            "bond_problems": bond_problems,
            "system_roles_connections": system_roles_connections,
        }
