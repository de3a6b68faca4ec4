# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Energy of phases from the samples of one channel, with its error.

Samples are not cut at the marks of a phase where there is idle time beside it: the sample across a
mark mixes load and idle, and cutting it books too little on the phase, always. Whole samples are
summed across phase and guards, and what the guards alone take is subtracted. Where two phases meet
without a guard the sample is cut, and the bound of that is in the error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from terrace_lab.numbers.series import Floats, Series

LEAST_GUARD_PIECES = 2
NEAR_PIECES = 2
"""On either side of a cut sample: they tell how much the power changes there."""
SLACK_PERIODS = 2.0
SLACK_S = 0.1
"""A guard that ends longer before the phase than this, and than two periods, is not beside it."""
NEAREST_PERIODS = 4.0
"""Then the samples within so many periods take its place."""


@dataclass(frozen=True, slots=True)
class Rules:
    """When there is no energy."""

    min_coverage: float = 0.99
    max_gap_s: float = 1.0
    min_periods: float = 10.0


@dataclass(frozen=True, slots=True)
class Guard:
    """Idle time beside a phase."""

    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Part:
    """One phase among those that follow each other without a guard."""

    begin_s: float
    end_s: float
    bound_s: float
    """What each end may be off by."""

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s


@dataclass(frozen=True, slots=True)
class Taken:
    """Energy of one part; nothing but `void`, `coverage` and `notes` counts where it is void."""

    joules: float
    error_j: float
    """Limits of gain, offset, guards, clocks and sampling, as root of the sum of squares."""
    is_guarded: bool
    coverage: float
    void: str | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Edge:
    """One end of a part."""

    guard_w: float | None
    """None where it is cut."""
    outside_s: float
    """Time outside of the part whose energy was summed and subtracted."""
    outside_j: float
    noise_j: float
    bound_j: float
    """Of cutting."""
    neighbour_w: float | None
    slack_s: float = 0.0


def energies(
    series: Series,
    parts: Sequence[Part],
    before: Guard | None,
    after: Guard | None,
    rules: Rules,
) -> list[Taken]:
    """Energy of each of the parts that follow each other between two guards."""
    return [
        _energy(
            series,
            part,
            before if index == 0 else None,
            after if index == len(parts) - 1 else None,
            rules,
        )
        for index, part in enumerate(parts)
    ]


def _energy(
    series: Series, part: Part, before: Guard | None, after: Guard | None, rules: Rules
) -> Taken:
    channel = series.channel
    coverage, longest_hole = _coverage(series, part)
    void = _void(series, part, coverage, longest_hole, rules)
    if void is not None:
        return Taken(0.0, 0.0, False, coverage, void)
    inside = series.overlapping(part.begin_s, part.end_s)
    begin, end = series.begin_s[inside], series.end_s[inside]
    share = (np.minimum(end, part.end_s) - np.maximum(begin, part.begin_s)) / (end - begin)
    joules = float((series.energy_j[inside] * share).sum())
    left = _edge(series, part, before, is_left=True)
    right = _edge(series, part, after, is_left=False)
    # What cutting booked outside comes back, less what idling takes in that time.
    joules += sum(edge.outside_j - (edge.guard_w or 0.0) * edge.outside_s for edge in (left, right))
    covered_s = coverage * part.seconds
    mean_w = joules / covered_s
    missing_s = part.seconds - covered_s
    joules += mean_w * missing_s
    power = series.power_w[inside]
    clock_s = part.bound_s + channel.lag_bound_s
    terms = [
        channel.gain * joules,
        channel.offset_w * part.seconds,
        missing_s * float(power.max() - power.min()),
        # Two standard deviations, each trapezoid with a jump at any place in it.
        2 * float(np.sqrt(((series.swing_w[inside] * (end - begin)) ** 2).sum() / 12)),
        series.resolution_j,
    ]
    for edge in (left, right):
        difference_w = abs(mean_w - edge.neighbour_w) if edge.neighbour_w is not None else mean_w
        terms += [edge.noise_j, edge.bound_j, difference_w * (clock_s + edge.slack_s)]
    return Taken(
        joules=joules,
        error_j=float(np.sqrt(sum(term**2 for term in terms))),
        is_guarded=left.guard_w is not None and right.guard_w is not None,
        coverage=coverage,
    )


def _edge(series: Series, part: Part, guard: Guard | None, is_left: bool) -> _Edge:
    mark = part.begin_s if is_left else part.end_s
    if guard is not None:
        edge = _guarded_edge(series, part, guard, mark, is_left)
        if edge is not None:
            return edge
    pieces = series.overlapping(mark, mark)
    power = series.power_w
    outer = pieces.start - 1 if is_left else pieces.stop
    neighbour_w = float(power[outer]) if 0 <= outer < len(power) else None
    if pieces.start == pieces.stop:
        return _Edge(None, 0.0, 0.0, 0.0, 0.0, neighbour_w)
    length_s = float(series.end_s[pieces.start] - series.begin_s[pieces.start])
    # f(1-f) dP dt for a mark at the part f of the sample: dt/4 at most, dt/6 on average.
    bound_j = _change_w(power, pieces) * length_s / 4
    return _Edge(None, 0.0, 0.0, 0.0, bound_j, neighbour_w)


def _change_w(power: Floats, cut: slice) -> float:
    """How far the power of both sides may be apart within the cut sample.

    The range of the samples around it, and what either side changes by from one to the next: their
    means hide as much of where the power is at the mark.
    """
    before = power[max(0, cut.start - NEAR_PIECES) : cut.start]
    behind = power[cut.stop : cut.stop + NEAR_PIECES]
    within = np.abs(np.concatenate([np.diff(before), np.diff(behind), [0.0]]))
    around = np.concatenate([before, power[cut], behind])
    return float(np.ptp(around) + within.max())


def _guarded_edge(
    series: Series, part: Part, guard: Guard, mark: float, is_left: bool
) -> _Edge | None:
    channel = series.channel
    slack_s = max(0.0, part.begin_s - guard.end_s if is_left else guard.begin_s - part.end_s)
    if slack_s > max(SLACK_PERIODS * channel.period_s, SLACK_S):
        # What starts the load takes power of its own: what it took last is what is subtracted.
        reach_s = min(slack_s, NEAREST_PERIODS * channel.period_s + part.bound_s)
        guard = Guard(mark - reach_s, mark) if is_left else Guard(mark, mark + reach_s)
        slack_s = 0.0
    margin_s = part.bound_s + channel.lag_bound_s
    # Pieces near the mark may have some of the load in them, by what the clocks may be off.
    if is_left:
        clean = series.within(guard.begin_s, min(guard.end_s, mark) - margin_s)
        mixed = slice(clean.stop, series.overlapping(mark, mark).stop)
        mixed = slice(mixed.start, max(mixed.start, mixed.stop))
    else:
        clean = series.within(max(guard.begin_s, mark) + margin_s, guard.end_s)
        mixed = slice(min(series.overlapping(mark, mark).start, clean.start), clean.start)
    count = clean.stop - clean.start
    if count < LEAST_GUARD_PIECES:
        return None
    lengths = series.end_s[clean] - series.begin_s[clean]
    guard_w = float(series.energy_j[clean].sum() / lengths.sum())
    begin, end = series.begin_s[mixed], series.end_s[mixed]
    if is_left:
        outside = np.clip(np.minimum(end, mark) - begin, 0.0, None)
    else:
        outside = np.clip(end - np.maximum(begin, mark), 0.0, None)
    share = np.divide(outside, end - begin)
    outside_s = float(outside.sum())
    spread_w = float(series.power_w[clean].std(ddof=1)) / np.sqrt(count)
    return _Edge(
        guard_w=guard_w,
        outside_s=outside_s,
        outside_j=float((series.energy_j[mixed] * share).sum()),
        noise_j=2 * spread_w * outside_s,
        bound_j=0.0,
        neighbour_w=guard_w,
        slack_s=slack_s,
    )


def _coverage(series: Series, part: Part) -> tuple[float, float]:
    """The covered part of the time, and the longest hole in seconds."""
    inside = series.overlapping(part.begin_s, part.end_s)
    begin = np.maximum(series.begin_s[inside], part.begin_s)
    end = np.minimum(series.end_s[inside], part.end_s)
    if not len(begin):
        return 0.0, part.seconds
    covered = float((end - begin).sum()) / part.seconds if part.seconds > 0 else 0.0
    # A hole that reaches out of the part is as long as it is, however little of it is inside.
    first, last = max(0, inside.start - 1), min(len(series.end_s), inside.stop + 1)
    since, until = series.end_s[first : last - 1], series.begin_s[first + 1 : last]
    is_touched = (since < part.end_s) & (until > part.begin_s)
    holes = (until - since)[is_touched]
    # Nor is anything known before the first piece of all, and behind the last.
    ends = [series.begin_s[0] - part.begin_s, part.end_s - series.end_s[-1]]
    return min(1.0, covered), float(max(*ends, holes.max(initial=0.0)))


_SHORT = "shorter than"


def is_for_want_of_samples(void: str, meters: Iterable[str]) -> bool:
    """Whether energy is void for what one of these meters did not deliver.

    Then another try may have it, which it has not where a phase is too short.
    """
    words = void.split()
    return not void.startswith(_SHORT) and any(f"meter={name}" in words for name in meters)


def _void(
    series: Series, part: Part, coverage: float, longest_hole_s: float, rules: Rules
) -> str | None:
    channel = series.channel
    where = f"meter={channel.meter} scope={channel.scope}"
    periods = part.seconds / channel.period_s
    limit_s = max(rules.max_gap_s, 1.5 * channel.period_s)
    if coverage == 0.0:
        return f"no samples {where}"
    # A phase of exactly the least length must not fall to the last bit of its marks.
    if periods < rules.min_periods - 1e-6:
        return f"{_SHORT} {rules.min_periods:g} periods {where} periods={periods:.1f}"
    if longest_hole_s > limit_s:
        return f"gap {where} seconds={longest_hole_s:.3g}"
    if coverage < rules.min_coverage:
        return f"too few samples {where} coverage={coverage:.4f}"
    return None
