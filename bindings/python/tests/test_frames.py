# SPDX-License-Identifier: Apache-2.0 OR MIT
"""pandas, pyarrow, xarray and dask over stores: small files, written and read again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from terrace._shared import shared
from terrace.fsspec import TerraceFileSystem
from terrace.zarr import TerraceStore


@pytest.fixture(params=["directory", "server"])
def address(request: pytest.FixtureRequest, directory: Path) -> Iterator[str]:
    place = str(directory) if request.param == "directory" else request.getfixturevalue("served")
    yield place
    shared(place).close()


def frame() -> Any:
    import pandas

    return pandas.DataFrame({"a": range(1000), "b": np.linspace(0, 1, 1000), "c": ["x", "y"] * 500})


def test_pandas_writes_and_reads(address: str) -> None:
    import pandas

    options = {"store": address}
    wanted = frame()
    wanted.to_parquet("terrace:///data/table.parquet", storage_options=options)
    found = pandas.read_parquet("terrace:///data/table.parquet", storage_options=options)
    pandas.testing.assert_frame_equal(found, wanted)
    wanted.to_csv("terrace:///data/table.csv", index=False, storage_options=options)
    found = pandas.read_csv("terrace:///data/table.csv", storage_options=options)
    pandas.testing.assert_frame_equal(found, wanted)


def test_pyarrow_writes_and_reads_a_dataset(address: str) -> None:
    import pyarrow
    import pyarrow.dataset
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    file_system = PyFileSystem(FSSpecHandler(TerraceFileSystem(address)))
    table = pyarrow.table({"part": [1, 1, 2, 2], "value": [0.5, 1.5, 2.5, 3.5]})
    pyarrow.dataset.write_dataset(
        table, "data/set", filesystem=file_system, format="parquet", partitioning=["part"]
    )
    found = pyarrow.dataset.dataset("data/set", filesystem=file_system, partitioning=["part"])
    assert found.count_rows() == 4
    assert found.to_table(filter=pyarrow.dataset.field("part") == 2)["value"].to_pylist() == [
        2.5,
        3.5,
    ]


def test_xarray_writes_and_reads(address: str) -> None:
    import xarray

    wanted = xarray.Dataset(
        {"t2m": (("time", "x"), np.arange(600.0).reshape(20, 30))}, {"time": np.arange(20)}
    )
    wanted.to_zarr(TerraceStore(address, "climate/run"), consolidated=False)
    found = xarray.open_zarr(TerraceStore(address, "climate/run"), consolidated=False)
    xarray.testing.assert_identical(found.load(), wanted)


def test_dask_writes_and_reads(address: str) -> None:
    import dask.array
    import dask.bag

    options = {"store": address}
    lines = [f"line {number}" for number in range(100)]
    bag = dask.bag.from_sequence(lines, npartitions=4)
    bag.to_textfiles("terrace:///data/lines-*.txt", storage_options=options)
    found = dask.bag.read_text("terrace:///data/lines-*.txt", storage_options=options)
    assert sorted(line.strip() for line in found.compute(scheduler="threads")) == sorted(lines)
    data = dask.array.from_array(np.arange(10_000).reshape(100, 100), chunks=30)
    data.to_zarr(TerraceStore(address, "data/array"))
    again = dask.array.from_zarr(TerraceStore(address, "data/array"))
    assert (again.sum().compute(scheduler="threads")) == 10_000 * 9_999 // 2
