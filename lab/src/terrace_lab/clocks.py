# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the clock of a host shows when that of the runner shows something.

The offset is taken from the quickest of several round trips: the answer was made somewhere between
question and arrival, so half of that trip bounds the error. Before and after each repetition, and a
straight line between. Steps of CLOCK_REALTIME do not matter, since only CLOCK_MONOTONIC_RAW is
compared; the runner's own line from that to CLOCK_REALTIME is fixed for a repetition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from terrace_lab.records import Stamp, now

ROUND_TRIPS = 20


@dataclass(frozen=True, slots=True)
class Offset:
    """CLOCK_MONOTONIC_RAW of a host against that of the runner, at one moment."""

    at_ns: int
    """By the clock of the host."""
    offset_ns: int
    """What has to be added to the host's to get the runner's."""
    bound_ns: int
    """Half of the quickest round trip."""

    def to_json(self) -> dict[str, int]:
        return {"at_ns": self.at_ns, "offset_ns": self.offset_ns, "bound_ns": self.bound_ns}


def measure(
    clock: Callable[[], Stamp], own: Callable[[], Stamp] = now, round_trips: int = ROUND_TRIPS
) -> Offset:
    """Compares the clock of a host, which `clock` asks for, with that of the runner."""
    best: Offset | None = None
    for _ in range(round_trips):
        before = own().raw_ns
        there = clock().raw_ns
        after = own().raw_ns
        trip = after - before
        if best is None or trip < 2 * best.bound_ns:
            best = Offset(there, (before + after) // 2 - there, (trip + 1) // 2)
    assert best is not None
    return best


@dataclass(frozen=True, slots=True)
class Line:
    """The offset of a host between two measurements, and a little beyond them."""

    first: Offset
    last: Offset

    def to_runner(self, raw_ns: int) -> int:
        """CLOCK_MONOTONIC_RAW of the runner for one of the host."""
        span = self.last.at_ns - self.first.at_ns
        if span <= 0:
            return raw_ns + self.first.offset_ns
        slope = (self.last.offset_ns - self.first.offset_ns) / span
        return raw_ns + self.first.offset_ns + round((raw_ns - self.first.at_ns) * slope)

    @property
    def bound_ns(self) -> int:
        return max(self.first.bound_ns, self.last.bound_ns)

    def to_json(self) -> dict[str, Any]:
        return {"first": self.first.to_json(), "last": self.last.to_json()}


@dataclass(frozen=True, slots=True)
class Zero:
    """How the runner's CLOCK_MONOTONIC_RAW is written as CLOCK_REALTIME.

    Taken before each repetition, since both clocks run apart by what NTP corrects. A clock that is
    set meanwhile then moves no mark within the repetition.
    """

    real_ns: int
    raw_ns: int

    @classmethod
    def take(cls) -> Zero:
        return cls(*now())

    def real(self, raw_ns: int) -> int:
        return self.real_ns + raw_ns - self.raw_ns

    def step_ns(self, stamp: Stamp) -> int:
        """By how much CLOCK_REALTIME has moved against this line since."""
        return stamp.real_ns - self.real(stamp.raw_ns)
