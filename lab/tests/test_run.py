# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Whole runs, and what is left of them when runner, meter or agent are killed in the middle."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from terrace_lab.meters.process import find_process
from terrace_lab.records import read_lines

WAIT_SECONDS_MAX = 120

EXPERIMENT = """
name = "tiny"
reference = "a"

[targets.a]
kind = "path"
path = "{directory}/a"

[targets.b]
kind = "path"
path = "{directory}/b"

[meters.model]
kind = "model"
period = 0.05

[energy]
idle = {{ seconds = 0.5, settle = 0 }}
guard = 0.2
{energy}

[gate]
# The tests of others run beside these.
load_max = 1000
disk_bytes_s_max = "1TB"
drain = 0.5
{gate}

[probes]
enabled = false

[workloads.iops]
kind = "fio"
bytes_per_client = "4MiB"
params = {{ phases = ["randread"], seconds = {seconds} }}

[repeat]
min = {least}
max = {least}
warmup = 0
stop = {{ metric = [] }}
cold = {{ drop_caches = false }}
"""


class Lab:
    """Runs of one experiment below a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.run_directory = directory / "run"
        self.file = directory / "tiny.toml"
        self.started: list[subprocess.Popen[str]] = []
        for name in ("a", "b"):
            (directory / name).mkdir()
        self.write()

    def write(
        self, *, seconds: float = 0.6, least: int = 1, energy: str = "", gate: str = ""
    ) -> None:
        text = EXPERIMENT.format(
            directory=self.directory, seconds=seconds, least=least, energy=energy, gate=gate
        )
        self.file.write_text(text)

    def start(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "terrace_lab", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def start_run(self) -> subprocess.Popen[str]:
        return self.start("run", str(self.file), "--output", str(self.run_directory), "--yes")

    def finish(self, process: subprocess.Popen[str], code: int = 0) -> str:
        output, _ = process.communicate(timeout=WAIT_SECONDS_MAX)
        assert process.returncode == code, output
        return output

    def run(self, *words: str, code: int = 0) -> str:
        return self.finish(self.start(*words), code)

    def resume(self, *words: str, code: int = 0) -> str:
        return self.run("resume", str(self.run_directory), *words, code=code)

    @property
    def journal(self) -> list[dict[str, Any]]:
        path = self.run_directory / "journal.jsonl"
        return list(read_lines(path)) if path.exists() else []

    def states(self, trial: str) -> list[str]:
        """What became of each repetition of a trial, in order."""
        last: dict[int, str] = {}
        for line in self.journal:
            if line["event"] == "rep" and line["trial"] == trial:
                last[line["rep"]] = line["state"]
        return list(last.values())

    @property
    def summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = json.loads((self.run_directory / "summary.json").read_text())
        return summary

    def is_clean(self) -> bool:
        """Whether nothing is left on the targets, and no process that knows this directory."""
        if any(path for name in ("a", "b") for path in (self.directory / name).iterdir()):
            return False
        return not self.processes()

    def processes(self) -> list[psutil.Process]:
        found = []
        for one in psutil.process_iter(["cmdline"]):
            words = one.info["cmdline"] or []
            if any(str(self.directory) in word for word in words):
                found.append(one)
        return found

    def end(self) -> None:
        """Ends whatever a failed test has left."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()
        for one in self.processes():
            one.kill()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.end()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A run that came to its end; tests change copies of its directory."""
    lab = Lab(tmp_path_factory.mktemp("finished"))
    lab.finish(lab.start_run())
    yield lab
    lab.end()


@pytest.fixture
def copied(finished: Lab) -> Iterator[Lab]:
    original = finished.run_directory
    finished.run_directory = original.with_name("copy")
    shutil.copytree(original, finished.run_directory)
    yield finished
    shutil.rmtree(finished.run_directory)
    finished.run_directory = original


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def is_measuring(lab: Lab) -> bool:
    """Whether fio is at work: a phase is in its middle."""
    return any("--name" in word for one in fios(lab) for word in one.info["cmdline"])


def fios(lab: Lab) -> list[psutil.Process]:
    return [one for one in lab.processes() if (one.info["cmdline"] or [""])[0].endswith("fio")]


def test_a_run_is_complete_and_leaves_nothing_behind(finished: Lab) -> None:
    lab = finished
    assert lab.journal[0]["event"] == "begin"
    assert "end" in [line["event"] for line in lab.journal]
    cells = {cell["target"]: cell for cell in lab.summary["cells"] if cell["phase"] == "randread"}
    assert set(cells) == {"a", "b"}
    for cell in cells.values():
        assert cell["rate"]["median"] > 0
        assert cell["energy"] is not None, cell["flags"]
    assert lab.summary["is_modelled"]
    assert "MODELLED" in (lab.run_directory / "report" / "index.html").read_text()
    assert lab.is_clean()
    again = lab.run("report", str(lab.run_directory), "--json")
    assert json.loads(again)["cells"] == lab.summary["cells"]


def test_utilisation_over_time_is_in_record_and_report(lab: Lab) -> None:
    head, _, rest = lab.file.read_text().partition("[workloads.iops]")
    params = "samples = 20, sample_bytes = 4096, batch = 4, compute_s = 0.05, epochs = 2"
    made = f'[workloads.train]\nkind = "dlinput"\nparams = {{ {params} }}\n\n'
    lab.file.write_text(head + made + rest[rest.index("[repeat]") :])
    lab.finish(lab.start_run())
    trial = lab.run_directory / "trials" / "train-a-c1" / "rep-001"
    (line,) = (one for one in read_lines(trial / "phases.jsonl") if one["phase"] == "train")
    points = line["over_time"]["accelerator_utilisation"]
    begins = [0.0, *(at for at, _ in points)]
    busy_s = sum(part * (at - begin) for begin, (at, part) in zip(begins, points, strict=False))
    # Two epochs of five steps.
    assert busy_s == pytest.approx(2 * 5 * 0.05)
    figures = lab.run_directory / "report" / "fig"
    assert len(list(figures.glob("*-train-over-time.svg"))) == 1


def test_a_killed_runner_is_resumed_where_it_was(lab: Lab) -> None:
    lab.write(seconds=2, least=2)
    process = lab.start_run()
    until(lambda: "done" in lab.states("iops-a-c1") + lab.states("iops-b-c1"))
    until(lambda: is_measuring(lab))
    process.kill()
    process.wait()
    # Its agent ends what it had started; the meter records on.
    until(lambda: not fios(lab))
    assert find_process(lab.run_directory, "model") is not None
    lab.resume()
    states = lab.states("iops-a-c1") + lab.states("iops-b-c1")
    assert states.count("done") == 4
    assert states.count("void") == 1, "the one in the middle"
    assert [line["event"] for line in lab.journal].count("resume") == 1
    gaps = [line for line in lab.journal if line["event"] == "gap_begin"]
    assert not gaps, "the meter had none"
    assert lab.is_clean()


def test_a_killed_meter_voids_the_energy_it_missed_and_no_more(lab: Lab) -> None:
    lab.write(seconds=3, least=2)
    process = lab.start_run()
    until(lambda: is_measuring(lab))
    found = find_process(lab.run_directory, "model")
    assert found is not None
    os.kill(found.pid, signal.SIGKILL)
    lab.finish(process)
    events = [line["event"] for line in lab.journal]
    assert events.count("gap_begin") == 1
    assert events.count("gap_end") == 1
    assert events.count("energy_void") == 1
    voided = next(line for line in lab.journal if line["event"] == "energy_void")
    repeated = lab.states(voided["trial"])
    assert repeated == ["done"] * 3, "that one again, for its energy"
    assert lab.is_clean()


def test_a_killed_agent_voids_the_repetition_and_it_is_made_again(lab: Lab) -> None:
    lab.write(seconds=2)
    process = lab.start_run()
    until(lambda: is_measuring(lab))
    runner = psutil.Process(process.pid)
    agents = [one for one in runner.children() if "-c" in one.cmdline()]
    assert len(agents) == 1
    agents[0].kill()
    lab.finish(process)
    states = lab.states("iops-a-c1") + lab.states("iops-b-c1")
    assert sorted(states) == ["done", "done", "void"]
    assert lab.is_clean()


def test_an_interrupted_run_cleans_up_and_can_be_resumed(lab: Lab) -> None:
    lab.write(seconds=2)
    process = lab.start_run()
    until(lambda: is_measuring(lab))
    process.send_signal(signal.SIGTERM)
    output = lab.finish(process, code=130)
    assert "resume" in output
    assert lab.is_clean()
    lab.resume()
    states = lab.states("iops-a-c1") + lab.states("iops-b-c1")
    assert sorted(states) == ["done", "done", "void"]
    assert lab.is_clean()


def test_another_experiment_is_not_resumed(copied: Lab) -> None:
    frozen = copied.run_directory / "experiment.toml"
    frozen.write_text(frozen.read_text().replace("seconds = 0.6", "seconds = 0.7"))
    assert "experiment.toml is not what the run began with" in copied.resume(code=1)


def test_a_host_that_has_changed_is_refused_until_that_is_accepted(copied: Lab) -> None:
    path = copied.run_directory / "env" / "here.json"
    environment = json.loads(path.read_text())
    path.write_text(json.dumps({**environment, "kernel": "0.1"}))
    assert "host here is not what it was: kernel" in copied.resume(code=1)
    copied.resume("--accept-drift")
    assert [line["what"] for line in copied.journal if line["event"] == "drift_accepted"] == [
        ["kernel"]
    ]


def test_a_run_is_extended_by_the_repetitions_that_are_missing(copied: Lab) -> None:
    words = ("extend", str(copied.run_directory), "--max", "2")
    copied.run(*words)
    assert copied.states("iops-a-c1") == ["done", "done"]
    assert "must be more than it was" in copied.run(*words, code=1)


def test_two_runners_do_not_work_on_one_run(lab: Lab) -> None:
    lab.write(seconds=3)
    process = lab.start_run()
    until(lambda: is_measuring(lab))
    assert "another runner is at work" in lab.resume(code=1)
    lab.finish(process)


def test_without_room_nothing_is_written(lab: Lab) -> None:
    lab.write(gate="free_factor = 1e12")
    lab.finish(lab.start_run(), code=1)
    assert set(lab.states("iops-a-c1")) == {"failed"}
    reasons = [line.get("reason", "") for line in lab.journal if line["event"] == "rep"]
    assert any("too little room" in reason for reason in reasons)


def test_a_gate_that_stays_closed_ends_the_run_with_its_reason(lab: Lab) -> None:
    lab.write(gate="wait = 0.1")
    text = lab.file.read_text().replace("load_max = 1000", "load_max = 0")
    lab.file.write_text(text)
    # A quiet machine would open even this gate.
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        output = lab.finish(lab.start_run(), code=1)
    finally:
        other.kill()
        other.wait()
    assert "processors busy, gate.load_max is 0" in output
    assert lab.is_clean()


def test_nobody_agrees_by_silence(lab: Lab) -> None:
    output = lab.run("run", str(lab.file), "--output", str(lab.run_directory), code=1)
    assert "nobody has agreed" in output
    assert not lab.run_directory.exists()


def test_a_gap_ends_a_run_that_is_to_abort_then(lab: Lab) -> None:
    lab.write(seconds=3, energy='on_gap = "abort"')
    process = lab.start_run()
    until(lambda: is_measuring(lab))
    found = find_process(lab.run_directory, "model")
    assert found is not None
    os.kill(found.pid, signal.SIGKILL)
    assert "energy.on_gap is abort" in lab.finish(process, code=1)
    states = lab.states("iops-a-c1") + lab.states("iops-b-c1")
    assert states == ["done"], "its throughput counts"
    assert lab.is_clean()


def test_a_target_that_cannot_be_set_up_is_left_out_and_told(lab: Lab) -> None:
    (lab.directory / "up.sh").write_text("#!/bin/sh\nexit 1\n")
    text = lab.file.read_text().replace(
        f'[targets.b]\nkind = "path"\npath = "{lab.directory}/b"',
        f'[targets.b]\nkind = "command"\npath = "{lab.directory}/b"\n'
        'setup = "up.sh"\nteardown = "up.sh"',
    )
    lab.file.write_text(text)
    output = lab.finish(lab.start_run(), code=1)
    assert "trials without a result: iops-b-c1" in output
    assert lab.states("iops-a-c1") == ["done"]
    assert lab.states("iops-b-c1") == ["failed"], "tried once"
    assert lab.is_clean()
    lab.run("extend", str(lab.run_directory), "--max", "2", code=1)
    assert lab.states("iops-a-c1") == ["done", "done"]


def test_an_interrupted_set_up_is_torn_down(lab: Lab) -> None:
    up, down = (lab.directory / name for name in ("up.sh", "down.sh"))
    up.write_text(f"#!/bin/sh\ntouch {lab.directory}/began\nsleep 60\n")
    down.write_text(f"#!/bin/sh\nrm -f {lab.directory}/began\n")
    for script in (up, down):
        script.chmod(0o755)
    scripts = 'kind = "command"\nsetup = "up.sh"\nteardown = "down.sh"'
    lab.file.write_text(lab.file.read_text().replace('kind = "path"', scripts))
    process = lab.start_run()
    until((lab.directory / "began").exists)
    process.send_signal(signal.SIGINT)
    lab.finish(process, code=130)
    assert not (lab.directory / "began").exists()
    assert lab.is_clean()


def test_a_scope_that_no_meter_has_is_refused(lab: Lab) -> None:
    lab.write(energy='scope = ["rack"]')
    output = lab.finish(lab.start_run(), code=1)
    assert "energy.scope: no meter has 'rack'; there are here" in output


def test_a_meter_that_is_not_required_may_be_silent(lab: Lab) -> None:
    text = lab.file.read_text().replace(
        'kind = "model"\nperiod = 0.05',
        f'kind = "csv"\npath = "{lab.directory}/none.csv"\nchannels = {{ p = "here" }}\n'
        "required = false",
    )
    lab.file.write_text(text)
    lab.finish(lab.start_run())
    assert lab.states("iops-a-c1") == ["done"]


def test_a_set_up_that_lost_its_host_is_made_again_before_anything_is_measured(lab: Lab) -> None:
    up, down = (lab.directory / name for name in ("up.sh", "down.sh"))
    # The first set-up takes long enough to lose its agent; only a whole one makes the place.
    up.write_text(
        f"echo up >> {lab.directory}/ups\n"
        f"[ -e {lab.directory}/second ] || {{ touch {lab.directory}/second; sleep 60; }}\n"
        f"touch {lab.directory}/b/whole\n"
    )
    down.write_text(f"rm -f {lab.directory}/b/whole\n")
    text = lab.file.read_text().replace(
        f'[targets.b]\nkind = "path"\npath = "{lab.directory}/b"',
        f'[targets.b]\nkind = "command"\npath = "{lab.directory}/b"\n'
        'setup = "up.sh"\nteardown = "down.sh"',
    )
    lab.file.write_text(text)
    process = lab.start_run()
    until((lab.directory / "second").exists)
    agents = [one for one in psutil.Process(process.pid).children() if "-c" in one.cmdline()]
    assert len(agents) == 1
    agents[0].kill()
    until(lambda: is_measuring(lab) and "running" in lab.states("iops-b-c1"))
    assert (lab.directory / "b" / "whole").exists(), "it measures what is not set up"
    lab.finish(process)
    assert (lab.directory / "ups").read_text() == "up\nup\n"
    assert lab.states("iops-b-c1") == ["void", "done"]
    assert lab.is_clean()
