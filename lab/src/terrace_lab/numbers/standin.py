# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A second meter in place of a first that was lost, by what both showed while both were well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from terrace_lab.numbers.series import Floats, Series

WINDOW_PERIODS = 10
LEAST_WINDOWS = 10
MOST_WINDOWS = 5000
LEAST_SPREAD = 0.2
"""Of the power, below which a line through the windows would be drawn through noise."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The first meter's power as a line over the second's."""

    factor: float
    offset_w: float
    residual_w: float
    """Two standard deviations of single windows: what a phase may be off, as windows may be off
    together."""
    windows: int

    def joules(self, joules: float, seconds: float) -> float:
        return self.factor * joules + self.offset_w * seconds

    def error_j(self, error_j: float, seconds: float) -> float:
        return float(np.hypot(self.factor * error_j, self.residual_w * seconds))


def calibrate(first: Sequence[Series], second: Sequence[Series]) -> Calibration | None:
    """Compares the sums of two groups of channels; None where they share too little time."""
    channels = [*first, *second]
    if any(len(one.end_s) == 0 for one in channels):
        return None
    begin = max(float(one.begin_s[0]) for one in channels)
    end = min(float(one.end_s[-1]) for one in channels)
    length = WINDOW_PERIODS * max(one.channel.period_s for one in channels)
    length = max(length, (end - begin) / MOST_WINDOWS)
    edges = np.arange(begin, end, length)
    if len(edges) <= LEAST_WINDOWS:
        return None
    healthy = np.ones(len(edges) - 1, dtype=bool)
    for one in channels:
        covered = np.diff(_covered_until(one, edges))
        # A tenth of a window is one period of the slower meter.
        healthy &= covered > 0.99 * length
    if healthy.sum() < LEAST_WINDOWS:
        return None
    real = _power(first, edges, length)[healthy]
    other = _power(second, edges, length)[healthy]
    if np.ptp(other) > LEAST_SPREAD * abs(other.mean()):
        factor, offset = np.polyfit(other, real, 1)
    else:
        factor, offset = real.mean() / other.mean(), 0.0
    residual = real - (factor * other + offset)
    return Calibration(
        factor=float(factor),
        offset_w=float(offset),
        residual_w=float(2 * np.sqrt((residual**2).sum() / max(1, len(residual) - 2))),
        windows=int(healthy.sum()),
    )


def _power(channels: Sequence[Series], edges: Floats, length: float) -> Floats:
    total = sum((np.diff(one.joules_until(edges)) for one in channels), start=np.zeros(1))
    return np.asarray(total / length)


def _covered_until(one: Series, at_s: Floats) -> Floats:
    times = np.stack([one.begin_s, one.end_s], axis=1).ravel()
    ends = np.cumsum(one.end_s - one.begin_s)
    seconds = np.stack([ends - (one.end_s - one.begin_s), ends], axis=1).ravel()
    return np.asarray(np.interp(at_s, times, seconds))
