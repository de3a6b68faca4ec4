# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the installer of a distribution needs to know of a bare host, checked before a file for it is written."""

from __future__ import annotations

import ipaddress
import re

from ansible.errors import AnsibleFilterError

# Of each system: the installer, its files below the root of the boot server, and where packages come from.
SYSTEMS = {
    "debian12": {"kind": "preseed", "kernel": "linux", "initrd": "initrd.gz", "mirror": "http://deb.debian.org/debian"},
    "almalinux8": {"kind": "ks", "kernel": "vmlinuz", "initrd": "initrd.img", "mirror": "https://repo.almalinux.org/almalinux/8"},
    "almalinux9": {"kind": "ks", "kernel": "vmlinuz", "initrd": "initrd.img", "mirror": "https://repo.almalinux.org/almalinux/9"},
}
# What cannot end a word or a line of the files.
WORD = r"[A-Za-z0-9_.:/@%+=,-]+"
KEY = rf"(ssh-[a-z0-9]+|ecdsa-[a-z0-9-]+|sk-[a-z0-9@.-]+) [A-Za-z0-9+/=]+( {WORD})?"


def install_plan(host, variables):
    """Checks the variables `installer_…` of a host, without their prefix; returns them with what follows from them.

    The plan has `is_erased` only where `erase` is the name of the host: without it, a disk that holds anything is refused.
    """
    problems = []
    system = SYSTEMS.get(variables.get("system"))
    if system is None:
        problems.append(f"system {variables.get('system')!r} is none of {', '.join(SYSTEMS)}")
        system = {"mirror": ""}
    disk, key = variables.get("disk") or "", variables.get("ssh_key") or ""
    if not re.fullmatch(r"/dev/disk/by-(id|path)/[A-Za-z0-9_.:+-]+", disk):
        problems.append(f"disk {disk!r} is no name below /dev/disk/by-id or by-path, which stays the same")
    if not re.fullmatch(KEY, key):
        problems.append("ssh_key is no public key of ssh on one line")
    mac = (variables.get("mac") or "").lower().replace("-", ":")
    if not re.fullmatch(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", mac):
        problems.append(f"mac {variables.get('mac')!r} is no address of a port")
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", host):
        problems.append("its name is no name of a host: lower-case letters, digits and hyphens")
    erase = variables.get("erase") or ""
    if erase not in ("", host):
        problems.append(f"erase is {erase!r}, not the name of the host")
    mirror, url = (variables.get("mirror") or system["mirror"]).rstrip("/"), (variables.get("url") or "").rstrip("/")
    for name, text in (("mirror", mirror), ("url", url)):
        if not re.fullmatch(rf"https?://{WORD}", text):
            problems.append(f"{name} {text!r} is no URL")
    plan = {"host": host, "disk": disk, "ssh_key": key, "mac": mac, "mirror": mirror, "url": url, "is_erased": erase == host}
    plan |= {key: value for key, value in system.items() if key != "mirror"}
    plan |= {
        "system": variables.get("system"),
        "timezone": variables.get("timezone") or "UTC",
        "ports": variables.get("ports") or [],
    }
    plan["dns"] = list(variables.get("dns") or [])
    plan["address"] = plan["netmask"] = plan["gateway"] = ""
    if variables.get("address"):
        try:
            interface = ipaddress.IPv4Interface(variables["address"])
            gateway = ipaddress.IPv4Address(variables.get("gateway") or "")
            plan |= {"address": str(interface.ip), "netmask": str(interface.netmask), "gateway": str(gateway)}
            if "/" not in variables["address"] or gateway not in interface.network:
                problems.append(f"gateway {gateway} is not in the network of address {variables['address']}")
        except ValueError as error:
            problems.append(f"address is ADDRESS/PREFIX of IPv4, and gateway an address: {error}")
    if problems:
        raise AnsibleFilterError(f"{host}: installer_*: " + "; ".join(problems))
    return plan


class FilterModule:
    """The filters of this file."""

    def filters(self):
        return {"install_plan": install_plan}
