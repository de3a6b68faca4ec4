# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs of which the truth is known come out as that truth."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from made import IDLE_W, make_run
from made_meters import MadeMeter

from terrace_lab.analyse import analyse, summarise
from terrace_lab.analyse.__main__ import main
from terrace_lab.analyse.run import _analysis
from terrace_lab.records import Kind
from terrace_lab.report.source import Source
from terrace_lab.summary import Cell, Summary, from_json


def truth_of(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "truth.json").read_text())["phases"])


def joules_of(truth: dict[str, Any], scopes: tuple[str, ...] = ("s1", "s2", "switch")) -> float:
    return float(sum(truth["joules"][scope] for scope in scopes))


def cell_of(summary: Summary, trial: str, phase: str) -> Cell:
    (found,) = (one for one in summary.cells if (one.trial, one.phase) == (trial, phase))
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("made") / "run", warmup=True)


@pytest.fixture(scope="module")
def summary(run: Path) -> Summary:
    return analyse(run)


def test_joules_are_within_their_error(run: Path, summary: Summary) -> None:
    truth = truth_of(run)
    assert len(summary.repetitions) == 2 * 2 * 6 * 3
    for one in summary.repetitions:
        told = truth[f"{one.trial}/{one.repetition}/{one.phase}"]
        assert one.energy_void is None
        assert one.gross_j is not None
        assert one.error_j is not None
        assert abs(one.gross_j - joules_of(told)) <= one.error_j
        assert one.error_j < 0.02 * one.gross_j
        assert one.net_j == pytest.approx(
            one.gross_j - sum(IDLE_W.values()) * one.seconds, rel=1e-6
        )


def test_each_host_has_its_part_of_the_joules(summary: Summary) -> None:
    for cell in summary.cells:
        assert cell.energy is not None
        assert sorted(cell.energy.by_scope) == ["s1", "s2", "switch"]
        parts = zip(*(one.values for one in cell.energy.by_scope.values()), strict=True)
        assert [sum(one) for one in parts] == pytest.approx(cell.energy.gross_j.values)


def test_one_host_needs_no_parts(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", repetitions=1)
    file = run / "experiment.toml"
    text = file.read_text()
    assert text.count('scope = ["s1", "s2", "switch"]') == 1
    file.write_text(text.replace('scope = ["s1", "s2", "switch"]', 'scope = ["s1"]'))
    assert all(cell.energy and not cell.energy.by_scope for cell in analyse(run).cells)


def changed(tmp_path: Path, old: str, new: str) -> Path:
    """A made run whose experiment says something else."""
    run = make_run(tmp_path / "run")
    file = run / "experiment.toml"
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
    return run


def test_shared_parts_are_taken_off_all_figures_of_energy(tmp_path: Path) -> None:
    summary = analyse(make_run(tmp_path / "whole"))
    scope = 'scope = ["s1", "s2", "switch"]'
    run = changed(tmp_path, scope, f"{scope}\nsubtract = {{ switch = 15.5 }}")
    less = analyse(run)
    assert less.subtracted_w == {"switch": 15.5}
    for one, whole in zip(less.repetitions, summary.repetitions, strict=True):
        assert one.gross_j is not None
        assert whole.gross_j is not None
        assert one.gross_j == pytest.approx(whole.gross_j - 15.5 * one.seconds)
        # Of idling it is taken off as well.
        assert one.net_j == pytest.approx(whole.net_j)
    for mine, theirs in zip(less.targets, summary.targets, strict=True):
        assert mine.idle_w is not None
        assert theirs.idle_w is not None
        assert mine.idle_w.median == pytest.approx(theirs.idle_w.median - 15.5)
    for cell, other in zip(less.cells, summary.cells, strict=True):
        assert cell.energy is not None
        assert other.energy is not None
        assert cell.energy.box is not None
        assert other.energy.box is not None
        assert cell.energy.box.median == pytest.approx(other.energy.box.median - 15.5)


def test_a_supply_of_several_hosts_counts_with_its_share(tmp_path: Path) -> None:
    whole = analyse(make_run(tmp_path / "whole"))
    scope = 'scope = ["s1", "s2", "switch"]'
    run = changed(tmp_path, scope, f"{scope}\nshare = {{ s2 = 0.25 }}")
    part = analyse(run)
    assert part.shares == {"s2": 0.25}
    assert "0.25 of s2" in Source(part).scope_text
    for cell, other in zip(part.cells, whole.cells, strict=True):
        assert cell.energy is not None
        assert other.energy is not None
        for name, times in [("s1", 1), ("s2", 0.25), ("switch", 1)]:
            expected = [times * joules for joules in other.energy.by_scope[name].values]
            assert cell.energy.by_scope[name].values == pytest.approx(expected)
        parts = zip(*(one.values for one in cell.energy.by_scope.values()), strict=True)
        assert [sum(one) for one in parts] == pytest.approx(cell.energy.gross_j.values)
        assert cell.energy.box is not None
        assert other.energy.box is not None
        assert cell.energy.box.median < other.energy.box.median
    for mine, theirs in zip(part.targets, whole.targets, strict=True):
        assert mine.idle_w is not None
        assert theirs.idle_w is not None
        assert mine.idle_w.median < theirs.idle_w.median


def test_more_than_there_is_cannot_be_taken_off(tmp_path: Path) -> None:
    scope = 'scope = ["s1", "s2", "switch"]'
    summary = analyse(changed(tmp_path, scope, f"{scope}\nsubtract = {{ all = 1e6 }}"))
    assert all(one.gross_j is None for one in summary.repetitions)
    voids = {one.energy_void for one in summary.repetitions}
    assert voids == {"the meters show no more than energy.subtract takes off"}


def test_systems_are_ranked_by_the_weight_that_is_asked_for(run: Path) -> None:
    heavy = summarise_with(run, 1.5)
    found = [one for one in heavy.comparisons if one.metric == "edp1.5"]
    assert found
    assert {one.metric for one in heavy.comparisons} == {"rate", "gross_j", "per_joule", "edp1.5"}
    for one in found:
        # Energy is 0.8 and time 0.8 of the reference's.
        assert one.ratio == pytest.approx(0.8**2.5, rel=0.12)
    cell = heavy.cells[0]
    assert cell.energy is not None
    assert list(cell.energy.edp) == ["0", "1", "1.5", "2"]


def summarise_with(run: Path, weight: float) -> Summary:
    return _analysis(run, weight).summary


def test_capacity_per_watt_is_of_the_drives_and_of_what_is_usable(tmp_path: Path) -> None:
    run = changed(tmp_path, "[targets.ours]", '[targets.ours]\nnominal_bytes = "8TB"')
    (ours,) = (one for one in analyse(run).targets if one.name == "ours")
    assert ours.nominal_bytes == 8 * 10**12
    assert ours.idle_w is not None
    assert ours.nominal_bytes_per_idle_w == pytest.approx(8e12 / ours.idle_w.median)


def test_rates_are_work_over_time(run: Path, summary: Summary) -> None:
    truth = truth_of(run)
    for one in summary.repetitions:
        told = truth[f"{one.trial}/{one.repetition}/{one.phase}"]
        seconds = told["end_s"] - told["begin_s"]
        assert one.seconds == pytest.approx(seconds, abs=1e-8)
        assert one.rate == pytest.approx(told["work"] / seconds)
    for cell in summary.cells:
        own = [
            one for one in summary.repetitions if (one.trial, one.phase) == (cell.trial, cell.phase)
        ]
        total = sum(one.work for one in own) / sum(one.seconds for one in own)
        assert cell.rate_total == pytest.approx(total)
        assert cell.rate.values == [one.rate for one in own]


def test_a_warm_up_does_not_count(summary: Summary) -> None:
    assert {one.repetition for one in summary.repetitions} == set(range(1, 7))


def test_a_phase_and_its_tail_are_two_and_their_sum(summary: Summary) -> None:
    work = cell_of(summary, "seq-nfs-c1", "write")
    tail = cell_of(summary, "seq-nfs-c1", "write.flush")
    assert (work.role, tail.role) == ("work", "tail")
    assert work.energy is not None
    assert tail.energy is not None
    assert work.energy.method == "cut", "nothing lies between them"
    sums = [
        a + b for a, b in zip(work.energy.gross_j.values, tail.energy.gross_j.values, strict=True)
    ]
    assert work.extra["gross_j_with_tail"].values == pytest.approx(sums)
    assert work.extra["tail_s"].values == tail.seconds.values
    assert work.extra["rate_with_tail"].median < work.rate.median
    assert tail.stop == "fixed"
    read = cell_of(summary, "seq-nfs-c1", "read")
    assert read.energy is not None
    assert read.energy.method == "guarded"


def test_idle_power_and_what_is_made_of_it(summary: Summary) -> None:
    (target,) = (one for one in summary.targets if one.name == "nfs")
    assert target.idle_w is not None
    assert target.idle_w.values == pytest.approx([100.0, 100.0])
    assert summary.idle_drift == pytest.approx(0.0)
    assert target.usable_bytes_per_idle_w == pytest.approx(4e10)
    assert target.raw_bytes_per_idle_w == pytest.approx(8e10)
    assert target.active_w is not None
    assert target.usable_bytes_per_active_w == pytest.approx(4e12 / target.active_w)
    assert target.price_per_tb == pytest.approx(750.0)
    best = max(cell_of(summary, f"seq-nfs-c{count}", "read").rate.median for count in (1, 2))
    assert target.price_per_mb_s["seq/read"] == pytest.approx(3000 / (best / 1e6))


def test_a_peak_of_power_above_the_limit_is_flagged(summary: Summary) -> None:
    (target,) = (one for one in summary.targets if one.name == "nfs")
    # 100 W idle, 0.9 of a load of 112 W and a tenth of it that wobbles, through averages.
    assert target.peak_w == pytest.approx(100 + 0.9 * 112 + 0.1 * 112, abs=0.5)
    flags = cell_of(summary, "seq-nfs-c2", "write").flags
    assert any("limit_w=200" in flag for flag in flags)


def test_boxes_are_of_the_samples(summary: Summary) -> None:
    energy = cell_of(summary, "seq-nfs-c1", "read").energy
    assert energy is not None
    box = energy.box
    assert box is not None
    assert box.low <= box.q1 <= box.median <= box.q3 <= box.high
    assert box.count > 6 * 20
    assert box.median == pytest.approx(100 + 0.8 * 112, abs=6)


def test_a_peak_bounds_each_cell(summary: Summary) -> None:
    read = cell_of(summary, "seq-nfs-c1", "read")
    (peak,) = (
        one
        for one in summary.peaks
        if (one.target, one.clients, one.direction) == ("nfs", 1, "read")
    )
    assert peak.binding == "network of clients"
    assert read.percent_of_peak is not None
    assert read.percent_of_peak.percent == pytest.approx(100 * read.rate.median / peak.value)
    write = cell_of(summary, "seq-ours-c2", "write")
    (bound,) = (
        one
        for one in summary.peaks
        if (one.target, one.clients, one.direction) == ("ours", 2, "write")
    )
    assert bound.terms["disk"] == pytest.approx((0.9e9 + 1.0e9) / 2, rel=0.03)
    assert write.percent_of_peak is not None
    assert write.percent_of_peak.is_suspicious == (write.rate.median > bound.value)


def test_the_faster_target_is_better_in_all(summary: Summary) -> None:
    assert {one.metric for one in summary.comparisons} == {"rate", "gross_j", "per_joule", "edp1"}
    for one in summary.comparisons:
        assert (one.target, one.reference, one.blocks) == ("ours", "nfs", 6)
        assert one.verdict == "better", one
        truth = {"rate": 1.25, "gross_j": 0.8, "per_joule": 1.25, "edp1": 0.64}[one.metric]
        assert one.ratio == pytest.approx(truth, rel=0.12)


def test_the_bound_of_latency_chooses_the_load(summary: Summary) -> None:
    """p99 is 8 ms of one client and 32 ms of two; the bound is 10 ms."""
    for one in summary.bounded_rates:
        assert (one.load_name, one.load, one.is_open) == ("clients", 1.0, False)
        rate = cell_of(summary, f"seq-{one.target}-c1", one.phase).rate
        assert one.rate == rate.median
    assert len(summary.bounded_rates) == 2 * 2


def test_a_decision_writes_nothing(run: Path, summary: Summary) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert summarise(run) == summary
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_the_summary_is_what_is_on_disk(run: Path, summary: Summary) -> None:
    assert from_json(json.loads((run / "summary.json").read_text())) == summary


def test_tables_have_all_rows(run: Path, summary: Summary) -> None:
    def rows(name: str) -> list[dict[str, str]]:
        with open(run / "derived" / f"{name}.csv", newline="") as file:
            return list(csv.DictReader(file))

    assert len(rows("metrics")) == len(rows("phases")) == len(summary.repetitions)
    first, metric = rows("metrics")[0], summary.repetitions[0]
    assert float(first["gross_j"]) == metric.gross_j
    samples = rows("samples")
    assert {one["meter"] for one in samples} == {"lmg", "rapl", "plug"}
    parquet = pytest.importorskip("pyarrow.parquet")
    assert parquet.read_table(run / "derived" / "samples.parquet").num_rows == len(samples)


@pytest.mark.usefixtures("summary")
def test_the_same_record_gives_the_same_bytes(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("derived", "summary.json"))
    analyse(copy)
    for made in (
        "summary.json",
        *(f"derived/{name}.csv" for name in ("samples", "phases", "metrics")),
    ):
        assert (copy / made).read_bytes() == (run / made).read_bytes(), made


def test_products_are_power_over_rate(tmp_path: Path) -> None:
    """With steady power E*t^w over the reference is (P/Pref)*(Tref/T)^(1+w)."""
    run = make_run(tmp_path / "run", spread=0.0, clients=(1,))
    made = analyse(run)
    ours, theirs = (cell_of(made, f"seq-{name}-c1", "read") for name in ("ours", "nfs"))
    assert ours.energy is not None
    assert theirs.energy is not None
    for weight, found in ours.energy.edp_normalised.items():
        power = ours.energy.mean_w.median / theirs.energy.mean_w.median
        rate = theirs.rate.median / ours.rate.median
        assert found == pytest.approx(power * rate ** (1 + int(weight)), rel=0.005)
    assert not ours.energy.edp_rescaled


def test_other_work_is_rescaled_and_said(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", spread=0.0, clients=(1,))
    for path in (run / "trials" / "seq-ours-c1").glob("rep-*/phases.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            line["work"] /= 2
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = analyse(run)
    cell = cell_of(made, "seq-ours-c1", "read")
    assert cell.energy is not None
    assert cell.energy.edp_rescaled
    assert any("the work differs" in flag for flag in cell.flags)
    gross = cell.energy.gross_j.median
    assert cell.energy.edp["1"].median == pytest.approx(4 * gross * cell.seconds.median, rel=0.01)
    refused = {one.metric: one.verdict for one in made.comparisons if one.phase == "read"}
    assert refused["gross_j"] == "not ranked: the work differs"
    assert refused["edp1"] == "worse"


def test_a_lag_of_a_meter_is_taken_out(tmp_path: Path) -> None:
    late = [
        MadeMeter("lmg", Kind.AVERAGE, ("s1", "s2", "switch"), offset_s=0.03, lag_s=0.35),
    ]
    run = make_run(tmp_path / "run", clients=(1,), repetitions=3, meters=late)
    made = analyse(run)
    truth = truth_of(run)
    for one in made.repetitions:
        told = truth[f"{one.trial}/{one.repetition}/{one.phase}"]
        assert one.gross_j is not None
        assert one.error_j is not None
        assert abs(one.gross_j - joules_of(told)) <= one.error_j
    assert made.meters[0].lag_s == 0.35


def test_the_command_names_what_is_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 1
    assert "cannot read a run: there is no experiment.toml" in capsys.readouterr().err
