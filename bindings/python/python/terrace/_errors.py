# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Exceptions: a class for each kind of error, by which a program decides what to do."""

from __future__ import annotations

from typing import ClassVar


class Error(OSError):
    """A failed operation. Its text says what was tried, why it failed, and where.

    `kind` is the word of the kind, `errno` the number of the operating system that is nearest.
    """

    # Nothing here runs when one is made: see bindings/python/src/errors.rs.

    kind: ClassVar[str] = ""

    def __str__(self) -> str:
        return super().__str__() if self.strerror is None else str(self.strerror)


class NotFound(Error, FileNotFoundError):
    """Nothing has this name. Create it or correct the name."""

    kind = "not-found"


class Exists(Error, FileExistsError):
    """The name is taken. Choose another one."""

    kind = "exists"


class NoSpace(Error):
    """Every allowed tier is full. Free space or allow another tier."""

    kind = "no-space"


class Corrupt(Error):
    """Stored bytes contradict their checksum or format. Use another copy; do not retry."""

    kind = "corrupt"


class Stale(Error):
    """What the request refers to has changed since. Look again, then retry."""

    kind = "stale"


class Busy(Error):
    """Another process or operation holds it now. Retry later."""

    kind = "busy"


class Unsupported(Error):
    """This target cannot do it, ever. Do not retry."""

    kind = "unsupported"


class Denied(Error, PermissionError):
    """Permission is missing. Change the permission."""

    kind = "denied"


class Invalid(Error, ValueError):
    """The request itself is wrong. Correct it. Also raised for a store that is closed."""

    kind = "invalid"


class Unreachable(Error, ConnectionError):
    """The target did not answer in time.

    `applied` is `False` where the request took no effect, so that retrying is safe, and `None`
    where that is unknown: look before retrying.
    """

    kind = "unreachable"
    applied: bool | None = None


class Io(Error):
    """The device or the operating system reported an error; `errno` says which."""

    kind = "io"


BY_KIND: dict[str, type[Error]] = {
    one.kind: one
    for one in (
        NotFound,
        Exists,
        NoSpace,
        Corrupt,
        Stale,
        Busy,
        Unsupported,
        Denied,
        Invalid,
        Unreachable,
        Io,
    )
}
