# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Terrace from Python: one store over fast and slow storage.

    import terrace

    with terrace.Store("my-store") as store:  # a directory, or terrace://host:port
        store.put("run/42", b"bytes")
        data = store.get("run/42")
        with store.open("run/43", "wb") as file:
            file.write(data)

`terrace.policy` is for policies that decide what lives where, `terrace.host` what a store runs them
with; both work without the compiled part. `terrace.fsspec`, `terrace.zarr` and `terrace.torch`
offer stores to these packages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from terrace._errors import (
        Busy,
        Corrupt,
        Denied,
        Error,
        Exists,
        Invalid,
        Io,
        NoSpace,
        NotFound,
        Stale,
        Unreachable,
        Unsupported,
    )
    from terrace._native import Batch, Collection, Kv, Stat, __version__
    from terrace._reports import (
        Explanation,
        HistoryReport,
        LedgerReport,
        MoveReport,
        Notice,
        SegmentReport,
        TierReport,
    )
    from terrace._store import Admin, Object, Store, Watch

_ERRORS = (
    "Busy", "Corrupt", "Denied", "Error", "Exists", "Invalid", "Io", "NoSpace", "NotFound", "Stale",
    "Unreachable", "Unsupported",
)  # fmt: skip
_NATIVE = ("Batch", "Collection", "Kv", "Stat", "__version__")
_REPORTS = (
    "Explanation", "HistoryReport", "LedgerReport", "MoveReport", "Notice", "SegmentReport",
    "TierReport",
)  # fmt: skip
_STORE = ("Admin", "Object", "Store", "Watch")

_MODULES = {
    name: module
    for module, names in (
        ("terrace._errors", _ERRORS),
        ("terrace._native", _NATIVE),
        ("terrace._reports", _REPORTS),
        ("terrace._store", _STORE),
    )
    for name in names
}

__all__ = [
    "Admin",
    "Batch",
    "Busy",
    "Collection",
    "Corrupt",
    "Denied",
    "Error",
    "Exists",
    "Explanation",
    "HistoryReport",
    "Invalid",
    "Io",
    "Kv",
    "LedgerReport",
    "MoveReport",
    "NoSpace",
    "NotFound",
    "Notice",
    "Object",
    "SegmentReport",
    "Stale",
    "Stat",
    "Store",
    "TierReport",
    "Unreachable",
    "Unsupported",
    "Watch",
    "__version__",
]


def __getattr__(name: str) -> Any:
    # Loaded when first used: policies need nothing of it.
    if name not in _MODULES:
        raise AttributeError(f"module 'terrace' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
