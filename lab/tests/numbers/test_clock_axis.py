# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A clock that steps does not move what was measured."""

import numpy as np
import pytest

from terrace_lab.numbers.clock import Axis

REAL = 1_700_000_000_000_000_000
RAW = 77_000_000_000
SECOND = 1_000_000_000


def stamps(
    seconds: float, step_at: float | None = None, by: float = 0.0, slew: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    at = np.arange(0, seconds, 0.1)
    moved = np.where(at >= step_at, by, 0.0) if step_at is not None else 0.0
    real = REAL + np.round((at * (1 + slew) + moved) * SECOND).astype(np.int64)
    return real, RAW + np.round(at * SECOND).astype(np.int64)


def test_without_a_step_both_clocks_place_alike() -> None:
    axis = Axis([stamps(100, slew=400e-6)])
    assert axis.steps == []
    for at in (0.0, 33.333, 99.0):
        real = REAL + round(at * (1 + 400e-6) * SECOND)
        assert axis.of_real(real) == pytest.approx(at, abs=1e-5)
        assert axis.real_of(np.array([at]))[0] == pytest.approx(real, abs=10_000)


@pytest.mark.parametrize("by", [2.0, -2.0])
def test_a_step_is_found_and_times_beside_it_have_no_place(by: float) -> None:
    axis = Axis([stamps(100, 50.0, by)])
    (step,) = axis.steps
    assert step.by_s == pytest.approx(by)
    assert step.at_s == pytest.approx(49.9)

    def real(at: float) -> int:
        return REAL + round((at + (by if at >= 50 else 0)) * SECOND)

    for at in (10.0, 47.0, 53.0, 90.0):
        assert axis.of_real(real(at)) == pytest.approx(at)
    # Forward: a time that never was. Backward: one that was twice.
    assert axis.of_real(REAL + round((51.0 if by > 0 else 49.0) * SECOND)) is None
    assert axis.of_stamp(real(60.0), RAW + 60 * SECOND) == 60.0


def test_a_stepped_sample_stays_where_it_was() -> None:
    axis = Axis([stamps(100, 50.0, -2.0)])
    at = np.array([49.5, 50.5])
    real = REAL + ((at + np.array([0, -2.0])) * SECOND).astype(np.int64)
    raw = RAW + (at * SECOND).astype(np.int64)
    times = real - 30_000_000
    assert axis.of_frame(times, real, raw) == pytest.approx(at - 0.03)


def test_a_machine_that_was_started_anew_is_placed_by_its_real_clock() -> None:
    real, raw = stamps(100)
    raw[500:] -= raw[500] - 10
    axis = Axis([(real, raw)])
    assert axis.has_rebooted
    assert axis.of_real(REAL + 70 * SECOND) == pytest.approx(70.0)


def test_a_run_without_a_stamp_has_an_axis() -> None:
    axis = Axis([])
    assert axis.steps == []
    assert axis.of_real(REAL) is None
    assert axis.of_stamp(REAL, 3 * SECOND) == 3.0
