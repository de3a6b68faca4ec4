# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads what fio prints: JSON, with whatever else it prints before, between and behind."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from terrace_lab.errors import ParseError
from terrace_lab.workloads.distribution import PERCENTILES, Described, of_bins

# Some versions print what C's printf makes of a float that is none, which is not JSON.
_NOT_JSON = re.compile(r"(?<=[:,\[])(\s*)-?(?:nan|inf)\b")


@dataclass(slots=True)
class Side:
    """Reads or writes of one run, over all of its jobs."""

    bytes_done: int
    operations: int
    bins: Counter[int] = field(default_factory=Counter)
    """Operations by latency in ns; empty where fio was not asked for them or has none."""
    percentiles: Mapping[float, int] = field(default_factory=dict)
    """Latency in ns by percentile, where all jobs were reported as one."""


@dataclass(slots=True)
class Output:
    version: str
    read: Side
    write: Side
    errors: list[int]
    """Numbers of the errors (errno) of jobs that had one."""
    notes: list[str]


def parse(text: str) -> Output:
    """What a run did; `ParseError` where the output does not say so.

    With `--status-interval` there are several objects; the last one is of the whole run.
    """
    objects = [one for one in _objects(text) if one.get("jobs")]
    if not objects:
        raise ParseError(
            f"cannot read the output of fio: no JSON object with jobs begins={text.strip()[:80]!r}"
        )
    last = objects[-1]
    jobs = last["jobs"]
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise ParseError("cannot read the output of fio: `jobs` is not a list of objects")
    errors = [int(job["error"]) for job in jobs if job.get("error")]
    return Output(
        version=str(last.get("fio version", "unknown")),
        read=_side(jobs, "read"),
        write=_side(jobs, "write"),
        errors=errors,
        notes=_notes(jobs),
    )


def latencies(sides: Sequence[Side]) -> Described:
    """Percentiles and distribution in seconds over the sides of several runs.

    Histograms add up; percentiles do not, so that these are taken over from fio for one side only.
    Both are empty where there is nothing to make them from.
    """
    busy = [side for side in sides if side.operations]
    if busy and all(side.bins for side in busy):
        return of_bins(sum((side.bins for side in busy), Counter()))
    if len(busy) == 1 and busy[0].percentiles:
        steps = sorted((ns / 1e9, percent / 100) for percent, ns in busy[0].percentiles.items())
        named = {
            f"p{percent:g}": busy[0].percentiles[percent] / 1e9
            for percent in PERCENTILES
            if percent in busy[0].percentiles
        }
        return named, steps
    return {}, []


def _objects(text: str) -> list[dict[str, Any]]:
    """All JSON objects that begin at the begin of a line."""
    text = _NOT_JSON.sub(r"\1null", text)
    decoder = json.JSONDecoder()
    found: list[dict[str, Any]] = []
    position = 0
    while True:
        match = re.compile(r"^\s*\{", re.MULTILINE).search(text, position)
        if match is None:
            return found
        try:
            value, position = decoder.raw_decode(text, match.end() - 1)
        except ValueError:
            # A warning may begin with a brace; a cut object has no end.
            position = match.end()
            continue
        if isinstance(value, dict):
            found.append(value)


def _side(jobs: Sequence[dict[str, Any]], name: str) -> Side:
    side = Side(0, 0)
    for job in jobs:
        # A job that only reads has no `write` in some versions.
        part = job.get(name, {})
        if not isinstance(part, dict):
            raise ParseError(f"cannot read the output of fio: `{name}` is not an object")
        # Before 3.0 `io_bytes` was in KiB, and there was no `io_kbytes` beside it.
        if "io_bytes" in part and "io_kbytes" in part:
            side.bytes_done += _count(part, "io_bytes", name)
        elif "io_kbytes" in part:
            side.bytes_done += 1024 * _count(part, "io_kbytes", name)
        elif part:
            raise ParseError(f"cannot read the output of fio: no bytes of {name} in it")
        if part:
            side.operations += _count(part, "total_ios", name)
        latency = part.get("clat_ns") or part.get("lat_ns") or {}
        side.bins.update({int(ns): int(count) for ns, count in latency.get("bins", {}).items()})
        if len(jobs) == 1:
            side.percentiles = {
                float(percent): int(ns) for percent, ns in latency.get("percentile", {}).items()
            }
    return side


def _count(part: Mapping[str, Any], key: str, name: str) -> int:
    value = part.get(key)
    if not isinstance(value, int | float) or value < 0:
        raise ParseError(f"cannot read the output of fio: {name} has no number {key}={value!r}")
    return int(value)


def _notes(jobs: Sequence[dict[str, Any]]) -> list[str]:
    notes = []
    for name in ("read", "write"):
        for key, what in (("short_ios", "short"), ("drop_ios", "dropped")):
            count = sum(int(job.get(name, {}).get(key) or 0) for job in jobs)
            if count:
                notes.append(f"fio counted {count} {what} {name}s")
    return notes
