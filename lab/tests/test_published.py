# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Commands of the studies at full scale are those that were published."""

import json
import shlex
from pathlib import Path

import pytest

from terrace_lab import experiment, planned
from terrace_lab.cli import main
from terrace_lab.studies import texts

GIB = 1 << 30
MEMORY = 64 * GIB
WHOLE = {"whole": "true", "least": "1", "most": "1", "targets": '["ext4"]'}

# As the studies print them, n being the number of clients; where files are is left out.
PUBLISHED = {
    "own-file": [
        "ior -a POSIX -t 4m -b 36g -s 1 -i 5 -d 5 -C -M 85% -e -F",
        "ior -a POSIX -t 4m -b 18g -s 1 -i 5 -d 5 -C -M 85% -e -F",
        "ior -a POSIX -t 4m -b 12g -s 1 -i 5 -d 5 -C -M 85% -e -F",
        "ior -a POSIX -t 4m -b 9g -s 1 -i 5 -d 5 -C -M 85% -e -F",
    ],
    "shared-file": [
        "ior -a MPIIO -t 4m -b 36g -s 1 -i 5 -d 5 -C -M 85%",
        "ior -a MPIIO -t 4m -b 18g -s 1 -i 5 -d 5 -C -M 85%",
        "ior -a MPIIO -t 4m -b 12g -s 1 -i 5 -d 5 -C -M 85%",
        "ior -a MPIIO -t 4m -b 9g -s 1 -i 5 -d 5 -C -M 85%",
    ],
    "random": [
        f"ior -a POSIX -t 4m -b {block}g -s 1 -i 5 -d 5 -C -M 85% -e -F -z"
        for block in (36, 18, 12, 9)
    ],
    "tree": [
        f"mdtest -I {items} -b 2 -z 4 -i 5 -N 1 -w 1024 -e 1024 -p 5"
        for items in (1200, 600, 400, 300)
    ],
    "large-directory": [
        f"mdtest -n {items} -b 1 -z 1 -i 5 -N 1 -w 1024 -e 1024 -p 5"
        for items in (50000, 25000, 16666, 12500)
    ],
    "leaf-only": [
        f"mdtest -n {items} -b 1 -z 1 -i 5 -N 1 -w 1024 -e 1024 -p 5 -L -u -F"
        for items in (50000, 25000, 16666, 12500)
    ],
}


def commands(name: str, **parameters: str) -> list[planned.Planned]:
    study = experiment.parse(texts()[name], Path("/"), parameters)
    return list(planned.commands(study, MEMORY))


def own(argv: list[str]) -> str:
    """A command without its launcher, and without where its files are."""
    first = next(index for index, word in enumerate(argv) if word in ("ior", "mdtest"))
    place = {"ior": "-o", "mdtest": "-d"}[argv[first]]
    words = argv[first:]
    # IOR has another `-d`, mdtest another `-o`; the place is the last of its letter.
    at = len(words) - 1 - words[::-1].index(place)
    return shlex.join(words[:at] + words[at + 2 :])


@pytest.mark.parametrize("workload", PUBLISHED)
def test_a_whole_invocation_is_the_published_one(workload: str) -> None:
    found = commands("arm-cluster", workloads=json.dumps([workload]), **WHOLE)
    assert [own(list(one.argv)) for one in found] == PUBLISHED[workload]
    processes = [one.argv[list(one.argv).index("-n") + 1] for one in found]
    assert processes == ["1", "2", "3", "4"]


@pytest.mark.parametrize("workload", PUBLISHED)
def test_phase_by_phase_the_same_letters_are_given(workload: str) -> None:
    """Each phase adds its own letter; repetitions and pauses are those of the lab."""
    study = experiment.parse(
        texts()["arm-cluster"],
        Path("/"),
        {"workloads": json.dumps([workload]), "targets": '["ext4"]', "clients": "[4]"},
    )
    repeat = study.repeat
    assert (repeat.least, repeat.most, repeat.cold.cooldown_s) == (5, 5, 5.0)
    found = [options(own(list(one.argv))) for one in planned.commands(study, MEMORY)]
    wanted = options(PUBLISHED[workload][3])
    repetitions = {("-i", "5"), ("-d", "5"), ("-p", "5")}
    is_mdtest = PUBLISHED[workload][3].startswith("mdtest")
    phases = {("-C", ""), ("-T", ""), ("-E", ""), ("-r", "")} if is_mdtest else {("-k", "")}
    phases |= {("-w", ""), ("-r", ""), ("-i", "1")}
    together = set().union(*found)
    if is_mdtest:
        # The tree is 31 directories, of which each has its items.
        assert wanted - repetitions <= together
    else:
        assert wanted - repetitions == together - phases


def options(command: str) -> set[tuple[str, str]]:
    words = shlex.split(command)[1:]
    found = set()
    for index, word in enumerate(words):
        if word.startswith("-"):
            after = words[index + 1] if index + 1 < len(words) else "-"
            found.add((word, "" if after.startswith("-") else after))
    return found


def test_a_compilation_is_copied_built_and_deleted() -> None:
    found = commands("arm-cluster", workloads='["compile"]', targets='["ext4"]', clients="[2]")
    assert [one.phase for one in found] == ["copy", "copy", "build", "build", "clean", "clean"]
    copy, _, build, _, clean, other = [list(one.argv) for one in found]
    assert copy[:2] == ["cp", "-r"]
    assert copy[2].endswith("linux-source-6.1.tree/.")
    assert build == ["sh", "-c", "make defconfig && make -j4"]
    assert clean[:2] == ["rm", "-rf"]
    assert clean[2] != other[2], "each client has its own tree"


def test_probes_are_the_published_ones(tmp_path: Path) -> None:
    hosts = (
        '[hosts.c1]\nrole = "client"\naddress = "c1"\n'
        '[hosts.s1]\nrole = "server"\naddress = "s1"\nprobe_directories = ["/disk"]\n[meters.model]'
    )
    text = texts()["arm-cluster"].replace("[meters.model]", hosts)
    study = experiment.parse(text, tmp_path)
    found = [shlex.join(argv) for argv in planned.probe_commands(study, MEMORY)]
    disk = [one for one in found if "/disk/" in one and "--fsync" not in one]
    sequential = [one for one in disk if "--rw=write" in one or "--rw=read " in one]
    assert len(sequential) == 2
    for one in sequential:
        assert f"--bs={4 << 20}" in one
        assert "--iodepth=32" in one
        assert "--runtime=600" in one
    deep = [one for one in disk if "--bs=4KiB" in one and "--iodepth=32" in one]
    assert {"--rw=randwrite" in one for one in deep} == {True, False}
    assert all("--runtime=600" in one for one in deep)
    streams = [one for one in found if one.startswith("iperf3 -J") and "-R" not in one]
    assert [("-P" in one) for one in streams] == [False, True, True, True, True]
    assert any(one.startswith("ping ") and one.endswith("s1") for one in found)


def test_streams_have_three_times_the_memory_of_the_servers() -> None:
    found = commands("nvme-dl", targets='["native"]')
    of = {}
    for one in found:
        workload, count = one.trial.split("-native")[0], one.trial.rpartition("_")[2]
        of[workload, count, one.phase] = own(list(one.argv))
    assert "-t 2m -b 192g " in of["multi-stream", "1", "write"]
    assert "-t 2m -b 768m " in of["multi-stream", "256", "write"]
    assert "-t 1200k " in of["shared-file", "1", "write"]
    assert " -F" not in of["shared-file", "1", "write"]
    iops = of["iops", "16", "write"]
    assert "-t 4k " in iops
    assert iops.endswith("-z")
    assert ("iops", "16", "read") not in of
    assert "-I 1024 " in of["metadata", "256", "create"]
    assert "-w" not in of["metadata", "256", "create"]
    assert {key[1] for key in of} == {str(1 << power) for power in range(9)}


def test_eight_layouts_have_five_benchmarks_each() -> None:
    study = experiment.parse(texts()["nvme-layouts"], Path("/"))
    assert (len(study.targets), len(study.workloads), len(study.trials)) == (8, 5, 40)


def test_clients_are_apart_from_the_servers_or_on_them() -> None:
    found = commands("nvme-scaling", clients="[2]")
    hosts = {(one.trial.rpartition("_")[2], one.host) for one in found}
    assert hosts == {("exclusive", "c1"), ("converged", "s1")}
    counts = {one.trial.partition("servers_")[2][0] for one in found}
    assert counts == {"1", "2", "3", "4"}


@pytest.mark.parametrize("name", texts())
def test_every_study_has_a_scaled_form_with_the_same_parts(name: str) -> None:
    full = experiment.parse(texts()[name], Path("/"))
    scaled = experiment.parse(texts()[name], Path("/"), is_scaled=True)
    assert set(full.targets) == set(scaled.targets)
    assert set(full.workloads) == set(scaled.workloads)
    assert list(planned.commands(scaled, 1 << 30))


def test_the_command_prints_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", "--commands", "arm-cluster", "--memory", "8GiB"]
    for key, value in {**WHOLE, "workloads": '["tree"]'}.items():
        words += ["--set", f"{key}={value}"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("mdtest -I 400 -b 2 -z 4 -i 5 -N 1 -w 1024 -e 1024 -p 5" in one for one in lines)
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["trial"] for one in found["commands"]] == [f"tree-ext4-c{n}" for n in (1, 2, 3, 4)]
