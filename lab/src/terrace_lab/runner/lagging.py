# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Finds how late each meter is, by a load of which the lab knows when it worked.

The load keeps all processors of the hosts busy in the pattern of `meters/lag.py`. It takes 275
periods of the meter, so that a plug with one sample a second takes five minutes, once in a run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from terrace_lab import clocks
from terrace_lab.errors import LabError
from terrace_lab.hosts import AgentHost, Command, run_together
from terrace_lab.meters import lag
from terrace_lab.meters.segments import directory, segments
from terrace_lab.records import Sample, Stamp, now, read_lines, write_json

SETTLE_PERIODS = 40
"""Behind the pattern, for a meter that is late by so much."""

_LOAD = """
import json, os, sys, time
intervals = json.loads(sys.argv[1])
begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) + 300_000_000
for _ in range((os.cpu_count() or 1) - 1):
    if os.fork() == 0:
        break
else:
    print(begin, flush=True)
def until(ns):
    while (left := ns - time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)) > 0:
        yield left
for on, off in intervals:
    for left in until(begin + int(on * 1e9)):
        time.sleep(left / 1e9)
    for _ in until(begin + int(off * 1e9)):
        pass
"""


@dataclass(frozen=True, slots=True)
class Found:
    """What the lag of one meter is, by its channel that shows the load best."""

    channel: str
    lag: lag.Lag


def measure(run: Path, name: str, period_s: float, hosts: Sequence[AgentHost]) -> Found | None:
    """Loads the hosts, and writes `lag.json` beside the samples of the meter.

    None, and nothing is written, where no channel shows the load.
    """
    intervals = lag.schedule(period_s)
    begin_ns = _load(hosts, intervals, lag.schedule_seconds(period_s))
    time.sleep(SETTLE_PERIODS * period_s)
    found = find(samples_since(run, name, begin_ns), begin_ns, intervals, period_s)
    if found is None:
        return None
    write_json(
        directory(run, name) / "lag.json",
        {
            "lag_s": found.lag.lag_s,
            # Of one measurement: what lab-meters.md has for a swing of 1.5 times the noise.
            "bound_s": 0.4 * period_s,
            "confidence": found.lag.confidence,
            "channel": found.channel,
            "swing_w": found.lag.swing_w,
        },
    )
    return found


def find(
    samples: Sequence[Sample], begin_ns: int, intervals: Sequence[lag.On], period_s: float
) -> Found | None:
    """The lag by the channel with the highest correlation; None where none is sure."""
    best: Found | None = None
    for channel in dict.fromkeys(one.channel for one in samples):
        own = [one for one in samples if one.channel == channel]
        one = lag.find_lag(own, begin_ns, intervals, period_s, SETTLE_PERIODS * period_s)
        if one is None or not one.is_sure:
            continue
        if best is None or one.confidence > best.lag.confidence:
            best = Found(channel, one)
    return best


def samples_since(run: Path, name: str, begin_ns: int) -> list[Sample]:
    """All samples of a meter that end behind a time."""
    return [
        sample
        for path in segments(run, name)
        for line in read_lines(path)
        for sample in map(Sample.from_json, line.get("samples", ()))
        if sample.t1 > begin_ns
    ]


def _load(hosts: Sequence[AgentHost], intervals: Sequence[lag.On], seconds: float) -> int:
    """Works on all hosts by the schedule; returns when it began, by the runner's wall clock."""
    zero = clocks.Zero.take()
    argv = ["python3", "-c", _LOAD, json.dumps([[one.begin_s, one.end_s] for one in intervals])]
    command = Command(argv, timeout_s=seconds + 60)
    ended = run_together([(host, command) for host in hosts])
    begins = []
    for host, one in zip(hosts, ended, strict=True):
        if one.code != 0:
            raise LabError(f"cannot load a host: {one.stderr.strip()} host={host.name}")
        offset = clocks.measure(_clock(host))
        begins.append(zero.real(int(one.stdout) + offset.offset_ns))
    return sum(begins) // len(begins)


def _clock(host: AgentHost) -> Callable[[], Stamp]:
    return now if host.is_local else host.clock
