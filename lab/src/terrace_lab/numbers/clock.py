# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One axis of time for a run whose clock may have stepped.

CLOCK_REALTIME steps, CLOCK_MONOTONIC_RAW does not, and every line of the record has both. The axis
is the raw clock of the runner's machine, in seconds from the first stamp. A step is where the
difference of both clocks jumps between two stamps; what lies in the times that a step doubled or
left out has no place on the axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Nanoseconds = NDArray[np.int64]
Floats = NDArray[np.float64]

STEP_S = 0.02
"""Smaller jumps are the time between two readings of clocks, or slewing."""
SLEW = 0.002
"""Of the time between two stamps; NTP slews by at most 500 ppm (adjtimex(2))."""
THIN_S = 1.0
REORDER_NS = 1_000_000_000
"""Lines of one file may be that much out of order, because several threads wrote them."""


@dataclass(frozen=True, slots=True)
class Step:
    at_s: float
    """On the axis: the last stamp before it."""
    by_s: float


class Axis:
    """Places times of both clocks."""

    def __init__(self, streams: Sequence[tuple[Nanoseconds, Nanoseconds]]) -> None:
        """Takes the stamps, real and raw, of each file in the order of its lines."""
        real = np.concatenate([np.zeros(0, dtype=np.int64), *(one for one, _ in streams)])
        raw = np.concatenate([np.zeros(0, dtype=np.int64), *(one for _, one in streams)])
        self.has_rebooted = any((np.diff(one) < -REORDER_NS).any() for _, one in streams)
        """The raw clock began anew, so that only CLOCK_REALTIME goes through."""
        if self.has_rebooted:
            raw = real
        order = np.argsort(raw, kind="stable")
        real, raw = real[order], raw[order]
        self.origin_ns = int(raw[0]) if len(raw) else 0
        at = (raw - self.origin_ns) / 1e9
        difference = real - raw
        jumps = np.abs(np.diff(difference)) / 1e9 > STEP_S + SLEW * np.diff(at)
        ends = [*np.flatnonzero(jumps).tolist(), len(raw) - 1] if len(raw) else []
        self.steps: list[Step] = []
        self._epochs: list[tuple[float, float, Floats, Nanoseconds]] = []
        first = 0
        for index, last in enumerate(ends):
            is_final = index == len(ends) - 1
            keep = _thin(at[first : last + 1]) + first
            begin = -np.inf if index == 0 else float(at[first - 1])
            end = np.inf if is_final else float(at[last + 1])
            self._epochs.append((begin, end, at[keep], difference[keep]))
            if not is_final:
                by = float(difference[last + 1] - difference[last]) / 1e9
                self.steps.append(Step(float(at[last]), by))
            first = last + 1

    def of_real(self, real_ns: int) -> float | None:
        """Where a time of CLOCK_REALTIME lies; None where a step makes it none or two."""
        found = []
        for begin, end, at, difference in self._epochs:
            place = self._place(real_ns, at, difference)
            if begin <= place <= end:
                found.append(place)
        return found[0] if len(found) == 1 else None

    def of_stamp(self, real_ns: int, raw_ns: int) -> float:
        """Where a moment lies of which both clocks are known."""
        return ((real_ns if self.has_rebooted else raw_ns) - self.origin_ns) / 1e9

    def of_frame(self, times_ns: Nanoseconds, real_ns: Nanoseconds, raw_ns: Nanoseconds) -> Floats:
        """Where times lie that were taken together with a stamp of both clocks."""
        base = real_ns if self.has_rebooted else raw_ns
        return np.asarray((base - self.origin_ns - (real_ns - times_ns)) / 1e9)

    def real_of(self, at_s: Floats) -> Nanoseconds:
        """What CLOCK_REALTIME showed at times on the axis."""
        real = np.zeros(len(at_s), dtype=np.int64)
        for begin, _, at, difference in self._epochs:
            # Epochs overlap at a step by the time between two stamps; the later one wins.
            inside = at_s > begin
            shift = np.interp(at_s[inside], at, difference - difference[0])
            since = np.round(at_s[inside] * 1e9 + shift).astype(np.int64)
            real[inside] = self.origin_ns + int(difference[0]) + since
        return real

    def _place(self, real_ns: int, at: Floats, difference: Nanoseconds) -> float:
        # Two rounds suffice: the difference changes by less than 0.2 % of the time that passes.
        place = float(real_ns - self.origin_ns - int(difference[0])) / 1e9
        for _ in range(2):
            shift = float(np.interp(place, at, difference - difference[0]))
            place = (float(real_ns - self.origin_ns - int(difference[0])) - shift) / 1e9
        return place


def _thin(at: Floats) -> NDArray[np.int64]:
    """Indexes of stamps about `THIN_S` apart, with the first and the last."""
    if not len(at):
        return np.zeros(0, dtype=np.int64)
    _, index = np.unique(np.floor(at / THIN_S), return_index=True)
    return np.unique(np.append(index, len(at) - 1)).astype(np.int64)
