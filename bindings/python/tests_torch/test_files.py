# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Samples that are files, in a mount of a store and elsewhere. The mount needs FUSE."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

import terrace
from terrace.torch import FileDataset, Loader

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from conftest import SECONDS_MAX, command  # noqa: E402

SAMPLES = 30
# Stored with its name, sooner or later: then there is no object to migrate.
SMALL = 7


def write(directory: Path) -> None:
    for number in range(SAMPLES):
        file = directory / f"class-{number % 3}" / f"{number:02}"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(bytes([number]) * (10 if number == SMALL else 200_000))


def decode(data: bytes) -> int:
    assert data == bytes([data[0]]) * (10 if data[0] == SMALL else 200_000)
    return data[0]


IN_ORDER = sorted(range(SAMPLES), key=lambda number: (number % 3, number))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_files_are_loaded_in_the_order_of_their_names(
    tmp_path: Path, workers: int, method: str
) -> None:
    write(tmp_path)
    data = FileDataset(tmp_path, transform=decode)
    assert data.names[0] == "class-0/00"
    context = method if workers else None
    loader = DataLoader(data, batch_size=4, num_workers=workers, multiprocessing_context=context)
    assert torch.cat(list(loader)).tolist() == IN_ORDER
    some = FileDataset(tmp_path, ["class-1/04", "class-0/none"])
    assert some[0] == bytes([4]) * 200_000
    with pytest.raises(FileNotFoundError):
        some[1]


def test_a_prefetch_tier_needs_a_mount(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(ValueError, match="in no mount of a store"):
        Loader(FileDataset(tmp_path), prefetch_tier="fast")
    with pytest.raises(FileNotFoundError):
        FileDataset(tmp_path / "none")


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """The files of a store, whose owner is the mount."""
    store, place = tmp_path / "store", tmp_path / "files"
    terrace.Store.create(store)
    place.mkdir()
    subprocess.run([command(), "mount", store, place], check=True, timeout=SECONDS_MAX)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True, timeout=SECONDS_MAX)


def migrate(path: Path) -> None:
    """Queues the migration of a file that the kernel may not have closed yet."""
    until = time.monotonic() + SECONDS_MAX
    while True:
        try:
            return os.setxattr(path, "user.terrace.tier", b"slow")
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ETXTBSY) or time.monotonic() > until:
                raise
            time.sleep(0.01)


@pytest.mark.parametrize("workers", [0, 2])
def test_files_of_a_mount_are_brought_to_the_fast_tier(mounted: Path, workers: int) -> None:
    write(mounted)
    data = FileDataset(mounted, transform=decode)
    for name in data.names:
        if decode((mounted / name).read_bytes()) != SMALL:
            migrate(mounted / name)
    with terrace.Store(mounted.parent / "store") as store:
        assert store.is_attached()
        admin = store.admin()
        assert admin.wait_idle(SECONDS_MAX)

        def tiers() -> list[bytes]:
            large = [name for name in data.names if not name.endswith(f"{SMALL:02}")]
            return [os.getxattr(mounted / name, "user.terrace.tier") for name in large]

        assert set(tiers()) == {b"slow"}
        loader = Loader(
            data, batch_size=3, num_workers=workers, prefetch_tier="fast", window_samples=9
        )
        found, most = [], 0
        for batch in loader:
            found += batch.tolist()
            assert admin.wait_idle(SECONDS_MAX)
            most = max(most, tiers().count(b"fast"))
        assert found == IN_ORDER
        assert loader.prefetch_failures == 0
        assert admin.wait_idle(SECONDS_MAX)
        assert set(tiers()) == {b"slow"}
        assert 3 < most <= 21
