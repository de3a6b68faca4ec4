# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The process of a meter outlives who started it, and never ends without saying so."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from meters.record import events, frames, recording, samples, wait_for
from terrace_lab.errors import LabError
from terrace_lab.meters.process import Running, find_process, start_process, stop_process
from terrace_lab.meters.segments import Tail, directory, segments

MODEL: dict[str, Any] = {"kind": "model", "period": 0.05}


def test_it_records_until_it_is_asked_to_end(tmp_path: Path) -> None:
    hosts = {"n1": {"ssh": None, "address": None, "python": "python3", "nic": "ens1"}}
    with recording(tmp_path, "m", MODEL, hosts):
        found = find_process(tmp_path, "m")
        assert found is not None
        assert os.getsid(found.pid) == found.pid
        stat = Path(f"/proc/{found.pid}/stat").read_text()
        assert found == Running(found.pid, int(stat.rpartition(")")[2].split()[19]))
        with pytest.raises(LabError, match="it is running name=m pid="):
            start_process(tmp_path, "m", MODEL)
        tail = Tail(tmp_path, "m")

        def has_frames() -> bool:
            tail.read()
            return tail.frames >= 3

        wait_for(has_frames, "frames")
        assert stop_process(tmp_path, "m")
    assert find_process(tmp_path, "m") is None
    assert [one["event"] for one in events(tmp_path, "m")] == ["start", "open", "stop"]
    assert "cause" not in events(tmp_path, "m")[-1]
    found_in = {(one.scope, one.quality.value) for one in samples(tmp_path, "m")}
    assert found_in == {("n1", "model")}
    info = json.loads((directory(tmp_path, "m") / "info.json").read_text())
    assert (info["kind"], info["is_modelled"]) == ("model", True)


def test_one_that_was_killed_is_no_longer_found_and_may_start_again(tmp_path: Path) -> None:
    with recording(tmp_path, "m", MODEL):
        found = find_process(tmp_path, "m")
        assert found is not None
        wait_for(lambda: len(frames(tmp_path, "m")) > 0, "a frame")
        os.kill(found.pid, signal.SIGKILL)
        wait_for(lambda: find_process(tmp_path, "m") is None, "its end")
        again = start_process(tmp_path, "m", MODEL)
        assert again != found
    assert len(segments(tmp_path, "m")) == 2
    # A process that is killed leaves no `stop`.
    named = [one["event"] for one in events(tmp_path, "m")]
    assert named == ["start", "open", "start", "open", "stop"]


def test_two_never_record_the_same_meter(tmp_path: Path) -> None:
    where = directory(tmp_path, "m")
    where.mkdir(parents=True)
    # As one that has begun, and has not yet said so.
    with open(where / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with (
            pytest.raises(LabError, match="another process records this meter name=m"),
            recording(tmp_path, "m", MODEL),
        ):
            pytest.fail("it records")
    assert segments(tmp_path, "m") == []


def test_another_process_with_the_same_number_is_not_it(tmp_path: Path) -> None:
    where = directory(tmp_path, "m")
    where.mkdir(parents=True)
    record = {"pid": os.getpid(), "start_ticks": 1}
    (where / "process.json").write_text(json.dumps(record))
    assert find_process(tmp_path, "m") is None
    assert stop_process(tmp_path, "m")


def test_it_ends_when_no_runner_comes_back(tmp_path: Path) -> None:
    with recording(tmp_path, "m", {**MODEL, "orphan_after": 0.3}):
        wait_for(lambda: find_process(tmp_path, "m") is None, "its end")
    cause = events(tmp_path, "m")[-1]["cause"]
    assert cause == "runner.alive was not touched for 0.3 s"


def test_wrong_settings_are_told_to_who_starts_it(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"meters\.m\.idle: there is no such setting here"):
        start_process(tmp_path, "m", {**MODEL, "idle": 3})


def test_a_meter_with_an_end_says_that_it_came_to_it(tmp_path: Path) -> None:
    table = tmp_path / "log.csv"
    table.write_text("time,p\n1700000000,5\n1700000001,6\n1700000002,7\n")
    settings = {"kind": "csv", "path": str(table), "channels": {"p": "s1"}}
    with recording(tmp_path, "m", settings):
        wait_for(lambda: find_process(tmp_path, "m") is None, "its end")
    assert [one.value for one in samples(tmp_path, "m")] == [6, 7]
    assert events(tmp_path, "m")[-1]["cause"] == "the meter has come to its end"
