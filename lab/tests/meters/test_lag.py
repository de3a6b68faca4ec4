# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The lag of simulated meters is found, to the figures of the design."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from terrace_lab.meters.lag import (
    CHIP_PERIODS,
    CHIPS,
    Lag,
    chips,
    find_lag,
    schedule,
    schedule_seconds,
)
from terrace_lab.records import Kind, Quality, Sample

BEGIN = 1_795_000_000_123_456_789
PERIOD = 0.05
SWING = 100.0


def worked(moments: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Seconds of work until then."""
    parts = [np.clip(moments - on.begin_s, 0, on.end_s - on.begin_s) for on in schedule(PERIOD)]
    return np.asarray(np.sum(parts, axis=0))


def simulate(kind: Kind, lag: float, noise_w: float, random: np.random.Generator) -> list[Sample]:
    """What a meter of that kind and lag would record, its windows anywhere."""
    phase = random.uniform(0, PERIOD)
    count = int(schedule_seconds(PERIOD) / PERIOD) + 60
    ends = phase + PERIOD * np.arange(-20, count - 20)
    done = worked(ends - lag)
    soon = worked(ends - lag + 1e-6)
    samples = []
    for index in range(1, len(ends)):
        at = BEGIN + round(ends[index] * 1e9)
        before = BEGIN + round(ends[index - 1] * 1e9)
        power = 100.0 + SWING * (done[index] - done[index - 1]) / PERIOD
        value = power + random.normal(0, noise_w)
        if kind is Kind.COUNTER:
            value = 1e6 + 100.0 * ends[index] + SWING * done[index]
        elif kind is Kind.INSTANT:
            value = 100.0 + SWING * (soon[index] > done[index])
            before = at
        samples.append(Sample(before, at, 0, "1", "s", kind, value, Quality.OK, "m"))
    return samples


def found(samples: list[Sample]) -> Lag:
    lag = find_lag(samples, BEGIN, schedule(PERIOD), PERIOD, lag_max_s=0.6)
    assert lag is not None
    return lag


def rms_periods(noise_w: float, count: int = 25) -> float:
    random = np.random.default_rng(4711)
    errors = []
    for _ in range(count):
        lag = random.uniform(0, 10 * PERIOD)
        samples = simulate(Kind.AVERAGE, lag, noise_w, random)
        errors.append((found(samples).lag_s - lag) / PERIOD)
    return float(np.sqrt(np.mean(np.square(errors))))


def test_the_sequence_is_like_itself_at_one_shift_alone() -> None:
    signs = np.array([1 if one else -1 for one in chips()])
    assert len(signs) == CHIPS
    assert [int(signs @ np.roll(signs, shift)) for shift in range(CHIPS)] == [63] + [-1] * 62


def test_the_schedule_works_for_half_of_the_time() -> None:
    intervals = schedule(PERIOD)
    total = sum(one.end_s - one.begin_s for one in intervals)
    assert total == pytest.approx(32 * CHIP_PERIODS * PERIOD)
    assert schedule_seconds(PERIOD) == pytest.approx(13.77, abs=0.01)
    assert schedule_seconds(1.0) == pytest.approx(275.3, abs=0.1)
    for before, after in itertools.pairwise(intervals):
        assert after.begin_s > before.end_s


def test_the_error_is_that_of_the_design() -> None:
    # No estimator is better than noise over swing, in periods, over the root of the edges, since
    # one window tells of each: 0.035 at swing over noise 5. 25 trials know it to 14 %.
    edges = 2 * len(schedule(PERIOD))
    assert rms_periods(SWING / 5) < 1.2 * (1 / 5) / np.sqrt(edges)
    # There a part of the trials is off by more than the bound of small errors says; 0.15 of design.
    assert rms_periods(SWING / 1.5) < 0.15


@pytest.mark.parametrize(
    ("kind", "bound_periods"), [(Kind.AVERAGE, 1e-3), (Kind.COUNTER, 1e-3), (Kind.INSTANT, 0.3)]
)
def test_every_kind_of_sample_tells_the_lag(kind: Kind, bound_periods: float) -> None:
    lag = found(simulate(kind, 0.1234, 0.0, np.random.default_rng(7)))
    assert lag.lag_s == pytest.approx(0.1234, abs=bound_periods * PERIOD)
    assert lag.swing_w == pytest.approx(SWING, rel=0.05)
    assert lag.is_sure


def test_gaps_and_values_that_are_none_do_no_harm() -> None:
    samples = simulate(Kind.COUNTER, 0.21, 0.0, np.random.default_rng(7))
    reset = samples[120]
    samples[120] = Sample(reset.t0, reset.t1, 0, "1", "s", reset.kind, None, Quality.RESET, "m")
    after = [
        Sample(one.t0, one.t1, 0, "1", "s", one.kind, (one.value or 0) - 9e5, Quality.OK, "m")
        for one in samples[121:]
    ]
    lag = found(samples[:60] + samples[80:121] + after)
    assert lag.lag_s == pytest.approx(0.21, abs=0.02 * PERIOD)


def test_what_is_not_there_is_not_found() -> None:
    random = np.random.default_rng(3)
    worst = 0.0
    for _ in range(10):
        noise = simulate(Kind.AVERAGE, 0.1, 1e6, random)
        lag = found(noise)
        worst = max(worst, lag.confidence)
        assert not lag.is_sure
    assert worst > 0.05
    flat = [Sample(one.t0, one.t1, 0, "1", "s", one.kind, 5.0, Quality.OK, "m") for one in noise]
    assert find_lag(flat, BEGIN, schedule(PERIOD), PERIOD) is None
    assert find_lag(noise[:30], BEGIN, schedule(PERIOD), PERIOD) is None
