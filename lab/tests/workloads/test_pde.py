# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The solver and its reader: that both saw the same, and what of the time was computing."""

from pathlib import Path
from typing import Any

import pytest
from clients import MakeContext, built

from terrace_lab import workloads
from terrace_lab.errors import ParseError, PhaseFailed, SettingsError
from terrace_lab.hosts import AgentHost
from terrace_lab.settings import Settings
from terrace_lab.workloads.base import Workload

# Three stand-ins that keep files below the directory of the store.
TERRACE = """#!/bin/sh
echo "terrace $@" >>{root}/words
[ "$1" = init ] && mkdir "$2"; exit 0
"""
SOLVER = """#!/bin/sh
echo "partdiff $@" >>{root}/words
while [ $# -gt 0 ]; do [ "$1" = --checkpoints ] && count=$2; shift; done
echo "iteration 1  residuum 1e-3"
echo "$count checkpoints, checksum 0123456789abcdef"
"""
READER = """#!/bin/sh
cat {root}/answer
"""
GOOD = "4 checkpoints, checksum 0123456789abcdef\n"


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    for name, text in (("terrace", TERRACE), ("partdiff", SOLVER), ("partdiff-read", READER)):
        file = tmp_path / name
        file.write_text(text.replace("{root}", str(tmp_path)))
        file.chmod(0o755)
    (tmp_path / "answer").write_text(GOOD)
    return {"program": str(tmp_path / "partdiff"), "terrace": str(tmp_path / "terrace")}


def make(**parameters: Any) -> Workload:
    small = {"grid": 16, "steps": 40, "checkpoint_every": 10}
    table = {"kind": "pde", "params": {**small, **parameters}}
    return workloads.create("w", Settings("workloads.w", table))


def test_the_reader_sees_what_the_solver_wrote(
    programs: dict[str, str], tmp_path: Path, make_context: MakeContext
) -> None:
    context = make_context(2)
    workload = make(**programs)
    workload.prepare(context)
    solve, read = workload.phases(context)
    solved = workload.run(context, solve)
    assert solved.work == solved.extra["checkpoints"] == 8
    span = max(one.end.raw_ns - one.begin.raw_ns for one in solved.spans) / 1e9
    assert solved.extra["compute_s"] + solved.extra["checkpoint_s"] == pytest.approx(span)
    assert workload.run(context, read).work == 2 * 4 * (64 + 8 * 16 * 16)
    assert workload.verify(context).is_good
    words = (tmp_path / "words").read_text()
    store = f"{tmp_path}/client-1/store"
    assert f"terrace init {store} --policy none --tier only={store}/only" in words
    assert "--checkpoints 1 --interval 40 --persistency none" in words


def test_a_store_of_the_target_is_emptied_before(
    programs: dict[str, str], tmp_path: Path, make_context: MakeContext
) -> None:
    context = make_context(url="terrace://s1")
    workload = make(**programs, split=False)
    workload.prepare(context)
    result = workload.run(context, workload.phases(context)[0])
    assert "compute_s" not in result.extra
    emptied, solved = (tmp_path / "words").read_text().splitlines()
    assert emptied == "terrace --store terrace://s1 rm -rf lab-pde-0"
    assert solved.endswith("--store terrace://s1 --namespace lab-pde-0")


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (GOOD.replace("abc", "abd"), PhaseFailed, "cannot read: checksums differ"),
        (
            GOOD.replace("4", "3", 1),
            PhaseFailed,
            "not all checkpoints are there expected=4 found=3",
        ),
        ("partdiff-read: busy", ParseError, "no summary ends='partdiff-read: busy'"),
    ],
)
def test_a_reader_that_sees_something_else_fails(
    programs: dict[str, str],
    tmp_path: Path,
    make_context: MakeContext,
    answer: str,
    error: type[Exception],
    message: str,
) -> None:
    context = make_context()
    workload = make(**programs, split=False)
    workload.prepare(context)
    solve, read = workload.phases(context)
    workload.run(context, solve)
    (tmp_path / "answer").write_text(answer)
    with pytest.raises(error, match=message):
        workload.run(context, read)


def test_another_api_is_a_problem_that_says_why(host: AgentHost) -> None:
    (problem,) = make(api=["mpiio"]).check({"here": host})
    assert problem.is_fatal
    assert problem.text == "there is no solver with api 'mpiio': partdiff writes to Terrace stores"
    missing = make(program="no-partdiff", terrace="no-terrace").check({"here": host})
    assert [one.text.split()[0] for one in missing] == [
        "no-partdiff",
        "no-partdiff-read",
        "no-terrace",
    ]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"steps": 45}, "steps: must be a multiple of checkpoint_every"),
        ({"api": ["mpiio", "hdf5"]}, "api: must be one name; several are a factor"),
        ({"grid": 2}, "grid: must be a whole number of at least 3"),
        ({"step": 1}, "step: there is no such setting here"),
    ],
)
def test_wrong_parameters_say_where(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=f"workloads.w.params.{message}"):
        make(**parameters)


def test_the_programs_of_this_project_do_it(make_context: MakeContext) -> None:
    context = make_context(2)
    workload = make(program=built("partdiff"), terrace=built("terrace"))
    workload.prepare(context)
    for phase in workload.phases(context):
        assert workload.run(context, phase).work > 0
    assert workload.verify(context).is_good
