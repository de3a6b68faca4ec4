# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A small source is really built, by two clients; what goes wrong is told."""

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from clients import MakeContext

from terrace_lab import workloads
from terrace_lab.errors import PhaseFailed, SettingsError
from terrace_lab.hosts import AgentHost
from terrace_lab.settings import Settings
from terrace_lab.workloads import fetch_source
from terrace_lab.workloads.base import Workload

FILES = {
    "configure": '#!/bin/sh\necho "#define ANSWER 42" >config.h\n',
    "main.c": '#include "config.h"\nint main(void) { return ANSWER - 42; }\n',
    "Makefile": "product: main.c config.h\n\tcc -o product main.c\n",
}


def tarball(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"small-1.0/{name}")
            member.size = len(text)
            member.mode = 0o755
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def make(source: Path | str, **parameters: Any) -> Workload:
    table = {"kind": "compile", "source": str(source), "params": parameters}
    return workloads.create("w", Settings("workloads.w", table))


def test_each_client_builds_its_own_tree(make_context: MakeContext, tmp_path: Path) -> None:
    source = tarball(tmp_path / "small.tar.gz", FILES)
    workload = make(source, product="product", jobs=1, space="1MiB")
    context = make_context(2)
    workload.prepare(context)
    phases = {phase.name: phase for phase in workload.phases(context)}
    assert list(phases) == ["unpack", "configure", "make", "clean"]
    assert workload.run(context, phases["unpack"]).work == 6
    workload.run(context, phases["configure"])
    built = workload.run(context, phases["make"])
    assert built.work == 2
    assert built.commands[0] == ["make", "-j1"]
    assert (tmp_path / "client-1" / "source" / "product").exists()
    spans = [one.end.raw_ns - one.begin.raw_ns for one in built.spans]
    assert built.extra["slowest_client_s"] == max(spans) / 1e9
    assert not workload.verify(context).is_good
    # What configure and make have added is deleted as well.
    assert workload.run(context, phases["clean"]).work == 10
    assert not (tmp_path / "client-0" / "source").exists()
    assert workload.verify(context).is_good
    assert workload.space_bytes(2, None) == 2 << 20


def test_a_tree_is_copied_built_in_one_and_deleted(
    make_context: MakeContext, tmp_path: Path
) -> None:
    source = tarball(tmp_path / "small.tar.gz", FILES)
    cache = str(tmp_path / "cache")
    phases = ["copy", "build", "clean"]
    workload = make(source, product="product", jobs=1, cache=cache, phases=phases)
    context = make_context(2)
    workload.prepare(context)
    copy, build, clean = workload.phases(context)
    assert workload.run(context, copy).work == 6
    built = workload.run(context, build)
    assert built.commands == [["sh", "-c", "./configure && make -j1"]] * 2
    assert (tmp_path / "client-1" / "source" / "product").exists()
    (original,) = Path(cache).glob("*.tree")
    assert sorted(one.name for one in original.iterdir()) == ["Makefile", "configure", "main.c"]
    workload.run(context, clean)
    assert workload.verify(context).is_good
    assert original.exists(), "it is copied from again"


def test_an_error_of_the_compiler_is_told(make_context: MakeContext, tmp_path: Path) -> None:
    broken = {**FILES, "main.c": "int main(void) { return }\n", "config.h": ""}
    workload = make(tarball(tmp_path / "s.tar.gz", broken), phases=["unpack", "make"])
    context = make_context()
    workload.prepare(context)
    unpack, build = workload.phases(context)
    workload.run(context, unpack)
    with pytest.raises(PhaseFailed, match=r"(?s)cannot make: exit code 2 client=0 .*Error 1"):
        workload.run(context, build)


def test_a_product_that_is_not_there_fails_the_phase(
    make_context: MakeContext, tmp_path: Path
) -> None:
    source = tarball(tmp_path / "s.tar.gz", {"Makefile": "all:\n"})
    workload = make(source, phases=["unpack", "make"], product="product")
    context = make_context()
    workload.prepare(context)
    unpack, build = workload.phases(context)
    workload.run(context, unpack)
    with pytest.raises(PhaseFailed, match="cannot make product: exit code 1"):
        workload.run(context, build)


def test_a_source_without_configure_has_no_such_phase(make_context: MakeContext) -> None:
    workload = make("bzip2")
    assert [phase.name for phase in workload.phases(make_context())] == ["unpack", "make", "clean"]
    assert workload.describe()["product"] == "bzip2"
    table = {"kind": "compile", "params": {"source": "bzip2"}}
    same = workloads.create("w", Settings("workloads.w", table))
    assert same.describe() == workload.describe()
    kernel = make("linux-source-6.1").describe()
    assert kernel["configure"] == ("make", "tinyconfig")


def test_a_source_that_is_missing_is_a_problem(host: AgentHost, make_context: MakeContext) -> None:
    workload = make("/no/such.tar.gz")
    (problem,) = workload.check({"here": host})
    assert problem.text == "the source is not there source=/no/such.tar.gz"
    with pytest.raises(PhaseFailed, match="cannot find the source: .*there is no file /no/such"):
        workload.prepare(make_context())


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"phases": ["make", "unpack"]}, "must be some of unpack, configure, make, clean, in this"),
        ({"phases": ["make"]}, "must begin with unpack"),
        ({"phases": ["unpack", "test"]}, "must be some of"),
        ({"job": 1}, "there is no such setting here"),
    ],
)
def test_wrong_parameters_say_where(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=f"workloads.w.params.* {message}"):
        make("/a.tar.gz", **parameters)


def program(directory: Path, name: str, text: str) -> None:
    file = directory / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that the PATH begins with."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    return directory


def test_a_package_is_fetched_once(programs: Path, tmp_path: Path) -> None:
    program(
        programs,
        "apt-get",
        'case "$*" in\n'
        '  indextargets*) echo "deb-src http://x y main"; echo "deb-src http://x y main" ;;\n'
        f"  *update) cat sources.list >>{tmp_path}/updates ;;\n"
        "  *source*) touch small_1.orig.tar.xz small_1.orig.tar.xz.asc ;;\n"
        "esac",
    )
    cache = tmp_path / "cache"
    for _ in range(2):
        assert fetch_source.find("small", str(cache)) == str(cache / "small.tar.xz")
    assert (tmp_path / "updates").read_text() == "deb-src http://x y main\n"
    assert os.listdir(cache) == ["small.tar.xz"]


def test_a_kernel_is_taken_out_of_its_package(programs: Path, tmp_path: Path) -> None:
    program(programs, "apt-get", '[ "$1 $2" = "download linux-source-9.9" ] && touch l.deb')
    program(programs, "dpkg-deb", "mkdir -p tree/usr/src; touch tree/usr/src/l.tar.xz")
    found = fetch_source.find("linux-source-9.9", str(tmp_path / "cache"))
    assert found == str(tmp_path / "cache" / "linux-source-9.9.tar.xz")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo no network >&2; exit 100", "apt-get failed with 100: no network"),
        ("true", "what was fetched of small has no tarball"),
    ],
)
def test_a_fetch_that_fails_says_why(
    programs: Path, tmp_path: Path, script: str, message: str
) -> None:
    program(programs, "apt-get", script)
    with pytest.raises(fetch_source.NotFound, match=message):
        fetch_source.find("small", str(tmp_path / "cache"))
