# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Plays a record back as if it happened now, with faults where they are asked for.

What it delivers is no measurement of what runs now, so it is stamped as modelled.
"""

from __future__ import annotations

import dataclasses
import json
import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from terrace_lab.errors import MeterLost
from terrace_lab.hosts import AgentHost
from terrace_lab.meters import csv_import
from terrace_lab.meters.base import Channel, Frame, MeterInfo, gap_limit_s
from terrace_lab.records import Kind, Quality, Sample, now, read_lines
from terrace_lab.settings import Settings

FAULTS = ("drop", "late", "lost", "nan", "reset", "split", "stuck")
_LATE_MAX_S = 10.0


class Faults:
    """Which frames go wrong, and how: by number, or by chance with a seed."""

    def __init__(self, settings: Settings, seed: int) -> None:
        self._chance: dict[str, float] = {}
        self._numbers: dict[str, frozenset[int]] = {}
        self._random = random.Random(seed)
        for fault in settings.values:
            if fault not in FAULTS:
                raise settings.error(fault, f"is no fault, only {', '.join(FAULTS)}")
            value = settings.raw(fault)
            if isinstance(value, list) and all(type(one) is int for one in value):
                self._numbers[fault] = frozenset(value)
            elif isinstance(value, int | float) and 0 <= value <= 1:
                self._chance[fault] = float(value)
            else:
                raise settings.error(fault, "must be a list of frames from 0, or a chance up to 1")

    def of(self, number: int) -> set[str]:
        """The faults of one frame."""
        by_chance = {
            fault for fault, chance in self._chance.items() if self._random.random() < chance
        }
        return by_chance | {fault for fault, all_ in self._numbers.items() if number in all_}


class ReplayMeter:
    """Frames of a record at the pace they had."""

    def __init__(
        self,
        name: str,
        frames: list[Frame],
        info: MeterInfo,
        faults: Faults,
        *,
        speed: float,
        is_loop: bool,
        late_s: float,
    ) -> None:
        self._name = name
        self._frames = frames
        self._info = info
        self._faults = faults
        self._speed = speed
        self._is_loop = is_loop
        self._late_s = late_s
        self._next = 0
        self._origin_ns: int | None = None
        self._skipped = 0
        self._before: tuple[Sample, ...] = ()
        self._bases: dict[str, float] = {}

    def describe(self) -> MeterInfo:
        return self._info

    def open(self) -> None:
        if not self._frames:
            raise MeterLost(f"cannot replay: no frame in the record name={self._name}")
        if self._origin_ns is None:
            self._origin_ns = now().raw_ns

    def resync(self) -> None:
        """There is nothing to bring back: the record goes on where it was."""

    def close(self) -> None:
        """There is nothing to let go of."""

    def skipped(self) -> int:
        count, self._skipped = self._skipped, 0
        return count

    def stream(self) -> Iterator[Frame]:
        begin_ns = _end_ns(self._frames[0])
        whole_ns = _end_ns(self._frames[-1]) - begin_ns + round(self._info.period_s * 1e9)
        while self._is_loop or self._next < len(self._frames):
            number = self._next
            rounds, index = divmod(number, len(self._frames))
            frame = self._frames[index]
            since_ns = rounds * whole_ns + _end_ns(frame) - begin_ns
            assert self._origin_ns is not None, "stream is called on what is open"
            self._wait(self._origin_ns + round(since_ns / self._speed) if self._speed else None)
            self._next += 1
            faults = self._faults.of(number)
            if "late" in faults:
                time.sleep(self._late_s)
            if "lost" in faults:
                raise MeterLost(f"cannot read a meter: lost as asked frame={number}")
            if "split" in faults:
                self._skipped += max(1, len(frame.raw))
            elif "drop" not in faults:
                is_new_round = rounds > 0 and index == 0
                samples = self._samples(frame, faults, since_ns, is_new_round)
                yield Frame(frame.raw, samples)

    def _wait(self, due_ns: int | None) -> None:
        if due_ns is None:
            return
        wait_s = (due_ns - now().raw_ns) / 1e9
        limit_s = gap_limit_s(self._info.period_s)
        if wait_s > limit_s:
            time.sleep(limit_s)
            raise MeterLost(f"cannot read a meter: nothing was recorded for {wait_s:.3f} s")
        if wait_s > 0:
            time.sleep(wait_s)

    def _samples(
        self, frame: Frame, faults: set[str], since_ns: int, is_new_round: bool
    ) -> tuple[Sample, ...]:
        at = now()
        assert self._origin_ns is not None, "stream is called on what is open"
        # Where the frame belongs by the pace of the record, in the time of this machine.
        pace = self._speed or 1.0
        end_ns = at.real_ns - at.raw_ns + self._origin_ns + round(since_ns / pace)
        samples = []
        for position, sample in enumerate(frame.samples):
            value, quality = sample.value, sample.quality
            if "stuck" in faults and position < len(self._before):
                value = self._before[position].value
            if sample.kind is Kind.COUNTER and value is not None:
                if "reset" in faults or is_new_round:
                    self._bases[sample.channel] = value
                    value, quality = None, Quality.RESET
                else:
                    value -= self._bases.get(sample.channel, 0.0)
            if "nan" in faults:
                value, quality = None, Quality.NAN
            if value is None and quality.is_usable:
                quality = Quality.NAN
            samples.append(
                dataclasses.replace(
                    sample,
                    t0=end_ns - round((sample.t1 - sample.t0) / pace),
                    t1=end_ns,
                    mono=at.raw_ns,
                    value=value,
                    quality=Quality.MODEL if quality is Quality.OK else quality,
                    source=self._name,
                )
            )
        self._before = tuple(samples)
        return self._before


def _end_ns(frame: Frame) -> int:
    return max(sample.t1 for sample in frame.samples)


def _recorded(path: Path) -> tuple[list[Frame], dict[str, Any]]:
    """All frames of a directory `meters/NAME` of a run, and its `info.json`."""
    try:
        info: dict[str, Any] = json.loads((path / "info.json").read_text())
    except (OSError, ValueError) as error:
        raise MeterLost(f"cannot replay: {error} path={path}") from error
    frames = []
    for segment in sorted(path.glob("*.jsonl")):
        for line in read_lines(segment):
            if line.get("samples"):
                samples = tuple(Sample.from_json(one) for one in line["samples"])
                frames.append(Frame(bytes.fromhex(line["raw"]), samples))
    # By time, for a record that a step of the clock has put out of order.
    return sorted(frames, key=_end_ns), info


def make(name: str, settings: Settings, _hosts: Mapping[str, AgentHost]) -> ReplayMeter:
    """Plays the directory of a meter, or a CSV file with the settings of kind `csv`."""
    path = Path(settings.text("path"))
    speed = settings.number("speed", 1.0)
    is_loop = settings.flag("loop", True)
    late_s = settings.seconds("late", 2.0)
    if late_s > _LATE_MAX_S:
        raise settings.error("late", f"must be at most {_LATE_MAX_S:g} s")
    faults = Faults(settings.table("faults"), settings.integer("seed", 0))
    try:
        if path.is_dir():
            frames, line = _recorded(path)
            channels = tuple(
                Channel(one["name"], one["scope"], Kind(one["kind"]), one["gain"], one["offset_w"])
                for one in line["channels"]
            )
            period_s = float(line["period_s"])
        else:
            layout = csv_import.read_layout(name, settings)
            frames = [frame for frame in csv_import.Rows(layout).frames() if frame.samples]
            channels = layout.channels
            period_s = csv_import.period_s(layout) or 1.0
    except MeterLost as lost:
        raise settings.error("path", str(lost)) from lost
    info = MeterInfo("replay", channels, period_s, str(path), is_modelled=True)
    return ReplayMeter(name, frames, info, faults, speed=speed, is_loop=is_loop, late_s=late_s)
