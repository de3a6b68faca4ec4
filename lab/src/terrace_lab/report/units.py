# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Figures with units as a reader wants them: three digits and a fitting prefix."""

from __future__ import annotations

import math
from typing import NamedTuple

_IEC = [("", 1.0)] + [(f"{one}i", 1024.0**power) for power, one in enumerate("KMGTPE", start=1)]
_SI = [("", 1.0)] + [(one, 1000.0**power) for power, one in enumerate("kMGTP", start=1)]
_SMALL = [("n", 1e-9), ("µ", 1e-6), ("m", 1e-3)]
_DECIMAL_BYTES = {f"{one}B": 1000.0**power for power, one in enumerate("kMGTP", start=1)}
_BINARY_BYTES = {f"{one}iB": 1024.0**power for power, one in enumerate("KMGTP", start=1)}


class Scale(NamedTuple):
    """How an axis shows a quantity: divide by `factor`, name it `unit`."""

    factor: float
    unit: str


def scale_for(unit: str, largest: float) -> Scale:
    """The prefix that brings the largest value of an axis to between 1 and 1000."""
    head, slash, per = unit.partition("/")
    if not head or head == "%" or not math.isfinite(largest) or largest == 0:
        return Scale(1.0, unit)
    if head == "B":
        steps = _IEC
    elif head == "s":
        # Kiloseconds help nobody.
        steps = [*_SMALL, ("", 1.0)]
    elif head in ("J", "W", "J·s", "J·s²"):
        steps = [*_SMALL, *_SI]
    else:
        steps = _SI
    # What is not shorter with a prefix, such as "kfiles", stays a word of its own: "k files".
    space = " " if len(head) > 3 and "·" not in head else ""
    prefix, factor = max(
        (one for one in steps if one[1] <= abs(largest) * (1 + 1e-12)),
        key=lambda one: one[1],
        default=steps[0],
    )
    return Scale(factor, f"{prefix}{space if prefix else ''}{head}{slash}{per}")


def to_base(value: float, unit: str) -> tuple[float, str]:
    """A figure in the unit without prefix: 2 `MiB/s` are 2097152 `B/s`."""
    head, slash, per = unit.partition("/")
    factor = {**_DECIMAL_BYTES, **_BINARY_BYTES}.get(head)
    return (value, unit) if factor is None else (value * factor, f"B{slash}{per}")


def number(value: float, digits: int = 3) -> str:
    """A figure with that many digits that count, without an exponent where one can read it."""
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude >= 9 or magnitude < -5:
        text = f"{value:.{digits - 1}e}"
    else:
        text = f"{value:.{max(0, digits - 1 - magnitude)}f}"
    return text.replace("-", "−")


def quantity(value: float, unit: str, digits: int = 3) -> str:
    """A figure with its unit and a prefix: `95.3 MiB/s`."""
    scale = scale_for(unit, value)
    shown = f"{number(value / scale.factor, digits)} {scale.unit}"
    return shown.strip()


def duration(seconds: float) -> str:
    """A time as one would say it: `43.2 s`, `12 min 5 s`, `3 h 20 min`."""
    if seconds < 120:
        return quantity(seconds, "s")
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def rate_unit(unit: str) -> str:
    """Unit of a rate of work: `B` gives `B/s`."""
    return f"{unit}/s"
