# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Latencies of many operations: histograms that add up, and what is told of them."""

from __future__ import annotations

from collections import Counter

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)
ECDF_STEPS_MAX = 200

Described = tuple[dict[str, float], list[tuple[float, float]]]


def of_bins(bins: Counter[int]) -> Described:
    """Percentiles and distribution in seconds, of operations counted by their ns."""
    total = sum(bins.values())
    if total == 0:
        return {}, []
    steps: list[tuple[float, float]] = []
    reached = 0
    for ns in sorted(bins):
        reached += bins[ns]
        steps.append((ns / 1e9, reached / total))
    named = {
        f"p{percent:g}": next(seconds for seconds, part in steps if part >= percent / 100 - 1e-12)
        for percent in PERCENTILES
    }
    if len(steps) <= ECDF_STEPS_MAX:
        return named, steps
    # At even distances of the part, and always the last: the tail is in the percentiles.
    chosen: list[tuple[float, float]] = []
    for number in range(1, ECDF_STEPS_MAX + 1):
        step = next(one for one in steps if one[1] >= number / ECDF_STEPS_MAX - 1e-12)
        if not chosen or step != chosen[-1]:
            chosen.append(step)
    return named, chosen
