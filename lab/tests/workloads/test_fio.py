# SPDX-License-Identifier: Apache-2.0 OR MIT
"""fio for real on a directory: what it did, when, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from clients import MakeContext

from terrace_lab import workloads
from terrace_lab.errors import PhaseFailed, SettingsError
from terrace_lab.hosts import AgentHost
from terrace_lab.settings import Settings
from terrace_lab.workloads.base import Context, Direction, Result, Workload


def make(**parameters: Any) -> Workload:
    table = {"kind": "fio", "params": parameters}
    return workloads.create("w", Settings("workloads.w", table))


def run_all(workload: Workload, context: Context) -> dict[str, Result]:
    workload.prepare(context)
    return {phase.name: workload.run(context, phase) for phase in workload.phases(context)}


def test_sequential_phases_count_all_bytes_of_all_processes(
    make_context: MakeContext, tmp_path: Path
) -> None:
    context = make_context(2, bytes_per_client=1 << 20)
    workload = make(preset="sequential", processes=2, xfer="64KiB")
    results = run_all(workload, context)
    assert results["write"].work == results["read"].work == 2 << 20
    assert (context.record / "write.1.stdout").exists()

    # fio alone takes longer than this to start; the marks leave that out.
    for span in results["write"].spans:
        assert span.host == "here"
        assert 0 < span.end.real_ns - span.begin.real_ns < 1e9
        assert span.end.raw_ns - span.begin.raw_ns == span.end.real_ns - span.begin.real_ns

    # Each client reads what the next one wrote.
    directories = [
        next(word for word in command if word.startswith("--directory="))[-1]
        for name in ("write", "read")
        for command in results[name].commands
    ]
    assert directories == ["0", "1", "1", "0"]

    assert workload.verify(context).is_good
    with open(next((tmp_path / "shared").rglob("client-1/fio.0.0")), "r+b") as cut:
        cut.truncate(100)
    verdict = workload.verify(context)
    expected = "sizes are not as written client=1 expected=524288 found='100 524288'"
    assert verdict.text == expected


def test_a_shared_file_holds_the_blocks_of_all(make_context: MakeContext, tmp_path: Path) -> None:
    context = make_context(2, bytes_per_client=2_457_600)
    workload = make(preset="shared-file", phases=["write"], processes=2, verify="content")
    results = run_all(workload, context)
    file = tmp_path / "shared" / "fio-data" / "all"
    assert file.stat().st_size == results["write"].work == 4_915_200
    assert workload.verify(context).is_good
    with open(file, "r+b") as damaged:
        damaged.seek(3_700_000)
        damaged.write(b"damage")
    verdict = workload.verify(context)
    assert not verdict.is_good
    assert "cannot verify" in verdict.text


def test_random_phases_find_their_files_and_tell_latencies(make_context: MakeContext) -> None:
    context = make_context(bytes_per_client=256 << 10)
    workload = make(preset="iops", phases=["randread", "mixed"], verify="content")
    results = run_all(workload, context)
    assert [result.work for result in results.values()] == [64, 64]
    mixed = results["mixed"].extra
    assert mixed["reads"] + mixed["writes"] == 64
    latency = results["randread"].latency_s
    assert 0 < latency["p50"] <= latency["p99"] <= latency["p99.99"]
    assert results["randread"].latency_ecdf[-1][1] == 1
    assert workload.verify(context).is_good


def test_a_fixed_time_goes_on_when_all_blocks_had_their_turn(make_context: MakeContext) -> None:
    context = make_context(bytes_per_client=8 << 10)
    workload = make(preset="iops", phases=["randwrite"], seconds=0.2)
    (phase,) = workload.phases(context)
    assert phase.is_fixed_time
    assert phase.direction is Direction.IOPS
    assert run_all(workload, context)["randwrite"].work > 2


def test_files_are_made_looked_at_and_gone(make_context: MakeContext, tmp_path: Path) -> None:
    context = make_context(2)
    workload = make(preset="files", files=20, processes=2)
    workload.prepare(context)
    create, stat, delete = workload.phases(context)
    assert workload.run(context, create).work == 80
    names = tmp_path / "shared" / "fio-names"
    assert sum(path.is_file() for path in names.rglob("*")) == 80
    assert workload.run(context, stat).work == 80
    assert not workload.verify(context).is_good
    assert delete.has_flush_tail
    assert workload.run(context, delete).work == 80
    assert workload.verify(context).is_good


def test_a_failure_carries_what_fio_said(make_context: MakeContext) -> None:
    context = make_context(bytes_per_client=64 << 10)
    message = r"cannot write: exit code 1 client=0 host=here .*nonsense"
    with pytest.raises(PhaseFailed, match=message):
        run_all(make(phases=["write"], engine="nonsense"), context)
    assert (context.record / "write.0.stderr").exists()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"phases": ["writes"]}, "workloads.w.params.phases: 'writes' is none of write, read"),
        ({"phases": []}, "workloads.w.params.phases: must name at least one"),
        ({"phases": ["read", "read"]}, "workloads.w.params.phases: must name"),
        ({"preset": "fast"}, "workloads.w.params.preset: 'fast' is none of sequential"),
        ({"xfer": 0}, "workloads.w.params.xfer: must not be 0"),
        ({"read_percent": 101}, "workloads.w.params.read_percent: must not be above 100"),
        ({"depth": 4}, "workloads.w.params.depth: engine psync has one request at a time"),
        ({"blocksize": 1}, "workloads.w.params.blocksize: there is no such setting here"),
    ],
)
def test_wrong_parameters_say_where(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        make(**parameters)


def test_a_preset_is_processes_times_bytes_of_a_request() -> None:
    described = make(preset="16x64KiB").describe()
    assert (described["processes"], described["xfer"]) == (16, 64 << 10)
    assert make(preset="1x1GiB").space_bytes(2, None) == 2 << 30


def test_a_host_without_fio_is_a_problem(host: AgentHost) -> None:
    (problem,) = make(program="no-fio").check({"here": host})
    assert problem.text == "no-fio is not there; Debian package fio"


def test_an_unknown_kind_names_those_that_are_there() -> None:
    with pytest.raises(SettingsError, match=r"workloads.w.kind: 'dd' is none of compile, dlinput"):
        workloads.create("w", Settings("workloads.w", {"kind": "dd"}))


def test_a_misspelt_setting_beside_the_parameters_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"workloads.w.parms: there is no such setting"):
        workloads.create("w", Settings("workloads.w", {"kind": "fio", "parms": {}}))
