# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Asks for what NFS servers and their clients ask for: a list in JSON each line, answered by a value or
{"errno": NAME}.

File handles go to the kernel, everything with `nfs_` to a server, by libnfs.
"""

import ctypes
import errno
import json
import os
import signal
import sys

HANDLE_BYTES_MAX = 128
NAME_BYTES_MAX = 256
# No answer takes nearly as long; a server that hangs ends this.
ANSWER_SECONDS_MAX = 60

libc = ctypes.CDLL(None, use_errno=True)


class Handle(ctypes.Structure):
    """As open_by_handle_at(2) has it."""

    _fields_ = [
        ("bytes", ctypes.c_uint),
        ("type", ctypes.c_int),
        ("content", ctypes.c_ubyte * HANDLE_BYTES_MAX),
    ]


def checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


def handle(path: str) -> list:
    """The handle of a file: its type and its bytes."""
    found, mount = Handle(bytes=HANDLE_BYTES_MAX), ctypes.c_int()
    at, flags = -100, 0  # AT_FDCWD
    checked(
        libc.name_to_handle_at(at, path.encode(), ctypes.byref(found), ctypes.byref(mount), flags)
    )
    return [found.type, bytes(found.content[: found.bytes]).hex()]


def open_handle(place: str, kind: int, content: str) -> object:
    """What a handle leads to on the file system mounted here: text, or names."""
    held = bytes.fromhex(content)
    wanted = Handle(len(held), kind, (ctypes.c_ubyte * HANDLE_BYTES_MAX)(*held))
    mount = os.open(place, os.O_RDONLY)
    try:
        file = checked(libc.open_by_handle_at(mount, ctypes.byref(wanted), os.O_RDONLY))
    finally:
        os.close(mount)
    try:
        if os.path.isdir(f"/proc/self/fd/{file}"):
            return sorted(os.listdir(file))
        return os.read(file, 1 << 20).decode()
    finally:
        os.close(file)


class Url(ctypes.Structure):
    """struct nfs_url."""

    _fields_ = [("server", ctypes.c_char_p), ("path", ctypes.c_char_p), ("file", ctypes.c_char_p)]


class Entry(ctypes.Structure):
    """The beginning of struct nfsdirent."""

    _fields_ = [("next", ctypes.c_void_p), ("name", ctypes.c_char_p)]


class Client:
    """A client of one export."""

    def __init__(self, url: str) -> None:
        self.nfs = ctypes.CDLL("libnfs.so.13")
        for name in ("nfs_init_context", "nfs_parse_url_dir", "nfs_readdir", "nfs_get_error"):
            getattr(self.nfs, name).restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(self.nfs.nfs_init_context())
        parsed = self.nfs.nfs_parse_url_dir(self.context, url.encode())
        if not parsed:
            raise ValueError(url)
        parsed = Url.from_address(parsed)
        self.call("nfs_mount", parsed.server, parsed.path)
        self.files: dict[str, ctypes.c_void_p] = {}

    def call(self, name: str, *arguments: object) -> int:
        result = getattr(self.nfs, name)(self.context, *arguments)
        if result < 0:
            why = ctypes.string_at(self.nfs.nfs_get_error(self.context)).decode()
            raise OSError(-result, why)
        return result

    def open(self, path: str, more: int = 0) -> None:
        file = ctypes.c_void_p()
        self.call("nfs_open", path.encode(), os.O_RDWR | more, ctypes.byref(file))
        self.files[path] = file

    def create(self, path: str) -> None:
        # Not nfs_creat, which in libnfs 4.0 opens the file so that NFS 4 does not let it write.
        self.open(path, os.O_CREAT)

    def close(self, path: str) -> None:
        self.call("nfs_close", self.files.pop(path))

    def read(self, path: str, offset: int, count: int) -> str:
        buffer = ctypes.create_string_buffer(count)
        wide = ctypes.c_uint64
        read = self.call("nfs_pread", self.files[path], wide(offset), wide(count), buffer)
        return buffer.raw[:read].decode()

    def write(self, path: str, offset: int, text: str) -> int:
        held, wide = text.encode(), ctypes.c_uint64
        return self.call("nfs_pwrite", self.files[path], wide(offset), wide(len(held)), held)

    def list(self, path: str) -> list[str]:
        directory = ctypes.c_void_p()
        self.call("nfs_opendir", path.encode(), ctypes.byref(directory))
        names = []
        while True:
            entry = self.nfs.nfs_readdir(self.context, directory)
            if not entry:
                break
            names.append(Entry.from_address(entry).name.decode())
        self.nfs.nfs_closedir(self.context, directory)
        return sorted(name for name in names if name not in (".", ".."))

    def change(self, what: str, *paths: str) -> None:
        """`unlink`, `rename`, `mkdir` or `rmdir`."""
        self.call(f"nfs_{what}", *(path.encode() for path in paths))


def main() -> None:
    clients: list[Client] = []
    for line in sys.stdin:
        signal.alarm(ANSWER_SECONDS_MAX)
        what, *arguments = json.loads(line)
        try:
            if what == "handle":
                answer = handle(*arguments)
            elif what == "open-handle":
                answer = open_handle(*arguments)
            elif what == "nfs-mount":
                clients.append(Client(*arguments))
                answer = None
            else:
                answer = getattr(clients[-1], what.removeprefix("nfs-"))(*arguments)
        except OSError as error:
            answer = {"errno": errno.errorcode.get(error.errno, error.errno), "why": error.strerror}
        print(json.dumps(answer), flush=True)
        signal.alarm(0)


if __name__ == "__main__":
    main()
