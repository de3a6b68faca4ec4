# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Figures have three digits that count and a prefix that fits."""

import pytest

from terrace_lab.report.units import duration, number, quantity, scale_for, to_base


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (99.6 * 1024**2, "B/s", "99.6 MiB/s"),
        (1023.0, "B/s", "1023 B/s"),
        (1024.0, "B/s", "1.00 KiB/s"),
        (12_345.0, "ops/s", "12.3 kops/s"),
        (12_345.0, "files/s", "12.3 k files/s"),
        (0.000_25, "s", "250 µs"),
        (5400.0, "s", "5400 s"),
        (12_500.0, "J", "12.5 kJ"),
        (0.0, "W", "0 W"),
        (-0.5, "", "−0.500"),
    ],
)
def test_a_quantity_has_a_fitting_prefix(value: float, unit: str, shown: str) -> None:
    assert quantity(value, unit) == shown


def test_an_axis_keeps_its_factor_for_all_values() -> None:
    scale = scale_for("B/s", 3 * 1024.0**3)
    assert (scale.factor, scale.unit) == (1024.0**3, "GiB/s")


def test_published_figures_come_to_the_same_unit() -> None:
    assert to_base(95, "MiB/s") == (95 * 1024**2, "B/s")
    assert to_base(496.4, "MB/s") == (496.4e6, "B/s")
    assert to_base(0.196, "TB/W") == (0.196e12, "B/W")
    assert to_base(40.9, "W") == (40.9, "W")


def test_what_is_no_figure_is_said() -> None:
    assert number(float("nan")) == "not a number"
    assert number(float("inf")) == "∞"


def test_times_are_as_one_says_them() -> None:
    assert duration(43.21) == "43.2 s"
    assert duration(725) == "12 min 5 s"
    assert duration(12_000) == "3 h 20 min"
