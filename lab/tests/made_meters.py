# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Writes what a meter would have recorded of a wave, with its faults."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from waves import Wave

from terrace_lab.records import Kind, Quality

ARRIVAL_S = 0.002


class ClockLike(Protocol):
    def real_ns(self, at_s: float) -> int: ...
    def raw_ns(self, at_s: float) -> int: ...


@dataclass(frozen=True, slots=True)
class MadeMeter:
    """A meter of one channel per scope."""

    name: str
    kind: Kind
    scopes: tuple[str, ...]
    period_s: float = 0.1
    offset_s: float = 0.0
    """When its first period begins."""
    driver: str = "replay"
    gain: float = 0.001
    offset_w: float = 0.01
    factor: float = 1.0
    """What it really shows over what it should."""
    lag_s: float = 0.0
    noise_w: float = 0.0
    backup_for: str = ""
    is_modelled: bool = False


def write_meter(
    directory: Path,
    meter: MadeMeter,
    waves: Mapping[str, Wave],
    end_s: float,
    clock: ClockLike,
    *,
    gaps: Sequence[tuple[float, float]] = (),
    nans: Sequence[tuple[float, float]] = (),
    resets: Sequence[float] = (),
    kills: Sequence[tuple[float, float]] = (),
) -> None:
    """Writes `info.json` and the segments; a kill tears its last line and begins a new segment."""
    info = {
        "kind": meter.driver,
        "identity": f"made {meter.name}",
        "period_s": meter.period_s,
        "is_modelled": meter.is_modelled,
        "channels": [
            {
                "name": scope,
                "scope": scope,
                "kind": meter.kind.value,
                "gain": meter.gain,
                "offset_w": meter.offset_w,
            }
            for scope in meter.scopes
        ],
    }
    write_json(directory / "info.json", info)
    if meter.lag_s:
        write_json(directory / "lag.json", {"lag_s": meter.lag_s, "confidence": 0.9})
    ends = np.arange(meter.offset_s + meter.period_s, end_s, meter.period_s)
    random = np.random.default_rng(len(meter.name))
    segment = _Segment(directory, clock)
    segment.event("start", 0.0, pid=1)
    silent = sorted([(*gap, False) for gap in gaps] + [(*kill, True) for kill in kills])
    values = {
        scope: _values(meter, waves[scope], ends, resets)
        + random.normal(0, meter.noise_w, len(ends))
        for scope in meter.scopes
    }
    last_s = 0.0
    for index, end in enumerate(ends):
        is_silent = any(begin <= end < over for begin, over, _ in silent)
        if is_silent:
            continue
        for begin, over, is_kill in silent:
            if last_s < begin <= end:
                if is_kill:
                    segment.tear()
                    segment.event("start", over, pid=2)
                else:
                    missed = round((over - begin) * 1e9)
                    since = clock.real_ns(last_s)
                    segment.event("gap_begin", begin + 1.0, since=since, cause="unplugged")
                    segment.event("gap_end", over, missed_ns=missed)
        last_s = float(end)
        begin_s = end - meter.period_s
        is_nan = any(a < end and begin_s < b for a, b in nans)
        quality = Quality.MODEL if meter.is_modelled else Quality.OK
        if is_nan:
            quality = Quality.NAN
        elif any(begin_s < reset <= end for reset in resets):
            quality = Quality.RESET
        samples = []
        for scope in meter.scopes:
            unit = "J" if meter.kind is Kind.COUNTER else "W"
            value = float(values[scope][index]) if quality.is_usable else None
            samples.append(
                {
                    "t0": clock.real_ns(begin_s)
                    if meter.kind is Kind.AVERAGE
                    else clock.real_ns(end),
                    "t1": clock.real_ns(end),
                    "mono": clock.raw_ns(end + ARRIVAL_S),
                    "ch": scope,
                    "scope": scope,
                    unit: value,
                    "kind": meter.kind.value,
                    "q": quality.value,
                    "src": meter.name,
                }
            )
        segment.frame(end + ARRIVAL_S, samples)
    segment.event("stop", end_s)
    segment.write()


def _values(meter: MadeMeter, wave: Wave, ends: Any, resets: Sequence[float]) -> Any:
    lagged = np.maximum(ends - meter.lag_s, 0.0)
    if meter.kind is Kind.AVERAGE:
        begins = np.maximum(lagged - meter.period_s, 0.0)
        return meter.factor * wave.energy(begins, lagged) / meter.period_s
    if meter.kind is Kind.INSTANT:
        return meter.factor * wave.power(lagged)
    joules = 1000.0 + meter.factor * wave.energy(0.0, lagged)
    for reset in sorted(resets):
        after = lagged >= reset
        joules[after] -= joules[after][0] if after.any() else 0.0
    return joules


class _Segment:
    def __init__(self, directory: Path, clock: ClockLike) -> None:
        self._directory = directory
        self._clock = clock
        self._files: list[list[str]] = [[]]

    def event(self, name: str, at_s: float, **values: Any) -> None:
        stamp = {"real": self._clock.real_ns(at_s), "mono": self._clock.raw_ns(at_s)}
        self._line({"event": name, **stamp, **values})

    def frame(self, at_s: float, samples: list[dict[str, Any]]) -> None:
        stamp = {"real": self._clock.real_ns(at_s), "mono": self._clock.raw_ns(at_s)}
        self._line({**stamp, "raw": "23", "samples": samples})

    def tear(self) -> None:
        self._files[-1].append('{"real":17600')
        self._files.append([])

    def write(self) -> None:
        for number, lines in enumerate(self._files, start=1):
            path = self._directory / f"{number:06d}.jsonl"
            path.write_text("".join(lines), encoding="utf-8")

    def _line(self, line: dict[str, Any]) -> None:
        self._files[-1].append(json.dumps(line, separators=(",", ":")) + "\n")


def write_json(path: Path, value: object) -> None:
    """As the lab does, but without waiting for the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
