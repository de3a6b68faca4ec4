# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads the summary that mdtest prints, of versions 1.9 to 4.1."""

from __future__ import annotations

import math
import re

from terrace_lab.errors import ParseError

_TITLE = re.compile(r"^\s*SUMMARY\b(.*)$", re.IGNORECASE)
_LINE = re.compile(r"^\s*((?:File|Directory|Tree) [a-z]+)\s*:?\s+(\S.*)$")


def parse(text: str) -> dict[str, float]:
    """Operations per second by name, as `File creation`, of what was done at all.

    For one iteration: there the mean over iterations is the rate of all processes together. What
    was not done has rate 0.
    """
    rates: dict[str, float] = {}
    is_rate = False
    columns: list[str] = []
    for line in text.splitlines():
        if title := _TITLE.match(line):
            # `SUMMARY: (of 1 iterations)`, `SUMMARY rate (in ops/sec): …`, `SUMMARY time …`.
            is_rate = "time" not in title[1]
        elif is_rate and line.split()[:1] == ["Operation"]:
            columns = re.findall(r"Max|Min|Mean|Std Dev", line)
        elif is_rate and columns and (match := _LINE.match(line)):
            values = match[2].split()
            if len(values) != len(columns):
                raise ParseError(
                    f"cannot read the output of mdtest: another table {line.strip()!r}"
                )
            # The last one: that of iterations, behind that of ranks.
            value = _number(values[len(columns) - 1 - columns[::-1].index("Mean")])
            if value > 0:
                rates[match[1]] = value
    if not rates:
        raise ParseError(
            f"cannot read the output of mdtest: no rates in it begins={text.strip()[:80]!r}"
        )
    return rates


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ParseError(f"cannot read the output of mdtest: no rate {text!r}")
    return value
