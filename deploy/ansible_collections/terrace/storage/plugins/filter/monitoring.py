# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What Prometheus scrapes, as targets of its file_sd_config."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError

NODE_PORT = 9100
KINDS = ("servers", "mounts", "nodes")


def scrape_targets(hosts, kind, server_port, mount_port):
    """Returns the targets of one of KINDS.

    Each host has `name`, `address`, the `ports` of its servers, and whether it `mounts`. The metrics of the server with the
    lowest port are at `server_port`; those of others are as far from it as their ports.
    """
    if kind not in KINDS:
        raise AnsibleFilterError(f"scrape_targets: {kind!r} is none of {', '.join(KINDS)}")
    targets = []
    for host in hosts:
        if kind == "servers":
            ports = [server_port + port - min(host["ports"]) for port in host["ports"]]
        elif kind == "nodes":
            ports = [NODE_PORT]
        else:
            ports = [mount_port] if host["mounts"] else []
        address = f"[{host['address']}]" if ":" in host["address"] else host["address"]
        targets += [{"targets": [f"{address}:{port}"], "labels": {"host": host["name"]}} for port in ports]
    return targets


class FilterModule:
    """The filters of this file."""

    def filters(self):
        return {"scrape_targets": scrape_targets}
