# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The package `terrace` over a store in a directory."""

from __future__ import annotations

import contextlib
import errno
import io
import math
import pickle
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import terrace
from terrace._shared import absolute, shared

KIB = 1 << 10
MIB = 1 << 20


def pattern(size: int) -> bytes:
    return (np.arange(size, dtype=np.uint32) * 2654435761 >> 13).astype(np.uint8).tobytes()


@pytest.mark.parametrize("size", [0, 5, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 9 * MIB])
def test_whole_objects_are_put_replaced_and_deleted(store: terrace.Store, size: int) -> None:
    for data in (pattern(size), pattern(size)[::-1]):
        store.put("run/42", data)
        assert store.get("run/42") == data
        assert store.stat("run/42").size_bytes == size
    assert list(store.list("run/")) == ["run/42"]
    store.delete("run/42")
    assert not store.exists("run/42")
    assert list(store.list()) == []


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, "u1")])
def test_any_contiguous_buffer_is_written(store: terrace.Store, make: object) -> None:
    data = pattern(100)
    store.put("a/b", make(data))  # type: ignore[operator]
    assert store.get("a/b") == data


def test_scattered_buffers_are_refused(store: terrace.Store) -> None:
    with pytest.raises((BufferError, ValueError)):
        store.put("a/b", np.zeros(10, "u1")[::2])
    store.put("a/b", b"x")
    with pytest.raises((BufferError, ValueError)):
        store.get_into("a/b", memoryview(b"constant"))


def test_objects_are_read_into_arrays(store: terrace.Store) -> None:
    wanted = np.arange(3 * MIB, dtype=np.float64)
    store.put("a/b", wanted)
    found = np.empty_like(wanted)
    assert store.get_into("a/b", found) == wanted.nbytes
    assert (found == wanted).all()
    tail = np.empty(20)
    assert store.get_into("a/b", tail, wanted.nbytes - 80) == 80
    assert (tail[:10] == wanted[-10:]).all()


def test_an_object_is_a_raw_file(store: terrace.Store) -> None:
    with store.open("a/b", "xb", label=b"mark") as file:
        assert isinstance(file, io.RawIOBase)
        assert file.write(b"0123456789") == 10
        assert file.label() == b"mark"
    with store.open("a/b") as file:
        assert file.readable()
        assert not file.writable()
        assert (file.seek(-4, 2), file.read(2), file.tell(), file.read()) == (6, b"67", 8, b"89")
        buffer = bytearray(4)
        assert file.seek(8) == 8
        assert file.readinto(buffer) == 2
        assert buffer == b"89\0\0"
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
    with pytest.raises(ValueError, match="closed"):
        file.read()
    with store.open("a/b", "r+b") as file:
        file.seek(4)
        file.write(b"xy")
        file.truncate(8)
        file.write_at(10, b"end")
        file.sync()
        assert file.read_at(0, 100) == b"0123xy67\0\0end"
    with store.open("a/b", "ab") as file:
        assert (file.tell(), file.truncate()) == (13, 13)
        assert file.append(b"!") == 13
        assert file.write(b"?") == 1
    with io.TextIOWrapper(io.BufferedReader(store.open("a/b"))) as text:
        assert text.read().endswith("end!?")
    with pytest.raises(terrace.Exists):
        store.open("a/b", "xb")
    with pytest.raises(ValueError, match="mode"):
        store.open("a/b", "w")


def test_a_file_that_is_replaced_has_its_old_value_until_it_is_closed(store: terrace.Store) -> None:
    store.put("a/b", b"old")
    with store.open("a/b", "wb") as file:
        file.write(b"new value")
        assert store.get("a/b") == b"old"
    assert store.get("a/b") == b"new value"

    def fail() -> None:
        with store.open("a/b", "wb") as file:
            file.write(b"half of")
            raise KeyError("in the middle")

    with pytest.raises(KeyError):
        fail()
    assert store.get("a/b") == b"new value"
    forgotten = store.open("a/b", "wb")
    forgotten.write(b"half of")
    del forgotten
    assert store.get("a/b") == b"new value"


def test_a_discarded_file_leaves_the_old_value_whatever_other_threads_write(
    store: terrace.Store,
) -> None:
    old = b"old" * 100
    store.put("a/b", old)

    def written(file: terrace.Object) -> None:
        # Until the file is closed.
        with contextlib.suppress(terrace.Error, ValueError):
            while True:
                file.write_at(0, b"new")

    for _ in range(300):
        file = store.open("a/b", "wb")
        threads = [threading.Thread(target=written, args=[file]) for _ in range(3)]
        for thread in threads:
            thread.start()
        file.write_at(0, b"new")
        file.discard()
        for thread in threads:
            thread.join()
        assert store.get("a/b") == old


def test_errors_have_classes_of_their_kinds(store: terrace.Store, directory: Path) -> None:
    with pytest.raises(FileNotFoundError, match="cannot open") as found:
        store.get("no/thing")
    error = found.value
    assert isinstance(error, terrace.NotFound | terrace.Error)
    assert (error.errno, error.kind) == (errno.ENOENT, "not-found")
    with pytest.raises(ValueError, match="empty") as wrong:
        store.put("", b"")
    assert isinstance(wrong.value, terrace.Invalid)
    with pytest.raises(FileExistsError):
        terrace.Store.create(directory)
    with pytest.raises(terrace.Invalid, match="hint"):
        store.put("a/b", b"", hint="warm")
    with pytest.raises(terrace.Invalid, match="axis"):
        store.put("a/b", b"", semantics="speed=high")
    with pytest.raises(TypeError):
        store.put("a/b", "text")  # type: ignore[arg-type]
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), str(copied)) == (terrace.NotFound, str(error))


def test_a_store_that_is_read_only_denies_changes(directory: Path) -> None:
    with terrace.Store(directory) as store:
        store.put("a/b", b"x")
    with terrace.Store(directory, read_only=True) as store:
        assert store.get("a/b") == b"x"
        with pytest.raises(PermissionError):
            store.put("a/b", b"y")


def test_a_closed_store_says_so(directory: Path) -> None:
    store = terrace.Store(directory)
    store.put("a/b", b"x")
    file = store.open("a/b")
    names = store.list()
    store.close()
    store.close()
    assert store.closed
    for use in (lambda: store.get("a/b"), lambda: file.read(), lambda: next(names)):
        with pytest.raises(terrace.Error):
            use()
    assert "closed" in repr(store)
    # Whatever is still referred to, the next owner may come.
    with terrace.Store(directory) as store:
        assert not store.is_attached()


def test_batches_return_one_outcome_each(store: terrace.Store) -> None:
    batch = store.batch().create("a/b", b"0123456789").create("a/c", memoryview(b"c"))
    batch.write("a/b", 2, b"xx").read("a/b", 1, 4).stat("a/c").read("a/none", 0, 1).stat("")
    assert len(batch) == 7
    outcomes = batch.run()
    assert outcomes[:4] == [None, None, None, b"1xx4"]
    assert isinstance(outcomes[4], terrace.Stat)
    assert outcomes[4].size_bytes == 1
    assert isinstance(outcomes[5], terrace.NotFound)
    assert isinstance(outcomes[6], terrace.Invalid)
    assert batch.run() == []
    outcomes = store.batch(semantics="posix,persistency=storage").delete("a/b").run()
    assert outcomes == [None]


def test_a_read_of_more_than_the_memory_fails_alone(store: terrace.Store) -> None:
    store.put("a/b", b"bytes")
    batch = store.batch().read("a/b", 0, sys.maxsize).read("a/b", 0, 1 << 60).read("a/b", 1, 9)
    outcomes = batch.run()
    assert [type(outcome) for outcome in outcomes] == [terrace.Invalid, terrace.Invalid, bytes]


def test_a_batch_has_the_bytes_that_it_was_given(store: terrace.Store) -> None:
    data = bytearray(b"first")
    batch = store.batch().create("a/b", data)
    data[:] = b"second and longer"
    assert batch.run() == [None]
    assert store.get("a/b") == b"first"


def test_a_timeout_is_a_number(store: terrace.Store) -> None:
    for wait in (store.admin().wait_idle, store.watch().next):
        with pytest.raises(terrace.Invalid):
            wait(math.nan)
        wait(-1.0)
        wait(-math.inf)
    assert store.admin().wait_idle(math.inf)
    assert store.admin().wait_idle(1e300)


def test_pairs_change_together(store: terrace.Store) -> None:
    pairs = store.kv("ns", persistency="storage")
    pairs.put(b"a", b"1")
    pairs.apply([(b"b", b"2"), (b"bc", memoryview(b"3")), (b"a", None)])
    assert pairs.get(b"a") is None
    assert pairs.scan() == [(b"b", b"2"), (b"bc", b"3")]
    assert pairs.scan(b"b", after=b"b", max=5) == [(b"bc", b"3")]
    # Behind a key before the prefix: still nothing but what begins with the prefix.
    assert pairs.scan(b"bc", after=b"a") == [(b"bc", b"3")]
    assert pairs.scan(b"b", after=b"z") == []
    assert pairs.remove(b"b")
    assert not pairs.remove(b"b")


def test_listings_are_complete_over_pages(store: terrace.Store) -> None:
    names = [f"many/{number:04}" for number in range(2500)]
    for start in range(0, len(names), 500):
        batch = store.batch()
        for name in names[start : start + 500]:
            batch.create(name, b"")
        assert batch.run() == [None] * 500
    assert sorted(store.list("many/")) == names
    assert sorted(store.list("many/00")) == names[:100]


def test_objects_are_explained_migrated_and_pinned(store: terrace.Store) -> None:
    store.put("a/b", pattern(3 * MIB))
    admin = store.admin()
    fast, slow = (tier.name for tier in admin.tiers()[:2])
    explained = admin.explain("a/b")
    assert explained.segments[0].tier == fast
    with store.watch() as notices:
        admin.migrate("a/b", slow)
        assert admin.wait_idle(30)
        seen: list[terrace.Notice] = []
        while not seen or seen[-1].details.get("state") != "ended":
            notice = notices.next(30)
            assert notice is not None
            seen.append(notice)
        assert {notice.kind for notice in seen} == {"migration"}
    assert list(notices) == []
    explained = admin.explain("a/b")
    assert explained.segments[0].tier == slow
    assert explained.segments[0].history[-1].by == "user"
    assert "<table>" in explained._repr_html_()
    assert slow in store._repr_html_()
    admin.pin("a/b")
    assert admin.explain("a/b").is_pinned
    with pytest.raises(PermissionError):
        admin.migrate("a/b", slow if explained.segments[0].tier == fast else fast)
    admin.unpin("a/b")
    admin.promote("a/b", fast)
    assert admin.wait_idle(30)
    explained = admin.explain("a/b")
    assert (explained.segments[0].tier, explained.segments[0].copies) == (fast, [slow])
    admin.set_policy("lru")
    with pytest.raises(FileNotFoundError):
        admin.migrate("a/b", "no-such-tier")


def test_a_watch_ends_with_the_store(directory: Path) -> None:
    store = terrace.Store(directory)
    notices = store.watch()
    closing = threading.Timer(0.2, store.close)
    closing.start()
    assert list(notices) == []
    closing.join()
    assert notices.next(0) is None


def test_threads_share_a_store(store: terrace.Store) -> None:
    failures = []

    def work(number: int) -> None:
        try:
            for turn in range(200):
                data = b"%d %d" % (number, turn)
                store.put(f"t/{number}", data)
                assert store.get(f"t/{number}") == data
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_another_process_may_own_the_store(attached: terrace.Store) -> None:
    attached.put("a/b", b"old")
    with attached.open("a/b", "wb") as file:
        file.write(pattern(9 * MIB))
        assert attached.get("a/b") == b"old"
    assert attached.get("a/b") == pattern(9 * MIB)
    found = bytearray(9 * MIB)
    assert attached.get_into("a/b", found) == len(found)
    assert found == pattern(9 * MIB)
    assert attached.batch().stat("a/b").run()[0].size_bytes == 9 * MIB  # type: ignore[union-attr]
    assert [tier.name for tier in attached.admin().tiers()]


def test_stores_travel_to_other_processes_by_their_address(store: terrace.Store) -> None:
    copied = pickle.loads(pickle.dumps(store))
    store.put("a/b", b"x")
    assert copied.get("a/b") == b"x"
    assert copied.address == store.address
    copied.close()


def test_a_file_keeps_its_store_open(directory: Path) -> None:
    # One store of the process: the second file would else need the first one's owner.
    store = shared(directory)
    first = store.open("a/b", "wb")
    del store
    second = shared(directory).open("a/c", "wb")
    first.write(b"first")
    first.close()
    del first
    second.write(b"second")
    second.close()
    del second
    with terrace.Store(directory) as store:
        assert not store.is_attached()
        assert (store.get("a/b"), store.get("a/c")) == (b"first", b"second")


def test_an_address_is_the_same_from_every_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to("elsewhere/below")
    terrace.Store.create(tmp_path / "elsewhere" / "store")
    monkeypatch.chdir(tmp_path)
    assert absolute("a//store/.") == str(tmp_path / "a" / "store")
    assert absolute("terrace://host:1") == "terrace://host:1"
    # The parent of what the link leads to.
    address = absolute("link/../store")
    monkeypatch.chdir("/")
    shared(address).close()
