# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How systems are told apart: by colour, hatch and marker at once, and names that fit."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from terrace_lab.summary import Cell, Summary

# Okabe and Ito 2008, "Color Universal Design"; with grey for their black, which hides a hatch.
COLOURS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#F0E442",
    "#999999",
)
HATCHES = (
    "",
    "////",
    "xxxx",
    "....",
    "----",
    "\\\\\\\\",
    "||||",
    "++++",
    "oo",
    "**",
    "//--",
    "\\\\||",
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 3)), (0, (7, 2)), (0, (1, 2)))

LABEL_LENGTH = 30
NAME_LENGTH = 22


@dataclass(frozen=True, slots=True)
class Look:
    """Colour, hatch, marker and line of one system."""

    colour: str
    hatch: str
    marker: str
    line: Any


def look(index: int) -> Look:
    """The look of the system with that position; each of the first twelve has its own hatch and
    marker, so that they differ without colour too."""
    return Look(
        COLOURS[index % len(COLOURS)],
        HATCHES[index % len(HATCHES)],
        MARKERS[index % len(MARKERS)],
        LINES[index % len(LINES)],
    )


def clean(text: str) -> str:
    """Text without what an SVG file may not hold, or what would turn the rest around."""
    return "".join(
        "\N{REPLACEMENT CHARACTER}"
        if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Co")
        else one
        for one in text
    )


def short(text: str, length: int = NAME_LENGTH) -> str:
    """Text for a place of limited width: the middle of a long one is left out."""
    text = clean(text)
    if len(text) <= length:
        return text
    head = (length - 1) * 2 // 3
    return f"{text[:head]}…{text[head + 1 - length :]}"


@dataclass(frozen=True, slots=True)
class Series:
    """What is drawn in one look: a target, with the further factors of the experiment."""

    target: str
    factors: str
    """As `name=value` texts, joined; empty without further factors."""


def series_of(cell: Cell) -> Series:
    return Series(cell.target, factors_text(cell.factors))


def factors_text(factors: dict[str, Any]) -> str:
    return " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value, sort_keys=True)}"
        for name, value in sorted(factors.items())
    )


class Looks:
    """The looks and labels of all series of a run, the same in each of its figures."""

    def __init__(self, summary: Summary) -> None:
        order = [target.name for target in summary.targets]
        found = dict.fromkeys(series_of(cell) for cell in summary.cells)
        known = {name: position for position, name in enumerate(order)}
        self.series: list[Series] = sorted(
            found, key=lambda one: (known.get(one.target, len(order)), one.target, one.factors)
        )
        # A target without cells still has a capacity and idle power to show.
        self._of_target = {name: index for index, name in enumerate(self._target_names(order))}
        plain = all(not one.factors for one in self.series)
        self._index = {
            one: self._of_target[one.target] if plain else position
            for position, one in enumerate(self.series)
        }
        self._labels = _unique(
            [f"{one.target} {one.factors}".strip() for one in self.series], LABEL_LENGTH
        )
        self._target_labels = dict(
            zip(self._of_target, _unique(list(self._of_target), NAME_LENGTH), strict=True)
        )

    def _target_names(self, order: Sequence[str]) -> Iterable[str]:
        return dict.fromkeys([*order, *(one.target for one in self.series)])

    def look(self, series: Series) -> Look:
        return look(self._index[series])

    def label(self, series: Series) -> str:
        return self._labels[self.series.index(series)]

    def target_look(self, target: str) -> Look:
        return look(self._of_target[target])

    def target_label(self, target: str) -> str:
        return self._target_labels[target]


def _unique(names: Sequence[str], length: int) -> list[str]:
    """Short forms of names; those that became equal carry a number."""
    taken: dict[str, int] = {}
    result = []
    for name in names:
        label = short(name, length)
        count = taken.get(label, 0)
        taken[label] = count + 1
        result.append(label if count == 0 else f"{short(name, length - 4)} #{count + 1}")
    return result
