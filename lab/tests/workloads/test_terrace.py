# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The micro-benchmarks: what is asked of `terrace bench`, and what of its answer is taken."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from clients import MakeContext, built

from terrace_lab import workloads
from terrace_lab.errors import ParseError, PhaseFailed, SettingsError
from terrace_lab.hosts import AgentHost
from terrace_lab.settings import Settings
from terrace_lab.workloads.base import Direction, Workload

ROW = {
    "case": "create",
    "batch": 1,
    "operations": 100,
    # Together 1 ms: less than a shell takes to start.
    "ops_per_s": 100_000.0,
    "p50_us": 8.0,
    "p99_us": 20.0,
    "p999_us": 50.0,
    "ended_early": 0,
}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Prints what lies beside it, and keeps its words."""
    file = tmp_path / "terrace"
    file.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/words\ncat {tmp_path}/answer\n')
    file.chmod(0o755)
    answer(tmp_path, ROW)
    return file


def answer(directory: Path, *rows: dict[str, Any]) -> None:
    (directory / "answer").write_text(json.dumps({"cases": rows}))


def make(**parameters: Any) -> Workload:
    table = {"kind": "terrace", "params": parameters}
    return workloads.create("w", Settings("workloads.w", table))


def test_an_operation_is_one_phase_and_its_time_what_bench_counted(
    program: Path, tmp_path: Path, make_context: MakeContext
) -> None:
    workload = make(program=str(program), object=["create"], kv=["get"], batches=[1, 50])
    context = make_context()
    phases = workload.phases(context)
    names = ["object-create", "object-create-x50", "kv-get", "kv-get-x50"]
    assert [phase.name for phase in phases] == names
    assert phases[0].direction is Direction.METADATA
    assert phases[2].direction is Direction.IOPS
    result = workload.run(context, phases[0])
    assert result.work == 100
    (span,) = result.spans
    assert span.end.raw_ns - span.begin.raw_ns == 1_000_000
    assert result.latency_s == {"p50": 8e-6, "p99": 2e-5, "p99.9": 5e-5}
    assert result.extra == {"ops_per_s": 100_000.0}
    words = (tmp_path / "words").read_text().split()
    assert words[:4] == ["bench", "object", "--json", "--case"]
    assert words[-4:-2] == ["--directory", str(tmp_path / "client-0")]


def test_clients_of_one_host_begin_together_behind_servers(
    program: Path, tmp_path: Path, make_context: MakeContext
) -> None:
    context = make_context(2, url="terrace://s1:7420")
    workload = make(program=str(program), object=["create"], kv=[], batches=[1])
    result = workload.run(context, workload.phases(context)[0])
    assert result.work == 100
    assert len(result.spans) == 2
    (line,) = (tmp_path / "words").read_text().splitlines()
    assert line.startswith("--store terrace://s1:7420 bench object --json")
    assert line.endswith("--processes 2")


def test_clients_with_stores_of_their_own_add_up(
    program: Path, tmp_path: Path, make_context: MakeContext
) -> None:
    workload = make(program=str(program), object=["create"], kv=[], batches=[1])
    answer(tmp_path, {**ROW, "ended_early": 1})
    context = make_context(2)
    result = workload.run(context, workload.phases(context)[0])
    assert result.work == 200
    assert result.extra["ops_per_s"] == 200_000
    assert result.latency_s == {}
    assert sum("ended before its time" in note for note in result.notes) == 2
    assert any("did not begin together" in note for note in result.notes)


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([], ParseError, "0 rows of case='create' batch=1"),
        ([ROW, ROW], ParseError, "2 rows of case='create'"),
        ([{**ROW, "operations": None}], ParseError, "no number operations=None"),
        ([{**ROW, "operations": 0}], PhaseFailed, "cannot create: terrace bench counted no oper"),
        ([{**ROW, "ops_per_s": 1.0}], PhaseFailed, "it is longer than the command client=0"),
    ],
)
def test_an_answer_that_is_none_is_refused(
    program: Path,
    tmp_path: Path,
    make_context: MakeContext,
    rows: list[dict[str, Any]],
    error: type[Exception],
    message: str,
) -> None:
    answer(tmp_path, *rows)
    workload = make(program=str(program), object=["create"], kv=[], batches=[1])
    context = make_context()
    with pytest.raises(error, match=message):
        workload.run(context, workload.phases(context)[0])


def test_what_is_no_json_is_refused(
    program: Path, tmp_path: Path, make_context: MakeContext
) -> None:
    (tmp_path / "answer").write_text("terrace: busy")
    workload = make(program=str(program))
    context = make_context()
    with pytest.raises(ParseError, match="no cases begins='terrace: busy'"):
        workload.run(context, workload.phases(context)[0])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"object": ["status", "open"]}, "object: 'open' is none of create, delete"),
        ({"kv": ["scan"]}, "kv: 'scan' is none of put, get"),
        ({"batches": [0]}, r"batches: must be a list of whole numbers, not \[0\]"),
        ({"batches": 7}, "batches: must be a list of whole numbers, not 7"),
        ({"object": [], "kv": []}, "object: there is no case, and none of kv"),
    ],
)
def test_wrong_parameters_say_where(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=f"workloads.w.params.{message}"):
        make(**parameters)


def test_a_host_without_the_program_is_a_problem(host: AgentHost) -> None:
    (problem,) = make(program="no-terrace").check({"here": host})
    assert problem.text == "no-terrace is not there; `make release` builds it"


def test_the_store_of_a_target_may_be_a_directory(
    make_context: MakeContext, tmp_path: Path
) -> None:
    store = str(tmp_path / "store")
    program = built("terrace")
    init = [program, "init", store, "--policy", "lru", "--tier", f"only={tmp_path}/only"]
    subprocess.run(init, check=True, capture_output=True, timeout=60)
    workload = make(program=program, object=["create+write"], kv=["put"], batches=[1], seconds=0.2)
    context = make_context(2, url=store)
    for phase in workload.phases(context):
        result = workload.run(context, phase)
        assert result.work > 0
        assert len(result.spans) == 2
    left = subprocess.run(
        [program, "--store", store, "ls"], check=True, capture_output=True, timeout=60
    )
    assert left.stdout == b""
