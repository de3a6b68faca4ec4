# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Overhead against a baseline, of which the truth is known."""

import pytest

from terrace_lab.analyse.compared import System, overheads
from terrace_lab.numbers.intervals import value_of
from terrace_lab.summary import Cell


def cell(target: str) -> Cell:
    rate = value_of([1.0])
    return Cell(
        trial=target,
        target=target,
        workload="w",
        kind="terrace",
        phase="p",
        clients=1,
        factors={},
        unit="ops",
        direction="iops",
        work=1.0,
        rate=rate,
        rate_total=1.0,
        seconds=rate,
        percent_of_peak=None,
        latency=None,
        energy=None,
        extra={},
        stop="met",
        failed=0,
        drift=None,
        flags=[],
    )


def system(target: str, rates: list[float]) -> System:
    values = {"rate": {block: [rate] for block, rate in enumerate(rates)}}
    return System("", target, ("w", "p", 1, "[]"), False, values, 1.0)


def test_a_fifth_less_is_twenty_per_cent_of_overhead() -> None:
    base = [100.0, 102.0, 98.0, 101.0, 99.0, 100.0]
    systems = [system("single", base), system("lru", [0.8 * one for one in base])]
    (found,) = overheads(systems, [cell("single"), cell("lru")], {"lru": "single"})
    assert (found.target, found.baseline, found.blocks) == ("lru", "single", 6)
    assert found.percent == pytest.approx(20)
    assert found.interval is not None
    assert found.interval.low <= 20 <= found.interval.high


def test_few_blocks_have_no_interval_and_a_baseline_has_no_overhead() -> None:
    systems = [system("single", [100.0]), system("lru", [110.0])]
    cells = [cell("single"), cell("lru")]
    (found,) = overheads(systems, cells, {"lru": "single", "single": "single"})
    assert found.percent == pytest.approx(-10)
    assert found.interval is None
