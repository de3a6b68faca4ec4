# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What went wrong in a run costs what it touched, is named, and costs nothing else."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from made import REAL_NS, Faults, make_run
from made_meters import MadeMeter

from terrace_lab.analyse import analyse
from terrace_lab.records import Kind
from terrace_lab.summary import Repetition, Summary

WELL = [
    MadeMeter("lmg", Kind.AVERAGE, ("s1", "s2", "switch"), offset_s=0.013),
]


def told(run: Path, one: Repetition) -> dict[str, Any]:
    phases = json.loads((run / "truth.json").read_text())["phases"]
    return dict(phases[f"{one.trial}/{one.repetition}/{one.phase}"])


def void(summary: Summary) -> set[tuple[str, int, str]]:
    return {
        (one.trial, one.repetition, one.phase)
        for one in summary.repetitions
        if one.energy_void is not None
    }


def touched(run: Path, summary: Summary, spans: Sequence[tuple[float, float]]) -> set[Any]:
    """Phases that overlap one of the times."""
    found = set()
    for one in summary.repetitions:
        truth = told(run, one)
        if any(truth["begin_s"] < end and begin < truth["end_s"] for begin, end in spans):
            found.add((one.trial, one.repetition, one.phase))
    return found


def check_joules(run: Path, summary: Summary) -> None:
    for one in summary.repetitions:
        if one.gross_j is not None:
            assert one.error_j is not None
            truth = sum(told(run, one)["joules"].values())
            assert abs(one.gross_j - truth) <= one.error_j, one


def test_ten_minutes_without_a_meter_void_what_they_touched(tmp_path: Path) -> None:
    meters = [
        MadeMeter("lmg", Kind.AVERAGE, ("s1",), period_s=2.0, offset_s=0.2),
        MadeMeter("rapl", Kind.COUNTER, ("s2",), period_s=2.0, offset_s=0.5),
        MadeMeter("plug", Kind.INSTANT, ("switch",), period_s=2.0, offset_s=0.7),
    ]
    options: dict[str, Any] = {"clients": (1,), "phase_s": 60.0, "guard_s": 8.0, "meters": meters}
    plain = make_run(tmp_path / "plain", **options)
    phases = json.loads((plain / "truth.json").read_text())["phases"].values()
    middles = sorted((one["begin_s"] + one["end_s"]) / 2 for one in phases)
    begin = next(one for one in middles if one > 500)
    gap = (begin, min(one for one in middles if one > begin + 600))
    # One meter of each kind has the gap in turn.
    for index, meter in enumerate(meters):
        faults = Faults(gaps={meter.name: [gap]})
        run = make_run(tmp_path / str(index), faults=faults, **options)
        made = analyse(run)
        lost = void(made)
        assert lost == touched(run, made, [gap])
        assert len(lost) > 5
        assert len(made.repetitions) == 2 * 6 * 3, "their performance counts"
        check_joules(run, made)
        (summary,) = (one for one in made.meters if one.name == meter.name)
        (found,) = summary.gaps
        assert found.cause == "unplugged"
        assert summary.gap_seconds == pytest.approx(gap[1] - gap[0], abs=5)
        flags = [flag for cell in made.cells for flag in cell.flags]
        assert any("energy void in" in flag and f"meter={meter.name}" in flag for flag in flags)


def test_values_that_a_meter_did_not_have_are_counted(tmp_path: Path) -> None:
    spans = [(41.0, 41.05), (60.0, 64.0)]
    run = make_run(
        tmp_path / "run",
        clients=(1,),
        repetitions=3,
        meters=WELL,
        faults=Faults(nans={"lmg": spans}),
    )
    made = analyse(run)
    (meter,) = made.meters
    assert 3 * 40 < meter.unusable["nan"] < 3 * 50
    assert void(made) >= touched(run, made, spans[1:])
    assert void(made) <= touched(run, made, [(begin - 0.1, end + 0.1) for begin, end in spans])
    check_joules(run, made)


def test_a_counter_that_began_anew_invents_nothing(tmp_path: Path) -> None:
    meters = [MadeMeter("rapl", Kind.COUNTER, ("s1", "s2", "switch"), offset_s=0.02)]
    run = make_run(
        tmp_path / "run",
        clients=(1,),
        repetitions=3,
        meters=meters,
        faults=Faults(resets={"rapl": [45.0, 70.0]}),
    )
    made = analyse(run)
    check_joules(run, made)
    assert made.meters[0].unusable == {"reset": 6}
    assert void(made) <= touched(run, made, [(44.8, 45.2), (69.8, 70.2)])


def test_a_killed_meter_is_a_gap_and_a_torn_line(tmp_path: Path) -> None:
    span = (50.0, 58.0)
    run = make_run(
        tmp_path / "run",
        clients=(1,),
        repetitions=3,
        meters=WELL,
        faults=Faults(kills={"lmg": [span]}),
    )
    made = analyse(run)
    assert void(made) == touched(run, made, [span])
    (gap,) = made.meters[0].gaps
    assert gap.cause == "its process was killed"
    assert "torn line: meters/lmg/000001.jsonl:" in "\n".join(made.deviations)
    check_joules(run, made)


@pytest.mark.parametrize("by", [2.0, -2.0])
def test_a_step_of_the_clock_moves_nothing(tmp_path: Path, by: float) -> None:
    run = make_run(
        tmp_path / "run",
        clients=(1,),
        repetitions=3,
        phase_s=15,
        faults=Faults(clock_step=(150.0, by)),
    )
    made = analyse(run)
    check_joules(run, made)
    # One sample of an average had its begin before the step and its end behind it.
    assert void(made) <= touched(run, made, [(149.8, 150.2)])
    for one in made.repetitions:
        truth = told(run, one)
        assert one.seconds == pytest.approx(truth["end_s"] - truth["begin_s"], abs=1e-6)
    assert any(f"the clock stepped by {by:+.3f} s" in text for text in made.deviations)


@pytest.mark.parametrize("by", [2.0, -2.0])
def test_without_both_clocks_a_step_voids_what_is_near(tmp_path: Path, by: float) -> None:
    run = make_run(
        tmp_path / "run",
        clients=(1,),
        repetitions=3,
        phase_s=8,
        faults=Faults(clock_step=(80.0, by)),
        has_zero=False,
    )
    made = analyse(run)
    check_joules(run, made)
    assert void(made) >= touched(run, made, [(79.99, 80.01)])
    assert void(made) <= touched(run, made, [(77.0, 83.0)])


def middle_of(run: Path, name: str) -> float:
    phases = json.loads((run / "truth.json").read_text())["phases"]
    return float(phases[name]["begin_s"] + phases[name]["end_s"]) / 2


def test_a_step_does_not_fill_a_gap(tmp_path: Path) -> None:
    """The first average behind the gap began before the step and ended behind it."""
    plain = make_run(tmp_path / "plain", clients=(1,), repetitions=1, phase_s=8, meters=WELL)
    at = round(middle_of(plain, "seq-nfs-c1/1/write"))
    run = make_run(
        tmp_path / "run",
        clients=(1,),
        repetitions=1,
        phase_s=8,
        meters=WELL,
        faults=Faults(clock_step=(at, 2.0), gaps={"lmg": [(at - 1.8, at - 0.05)]}),
    )
    made = analyse(run)
    assert ("seq-nfs-c1", 1, "write") in void(made)
    check_joules(run, made)


def test_a_reset_is_a_reset_also_where_the_counter_is_higher_then(tmp_path: Path) -> None:
    meters = [MadeMeter("rapl", Kind.COUNTER, ("s1", "s2", "switch"), offset_s=0.02)]
    run = make_run(tmp_path / "run", clients=(1,), repetitions=1, phase_s=25, meters=meters)
    at_ns = REAL_NS + round(middle_of(run, "seq-nfs-c1/1/write") * 1e9)
    path = run / "meters" / "rapl" / "000001.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    is_first = True
    for line in lines:
        for sample in line.get("samples", ()):
            if sample["t1"] < at_ns:
                continue
            sample["J"] += 500
            if is_first:
                sample |= {"J": None, "q": "reset"}
        is_first &= line.get("real", 0) < at_ns
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = analyse(run)
    assert not void(made) & {("seq-nfs-c1", 1, "write")}
    check_joules(run, made)


def test_an_unfinished_run_gives_what_it_has(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", clients=(1,), meters=WELL, faults=Faults(unfinished_after=7))
    made = analyse(run)
    assert not made.is_complete
    assert made.end_ns is None
    assert len(made.repetitions) == 7 * 3
    assert {one.stop for one in made.cells if one.role == "work"} <= {"too few", "met"}
    assert {one.verdict for one in made.comparisons} == {"too few blocks"}
    assert any("void: unfinished" in flag for one in made.cells for flag in one.flags)
    check_joules(run, made)


def test_files_may_be_torn_anywhere(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", clients=(1,), repetitions=3, meters=WELL)
    whole = len(analyse(run).repetitions)
    for path, part in (
        (run / "meters" / "lmg" / "000001.jsonl", 0.7),
        (run / "trials" / "seq-nfs-c1" / "rep-002" / "phases.jsonl", 0.5),
        (run / "probes.jsonl", 0.3),
        (run / "journal.jsonl", 0.8),
        (run / "trials" / "seq-nfs-c1" / "rep-003" / "result.json", 0.4),
        (run / "idle" / "closing.json", 0.5),
    ):
        content = path.read_bytes()
        path.write_bytes(content[: int(part * len(content))])
        made = analyse(run)
        assert 0 < len(made.repetitions) <= whole
        check_joules(run, made)
        if path.suffix == ".jsonl":
            assert any(str(path.relative_to(run)) in text for text in made.deviations)


def test_bytes_of_noise_are_no_lines(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", clients=(1,), repetitions=3, meters=WELL)
    before = analyse(run)
    path = run / "meters" / "lmg" / "000001.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines.insert(3, b"\x00\xff[1,2]\n")
    path.write_bytes(b"".join(lines))
    after = analyse(run)
    assert [one.gross_j for one in after.repetitions] == [one.gross_j for one in before.repetitions]
    assert any("000001.jsonl:4" in text for text in after.deviations)


def test_failed_and_void_repetitions_do_not_count(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", clients=(1,), meters=WELL)
    journal = (run / "journal.jsonl").read_text().splitlines()
    lines = [json.loads(line) for line in journal]
    for line in lines:
        if line.get("trial") == "seq-nfs-c1" and line.get("state") == "done":
            if line["rep"] == 2:
                line |= {"state": "failed", "reason": "fio: error 28"}
            elif line["rep"] == 3:
                line |= {"state": "void", "reason": "the agent of c1 is gone"}
    (run / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    bad = run / "trials" / "seq-nfs-c1" / "rep-005" / "result.json"
    bad.write_text(json.dumps({"verdict": {"is_good": False, "text": "block 7 differs"}}))
    made = analyse(run)
    (cell,) = (one for one in made.cells if (one.target, one.phase) == ("nfs", "write"))
    assert len(cell.rate.values) == 3
    assert cell.failed == 2
    assert "repetition 3 void: the agent of c1 is gone" in cell.flags
    told_of = "\n".join(made.deviations)
    for text in ("fio: error 28", "the agent of c1 is gone", "block 7 differs"):
        assert text in told_of


def test_what_changed_in_a_run_is_told(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", clients=(1,), meters=WELL)
    with open(run / "journal.jsonl", "a", encoding="utf-8") as journal:
        for line in (
            {"event": "drift_accepted", "what": ["kernel"], "host": "s1"},
            {"event": "resume"},
            {"event": "note", "text": "ior is not there: gen takes its place"},
        ):
            journal.write(json.dumps(line) + "\n")
    told_of = analyse(run).deviations
    assert "drift_accepted what=['kernel'] host=s1" in told_of
    assert "resume" in told_of
    assert "note text=ior is not there: gen takes its place" in told_of


def test_an_outlier_is_kept_and_its_cause_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", clients=(1,), meters=WELL, spread=0.001)
    path = run / "trials" / "seq-nfs-c1" / "rep-004" / "phases.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    read = next(line for line in lines if line["phase"] == "read")
    read["begin_ns"] += 500_000_000
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with open(run / "journal.jsonl", "a", encoding="utf-8") as journal:
        line = {"event": "wait", "real": read["begin_ns"] + 1, "reason": "load of 3.1"}
        before = line | {"real": read["begin_ns"] - 1, "reason": "load of 9"}
        journal.write(json.dumps(before) + "\n" + json.dumps(line) + "\n")
    made = analyse(run)
    (one,) = (
        one
        for one in made.repetitions
        if (one.trial, one.repetition, one.phase) == ("seq-nfs-c1", 4, "read")
    )
    assert one.notes == ["far from the others: wait reason=load of 3.1"]
    (cell,) = (one for one in made.cells if (one.target, one.phase) == ("nfs", "read"))
    assert len(cell.rate.values) == 6
