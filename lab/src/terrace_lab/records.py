# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What is written while an experiment runs: times, samples, and lines that survive a crash.

JSON lines are the record because a torn last line loses one sample; whatever else there is can be
made from them again. docs/reference/lab-record.md is the format.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from terrace_lab.errors import LabError

SYNC_SECONDS = 1.0

STREAMS = "network_streams"
"""The component of a line of probes that is one of the table of streams, and no bound by itself."""


class Stamp(NamedTuple):
    """One moment on one host, by both of its clocks, in nanoseconds."""

    real_ns: int
    """CLOCK_REALTIME; may step."""
    raw_ns: int
    """CLOCK_MONOTONIC_RAW; never steps, begins anywhere."""


def now() -> Stamp:
    """Reads both clocks of this host, one right after the other."""
    return Stamp(
        time.clock_gettime_ns(time.CLOCK_REALTIME),
        time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW),
    )


class Kind(StrEnum):
    """What a sample says about its time, and by that how it is integrated."""

    AVERAGE = "avg"
    """Mean power over [t0, t1]: a rectangle."""
    INSTANT = "inst"
    """Power at t1: a trapezoid with its neighbours."""
    COUNTER = "counter"
    """Energy since some beginning, at t1: the difference of two."""


class Quality(StrEnum):
    """Whether the value of a sample may be used."""

    OK = "ok"
    MODEL = "model"
    """Computed from a model, not measured; used, and stamped wherever it ends."""
    NAN = "nan"
    """The meter said that it has no value."""
    OVERRANGE = "overrange"
    STUCK = "stuck"
    """The same bits for longer than a live reading could have them."""
    RESET = "reset"
    """A counter began anew: the difference to the sample before says nothing."""

    @property
    def is_usable(self) -> bool:
        return self in (Quality.OK, Quality.MODEL)


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of one channel; times are CLOCK_REALTIME of the host that the meter runs on."""

    t0: int
    """Begin of what the value covers, in ns. For a value of one moment it equals `t1`, or is when
    it was asked for: the device took it between the two."""
    t1: int
    mono: int
    """CLOCK_MONOTONIC_RAW in ns when the frame with it had arrived."""
    channel: str
    scope: str
    """What the channel measures: a host of the experiment, or a name such as `switch`."""
    kind: Kind
    value: float | None
    """Watts, or joules where `kind` is a counter; None unless the quality is usable."""
    quality: Quality
    source: str
    """Name of the meter."""

    def to_json(self) -> dict[str, Any]:
        unit = "J" if self.kind is Kind.COUNTER else "W"
        return {
            "t0": self.t0,
            "t1": self.t1,
            "mono": self.mono,
            "ch": self.channel,
            "scope": self.scope,
            unit: self.value,
            "kind": self.kind.value,
            "q": self.quality.value,
            "src": self.source,
        }

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> Sample:
        kind = Kind(line["kind"])
        value = line["J" if kind is Kind.COUNTER else "W"]
        return cls(
            t0=int(line["t0"]),
            t1=int(line["t1"]),
            mono=int(line["mono"]),
            channel=line["ch"],
            scope=line["scope"],
            kind=kind,
            value=None if value is None else float(value),
            quality=Quality(line["q"]),
            source=line["src"],
        )


class LinesWriter:
    """Appends JSON lines: each reaches the kernel at once and the disk within a second of activity.

    A file whose last line is torn, as a crash leaves it, is continued on a new line.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by `close`
        size = self._file.seek(0, os.SEEK_END)
        if size > 0:
            with open(path, "rb") as before:
                before.seek(size - 1)
                if before.read(1) != b"\n":
                    self._file.write(b"\n")
        self._synced = time.monotonic()

    def write(self, line: dict[str, Any]) -> None:
        """Appends one line."""
        text = json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n"
        data = text.encode()
        # One call, so that lines of a crash are whole or at the end.
        try:
            written = self._file.write(data)
        except OSError as error:
            raise LabError(f"cannot write the record: {error}") from error
        if written != len(data):
            raise LabError(f"cannot append a line: wrote {written} of {len(data)} bytes")
        if time.monotonic() - self._synced >= SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Returns when all lines are on the disk."""
        os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    def close(self) -> None:
        self.sync()
        self._file.close()

    def __enter__(self) -> LinesWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Torn(NamedTuple):
    """A line that is no JSON object: what a crash cut off, or damage."""

    path: Path
    number: int
    """Counted from 1."""


def read_lines(path: Path, torn: list[Torn] | None = None) -> Iterator[dict[str, Any]]:
    """Yields the lines of a file; those that are none are skipped and named in `torn`."""
    with open(path, "rb") as file:
        for number, data in enumerate(file, start=1):
            try:
                line = json.loads(data)
            except ValueError:
                line = None
            if isinstance(line, dict):
                yield line
            elif data.strip() and torn is not None:
                torn.append(Torn(path, number))


def write_json(path: Path, value: object) -> None:
    """Writes one JSON file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2, allow_nan=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
