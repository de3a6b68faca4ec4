# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The process that a meter runs in, and how the runner starts, finds and ends it.

`python -m terrace_lab.meters.process RUN_DIR NAME SPEC` with SPEC = {"settings": table of the
experiment file, "hosts": {NAME: {"ssh", "address", "python"}}}. It goes on when the runner dies, so
that a resumed run has the power of the time between; it ends by itself when no runner comes back.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from terrace_lab.errors import LabError
from terrace_lab.hosts import AgentHost
from terrace_lab.meters import registry
from terrace_lab.meters.pump import Pump
from terrace_lab.meters.recorder import Recorder
from terrace_lab.meters.segments import directory
from terrace_lab.records import now, write_json
from terrace_lab.settings import Settings

START_SECONDS = 15.0
"""Python starts and imports within this, also on a machine under load."""
STOP_SECONDS = 15.0
"""More than the 10 s that any method of a driver may take."""
_JOIN_SECONDS = 12.0
_TICK_SECONDS = 0.1
_REACH = ("ssh", "address", "python")
_ALIVE_FILE = "runner.alive"


@dataclass(frozen=True, slots=True)
class Running:
    """One process of a meter, told from a later one with the same number by when it began."""

    pid: int
    start_ticks: int
    """Field 22 of /proc/PID/stat."""


def start_process(
    run: Path,
    name: str,
    settings: Mapping[str, Any],
    hosts: Mapping[str, Mapping[str, Any]] | None = None,
) -> Running:
    """Starts the process of a meter in a session of its own and returns once it records.

    `hosts` are those of the experiment, which some kinds of meters ask through their agents: by
    name, `ssh`, `address` and `python`.
    Raises LabError where one is running already, or what it printed where it ended at once. That
    the device answers is not waited for: `open` and `gap_begin` in the record say that.
    """
    if (alive := find_process(run, name)) is not None:
        raise LabError(f"cannot start a meter: it is running name={name} pid={alive.pid}")
    before = _recorded(run, name)
    where = directory(run, name)
    where.mkdir(parents=True, exist_ok=True)
    reached = {key: {what: one[what] for what in _REACH} for key, one in (hosts or {}).items()}
    spec = json.dumps({"settings": dict(settings), "hosts": reached})
    module = "terrace_lab.meters.process"
    argv = [sys.executable, "-m", module, str(run.resolve()), name, spec]
    log = where / "process.log"
    log.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        sys.executable,
        argv,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        has_ended = _has_ended(pid)
        # Looked at after that: one that records may have come to its end by now.
        found = _recorded(run, name)
        if found is not None and found.pid == pid and found != before:
            return found
        if has_ended:
            raise LabError(f"cannot start a meter: {_last_line(log)} name={name}")
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise LabError(f"cannot start a meter: nothing recorded in {START_SECONDS:g} s name={name}")


def find_process(run: Path, name: str) -> Running | None:
    """The process that records this meter now; None where there is none."""
    found = _recorded(run, name)
    return found if found is not None and _is_alive(found) else None


def stop_process(run: Path, name: str) -> bool:
    """Ends the process of a meter; true when it ended by itself, false when it had to be killed.

    One that is not running has ended by itself.
    """
    found = find_process(run, name)
    if found is None:
        return True
    for number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(found.pid, number)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not _is_alive(found):
                return number == signal.SIGTERM
            time.sleep(0.01)
    raise LabError(f"cannot stop a meter: it does not end name={name} pid={found.pid}")


def touch_alive(run: Path) -> None:
    """Tells all meters of a run that its runner lives; call it once a minute or more often."""
    (run / _ALIVE_FILE).touch()


def _recorded(run: Path, name: str) -> Running | None:
    """The process that recorded this meter last."""
    try:
        line = json.loads((directory(run, name) / "process.json").read_text())
        return Running(int(line["pid"]), int(line["start_ticks"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _has_ended(child: int) -> bool:
    try:
        return os.waitpid(child, os.WNOHANG) != (0, 0)
    except ChildProcessError:
        # Another thread has looked after it already.
        return True


def _is_alive(one: Running) -> bool:
    found = _state(one.pid)
    if found is None or found[1] != one.start_ticks:
        return False
    if found[0] not in "ZX":
        return True
    # Ended, and a child of ours that nobody has asked for its end yet, or of somebody else.
    _has_ended(one.pid)
    return False


def _state(pid: int) -> tuple[str, int] | None:
    """Whether a process runs, as a letter of proc(5), and when it began."""
    try:
        # The name in field 2 may have spaces and brackets; the last bracket ends it.
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return state, int(rest[18])
    except (OSError, ValueError, IndexError):
        return None


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "it ended and said nothing"


@contextlib.contextmanager
def _lock(where: Path) -> Iterator[None]:
    """Held for as long as the process lives, however it ends."""
    where.mkdir(parents=True, exist_ok=True)
    with open(where / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError("another process records this meter") from None
        yield


class _Orphaned:
    """Whether nobody has touched the file of the runner for too long, by a clock that runs even."""

    def __init__(self, run: Path, after_s: float) -> None:
        self._path = run / _ALIVE_FILE
        self._after_s = after_s
        self._seen = self._modified_ns()
        self._since = time.monotonic()

    def _modified_ns(self) -> int | None:
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return None

    def cause(self) -> str | None:
        seen = self._modified_ns()
        if seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        if time.monotonic() - self._since > self._after_s:
            return f"{_ALIVE_FILE} was not touched for {self._after_s:g} s"
        return None


def record(run: Path, name: str, spec: Mapping[str, Any]) -> None:
    """Records one meter until SIGTERM or SIGINT, its end, or the death of the runner."""
    settings = Settings(f"meters.{name}", spec["settings"])
    shared = registry.shared(settings)
    hosts = {
        key: AgentHost(key, one["ssh"], address=one["address"], python=one["python"])
        for key, one in spec["hosts"].items()
    }
    meter = registry.create(name, settings, hosts)
    where = directory(run, name)
    asked: list[int] = []

    def ask(number: int, _: FrameType | None) -> None:
        asked.append(number)

    with _lock(where):
        signal.signal(signal.SIGTERM, ask)
        signal.signal(signal.SIGINT, ask)
        recorder = Recorder(where, name, shared.stuck_after)
        state = _state(os.getpid())
        if state is None:
            raise LabError("cannot record: /proc does not know this process")
        write_json(where / "process.json", {"pid": os.getpid(), "start_ticks": state[1]})
        orphaned = _Orphaned(run, shared.orphan_after_s)
        pump = Pump(meter)
        pump.start()
        cause: str | None = None
        is_going = True
        while is_going and not asked and cause is None:
            with contextlib.suppress(queue.Empty):
                is_going = recorder.take(pump.events.get(timeout=_TICK_SECONDS))
            if pump.events.empty():
                recorder.watch(now())
                recorder.sync_if_due()
                cause = orphaned.cause()
                if cause is None and not pump.is_alive() and pump.events.empty():
                    cause = "the thread of the driver has died"
        if not is_going:
            cause = "the meter has come to its end"
        late = _end(pump, recorder)
        recorder.stop(cause or late)


def _end(pump: Pump, recorder: Recorder) -> str | None:
    """Lets the driver finish, and keeps what it had delivered before."""
    pump.stop()
    deadline = time.monotonic() + _JOIN_SECONDS
    while pump.is_alive() or not pump.events.empty():
        if time.monotonic() > deadline:
            return f"asked to; the driver did not end within {_JOIN_SECONDS:g} s"
        with contextlib.suppress(queue.Empty):
            recorder.take(pump.events.get(timeout=_TICK_SECONDS))
    return None


def main(argv: list[str]) -> int:
    run, name, spec = argv
    try:
        record(Path(run), name, json.loads(spec))
    except (LabError, OSError) as error:
        print(f"{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
