# SPDX-License-Identifier: Apache-2.0 OR MIT
"""When there are enough repetitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from terrace_lab.numbers.intervals import median_interval


@dataclass(frozen=True, slots=True)
class Rule:
    """Repeat until the interval of the median is narrow; lab.md, section 7, has why."""

    least: int = 6
    most: int = 30
    confidence: float = 0.95
    rel_half_width: float = 0.05


class State(StrEnum):
    MET = "met"
    GO_ON = "go on"
    CAP_REACHED = "cap reached"


@dataclass(frozen=True, slots=True)
class Decision:
    state: State
    half_width: float | None
    """Half the width of the interval over the median; None where there is no interval yet."""


def decide(values: Sequence[float], rule: Rule, repetitions: int | None = None) -> Decision:
    """Whether one figure needs another repetition; may be asked after each.

    `repetitions` is how many were made where some have no value, as with void energy: the cap is on
    what was tried, so that a broken meter cannot make a run endless.
    """
    made = len(values) if repetitions is None else repetitions
    width = half_width(values, rule.confidence)
    if len(values) >= rule.least and width is not None and width <= rule.rel_half_width:
        return Decision(State.MET, width)
    return Decision(State.CAP_REACHED if made >= rule.most else State.GO_ON, width)


def decide_all(
    figures: Mapping[str, Sequence[float]], rule: Rule, repetitions: int
) -> dict[str, Decision]:
    """The decision for each figure; a trial is done when none says `go on`."""
    return {name: decide(values, rule, repetitions) for name, values in figures.items()}


def half_width(values: Sequence[float], confidence: float = 0.95) -> float | None:
    """Half the width of the median's interval over the median."""
    interval = median_interval(values, confidence)
    if interval is None:
        return None
    ordered = sorted(values)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    if interval.low == interval.high:
        return 0.0
    return (interval.high - interval.low) / 2 / abs(middle) if middle else None
