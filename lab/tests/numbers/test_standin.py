# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One meter in place of another says how far both were apart."""

import numpy as np
import pytest

from terrace_lab.numbers.series import Channel, Readings, Series, series
from terrace_lab.numbers.standin import calibrate
from terrace_lab.records import Kind

PERIOD = 0.1


def shown(power: np.ndarray, lost: slice = slice(0, 0)) -> Series:
    end = PERIOD * np.arange(1, len(power) + 1, dtype=np.float64)
    usable = np.ones(len(power), dtype=bool)
    usable[lost] = False
    readings = Readings(Kind.AVERAGE, end - PERIOD, end, power, usable)
    return series(readings, Channel("m", "p", "s", PERIOD, 0.0, 0.0))


def test_gain_and_offset_are_found_while_both_are_well() -> None:
    power = np.repeat([100.0, 180.0, 120.0, 220.0], 100)
    second = (power - 7.0) / 1.1
    second[50:80] = 0.0
    found = calibrate([shown(power, slice(50, 80))], [shown(second)])
    assert found is not None
    assert found.factor == pytest.approx(1.1)
    assert found.offset_w == pytest.approx(7.0)
    assert found.windows == 39 - 3
    assert found.joules((180 - 7.0) / 1.1 * 10, 10) == pytest.approx(1800)


def test_what_they_differed_by_is_what_it_may_be_off() -> None:
    power = np.repeat([100.0, 200.0, 150.0, 250.0], 200)
    wander = np.repeat(np.random.default_rng(2).normal(0, 3, len(power) // 10), 10)
    found = calibrate([shown(power)], [shown(power + wander)])
    assert found is not None
    assert found.residual_w == pytest.approx(2 * 3, rel=0.3)
    assert found.error_j(4.0, 10) == pytest.approx(
        np.hypot(found.factor * 4.0, found.residual_w * 10)
    )


def test_steady_power_gives_a_factor_alone() -> None:
    power = 100 + np.random.default_rng(3).normal(0, 0.5, 400)
    found = calibrate([shown(power)], [shown(power / 1.05)])
    assert found is not None
    assert found.factor == pytest.approx(1.05)
    assert found.offset_w == 0.0


def test_too_little_time_together_is_no_calibration() -> None:
    power = np.full(400, 100.0)
    assert calibrate([shown(power[:60])], [shown(power)]) is None
    assert calibrate([shown(power, slice(40, 380))], [shown(power)]) is None
    assert calibrate([shown(power, slice(0, 400))], [shown(power)]) is None
