# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Workers of a DataLoader whose server restarts, or goes for good."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

import terrace
from terrace.torch import ObjectDataset

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from conftest import Server, command  # noqa: E402

SAMPLES = 400


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    terrace.Store.create(tmp_path / "store")
    with terrace.Store(tmp_path / "store") as store:
        batch = store.batch()
        for number in range(SAMPLES):
            batch.create(f"images/{number:03}", b"%d" % number)
        assert batch.run() == [None] * SAMPLES
    return tmp_path / "store"


@pytest.mark.parametrize(("method", "workers"), [("fork", 8), ("spawn", 2)])
def test_workers_go_on_when_the_server_has_restarted(
    directory: Path, tmp_path: Path, method: str, workers: int
) -> None:
    with Server(command(), directory, tmp_path) as server:
        # Also the parent has a connection, which its children must not use.
        data = ObjectDataset(f"{server.address}&deadline=60s", prefix="images/", transform=int)
        assert data[3] == 3
        loader = DataLoader(data, batch_size=2, num_workers=workers, multiprocessing_context=method)
        batches = iter(loader)
        # Each worker has delivered, and so has opened the store.
        found = [number for _ in range(workers) for number in next(batches).tolist()]
    # Workers are about to ask for what comes next, and some already do.
    with Server(command(), directory, tmp_path, server.port):
        for batch in batches:
            found += batch.tolist()
        assert found == list(range(SAMPLES))
        assert data[5] == 5


def test_a_data_set_opens_its_store_once(directory: Path) -> None:
    data = ObjectDataset(directory, prefix="images/", transform=int)
    opened = data._store()
    assert data[1] == 1
    assert data._store() is opened
    # The end of the data set is that of the store: another owner can open it.
    del data, opened
    with terrace.Store(directory) as store:
        assert not store.is_attached()


def test_a_server_that_is_gone_is_an_exception_of_the_loader(
    directory: Path, tmp_path: Path
) -> None:
    with Server(command(), directory, tmp_path) as server:
        data = ObjectDataset(f"{server.address}&deadline=1s", prefix="images/", transform=int)
        loader = DataLoader(data, batch_size=2, num_workers=8, multiprocessing_context="fork")
        batches = iter(loader)
        next(batches)
    with pytest.raises(ConnectionError):
        list(batches)
