# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One open store for everything in a process that names the same one."""

from __future__ import annotations

import os
import threading
import weakref

from terrace._store import Store

_STORES: weakref.WeakValueDictionary[tuple[str, bool], Store] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def _renew() -> None:
    # A thread of the parent may have held the lock.
    global _lock
    _lock = threading.Lock()
    _STORES.clear()


os.register_at_fork(after_in_child=_renew)


def absolute(address: str | os.PathLike[str]) -> str:
    """An address that names the same store from every directory, and so in every process."""
    text = os.fspath(address)
    if not text or "://" in text or text.startswith("terrace+"):
        return text
    path = os.path.join(os.getcwd(), text)
    # `..` behind a symbolic link is the parent of its target, which the text does not show.
    return path if ".." in path.split("/") else os.path.normpath(path)


def shared(address: str | os.PathLike[str], *, read_only: bool = False) -> Store:
    """The store at an address, opened where it is not yet. It is closed when the last reference to
    it or to one of its files ends."""
    text = absolute(address)
    with _lock:
        store = _STORES.get((text, read_only))
        if store is None or store.closed:
            store = Store(text, read_only=read_only)
            _STORES[text, read_only] = store
        return store


class Opener:
    """An address whose store is opened when it is first asked for, and stays open as long as this
    lives, or is opened again where it was closed. A copy in another process opens it there."""

    def __init__(self, address: str | os.PathLike[str]) -> None:
        self.address = absolute(address)
        self._store: Store | None = None
        self._pid = 0

    def store(self) -> Store:
        """The open store."""
        store = self._store
        # A forked child opens the store here, not with a call whose errors are those of an object.
        if store is None or store.closed or self._pid != os.getpid():
            store = self._store = shared(self.address)
            self._pid = os.getpid()
        return store

    def __reduce__(self) -> tuple[type[Opener], tuple[str]]:
        return type(self), (self.address,)
