# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Holds files open and does with them what it is asked for: a list in JSON each line, answered by
"ok" or the name of an error.

A process of its own: whoever starts a program closes copies of all files it has open, for which
the mount has to answer.
"""

import errno
import fcntl
import json
import os
import signal
import sys
from collections.abc import Callable

# No answer takes nearly as long; a mount that hangs ends this.
ANSWER_SECONDS_MAX = 60

files: dict[str, int] = {}


def open_file(name: str, path: str) -> None:
    files[name] = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)


def close(name: str) -> None:
    os.close(files.pop(name))


def write(name: str, byte: int, length: int, offset: int) -> None:
    if os.pwrite(files[name], bytes([byte]) * length, offset) != length:
        raise OSError(errno.EIO, "written in part")


def read(name: str) -> None:
    """Reads what is not in the page cache."""
    os.posix_fadvise(files[name], 0, 0, os.POSIX_FADV_DONTNEED)
    os.pread(files[name], 10, 0)


def lock(name: str, how: str) -> None:
    if how == "flock":
        fcntl.flock(files[name], fcntl.LOCK_EX)
    else:
        fcntl.lockf(files[name], fcntl.LOCK_EX)


ASKED: dict[str, Callable[..., None]] = {
    "open": open_file,
    "close": close,
    "write": write,
    "read": read,
    "lock": lock,
    "sync": lambda name: os.fsync(files[name]),
    "truncate": lambda name, length: os.ftruncate(files[name], length),
}

for line in sys.stdin:
    signal.alarm(ANSWER_SECONDS_MAX)
    what, *arguments = json.loads(line)
    try:
        ASKED[what](*arguments)
        answer = "ok"
    except OSError as error:
        answer = errno.errorcode[error.errno or errno.EIO]
    signal.alarm(0)
    print(answer, flush=True)
