# SPDX-License-Identifier: Apache-2.0 OR MIT
"""mdtest: its summaries of several versions, good and bad; items, rates and times."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from terrace_lab import workloads
from terrace_lab.errors import ParseError, PhaseFailed, SettingsError
from terrace_lab.hosts import AgentHost
from terrace_lab.settings import Settings
from terrace_lab.workloads import mdtest, mdtest_output
from terrace_lab.workloads.base import Client, Context, Workload

COLUMNS = "   Operation                     Max            Min           Mean        Std Dev\n"
RULE = "   ---------                     ---            ---           ----        -------\n"


def line(name: str, colon: str, *values: str) -> str:
    return f"   {name:24}{colon} " + "   ".join(values) + "\n"


OLD = (
    "-- started at 11/01/2026 10:00:00 --\n\nmdtest-1.9.3 was launched with 2 total task(s)\n\n"
    "SUMMARY: (of 1 iterations)\n"
    + COLUMNS
    + RULE
    + line("Directory creation", ":", "4000.000", "4000.000", "4000.000", "0.000")
    + line("File creation", ":", "2000.000", "2000.000", "2000.000", "0.000")
    + line("File stat", ":", "0.000", "0.000", "0.000", "0.000")
    + line("Tree creation", ":", "100.000", "100.000", "100.000", "0.000")
    + "\n-- finished at 11/01/2026 10:00:01 --\n"
)
# A verbose line with other figures of the same name, and a table of times behind that of rates.
LATER = (
    "mdtest-4.1.0 was launched with 2 total task(s) on 1 node(s)\nWARNING: Read bytes is 0\n"
    "V-1:   File creation     :          4.778 sec,      9.0 ops/sec\n"
    "\nSUMMARY rate (in ops/sec): (of 1 iterations)\n"
    + COLUMNS
    + RULE
    + line("Directory creation", "", "4000.000", "4000.000", "4000.000", "0.000")
    + line("File creation", "", "2000.000", "2000.000", "2000.000", "0.000")
    + "SUMMARY time (in ms/op): (of 1 iterations)\n"
    + COLUMNS
    + line("File creation", "", "0.5", "0.5", "0.5", "0.000")
    + "-- finished at 11/01/2026 10:00:01 --\n"
)
# Of ranks and of iterations, as two versions have them; only the second is the rate of all.
RANKS_OLDER = (
    "SUMMARY rate: (of 1 iterations)\n"
    "   Operation    per Rank:  Max   Min   Mean   Std Dev   per Iteration: Max   Min   Mean\n"
    + line("File creation", ":", "1500", "900", "1200", "5", "2000.000", "2000.000", "2000.000")
)
RANKS_LATER = (
    "SUMMARY rate (in ops/sec): (of 1 iterations)\n"
    "   Operation    per Rank: Max   Min   Mean   per Iteration: Max   Min   Mean   Std Dev\n"
    + line("File creation", "", "1500", "900", "1200", "2000.000", "2000.000", "2000.000", "0")
)


@pytest.mark.parametrize("text", [OLD, LATER, RANKS_OLDER, RANKS_LATER])
def test_all_versions_tell_the_rate_of_all_processes(text: str) -> None:
    assert mdtest_output.parse(text)["File creation"] == 2000


def test_what_was_not_done_has_no_rate() -> None:
    assert set(mdtest_output.parse(OLD)) == {"Directory creation", "File creation", "Tree creation"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no rates in it begins=''"),
        ("ERROR: could not create /x", "no rates in it begins='ERROR"),
        (
            OLD.replace("2000.000", "0.000").replace("4000.000", "0").replace("100.000", "0"),
            "no rat",
        ),
        (OLD.replace("2000.000   0.000", "2000.000"), "another table 'File creation"),
        (OLD.replace("2000.000", "inf"), "no rate 'inf'"),
        (OLD.replace("2000.000", "-nan"), "no rate '-nan'"),
        (OLD.replace("2000.000", "many"), "no rate 'many'"),
        (
            LATER.split("SUMMARY rate")[0] + "SUMMARY time" + LATER.split("SUMMARY time")[1],
            "no rat",
        ),
    ],
)
def test_what_is_no_summary_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=f"cannot read the output of mdtest: {message}"):
        mdtest_output.parse(text)


def make(**parameters: Any) -> mdtest.Mdtest:
    return mdtest.Mdtest("w", "w", parameters)


FAKE = """#!/bin/sh
[ "$1" = --version ] && echo "HYDRA build details:" && exit
echo "$0 $@" >>{root}/words
sleep 0.2
cat {root}/answer
"""


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Context]:
    for name in ("mdtest", "mpirun"):
        file = tmp_path / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(FAKE.replace("{root}", str(tmp_path)))
        file.chmod(0o755)
    (tmp_path / "answer").write_text(LATER)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    host = AgentHost("c1")
    host.connect()
    directory = PurePosixPath(tmp_path)
    clients = [Client(index, host, directory, directory / "shared") for index in range(2)]
    yield Context(clients, tmp_path / "record", 7, None, None)
    host.close()


def test_files_and_directories_are_one_after_the_other(context: Context, tmp_path: Path) -> None:
    workload = make(files=100)
    workload.prepare(context)
    create, *others = workload.phases(context)
    assert [one.name for one in others] == ["stat", "read-files", "remove"]
    result = workload.run(context, create)
    # Twice 100 of each: 200 files at 2000 and 200 directories at 4000 in a second.
    assert result.work == 400
    assert [one.end.raw_ns - one.begin.raw_ns for one in result.spans] == [150_000_000] * 2
    assert result.extra["file_creation_per_s"] == 2000
    words = (tmp_path / "words").read_text()
    assert "mpirun -n 2 mdtest -d" in words
    assert words.strip().endswith("-i 1 -C -I 100 -b 1 -z 0 -w 1024")
    with pytest.raises(PhaseFailed, match="cannot read-files: mdtest has no rate of File read"):
        workload.run(context, others[1])
    assert (tmp_path / "words").read_text().strip().endswith("-e 1024 -N 1")
    assert workload.verify(context).is_good


def test_a_tree_gets_as_many_in_each_directory() -> None:
    described = make(preset="tree").describe()
    assert (described["depth"], described["branch"]) == (4, 2)
    parameters = mdtest.Parameters.read(Settings("w", {"preset": "tree"}))
    assert mdtest._items(parameters, 1) == 31 * 1612


def test_the_stand_in_gets_the_same_items() -> None:
    described = mdtest._gen("w", "w", {"files": 40, "depth": 2, "items": "directories"}).describe()
    wanted = {"files": 35, "depth": 2, "branch": 2, "items": "directories", "bytes": 1024}
    assert {key: described[key] for key in wanted} == wanted
    assert described["phases"] == ("create", "stat", "remove")


def test_what_is_left_behind_does_not_verify(context: Context, tmp_path: Path) -> None:
    workload = make(files=100)
    workload.prepare(context)
    (tmp_path / "shared" / "mdtest" / "file").touch()
    assert workload.verify(context).text == "1 files are there of 0"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"phases": ["stat"]},
            "phases: must be create and some of create, stat, read-files, remove",
        ),
        ({"phases": ["remove", "create"]}, "phases: must be create and some"),
        ({"items": "links"}, "items: 'links' is none of both, files, directories"),
        ({"files": 20, "depth": 4}, "files: must be at least 31, one for each directory"),
        ({"file": 20}, "file: there is no such setting here"),
    ],
)
def test_wrong_parameters_say_where(parameters: dict[str, Any], message: str) -> None:
    table = {"kind": "mdtest", "params": parameters}
    with pytest.raises(SettingsError, match=f"workloads.w.params.{message}"):
        workloads.create("w", Settings("workloads.w", table))


def test_the_workload_is_one() -> None:
    workload: Workload = make()
    assert workload.space_bytes(2, None) == 2 * 1024 * (4096 * 3)
