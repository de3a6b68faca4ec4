# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Collections of items."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import terrace


@pytest.fixture(params=["store", "attached"])
def any_store(request: pytest.FixtureRequest) -> terrace.Store:
    """A store of this process, and one of another process."""
    store = request.getfixturevalue(request.param)
    assert isinstance(store, terrace.Store)
    return store


def test_items_are_put_read_and_deleted(any_store: terrace.Store) -> None:
    climate = any_store.create_collection("climate")
    assert climate.name == "climate"
    with pytest.raises(terrace.Exists):
        any_store.create_collection("climate")
    climate.put("t2m", b"first")
    climate.put("t2m", bytearray(b"second"), semantics="persistency=storage", hint="cold")
    assert climate.get("t2m") == b"second"
    assert climate.stat("t2m").size_bytes == 6
    with any_store.open(climate.create("a/../b"), "r+b") as file:
        file.write_at(1, b"x")
    assert climate.get("a/../b") == b"\0x"
    assert climate.list() == ["a/../b", "t2m"]
    assert climate.list("t") == ["t2m"]
    assert any_store.collections() == ["climate"]
    # The bytes are an object, which is explained and moved like others.
    object_name = climate.object_name("t2m")
    assert any_store.get(object_name) == b"second"
    assert any_store.admin().explain(object_name).persistency == "storage"
    with pytest.raises(terrace.Invalid):
        any_store.delete_collection("climate")
    climate.delete("a/../b")
    with pytest.raises(terrace.NotFound):
        climate.get("a/../b")
    any_store.delete_collection("climate", with_items=True)
    with pytest.raises(terrace.NotFound):
        any_store.collection("climate")
    # Another collection has the name; the old handle does not see it.
    any_store.create_collection("climate").put("t2m", b"other")
    with pytest.raises(terrace.NotFound):
        climate.get("t2m")
    assert any_store.collection("climate").get("t2m") == b"other"


def test_a_closed_store_frees_its_collections(directory: Path) -> None:
    store = terrace.Store(directory)
    climate = store.create_collection("climate")
    store.close()
    with pytest.raises(terrace.Invalid):
        climate.get("t2m")
    # The next owner may come, whatever this program still refers to.
    with terrace.Store(directory) as again:
        assert not again.is_attached()
        assert again.collections() == ["climate"]


def test_a_forked_child_opens_its_collections_anew(store: terrace.Store) -> None:
    climate = store.create_collection("climate")
    climate.put("t2m", b"of the parent")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert climate.get("t2m") == b"of the parent"
            climate.put("child", b"of the child")
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert climate.get("child") == b"of the child"
