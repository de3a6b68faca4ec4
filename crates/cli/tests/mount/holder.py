# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Holds files open and does with them what it is asked for: a list in JSON each line, answered by
"ok" or the name of an error.

A process of its own: whoever starts a program closes copies of all files it has open, for which
the mount has to answer.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import signal
import sys
from collections.abc import Callable

# No answer takes nearly as long; a mount that hangs ends this.
ANSWER_SECONDS_MAX = 60

files: dict[str, int] = {}

# Where each file is mapped. Not by the module `mmap`, which keeps a descriptor of its own.
mappings: dict[str, int] = {}
PAGE_BYTES = 4096

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
MS_SYNC = 4


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


def map_page(name: str) -> None:
    """Maps the first page of a file."""
    access = mmap.PROT_READ | mmap.PROT_WRITE
    address = libc.mmap(None, PAGE_BYTES, access, mmap.MAP_SHARED, files[name], 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mapped")
    mappings[name] = address


def sync_mapping(name: str) -> None:
    if libc.msync(mappings[name], PAGE_BYTES, MS_SYNC) != 0:
        raise OSError(ctypes.get_errno(), "synced")


def unmap(name: str) -> None:
    if libc.munmap(mappings.pop(name), PAGE_BYTES) != 0:
        raise OSError(ctypes.get_errno(), "unmapped")


def store(name: str, byte: int) -> None:
    ctypes.memset(mappings[name], byte, 1)


ASKED: dict[str, Callable[..., None]] = {
    "open": open_file,
    "close": close,
    "write": write,
    "read": read,
    "lock": lock,
    "map": map_page,
    "store": store,
    "sync mapping": sync_mapping,
    "unmap": unmap,
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
