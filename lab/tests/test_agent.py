# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Hosts through their agents: what runs there, how it ends, and that nothing stays."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from terrace_lab import agent
from terrace_lab.errors import HostLost, LabError
from terrace_lab.hosts import AgentHost, Command, run_together

WAIT_SECONDS_MAX = 20


@pytest.fixture
def host() -> Iterator[AgentHost]:
    host = AgentHost("here")
    host.connect()
    yield host
    host.close()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def sleeper(path: Path) -> Command:
    """A shell with a child, both of which would go on for minutes; the child writes its number."""
    return Command(["sh", "-c", f"sleep 300 & echo $! > {path}.new; mv {path}.new {path}; wait"])


def run_aside(host: AgentHost, path: Path) -> tuple[threading.Thread, list[LabError]]:
    """Runs a sleeper; when this returns its child has written `path`."""
    errors: list[LabError] = []

    def run() -> None:
        try:
            host.run(sleeper(path))
        except LabError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    until(path.exists)
    return thread, errors


def test_a_command_tells_all_about_its_end(host: AgentHost, tmp_path: Path) -> None:
    script = "import sys; print(sys.stdin.read()); print('no', file=sys.stderr); sys.exit(3)"
    ended = host.run(Command([sys.executable, "-c", script], stdin=b"yes", directory=str(tmp_path)))
    assert (ended.code, ended.stdout, ended.stderr) == (3, "yes\n", "no\n")
    assert ended.begin.raw_ns < ended.end.raw_ns
    assert ended.user_s > 0
    assert not ended.is_timed_out


def test_a_program_that_is_not_there_is_an_error_with_its_name(host: AgentHost) -> None:
    with pytest.raises(LabError, match="cannot run no-such-program"):
        host.run(Command(["no-such-program"]))
    assert not host.has("no-such-program")
    assert host.has("sh")


def test_commands_side_by_side_overlap(host: AgentHost, tmp_path: Path) -> None:
    # Each waits for the file of the other: one after the other they would wait for ever.
    script = (
        "touch $0; i=0; until [ -e $1 ] || [ $i = 2000 ]; do i=$((i+1)); sleep 0.01; done;"
        " test -e $1"
    )
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    ended = run_together(
        [(host, Command(["sh", "-c", script, a, b])), (host, Command(["sh", "-c", script, b, a]))]
    )
    assert [one.code for one in ended] == [0, 0]


def test_a_command_out_of_time_ends_with_all_its_children(host: AgentHost, tmp_path: Path) -> None:
    path = tmp_path / "child"
    command = sleeper(path)
    ended = host.run(Command(command.argv, timeout_s=1))
    assert ended.is_timed_out
    assert ended.code == -signal.SIGKILL
    until(lambda: not is_running(int(path.read_text())))


def test_what_a_command_leaves_running_is_ended(host: AgentHost, tmp_path: Path) -> None:
    path = tmp_path / "child"
    ended = host.run(Command(["sh", "-c", f"sleep 300 >/dev/null 2>&1 & echo $! > {path}"]))
    assert ended.code == 0
    until(lambda: not is_running(int(path.read_text())))


def test_closing_ends_what_runs(tmp_path: Path) -> None:
    host = AgentHost("here")
    host.connect()
    path = tmp_path / "child"
    thread, _ = run_aside(host, path)
    host.close()
    thread.join(WAIT_SECONDS_MAX)
    assert not thread.is_alive()
    until(lambda: not is_running(int(path.read_text())))


def test_a_killed_agent_is_noticed_and_the_next_one_ends_what_it_left(tmp_path: Path) -> None:
    host = AgentHost("here")
    host.connect()
    path = tmp_path / "child"
    thread, errors = run_aside(host, path)
    assert host._process is not None
    host._process.kill()
    thread.join(WAIT_SECONDS_MAX)
    assert isinstance(errors[0], HostLost)
    with pytest.raises(HostLost, match="cannot reach host here"):
        host.clock()
    host.connect()
    until(lambda: not is_running(int(path.read_text())))
    assert host.has("sh")
    host.close()


def test_an_agent_ends_with_a_killed_runner(tmp_path: Path) -> None:
    path = tmp_path / "child"
    script = (
        "import sys\n"
        "from terrace_lab.hosts import AgentHost, Command\n"
        "host = AgentHost('here')\n"
        "host.connect()\n"
        "host.run(Command(sys.argv[1:]))\n"
    )
    runner = subprocess.Popen([sys.executable, "-c", script, *sleeper(path).argv])
    until(path.exists)
    runner.kill()
    runner.wait()
    until(lambda: not is_running(int(path.read_text())))


def test_counters_and_environment_are_of_this_machine(host: AgentHost) -> None:
    counters = host.counters()
    assert counters["processors"] == os.cpu_count()
    assert counters["cpu"]["busy_s"] > 0
    assert "lo" in counters["network"]
    assert counters["memory"]["memtotal_bytes"] > 2**28
    environment = host.environment()
    assert environment["kernel"] == os.uname().release
    assert any(mount[1] == "/" for mount in environment["mounts"])


def test_a_file_is_written_whole_with_its_mode(host: AgentHost, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    host.write_file(str(path), b"\x00content", 0o600)
    assert path.read_bytes() == b"\x00content"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_host_is_sampled_until_it_is_ended(host: AgentHost) -> None:
    host.series_begin(0.1)
    samples: list[dict[str, Any]] = []

    def has_three() -> bool:
        samples.extend(host.series_take())
        return len(samples) >= 3

    until(has_three)
    host.series_end()
    assert host.series_take() == []
    times = [one["at"]["raw_ns"] for one in samples]
    assert times == sorted(times)
    first, last = samples[0], samples[-1]
    assert first["memory"]["memtotal_bytes"] > first["memory"]["memavailable_bytes"] > 0
    assert last["context_switches"] >= first["context_switches"] > 0
    spent = sum(last["cpu_s"].values()) - sum(first["cpu_s"].values())
    whole = (times[-1] - times[0]) / 1e9 * first["processors"]
    assert 0 <= spent <= whole * 1.5 + 0.5
    assert "lo" in first["network"]
    host.series_end()


def test_the_lines_of_nvidia_smi_are_read() -> None:
    text = "0, 37, 1024\n1, [N/A], 5\n2, 0, 0\nfailed\n"
    assert agent.gpus_of(text) == [
        {"name": "0", "busy": 0.37, "memory_bytes": 1 << 30},
        {"name": "2", "busy": 0.0, "memory_bytes": 0},
    ]
