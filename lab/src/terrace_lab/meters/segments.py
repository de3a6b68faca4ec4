# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The files that the process of a meter writes, and how the runner follows them.

docs/reference/lab-record.md has their format. Segments are numbered from 1; each start of the
process and each ten minutes begin a new one, so that a damaged file costs no more than that.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from terrace_lab.errors import LabError
from terrace_lab.records import SYNC_SECONDS, LinesWriter, Quality, Stamp

SEGMENT_SECONDS = 600.0
_READ_BYTES = 1 << 20


def directory(run: Path, name: str) -> Path:
    """Where everything of one meter lies."""
    return run / "meters" / name


def segments(run: Path, name: str) -> list[Path]:
    """The files of one meter, oldest first."""
    return [path for _, path in _numbered(directory(run, name))]


def _numbered(where: Path) -> list[tuple[int, Path]]:
    found = (path for path in where.glob("*.jsonl") if path.stem.isdigit())
    return sorted((int(path.stem), path) for path in found)


class SegmentWriter:
    """Appends lines to the newest segment of a meter.

    A disk that is full does not end a measurement: `write` says whether the line was kept, and
    tries again with a new segment once a second.
    """

    def __init__(self, where: Path) -> None:
        self._where = where
        where.mkdir(parents=True, exist_ok=True)
        self._next = max((number for number, _ in _numbered(where)), default=0) + 1
        self.is_first = self._next == 1
        """There was no segment before."""
        self.failure: str | None = None
        """Why lines are being lost; None while all is well."""
        self._lines: LinesWriter | None = None
        self._opened = 0.0
        self._touched = 0.0
        self._is_dirty = False
        self._open()

    def _open(self) -> None:
        self._lines = LinesWriter(self._where / f"{self._next:06d}.jsonl")
        self._next += 1
        self._opened = time.monotonic()

    def write(self, line: dict[str, Any]) -> bool:
        """Appends one line; false where it is lost, and then `failure` says why."""
        current = time.monotonic()
        if self._lines is None and current - self._touched < SYNC_SECONDS:
            return False
        try:
            if self._lines is None or current - self._opened >= SEGMENT_SECONDS:
                self._close()
                self._open()
            assert self._lines is not None
            self._lines.write(line)
        except (OSError, LabError) as error:
            self.failure = str(error)
            self._touched = current
            self._close()
            return False
        self.failure = None
        self._touched = current
        self._is_dirty = True
        return True

    def sync_if_due(self) -> None:
        """Brings lines to the disk that no later line has brought there."""
        if self._is_dirty and time.monotonic() - self._touched >= SYNC_SECONDS:
            self._is_dirty = False
            try:
                if self._lines is not None:
                    self._lines.sync()
            except OSError as error:
                self.failure = str(error)
                self._close()

    def _close(self) -> None:
        if self._lines is not None:
            lines, self._lines = self._lines, None
            try:
                lines.close()
            except OSError as error:
                self.failure = str(error)

    def close(self) -> None:
        self._close()


class Position(NamedTuple):
    """How far somebody has read the segments of a meter."""

    segment: int
    offset_bytes: int


START = Position(0, 0)


class Tail:
    """Follows what one meter delivers. Each call of `read` costs only what is new."""

    def __init__(self, run: Path, name: str, position: Position = START) -> None:
        self._where = directory(run, name)
        self.position = position
        self.newest: Stamp | None = None
        """When the newest frame with a usable sample had arrived, by the clocks of the machine that
        the meter runs on: `real_ns` is the largest `t1` in it. None where none was read yet."""
        self.frames = 0
        """Frames read so far."""

    def read(self) -> list[dict[str, Any]]:
        """Returns the events that are new since the last call, and takes note of the frames."""
        events: list[dict[str, Any]] = []
        for number, path in _numbered(self._where):
            if number < self.position.segment:
                continue
            offset = self.position.offset_bytes if number == self.position.segment else 0
            with open(path, "rb") as file:
                file.seek(offset)
                rest = b""
                while data := file.read(_READ_BYTES):
                    lines = (rest + data).split(b"\n")
                    rest = lines.pop()
                    for line in lines:
                        offset += len(line) + 1
                        self._take(line, events)
            # A last line without its end is still being written, or torn: then the process writes
            # its end before anything else, and it is skipped as a whole.
            self.position = Position(number, offset)
        return events

    def _take(self, data: bytes, events: list[dict[str, Any]]) -> None:
        try:
            line = json.loads(data)
        except ValueError:
            return
        if not isinstance(line, dict):
            return
        if "event" in line:
            events.append(line)
            return
        self.frames += 1
        usable = [one for one in line.get("samples", ()) if Quality(one["q"]).is_usable]
        if usable:
            self.newest = Stamp(max(int(one["t1"]) for one in usable), int(line["mono"]))
