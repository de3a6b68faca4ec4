# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One system against another, over the blocks that have both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from terrace_lab.numbers.intervals import RESAMPLES, Floats, percentiles, seeded
from terrace_lab.summary import Interval

LEAST_BLOCKS = 6
"""As for the interval of a median."""
SIGNIFICANT = 0.05
EQUAL = "equal within the interval"
TOO_FEW = "too few blocks"


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of medians; interval and p are None with too few blocks."""

    ratio: float
    interval: Interval | None
    blocks: int
    p: float | None


def compare(
    values: Mapping[int, Sequence[float]],
    reference: Mapping[int, Sequence[float]],
    seed: object = 0,
) -> Ratio | None:
    """Compares by block, so that what made a block slow for both cancels; None without a pair."""
    blocks = sorted(set(values) & set(reference))
    if not blocks:
        return None
    ours = np.array([np.median(values[block]) for block in blocks])
    theirs = np.array([np.median(reference[block]) for block in blocks])
    ratio = float(np.median(ours) / np.median(theirs)) if np.median(theirs) else float("nan")
    if len(blocks) < LEAST_BLOCKS or (ours <= 0).any() or (theirs <= 0).any():
        return Ratio(ratio, None, len(blocks), None)
    random = seeded("compare", seed)
    drawn = random.integers(0, len(blocks), (RESAMPLES, len(blocks)))
    ratios = np.median(ours[drawn], axis=1) / np.median(theirs[drawn], axis=1)
    logs = np.log(ours / theirs)
    return Ratio(ratio, percentiles(ratios), len(blocks), _p(logs, logs[drawn]))


def compare_apart(values: Sequence[float], reference: Sequence[float], seed: object = 0) -> Ratio:
    """Compares what was not measured in the same blocks: both are drawn by themselves."""
    ours, theirs = np.asarray(values), np.asarray(reference)
    ratio = float(np.median(ours) / np.median(theirs)) if np.median(theirs) else float("nan")
    count = min(len(ours), len(theirs))
    if count < LEAST_BLOCKS or (ours <= 0).any() or (theirs <= 0).any():
        return Ratio(ratio, None, count, None)
    random = seeded("apart", seed)
    first = ours[random.integers(0, len(ours), (RESAMPLES, len(ours)))]
    second = theirs[random.integers(0, len(theirs), (RESAMPLES, len(theirs)))]
    ratios = np.median(first, axis=1) / np.median(second, axis=1)
    p = _p_apart(np.log(ours), np.log(theirs), np.log(first), np.log(second))
    return Ratio(ratio, percentiles(ratios), count, p)


def verdict(ratio: Ratio, p_holm: float | None, higher_is_better: bool) -> str:
    """Ranks only where the interval excludes 1 and p, adjusted for all cells, is small."""
    if ratio.interval is None or p_holm is None:
        return TOO_FEW
    is_apart = ratio.interval.low > 1 or ratio.interval.high < 1
    if not is_apart or p_holm > SIGNIFICANT:
        return EQUAL
    return "better" if (ratio.ratio > 1) == higher_is_better else "worse"


def _p(logs: Floats, drawn: Floats) -> float:
    """Two-sided, by the bootstrap of t (Efron and Tibshirani 1993, section 16.4).

    A mean over its own standard error is nearly free of the spread, so that few blocks do not look
    surer than they are.
    """
    count = len(logs)
    error = logs.std(ddof=1) / np.sqrt(count)
    if error == 0:
        return 1.0 if logs.mean() == 0 else 1 / (len(drawn) + 1)
    observed = abs(logs.mean() / error)
    return _share(observed, drawn.mean(axis=1) - logs.mean(), drawn.std(axis=1, ddof=1), count)


def _share(observed: float, shifts: Floats, spreads: Floats, count: int) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        ts = np.abs(shifts / (spreads / np.sqrt(count)))
    # A draw of one block again and again has no spread: as extreme as can be.
    return float((1 + np.count_nonzero(~(ts < observed))) / (len(ts) + 1))


def _p_apart(ours: Floats, theirs: Floats, first: Floats, second: Floats) -> float:
    def error(a: Floats, b: Floats) -> Floats:
        return np.asarray(
            np.sqrt(a.var(axis=-1, ddof=1) / a.shape[-1] + b.var(axis=-1, ddof=1) / b.shape[-1])
        )

    shift = ours.mean() - theirs.mean()
    if error(ours, theirs) == 0:
        return 1.0 if shift == 0 else 1 / (len(first) + 1)
    observed = abs(shift / float(error(ours, theirs)))
    return _share(
        observed, first.mean(axis=1) - second.mean(axis=1) - shift, error(first, second), 1
    )
