# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Figures over repetitions, with intervals that need no distribution to be assumed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from terrace_lab.summary import Drift, Interval, Value

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
RESAMPLES = 4000
LEAST_FOR_DRIFT = 5
"""Below it no order of the values is unlikely enough (2 / 4! > 0.05)."""


@cache
def order_rank(count: int, confidence: float = CONFIDENCE) -> int | None:
    """The k of which the k-th lowest and k-th highest of `count` values hold the median.

    The median is outside with probability 2 P(B < k), B binomial with n = `count` and p = 1/2,
    whatever the distribution. None where even the extremes do not suffice, as below six values at
    95 %.
    """
    # Here and not at the top: SciPy's statistics take a second to load, and a run needs them late.
    from scipy import stats

    rank = int(stats.binom.ppf((1 - confidence) / 2, count, 0.5))
    # `ppf` is the first value that reaches the probability; the rank must stay at or below it.
    while rank > 0 and 2 * stats.binom.cdf(rank - 1, count, 0.5) > 1 - confidence:
        rank -= 1
    if 2 * stats.binom.cdf(rank, count, 0.5) <= 1 - confidence:
        rank += 1
    return rank or None


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """The order-statistic interval of the median; None where there are too few values."""
    rank = order_rank(len(values), confidence)
    if rank is None:
        return None
    ordered = sorted(values)
    return Interval(ordered[rank - 1], ordered[-rank])


def value_of(values: Sequence[float]) -> Value:
    """All that is said of one figure over repetitions; `values` must not be empty."""
    array = np.asarray(values, dtype=np.float64)
    return Value(
        values=[float(one) for one in values],
        median=float(np.median(array)),
        median_interval=median_interval(values),
        mean=float(array.mean()),
        sd=float(array.std(ddof=1)) if len(array) > 1 else None,
    )


def rate_total(works: Sequence[float], seconds: Sequence[float]) -> float:
    """Total work by total time: the mean that weighs each second alike."""
    return float(sum(works) / sum(seconds))


def seeded(*labels: object) -> np.random.Generator:
    """A generator that gives the same numbers for the same labels, wherever it runs."""
    return np.random.default_rng(zlib.crc32(repr(labels).encode()))


def resampled_means(values: Sequence[float], random: np.random.Generator) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    drawn = array[random.integers(0, len(array), (RESAMPLES, len(array)))]
    return np.asarray(drawn.mean(axis=1))


def resampled_medians(values: Sequence[float], random: np.random.Generator) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    drawn = array[random.integers(0, len(array), (RESAMPLES, len(array)))]
    return np.asarray(np.median(drawn, axis=1))


def percentiles(draws: Floats, confidence: float = CONFIDENCE) -> Interval:
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(draws, [tail, 100 - tail])
    return Interval(float(low), float(high))


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Adjusts p values for their number (Holm 1979); None stays None and does not count."""
    known = sorted((p, index) for index, p in enumerate(values) if p is not None)
    adjusted: list[float | None] = [None] * len(values)
    highest = 0.0
    for rank, (p, index) in enumerate(known):
        highest = max(highest, min(1.0, (len(known) - rank) * p))
        adjusted[index] = highest
    return adjusted


def drift(values: Sequence[float], order: Sequence[int]) -> Drift | None:
    """Whether values follow the order they were taken in; None below five of them."""
    if len(values) < LEAST_FOR_DRIFT or len(set(values)) < 2:
        return None
    from scipy import stats

    result = stats.spearmanr(order, values)
    first = int(np.argmin(order))
    others = [value for index, value in enumerate(values) if index != first]
    middle = float(np.median(others))
    return Drift(
        spearman=float(result.statistic),
        p=float(result.pvalue),
        first_ratio=values[first] / middle if middle else None,
    )
