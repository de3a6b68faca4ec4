# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One channel of a meter as pieces of known energy, whatever kind of samples it delivered.

An average is a rectangle over its time, two instants are a trapezoid, and two readings of a counter
are their difference. What lies between two pieces is a hole: nothing is known of it, and nothing is
put there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from terrace_lab.records import Kind

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

SEAM_PERIODS = 0.5
"""Averages that lie closer than this are neighbours whose stamps jitter."""
INSTANT_PERIODS = 1.5
"""Instants further apart have a lost one between them."""


@dataclass(frozen=True, slots=True)
class Readings:
    """Samples of one channel in order of time, in seconds on one axis."""

    kind: Kind
    begin_s: Floats
    """Of what the value covers; not looked at unless `kind` is an average."""
    end_s: Floats
    value: Floats
    """Watts or joules; anything where not usable."""
    is_usable: Flags
    """Of a counter, an unusable one is where it began anew; others are left out, for it goes on."""


@dataclass(frozen=True, slots=True)
class Channel:
    """What a meter claims for a channel."""

    meter: str
    name: str
    scope: str
    period_s: float
    gain: float
    offset_w: float
    lag_s: float = 0.0
    """The meter shows late by this much; times are moved back by it."""
    lag_bound_s: float = 0.0
    is_modelled: bool = False


@dataclass(frozen=True)
class Series:
    """Pieces in order of time that do not overlap."""

    channel: Channel
    kind: Kind
    begin_s: Floats
    end_s: Floats
    energy_j: Floats
    swing_w: Floats
    """Of instants: how far the two ends of the trapezoid are apart; zero for other kinds."""
    resolution_j: float
    """Step of a counter that does not move at each reading; zero otherwise."""

    @cached_property
    def power_w(self) -> Floats:
        return np.asarray(self.energy_j / (self.end_s - self.begin_s))

    def overlapping(self, begin_s: float, end_s: float) -> slice:
        """The pieces that have a part in that time."""
        first = int(np.searchsorted(self.end_s, begin_s, side="right"))
        last = int(np.searchsorted(self.begin_s, end_s, side="left"))
        return slice(first, max(first, last))

    def within(self, begin_s: float, end_s: float) -> slice:
        """The pieces that lie in that time as a whole."""
        first = int(np.searchsorted(self.begin_s, begin_s, side="left"))
        last = int(np.searchsorted(self.end_s, end_s, side="right"))
        return slice(first, max(first, last))

    def mean_w(self, begin_s: float, end_s: float) -> float | None:
        """Mean power of the pieces within that time, None where there is none."""
        inside = self.within(begin_s, end_s)
        seconds = float((self.end_s[inside] - self.begin_s[inside]).sum())
        return float(self.energy_j[inside].sum()) / seconds if seconds > 0 else None

    def joules_until(self, at_s: Floats) -> Floats:
        """Energy from the begin on, pieces cut where `at_s` is inside of one."""
        times, joules = self._edges
        return np.asarray(np.interp(at_s, times, joules))

    @cached_property
    def _edges(self) -> tuple[Floats, Floats]:
        """Energy until begin and until end of each piece, so that it stays flat in holes."""
        ends = np.cumsum(self.energy_j)
        joules = np.stack([ends - self.energy_j, ends], axis=1).ravel()
        return np.stack([self.begin_s, self.end_s], axis=1).ravel(), joules


def series(readings: Readings, channel: Channel, gap_s: float = 1.0) -> Series:
    """Makes pieces of samples; counters may be read up to `gap_s` apart."""
    shifted_end = readings.end_s - channel.lag_s
    if readings.kind is Kind.AVERAGE:
        return _averages(readings, channel, shifted_end)
    usable = readings.is_usable
    if readings.kind is Kind.INSTANT:
        limit = INSTANT_PERIODS * channel.period_s
        pair = usable[1:] & usable[:-1] & _is_near(shifted_end, limit)
        left, right = readings.value[:-1][pair], readings.value[1:][pair]
        begin, end = shifted_end[:-1][pair], shifted_end[1:][pair]
        energy = (left + right) / 2 * (end - begin)
        return Series(
            channel, readings.kind, begin, end, energy, np.abs(right - left), resolution_j=0.0
        )
    return _counter(readings, channel, shifted_end, gap_s)


def _averages(readings: Readings, channel: Channel, end: Floats) -> Series:
    begin = readings.begin_s - channel.lag_s
    usable = readings.is_usable & (end > begin)
    begin, end, power = begin[usable], end[usable], readings.value[usable]
    if len(end) > 1:
        seam = begin[1:] - end[:-1]
        is_closed = (np.abs(seam) < SEAM_PERIODS * channel.period_s) | (seam < 0)
        begin = begin.copy()
        begin[1:][is_closed] = end[:-1][is_closed]
        keep = end > begin
        begin, end, power = begin[keep], end[keep], power[keep]
    energy = power * (end - begin)
    return Series(channel, readings.kind, begin, end, energy, np.zeros(len(end)), resolution_j=0.0)


def _counter(readings: Readings, channel: Channel, at: Floats, gap_s: float) -> Series:
    usable = readings.is_usable
    # A reading that did not move is not a reading of zero watts: the counter had not been updated.
    is_new = np.ones(len(at), dtype=bool)
    if len(at) > 1:
        is_stale = usable[1:] & usable[:-1] & (readings.value[1:] == readings.value[:-1])
        is_new[1:] = ~is_stale
    has_stale = bool((~is_new).any())
    at, value, usable = at[is_new], readings.value[is_new], usable[is_new]
    limit = max(gap_s, INSTANT_PERIODS * channel.period_s)
    pair = usable[1:] & usable[:-1] & _is_near(at, limit)
    pair &= np.where(pair, np.diff(value) > 0, False)
    energy = np.diff(value)[pair]
    resolution = float(energy.min()) if has_stale and len(energy) else 0.0
    return Series(
        channel,
        readings.kind,
        at[:-1][pair],
        at[1:][pair],
        energy,
        np.zeros(len(energy)),
        resolution_j=resolution,
    )


def _is_near(at: Floats, limit_s: float) -> Flags:
    step = np.diff(at)
    return np.asarray((step > 0) & (step <= limit_s))
