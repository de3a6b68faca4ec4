# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The file system of fsspec: its own suites, and what they leave out."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import fsspec.tests.abstract as abstract
import numpy as np
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
    fs.pipe_file("ns/made", large, mode="create")
    assert fs.cat("ns/made") == large
    with pytest.raises(TypeError):
        fs.pipe_file("ns/failed", "no bytes", mode="create")
    assert not fs.exists("ns/failed")
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


@pytest.mark.parametrize("compression", ["gzip", "bz2", "xz", "zip"])
def test_compressed_files_are_written_when_they_are_closed(fs: Any, compression: str) -> None:
    fs.pipe("ns/a", b"old")
    with fs.open("ns/a", "wb", compression=compression) as file:
        file.write(b"new" * 1000)
        assert fs.cat("ns/a") == b"old"
    with fs.open("ns/a", compression=compression) as file:
        assert file.read() == b"new" * 1000
    with fs.open("ns/a", "w", compression=compression) as file:
        file.write("text\n" * 1000)
    with fs.open("ns/a", "r", compression=compression) as file:
        assert file.read() == "text\n" * 1000

    def fail(mode: str) -> None:
        with fs.open("ns/a", mode, compression=compression) as file:
            file.write(b"half" if mode == "wb" else "half")
            raise KeyError

    for mode in ("wb", "w"):
        with pytest.raises(KeyError):
            fail(mode)
        forgotten = fs.open("ns/a", mode, compression=compression)
        forgotten.write(b"half" if mode == "wb" else "half")
        del forgotten
        with fs.open("ns/a", "r", compression=compression) as file:
            assert file.read() == "text\n" * 1000
    with pytest.raises(ValueError, match="unknown"):
        fs.open("ns/a", "wb", compression="unknown")


def test_the_compression_is_that_of_the_name(fs: Any) -> None:
    decompress: dict[str, Any] = {
        "gz": gzip.decompress,
        "bz2": bz2.decompress,
        "xz": lzma.decompress,
        "txt": bytes,
    }
    for kind, original in decompress.items():
        with fs.open(f"ns/a.{kind}", "wb", compression="infer") as file:
            assert file.write(b"new") == 3
        assert original(fs.cat(f"ns/a.{kind}")) == b"new"
    # Appends another member.
    with fs.open("ns/a.gz", "ab", compression="infer") as file:
        file.write(b"er")
    assert gzip.decompress(fs.cat("ns/a.gz")) == b"newer"
    with fs.transaction, fs.open("ns/a.gz", "wb", compression="infer") as file:
        file.write(b"newest")
    assert gzip.decompress(fs.cat("ns/a.gz")) == b"newest"


def test_text_is_not_written_after_an_exception(fs: Any) -> None:
    fs.pipe("ns/a", b"old")

    def fail() -> None:
        with fs.open("ns/a", "w", encoding="utf-8") as file:
            file.write("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert fs.cat("ns/a") == b"old"
    forgotten = fs.open("ns/a", "wt")
    forgotten.write("half")
    del forgotten
    assert fs.cat("ns/a") == b"old"
    with fs.open("ns/a", "w", encoding="utf-16-le", newline="\r\n") as file:
        file.write("ü\n")
    assert fs.cat("ns/a") == "ü\r\n".encode("utf-16-le")


def test_a_file_that_is_read_has_one_value(fs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fs.pipe("ns/a", b"old")
    stat = terrace.Store.stat

    def replaced_behind(store: terrace.Store, name: str) -> terrace.Stat:
        found = stat(store, name)
        store.put(name, b"a longer value")
        return found

    monkeypatch.setattr(terrace.Store, "stat", replaced_behind)
    with fs.open("ns/a") as file:
        fs.pipe("ns/a", b"the last value")
        assert file.read() in (b"old", b"a longer value")


def test_a_transaction_refuses_what_it_could_not_undo(fs: Any) -> None:
    fs.pipe({"ns/a": b"old", "ns/b": b"old"})

    def transact() -> None:
        with fs.transaction:
            fs.pipe("ns/a", b"new")
            fs.cp_file("ns/a", "ns/copied")
            assert not fs.exists("ns/copied")
            refusals: list[Callable[[], Any]] = [
                lambda: fs.open("ns/b", "ab"),
                lambda: fs.open("ns/c", "xb"),
                lambda: fs.pipe_file("ns/c", b"", mode="create"),
                lambda: fs.touch("ns/c", truncate=False),
                lambda: fs.mv("ns/b", "ns/c"),
            ]
            for refused in refusals:
                with pytest.raises(io.UnsupportedOperation, match="transaction"):
                    refused()

    transact()
    assert fs.cat("ns", recursive=True) == {
        "ns/a": b"new",
        "ns/b": b"old",
        "ns/copied": b"old",
    }
    with pytest.raises(io.UnsupportedOperation):
        fs.open("ns/b", "ab", autocommit=False)


def test_ranges_come_in_any_sequence_and_size(fs: Any) -> None:
    large = bytes(range(256)) * 50_000
    fs.pipe({"ns/a": large, "ns/b": b"0123456789"})
    names = ["ns/a", "ns/b"]
    wanted = [large[1:4], b"123"]
    assert fs.cat_ranges(names, (1, 1), (4, 4)) == wanted
    assert fs.cat_ranges(tuple(names), np.array([1, 1]), np.int64(4)) == wanted
    # More than the memory of any machine.
    assert fs.cat_ranges(names, 5, 1 << 50) == [large[5:], b"56789"]
    assert fs.cat_ranges(names, None, [3, None]) == [large[:3], b"0123456789"]
    with pytest.raises(ValueError, match="differ in number"):
        fs.cat_ranges(names, (1,), (4, 4))


def test_directories_are_removed_with_what_is_below(fs: Any) -> None:
    fs.pipe({"ns/a/1": b"1", "ns/2": b"2"})
    for directory in ("ns", "ns/a", "ns/*"):
        with pytest.raises(IsADirectoryError):
            fs.rm(directory)
    with pytest.raises(FileNotFoundError):
        fs.rm("ns/none")
    with pytest.raises(FileNotFoundError):
        fs.rm("none")
    assert fs.find("ns") == ["ns/a/1"]
    fs.rm("ns", recursive=True)
    assert not fs.exists("ns")


def test_a_name_without_a_namespace_is_no_file(fs: Any) -> None:
    fs.store.put("default/plain", b"x")
    assert not fs.exists("plain")
    for read in (fs.cat_file, fs.cat, fs.rm_file, fs.rm, fs.created, fs.modified, fs.open):
        with pytest.raises(FileNotFoundError):
            read("plain")
    assert isinstance(fs.cat_ranges(["plain"], 0, 1)[0], FileNotFoundError)
    assert fs.cat(["plain", "default/plain"], on_error="omit") == {"default/plain": b"x"}
    writes: list[Callable[[], Any]] = [
        lambda: fs.pipe_file("plain", b""),
        lambda: fs.pipe_file("plain", b"", mode="create"),
        lambda: fs.open("plain", "ab"),
        lambda: fs.open("plain", "xb"),
        lambda: fs.touch("plain", truncate=False),
    ]
    for write in writes:
        with pytest.raises(ValueError, match="namespace/name"):
            write()
    assert fs.cat("default/plain") == b"x"


def test_an_instance_is_that_of_its_store(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other" / "store"
    other.parent.mkdir()
    terrace.Store.create(other)
    for place in (directory, other):
        monkeypatch.setenv("TERRACE_STORE", str(place))
        TerraceFileSystem().pipe("ns/a", str(place).encode())
    assert TerraceFileSystem().cat("ns/a") == str(other).encode()
    monkeypatch.chdir(directory.parent)
    relative = TerraceFileSystem("store")
    assert relative.cat("ns/a") == str(directory).encode()
    monkeypatch.setenv("TERRACE_STORE", "store")
    assert TerraceFileSystem() is TerraceFileSystem(store=directory) is relative
    monkeypatch.chdir(other.parent)
    assert TerraceFileSystem("store").cat("ns/a") == str(other).encode()
    copied = pickle.loads(pickle.dumps(relative))
    assert copied.cat("ns/a") == str(directory).encode()
    with pytest.raises(TypeError, match="twice"):
        TerraceFileSystem("store", **{"store": "store"})
    for place in (directory, other):
        TerraceFileSystem(place).store.close()


def test_a_store_that_was_closed_is_opened_again(directory: Path) -> None:
    fs = TerraceFileSystem(directory)
    fs.pipe("ns/a", b"1")
    fs.store.close()
    assert TerraceFileSystem(directory) is fs
    assert fs.cat("ns/a") == b"1"
    fs.store.close()
    # Where that fails, a file is not missing.
    moved = directory.rename(directory.with_name("moved"))
    for ask in (fs.exists, fs.isfile, fs.isdir, fs.info):
        with pytest.raises(terrace.NotFound):
            ask("ns/a")
    moved.rename(directory)
    assert fs.isfile("ns/a")
    fs.store.close()
