# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One open store for everything in a process that names the same one."""

from __future__ import annotations

import os
import threading
import weakref

from terrace._store import Store

_STORES: weakref.WeakValueDictionary[tuple[str, bool], Store] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def _renew_lock() -> None:
    # A thread of the parent may have held it.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def shared(address: str | os.PathLike[str], *, read_only: bool = False) -> Store:
    """The store at an address, opened where it is not yet."""
    text = os.fspath(address)
    if "://" not in text and not text.startswith("terrace+"):
        text = os.path.abspath(text)
    with _lock:
        store = _STORES.get((text, read_only))
        if store is None or store.closed:
            store = Store(text, read_only=read_only)
            _STORES[text, read_only] = store
        return store


class Opener:
    """An address whose store is opened when it is first asked for, and stays open as long as this
    lives. A copy in another process opens it there."""

    def __init__(self, address: str | os.PathLike[str]) -> None:
        self.address = os.fspath(address)
        self._store: Store | None = None

    def store(self) -> Store:
        """The open store."""
        store = self._store
        if store is None or store.closed:
            store = self._store = shared(self.address)
        return store

    def __reduce__(self) -> tuple[type[Opener], tuple[str]]:
        return type(self), (self.address,)
