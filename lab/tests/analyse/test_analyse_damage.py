# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What is missing of a record is told, and the run is not called complete."""

from collections.abc import Callable
from pathlib import Path

import pytest
from made import make_run

from terrace_lab.analyse import summarise


def empty_plan(run: Path) -> None:
    (run / "plan.jsonl").write_text("")


def garble_info(run: Path) -> None:
    next((run / "meters").glob("*/info.json")).write_text("{")


def lose_phases(run: Path) -> None:
    next(iter(sorted(run.glob("trials/*/rep-002/phases.jsonl")))).unlink()


@pytest.mark.parametrize(
    ("hurt", "said"),
    [
        (empty_plan, "plan.jsonl lacks trial"),
        (garble_info, "info.json is no JSON object"),
        (lose_phases, "repetition 2 is done and has no phases"),
    ],
)
def test_damage_is_told(tmp_path: Path, hurt: Callable[[Path], None], said: str) -> None:
    run = make_run(tmp_path / "run", repetitions=2, clients=(1,))
    assert not [one for one in summarise(run).deviations if one.startswith("damaged")]
    hurt(run)
    summary = summarise(run)
    assert any(one.startswith("damaged") and said in one for one in summary.deviations)
    assert not summary.is_complete
