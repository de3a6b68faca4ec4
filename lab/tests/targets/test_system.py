# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Targets by their scripts: in order, told what they need, taken down where they fail."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from terrace_lab import targets
from terrace_lab.errors import LabError, SettingsError
from terrace_lab.hosts import AgentHost
from terrace_lab.settings import Settings
from terrace_lab.targets.base import Amplification, Target
from terrace_lab.targets.system import variable

UP = """
set -e
echo "up $LAB_TARGET $LAB_MOUNT [$LAB_SERVERS] $COLOUR" >>{log}
mountpoint -q "$LAB_MOUNT" || mount -t tmpfs -o size=8m lab-test "$LAB_MOUNT"
mkdir -p "$LAB_MOUNT/lab"
"""
DOWN = """
echo down >>{log}
! mountpoint -q "$LAB_MOUNT" || umount "$LAB_MOUNT"
"""


def make(kind: str, **settings: Any) -> Target:
    return targets.create("t", Settings("targets.t", {"kind": kind, **settings}))


class Stage:
    """A place for a mount, scripts, and a log that they append to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mount = root / "mnt"
        self.mount.mkdir()
        self.log = root / "log"
        self.log.touch()

    def script(self, name: str, text: str) -> str:
        file = self.root / name
        file.write_text(text.replace("{log}", str(self.log)))
        return str(file)

    def target(self, up: str = UP, down: str = DOWN, **settings: Any) -> Target:
        return make(
            "mount",
            path=str(self.mount / "lab"),
            mount=str(self.mount),
            setup=self.script("up.sh", up),
            teardown=self.script("down.sh", down),
            **settings,
        )

    @property
    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    if os.path.ismount(stage.mount):
        subprocess.run(["umount", str(stage.mount)], check=True)


def test_a_path_is_just_there(host: AgentHost, tmp_path: Path) -> None:
    target = make("path", path=str(tmp_path), write_disk_amp=2)
    assert target.check({"here": host}) == []
    target.setup([host], {})
    assert target.path(host) == PurePosixPath(tmp_path)
    assert target.url() is None
    assert not target.is_exclusive
    assert not target.remount([host])
    assert target.amplification() == Amplification(disk_write=2)
    status = os.statvfs(tmp_path)
    usable = target.capacity([host]).usable_bytes
    assert 0 < usable <= status.f_blocks * status.f_frsize
    target.teardown([host])
    assert list(tmp_path.iterdir()) == []


def test_a_mount_comes_up_and_goes_down_as_often_as_asked(host: AgentHost, stage: Stage) -> None:
    target = stage.target(environment={"COLOUR": "blue"})
    assert target.is_exclusive
    # Two clients on one host: each script runs there once.
    target.setup([host, host], {})
    assert stage.lines == [f"up t {stage.mount} [] blue"]
    target.setup([host], {})
    assert os.path.ismount(stage.mount)
    assert target.capacity([host]).usable_bytes == 8 << 20
    target.teardown([host])
    target.teardown([host])
    assert not os.path.ismount(stage.mount)


def test_a_failed_setup_tells_what_was_said_and_takes_down(host: AgentHost, stage: Stage) -> None:
    target = stage.target(up=UP + "echo no such export >&2; exit 7\n")
    with pytest.raises(LabError) as error:
        target.setup([host], {})
    assert str(error.value) == ("cannot set up t: exit code 7 step=up.sh host=here: no such export")
    assert stage.lines[-1] == "down"
    assert not os.path.ismount(stage.mount)


def test_a_failed_setup_tells_as_well_why_it_cannot_take_down(
    host: AgentHost, stage: Stage
) -> None:
    target = stage.target(up="exit 7", down="echo busy; exit 8")
    message = "cannot set up t: exit code 7 .*; and then cannot tear down t: exit code 8 .*busy"
    with pytest.raises(LabError, match=message):
        target.setup([host], {})


def test_without_a_mount_nothing_is_measured(host: AgentHost, stage: Stage) -> None:
    target = stage.target(up="true")
    with pytest.raises(LabError, match=f"nothing is mounted mount={stage.mount} host=here"):
        target.setup([host], {})


def test_what_stays_mounted_is_told(host: AgentHost, stage: Stage) -> None:
    target = stage.target(down="true")
    target.setup([host], {})
    with pytest.raises(LabError, match=f"it is still mounted mount={stage.mount} host=here"):
        target.teardown([host])


def test_a_step_that_hangs_is_ended(host: AgentHost, stage: Stage) -> None:
    target = stage.target(up="sleep 300", timeout=0.2)
    with pytest.raises(LabError, match="cannot set up t: took too long step=up.sh"):
        target.setup([host], {})


def test_mounting_again_empties_and_needs_a_way(host: AgentHost, stage: Stage) -> None:
    again = stage.script("again.sh", 'umount "$LAB_MOUNT"; echo again >>{log}')
    target = stage.target(remount=again)
    target.setup([host], {})
    with pytest.raises(LabError, match="nothing is mounted"):
        target.remount([host])
    assert stage.lines[-1] == "again"
    assert not stage.target().remount([host])


def test_servers_come_up_first_and_go_down_last(host: AgentHost, stage: Stage) -> None:
    server = AgentHost("s1", address="10.0.0.7")
    server.connect()
    target = stage.target(
        servers=["s1"],
        server_setup=["sh", "-c", f"echo export >>{stage.log}"],
        server_teardown=["sh", "-c", f"echo unexport >>{stage.log}"],
    )
    with pytest.raises(LabError, match="not among the checked hosts servers=s1"):
        target.setup([host], {})
    stage.log.write_text("")
    assert target.check({"c1": host, "s1": server}) == []
    target.setup([host], {})
    target.teardown([host])
    server.close()
    assert stage.lines == ["export", f"up t {stage.mount} [10.0.0.7] ", "down", "unexport"]
    (problem,) = target.check({"c1": host})
    assert problem.text == "there is no host 's1' in this experiment"


def test_a_command_is_no_mount_unless_it_says_so(host: AgentHost, tmp_path: Path) -> None:
    path = tmp_path / "up"
    up, down = ["mkdir", "-p", str(path)], ["rm", "-rf", str(path)]
    target = make("command", path=str(path), setup=up, teardown=down)
    target.setup([host], {})
    assert path.exists()
    target.teardown([host])
    assert not path.exists()


def test_a_mount_may_be_that_of_the_directory_above(host: AgentHost, stage: Stage) -> None:
    up = ["mount", "-t", "tmpfs", "lab-test", str(stage.mount)]
    down = ["umount", str(stage.mount)]
    (stage.mount / "lab").mkdir()
    target = make("mount", path=str(stage.mount / "lab"), setup=up, teardown=down)
    with pytest.raises(LabError, match=f"there is no directory path={stage.mount}/lab host=here"):
        target.setup([host], {})


def test_a_store_has_an_address_and_perhaps_a_mount(host: AgentHost) -> None:
    target = make("store", endpoint="terrace://s1:7420", usable_bytes="4TB", raw_bytes="6TB")
    assert target.url() == "terrace://s1:7420"
    assert target.path(host) is None
    assert target.capacity([host]).usable_bytes == 4 * 10**12
    assert target.capacity([host]).raw_bytes == 6 * 10**12
    bare = make("store", endpoint="terrace://s1:7420")
    with pytest.raises(LabError, match="cannot tell the capacity of t: it has no path"):
        bare.capacity([host])
    mounted = make("store", endpoint="terrace://s1", path="/mnt/t/lab")
    with pytest.raises(LabError, match="cannot set up t: nothing is mounted mount=/mnt/t/lab"):
        mounted.setup([host], {})


def test_a_capacity_that_cannot_be_told_is_an_error(host: AgentHost) -> None:
    target = make("path", path="/no/such/lab")
    with pytest.raises(
        LabError, match="cannot tell the capacity of t: .*No such file.* path=/no/such/lab"
    ):
        target.capacity([host])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "disk"}, "targets.t.kind: 'disk' is none of path, mount, store, command, tmpfs"),
        ({"kind": "path"}, "targets.t.path: is missing"),
        ({"kind": "path", "path": "lab"}, "targets.t.path: must be absolute, not 'lab'"),
        ({"kind": "path", "path": "/a", "setup": "x"}, "targets.t.setup: there is no such setting"),
        (
            {"kind": "mount", "path": "/a/b", "mount": "/c"},
            "targets.t.mount: '/c' is not above the path '/a/b'",
        ),
        (
            {"kind": "mount", "path": "/a/b", "setup": "/no/up.sh"},
            "targets.t.setup: cannot read the script: No such file or directory /no/up.sh",
        ),
        (
            {"kind": "command", "path": "/a/b", "setup": ["true"]},
            "targets.t.teardown: is missing beside setup",
        ),
        (
            {"kind": "command", "path": "/a/b", "setup": []},
            r"targets.t.setup: must be a script or a list of words, not \[\]",
        ),
        (
            {"kind": "store", "endpoint": "s1:7420"},
            "targets.t.endpoint: 's1:7420' is no address",
        ),
    ],
)
def test_wrong_settings_say_where(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        targets.create("t", Settings("targets.t", settings))


def test_variables_are_capitals() -> None:
    assert variable("performance.write-behind") == "LAB_PERFORMANCE_WRITE_BEHIND"
