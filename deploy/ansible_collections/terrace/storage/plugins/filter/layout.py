# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What an inventory asks for, as commands and files: plans of volumes, stores and server maps.

Everything here is a pure function of the inventory and of what was found on a host, so that each layout has a unit test,
also those whose disks no test machine has (md, ZFS).
"""

from __future__ import annotations

import json
import re
import shlex

from ansible.errors import AnsibleFilterError

# Where the file system of a volume is mounted, unless its role says otherwise.
ROOT = "/srv/terrace"
# XFS takes labels of 12 bytes.
NAME = re.compile(r"[a-z][a-z0-9]{0,11}")
# Names of disks that stay the same when one is added or fails (man udev, 60-persistent-storage.rules).
STABLE = re.compile(r"/dev/disk/by-(id|path|partuuid)/")
USES = ("storage", "meta")
# In the order in which a store prefers them.
TIERS = ("performance", "capacity", "archive")
# Chunk of an md array, mdadm's default.
CHUNK_KIB = 512

# Of each layout: how many devices it takes, how many of them hold parity, and what is on them.
LAYOUTS = {
    "dir": {"least": 0, "most": 0, "parity": 0, "type": None},
    "xfs": {"least": 1, "most": 1, "parity": 0, "type": "xfs"},
    "ext4": {"least": 1, "most": 1, "parity": 0, "type": "ext4"},
    "md0_xfs": {"least": 2, "most": 64, "parity": 0, "type": "xfs", "level": 0},
    "md5_xfs": {"least": 3, "most": 64, "parity": 1, "type": "xfs", "level": 5},
    "md6_xfs": {"least": 4, "most": 64, "parity": 2, "type": "xfs", "level": 6},
    "zfs_stripe": {"least": 1, "most": 64, "parity": 0, "type": "zfs", "vdev": []},
    "zfs_raidz1": {"least": 3, "most": 64, "parity": 1, "type": "zfs", "vdev": ["raidz1"]},
    "zfs_raidz2": {"least": 4, "most": 64, "parity": 2, "type": "zfs", "vdev": ["raidz2"]},
}

MKFS = {
    "xfs": ["mkfs.xfs", "-q", "-L"],
    # No room for root alone, and no journal replay that a lazy initialization would delay.
    "ext4": ["mkfs.ext4", "-q", "-m", "0", "-L"],
}
MOUNT_OPTIONS = {"xfs": "noatime,inode64", "ext4": "noatime"}
PACKAGES = {"xfs": ["xfsprogs"], "ext4": ["e2fsprogs"], "md": ["mdadm"], "zfs": ["zfsutils-linux"]}


def volume_plan(volumes, root=ROOT, allow_unstable_names=False):
    """Checks the volumes of a host and returns, for each, what has to be made, mounted and installed."""
    plans, problems = [], []
    owners: dict[str, str] = {}
    for volume in volumes:
        problems += _problems(volume, owners, allow_unstable_names)
        if not problems:
            plans.append(_plan(volume, root))
    if problems:
        raise AnsibleFilterError("storage_volumes: " + "; ".join(problems))
    return plans


def _problems(volume, owners, allow_unstable_names):
    name = str(volume.get("name", ""))
    if not NAME.fullmatch(name):
        return [f"the name {name!r} is not a letter and at most 11 letters and digits"]
    problems = []
    if name in owners.values():
        problems.append(f"{name} is there twice")
    layout = LAYOUTS.get(volume.get("layout"))
    if layout is None:
        return [*problems, f"{name}: layout {volume.get('layout')!r} is none of {', '.join(LAYOUTS)}"]
    devices = volume.get("devices", [])
    if not layout["least"] <= len(devices) <= layout["most"]:
        problems.append(f"{name}: {volume['layout']} takes {layout['least']} to {layout['most']} devices, not {len(devices)}")
    if volume.get("use", "storage") not in USES:
        problems.append(f"{name}: use is one of {', '.join(USES)}")
    if volume.get("tier", "capacity") not in TIERS:
        problems.append(f"{name}: tier is one of {', '.join(TIERS)}")
    for device in devices:
        if not STABLE.match(device) and not allow_unstable_names:
            problems.append(
                f"{name}: {device} may be another disk after the next boot; name it by /dev/disk/by-id/, or set "
                "allow_unstable_names"
            )
        if device in owners:
            problems.append(f"{device} belongs to {owners[device]} and {name}")
        owners[device] = name
    owners.setdefault(f"name {name}", name)
    return problems


def _plan(volume, root):
    name, layout = volume["name"], LAYOUTS[volume["layout"]]
    devices = list(volume.get("devices", []))
    path = volume.get("path") or f"{root}/{name}"
    kind = layout["type"]
    plan = {
        "name": name,
        "layout": volume["layout"],
        "devices": devices,
        "use": volume.get("use", "storage"),
        "tier": volume.get("tier", "capacity"),
        "target_id": volume.get("target_id"),
        "capacity": volume.get("capacity"),
        "path": path,
        "expected": {"type": kind, "label": name},
        "commands": [],
        "mount": None,
        "packages": list(PACKAGES.get(kind, [])),
    }
    if kind == "zfs":
        plan["expected"]["type"] = "zfs_member"
        options = ["-o", "ashift=12", "-O", "atime=off", "-O", "xattr=sa", "-O", "acltype=posixacl", "-O", "recordsize=1M"]
        plan["commands"] = [["zpool", "create", *options, "-m", path, name, *layout["vdev"], *devices]]
        return plan
    if kind is None:
        return plan
    target, geometry = (devices or [None])[0], []
    if "level" in layout:
        target = f"/dev/md/{name}"
        plan["packages"] += PACKAGES["md"]
        plan["expected"] = {"type": "linux_raid_member", "label": f"any:{name}"}
        count = str(len(devices))
        plan["commands"].append(
            ["mdadm", "--create", target, "--run", f"--level={layout['level']}", f"--raid-devices={count}",
             f"--chunk={CHUNK_KIB}K", "--homehost=any", f"--name={name}", *devices]
        )  # fmt: skip
        geometry = ["-d", f"su={CHUNK_KIB}k,sw={len(devices) - layout['parity']}"]
    plan["commands"].append([*MKFS[kind], name, *geometry, target])
    plan["mount"] = {"what": target, "where": path, "type": kind, "options": MOUNT_OPTIONS[kind]}
    return plan


def volume_states(plans, probes, host):
    """What is on the devices of each plan: `empty`, `expected`, or `foreign`, with a sentence for each problem.

    A probe has `device`, `exists`, `signatures` (the JSON of `wipefs --no-act --json`) and `blkid_status` (8: several
    signatures that exclude each other).
    """
    by_device = {probe["device"]: probe for probe in probes}
    return [_state(plan, by_device, host) for plan in plans]


def _state(plan, by_device, host):
    problems, holds = [], []
    for device in plan["devices"]:
        probe = by_device[device]
        if not probe["exists"]:
            problems.append(f"{host}: {device} of volume {plan['name']} is not there")
            continue
        signatures = _signatures(probe["signatures"])
        if not signatures and probe.get("blkid_status") != 8:
            holds.append("nothing")
        elif all(_is_expected(signature, plan) for signature in signatures) and probe.get("blkid_status") != 8:
            holds.append("expected")
        else:
            found = ", ".join(_describe(signature) for signature in signatures) or "contradicting signatures"
            problems.append(
                f"{host}: {device} is for volume {plan['name']}, and holds {found}; if that is not needed, free it with: "
                f"wipefs --all {shlex.quote(device)}"
            )
    if not problems and len(set(holds)) > 1:
        problems.append(
            f"{host}: of the devices of volume {plan['name']} some are empty and some belong to it: a disk was exchanged, "
            "or making it was interrupted; repair it by hand"
        )
    state = "foreign" if problems else "expected" if "expected" in holds else "empty"
    return {"name": plan["name"], "state": state, "problems": problems}


def _signatures(text):
    """The signatures in what wipefs printed, which is nothing for an empty device."""
    if not text.strip():
        return []
    return json.loads(text).get("signatures") or []


def _is_expected(signature, plan):
    expected = plan["expected"]
    return (signature.get("type"), signature.get("label")) == (expected["type"], expected["label"])


def _describe(signature):
    text = str(signature.get("type"))
    return text + (f" {signature['label']!r}" if signature.get("label") else "")


def store_instances(plans, mode="multi_target", name="main", port=7420):
    """The servers of a host, each with the tiers of its store.

    `multi_target` has one store over all volumes, `multi_mode` one for each. The catalog lies on the volume for metadata
    where there is one, and else on the first of the fastest tier.
    """
    storage = sorted((plan for plan in plans if plan["use"] == "storage"), key=lambda plan: TIERS.index(plan["tier"]))
    meta = [plan for plan in plans if plan["use"] == "meta"]
    if not storage:
        return []
    if mode == "multi_target":
        return [_instance(name, port, storage, (meta or storage)[0])]
    ordered = [plan for plan in plans if plan["use"] == "storage"]
    return [
        _instance(plan["name"], port + index, [plan], meta[index % len(meta)] if meta else plan)
        for index, plan in enumerate(ordered)
    ]


def _instance(name, port, volumes, catalog):
    tiers = [{"name": plan["name"], "path": f"{plan['path']}/{name}-tier", "capacity": plan.get("capacity")} for plan in volumes]
    places = list(dict.fromkeys([catalog["path"], *(plan["path"] for plan in volumes)]))
    mounted = [plan["path"] for plan in [catalog, *volumes] if plan["layout"] != "dir"]
    return {
        "name": name,
        "port": port,
        "store": f"{catalog['path']}/{name}-store",
        "tiers": tiers,
        "places": places,
        "mount_points": list(dict.fromkeys(mounted)),
    }


def drain_problem(tiers, name):
    """Why a tier cannot be drained and removed; an empty text where it can, or is not there."""
    if name not in [tier["name"] for tier in tiers]:
        return ""
    (drained,) = [tier for tier in tiers if tier["name"] == name]
    others = [tier for tier in tiers if tier["name"] != name and not tier["offline"] and tier["is_writable"]]
    if not others:
        return f"{name} is the only tier: add another one first"
    if any(tier["capacity_bytes"] is None for tier in others):
        return ""
    room = sum(max(tier["capacity_bytes"] - tier["used_bytes"] - tier["reserved_bytes"], 0) for tier in others)
    if drained["used_bytes"] > room:
        return f"{name} holds {drained['used_bytes']} bytes, and the other tiers have room for {room}: add a tier first"
    return ""


def tier_argument(tier):
    """A tier as `terrace init --tier` and `terrace tiers add` take it."""
    return f"{tier['name']}={tier['path']}" + (f",capacity={tier['capacity']}" if tier.get("capacity") else "")


def server_map(servers):
    """The text of the server map. A server has `name`, `address`, and `since`, the epoch in which it came."""
    if not servers:
        raise AnsibleFilterError("terrace_servers: no host of it has a volume for storage")
    epoch = max(int(server.get("since", 0)) for server in servers) or 1
    parts = [
        "# SPDX-License-Identifier: Apache-2.0 OR MIT\n# Written by terrace.storage, the same on every host.",
        f"epoch = {epoch}",
    ]
    for server in servers:
        lines = ["[[server]]", f'name = "{server["name"]}"', f'address = "{server["address"]}"']
        if int(server.get("since", 0)):
            lines.append(f"since = {int(server['since'])}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def unit_name(path):
    """The name that systemd gives to a path, as `systemd-escape --path`."""
    words = [word for word in path.split("/") if word]
    if not words:
        return "-"
    escaped = []
    for index, byte in enumerate("/".join(words).encode()):
        character = chr(byte)
        if character == "/":
            escaped.append("-")
        elif (character.isascii() and character.isalnum()) or character in ":_" or (character == "." and index):
            escaped.append(character)
        else:
            escaped.append(f"\\x{byte:02x}")
    return "".join(escaped)


class FilterModule:
    """The filters of the collection."""

    def filters(self):
        return {
            "volume_plan": volume_plan,
            "volume_states": volume_states,
            "store_instances": store_instances,
            "tier_argument": tier_argument,
            "drain_problem": drain_problem,
            "server_map": server_map,
            "unit_name": unit_name,
        }
