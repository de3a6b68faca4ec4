# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The energy-delay product E*t^w, which is defined for equal work only."""

from __future__ import annotations

import math

WEIGHTS = (0, 1, 2)
SAME = 1e-9


def weights(weight: float) -> tuple[float, ...]:
    """Those that products are computed for: the usual ones, and the one that is ranked by."""
    return tuple(sorted({*map(float, WEIGHTS), weight}))


def key(weight: float) -> str:
    """What a weight is called in a summary: `1`, `1.5`."""
    return f"{weight:g}"


def scale(work: float, reference_work: float) -> float:
    """What energy and time of other work are multiplied by, as if they grew with it."""
    return reference_work / work if work > 0 and reference_work > 0 else 1.0


def edp(joules: float, seconds: float, by: float, weight: float) -> float:
    """E*t^w in J*s^w of work scaled by `by`.

    The same is P*(W/T)^(1+w) by mean power P and rate T: both ways are gone, because they read the
    record at different places.
    """
    return float(joules * by * (seconds * by) ** weight)


def is_same(found: float, mean_w: float, rate: float, work: float, weight: float) -> bool:
    """Whether E*t^w is P*(W/T)^(1+w), as it must be."""
    return math.isclose(found, mean_w * (work / rate) ** (1 + weight), rel_tol=SAME)
