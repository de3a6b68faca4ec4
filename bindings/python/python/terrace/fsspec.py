# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Stores as file systems of fsspec: for pandas, pyarrow, xarray, dask and others.

    pandas.read_parquet("terrace://host:7420/data/table.parquet")
    pandas.read_parquet("terrace:///data/table.parquet", storage_options={"store": "my-store"})

A path is `namespace/name`. Directories are the beginnings of names: there are no empty ones.
"""

from __future__ import annotations

import contextlib
import io
import operator
import os
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

from fsspec.compression import compr
from fsspec.config import apply_config
from fsspec.core import get_compression
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from terrace._errors import Error, NotFound
from terrace._native import Stat
from terrace._shared import Opener, absolute
from terrace._store import Store

# What one request asks for at most.
_BATCH_NAMES = 1000
_BATCH_BYTES = 8 << 20
# Read of each object before its length is known.
_FIRST_READ_BYTES = 64 << 10

_PROTOCOL = "terrace"


class _Resolved(type(AbstractFileSystem)):  # type: ignore[misc]
    """Resolves the address before fsspec looks for an instance with the same arguments: a relative
    one, and `TERRACE_STORE`, stand for another store later."""

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        if arguments:
            if "store" in options:
                raise TypeError("the store is given twice")
            options["store"], *arguments = arguments  # type: ignore[assignment]
        options = apply_config(cls, options)
        options["store"] = _address(options.get("store"))
        return super().__call__(*arguments, **options)


class TerraceFileSystem(AbstractFileSystem, metaclass=_Resolved):  # type: ignore[misc]
    """The objects of a store as files. `store` is its directory or address; an URL
    `terrace://HOST:PORT/…` names it itself, and `TERRACE_STORE` where nothing else does.

    A transaction replaces the files at its end that are written in it with mode `wb`, `pipe` or
    `copy`. It refuses what it could not undo: modes `ab` and `xb`, and moves. Deletes are carried
    out at once.
    """

    protocol = _PROTOCOL
    root_marker = ""
    sep = "/"

    def __init__(self, store: str | os.PathLike[str] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._opener = Opener(_address(store))
        self._opener.store()

    @property
    def store(self) -> Store:
        """The store underneath, opened again where it was closed."""
        return self._opener.store()

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
        address = self._opener.address
        host = urlsplit(address).netloc if "://" in address else ""
        return f"{_PROTOCOL}://{host}/{path}"

    @property
    def fsid(self) -> str:
        return f"{_PROTOCOL}:{self._opener.address}"

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        found = self._find(path)
        if found is None:
            raise FileNotFoundError(path)
        return found

    # Those of fsspec return false for any exception, also where the store cannot be reached.

    def exists(self, path: str, **options: Any) -> bool:
        return self._find(path) is not None

    def isdir(self, path: str) -> bool:
        found = self._find(path)
        return found is not None and found["type"] == "directory"

    def isfile(self, path: str) -> bool:
        found = self._find(path)
        return found is not None and found["type"] == "file"

    def _find(self, path: str) -> dict[str, Any] | None:
        """What has a path; `None` where nothing has."""
        path = self._strip_protocol(path)
        # That the store is not found does not say that nothing has the path.
        store = self.store
        if "/" in path:
            try:
                return _file(path, store.stat(path))
            except NotFound:
                pass
        if path == "" or any(True for _ in self._names(path)):
            return _directory(path)
        return None

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
        self.store.delete(self._existing(path))

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        names = self.expand_path(path, recursive=recursive, maxdepth=maxdepth)
        failures = self._delete([name for name in names if "/" in name])
        for failure in failures.values():
            if not isinstance(failure, NotFound):
                raise failure
        if recursive:
            return  # Directories ended with what was below them.
        for name in names:
            if "/" not in name or name in failures:
                if self.isdir(name):
                    raise IsADirectoryError(f"it is removed with recursive=True: {name}")
                raise FileNotFoundError(name)

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        if self._intrans:
            # The copy is there at the end of the transaction; the source would be gone before.
            raise io.UnsupportedOperation(f"a transaction moves no files: {path1}")
        super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)

    def _delete(self, names: list[str]) -> dict[str, Error]:
        """What could not be deleted: directories, for example, are no objects."""
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
        with self.open(source) as reader, self.open(target, "wb") as writer:
            while data := reader.read(_BATCH_BYTES):
                writer.write(data)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        name = self._writable(path)
        if mode == "create":
            if self._intrans:
                raise io.UnsupportedOperation(f"a transaction replaces files only: {path}")
            (outcome,) = self.store.batch().create(name, value).run()
            if isinstance(outcome, Error):
                raise outcome
        elif self._intrans:
            super().pipe_file(name, value)
        else:
            self.store.put(name, value)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **options: Any
    ) -> bytes:
        name = self._existing(path)
        if start is None and end is None:
            return self.store.get(name)
        with self.store.open(name) as file:
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
        """Reads many ranges with few requests, and each larger one with requests of its own."""
        starts, ends = _each(starts, len(paths)), _each(ends, len(paths))
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("paths, starts and ends differ in number")
        names = [self._strip_protocol(path) for path in paths]
        results: list[Any] = [None] * len(names)
        wanted = []
        for index, (name, start, end) in enumerate(zip(names, starts, ends, strict=True)):
            is_alone = start is None or end is None or start < 0 or end < 0
            if is_alone or "/" not in name or end - start > _BATCH_BYTES:
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
        wanted = [
            (index, name, 0, _FIRST_READ_BYTES) for index, name in enumerate(names) if "/" in name
        ]
        outcomes = dict(self._read(wanted))
        found = {}
        for index, name in enumerate(names):
            outcome = outcomes.pop(index) if index in outcomes else FileNotFoundError(name)
            if isinstance(outcome, bytes) and len(outcome) == _FIRST_READ_BYTES:
                try:
                    outcome = self.store.get(name)
                except Error as error:
                    outcome = error
            if isinstance(outcome, Exception):
                if recursive and self.isdir(name):
                    continue
                if on_error == "raise":
                    raise outcome
                if on_error == "omit":
                    continue
            found[name] = outcome
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
        return _time(self.store.stat(self._existing(path)).created_ns)

    def modified(self, path: str) -> Any:
        return _time(self.store.stat(self._existing(path)).modified_ns)

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        if truncate:
            self.pipe_file(path, b"")
        else:
            self.open(path, "ab").close()

    def _existing(self, path: str) -> str:
        """The name of an object to read or to delete. A store would add a namespace to a name
        without one, and `exists` does not know that."""
        name: str = self._strip_protocol(path)
        if "/" not in name:
            raise FileNotFoundError(name)
        return name

    def _writable(self, path: str) -> str:
        """The name of an object to write."""
        name: str = self._strip_protocol(path)
        if "/" not in name:
            raise ValueError(f"a file is namespace/name, not {path!r}")
        return name

    def open(  # noqa: A003
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        compression: str | None = None,
        **options: Any,
    ) -> Any:
        """Opens a file. With mode `wb` or `w`, compressed or not, an exception in its `with` block
        leaves the old value."""
        options |= {"block_size": block_size, "cache_options": cache_options}
        if "w" not in mode and compression is None:
            return super().open(path, mode, **options)
        if "b" not in mode:
            names = {"encoding", "errors", "newline"} & options.keys()
            text = {name: options.pop(name) for name in names}
            mode = mode.replace("t", "") + "b"
            file = self.open(path, mode, compression=compression, **options)
            return _Text(file, **text) if "w" in mode else io.TextIOWrapper(file, **text)
        compression = get_compression(self._strip_protocol(path), compression)
        file = super().open(path, mode, **options)
        if compression is None:
            return file
        compressing = compr[compression](file, mode=mode[0])
        return compressing if "r" in mode else _Compressed(compressing, file)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        if mode == "rb":
            return _Reader(
                self, self._existing(path), mode, block_size or "default",
                cache_options=cache_options, **options,
            )  # fmt: skip
        if mode not in ("wb", "ab", "xb"):
            raise ValueError(f"mode is one of rb, wb, ab, xb, not {mode!r}")
        name = self._writable(path)
        if mode == "wb":
            return _Writer(self, name, autocommit)
        if not autocommit:
            raise io.UnsupportedOperation(f"a transaction writes with mode wb, not {mode}: {path}")
        return self.store.open(name, mode)


class _Reader(AbstractBufferedFile):  # type: ignore[misc]
    """Reads with the caches of fsspec."""

    def __init__(self, fs: TerraceFileSystem, path: str, *options: Any, **more: Any) -> None:
        self._object = fs.store.open(path)
        try:
            # Of the value that is open, which another one may have replaced by now.
            super().__init__(fs, path, *options, size=len(self._object), **more)
        except BaseException:
            self._object.close()
            raise

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._object.read_at(start, max(end - start, 0))

    def close(self) -> None:
        super().close()
        self._object.close()


class _Replacing(io.IOBase):
    """A file that replaces a value when it is closed: not after an exception in its `with` block,
    and not where it is forgotten."""

    def discard(self) -> None:
        """Leaves the old value, and closes the file."""
        raise NotImplementedError

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def __del__(self) -> None:
        # A file that was forgotten is no value that anybody finished.
        if not self.closed and hasattr(self, "_file"):
            self.discard()


class _Writer(_Replacing, io.RawIOBase):
    """Writes a new value, which replaces the old one when it is closed, or at the end of the
    transaction."""

    def __init__(self, fs: TerraceFileSystem, path: str, autocommit: bool) -> None:
        super().__init__()
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
        if not self._is_done:
            self._is_done = True
            self._file.discard()
        super().close()

    def close(self) -> None:
        if self.closed:
            return
        try:
            if self._autocommit:
                self.commit()
        finally:
            super().close()


class _Compressed(_Replacing, io.BufferedIOBase):
    """Compresses into a file, and closes it at its end, which the compressors of Python do not."""

    def __init__(self, compressing: Any, file: Any) -> None:
        super().__init__()
        self._compressing = compressing
        self._file = file
        self._is_done = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._compressing.write(data)
        return memoryview(data).nbytes

    def flush(self) -> None:
        if not self._is_done:
            self._compressing.flush()

    def tell(self) -> int:
        return int(self._compressing.tell())

    def close(self) -> None:
        if self.closed:
            return
        try:
            self._end()
        except BaseException:
            self._file.discard()
            raise
        else:
            self._file.close()
        finally:
            super().close()

    def _end(self) -> None:
        self._is_done = True
        self._compressing.close()

    def discard(self) -> None:
        try:
            # A compressor that could not write its end would report that when it is collected.
            with contextlib.suppress(Exception):
                self._end()
        finally:
            self._file.discard()
            super().close()


class _Text(io.TextIOWrapper):
    """Writes text into a file that an exception leaves with its old value."""

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.buffer.discard()  # type: ignore[attr-defined]
        self.close()

    def __del__(self) -> None:
        # Fails where the file was detached.
        with contextlib.suppress(Exception):
            if not self.closed:
                self.buffer.discard()  # type: ignore[attr-defined]


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


def _address(store: str | os.PathLike[str] | None) -> str:
    """The absolute address of what is named, or of `TERRACE_STORE`."""
    address = store if store is not None else os.environ.get("TERRACE_STORE")
    if not address:
        raise ValueError(
            "no store is named: use terrace://HOST:PORT/…, the option store, or TERRACE_STORE"
        )
    return absolute(address)


def _each(bounds: Any, count: int) -> list[Any]:
    """One bound for each range: of a list, a tuple or an array, or the same for all."""
    if not isinstance(bounds, Iterable):
        bounds = [bounds] * count
    return [None if bound is None else operator.index(bound) for bound in bounds]


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
