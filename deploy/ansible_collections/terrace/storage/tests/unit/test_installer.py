# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Files for installers: golden ones, read by the validators of both systems, and disks that they must not take.

`UPDATE_GOLDEN=1` writes the files anew; the difference is then looked at before it is committed.
"""

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import jinja2
import pytest
from ansible.errors import AnsibleFilterError
from pykickstart.parser import KickstartParser
from pykickstart.version import makeVersion

COLLECTION = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).resolve().parent / "golden"
SPEC = importlib.util.spec_from_file_location("installer", COLLECTION / "plugins/filter/installer.py")
installer = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(installer)

DISK = "/dev/disk/by-id/nvme-system"
BASE = {
    "disk": DISK,
    "mac": "52-54-00-AB-CD-01",
    "ssh_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey admin@controller",
    "url": "http://192.0.2.1/installer/",
    "ports": [7420],
}
STATIC = {"address": "192.0.2.11/24", "gateway": "192.0.2.254", "dns": ["192.0.2.53", "192.0.2.54"]}
HOSTS = {
    "debian12-static": {"system": "debian12", **STATIC},
    "debian12-erase": {"system": "debian12", "erase": "nvme1", "mirror": "https://mirror.example.org/os/debian"},
    "almalinux8": {"system": "almalinux8"},
    "almalinux9-static": {"system": "almalinux9", **STATIC},
    "almalinux9-erase": {"system": "almalinux9", "erase": "nvme1"},
}


def render(name, template=None):
    plan = installer.install_plan("nvme1", BASE | HOSTS[name])
    loader = jinja2.FileSystemLoader(COLLECTION / "roles/installer/templates")
    # As Ansible has it.
    environment = jinja2.Environment(loader=loader, trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
    return environment.get_template(template or f"{plan['kind']}.j2").render(installer_plan=plan)


@pytest.mark.parametrize("name", HOSTS)
def test_files_are_as_in_the_golden_file(name):
    found = f"{render(name)}==> grub.cfg\n{render(name, 'grub.cfg.j2')}"
    path = GOLDEN / f"installer-{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in HOSTS if name.startswith("almalinux")])
def test_kickstart_is_valid_for_its_release(name):
    parser = KickstartParser(makeVersion(f"RHEL{name.removeprefix('almalinux')[0]}"))
    parser.readKickstartFromString(render(name))
    assert parser.handler.ignoredisk.onlyuse == [DISK]
    assert parser.handler.clearpart.drives == [DISK]
    assert parser.handler.rootpw.lock
    assert parser.handler.network.network[0].hostname == "nvme1"
    assert [script.errorOnFail for script in parser.handler.scripts] == ([] if "erase" in name else [True])


@pytest.mark.parametrize("name", [name for name in HOSTS if name.startswith("debian")])
def test_preseed_is_valid(name, tmp_path):
    file = tmp_path / "preseed"
    file.write_text(render(name), encoding="utf-8")
    ran = subprocess.run(["debconf-set-selections", "--checkonly", file], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    owners = {line.split()[0] for line in render(name).splitlines() if not line.startswith("#")}
    assert owners == {"d-i", "tasksel", "popularity-contest"}


def early_command(text, disk, size, tmp_path):
    """Runs what Debian's installer runs before it partitions, with the programs of that which are no part of a host."""
    (command,) = re.findall(r"^d-i partman/early_command string (.*)$", text, re.M)
    programs = {
        "readlink": f"echo {disk}",
        "cat": f"{f'echo {size}' if size else 'exit 1'}",
        "debconf-set": 'echo "$@"',
        # Where the installer would wait for ever.
        "sleep": "kill $PPID",
    }
    for name, body in programs.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        program.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = command.replace("/dev/console", "/dev/null")
    return subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(("place", "is_taken"), [(None, True), (512, False), ((4 << 20) - 512, False)])
def test_preseed_takes_only_an_empty_disk(place, is_taken, tmp_path):
    disk = tmp_path / "disk"
    with disk.open("wb") as sparse:
        sparse.truncate(4 << 20)
        if place is not None:
            sparse.seek(place)
            sparse.write(b"EFI PART")
    ran = early_command(render("debian12-static"), disk, (4 << 20) // 512, tmp_path)
    assert ran.stdout.splitlines() == ([f"partman-auto/disk {disk}", f"grub-installer/bootdev {disk}"] if is_taken else [])
    assert (ran.returncode == 0) is is_taken
    erased = early_command(render("debian12-erase"), disk, (4 << 20) // 512, tmp_path)
    assert erased.returncode == 0


@pytest.mark.parametrize("name", ["debian12-static", "debian12-erase"])
def test_preseed_takes_no_other_disk_in_place_of_a_missing_one(name, tmp_path):
    ran = early_command(render(name), DISK, None, tmp_path)
    assert ran.returncode != 0
    assert ran.stdout == ""


@pytest.mark.parametrize(("content", "is_taken"), [(b"", True), (b"LUKS\xba\xbe\x00\x01", False)])
def test_kickstart_takes_only_an_empty_disk(content, is_taken, tmp_path):
    disk = tmp_path / "disk"
    with disk.open("wb") as sparse:
        sparse.write(content)
        sparse.truncate(4 << 20)
    (script,) = re.findall(r"^%pre --erroronfail\n(.*?)^%end", render("almalinux8"), re.M | re.S)
    environment = os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    ran = subprocess.run(["sh", "-c", script.replace(DISK, str(disk))], env=environment, capture_output=True, text=True)
    assert (ran.returncode == 0) is is_taken, ran.stderr
    assert ("set installer_erase to nvme1" in ran.stdout) is not is_taken


@pytest.mark.parametrize(("name", "default"), [("almalinux9-static", 0), ("almalinux9-erase", 1), ("debian12-erase", 1)])
def test_a_disk_is_not_erased_at_each_boot(name, default):
    text = render(name, "grub.cfg.j2")
    assert f"\nset default={default}\n" in text
    assert len(re.findall(r"^menuentry '(Install|Boot from the disk)", text, re.M)) == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"system": "fedora"}, "is none of debian12"),
        ({"disk": "/dev/sda"}, "by-id or by-path"),
        ({"disk": "/dev/disk/by-id/a; reboot"}, "by-id or by-path"),
        ({"mac": "52:54"}, "no address of a port"),
        ({"ssh_key": "ssh-rsa AAAA' ; reboot"}, "no public key"),
        ({"ssh_key": ""}, "no public key"),
        ({"erase": "nvme2"}, "not the name of the host"),
        ({"url": "tftp://x"}, "is no URL"),
        ({"address": "192.0.2.11/24", "gateway": "198.51.100.1"}, "not in the network"),
        ({"address": "192.0.2.11/24"}, "gateway an address"),
    ],
)
def test_wrong_variables_are_refused(change, reason):
    with pytest.raises(AnsibleFilterError, match=reason):
        installer.install_plan("nvme1", BASE | {"system": "debian12"} | change)
