# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What an inventory asks of BeeGFS, as commands, configuration files and units: pure functions with golden files."""

from __future__ import annotations

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


class FilterModule:
    """The filters of the roles for BeeGFS."""

    def filters(self):
        return {"beegfs_version": beegfs_version, "beegfs_services": beegfs_services}
