# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A store of Zarr 3 in a store of Terrace.

zarr.create_array(TerraceStore("my-store", "climate/t2m"), shape=…, dtype=…)
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
)
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.core.buffer.core import default_buffer_prototype

from terrace._errors import Error, Exists, NotFound
from terrace._shared import Opener

if TYPE_CHECKING:
    import terrace

# Deleted with one request.
_BATCH_NAMES = 1000


class TerraceStore(Store):  # type: ignore[misc]
    """Keys of Zarr are objects whose names begin with `prefix`, `namespace` or `namespace/name`.

    `store` is the directory or the address of a store. Values are replaced atomically.
    """

    supports_writes = True
    supports_deletes = True
    supports_partial_writes = False
    supports_listing = True

    def __init__(
        self,
        store: str | os.PathLike[str],
        prefix: str = "zarr",
        *,
        read_only: bool = False,
    ) -> None:
        super().__init__(read_only=read_only)
        self._opener = Opener(store)
        self.prefix = prefix.strip("/")
        if not self.prefix:
            raise ValueError("the prefix is empty; it begins with a namespace")

    @property
    def address(self) -> str:
        return self._opener.address

    @property
    def store(self) -> terrace.Store:
        """The store underneath, opened again where it was closed."""
        return self._opener.store()

    def with_read_only(self, read_only: bool = False) -> TerraceStore:
        return type(self)(self.address, self.prefix, read_only=read_only)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and (self.address, self.prefix, self.read_only) == (
            other.address,
            other.prefix,
            other.read_only,
        )

    def __hash__(self) -> int:
        return hash((self.address, self.prefix, self.read_only))

    def __str__(self) -> str:
        return f"terrace:{self.address}:{self.prefix}"

    def __repr__(self) -> str:
        return f"TerraceStore({self.address!r}, {self.prefix!r})"

    def _name(self, key: str) -> str:
        return f"{self.prefix}/{key}"

    # Without threads, for callers that have their own.

    def get_sync(
        self,
        key: str,
        *,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        if prototype is None:
            prototype = default_buffer_prototype()
        # A store that is not found must not read as a chunk that is missing, which is zeros.
        store = self.store
        try:
            data = _read(store, self._name(key), byte_range)
        except NotFound:
            return None
        return prototype.buffer.from_bytes(data)

    def set_sync(self, key: str, value: Buffer) -> None:
        self._check_writable()
        _check_buffer(value)
        self.store.put(self._name(key), value.as_buffer_like())

    def delete_sync(self, key: str) -> None:
        self._check_writable()
        store = self.store
        with contextlib.suppress(NotFound):
            store.delete(self._name(key))

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        await self._ensure_open()
        return await asyncio.to_thread(
            self.get_sync, key, prototype=prototype, byte_range=byte_range
        )

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        reads = (self.get(key, prototype, byte_range) for key, byte_range in key_ranges)
        return list(await asyncio.gather(*reads))

    async def exists(self, key: str) -> bool:
        await self._ensure_open()
        return await asyncio.to_thread(self.store.exists, self._name(key))

    async def set(self, key: str, value: Buffer) -> None:  # noqa: A003
        await self._ensure_open()
        await asyncio.to_thread(self.set_sync, key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        self._check_writable()
        await self._ensure_open()
        await asyncio.to_thread(self._create, key, value)

    def _create(self, key: str, value: Buffer) -> None:
        (outcome,) = self.store.batch().create(self._name(key), value.as_buffer_like()).run()
        if isinstance(outcome, Error) and not isinstance(outcome, Exists):
            raise outcome

    async def delete(self, key: str) -> None:
        self._check_writable()
        await self._ensure_open()
        await asyncio.to_thread(self.delete_sync, key)

    async def delete_dir(self, prefix: str) -> None:
        self._check_writable()
        await self._ensure_open()
        await asyncio.to_thread(self._delete_below, prefix.strip("/"))

    def _delete_below(self, prefix: str) -> None:
        names = list(self.store.list(self._name(f"{prefix}/" if prefix else "")))
        for start in range(0, len(names), _BATCH_NAMES):
            batch = self.store.batch()
            for name in names[start : start + _BATCH_NAMES]:
                batch.delete(name)
            for outcome in batch.run():
                if isinstance(outcome, Error) and not isinstance(outcome, NotFound):
                    raise outcome

    async def getsize(self, key: str) -> int:
        await self._ensure_open()
        stat = await asyncio.to_thread(self.store.stat, self._name(key))
        return stat.size_bytes

    async def list(self) -> AsyncIterator[str]:  # noqa: A003
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        await self._ensure_open()
        for key in await asyncio.to_thread(self._keys, prefix):
            yield key

    def _keys(self, prefix: str) -> Any:
        start = len(self.prefix) + 1
        return [name[start:] for name in self.store.list(self._name(prefix))]

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        await self._ensure_open()
        prefix = prefix.strip("/")
        start = len(prefix) + 1 if prefix else 0
        keys = await asyncio.to_thread(self._keys, prefix + "/" if prefix else "")
        for child in dict.fromkeys(key[start:].partition("/")[0] for key in keys):
            yield child


def _check_buffer(value: object) -> None:
    if not isinstance(value, Buffer):
        raise TypeError(
            "TerraceStore.set(): `value` must be a Buffer instance. "
            f"Got an instance of {type(value)} instead."
        )


def _read(store: terrace.Store, name: str, wanted: ByteRequest | None) -> bytes:
    if wanted is None:
        return store.get(name)
    with store.open(name) as file:
        if isinstance(wanted, RangeByteRequest):
            return file.read_at(wanted.start, max(wanted.end - wanted.start, 0))
        size = len(file)
        if isinstance(wanted, OffsetByteRequest):
            return file.read_at(wanted.offset, max(size - wanted.offset, 0))
        if isinstance(wanted, SuffixByteRequest):
            start = max(size - wanted.suffix, 0)
            return file.read_at(start, size - start)
    raise TypeError(f"Unexpected byte_range, got {wanted}.")
