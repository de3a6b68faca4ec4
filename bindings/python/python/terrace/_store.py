# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Stores, and their objects as files."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from terrace import _native
from terrace._errors import Error, NotFound
from terrace._reports import Explanation, Notice, TierReport, size, table

if TYPE_CHECKING:
    from typing_extensions import Self

    from terrace._native import Memory

# What is still open when the interpreter ends is closed before its threads are.
_OPEN: weakref.WeakSet[Store] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for store in list(_OPEN):
        with contextlib.suppress(Error):
            store.close()


class Store(_native.Store):
    """An open store: its directory, `terrace://HOST:PORT`, `terrace+unix:///PATH`, or several
    servers.

    One process owns a store in a directory; others that open it meanwhile are served by that one.
    Threads may share a store, and each call lets other threads of Python run. A forked child opens
    it anew when it first uses it.
    """

    def __init__(self, address: str | os.PathLike[str], *, read_only: bool = False) -> None:
        _OPEN.add(self)

    def open(  # noqa: A003
        self,
        name: str,
        mode: str = "rb",
        *,
        semantics: str | None = None,
        hint: str | None = None,
        label: bytes | None = None,
        size_bytes: int | None = None,
    ) -> Object:
        """Opens an object as an unbuffered file of bytes.

        | mode | |
        |---|---|
        | `rb` | reads |
        | `r+b` | reads and writes what exists |
        | `ab` | writes at the end, and makes it if it is missing |
        | `xb` | makes it, which must not exist |
        | `wb` | replaces it, atomically, when the file is closed; an exception in its `with` block
        leaves the old value |
        """
        if mode not in _MODES:
            raise ValueError(f"mode is one of {', '.join(_MODES)}, not {mode!r}")
        how = _MODES[mode]
        handle = self.open_handle(
            name, how, semantics=semantics, hint=hint, label=label, size_bytes=size_bytes
        )
        return Object(self, handle, mode, how == "replace")

    def get_into(self, name: str, buffer: Memory, offset_bytes: int = 0) -> int:
        """Reads an object into a buffer, an array of NumPy for example, without a copy; returns the
        bytes read, fewer than there is room for only at the end of the object."""
        handle = self.open_handle(name, "read")
        try:
            return handle.read_into(offset_bytes, buffer)
        finally:
            handle.close()

    def exists(self, name: str) -> bool:
        """Whether there is an object of this name."""
        try:
            self.stat(name)
        except NotFound:
            return False
        return True

    def admin(self) -> Admin:
        """Tiers, placement and migrations."""
        return Admin(self)

    def watch(self) -> Watch:
        """Iterates over what happens in the store: migrations, tiers, the policy, scrubs."""
        return Watch(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy in another process opens the store there."""
        return _open, (type(self), self.address, self.read_only)

    def __repr__(self) -> str:
        closed = ", closed" if self.closed else ""
        return f"<terrace.Store {self.address!r}{closed}>"

    def _repr_html_(self) -> str:
        if self.closed:
            return repr(self).replace("<", "&lt;")
        rows = [
            (
                tier.name,
                tier.target,
                "offline" if tier.offline else tier.persistency,
                size(tier.used_bytes),
                size(tier.capacity_bytes),
                tier.segments,
            )
            for tier in self.admin().tiers()
        ]
        heads = ("tier", "target", "level", "used", "capacity", "segments")
        return table(heads, rows, f"Store {self.address}")


_MODES = {"rb": "read", "r+b": "open", "ab": "create", "xb": "create-new", "wb": "replace"}


def _open(kind: type[Store], address: str, read_only: bool) -> Store:
    return kind(address, read_only=read_only)


class Object(io.RawIOBase):
    """An open object as a file of bytes; `io.BufferedReader` and others go around it.

    `read_at`, `read_into`, `write_at` and `append` have no position, and may be called by several
    threads at once.
    """

    def __init__(self, store: Store, handle: _native.Handle, mode: str, is_draft: bool) -> None:
        super().__init__()
        # The handle keeps open what is open of the store. With the store itself kept, too, `shared`
        # returns it, and opens no second one that would depend on the first.
        self._store = store
        self._handle = handle
        self._position = handle.length_bytes() if mode == "ab" else 0
        self.mode = mode
        self.name = handle.name
        self._is_draft = is_draft

    def readable(self) -> bool:
        return self.mode in ("rb", "r+b")

    def writable(self) -> bool:
        return self.mode != "rb"

    def seekable(self) -> bool:
        return self.mode != "ab"

    def readinto(self, buffer: Memory) -> int:
        self._check("readable", self.readable())
        count = self._handle.read_into(self._position, buffer)
        self._position += count
        return count

    def readall(self) -> bytes:
        self._check("readable", self.readable())
        data = self._handle.read_at(self._position, max(len(self) - self._position, 0))
        self._position += len(data)
        return data

    def write(self, data: Memory) -> int:
        self._check("writable", self.writable())
        if self.mode == "ab":
            count = memoryview(data).nbytes  # type: ignore[arg-type]
            self._position = self._handle.append(data) + count
            return count
        count = self._handle.write_at(self._position, data)
        self._position += count
        return count

    def read_at(self, offset_bytes: int, length_bytes: int) -> bytes:
        """Reads up to so many bytes, fewer only at the end."""
        return self._handle.read_at(offset_bytes, length_bytes)

    def read_into(self, offset_bytes: int, buffer: Memory) -> int:
        """Reads into a buffer; returns the bytes read, fewer than asked for only at the end."""
        return self._handle.read_into(offset_bytes, buffer)

    def write_at(self, offset_bytes: int, data: Memory) -> int:
        """Writes all of `data`; the object grows as needed."""
        return self._handle.write_at(offset_bytes, data)

    def append(self, data: Memory) -> int:
        """Writes all of `data` at the end, and returns where it begins. Appends never overlap."""
        return self._handle.append(data)

    def sync(self) -> None:
        """Makes everything durable that was written before."""
        self._handle.sync()

    def stat(self) -> _native.Stat:
        """Size and times."""
        return self._handle.stat()

    def label(self) -> bytes | None:
        """The label that the object was created with."""
        return self._handle.label()

    def set_len(self, size_bytes: int) -> None:
        """Cuts the object, or lets it grow with zeros."""
        self._handle.set_len(size_bytes)

    def truncate(self, size: int | None = None) -> int:
        self._check("writable", self.writable())
        wanted = self._position if size is None else size
        self._handle.set_len(wanted)
        return wanted

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check("seekable", self.seekable())
        base = {os.SEEK_SET: lambda: 0, os.SEEK_CUR: self.tell, os.SEEK_END: self.__len__}
        if whence not in base:
            raise ValueError(f"whence is 0, 1 or 2, not {whence}")
        position = base[whence]() + offset
        if position < 0:
            raise ValueError("the position is before the beginning")
        self._position = position
        return position

    def tell(self) -> int:
        self._check("open", True)
        return self._position

    def __len__(self) -> int:
        return self._handle.length_bytes()

    def __bool__(self) -> bool:
        return True

    def discard(self) -> None:
        """Closes a file of mode `wb` and leaves the old value; closes any other file."""
        self._is_draft = False
        self.close()

    def close(self) -> None:
        if self.closed:
            return
        try:
            if self._is_draft:
                self._handle.publish()
        finally:
            self._handle.close()
            super().close()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self._is_draft = False
        self.close()

    def __del__(self) -> None:
        # A file that was forgotten is no value that anybody finished.
        self._is_draft = False
        with contextlib.suppress(Exception):
            self.close()

    def __repr__(self) -> str:
        return f"<terrace.Object {self.name!r} mode={self.mode!r}>"

    def _check(self, what: str, holds: bool) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not holds:
            raise io.UnsupportedOperation(f"the file is not {what}")


class Admin:
    """Shows and steers where objects are. Everything else is done with the command `terrace`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._native = store.native_admin()

    def tiers(self) -> list[TierReport]:
        """All tiers, the most preferred first."""
        return TierReport.from_json(self._native.tiers_json())

    def explain(self, name: str) -> Explanation:
        """Where an object is, and why."""
        return Explanation.from_json(self._native.explain_json(name))

    def migrate(self, name: str, tier: str) -> None:
        """Queues the migration of an object to a tier."""
        self._native.migrate(name, tier)

    def promote(self, name: str, tier: str) -> None:
        """The same, and keeps the bytes where they were as a clean copy: bringing the object back
        costs no copying while it does not change."""
        self._native.promote(name, tier)

    def wait_idle(self, timeout_s: float | None = None) -> bool:
        """Blocks until no migration waits or runs; false where that took longer."""
        return self._native.wait_idle(timeout_s)

    def pin(self, name: str) -> None:
        """Keeps an object where it is."""
        self._native.pin(name)

    def unpin(self, name: str) -> None:
        """Allows migrations of an object again."""
        self._native.unpin(name)

    def set_policy(self, name: str, **parameters: object) -> None:
        """Replaces the policy while the store runs: a built-in one, or the path of a file."""
        self._native.set_policy(name, **parameters)


class Watch:
    """Iterates over notices, until it is closed or the store is."""

    def __init__(self, store: Store) -> None:
        self._native = store.native_watch()

    def __iter__(self) -> Iterator[Notice]:
        return self

    def __next__(self) -> Notice:
        notice = self.next()
        if notice is None:
            raise StopIteration
        return notice

    def next(self, timeout_s: float | None = None) -> Notice | None:  # noqa: A003
        """The next notice; `None` where none came in time, or once it is closed."""
        text = self._native.next_json(timeout_s)
        return None if text is None else Notice.from_json(text)

    def close(self) -> None:
        """Ends the iteration, also one that waits in another thread."""
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()
