# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Searching tunables: what is measured, what is better, and that the defaults are always in."""

from __future__ import annotations

from pathlib import Path

import pytest

from terrace_lab import tuning
from terrace_lab.errors import LabError
from terrace_lab.experiment import Experiment, parse
from terrace_lab.summary import SCHEMA, Cell, Energy, Summary, Value
from terrace_lab.targets.base import Tunable

EXPERIMENT = """
name = "x"
seed = 7
[targets.store]
kind = "terrace"
price = 3.0
[targets.other]
kind = "tmpfs"
[workloads.seq]
kind = "fio"
[workloads.md]
kind = "fio"
[repeat]
min = 9
max = 9
"""


@pytest.fixture
def question() -> tuning.Question:
    return tuning.Question(
        experiment=parse(EXPERIMENT, Path("/")),
        target="store",
        workload="seq",
        clients=2,
        metric="throughput",
        tunables=[Tunable("stripe", (1, 2, 4, 8, 16), 1), Tunable("cache", ("on", "off"), "off")],
    )


def one_value(value: float) -> Value:
    return Value([value], value, None, value, None)


def summary_of(seconds: float, joules: float | None = None, tail_j: float = 0.0) -> Summary:
    """What a candidate came to that took so long for its only phase, and left a tail."""
    energy = None
    if joules is not None:
        energy = Energy(
            method="guarded",
            gross_j=one_value(joules),
            net_j=one_value(joules),
            error_j=0.0,
            mean_w=one_value(1.0),
            peak_w=None,
            box=None,
            per_joule=one_value(1.0),
            edp={},
            edp_normalised={},
            edp_rescaled=False,
            voided=0,
        )
    extra = {"gross_j_with_tail": one_value(joules + tail_j)} if joules and tail_j else {}
    cells = [
        Cell(
            trial="t",
            target=tuning.CANDIDATE,
            workload="seq",
            kind="fio",
            phase=phase,
            clients=2,
            factors={},
            unit="B",
            direction="write",
            work=1.0,
            rate=one_value(1 / seconds),
            rate_total=1 / seconds,
            seconds=one_value(seconds if role == "work" else 99.0),
            percent_of_peak=None,
            latency=None,
            energy=energy if role == "work" else None,
            extra=extra,
            stop="fixed",
            failed=0,
            drift=None,
            flags=[],
            role=role,
        )
        for phase, role in (("write", "work"), ("write tail", "tail"))
    ]
    return Summary(
        schema=SCHEMA,
        name="x",
        experiment_hash="",
        run_id="",
        begin_ns=0,
        end_ns=None,
        is_complete=True,
        is_modelled=False,
        reference=None,
        energy_scope=[],
        experiment={},
        environments={},
        meters=[],
        targets=[],
        peaks=[],
        cells=cells,
        comparisons=[],
        repetitions=[],
    )


def test_a_candidate_is_measured_alone_with_its_values(question: tuning.Question) -> None:
    experiment = tuning.candidate_experiment(question, {"stripe": 4, "cache": "on"}, 3)
    assert list(experiment.targets) == [tuning.CANDIDATE]
    target = experiment.targets[tuning.CANDIDATE]
    assert target.parameters == {"stripe": 4, "cache": "on"}
    assert target.settings["exclusive"] is True
    assert [(one.workload, one.clients) for one in experiment.trials] == [("seq", 2)]
    assert (experiment.repeat.least, experiment.repeat.most) == (3, 3)
    assert not experiment.repeat.metrics


def test_the_last_comparison_has_all_beside_the_defaults(question: tuning.Question) -> None:
    named = {"default": question.defaults, "tuned": {"stripe": 8, "cache": "on"}}
    experiment = tuning.confirm_experiment(question, named, blocks=1)
    assert experiment.reference == "default"
    assert list(experiment.targets) == ["default", "tuned"]
    assert experiment.repeat.least == tuning.CONFIRM_BLOCKS_MIN


def test_time_and_energy_count_once_for_each_phase() -> None:
    summary = summary_of(seconds=4.0, joules=10.0, tail_j=6.0)
    assert tuning.score(summary, "throughput") == pytest.approx(1 / 4)
    assert tuning.score(summary, "energy") == pytest.approx(1 / 16), "a tail is no way to save"
    assert tuning.score(summary, "edp") == pytest.approx(1 / 64)
    assert tuning.score(summary, "edp", weight=2) == pytest.approx(1 / 256)
    assert tuning.score(summary, "edp", weight=0) == tuning.score(summary, "energy")


def test_what_has_no_energy_is_not_tuned_for_it() -> None:
    with pytest.raises(LabError, match="phase write has none; it needs a meter"):
        tuning.score(summary_of(seconds=1.0), "energy")


@pytest.mark.parametrize("is_random", [False, True])
def test_a_search_begins_with_the_defaults_and_finds_the_best(
    question: tuning.Question, tmp_path: Path, is_random: bool
) -> None:
    directories: list[Path] = []

    def measure(experiment: Experiment, directory: Path) -> Summary:
        values = experiment.targets[tuning.CANDIDATE].parameters
        directories.append(directory)
        return summary_of(10 / values["stripe"] + (0 if values["cache"] == "on" else 1))

    found = tuning.search(
        question,
        tmp_path,
        measure,
        trials=40,
        repetitions=2,
        is_random=is_random,
        tell=lambda _: None,
    )
    assert found[0].values == question.defaults
    assert tuning.best(found, 0).values == {"stripe": 16, "cache": "on"}
    assert len(directories) == len(set(directories)) == len(found), "none is measured twice"
    assert len(found) <= 10


def test_a_candidate_that_fails_ends_no_search(question: tuning.Question, tmp_path: Path) -> None:
    def measure(experiment: Experiment, _directory: Path) -> Summary:
        summary = summary_of(1.0)
        if experiment.targets[tuning.CANDIDATE].parameters["cache"] == "on":
            summary.cells = []
        return summary

    told: list[str] = []
    found = tuning.search(
        question,
        tmp_path,
        measure,
        trials=10,
        repetitions=1,
        is_random=True,
        tell=told.append,
    )
    assert all(one.values["cache"] == "off" for one in found)
    assert any("no repetition came to a result" in text for text in told)
