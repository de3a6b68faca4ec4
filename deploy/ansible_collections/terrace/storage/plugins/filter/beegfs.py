# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What an inventory asks of BeeGFS, as commands, configuration files and units: pure functions with golden files."""

from __future__ import annotations

import re

from ansible.errors import AnsibleFilterError

SETUP = "/opt/beegfs/sbin/beegfs-setup-"
# The ports that BeeGFS 7.4 has of itself; both of TCP and UDP.
PORTS = {"mgmtd": 8008, "meta": 8005, "storage": 8003, "client": 8004, "helperd": 8006}
# What differs between versions: the names of keys, and how the directory of the management daemon is made.
VERSIONS = {
    "7.4": {
        "mgmtd_config": "/etc/beegfs/beegfs-mgmtd.conf",
        "mgmtd_setup": [f"{SETUP}mgmtd", "-p", "/var/lib/beegfs/mgmtd"],
        "mgmtd_made": "/var/lib/beegfs/mgmtd/format.conf",
        "storage_port": ["connStoragePortTCP", "connStoragePortUDP"],
        "auth_file": "/etc/beegfs/connauthfile",
        "control": "beegfs-ctl",
        "packages": {"client": ["beegfs-client", "beegfs-helperd", "beegfs-utils"]},
        "client_units": ["beegfs-helperd.service", "beegfs-client.service"],
        "needs_licence": False,
    },
    "8": {
        "mgmtd_config": "/etc/beegfs/beegfs-mgmtd.toml",
        "mgmtd_setup": ["/opt/beegfs/sbin/beegfs-mgmtd", "--init"],
        "mgmtd_made": "/var/lib/beegfs/mgmtd.sqlite",
        "storage_port": ["connStoragePort"],
        "auth_file": "/etc/beegfs/conn.auth",
        "control": "beegfs",
        "packages": {"client": ["beegfs-client", "beegfs-tools"]},
        "client_units": ["beegfs-client.service"],
        "needs_licence": True,
    },
}


def beegfs_version(version):
    """What a version needs; only 7.4 and 8 are known."""
    text = str(version)
    for known, facts in VERSIONS.items():
        if text == known or text.startswith(f"{known}."):
            return dict(facts, version=known)
    raise AnsibleFilterError(f"beegfs_version {text} is not known; known are {', '.join(VERSIONS)}")


def beegfs_services(plans, number, management, mode="multi_target", version="7.4", has_metadata=True):
    """The services of one host: the commands that set each up, where it is configured, and its unit.

    `number` is that of the host among all servers, from 1; numbers of nodes and targets follow from it.
    """
    facts = beegfs_version(version)
    storage = [plan for plan in plans if plan["use"] == "storage"]
    meta = [plan for plan in plans if plan["use"] == "meta"] or storage[:1]
    services = []
    if has_metadata and meta:
        services.append(_meta(meta[0]["path"], number, management, facts))
    if mode == "multi_target":
        if storage:
            services.append(_storage(None, storage, number, PORTS["storage"], management, facts))
        return services
    for index, plan in enumerate(storage):
        node = number * 100 + index + 1
        services.append(_storage(plan["name"], [plan], node, PORTS["storage"] + 10 * index, management, facts))
    return services


def _meta(path, number, management, facts):
    config = "/etc/beegfs/beegfs-meta.conf"
    return {
        "kind": "meta",
        "unit": "beegfs-meta.service",
        "config": config,
        "settings": _settings(management, facts),
        "setup": [
            {
                "argv": [f"{SETUP}meta", "-p", f"{path}/beegfs-meta", "-s", str(number), "-m", management, "-c", config],
                "made": f"{path}/beegfs-meta/format.conf",
            }
        ],
    }


def _storage(instance, plans, node, port, management, facts):
    config = f"/etc/beegfs/{instance}.d/beegfs-storage.conf" if instance else "/etc/beegfs/beegfs-storage.conf"
    settings = _settings(management, facts)
    if instance:
        settings |= {key: str(port) for key in facts["storage_port"]}
        settings["logStdFile"] = f"/var/log/beegfs-storage-{instance}.log"
    setup = []
    for index, plan in enumerate(plans):
        directory = f"{plan['path']}/beegfs-storage"
        target = plan.get("target_id") or (node if instance else node * 100 + index + 1)
        words = [f"{SETUP}storage", "-p", directory, "-s", str(node), "-i", str(target), "-m", management, "-c", config]
        if instance:
            words += ["-S", f"storage-{node}"]
        setup.append({"argv": words, "made": f"{directory}/format.conf"})
    return {
        "kind": "storage",
        "unit": f"beegfs-storage@{instance}.service" if instance else "beegfs-storage.service",
        "config": config,
        "settings": settings,
        "setup": setup,
    }


def _settings(management, facts):
    return {"sysMgmtdHost": management, "connAuthFile": facts["auth_file"]}


# A row of `beegfs-ctl --listmirrorgroups`: group, primary, secondary.
MIRROR_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\d+)\s*$", re.M)
MIRROR_KINDS = ("meta", "storage")


def beegfs_mirror_plan(groups, services, version="7.4"):
    """The mirror groups of an inventory with the numbers of their members, and the command that makes each.

    A member is a host for metadata, and `HOST:VOLUME` for storage. `services` has the services of each host.
    """
    facts = beegfs_version(version)
    if facts["control"] != "beegfs-ctl":
        raise AnsibleFilterError(f"mirror_groups: the commands of BeeGFS {facts['version']} are not known here")
    problems, plans, members = [], [], {}
    for group in groups:
        kind, number = group.get("kind"), int(group.get("id", 0))
        if kind not in MIRROR_KINDS or not 0 < number < 65536:
            problems.append(f"{group}: kind is one of {', '.join(MIRROR_KINDS)}, and id from 1 to 65535")
            continue
        names = [str(group.get("primary")), str(group.get("secondary"))]
        numbers = [_member(kind, name, services) for name in names]
        for name, found in zip(names, numbers, strict=True):
            if not found:
                problems.append(f"{kind} group {number}: no {kind} service is {name}")
        if names[0].partition(":")[0] == names[1].partition(":")[0]:
            problems.append(f"{kind} group {number}: both members are on one host, whose failure loses both")
        for key in [f"{kind} group {number}", *(f"{kind} {name}" for name in names)]:
            if key in members:
                problems.append(f"{key} is there twice")
            members[key] = group
        words = ["beegfs-ctl", "--addmirrorgroup", f"--nodetype={kind}", f"--primary={numbers[0]}"]
        words += [f"--secondary={numbers[1]}", f"--groupid={number}"]
        plans.append({"kind": kind, "id": number, "members": numbers, "names": names, "argv": words})
    if problems:
        raise AnsibleFilterError("mirror_groups: " + "; ".join(problems))
    return plans


def _member(kind, name, services):
    """The number of a metadata node, or of the target on a volume; none where there is no such service."""
    host, _, volume = name.partition(":")
    for service in services.get(host, []):
        for setup in service["setup"] if service["kind"] == kind else []:
            words = setup["argv"]
            if kind == "meta" and not volume:
                return int(words[words.index("-s") + 1])
            if kind == "storage" and words[words.index("-p") + 1].split("/")[-2] == volume:
                return int(words[words.index("-i") + 1])
    return None


def beegfs_mirrors_missing(plans, listed):
    """Those of the planned groups that are not there. `listed` has what beegfs-ctl lists of each kind.

    A group whose members have changed their parts, as after a failure, is the same one. Another group of this number is an
    error: what it mirrors would have to be moved first.
    """
    missing, problems = [], []
    for plan in plans:
        found = {int(number): {int(one), int(other)} for number, one, other in MIRROR_ROW.findall(listed[plan["kind"]])}
        if plan["id"] not in found:
            missing.append(plan)
        elif found[plan["id"]] != set(plan["members"]):
            problems.append(f"{plan['kind']} group {plan['id']} has the members {sorted(found[plan['id']])}, not {plan['members']}")
    if problems:
        raise AnsibleFilterError("mirror_groups: " + "; ".join(problems))
    return missing


def beegfs_root_problem(plans, entry):
    """Why metadata cannot be mirrored: the node that owns the root has to be the primary of a group. Empty where it can."""
    owner = re.search(r"^(?:Current primary m|M)etadata node: .*\[ID: (\d+)\]", entry, re.M)
    if not owner:
        return f"beegfs-ctl --getentryinfo does not name the owner of the root: {entry.strip()!r}"
    number = int(owner.group(1))
    metas = [plan for plan in plans if plan["kind"] == "meta"]
    if beegfs_root_is_mirrored(entry) or not metas or any(plan["members"][0] == number for plan in metas):
        return ""
    return f"metadata node {number} owns the root, and is the primary of no group: make it that of its group"


def beegfs_root_is_mirrored(entry):
    """Whether what beegfs-ctl prints of the root names a mirror group for its metadata."""
    return re.search(r"^Metadata buddy group: \d+", entry, re.M) is not None


class FilterModule:
    """The filters of the roles for BeeGFS."""

    def filters(self):
        return {
            "beegfs_version": beegfs_version,
            "beegfs_services": beegfs_services,
            "beegfs_mirror_plan": beegfs_mirror_plan,
            "beegfs_mirrors_missing": beegfs_mirrors_missing,
            "beegfs_root_problem": beegfs_root_problem,
            "beegfs_root_is_mirrored": beegfs_root_is_mirrored,
        }
