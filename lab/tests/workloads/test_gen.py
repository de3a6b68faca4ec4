# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The load generator for real on a directory, on one host and on two that coordinate."""

import dataclasses
import os
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from clients import MakeContext

from terrace_lab import workloads
from terrace_lab.errors import PhaseFailed, SettingsError
from terrace_lab.hosts import AgentHost
from terrace_lab.settings import Settings
from terrace_lab.workloads.base import Client, Context, Direction, Result, Workload


def find_program() -> str | None:
    target = Path(os.environ.get("CARGO_TARGET_DIR", Path.home() / ".cache/terrace/target"))
    builds = [str(target / kind / "terrace-gen") for kind in ("debug", "release")]
    candidates = [os.environ.get("TERRACE_GEN", "terrace-gen"), *builds]
    return next((found for one in candidates if (found := shutil.which(one))), None)


PROGRAM = find_program()
needs_program = pytest.mark.usefixtures("program")


@pytest.fixture
def program() -> None:
    assert PROGRAM is not None, "there is no terrace-gen: run `cargo build -p terrace-gen`"


def make(**parameters: Any) -> Workload:
    table = {"kind": "gen", "params": {"program": PROGRAM or "terrace-gen", **parameters}}
    return workloads.create("w", Settings("workloads.w", table))


def run_all(workload: Workload, context: Context) -> dict[str, Result]:
    workload.prepare(context)
    return {phase.name: workload.run(context, phase) for phase in workload.phases(context)}


@pytest.fixture(scope="module")
def there() -> Iterator[AgentHost]:
    host = AgentHost("there")
    host.connect()
    yield host
    host.close()


def with_second_host(context: Context, there: AgentHost) -> Context:
    """The last client moves there."""
    last = context.clients[-1]
    moved = Client(last.index, there, last.directory, last.shared)
    return dataclasses.replace(context, clients=[*context.clients[:-1], moved])


@needs_program
@pytest.mark.parametrize("fpp", [True, False])
def test_clients_of_one_host_read_what_others_wrote(make_context: MakeContext, fpp: bool) -> None:
    context = make_context(2, bytes_per_client=1 << 20)
    workload = make(fpp=fpp, processes=2, xfer="64KiB", segments=2)
    results = run_all(workload, context)
    assert results["write"].work == results["read"].work == 2 << 20
    assert [span.host for span in results["read"].spans] == ["here", "here"]
    assert all(span.begin.raw_ns < span.end.raw_ns for span in results["read"].spans)
    (command,) = results["read"].commands
    assert command[command.index("-C") + 1] == "2"
    assert results["write"].latency_s["p50"] <= results["write"].latency_s["p99.99"]
    assert results["write"].latency_ecdf[-1][1] == 1
    assert workload.verify(context).is_good


@needs_program
def test_two_hosts_are_one_group(make_context: MakeContext, there: AgentHost) -> None:
    context = with_second_host(make_context(3, bytes_per_client=256 << 10), there)
    workload = make(
        processes=2, xfer="64KiB", phases=["write", "read", "create", "remove"], files=5
    )
    results = run_all(workload, context)
    assert results["write"].work == results["read"].work == 3 * (256 << 10)
    assert results["create"].work == results["remove"].work == 3 * 2 * 5
    assert [span.host for span in results["write"].spans] == ["here", "here", "there"]
    assert len(results["write"].commands) == 2
    (context.record / "write.2.stderr").read_text()
    assert workload.verify(context).is_good
    for command in results["write"].commands:
        assert not Path(command[command.index("--secret-file") + 1]).exists()


@needs_program
def test_one_host_that_cannot_ends_both(make_context: MakeContext, there: AgentHost) -> None:
    context = with_second_host(make_context(2, bytes_per_client=64 << 10), there)
    workload = make(xfer="64KiB")
    workload.prepare(context)
    lost = dataclasses.replace(context.clients[1], shared=PurePosixPath("/nonexistent"))
    broken = dataclasses.replace(context, clients=[context.clients[0], lost])
    with pytest.raises(PhaseFailed, match="No such file.*/nonexistent"):
        workload.run(broken, workload.phases(broken)[0])


@needs_program
def test_damage_is_found(make_context: MakeContext, tmp_path: Path) -> None:
    context = make_context(bytes_per_client=1 << 20)
    workload = make()
    run_all(workload, context)
    with open(tmp_path / "shared" / "gen-data" / "data.00000000", "r+b") as file:
        file.seek(777_777)
        file.write(b"damage")
    verdict = workload.verify(context)
    assert not verdict.is_good
    assert "offset_bytes=777777" in verdict.text


@needs_program
def test_random_phases_find_their_files(make_context: MakeContext) -> None:
    context = make_context(bytes_per_client=256 << 10)
    workload = make(phases=["randread", "randwrite"], xfer="4KiB", threads=2, fpp=False)
    results = run_all(workload, context)
    assert [result.work for result in results.values()] == [64, 64]
    assert workload.verify(context).is_good


@needs_program
def test_a_fixed_time_goes_on_when_all_blocks_had_their_turn(make_context: MakeContext) -> None:
    context = make_context(bytes_per_client=8 << 10)
    workload = make(phases=["randread"], xfer="4KiB", seconds=0.1)
    (phase,) = workload.phases(context)
    assert phase.is_fixed_time
    assert phase.direction is Direction.IOPS
    assert run_all(workload, context)["randread"].work > 2


@needs_program
def test_a_write_that_is_ended_early_leaves_files_whole(make_context: MakeContext) -> None:
    context = make_context(bytes_per_client=32 << 20)
    workload = make(phases=["write"], xfer=512, stonewall=0.01)
    assert all(phase.is_fixed_time for phase in workload.phases(context))
    results = run_all(workload, context)
    assert 0 < results["write"].work < 32 << 20
    assert list(results["write"].notes) == ["1 of 1 processes were ended after 0.01 s"]
    assert workload.verify(context).is_good


@needs_program
def test_names_are_created_asked_for_read_and_removed(
    make_context: MakeContext, tmp_path: Path
) -> None:
    context = make_context(2)
    phases = ["create", "stat", "read-files", "remove"]
    tree = {"depth": 2, "branch": 2, "unique": True}
    workload = make(phases=phases, files=20, bytes="1KiB", items="both", **tree)
    results = run_all(workload, context)
    assert [result.work for result in results.values()] == [80, 80, 40, 80]
    assert workload.verify(context).is_good
    (tmp_path / "shared" / "gen-names" / "left").touch()
    assert not workload.verify(context).is_good


@needs_program
def test_names_that_stay_are_verified(make_context: MakeContext, tmp_path: Path) -> None:
    context = make_context()
    workload = make(phases=["create"], files=3, bytes=10)
    run_all(workload, context)
    assert workload.verify(context).is_good
    (tmp_path / "shared" / "gen-names" / "tree" / "file.0.1").write_bytes(b"0123456789")
    assert not workload.verify(context).is_good


def test_a_missing_program_is_said_with_what_helps(
    make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERRACE_GEN", "/nonexistent/terrace-gen")
    table = Settings("workloads.w", {"kind": "gen"})
    (problem,) = workloads.create("w", table).check({"here": make_context().clients[0].host})
    assert "/nonexistent/terrace-gen is not there; build it with" in problem.text


def test_where_the_program_lies_is_no_part_of_the_work() -> None:
    assert make(program="a").describe() == make(program="b").describe()
    assert make(xfer="4KiB").describe() != make(xfer="8KiB").describe()


def test_the_space_is_that_of_all_clients() -> None:
    workload = make(processes=3, phases=["write", "create"], files=10, bytes=1, items="both")
    assert workload.space_bytes(2, 3 << 20) == 2 * ((3 << 20) + 3 * 20 * 8192)


@pytest.mark.parametrize(
    ("parameters", "where"),
    [
        ({"phases": ["rewrite"]}, "phases"),
        ({"phases": ["read", "read"]}, "phases"),
        ({"api": "MPIIO"}, "api"),
        ({"xfer": 0}, "xfer"),
        ({"xfer": "4KiB", "block": "6KiB"}, "block"),
        ({"phases": ["read-files"], "items": "directories"}, "items"),
        ({"trasfer": "4KiB"}, "trasfer"),
    ],
)
def test_what_makes_no_sense_is_refused(parameters: dict[str, Any], where: str) -> None:
    with pytest.raises(SettingsError, match=rf"params\.{where}"):
        make(**parameters)
