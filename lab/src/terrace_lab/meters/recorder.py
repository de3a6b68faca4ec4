# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Turns what a driver delivers into the lines of docs/reference/lab-record.md, gaps included."""

from __future__ import annotations

import dataclasses
import math
import os
import struct
from collections import deque
from pathlib import Path
from typing import Any

from terrace_lab.meters.base import Frame, MeterInfo
from terrace_lab.meters.base import gap_limit_s as gap_limit_s
from terrace_lab.meters.pump import Arrived, Event, Finished, Lost, Opened, Skipped
from terrace_lab.meters.segments import SegmentWriter
from terrace_lab.records import Kind, Quality, Sample, Stamp, now, write_json

_UNWRITTEN_MAX = 10_000


class Recorder:
    """Writes one meter's segments. Not safe for several threads; all times come with the events."""

    def __init__(self, where: Path, name: str, stuck_after: int | None) -> None:
        self._where = where
        self._name = name
        self._stuck_setting = stuck_after
        self._lines = SegmentWriter(where)
        self._unwritten: deque[dict[str, Any]] = deque()
        """Events of a time when the disk was full; what was lost then must be known later."""
        self._info: MeterInfo | None = None
        self._last: Stamp | None = None
        """When the last usable frame arrived: `t1` and CLOCK_MONOTONIC_RAW."""
        self._gap_cause: str | None = None
        self._last_bits: dict[str, tuple[bytes, int]] = {}
        """By channel: bits of its value, and in how many frames before it had them."""
        # Another process counted from elsewhere, so that the first value of this one is no end of
        # anything that the one before began.
        self._counters_begun: set[str] | None = None if self._lines.is_first else set()
        self._began = now()
        self._write_event("start", self._began, pid=os.getpid())

    def take(self, event: Event) -> bool:
        """Writes what happened; false when there will be nothing more."""
        match event:
            case Opened(at, info):
                self._take_info(at, info)
            case Arrived(at, frame):
                self._take_frame(at, frame)
            case Skipped(at, count):
                self._write_event("skipped", at, bytes=count)
            case Lost(at, cause):
                self._begin_gap(at, cause)
            case Finished():
                return False
        return True

    def watch(self, at: Stamp) -> None:
        """Begins a gap where the meter has been silent for too long."""
        if self._info is None or self._gap_cause is not None:
            return
        since = (self._last or self._began).raw_ns
        limit_s = gap_limit_s(self._info.period_s)
        if at.raw_ns - since > limit_s * 1e9:
            self._begin_gap(at, f"nothing usable for {limit_s:g} s")

    def sync_if_due(self) -> None:
        self._lines.sync_if_due()

    def stop(self, cause: str | None) -> None:
        """Writes that the process ends, and why unless it was asked to."""
        self._write_event("stop", now(), **({} if cause is None else {"cause": cause}))
        self._lines.close()

    def _take_info(self, at: Stamp, info: MeterInfo) -> None:
        self._info = info
        described = {"name": self._name, **dataclasses.asdict(info)}
        try:
            write_json(self._where / "info.json", described)
        except OSError as error:
            self._begin_gap(at, f"cannot write info.json: {error}")
        self._write_event("open", at, info=described)

    def _take_frame(self, at: Stamp, frame: Frame) -> None:
        samples = tuple(self._judge(sample) for sample in frame.samples)
        newest = max(
            (sample for sample in samples if sample.quality.is_usable),
            key=lambda sample: sample.t1,
            default=None,
        )
        # Where there is no room for what is due, there is none for the end of the gap either.
        if newest is not None and self._gap_cause is not None and self._write_events():
            self._end_gap(at, newest)
        is_kept = self._write_events() and self._lines.write(
            {
                "real": at.real_ns,
                "mono": at.raw_ns,
                "raw": frame.raw.hex(),
                "samples": [sample.to_json() for sample in samples],
            }
        )
        if not is_kept:
            self._begin_gap(at, f"cannot write: {self._lines.failure}")
        elif newest is not None:
            self._last = Stamp(newest.t1, at.raw_ns)

    def _judge(self, sample: Sample) -> Sample:
        if sample.value is None:
            self._last_bits.pop(sample.channel, None)
            return sample
        if not math.isfinite(sample.value):
            return dataclasses.replace(sample, value=None, quality=Quality.NAN)
        if sample.kind is Kind.COUNTER:
            begun = self._counters_begun
            if begun is not None and sample.channel not in begun:
                begun.add(sample.channel)
                return dataclasses.replace(sample, value=None, quality=Quality.RESET)
        stuck_after = self._stuck_after(sample)
        if stuck_after > 0:
            bits = struct.pack("<d", sample.value)
            before, count = self._last_bits.get(sample.channel, (b"", 0))
            count = count + 1 if bits == before else 0
            self._last_bits[sample.channel] = (bits, count)
            if count >= stuck_after:
                return dataclasses.replace(sample, value=None, quality=Quality.STUCK)
        return sample

    def _stuck_after(self, sample: Sample) -> int:
        if self._stuck_setting is not None:
            return self._stuck_setting
        # A counter of something that rests may rest.
        if self._info is None or sample.kind is Kind.COUNTER:
            return 0
        return self._info.stuck_after

    def _begin_gap(self, at: Stamp, cause: str) -> None:
        if self._gap_cause is not None:
            # The record of a gap is where it begins and ends; a device that is away for an hour
            # need not say so each time it is asked. What brought it about first is the cause.
            return
        self._gap_cause = cause
        since = self._last.real_ns if self._last is not None else None
        self._write_event("gap_begin", at, since=since, cause=cause)

    def _end_gap(self, at: Stamp, newest: Sample) -> None:
        cause, self._gap_cause = self._gap_cause, None
        # By the clock that does not step, less what this frame itself covers.
        since = (self._last or self._began).raw_ns
        missed_ns = max(0, at.raw_ns - since - (newest.t1 - newest.t0))
        self._write_event("gap_end", at, cause=cause, missed_ns=missed_ns)

    def _write_event(self, event: str, at: Stamp, **fields: Any) -> None:
        if len(self._unwritten) < _UNWRITTEN_MAX:
            line = {"event": event, "real": at.real_ns, "mono": at.raw_ns, **fields}
            self._unwritten.append(line)
        self._write_events()

    def _write_events(self) -> bool:
        """Writes the events that are due; false where there is no room even for them."""
        while self._unwritten:
            if not self._lines.write(self._unwritten[0]):
                return False
            self._unwritten.popleft()
        return True
