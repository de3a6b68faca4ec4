# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Which meter counts for what, who stands in for whom, and what is never mixed."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from made import Faults, make_run
from made_meters import MadeMeter

from terrace_lab.analyse import analyse, merge
from terrace_lab.errors import LabError
from terrace_lab.records import Kind
from terrace_lab.summary import Summary, from_json

SCOPES = ("s1", "s2", "switch")
LMG = MadeMeter("lmg", Kind.AVERAGE, SCOPES, offset_s=0.013)
PDU = MadeMeter(
    "pdu", Kind.INSTANT, SCOPES, offset_s=0.07, factor=1.04, gain=0.02, backup_for="lmg"
)
MODEL = MadeMeter("model", Kind.AVERAGE, SCOPES, driver="model", is_modelled=True)


def made(path: Path, meters: Sequence[MadeMeter], **options: object) -> Path:
    options = {"clients": (1,), "repetitions": 3} | options
    return make_run(path, meters=meters, **options)  # type: ignore[arg-type]


def worst(run: Path, summary: Summary) -> float:
    """Largest error of a repetition, in parts of what it says it may be off."""
    truth = json.loads((run / "truth.json").read_text())["phases"]
    found = 0.0
    for one in summary.repetitions:
        joules = sum(truth[f"{one.trial}/{one.repetition}/{one.phase}"]["joules"].values())
        if one.gross_j is not None and one.error_j:
            found = max(found, abs(one.gross_j - joules) / one.error_j)
    return found


def test_a_backup_stands_in_with_a_wider_error(tmp_path: Path) -> None:
    faults = Faults(gaps={"lmg": [(50.0, 75.0)]})
    run = made(tmp_path / "run", [LMG, PDU], faults=faults)
    summary = analyse(run)
    assert all(one.energy_void is None for one in summary.repetitions)
    assert worst(run, summary) <= 1
    by_backup = [one for one in summary.repetitions if any("backup" in n for n in one.notes)]
    others = [one for one in summary.repetitions if one not in by_backup]
    assert 2 <= len(by_backup) < len(summary.repetitions) / 2
    assert by_backup[0].notes[0] == "backup meter pdu stood in for lmg scope=s1"

    def relative(one: object) -> float:
        return one.error_j / one.gross_j  # type: ignore[attr-defined, no-any-return]

    assert min(map(relative, by_backup)) > max(
        relative(one) for one in others if one.phase == "read"
    )
    assert any("backup meter pdu" in flag for cell in summary.cells for flag in cell.flags)


def test_without_a_backup_the_same_gap_voids(tmp_path: Path) -> None:
    faults = Faults(gaps={"lmg": [(50.0, 75.0)]})
    summary = analyse(made(tmp_path / "run", [LMG], faults=faults))
    assert sum(one.energy_void is not None for one in summary.repetitions) >= 2


def test_a_backup_that_is_lost_too_does_not_help(tmp_path: Path) -> None:
    gap = [(50.0, 75.0)]
    summary = analyse(
        made(tmp_path / "run", [LMG, PDU], faults=Faults(gaps={"lmg": gap, "pdu": gap}))
    )
    voids = [one.energy_void for one in summary.repetitions if one.energy_void]
    assert len(voids) >= 2
    assert all("meter=lmg" in void for void in voids)


def test_two_meters_of_one_scope_are_not_added(tmp_path: Path) -> None:
    second = MadeMeter("plug", Kind.INSTANT, ("s1",), offset_s=0.02)
    run = made(tmp_path / "run", [LMG, second])
    summary = analyse(run)
    assert worst(run, summary) <= 1
    assert "s1 is measured by lmg; plug has it too and is not added" in summary.deviations


def test_a_measured_channel_comes_before_a_modelled_one(tmp_path: Path) -> None:
    model = MadeMeter("model", Kind.AVERAGE, ("s1",), factor=3.0, is_modelled=True)
    run = made(tmp_path / "run", [model, LMG])
    summary = analyse(run)
    assert worst(run, summary) <= 1
    assert not summary.is_modelled


def test_channels_of_one_scope_and_meter_are_added(tmp_path: Path) -> None:
    """Two supplies of one host, each with half of its power."""
    run = made(tmp_path / "run", [LMG])
    before = analyse(run)
    for path in (run / "meters" / "lmg").glob("0*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            for sample in [one for one in line.get("samples", ()) if one["ch"] == "s1"]:
                sample["W"] /= 2
                line["samples"].append(sample | {"ch": "s1-second"})
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    after = analyse(run)
    for old, new in zip(before.repetitions, after.repetitions, strict=True):
        assert new.gross_j == pytest.approx(old.gross_j)


def test_a_scope_that_no_meter_has_leaves_no_number(tmp_path: Path) -> None:
    alone = MadeMeter("lmg", Kind.AVERAGE, ("s1", "switch"))
    summary = analyse(made(tmp_path / "run", [alone]))
    assert {one.energy_void for one in summary.repetitions} == {"no meter scope=s2"}
    assert all(one.energy is None for one in summary.cells)
    assert "energy of s2: no meter has it" in summary.not_measured


def test_without_meters_there_is_performance_alone(tmp_path: Path) -> None:
    summary = analyse(made(tmp_path / "run", []))
    assert "energy: there is no meter" in summary.not_measured
    assert all(one.rate.median > 0 for one in summary.cells if one.role == "work")
    assert {one.metric for one in summary.comparisons} == {"rate"}


def test_a_meter_that_shows_nothing_is_not_divided_by(tmp_path: Path) -> None:
    dead = MadeMeter("lmg", Kind.AVERAGE, SCOPES, factor=0.0)
    summary = analyse(made(tmp_path / "run", [dead]))
    assert {one.energy_void for one in summary.repetitions} == {"the meters show no power"}


def test_what_is_modelled_is_stamped(tmp_path: Path) -> None:
    summary = analyse(made(tmp_path / "run", [MODEL]))
    assert summary.is_modelled
    assert summary.meters[0].is_modelled
    for cell in summary.cells:
        assert "MODELLED: the energy is computed, not measured" in cell.flags


def test_runs_of_two_systems_merge(tmp_path: Path) -> None:
    first = made(tmp_path / "a", [LMG], repetitions=6)
    second = made(tmp_path / "b", [LMG], repetitions=6, targets={"ceph": 0.5}, seed=9)
    merged = merge([first, second], tmp_path / "out")
    assert from_json(json.loads((tmp_path / "out" / "summary.json").read_text())) == merged
    assert [one.name for one in merged.targets] == ["nfs", "ours", "ceph"]
    found = {one.metric: one for one in merged.comparisons if one.target == "ceph"}
    assert found["rate"].reference == "nfs"
    assert found["rate"].ratio == pytest.approx(0.5, rel=0.1)
    assert (found["rate"].verdict, found["gross_j"].verdict) == ("worse", "worse")
    assert {one.metric for one in merged.comparisons if one.target == "ours"} >= {"rate"}
    (ceph,) = (one for one in merged.cells if (one.target, one.phase) == ("ceph", "read"))
    assert ceph.energy is not None
    assert ceph.energy.edp_normalised["1"] == pytest.approx(2**2, rel=0.1)
    rows = (tmp_path / "out" / "derived" / "metrics.csv").read_text().splitlines()
    assert len(rows) == 1 + len(merged.repetitions)


def test_modelled_energy_is_not_ranked_against_measured(tmp_path: Path) -> None:
    first = made(tmp_path / "a", [LMG], repetitions=6, targets={"nfs": 1.0})
    second = made(tmp_path / "b", [MODEL], repetitions=6, targets={"ceph": 0.5}, seed=9)
    merged = merge([first, second], tmp_path / "out")
    for one in merged.comparisons:
        if one.target == "ceph" and one.metric != "rate":
            assert one.verdict == "not ranked: modelled against measured energy"
            assert one.p_holm is None
        elif one.target == "ceph":
            assert one.verdict == "worse"


def test_runs_that_differ_are_not_merged(tmp_path: Path) -> None:
    first = made(tmp_path / "a", [LMG], repetitions=1)
    other_work = made(tmp_path / "b", [LMG], repetitions=1, targets={"ceph": 1.0})
    text = (other_work / "experiment.toml").read_text()
    (other_work / "experiment.toml").write_text(text.replace('xfer = "1MiB"', 'xfer = "4MiB"'))
    other_scope = made(tmp_path / "c", [LMG], repetitions=1, targets={"ceph": 1.0})
    text = (other_scope / "experiment.toml").read_text()
    narrow = text.replace('scope = ["s1", "s2", "switch"]', 'scope = ["s1"]')
    (other_scope / "experiment.toml").write_text(narrow)
    for second, reason in (
        (other_work, "workload seq of .* does other work"),
        (other_scope, "the energy scope of .* is s1 and that of"),
        (
            made(tmp_path / "d", [LMG], repetitions=1, targets={"nfs": 1.0, "ours": 1.0}),
            "target ours is in",
        ),
        (
            made(tmp_path / "e", [LMG], repetitions=1, workloads=("md",)),
            "workload md is in .*e alone",
        ),
    ):
        with pytest.raises(LabError, match=reason):
            merge([first, second], tmp_path / "out")
        assert not (tmp_path / "out").exists()
    with pytest.raises(LabError, match="at least two runs"):
        merge([first], tmp_path / "out")
    with pytest.raises(LabError, match="is not empty"):
        merge([first, other_work], first)
