# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The file system of fsspec: its own suites, and what they leave out."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import fsspec.tests.abstract as abstract
import pytest

import terrace
from terrace.fsspec import TerraceFileSystem


class Fixtures(abstract.AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture
    def fs(self, directory: Path) -> Iterator[Any]:
        file_system = TerraceFileSystem(str(directory))
        yield file_system
        file_system.store.close()

    @pytest.fixture
    def fs_path(self) -> str:
        return "tests/below"

    @pytest.fixture
    def fs_join(self) -> Any:
        return lambda *parts: "/".join(parts)

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class TestCopy(abstract.AbstractCopyTests, Fixtures):  # type: ignore[misc]
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):  # type: ignore[misc]
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):  # type: ignore[misc]
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):  # type: ignore[misc]
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):  # type: ignore[misc]
    pass


@pytest.fixture(params=["directory", "server"])
def fs(request: pytest.FixtureRequest, directory: Path) -> Iterator[Any]:
    """A file system over a directory, and one over a server."""
    address = str(directory) if request.param == "directory" else request.getfixturevalue("served")
    file_system = TerraceFileSystem(address, skip_instance_cache=True)
    yield file_system
    file_system.store.close()


def test_files_and_directories_are_listed(fs: Any) -> None:
    fs.pipe({"ns/a/1": b"1", "ns/a/b/2": b"22", "ns/3": b"333", "other/4": b""})
    assert fs.ls("", detail=False) == ["ns", "other"]
    assert fs.ls("ns", detail=False) == ["ns/3", "ns/a"]
    assert [(one["name"], one["type"], one["size"]) for one in fs.ls("ns/a")] == [
        ("ns/a/1", "file", 1),
        ("ns/a/b", "directory", 0),
    ]
    assert fs.find("ns") == ["ns/3", "ns/a/1", "ns/a/b/2"]
    assert fs.find("ns", detail=True)["ns/3"]["size"] == 3
    assert fs.du("ns") == 6
    assert fs.isdir("ns/a")
    assert fs.isfile("ns/a/1")
    assert not fs.exists("ns/a/2")
    assert fs.glob("ns/**/2") == ["ns/a/b/2"]
    with pytest.raises(FileNotFoundError):
        fs.ls("none")
    with pytest.raises(OSError, match="not empty"):
        fs.rmdir("ns/a")
    assert abs((fs.modified("ns/3") - fs.created("ns/3")).total_seconds()) < 60
    fs.mv("ns/a", "ns/moved", recursive=True)
    assert fs.find("ns") == ["ns/3", "ns/moved/1", "ns/moved/b/2"]
    fs.rm("ns", recursive=True)
    assert fs.ls("", detail=False) == ["other"]


def test_many_objects_are_read_with_few_requests(fs: Any) -> None:
    wanted = {f"many/{number:03}": bytes([number]) * (number * 700) for number in range(120)}
    fs.pipe(wanted)
    assert fs.cat("many/", recursive=True) == wanted
    assert fs.cat(list(wanted)[:2]) == {name: wanted[name] for name in list(wanted)[:2]}
    names = list(wanted)
    ranges = fs.cat_ranges([*names, "many/none"], 10, 20)
    assert ranges[:-1] == [data[10:20] for data in wanted.values()]
    assert isinstance(ranges[-1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(["many/none"], [0], [1], on_error="raise")
    assert fs.cat_ranges(names[-2:], [-5, 3], [None, -2]) == [
        wanted[names[-2]][-5:],
        wanted[names[-1]][3:-2],
    ]
    with pytest.raises(FileNotFoundError):
        fs.cat(["many/001", "many/none"])
    assert list(fs.cat(["many/001", "many/none"], on_error="omit")) == ["many/001"]
    assert fs.cat_file(names[5], start=-10, end=-3) == wanted[names[5]][-10:-3]


def test_files_are_written_when_they_are_closed(fs: Any) -> None:
    large = bytes(range(256)) * 50_000
    with fs.open("ns/a", "wb") as file:
        file.write(large)
        assert not fs.exists("ns/a")
    assert fs.cat("ns/a") == large
    with fs.open("ns/a", "ab") as file:
        file.write(b"end")
    with fs.open("ns/a") as file:
        assert file.seek(-5, 2) == len(large) - 2
        assert file.read() == large[-2:] + b"end"
    with fs.open("ns/text", "w") as file:
        file.write("lines\nof text\n")
    with fs.open("ns/text", "r") as file:
        assert list(file) == ["lines\n", "of text\n"]
    with pytest.raises(FileExistsError):
        fs.pipe_file("ns/text", b"", mode="create")
    with pytest.raises(FileNotFoundError):
        fs.open("ns/none")


def test_a_transaction_changes_all_or_nothing_visible_before_its_end(fs: Any) -> None:
    fs.pipe("ns/a", b"old")
    with fs.transaction:
        fs.pipe("ns/a", b"new")
        with fs.open("ns/b", "wb") as file:
            file.write(b"too")
        assert fs.cat("ns/a") == b"old"
        assert not fs.exists("ns/b")
    assert fs.cat(["ns/a", "ns/b"]) == {"ns/a": b"new", "ns/b": b"too"}

    def fail() -> None:
        with fs.transaction:
            fs.pipe("ns/a", b"lost")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert fs.cat("ns/a") == b"new"


def test_urls_name_stores(served: str) -> None:
    url = served.replace("?secret=none", "/ns/a")
    assert TerraceFileSystem._strip_protocol(url) == "ns/a"
    assert TerraceFileSystem._get_kwargs_from_urls(url)["store"] in served
    with fsspec.open("terrace:///ns/a", "wb", store=served) as file:
        file.write(b"by the URL")
    with fsspec.open("terrace:///ns/a", store=served) as file:
        assert file.read() == b"by the URL"
    file_system, path = fsspec.core.url_to_fs("terrace:///ns/a", store=served)
    assert isinstance(file_system, TerraceFileSystem)
    copied = pickle.loads(pickle.dumps(file_system))
    assert copied.cat(path) == b"by the URL"
    file_system.store.close()


def test_a_store_must_be_named(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    monkeypatch.delenv("TERRACE_STORE", raising=False)
    with pytest.raises(ValueError, match="TERRACE_STORE"):
        TerraceFileSystem(skip_instance_cache=True)
    monkeypatch.setenv("TERRACE_STORE", str(directory))
    file_system = TerraceFileSystem(skip_instance_cache=True)
    with pytest.raises(ValueError, match="namespace/name"):
        file_system.open("plain", "wb")
    with pytest.raises(terrace.Error):
        TerraceFileSystem("/nowhere/at/all", skip_instance_cache=True)
    file_system.store.close()
