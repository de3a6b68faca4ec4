# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A summary is the same after it was written and read."""

import json

import pytest

from terrace_lab import summary


def test_a_summary_is_read_as_it_was_written() -> None:
    value = summary.Value([1.0, 2.0], 1.5, summary.Interval(1.0, 2.0), 1.5, None)
    latency = summary.Latency({"p50": value}, [(0.1, 0.5), (0.2, 1.0)])
    energy = summary.Energy(
        "guarded", value, value, 0.1, value, 9.0, None, value, {"1": value}, {}, False, 0
    )
    cell = summary.Cell(
        trial="seq-ours-c1",
        target="ours",
        workload="seq",
        kind="fio",
        phase="write",
        clients=1,
        factors={"stripe": 4},
        unit="B",
        direction="write",
        work=1.0,
        rate=value,
        rate_total=1.5,
        seconds=value,
        percent_of_peak=None,
        latency=latency,
        energy=energy,
        extra={"stall_s": value},
        stop="met",
        failed=0,
        drift=None,
        flags=[],
    )
    whole = summary.Summary(
        schema=summary.SCHEMA,
        name="x",
        experiment_hash="0",
        run_id="r",
        begin_ns=1,
        end_ns=None,
        is_complete=False,
        is_modelled=True,
        reference=None,
        energy_scope=["s1"],
        experiment={},
        environments={},
        meters=[],
        targets=[],
        peaks=[],
        cells=[cell],
        comparisons=[],
        repetitions=[],
    )
    text = json.dumps(summary.to_json(whole))
    assert summary.from_json(json.loads(text)) == whole


def test_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="schema 2"):
        summary.from_json({"schema": 2})
