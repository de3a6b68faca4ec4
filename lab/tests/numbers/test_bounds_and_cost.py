# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Rates under a bound of latency, and what rate and capacity cost."""

import pytest

from terrace_lab.numbers.bounds import Bound, Highest, Point, highest, percentile_of
from terrace_lab.numbers.cost import over_limit, price_per_mb_s, price_per_tb, ratio
from terrace_lab.numbers.edp import edp, is_same, scale

BOUND = Bound(0.010, 99.0)


def point(load: float, rate: float, *latencies: float) -> Point:
    return Point(load, rate, None, latencies)


def test_the_highest_rate_is_of_a_load_that_keeps_the_bound() -> None:
    points = [point(1, 100, 0.002), point(2, 180, 0.009), point(4, 260, 0.011)]
    assert highest(points, BOUND) == Highest(points[1], is_open=False)
    assert highest(points[:2], BOUND) == Highest(points[1], is_open=True)
    assert highest(points[2:], BOUND) == Highest(None, is_open=False)
    assert highest([point(1, 100)], BOUND).point is None, "no latency was told"


def test_more_load_may_give_less() -> None:
    points = [point(1, 100, 0.002), point(2, 180, 0.004), point(4, 150, 0.009)]
    assert highest(points, BOUND) == Highest(points[1], is_open=True)


def test_the_median_repetition_decides() -> None:
    assert highest([point(1, 9, 0.009, 0.2, 0.008)], BOUND).point is not None
    assert highest([point(1, 9, 0.009, 0.2, 0.02)], BOUND).point is None


def test_percentiles_are_told_or_read_off_the_steps() -> None:
    steps = [(0.001, 0.5), (0.004, 0.98), (0.02, 0.995), (0.05, 1.0)]
    assert percentile_of({"p99": 0.007}, steps, BOUND) == 0.007
    assert percentile_of({"p50": 0.001}, steps, BOUND) == 0.02
    assert percentile_of({}, steps[:2], BOUND) is None
    assert Bound(0.01, 99.9).name == "p99.9"


def test_costs_are_by_the_units_of_sellers() -> None:
    assert price_per_tb(3000.0, 4_000_000_000_000) == pytest.approx(750.0)
    assert price_per_mb_s(3000.0, 500e6) == pytest.approx(6.0)
    assert price_per_tb(None, 4) is None
    assert price_per_mb_s(3000.0, 0.0) is None
    assert ratio(1.0, None) is None


def test_a_peak_above_the_limit_is_said() -> None:
    assert over_limit(199.0, 200.0) is None
    assert over_limit(None, 200.0) is None
    assert "peak_w=201.0 limit_w=200" in str(over_limit(201.0, 200.0))


@pytest.mark.parametrize("weight", [0, 1, 2])
def test_products_are_the_same_by_energy_and_by_power(weight: int) -> None:
    """EDP over that of a reference is (P/Pref)*(Tref/T)^(1+w), T the rates at equal work."""
    work, rate, power = 2e9, 5e8, 180.0
    reference_rate, reference_power = 4e8, 220.0
    ours = edp(power * work / rate, work / rate, 1.0, weight)
    theirs = edp(reference_power * work / reference_rate, work / reference_rate, 1.0, weight)
    identity = (power / reference_power) * (reference_rate / rate) ** (1 + weight)
    assert ours / theirs == pytest.approx(identity)
    assert is_same(ours, power, rate, work, weight)
    assert not is_same(ours * 1.001, power, rate, work, weight)


@pytest.mark.parametrize("weight", [0, 1, 2])
def test_other_work_is_brought_to_that_of_the_reference(weight: int) -> None:
    half = edp(400.0, 5.0, scale(1e9, 2e9), weight)
    assert half == pytest.approx(edp(800.0, 10.0, 1.0, weight))
