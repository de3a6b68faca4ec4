# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The highest rate at which requests stay under a bound of latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from terrace_lab.summary import Interval


@dataclass(frozen=True, slots=True)
class Bound:
    latency_s: float
    percentile: float
    """This part of the requests, in per cent, must be at or below it."""

    @property
    def name(self) -> str:
        return f"p{self.percentile:g}"


@dataclass(frozen=True, slots=True)
class Point:
    """One load of a series of loads."""

    load: float
    """Number of clients, or the rate that was asked for."""
    rate: float
    rate_interval: Interval | None
    latencies_s: Sequence[float]
    """The bound's percentile in each repetition."""


@dataclass(frozen=True, slots=True)
class Highest:
    """The measured load with the highest rate among those that keep the bound."""

    point: Point | None
    """None where no load keeps it."""
    is_open: bool
    """The highest load that was tried keeps it: a higher rate may do so, too."""


def highest(points: Sequence[Point], bound: Bound) -> Highest:
    """Nothing is interpolated between loads, because queues grow by no line."""
    keeping = [one for one in points if keeps(one, bound)]
    best = max(keeping, key=lambda one: one.rate, default=None)
    last = max(points, key=lambda one: one.load, default=None)
    return Highest(best, is_open=last is not None and last in keeping)


def keeps(point: Point, bound: Bound) -> bool:
    """Whether the median repetition keeps the bound."""
    return bool(point.latencies_s) and float(np.median(point.latencies_s)) <= bound.latency_s


def percentile_of(
    percentiles_s: dict[str, float], ecdf: Sequence[tuple[float, float]], bound: Bound
) -> float | None:
    """The latency of the bound's percentile in one repetition.

    As the program told it, else from the steps of the distribution: the first at which that part of
    the requests was done. None where neither reaches so far.
    """
    if bound.name in percentiles_s:
        return percentiles_s[bound.name]
    part = bound.percentile / 100
    return next((at for at, done in sorted(ecdf) if done >= part - 1e-12), None)
