# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Holds the LMG450 driver in its real process against an instrument that keeps failing.

`cd lab/tests && python -m meters.soak --seconds 600`. What the instrument sent is compared with
the record, frame by frame: nothing is in the record that was not sent, whatever is missing lies in
a gap or beside bytes that were passed over, and the record ends because it was asked to.
"""

from __future__ import annotations

import argparse
import bisect
import collections
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meters.fakes.lmg450 import FAULTS, FakeLmg450, Sent
from terrace_lab.meters.process import find_process, start_process, stop_process
from terrace_lab.meters.segments import segments
from terrace_lab.records import read_lines

CHANNELS = {"1": "s1", "2": "s2", "3": "s3", "4": "switch"}
_ARRIVAL_NS = 10**9
"""Longest way of a byte from the instrument to its line in the record, on a busy machine."""
_END_NS = 3 * 10**9
"""Longest that a meter takes to end once it is asked to: more than what counts as a gap."""


@dataclass(frozen=True)
class Outcome:
    """What a soak came to."""

    faults: dict[str, int]
    sent: int
    """Frames that left the instrument whole."""
    kept: int
    invented: int
    """In the record and never sent, or not in the order they were sent."""
    lost: int
    unexplained: int
    """Lost outside any gap, with nothing passed over beside them."""
    gaps: int
    gap_seconds: float
    skipped_bytes: int
    ends: list[str]
    """Why the record says that it ended; exactly one, without a cause, when all is well."""

    @property
    def is_good(self) -> bool:
        return not self.invented and not self.unexplained and self.ends == ["asked"]


def plan(seconds: float, seed: int, every: float) -> dict[int, str]:
    """Faults by cycle: on average one in `every` cycles, all kinds in turn."""
    chosen = random.Random(seed)
    faults: dict[int, str] = {}
    bag: list[str] = []
    cycle = 10.0
    while cycle < seconds * 20 - 60:
        if not bag:
            bag = list(FAULTS)
            chosen.shuffle(bag)
        faults[int(cycle)] = bag.pop()
        cycle += 1 + chosen.expovariate(1 / every)
    return faults


def soak(
    run: Path,
    seconds: float,
    faults: dict[int, str],
    seed: int,
    *,
    seconds_of_fault: float = 1.3,
    cycles: int = 0,
) -> Outcome:
    """Records for so long, and for so many cycles, and compares."""
    with FakeLmg450(run, fault_of=faults.get, seconds_of_fault=seconds_of_fault, seed=seed) as fake:
        settings = {"kind": "lmg450", "port": str(fake.path), "channels": CHANNELS}
        start_process(run, "lmg", settings)
        try:
            begin = time.monotonic()
            while time.monotonic() < begin + seconds or fake.cycles <= cycles:
                assert find_process(run, "lmg") is not None, "the meter has ended by itself"
                assert time.monotonic() < begin + 2 * seconds + 20, "not all cycles have come"
                time.sleep(min(0.5, seconds / 10))
        finally:
            stop_process(run, "lmg")
        sent = list(fake.sent)
    lines = [line for path in segments(run, "lmg") for line in read_lines(path)]
    return compare(sent, lines)


def compare(sent: list[Sent], lines: list[dict[str, Any]]) -> Outcome:
    """Matches what was sent with what was recorded."""
    frames = [line for line in lines if "samples" in line]
    events = [line for line in lines if "event" in line]
    whole = [one for one in sent if one.is_whole]
    # Each frame is another one, so that it can only be matched with itself.
    index_of = {one.frame: index for index, one in enumerate(whole)}
    kept: list[int] = []
    invented = 0
    for frame in frames:
        index = index_of.get(bytes.fromhex(frame["raw"]))
        if index is None or (kept and index <= kept[-1]):
            invented += 1
        else:
            kept.append(index)
    missing = sorted(set(range(len(whole))) - set(kept))
    gaps = _gaps(events, frames)
    skips = sorted(event["mono"] for event in events if event["event"] == "skipped")
    unexplained = 0
    for index in missing:
        at = whole[index].raw_ns
        # What had arrived with the last frame, or came while the device was being silenced.
        is_end = bool(kept) and index > kept[-1] and at > lines[-1]["mono"] - _END_NS
        in_gap = is_end or any(begin <= at <= end for begin, end in gaps)
        first = bisect.bisect_left(skips, at)
        is_skipped = first < len(skips) and skips[first] <= at + _ARRIVAL_NS
        unexplained += not in_gap and not is_skipped
    stops = [event for event in events if event["event"] == "stop"]
    return Outcome(
        faults=dict(collections.Counter(one.fault for one in sent if one.fault is not None)),
        sent=len(whole),
        kept=len(kept),
        invented=invented,
        lost=len(missing),
        unexplained=unexplained,
        gaps=sum(event["event"] == "gap_end" for event in events),
        gap_seconds=sum(e["missed_ns"] for e in events if e["event"] == "gap_end") / 1e9,
        skipped_bytes=sum(event["bytes"] for event in events if event["event"] == "skipped"),
        ends=[event.get("cause", "asked") for event in stops if event is lines[-1]],
    )


def _gaps(events: list[dict[str, Any]], frames: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """From the last frame before a gap, or the start, to its end, or to that of the record."""
    arrivals = [frame["mono"] for frame in frames]
    gaps = []
    first: int = events[0]["mono"]
    begin: int | None = first
    for event in events:
        if event["event"] == "gap_begin":
            before = bisect.bisect_right(arrivals, event["mono"])
            begin = arrivals[before - 1] if before else first
        elif event["event"] == "gap_end" and begin is not None:
            gaps.append((begin, event["mono"]))
            begin = None
        elif event["event"] == "open" and not gaps and begin == first:
            # Before the first frame there is nothing that could be lost.
            gaps.append((first, arrivals[0] if arrivals else event["mono"]))
            begin = None
    if begin is not None:
        gaps.append((begin, events[-1]["mono"]))
    return gaps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=float, default=60.0, help="cycles from fault to fault")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as run:
        faults = plan(arguments.seconds, arguments.seed, arguments.every)
        outcome = soak(Path(run), arguments.seconds, faults, arguments.seed)
    for name in Outcome.__dataclass_fields__:
        print(f"{name:14} {getattr(outcome, name)}")
    print("good" if outcome.is_good else "NOT GOOD")
    return 0 if outcome.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
