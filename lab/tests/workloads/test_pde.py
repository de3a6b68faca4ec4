# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The solver and its reader: that both saw the same, and what of the time was computing."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clients import MakeContext, built, built_with_mpi

from terrace_lab import workloads
from terrace_lab.errors import ParseError, PhaseFailed, SettingsError
from terrace_lab.hosts import AgentHost
from terrace_lab.settings import Settings
from terrace_lab.workloads.base import Workload

# Stand-ins that write down how they were called.
TERRACE = """#!/bin/sh
echo "terrace $@" >>{root}/words
[ "$1" = init ] && mkdir "$2"; exit 0
"""
SOLVER = """#!/bin/sh
echo "partdiff $@" >>{root}/words
while [ $# -gt 0 ]; do [ "$1" = --checkpoints ] && count=$2; shift; done
echo "iteration 1  residuum 1e-3"
cat {root}/times
echo "$count checkpoints, checksum 0123456789abcdef"
"""
READER = """#!/bin/sh
cat {root}/answer
"""
GOOD = "4 checkpoints, checksum 0123456789abcdef\n"
TIMES = "compute 0.250000 s, checkpoints 0.125000 s\n"


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    for name, text in (("terrace", TERRACE), ("partdiff", SOLVER), ("partdiff-read", READER)):
        file = tmp_path / name
        file.write_text(text.replace("{root}", str(tmp_path)))
        file.chmod(0o755)
    (tmp_path / "answer").write_text(GOOD)
    (tmp_path / "times").write_text(TIMES)
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
    assert (solved.extra["compute_s"], solved.extra["checkpoint_s"]) == (0.25, 0.125)
    assert workload.run(context, read).work == 2 * 4 * (64 + 8 * 16 * 16)
    assert workload.verify(context).is_good
    words = (tmp_path / "words").read_text()
    assert words.count("terrace ") == 0
    assert f"--method jacobi --files {tmp_path}/client-1/pde\n" in words
    assert (tmp_path / "client-1" / "pde").is_dir()


def test_objects_on_a_file_system_have_a_store_there(
    programs: dict[str, str], tmp_path: Path, make_context: MakeContext
) -> None:
    context = make_context(2)
    workload = make(**programs, api="terrace")
    workload.prepare(context)
    workload.run(context, workload.phases(context)[0])
    words = (tmp_path / "words").read_text()
    store = f"{tmp_path}/client-1/store"
    assert f"terrace init {store} --policy none --tier only={store}/only" in words
    assert f"--store {store} --namespace lab-pde-1\n" in words


def test_a_solver_without_times_fails(
    programs: dict[str, str], tmp_path: Path, make_context: MakeContext
) -> None:
    context = make_context()
    workload = make(**programs)
    workload.prepare(context)
    (tmp_path / "times").write_text("")
    with pytest.raises(ParseError, match="cannot read the output of partdiff: no times"):
        workload.run(context, workload.phases(context)[0])


def test_a_store_of_the_target_is_emptied_before(
    programs: dict[str, str], tmp_path: Path, make_context: MakeContext
) -> None:
    context = make_context(url="terrace://s1")
    workload = make(**programs)
    workload.prepare(context)
    workload.run(context, workload.phases(context)[0])
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
    workload = make(**programs)
    workload.prepare(context)
    solve, read = workload.phases(context)
    workload.run(context, solve)
    (tmp_path / "answer").write_text(answer)
    with pytest.raises(error, match=message):
        workload.run(context, read)


@pytest.mark.parametrize(
    ("api", "programs"),
    [
        ("auto", ["no-partdiff", "no-partdiff-read", "no-terrace"]),
        ("files", ["no-partdiff", "no-partdiff-read"]),
        ("mpiio", ["no-mpi"]),
        (["hdf5"], ["no-mpi"]),
    ],
)
def test_a_program_that_is_missing_is_a_problem(
    api: str, programs: list[str], host: AgentHost
) -> None:
    workload = make(api=api, program="no-partdiff", terrace="no-terrace", mpi_program="no-mpi")
    found = workload.check({"here": host})
    assert [one.text.split()[0] for one in found] == programs
    assert [one.text for one in found if not one.is_fatal] == [
        one.text for one in found if api == "auto" and one.text.startswith("no-terrace")
    ]


def test_hdf5_has_to_be_built_in(host: AgentHost, tmp_path: Path) -> None:
    program = tmp_path / "partdiff-mpi"
    program.write_text("#!/bin/sh\necho 'HDF5: no'\n")
    program.chmod(0o755)
    assert make(api="mpiio", mpi_program=str(program)).check({"here": host}) == []
    (problem,) = make(api="hdf5", mpi_program=str(program)).check({"here": host})
    assert "was built without parallel HDF5" in problem.text


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"steps": 45}, "steps: must be a multiple of checkpoint_every"),
        ({"api": ["mpiio", "hdf5"]}, "api: must be one name; several are a factor"),
        ({"api": "netcdf"}, "api: 'netcdf' is none of auto, terrace, files, mpiio, hdf5"),
        ({"api": "mpiio", "method": "gauss-seidel"}, "method: must be jacobi with api 'mpiio'"),
        ({"processes": 2}, "processes: must be 1 with api 'auto', which is not parallel"),
        ({"grid": 32769}, "grid: must be at most 32768"),
        ({"grid": 2}, "grid: must be a whole number of at least 3"),
        ({"step": 1}, "step: there is no such setting here"),
    ],
)
def test_wrong_parameters_say_where(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=f"workloads.w.params.{message}"):
        make(**parameters)


@pytest.mark.parametrize("api", ["auto", "terrace"])
def test_the_programs_of_this_project_do_it(api: str, make_context: MakeContext) -> None:
    context = make_context(2)
    workload = make(api=api, program=built("partdiff"), terrace=built("terrace"))
    workload.prepare(context)
    for phase in workload.phases(context):
        assert workload.run(context, phase).work > 0
    assert workload.verify(context).is_good


@pytest.mark.parametrize("api", ["mpiio", "hdf5"])
def test_processes_of_mpi_share_one_grid(
    api: str, make_context: MakeContext, host: AgentHost, tmp_path: Path
) -> None:
    program = built_with_mpi()
    workload = make(api=api, mpi_program=program, processes=2)
    assert workload.check({"here": host}) == []
    context = make_context(2)
    workload.prepare(context)
    solve, read = workload.phases(context)
    solved = workload.run(context, solve)
    assert solved.work == 4
    assert "-n 4" in " ".join(solved.commands[0])
    length_s = (solved.spans[0].end.raw_ns - solved.spans[0].begin.raw_ns) / 1e9
    assert solved.extra["compute_s"] + solved.extra["checkpoint_s"] == pytest.approx(length_s)
    assert len(list((tmp_path / "shared" / "pde").iterdir())) == 4
    assert workload.run(context, read).work == 4 * (64 + 8 * 16 * 16)
    assert workload.verify(context).is_good


def test_all_solvers_and_readers_agree(tmp_path: Path) -> None:
    """Bit by bit, whoever wrote, and however many processes."""
    program = built_with_mpi()
    words = ["--grid", "37", "--checkpoints", "12", "--interval", "5"]
    found = {}
    alone = tmp_path / "alone"
    alone.mkdir()
    solver = [built("partdiff"), *words, "--method", "jacobi", "--files", str(alone)]
    found["files"] = summary(solver)
    for api, processes in (("mpiio", 1), ("mpiio", 3), ("hdf5", 1), ("hdf5", 2)):
        name = f"{api}-{processes}"
        directory = tmp_path / name
        directory.mkdir()
        command = [*MPIRUN, str(processes), program, "--api", api, "--directory", str(directory)]
        found[name] = summary([*command, *words, "--persistency", "storage"])
        # By another number of processes than wrote it.
        command[len(MPIRUN)] = str(4 - processes)
        found[f"{name} read"] = summary([*command, "--read"])
    for name in ("alone", "mpiio-3"):
        command = [built("partdiff-read"), "--files", str(tmp_path / name)]
        found[f"{name} read here"] = summary(command)
    assert len(set(found.values())) == 1, found
    assert found["files"].startswith("12 checkpoints")


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        (lambda one: one[:63], [], "it ends too early"),
        (lambda one: one[:-1], [], "it ends too early"),
        (lambda one: b"x" + one[1:], [], "it does not begin like a checkpoint"),
        (lambda one: one[:8] + b"\xff" * 8 + one[16:], [], "it does not begin like a checkpoint"),
        (lambda one: one[:-1] + b"\x7f", [], "its checksum is wrong"),
        (lambda one: one, ["--api", "hdf5"], "HDF5 failed"),
        (lambda one: one, ["--directory", "/no/where"], "No such file or directory"),
    ],
)
def test_a_damaged_file_is_named(
    change: Callable[[bytes], bytes], words: list[str], message: str, tmp_path: Path
) -> None:
    command = [*MPIRUN, "2", built_with_mpi(), "--api", "mpiio", "--directory", str(tmp_path)]
    solver = [*command, "--grid", "9", "--checkpoints", "3", "--interval", "1"]
    summary(solver)
    again = subprocess.run(solver, capture_output=True, text=True, timeout=60)
    assert again.returncode != 0
    assert "checkpoint-000000" in again.stderr, "it is there already"
    file = tmp_path / "checkpoint-000001"
    file.write_bytes(change(file.read_bytes()))
    ended = subprocess.run([*command, *words, "--read"], capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert message in ended.stderr
    assert "checkpoint-00000" in ended.stderr or "/no/where" in ended.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "it is needed, see --help argument=api"),
        (["--api", "posix"], "mpiio or hdf5 is expected argument=api"),
        (["--grid", "2"], "its value is no number in its range, see --help argument=grid"),
        (["--grid", "many"], "its value is no number in its range, see --help argument=grid"),
        (["--gird", "8"], "it is unknown or lacks its value, see --help argument=--gird"),
        (["--api"], "it is unknown or lacks its value, see --help argument=--api"),
        (["more"], "it is unknown, see --help argument=more"),
        (["--persistency", "disk"], "none, process or storage is expected"),
    ],
)
def test_wrong_words_are_named(words: list[str], message: str) -> None:
    command = [*MPIRUN, "1", built_with_mpi(), *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert message in ended.stderr


MPIRUN = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n"]


def summary(command: list[str]) -> str:
    """The last line of a solver or reader."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()[-1]
