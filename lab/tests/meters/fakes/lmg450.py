# SPDX-License-Identifier: Apache-2.0 OR MIT
"""An LMG450 at the end of a pseudo-terminal: SHORT language, continuous output, and faults."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pty
import random
import select
import struct
import threading
import time
import tty
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from terrace_lab.records import now

IDENTITY = "ZES ZIMMER Electronic Systems GmbH,LMG450,06040120,3.124"
NAN = 9.91e37
INFINITY = 9.9e37
FAULTS = ("missing", "half", "nan", "garbage", "silence", "disconnect", "mute", "shift")


@dataclass(frozen=True)
class Sent:
    """What one cycle put on the line."""

    raw_ns: int
    frame: bytes
    """The frame as it would be without a fault."""
    is_whole: bool
    """It left as it is, with nothing missing or changed in it."""
    fault: str | None


class FakeLmg450:
    """Answers on `path`, a link that leads to a new terminal after each disconnection.

    A break cannot be seen at this end of a pseudo-terminal; all else is as on a line.
    """

    def __init__(
        self,
        directory: Path,
        *,
        fault_of: Callable[[int], str | None] = lambda _: None,
        seconds_of_fault: float = 1.5,
        seed: int = 0,
    ) -> None:
        """`fault_of` tells what is wrong with a cycle, counted from 0 over the whole life."""
        self.path = directory / "ttyLMG"
        self.sent: list[Sent] = []
        self.commands: list[str] = []
        self.values: Callable[[int, str], float] = default_value
        self.cycles = 0
        self._fault_of = fault_of
        self._seconds_of_fault = seconds_of_fault
        self._random = random.Random(seed)
        self._is_stopping = threading.Event()
        self._master = -1
        self._slave = -1
        self._silent_until = 0.0
        self._reset()
        self._plug_in()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> FakeLmg450:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping.set()
        self._thread.join(10)
        self._unplug()

    def start_sending(self, actions: list[str], cycle_s: float) -> None:
        """Leaves the device as an earlier program may have: sending, and nobody reads."""
        self._actions = actions
        self._cycle_s = cycle_s
        self._is_packed = True
        self._is_short = True
        self._due = time.monotonic()
        self.is_continuous = True

    def _reset(self) -> None:
        self.is_continuous = False
        self.is_local = False
        self.ranges: dict[str, str] = {}
        self._is_short = False
        self._is_packed = False
        self._actions = list[str]()
        self._cycle_s = 0.5
        self._due = 0.0
        self._input = b""

    def _plug_in(self) -> None:
        self._master, self._slave = pty.openpty()
        tty.setraw(self._slave)
        os.set_blocking(self._master, False)
        partial = self.path.with_suffix(".new")
        partial.symlink_to(os.ttyname(self._slave))
        partial.replace(self.path)

    def _unplug(self) -> None:
        self.path.unlink(missing_ok=True)
        os.close(self._master)
        os.close(self._slave)

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            wait_s = 0.02
            if self.is_continuous:
                wait_s = min(wait_s, max(0.0, self._due - time.monotonic()))
            readable, _, _ = select.select([self._master], [], [], wait_s)
            if readable:
                with contextlib.suppress(BlockingIOError):
                    self._take(os.read(self._master, 4096))
            if self.is_continuous and time.monotonic() >= self._due:
                self._due += self._cycle_s
                self._cycle()

    def _take(self, data: bytes) -> None:
        if time.monotonic() < self._silent_until:
            return
        self._input += data
        while b"\n" in self._input:
            line, _, self._input = self._input.partition(b"\n")
            self._line(line.decode("latin-1").strip())

    def _line(self, line: str) -> None:
        self.commands.append(line)
        if line.startswith("ACTN;") and self._is_short:
            self._actions = [one.rstrip("?") for one in line.split(";")[1:]]
            return
        for command in line.split(";"):
            self._command(command.strip())

    def _command(self, command: str) -> None:
        name, _, argument = command.partition(" ")
        if name == "*RST":
            kept = self._input
            self._reset()
            self._input = kept
        elif name == "*IDN?":
            self._put(IDENTITY.encode() + b"\n")
        elif name == ":SYSTem:LANGuage":
            self._is_short = argument == "SHORT"
        elif name == "SYST:ERR:ALL?" and not self._is_short:
            self._put(b'0,"No error"\n')
        elif name == "GTL":
            self.is_local = True
        elif not self._is_short:
            return
        elif name == "LANG":
            self._is_short = argument == "SHORT"
        elif name in ("IAM", "IRNG", "UAM", "URNG"):
            self.ranges[name] = argument
        elif name == "CYCL":
            self._cycle_s = float(argument)
        elif name == "FRMT":
            self._is_packed = argument == "PACKED"
        elif name == "CONT":
            self.is_continuous = argument == "ON"
            self._due = time.monotonic() + self._cycle_s

    def _cycle(self) -> None:
        number, self.cycles = self.cycles, self.cycles + 1
        if time.monotonic() < self._silent_until:
            return
        fault = self._fault_of(number)
        values = [self.values(number, one) for one in self._actions]
        if fault == "nan":
            # The first channel is well, and tells one such frame from another.
            values[3:] = [NAN] * len(values[3:])
        if self._is_packed:
            payload = struct.pack(f"<{len(values)}f", *values)
            frame = b"#5%05d" % len(payload) + payload + b"\n"
        else:
            frame = ";".join(f"{one:.6E}" for one in values).encode() + b"\n"
        data = frame
        if fault == "missing":
            data = b""
        elif fault == "half":
            data = frame[: self._random.randrange(1, len(frame))]
        elif fault == "garbage":
            data = self._random.randbytes(self._random.randrange(1, 90)) + frame
        elif fault == "shift":
            cut = self._random.randrange(1, len(frame) - 1)
            data = frame[:cut] + self._random.randbytes(4) + frame[cut:]
        elif fault in ("silence", "mute"):
            self._silent_until = time.monotonic() + self._seconds_of_fault
            # Mute for good: the output is gone until somebody arms it again.
            self.is_continuous = fault == "silence"
            data = b""
        elif fault == "disconnect":
            self._unplug()
            self._is_stopping.wait(self._seconds_of_fault)
            self._reset()
            self._plug_in()
            data = b""
        is_whole = fault in (None, "nan", "garbage")
        # Noted first: whoever has read it may look at once.
        self.sent.append(Sent(now().raw_ns, frame, is_whole, fault))
        if data and not self._put(data):
            self.sent[-1] = dataclasses.replace(self.sent[-1], is_whole=False)

    def _put(self, data: bytes) -> bool:
        """Whether all of it went out; a line that nobody reads fills up."""
        try:
            return os.write(self._master, data) == len(data)
        except BlockingIOError:
            return False


def default_value(number: int, action: str) -> float:
    """Distinct for each cycle and channel, and what a real load could have."""
    channel = int(action[-1])
    if action.startswith("UTRMS"):
        return 230.0 + (number % 97) / 1000
    if action.startswith("ITRMS"):
        return 0.5 * channel
    return 50.0 * channel + (number % 100_000) / 4096
