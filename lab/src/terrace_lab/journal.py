# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The journal of a run: what happened, in order, and what that means for resuming it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from terrace_lab.errors import LabError
from terrace_lab.records import LinesWriter, now, read_lines

STOP_MET = "met"
"""Why a group of trials stopped that `extend` leaves alone."""
STOP_CAP = "cap reached"
STOP_NOTHING = "no result"


class Busy(LabError):
    """Another runner works on the run."""


class State(StrEnum):
    """Of a repetition."""

    ARMED = "armed"
    """Its target is set up and its data made; nothing is measured yet."""
    RUNNING = "running"
    DONE = "done"
    VOID = "void"
    """Something else than what is measured came in between; it is done again."""
    FAILED = "failed"
    """What is measured did not do its work."""

    @property
    def is_final(self) -> bool:
        return self in (State.DONE, State.VOID, State.FAILED)


@dataclass(slots=True)
class Repetition:
    """What the journal knows of one repetition."""

    trial: str
    number: int
    block: int
    state: State
    reason: str | None = None
    energy_void: str | None = None

    @property
    def counts(self) -> bool:
        """Whether its block needs no other repetition of the trial for its performance."""
        return self.state is State.DONE


@dataclass(slots=True)
class Past:
    """What a run has behind it."""

    repetitions: list[Repetition] = field(default_factory=list)
    stopped: dict[str, str] = field(default_factory=dict)
    """Groups of trials that need no further block, and why."""
    warmed: set[str] = field(default_factory=set)
    """Trials that had their warm-up."""
    targets_up: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Targets that were set up and not torn down, with their parameters."""
    idle: set[str] = field(default_factory=set)
    lags: set[str] = field(default_factory=set)
    """Meters whose lag was looked for."""
    is_probed: bool = False
    resumed: int = 0

    def of(self, trial: str, block: int | None = None) -> list[Repetition]:
        return [
            one
            for one in self.repetitions
            if one.trial == trial and (block is None or one.block == block)
        ]


def read_past(path: Path) -> Past:
    """Replays a journal."""
    past = Past()
    found: dict[tuple[str, int], Repetition] = {}
    for line in read_lines(path):
        event = line.get("event")
        if event == "rep":
            key = (line["trial"], line["rep"])
            state = State(line["state"])
            if key not in found:
                found[key] = Repetition(*key, line["block"], state)
                past.repetitions.append(found[key])
            found[key].state = state
            found[key].reason = line.get("reason")
        elif event == "energy_void":
            if (one := found.get((line["trial"], line["rep"]))) is not None:
                one.energy_void = line["reason"]
        elif event == "stop":
            past.stopped[line["group"]] = line["reason"]
        elif event == "warmup":
            past.warmed.add(line["trial"])
        elif event == "setup":
            past.targets_up[line["target"]] = line["parameters"]
        elif event == "teardown":
            past.targets_up.pop(line["target"], None)
        elif event == "idle":
            past.idle.add(line["name"])
        elif event == "lag":
            past.lags.add(line["meter"])
        elif event == "probed":
            past.is_probed = True
        elif event == "resume":
            past.resumed += 1
        elif event == "extend":
            past.stopped = {key: one for key, one in past.stopped.items() if one == STOP_MET}
    return past


Listener = Callable[[dict[str, Any]], None]
"""Is shown each line once it is on the disk."""


class Journal:
    """Appends to the journal of a run; safe to use from several threads."""

    def __init__(self, path: Path, listener: Listener | None = None) -> None:
        self._lines = LinesWriter(path)
        self._listener = listener
        self._lock = threading.Lock()

    def write(self, event: str, **fields: Any) -> None:
        """Appends one event, with the time, and syncs: the journal is what resuming relies on."""
        stamp = now()
        line = {"event": event, "real": stamp.real_ns, "raw": stamp.raw_ns, **fields}
        with self._lock:
            self._lines.write(line)
            self._lines.sync()
        if self._listener is not None:
            self._listener(line)

    def repetition(
        self, trial: str, number: int, block: int, state: State, reason: str | None = None
    ) -> None:
        fields = {"reason": reason} if reason else {}
        self.write("rep", trial=trial, rep=number, block=block, state=state.value, **fields)

    def close(self) -> None:
        self._lines.close()


@contextlib.contextmanager
def locked(run: Path) -> Iterator[None]:
    """Keeps other runners away from a run; LabError where one is at work."""
    descriptor = os.open(run / "runner.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"cannot run: another runner is at work run={run}") from None
        yield
    finally:
        os.close(descriptor)
