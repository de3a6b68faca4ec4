# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Presets: those of this machine for real, and of all that options and scripts fit each other."""

import os
import re
import shlex
import socket
import subprocess
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from clients import built

from terrace_lab import targets
from terrace_lab.errors import LabError, SettingsError
from terrace_lab.hosts import AgentHost
from terrace_lab.settings import Settings
from terrace_lab.targets.base import Amplification, Target
from terrace_lab.targets.presets import PRESETS, Preset, from_preset
from terrace_lab.targets.system import System, variable

SCRIPTS = resources.files("terrace_lab.targets").joinpath("scripts")
# What the lab tells all scripts.
ALWAYS = {"LAB_TARGET", "LAB_STATE", "LAB_MOUNT", "LAB_REMOUNT", "LAB_SERVER", "LAB_SERVERS"}


def make(kind: str, **settings: Any) -> Target:
    return targets.create("t", Settings("targets.t", {"kind": kind, **settings}))


def read(name: str) -> str:
    return SCRIPTS.joinpath(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["tmpfs", "ext4", "xfs"])
def test_a_local_file_system_leaves_nothing_behind(
    host: AgentHost, tmp_path: Path, kind: str
) -> None:
    # The device is for a moment on a file system of its own, so that it is gone with it.
    target = make(kind, state=str(tmp_path / "states" / "t"), size="310MiB")
    assert target.check({"here": host}) == []
    target.setup([host], {})
    try:
        path = target.path(host)
        assert path is not None
        file = Path(path) / "file"
        file.write_text("kept")
        target.setup([host], {})
        assert target.remount([host]) == (kind != "tmpfs")
        assert file.read_text() == "kept"
        capacity = target.capacity([host])
        assert capacity.raw_bytes == 310 << 20
        assert capacity.raw_bytes * 0.7 < capacity.usable_bytes <= capacity.raw_bytes
    finally:
        target.teardown([host])
    target.teardown([host])
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in subprocess.check_output(["losetup", "-a"], text=True)


def test_our_own_store_is_mounted_over_the_network_and_goes(
    host: AgentHost, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    state = tmp_path / "t"
    target = make("terrace", state=str(state), program=built("terrace"), port=port)
    target.setup([host], {"policy": "heat", "low": 0.5})
    try:
        file = state / "mnt" / "file"
        file.write_text("kept")
        assert target.remount([host])
        assert file.read_text() == "kept"
        argv = [built("terrace"), "--store", str(target.url()), "policy", "show"]
        shown = subprocess.check_output(argv, text=True)
        assert re.search(r"^ *low +0\.5 ", shown, re.MULTILINE)
    finally:
        target.teardown([host])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        pass


def test_somebody_elses_directory_is_no_state(host: AgentHost, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    target = make("tmpfs", state=str(tmp_path))
    with pytest.raises(LabError, match=f"is not empty and not of the lab: {tmp_path}"):
        target.setup([host], {})
    assert (tmp_path / "precious").exists()


def test_a_mount_in_use_stays_and_is_told(host: AgentHost, tmp_path: Path) -> None:
    target = make("tmpfs", state=str(tmp_path / "t"), timeout=0.5)
    target.setup([host], {})
    path = tmp_path / "t" / "mnt"
    (path / "file").write_text("x")
    with open(path / "file"), pytest.raises(LabError, match="cannot tear down t: took too long"):
        target.teardown([host])
    assert (path / "file").exists()
    target.teardown([host])
    assert not (tmp_path / "t").exists()


def test_a_command_that_mounts_nothing_says_why(host: AgentHost, tmp_path: Path) -> None:
    def client(command: str) -> System:
        preset = Preset("client", {}, options={"address": ""}, fixed={"LAB_COMMAND": command})
        values = {"state": str(tmp_path / "t"), "address": "10.0.0.7"}
        return System(from_preset("t", preset, Settings("targets.t", values)))

    failing = client('echo "no route to $LAB_ADDRESS" >&2; exit 1')
    with pytest.raises(LabError, match=r"no route to 10.0.0.7\nthe mount command failed: echo"):
        failing.setup([host], {})
    assert list(tmp_path.iterdir()) == []
    good = client('mount -t tmpfs none "$LAB_MOUNT"')
    good.setup([host], {})
    assert os.path.ismount(tmp_path / "t" / "mnt")
    good.teardown([host])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", sorted(PRESETS))
def test_scripts_and_options_fit_each_other(kind: str) -> None:
    preset = PRESETS[kind]
    up = read(f"{preset.script}-up.sh") + " ".join(preset.fixed.values())
    subprocess.run(["bash", "-n"], input=up, text=True, check=True)
    subprocess.run(["bash", "-n"], input=read(f"{preset.script}-down.sh"), text=True, check=True)
    told = {variable(name) for name in (*preset.options, *(one.name for one in preset.tunables))}
    used = set(re.findall(r"LAB_[A-Z0-9_]+", up)) - ALWAYS - {"LAB_NETWORK", "LAB_OWNED"}
    assert used == told | set(preset.fixed) if preset.fixed else used == told


@pytest.mark.parametrize("kind", sorted(PRESETS))
def test_what_scripts_need_is_looked_for_before_a_run(kind: str) -> None:
    preset = PRESETS[kind]
    up = read(f"{preset.script}-up.sh")
    for name, value in preset.fixed.items():
        up = up.replace(f"${name}", value)
    # Those that need more where an option is set say so further in.
    first, *own = [
        set(shlex.split(line)) for line in re.findall(r"^need (.*)", up, re.MULTILINE)
    ] or [set(preset.programs)]
    assert set(preset.programs) == first
    assert set(preset.own_programs) == set().union(*own)


def test_programs_of_servers_are_needed_where_they_are_started(host: AgentHost) -> None:
    preset = replace(PRESETS["nfs"], programs={}, own_programs={"no-server": "no-package"})

    def problems(**settings: Any) -> list[str]:
        target = System(from_preset("t", preset, Settings("targets.t", settings)))
        return [one.text for one in target.check({"here": host})]

    assert problems() == ["no-server is not there; Debian package no-package"]
    assert problems(address="10.0.0.1") == []


@pytest.mark.parametrize("kind", sorted(PRESETS))
def test_defaults_are_among_the_choices(kind: str) -> None:
    preset = PRESETS[kind]
    settings = {"address": "a"} if preset.needs_address else {}
    target = make(kind, **settings)
    for one in target.tunables():
        assert one.default in one.values
    assert target.amplification().disk_write >= 1
    assert target.is_exclusive


def test_parameters_change_the_amplification_and_are_checked(host: AgentHost) -> None:
    target = make("moosefs", goal=2)
    assert target.amplification() == Amplification(2, 2)
    assert [one.default for one in target.tunables() if one.name == "goal"] == [2]
    with pytest.raises(LabError, match="cannot set up t: 3 is none of 1, 2 parameter=goal"):
        target.setup([host], {"goal": 3})
    with pytest.raises(LabError, match="no such parameter, only goal, .* parameter=goals"):
        target.setup([host], {"goals": 1})


def test_parity_costs_less_than_copies() -> None:
    assert make("glusterfs", layout="replicate").amplification() == Amplification(2, 2)
    disperse = make("glusterfs", layout="disperse", bricks=3)
    assert disperse.amplification() == Amplification(1.5, 1.5)
    assert make("glusterfs").amplification() == Amplification()


def test_a_store_tells_its_address() -> None:
    one = make("terrace", state="/s", server_count=0)
    assert one.url() == "/s/store-1"
    two = make("terrace", state="/s", server_count=2, port=9000)
    assert two.url() == "terrace://127.0.0.1:9000,127.0.0.1:9001/?secret=/s/secret"


def test_what_is_missing_on_a_client_is_a_problem(host: AgentHost) -> None:
    problems = make("julea", address="julea.conf").check({"here": host})
    assert [one.text for one in problems] == ["julea-fuse is not there; not in Debian"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "orangefs"}, "targets.t.address: is missing: this preset mounts"),
        ({"kind": "glusterfs", "layout": "raid"}, "targets.t.layout: 'raid' is none of distribute"),
        ({"kind": "moosefs", "goal": 9}, "targets.t.goal: 9 is none of 1, 2"),
        ({"kind": "tmpfs", "state": "x"}, "targets.t.state: must be absolute, not 'x'"),
        ({"kind": "tmpfs", "directory": "../x"}, "targets.t.directory: must be below the root"),
        ({"kind": "tmpfs", "colour": 1}, "targets.t.colour: there is no such setting here"),
        ({"kind": "ext4", "size": "big"}, "targets.t.size: 'big' is not bytes"),
    ],
)
def test_wrong_settings_say_where(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        targets.create("t", Settings("targets.t", settings))
