# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Stores as file systems of fsspec: for pandas, pyarrow, xarray, dask and others.

    pandas.read_parquet("terrace://host:7420/data/table.parquet")
    pandas.read_parquet("terrace:///data/table.parquet", storage_options={"store": "my-store"})

A path is `namespace/name`. Directories are the beginnings of names: there are no empty ones.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from terrace._errors import Error, NotFound
from terrace._native import Stat
from terrace._shared import shared
from terrace._store import Store

# What one request asks for at most.
_BATCH_NAMES = 1000
_BATCH_BYTES = 8 << 20
# Read of each object before its length is known.
_FIRST_READ_BYTES = 64 << 10

_PROTOCOL = "terrace"


class TerraceFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The objects of a store as files. `store` is its directory or address; an URL
    `terrace://HOST:PORT/…` names it itself, and `TERRACE_STORE` where nothing else does."""

    protocol = _PROTOCOL
    root_marker = ""
    sep = "/"

    def __init__(self, store: str | os.PathLike[str] | None = None, **options: Any) -> None:
        super().__init__(**options)
        address = store if store is not None else os.environ.get("TERRACE_STORE")
        if address is None:
            raise ValueError(
                "no store is named: use terrace://HOST:PORT/…, the option store, or TERRACE_STORE"
            )
        self.store = shared(address)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        if path.startswith(f"{_PROTOCOL}://"):
            path = path[len(_PROTOCOL) + 3 :]
            # Behind the server, of which there is none in terrace:///…
            _, _, path = path.partition("/")
        return path.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        host = urlsplit(path).netloc if path.startswith(f"{_PROTOCOL}://") else ""
        return {"store": f"{_PROTOCOL}://{host}"} if host else {}

    def unstrip_protocol(self, name: str) -> str:
        path = self._strip_protocol(name)
        host = urlsplit(self.store.address).netloc if "://" in self.store.address else ""
        return f"{_PROTOCOL}://{host}/{path}"

    @property
    def fsid(self) -> str:
        return f"{_PROTOCOL}:{self.store.address}"

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if "/" in path:
            try:
                return _file(path, self.store.stat(path))
            except NotFound:
                pass
        if path == "" or any(True for _ in self._names(path)):
            return _directory(path)
        raise FileNotFoundError(path)

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        path = self._strip_protocol(path)
        files: list[str] = []
        directories: dict[str, None] = {}
        start = len(path) + 1 if path else 0
        for name in self._names(path):
            child, has_more, _ = name[start:].partition("/")
            if has_more:
                directories[name[:start] + child] = None
            else:
                files.append(name)
        if not files and not directories and path:
            entries = [self.info(path)]
        else:
            entries = [_directory(name) for name in directories]
            entries += [_file(name, stat) for name, stat in self._stats(files)]
            entries.sort(key=lambda entry: str(entry["name"]))
        return entries if detail else [entry["name"] for entry in entries]

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **options: Any,
    ) -> Any:
        if maxdepth is not None or withdirs:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail)
        path = self._strip_protocol(path)
        names = sorted(self._names(path))
        if not names and self.isfile(path):
            names = [path]
        if not detail:
            return names
        return {name: _file(name, stat) for name, stat in self._stats(names)}

    def _names(self, directory: str) -> Iterator[str]:
        """The objects below a directory."""
        return iter(self.store.list(f"{directory}/" if directory else ""))

    def _stats(self, names: list[str]) -> Iterator[tuple[str, Stat]]:
        for start in range(0, len(names), _BATCH_NAMES):
            part = names[start : start + _BATCH_NAMES]
            batch = self.store.batch()
            for name in part:
                batch.stat(name)
            for name, outcome in zip(part, batch.run(), strict=True):
                if isinstance(outcome, NotFound):
                    continue  # Deleted meanwhile.
                if isinstance(outcome, Error):
                    raise outcome
                assert isinstance(outcome, Stat)
                yield name, outcome

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        """Does nothing: a directory is there with the first object below it."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Does nothing, as `mkdir`."""
        if not exist_ok and self.exists(path):
            raise FileExistsError(path)

    def rmdir(self, path: str) -> None:
        """Fails where something is below it; does nothing otherwise."""
        if any(True for _ in self._names(self._strip_protocol(path))):
            raise OSError(f"the directory is not empty: {path}")

    def rm_file(self, path: str) -> None:
        self.store.delete(self._strip_protocol(path))

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        names = [
            one
            for one in self.expand_path(path, recursive=recursive, maxdepth=maxdepth)
            if "/" in one
        ]
        failures = self._delete(names)
        directories = [name for name in failures if self.isdir(name)]
        if directories and not recursive:
            raise IsADirectoryError(directories[0])
        for name, failure in failures.items():
            if name not in directories and not isinstance(failure, NotFound):
                raise failure

    def _delete(self, names: list[str]) -> dict[str, Error]:
        """What could not be deleted: directories, for example, of which there are none."""
        failures = {}
        for start in range(0, len(names), _BATCH_NAMES):
            part = names[start : start + _BATCH_NAMES]
            batch = self.store.batch()
            for name in part:
                batch.delete(name)
            for name, outcome in zip(part, batch.run(), strict=True):
                if isinstance(outcome, Error):
                    failures[name] = outcome
        return failures

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(source):
            return
        with self._open(source) as reader, self._open(target, "wb") as writer:
            while data := reader.read(_BATCH_BYTES):
                writer.write(data)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        path = self._strip_protocol(path)
        if mode == "create":
            with self.store.open(path, "xb") as file:
                file.write(value)
        elif self._intrans:
            super().pipe_file(path, value)
        else:
            self.store.put(path, value)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **options: Any
    ) -> bytes:
        path = self._strip_protocol(path)
        if start is None and end is None:
            return self.store.get(path)
        with self.store.open(path) as file:
            size = len(file) if (start or 0) < 0 or end is None or end < 0 else None
            first, behind = _bounds(start, end, size)
            return file.read_at(first, max(behind - first, 0))

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **options: Any,
    ) -> list[Any]:
        """Reads many ranges with few requests."""
        if not isinstance(starts, list):
            starts = [starts] * len(paths)
        if not isinstance(ends, list):
            ends = [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("paths, starts and ends differ in number")
        names = [self._strip_protocol(path) for path in paths]
        results: list[Any] = [None] * len(names)
        wanted = []
        for index, (name, start, end) in enumerate(zip(names, starts, ends, strict=True)):
            if start is None or end is None or start < 0 or end < 0:
                try:
                    results[index] = self.cat_file(name, start, end)
                except Exception as error:
                    results[index] = error
            else:
                wanted.append((index, name, start, max(end - start, 0)))
        for index, outcome in self._read(wanted):
            results[index] = outcome
        if on_error == "raise":
            for result in results:
                if isinstance(result, Exception):
                    raise result
        return results

    def cat(
        self, path: Any, recursive: bool = False, on_error: str = "raise", **options: Any
    ) -> Any:
        """Reads whole objects, many with few requests."""
        names = self.expand_path(path, recursive=recursive)
        is_many = len(names) > 1 or isinstance(path, list) or names != [self._strip_protocol(path)]
        if options or not is_many:
            return super().cat(path, recursive=recursive, on_error=on_error, **options)
        wanted = [(index, name, 0, _FIRST_READ_BYTES) for index, name in enumerate(names)]
        found = {}
        for index, outcome in self._read(wanted):
            if isinstance(outcome, bytes) and len(outcome) == _FIRST_READ_BYTES:
                try:
                    outcome = self.store.get(names[index])
                except Error as error:
                    outcome = error
            if isinstance(outcome, Exception):
                if recursive and self.isdir(names[index]):
                    continue
                if on_error == "raise":
                    raise outcome
                if on_error == "omit":
                    continue
            found[names[index]] = outcome
        return found

    def _read(self, wanted: list[tuple[int, str, int, int]]) -> Iterator[tuple[int, Any]]:
        """Reads ranges in batches; yields the number that came with each, and bytes or an error."""
        start = 0
        while start < len(wanted):
            batch, total, end = self.store.batch(), 0, start
            while end < len(wanted) and end - start < _BATCH_NAMES and total < _BATCH_BYTES:
                _, name, offset_bytes, length_bytes = wanted[end]
                batch.read(name, offset_bytes, length_bytes)
                total += length_bytes
                end += 1
            for (index, _, _, _), outcome in zip(wanted[start:end], batch.run(), strict=True):
                yield index, outcome
            start = end

    def created(self, path: str) -> Any:
        return _time(self.store.stat(self._strip_protocol(path)).created_ns)

    def modified(self, path: str) -> Any:
        return _time(self.store.stat(self._strip_protocol(path)).modified_ns)

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        if truncate:
            self.pipe_file(path, b"")
        else:
            self.store.open(self._strip_protocol(path), "ab").close()

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        path = self._strip_protocol(path)
        if mode == "rb":
            size = self.store.stat(path).size_bytes
            return _Reader(
                self, path, mode, block_size or "default", cache_options=cache_options, size=size,
                **options,
            )  # fmt: skip
        if mode == "ab":
            return self.store.open(path, "ab")
        if mode == "xb":
            return self.store.open(path, "xb")
        if mode != "wb":
            raise ValueError(f"mode is one of rb, wb, ab, xb, not {mode!r}")
        return _Writer(self, path, autocommit)


class _Reader(AbstractBufferedFile):  # type: ignore[misc]
    """Reads with the caches of fsspec."""

    def __init__(self, fs: TerraceFileSystem, path: str, *options: Any, **more: Any) -> None:
        self._object = fs.store.open(path)
        super().__init__(fs, path, *options, **more)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._object.read_at(start, max(end - start, 0))

    def close(self) -> None:
        super().close()
        self._object.close()


class _Writer(io.RawIOBase):
    """Writes a new value, which replaces the old one when it is closed, or at the end of the
    transaction."""

    def __init__(self, fs: TerraceFileSystem, path: str, autocommit: bool) -> None:
        super().__init__()
        if "/" not in path:
            raise ValueError(f"a file is namespace/name, not {path!r}")
        self.fs, self.path, self.mode = fs, path, "wb"
        self._autocommit = autocommit
        self._is_done = False
        self._file = fs.store.open(path, "wb")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        view = memoryview(data)
        self._file.write(view)
        return view.nbytes

    def tell(self) -> int:
        return self._file.tell()

    def commit(self) -> None:
        """Replaces the old value."""
        if self._is_done:
            return
        self._is_done = True
        self._file.close()

    def discard(self) -> None:
        """Leaves the old value."""
        if self._is_done:
            return
        self._is_done = True
        self._file.discard()

    def close(self) -> None:
        if self.closed:
            return
        try:
            if self._autocommit:
                self.commit()
        finally:
            super().close()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def __del__(self) -> None:
        # A file that was forgotten is no value that anybody finished.
        if not self.closed and hasattr(self, "_file"):
            self.discard()
            super().close()


def _file(name: str, stat: Stat) -> dict[str, Any]:
    return {
        "name": name,
        "size": stat.size_bytes,
        "type": "file",
        "created": stat.created_ns / 1e9,
        "mtime": stat.modified_ns / 1e9,
    }


def _directory(name: str) -> dict[str, Any]:
    return {"name": name, "size": 0, "type": "directory"}


def _bounds(start: int | None, end: int | None, size: int | None) -> tuple[int, int]:
    """A range as Python's slices have it."""
    first, behind = start or 0, end
    if size is not None:
        first = max(size + first, 0) if first < 0 else first
        behind = size if behind is None else size + behind if behind < 0 else behind
    assert behind is not None
    return first, behind


def _time(wall_ns: int) -> Any:
    import datetime

    return datetime.datetime.fromtimestamp(wall_ns / 1e9, tz=datetime.timezone.utc)


__all__ = ["Store", "TerraceFileSystem"]
