# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The store of Zarr: its own suite, and arrays."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.buffer import Buffer, cpu
from zarr.testing.store import StoreTests

import terrace
from conftest import run
from terrace._shared import shared
from terrace.zarr import TerraceStore


class TestSuite(StoreTests[TerraceStore, cpu.Buffer]):  # type: ignore[misc]
    store_cls = TerraceStore
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def store_kwargs(self, directory: Path) -> Iterator[dict[str, Any]]:
        yield {"store": str(directory), "prefix": "zarr/array"}
        shared(directory).close()

    async def set(self, store: TerraceStore, key: str, value: Buffer) -> None:  # noqa: A003
        store.store.put(f"zarr/array/{key}", value.to_bytes())

    async def get(self, store: TerraceStore, key: str) -> Buffer:
        return self.buffer_cls.from_bytes(store.store.get(f"zarr/array/{key}"))

    def test_store_repr(self, store: TerraceStore) -> None:
        assert repr(store) == f"TerraceStore({store.address!r}, 'zarr/array')"

    def test_store_supports_writes(self, store: TerraceStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: TerraceStore) -> None:
        assert store.supports_listing


@pytest.mark.parametrize("place", ["directory", "server"])
def test_arrays_are_written_and_read(
    request: pytest.FixtureRequest, directory: Path, place: str
) -> None:
    address = str(directory) if place == "directory" else request.getfixturevalue("served")
    data = np.arange(90_000, dtype="f4").reshape(300, 300)
    array = zarr.create_array(
        TerraceStore(address, "climate/t2m"), shape=data.shape, chunks=(100, 70), dtype=data.dtype
    )
    array[:] = data
    array[5:7, 100:250] = -1
    data[5:7, 100:250] = -1
    again = zarr.open_array(TerraceStore(address, "climate/t2m", read_only=True), mode="r")
    assert (again[:] == data).all()
    with pytest.raises(terrace.Error):
        shared(address).get("climate/t2m/none")
    shared(address).close()


def test_a_store_that_is_not_found_reads_as_no_zeros(directory: Path) -> None:
    store = TerraceStore(directory, "ns/array")
    array = zarr.create_array(store, shape=(4,), chunks=(2,), dtype="i4")
    array[:] = 7
    store.store.close()
    moved = directory.rename(directory.with_name("moved"))
    with pytest.raises(terrace.NotFound):
        array[:]
    with pytest.raises(terrace.NotFound):
        store.delete_sync("zarr.json")
    moved.rename(directory)
    assert array[:].tolist() == [7] * 4
    store.store.close()


_FORKING = """
import os, sys, zarr, terrace
from terrace.zarr import TerraceStore
store = TerraceStore(sys.argv[1], "ns/array")
zarr.create_array(store, shape=(4,), dtype="i4")
assert store.get_sync("zarr.json") is not None
os.rename(sys.argv[1], sys.argv[1] + ".moved")
child = os.fork()
if child == 0:
    try:
        store.get_sync("zarr.json")
    except terrace.NotFound:
        os._exit(0)
    finally:
        os._exit(1)
_, status = os.waitpid(child, 0)
print(status)
"""


def test_a_forked_child_that_finds_no_store_reads_no_zeros(directory: Path) -> None:
    assert run(_FORKING, directory) == "0\n"


def test_a_relative_address_stays_that_of_one_store(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(directory.parent)
    store = TerraceStore(directory.name, "ns/array")
    assert store == TerraceStore(directory, "ns/array")
    monkeypatch.chdir("/")
    zarr.create_array(store, shape=(4,), chunks=(2,), dtype="i4")
    copied = pickle.loads(pickle.dumps(store))
    assert copied.address == str(directory)
    copied.store.close()
