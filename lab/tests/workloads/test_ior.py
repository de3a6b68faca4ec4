# SPDX-License-Identifier: Apache-2.0 OR MIT
"""IOR: its outputs, good and bad, of several versions; what it is asked; what stands in for it."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from terrace_lab import workloads
from terrace_lab.errors import LabError, ParseError, PhaseFailed, SettingsError
from terrace_lab.hosts import AgentHost
from terrace_lab.settings import Settings
from terrace_lab.workloads import fallback, ior, ior_output
from terrace_lab.workloads.base import Client, Context, Workload

HEAD = (
    "access    bw(MiB/s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter\n"
)
HEAD_LATER = HEAD.replace("  block", "  IOPS  Latency(s)  block")
RULE = "------    ---------  ----\n"
SUMMARY = "\nSummary of all tests:\nOperation   Max(MiB)\nwrite   500.00 500.00 0 0 0 0 0 0 0\n"

TABLES = {
    "3.0": "IOR-3.0.1: MPI Coordinated Test of Parallel I/O\n"
    + HEAD
    + RULE
    + "write     200.00     1024.00    256.00     0.001   0.004   0.0001     0.005      0   \n"
    + "Max Write: 200.00 MiB/sec (209.72 MB/sec)\n"
    + SUMMARY,
    "4.0": "IOR-4.0.0: MPI Coordinated Test of Parallel I/O\n"
    + HEAD_LATER
    + RULE
    + "Commencing write performance test: Sun Nov  1 10:00:00 2026\n"
    + "[PROFILER WARN]: intercepted\n"
    + "write     200.00  801.2  0.001  1024.00    256.00     0.001   0.004   0.0001   0.005   0\n"
    + SUMMARY,
}
RESULT = """
      {
        "access": "%s",
        "bwMiB": 200.0,
        "blockKiB": 1024.0,
        "totalTime": 0.005%s
      }
"""
JSONS = {
    # A title before it, a list that is closed twice, and a summary outside of everything.
    "3.2": 'IOR-3.2.0: MPI Coordinated Test of Parallel I/O\n{\n "tests": [ {"Results": [[\n'
    + RESULT % ("write", "")
    + ']\n]\n, \n  "max": {\n    "writeMiB": 200.0\n  }\n}\n]\n, \n"summary": [\n[ ]\n}\n}\n',
    # A comma behind the last member, and a bracket that is missing.
    "3.3": '{"tests": [ {"Results": [\n' + RESULT % ("write", ",") + '\n  }\n],\n"summary": []}\n',
    # Lines of text between.
    "4.0": '{\n"tests": [{ "Results": [\nCommencing write performance test: Sun\n'
    + RESULT % ("write", "")
    + "]}]}\n",
}


@pytest.mark.parametrize("text", [*TABLES.values(), *JSONS.values()])
def test_all_versions_tell_rate_and_time(text: str) -> None:
    access = ior_output.parse(text, "write").access
    assert (access.mib_s, access.total_s) == (200.0, 0.005)


def test_the_version_and_warnings_are_kept() -> None:
    warnings = (
        "WARNING: Expected aggregate file size = 8.\n"
        "WARNING: Using actual aggregate bytes moved = 7.\n"
    )
    output = ior_output.parse(warnings + TABLES["4.0"], "write")
    assert output.version == "4.0.0"
    assert output.bytes_moved == 7
    assert len(output.notes) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "0 results of write begins=''"),
        (TABLES["3.0"].replace("write  ", "read   "), "0 results of write"),
        (TABLES["4.0"].replace(SUMMARY, "write 1 2 3 4 5 6 7 8 9 10\n"), "2 results of write"),
        (TABLES["4.0"].replace("0.005   0", "0.005"), "another table 'write"),
        (TABLES["3.0"].replace("     0.005 ", "     - "), "no numbers rate='200.00' time='-'"),
        (TABLES["3.0"].replace("     0.005 ", "     0.0 "), "no time or no rate of write"),
        (TABLES["3.0"].replace("write     200.00", "write     nan"), "no time or no rate"),
        (JSONS["3.2"].replace('"bwMiB": 200.0,', '"bwMiB": 200.0'), "a result is no JSON"),
        (JSONS["3.2"].replace('"bwMiB": 200.0,', ""), "no numbers rate=None"),
        (
            "ior ERROR: open64() failed, errno 2\n" + TABLES["4.0"],
            "it has an error 'ior ERROR: open",
        ),
    ],
)
def test_what_is_no_result_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=f"cannot read the output of ior: .*{message}"):
        ior_output.parse(text, "write")


def make(**parameters: Any) -> Workload:
    table = {"kind": "ior", "params": parameters}
    return workloads.create("w", Settings("workloads.w", table))


FAKE_IOR = """#!/bin/sh
echo "$@" >>{root}/words
for word; do [ "$last" = -o ] && head -c 1048576 /dev/zero >$word; last=$word; done
sleep 0.01
cat {root}/answer
"""
FAKE_MPIRUN = """#!/bin/sh
[ "$1" = --version ] && echo "mpirun (Open MPI) 4.1.4" && exit
echo "mpirun $@" >>{root}/words
while [ "$1" != ior ]; do shift; done
exec "$@"
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("ior", FAKE_IOR), ("mpirun", FAKE_MPIRUN)):
        file = tmp_path / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text.replace("{root}", str(tmp_path)))
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path


@pytest.fixture
def context(programs: Path) -> Iterator[Context]:
    """Two clients of 512 KiB on a host that has IOR."""
    host = AgentHost("c1")
    host.connect()
    directory = PurePosixPath(programs)
    clients = [Client(index, host, directory, directory / "shared") for index in range(2)]
    yield Context(clients, programs / "record", 7, None, 512 << 10)
    host.close()


def test_ior_runs_over_all_clients_and_its_time_counts(context: Context, programs: Path) -> None:
    (programs / "answer").write_text(TABLES["4.0"])
    workload = make(xfer="256KiB", fpp=False, processes=2)
    workload.prepare(context)
    write, read = workload.phases(context)
    result = workload.run(context, write)
    assert result.work == 1 << 20
    assert [one.end.raw_ns - one.begin.raw_ns for one in result.spans] == [5_000_000] * 2
    assert result.extra["command_s"] > 0.01
    words = (programs / "words").read_text()
    assert "mpirun -n 4 --oversubscribe --allow-run-as-root ior -a POSIX -t 256k -b 256k" in words
    assert words.splitlines()[-1].endswith("-k -e -w")
    assert workload.verify(context).is_good
    (programs / "answer").write_text(TABLES["4.0"].replace("\nwrite", "\nread", 1))
    workload.run(context, read)
    assert (programs / "words").read_text().splitlines()[-1].endswith("-k -e -r -C -Q 2")


def test_less_than_was_asked_for_fails(context: Context, programs: Path) -> None:
    (programs / "answer").write_text(TABLES["4.0"].replace("200.00", "100.00"))
    workload = make(xfer="256KiB")
    workload.prepare(context)
    with pytest.raises(
        PhaseFailed, match="did not move what it was told to expected=1048576 moved=524288"
    ):
        workload.run(context, workload.phases(context)[0])


def test_a_time_longer_than_the_command_is_refused(context: Context, programs: Path) -> None:
    text = TABLES["4.0"].replace("200.00", "0.0001").replace("0.005   0", "10000   0")
    (programs / "answer").write_text(text)
    workload = make(xfer="256KiB")
    workload.prepare(context)
    with pytest.raises(
        PhaseFailed, match="cannot tell the time of the phase: 10000.0 s are longer"
    ):
        workload.run(context, workload.phases(context)[0])


def test_without_ior_another_does_it_and_says_so(context: Context, programs: Path) -> None:
    (programs / "bin" / "ior").rename(programs / "bin" / "gen")
    (programs / "answer").write_text("")
    host = context.clients[0].host
    stand_in = workloads.create(
        "w", Settings("w", {"kind": "fio", "params": {"phases": ["write"], "xfer": "256KiB"}})
    )
    workload = fallback.Fallback("ior", "ior", ior.Ior("w", "w", {}), lambda: stand_in)
    (problem,) = workload.check({"c1": host})
    assert (problem.text, problem.is_fatal) == ("ior is not there; gen takes its place", False)
    assert workload.describe()["asked_for"] == "ior"
    assert workload.falls_back
    for client in context.clients:
        (Path(client.shared)).mkdir(exist_ok=True)
    workload.prepare(context)
    result = workload.run(context, workload.phases(context)[0])
    assert result.notes[0] == "ior is not there: gen did its pattern"
    # It stays with what it chose, or one run would mix two programs.
    (programs / "bin" / "gen").rename(programs / "bin" / "ior")
    workload.check({"c1": host})
    assert workload.falls_back


def test_the_stand_in_gets_the_same_pattern() -> None:
    asked = {"xfer": "64KiB", "block": "200KiB", "fpp": False, "processes": 3}
    described = ior._gen("w", "w", asked).describe()
    wanted = {"xfer": 64 << 10, "block": 192 << 10, "fpp": False, "processes": 3}
    assert {key: described[key] for key in wanted} == wanted


@pytest.mark.parametrize(("key", "value"), [("api", "MPIIO"), ("memory", "85%")])
def test_what_only_ior_can_do_is_not_replaced(key: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"w.{key}: needs ior, which is not there"):
        ior._gen("w", "w", {key: value})


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"phases": ["read"]}, "phases: must be write, or write and read"),
        ({"api": "NCMPI"}, "api: 'NCMPI' is none of POSIX, MPIIO, HDF5"),
        ({"xfer": 0}, "xfer: must not be 0"),
        ({"blocks": 1}, "blocks: there is no such setting here"),
    ],
)
def test_wrong_parameters_say_where(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(LabError, match=f"workloads.w.params.{message}"):
        make(**parameters)
