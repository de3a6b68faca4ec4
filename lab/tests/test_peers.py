# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What `benches/peers` makes of the rows that it measured."""

import argparse
import os
import runpy
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PEERS = runpy.run_path(str(Path(__file__).resolve().parents[2] / "benches" / "peers"))
judge: Callable[[dict[str, Any], int], list[dict[str, str]]] = PEERS["judge"]

GROUPS = 20

# Serves nothing, and has a place in its command line as a client has.
CLIENT = [sys.executable, "-c", "import signal; print(flush=True); signal.pause()"]

Bounds = dict[str, tuple[float, float]]


def started(command: list[str], **more: Any) -> subprocess.Popen[bytes]:
    """A process that runs: one that has just been started has no command line for a moment."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, **more)
    assert process.stdout is not None
    with process.stdout as said:
        assert said.readline() == b"\n"
    return process


def stage_in(directory: Path, **more: Any) -> Any:
    """A stage with a directory of its own below this one."""
    usual = {"scripts": directory, "terrace": directory / "terrace", "uring": True, "stage": None}
    return PEERS["Stage"](argparse.Namespace(directory=directory, **{**usual, **more}))


def judged(row: str, bounds: Bounds, groups: int = GROUPS, **cpu_us: float) -> list[str]:
    """The verdicts on a row, from 95 % bounds of how many times the others we are."""
    places: list[dict[str, Any]] = [{"name": "terrace", "first_times": None}]
    for name, (low, high) in bounds.items():
        places.append(
            {"name": name.replace("_", "-"), "first_times": {"low95": low, "high95": high}}
        )
    for place in places:
        place["daemon_cpu_us_per_op"] = cpu_us.get(place["name"], 10.0)
    bars = judge({"row": row, "places": places}, groups)
    return [bar["verdict"] for bar in bars]


@pytest.mark.parametrize(
    ("moosefs", "ceph", "passes_on", "verdict"),
    [
        # Either of both limits is enough, with all of its bound.
        ((5.0, 6.0), (7.0, 8.0), (0.1, 0.2), "met"),
        ((1.0, 2.0), (1.0, 2.0), (0.6, 0.7), "met"),
        # Every peer counts, also the one that does best.
        ((4.0, 4.9), (7.0, 8.0), (0.1, 0.2), "missed"),
        ((4.0, 5.0), (7.0, 8.0), (0.1, 0.2), "not resolved"),
        ((4.0, 5.0), (4.0, 4.9), (0.1, 0.2), "missed"),
        ((1.0, 2.0), (1.0, 2.0), (0.5, 0.6), "not resolved"),
        ((1.0, 2.0), (1.0, 2.0), (0.5, 0.59), "missed"),
    ],
)
def test_names_reach_a_multiple_of_the_peers_or_a_part_of_the_daemon_that_passes_on(
    moosefs: tuple[float, float],
    ceph: tuple[float, float],
    passes_on: tuple[float, float],
    verdict: str,
) -> None:
    bounds = {"moosefs": moosefs, "ceph": ceph, "passes_on": passes_on, "native": (0.0, 0.1)}
    assert judged("stat", bounds)[0] == verdict


def test_a_shared_file_is_held_against_the_directory_beside_it_and_cpu_is_not_asked_for() -> None:
    bounds: Bounds = {"ceph": (1.0, 1.5), "passes_on": (9.0, 9.0), "native": (0.9, 1.0)}
    assert judged("shared-seq-read-1m", bounds) == ["met"]
    bounds["native"] = (0.8, 0.89)
    assert judged("shared-seq-read-1m", bounds) == ["missed"]
    bounds["ceph"] = (2.0, 2.1)
    assert judged("shared-seq-read-1m", bounds) == ["met"]


@pytest.mark.parametrize(("ours", "verdict"), [(4.0, "met"), (4.1, "missed")])
def test_cpu_is_a_fifth_of_that_of_the_peer_with_the_least(ours: float, verdict: str) -> None:
    bounds = {"moosefs": (9.0, 9.0), "ceph": (9.0, 9.0), "passes_on": (1.0, 1.0)}
    assert judged("stat", bounds, terrace=ours, moosefs=20.0, ceph=90.0) == ["met", verdict]


def test_without_peers_the_daemon_that_passes_on_is_left() -> None:
    assert judged("stat", {"passes_on": (0.6, 0.7)}) == ["met"]
    assert judged("stat", {"passes_on": (0.5, 0.59)}) == ["missed"]


def test_few_groups_support_no_verdict() -> None:
    bounds = {"ceph": (9.0, 9.0), "passes_on": (1.0, 1.0)}
    assert judged("stat", bounds, GROUPS - 1, terrace=1.0) == ["not resolved", "not resolved"]
    assert judged("stat", bounds, GROUPS, terrace=1.0) == ["met", "met"]


@pytest.mark.parametrize("before", ["N", "Y"])
def test_the_kernel_offers_io_uring_as_long_as_it_is_measured(
    before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offers = tmp_path / "enable_uring"
    offers.write_text(f"{before}\n")
    monkeypatch.setitem(judge.__globals__, "URING", offers)
    stage = stage_in(tmp_path)
    stage.offer_uring()
    assert offers.read_text().strip() == "Y"
    stage.tear_down()
    assert offers.read_text().strip() == before
    assert list(tmp_path.iterdir()) == [offers]


class World:
    """A peer that is mounted at a directory, where `umount` and its script are no more than they
    have to be."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.home = root, root / "ceph"
        self.place = self.home / "mnt"
        self.place.mkdir(parents=True)
        self.clients = [self.client(True)]
        self.stage = stage_in(root, stage=root)
        self.did: list[str] = []
        monkeypatch.setattr(self.stage, "mounts", lambda: [f"{root}/other/mnt", str(self.place)])
        monkeypatch.setattr(self.stage, "bring_up", self.bring_up)
        monkeypatch.setitem(judge.__globals__, "subprocess", self)

    def client(self, has_own_session: bool) -> subprocess.Popen[bytes]:
        return started([*CLIENT, str(self.place)], start_new_session=has_own_session)

    def run(self, command: list[str], check: bool) -> None:
        assert (command, check) == (["umount", str(self.place)], True)
        self.did.append("umount")
        self.clients[-1].terminate()

    def bring_up(self, name: str, seconds: float) -> None:
        assert seconds < 300
        assert self.clients[-1].pid not in PEERS["clients_of"](str(self.place))
        self.did.append(name)
        self.clients.append(self.client(True))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(tmp_path, monkeypatch)
    yield world
    monkeypatch.undo()
    for client in world.clients:
        client.kill()
        client.wait()


def test_a_side_gets_a_new_client_once_the_one_before_has_ended(world: World) -> None:
    server = started(CLIENT, env={"PEERS": str(world.home)}, start_new_session=True)
    # Of this session: as `bench files`, which has all the directories in its command line.
    measures = world.client(False)
    try:
        pids = world.stage.mount_again("ceph")
    finally:
        for process in (server, measures):
            process.kill()
            process.wait()
    assert world.did == ["umount", "ceph"]
    assert sorted(pids) == sorted([server.pid, world.clients[1].pid])


def test_who_is_there_for_a_moment_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = [True, True]

    def run(command: list[str], check: bool) -> None:
        if busy:
            busy.pop()
            raise subprocess.CalledProcessError(32, command)
        World.run(world, command, check)

    monkeypatch.setattr(world, "run", run)
    monkeypatch.setattr(world, "CalledProcessError", subprocess.CalledProcessError, raising=False)
    world.stage.mount_again("ceph")
    assert world.did == ["umount", "ceph"]
    busy.append(True)
    monkeypatch.setitem(judge.__globals__, "END_SECONDS_MAX", -1)
    with pytest.raises(subprocess.CalledProcessError):
        world.stage.mount_again("ceph")


def test_who_mounts_again_is_ended_before_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stage_in(tmp_path)
    words = [*CLIENT, "--again", "ceph", "--stage", f"{stage.root}/", "--uring"]
    command = started(words, start_new_session=True)
    elsewhere = [*CLIENT, "--stage", f"{tmp_path}/", "--uring"]
    other = started(elsewhere, start_new_session=True)
    ended: list[bool] = []

    def script(*_: object) -> None:
        ended.append(command.poll() is not None)

    stage.peers = ["ceph"]
    monkeypatch.setattr(stage, "script", script)
    try:
        stage.tear_down()
        assert ended == [True]
        assert other.poll() is None
    finally:
        for process in (command, other):
            process.kill()
            process.wait()


def test_a_client_that_goes_on_is_told_of(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(judge.__globals__, "CLIENT_SECONDS_MAX", 0)
    monkeypatch.setattr(world, "run", lambda *_, **__: None)
    with pytest.raises(RuntimeError, match="a client of ceph does not end"):
        world.stage.mount_again("ceph")
    assert world.did == []


def test_what_is_not_mounted_is_told_of(world: World) -> None:
    with pytest.raises(RuntimeError, match="moosefs is not mounted"):
        world.stage.mount_again("moosefs")


def test_terrace_is_mounted_again_as_it_was(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    home = world.root / "terrace"
    home.mkdir()
    (home / "url").write_text("terrace://host:1/?secret=s")
    monkeypatch.setattr(world, "place", home / "mount")
    monkeypatch.setattr(world.stage, "mounts", lambda: [f"{home}/mount"])
    started: list[str] = []

    def start(*words: object) -> tuple[int, str]:
        started.extend(map(str, words))
        return 7, "ready"

    monkeypatch.setattr(world.stage, "start", start)
    assert world.stage.mount_again("terrace") == []
    how = ["mount", "--json", "--foreground", "--uring", "on"]
    assert world.did == ["umount"]
    assert started == [*how, "terrace://host:1/?secret=s", f"{home}/mount"]


def test_peers_and_terrace_forget_and_the_others_have_nothing_to_forget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "terrace"
    program.write_text(
        "#!/usr/bin/env python3\n"
        "import json, sys\n"
        "print(json.dumps({'rows': [{'given': sys.argv[1:]}]}))\n"
    )
    program.chmod(0o755)
    stage = stage_in(tmp_path)
    names = ["terrace", "passes-on", "native", "moosefs", "gluster", "ceph"]
    stage.sides = [(name, tmp_path / name, []) for name in names]
    how = argparse.Namespace(groups=1, processes=1, size="1MiB", row=[])
    [row] = stage.measure(how)
    given = row["given"]
    options = [given[at + 1] for at, word in enumerate(given) if word == "--forget"]
    forget = dict(option.split("=", 1) for option in options)
    assert list(forget) == ["terrace", "moosefs", "gluster", "ceph"]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setitem(judge.__globals__, "URING", program)
    for name, command in forget.items():
        run, python, script, *words = shlex.split(command)
        assert (run, python) == ("exec", sys.executable)
        monkeypatch.setattr(sys, "argv", [script, *words])
        arguments = PEERS["parse"]()
        again = PEERS["Stage"](arguments)
        assert arguments.again == name
        for what in ("root", "scripts", "program", "uring"):
            assert getattr(again, what) == getattr(stage, what)


@pytest.fixture
def again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The command that `bench files` runs, for `ceph`."""
    arguments = argparse.Namespace(
        scripts=tmp_path, terrace=tmp_path, uring=False, stage=tmp_path, again="ceph"
    )
    monkeypatch.setitem(judge.__globals__, "parse", lambda: arguments)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    main: Callable[[], int] = PEERS["main"]
    return main


def test_the_command_says_which_processes_there_are(
    again: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(PEERS["Stage"], "mount_again", lambda _, name: [len(name), 5])
    assert again() == 0
    assert capsys.readouterr().out == "4,5\n"


def test_the_command_says_why_it_fails(
    again: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert again() == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "peers: RuntimeError: ceph is not mounted\n")


def test_the_table_says_which_were_cold(capsys: pytest.CaptureFixture[str]) -> None:
    def side(name: str, forgot: bool) -> dict[str, Any]:
        other = {"value": 1.0, "first_times": None, "daemon_cpu_us_per_op": None}
        return {"name": name, "daemons_forgot": forgot, **other}

    places = [side("terrace", True), side("native", False), side("ceph", True)]
    row = {"row": "shared-seq-read-1m", "unit": "MB/s", "places": places, "bars": []}
    warm = {**row, "row": "stat", "places": [side("terrace", False)]}
    PEERS["show"]([warm, row], "/dev/fuse")
    told = [line for line in capsys.readouterr().out.splitlines() if "cold" in line]
    assert told == ["  cold, as mounted again before each block: terrace, ceph"]
