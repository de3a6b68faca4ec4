# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How late a meter is, found from a load that is switched on and off in a pattern of its own.

The pattern is a maximum-length sequence of 63 chips, which is like itself at one shift alone. A
chip lasts 4.37 periods of the meter: not being a whole number, the edges fall everywhere in its
windows, and that tells the lag to a few hundredths of a period.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from terrace_lab.records import Kind, Quality, Sample

CHIPS = 63
CHIP_PERIODS = 4.37
CONFIDENCE_LEAST = 0.4
"""A pattern that is not there correlates by less than 0.3 at the best of all lags tried."""
_COARSE_PERIODS = 0.1
_FINE_PERIODS = 0.01
_LAG_MAX_PERIODS = 40.0

_Array = npt.NDArray[np.float64]


class On(NamedTuple):
    """When the load works, in seconds since the schedule began."""

    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Lag:
    """What the pattern in the record of a meter says about it."""

    lag_s: float
    """How much later a change of the load shows than it was."""
    confidence: float
    """Correlation at that lag, up to 1; below `CONFIDENCE_LEAST` the lag means nothing."""
    swing_w: float
    """Power that the load adds."""

    @property
    def is_sure(self) -> bool:
        return self.confidence >= CONFIDENCE_LEAST


def chips() -> list[bool]:
    """One round of the sequence of x^6 + x^5 + 1."""
    state = 1
    sequence = []
    for _ in range(CHIPS):
        sequence.append(bool(state & 1))
        state = state >> 1 | ((state ^ state >> 1) & 1) << 5
    return sequence


def schedule(period_s: float, chip_periods: float = CHIP_PERIODS) -> list[On]:
    """When to work, for a meter of that period; idle before, between and behind."""
    chip_s = period_s * chip_periods
    intervals: list[On] = []
    for index, is_on in enumerate(chips()):
        begin_s, end_s = index * chip_s, (index + 1) * chip_s
        if is_on and intervals and intervals[-1].end_s == begin_s:
            intervals[-1] = On(intervals[-1].begin_s, end_s)
        elif is_on:
            intervals.append(On(begin_s, end_s))
    return intervals


def schedule_seconds(period_s: float, chip_periods: float = CHIP_PERIODS) -> float:
    """How long a round takes: 14 s at 20 Hz, 275 s at 1 Hz."""
    return CHIPS * chip_periods * period_s


def find_lag(
    samples: Sequence[Sample],
    begin_ns: int,
    intervals: Sequence[On],
    period_s: float,
    lag_max_s: float | None = None,
) -> Lag | None:
    """Looks for a schedule that began at `begin_ns` in the samples of one channel.

    Samples may be of any kind and have gaps. None where there are fewer than one for each chip, or
    nothing changes at all. `lag_max_s` is by default 40 periods; a lag may be negative by as much
    as one period, for a meter whose clock is ahead.
    """
    begins, ends, values = _windows(samples, begin_ns)
    if lag_max_s is None:
        lag_max_s = _LAG_MAX_PERIODS * period_s
    # Outside of this the load is idle at every lag, or may be at work for somebody else.
    last_s = intervals[-1].end_s + lag_max_s
    inside = (ends > -period_s) & (begins < last_s)
    begins, ends, values = begins[inside], ends[inside], values[inside]
    if len(values) < CHIPS or np.ptp(values) == 0:
        return None

    def correlate(lags: _Array) -> tuple[_Array, _Array]:
        return _correlate(begins, ends, values, intervals, lags)

    coarse = np.arange(-period_s, lag_max_s, _COARSE_PERIODS * period_s)
    best = coarse[np.argmax(correlate(coarse)[0])]
    fine_s = _FINE_PERIODS * period_s
    fine = best + np.arange(-2 * _COARSE_PERIODS * period_s, 2 * _COARSE_PERIODS * period_s, fine_s)
    correlation, swing = correlate(fine)
    peak = int(np.argmax(correlation))
    lag_s = float(fine[peak])
    if 0 < peak < len(fine) - 1:
        # The top of the parabola through the three highest.
        left, middle, right = correlation[peak - 1 : peak + 2]
        bend = left - 2 * middle + right
        if bend < 0:
            lag_s += float(0.5 * (left - right) / bend) * fine_s
    return Lag(lag_s, float(correlation[peak]), float(swing[peak]))


def _windows(samples: Sequence[Sample], begin_ns: int) -> tuple[_Array, _Array, _Array]:
    """Begins and ends in seconds since the schedule began, and mean powers."""
    rows: list[tuple[int, int, float]] = []
    last: Sample | None = None
    for sample in samples:
        if sample.value is None:
            # The difference over a new beginning of a counter says nothing.
            last = last if sample.quality is not Quality.RESET else None
            continue
        if sample.kind is not Kind.COUNTER:
            begin_ns_ = sample.t0 if sample.kind is Kind.AVERAGE else sample.t1
            rows.append((begin_ns_, sample.t1, sample.value))
            continue
        if last is not None and last.value is not None and sample.t1 > last.t1:
            seconds = (sample.t1 - last.t1) / 1e9
            rows.append((last.t1, sample.t1, (sample.value - last.value) / seconds))
        last = sample
    # Whole nanoseconds first: since 1970 they are too many for a float.
    begins = np.array([begin - begin_ns for begin, _, _ in rows], dtype=np.float64) / 1e9
    ends = np.array([end - begin_ns for _, end, _ in rows], dtype=np.float64) / 1e9
    return begins, ends, np.array([value for _, _, value in rows], dtype=np.float64)


def _correlate(
    begins: _Array, ends: _Array, values: _Array, intervals: Sequence[On], lags: _Array
) -> tuple[_Array, _Array]:
    """Normalised correlation of the values with the schedule at each lag, and its slope in watts.

    Normalised by the spread of the template too, which differs from lag to lag: without that, the
    lag that makes the template largest would win.
    """
    template = _share(begins, ends, intervals, lags)
    template -= template.mean(axis=1, keepdims=True)
    centred = values - values.mean()
    covariance = template @ centred
    spread = np.einsum("ij,ij->i", template, template)
    safe = np.where(spread > 0, spread, 1.0)
    whole = np.sqrt(safe * (centred @ centred))
    return np.where(spread > 0, covariance / whole, 0.0), covariance / safe


def _share(begins: _Array, ends: _Array, intervals: Sequence[On], lags: _Array) -> _Array:
    """How much of each window the load is at work, for each lag: one row a lag."""
    edges = np.array([edge for interval in intervals for edge in interval])
    worked = np.cumsum(
        [
            0.0,
            *(
                after - before if index % 2 == 0 else 0.0
                for index, (before, after) in enumerate(zip(edges, edges[1:], strict=False))
            ),
        ]
    )
    from_s = begins[None, :] - lags[:, None]
    to_s = ends[None, :] - lags[:, None]
    width = to_s - from_s
    # A value of one moment is on or off.
    moment = (np.searchsorted(edges, to_s, side="right") % 2).astype(np.float64)
    done = np.interp(to_s, edges, worked) - np.interp(from_s, edges, worked)
    return np.where(width > 0, done / np.where(width > 0, width, 1.0), moment)
