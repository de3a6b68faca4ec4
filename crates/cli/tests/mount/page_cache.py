# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Changes a file in many ways and reads it in many ways after each change, while other processes
keep filling the page cache from it. Whatever reads old bytes after a change was acknowledged is
printed.

The only argument is a task in JSON: "read" is the path of the file, "write" the path through which
it is changed (on another mount, or the same), "closes" whether it is closed after each change,
"changes" and "reads" are names of `CHANGES` and `READS`, "seconds" bounds each change.
"""

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import platform
import random
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

PAGE_BYTES = 4096
PAGES = 64
SIZE_BYTES = PAGES * PAGE_BYTES

# Asynchronous writes of one change, and so many that the kernel has no slots for all of them.
WRITES = 8
WRITES_MAX = 512

# A change that is made as often has met the readers in every state.
ROUNDS_MAX = 400
# A machine that is busy makes few rounds in the time that is given.
ROUNDS_MIN = 5

FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE = 1, 2, 16

# Numbers of system calls: of x86-64, and of machines that use asm-generic/unistd.h.
IS_X86 = platform.machine() == "x86_64"
IO_SETUP, IO_SUBMIT, IO_GETEVENTS = (206, 209, 208) if IS_X86 else (0, 2, 4)
IO_URING_SETUP, IO_URING_ENTER = 425, 426
IOCB_CMD_PWRITE = 1
IORING_OP_WRITE = 23
IORING_ENTER_GETEVENTS = 1
IORING_OFF_SQES = 0x10000000

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]


def system_call(number: int, *arguments: object) -> int:
    result = int(libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def fallocate(file: int, mode: int, offset: int, length: int) -> None:
    if libc.fallocate(file, mode, offset, length) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def address_of(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


class Aio:
    """Writes with io_submit(2)."""

    def __init__(self) -> None:
        self.context = ctypes.c_ulong(0)
        system_call(IO_SETUP, ctypes.c_uint(WRITES_MAX), ctypes.byref(self.context))

    def write(self, file: int, address: int, pieces: list[tuple[int, int]]) -> None:
        blocks = []
        for offset, length in pieces:
            # struct iocb of linux/aio_abi.h.
            block = struct.pack(
                "<QIIHhIQQqQII",
                *(0, 0, 0, IOCB_CMD_PWRITE, 0, file, address + offset, length, offset, 0, 0, 0),
            )
            blocks.append(ctypes.create_string_buffer(block, len(block)))
        pointers = (ctypes.c_void_p * len(blocks))(*map(ctypes.addressof, blocks))
        count = ctypes.c_long(len(blocks))
        assert system_call(IO_SUBMIT, self.context, count, pointers) == len(blocks)
        events = ctypes.create_string_buffer(32 * len(blocks))
        got = system_call(IO_GETEVENTS, self.context, count, count, events, None)
        assert got == len(blocks)
        for number in range(len(blocks)):
            _, _, result, _ = struct.unpack_from("<QQqq", events, 32 * number)
            assert result == pieces[0][1], result


class Ring:
    """Writes with io_uring(7)."""

    def __init__(self) -> None:
        parameters = ctypes.create_string_buffer(120)
        self.ring = system_call(IO_URING_SETUP, ctypes.c_uint(WRITES), parameters)
        entries = struct.unpack_from("<II", parameters, 0)
        # struct io_sqring_offsets and io_cqring_offsets of linux/io_uring.h.
        _, self.tail, mask, *_, self.array = struct.unpack_from("<7I", parameters, 40)
        self.done_head, _, done_mask, _, _, self.done = struct.unpack_from("<6I", parameters, 80)
        size = max(self.array + 4 * entries[0], self.done + 16 * entries[1])
        self.memory = mmap.mmap(self.ring, size)
        self.queue = mmap.mmap(self.ring, 64 * entries[0], offset=IORING_OFF_SQES)
        self.mask, self.done_mask = self.word(mask), self.word(done_mask)

    def word(self, place: int) -> int:
        return int(struct.unpack_from("<I", self.memory, place)[0])

    def set_word(self, place: int, value: int) -> None:
        struct.pack_into("<I", self.memory, place, value & 0xFFFFFFFF)

    def write(self, file: int, address: int, pieces: list[tuple[int, int]]) -> None:
        for offset, length in pieces:
            index = self.word(self.tail) & self.mask
            entry = struct.pack(
                "<BBHiQQIIQ",
                *(IORING_OP_WRITE, 0, 0, file, offset, address + offset, length, 0, offset),
            )
            self.queue[64 * index : 64 * index + 64] = entry.ljust(64, b"\0")
            self.set_word(self.array + 4 * index, index)
            self.set_word(self.tail, self.word(self.tail) + 1)
        count = ctypes.c_uint(len(pieces))
        flags = ctypes.c_uint(IORING_ENTER_GETEVENTS)
        ring = ctypes.c_int(self.ring)
        size = ctypes.c_size_t(0)
        entered = system_call(IO_URING_ENTER, ring, count, count, flags, None, size)
        assert entered == len(pieces)
        for _ in pieces:
            place = self.done + 16 * (self.word(self.done_head) & self.done_mask)
            _, result, _ = struct.unpack_from("<QiI", self.memory, place)
            assert result == pieces[0][1], result
            self.set_word(self.done_head, self.word(self.done_head) + 1)


class Writer:
    """Changes the file, and knows what it contains then."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.expected = bytearray(SIZE_BYTES)
        self.version = 0
        # Memory at a page, as direct writes need it.
        self.memory = mmap.mmap(-1, SIZE_BYTES)
        self.address = address_of(self.memory)
        self.chance = random.Random(1)
        self.source = path + ".source"
        with open(path, "wb") as file:
            file.write(self.expected)
        self.direct_file = os.open(path, os.O_RDWR | os.O_DIRECT)
        self.file = os.open(path, os.O_RDWR)
        self.mapping = mmap.mmap(self.file, SIZE_BYTES)
        self.aio: Aio | None = None
        self.ring: Ring | None = None

    def renew(self) -> None:
        """Makes bytes that the file never had."""
        self.version += 1
        pages = (struct.pack("<QQ", self.version, page) for page in range(PAGES))
        self.expected[:] = b"".join(page * (PAGE_BYTES // 16) for page in pages)
        self.memory[:] = self.expected

    def pieces(self, count: int = WRITES) -> list[tuple[int, int]]:
        length = SIZE_BYTES // count
        pieces = [(number * length, length) for number in range(count)]
        self.chance.shuffle(pieces)
        return pieces

    def range(self) -> tuple[int, int]:
        """Any bytes of the file, mostly not whole pages."""
        start = self.chance.randrange(SIZE_BYTES - 1)
        return start, self.chance.randrange(1, SIZE_BYTES - start)

    def write(self) -> None:
        self.renew()
        assert os.pwrite(self.file, self.memory, 0) == SIZE_BYTES

    def write_directly(self) -> None:
        self.renew()
        assert os.pwrite(self.direct_file, self.memory, 0) == SIZE_BYTES

    def submit(self) -> None:
        self.renew()
        self.aio = self.aio or Aio()
        self.aio.write(self.direct_file, self.address, [(0, SIZE_BYTES)])

    def submit_pieces(self) -> None:
        self.renew()
        self.aio = self.aio or Aio()
        self.aio.write(self.direct_file, self.address, self.pieces())

    def submit_many(self) -> None:
        """Each page gets several."""
        self.renew()
        self.aio = self.aio or Aio()
        self.aio.write(self.direct_file, self.address, self.pieces(WRITES_MAX))

    def submit_to_ring(self) -> None:
        self.renew()
        self.ring = self.ring or Ring()
        self.ring.write(self.direct_file, self.address, self.pieces())

    def submit_with_flag(self) -> None:
        """Through a file that was opened without O_DIRECT."""
        self.renew()
        self.aio = self.aio or Aio()
        flags = fcntl.fcntl(self.file, fcntl.F_GETFL)
        fcntl.fcntl(self.file, fcntl.F_SETFL, flags | os.O_DIRECT)
        self.aio.write(self.file, self.address, self.pieces())
        fcntl.fcntl(self.file, fcntl.F_SETFL, flags)

    def store(self) -> None:
        self.renew()
        self.mapping[:] = self.memory[:]

    def store_and_sync(self) -> None:
        self.store()
        self.mapping.flush()

    def copy(self) -> None:
        self.renew()
        with open(self.source, "wb") as source:
            source.write(self.memory)
        source_file = os.open(self.source, os.O_RDONLY)
        done = 0
        while done < SIZE_BYTES:
            left = SIZE_BYTES - done
            done += os.copy_file_range(source_file, self.file, left, done, done)
        os.close(source_file)

    def copy_part(self) -> None:
        """A range of the source, to another place of the file."""
        before = bytes(self.expected)
        self.copy()
        (start, length), after = self.range(), bytes(self.expected)
        with open(self.source, "wb") as source:
            source.write(before)
        source_file = os.open(self.source, os.O_RDONLY)
        target = self.chance.randrange(SIZE_BYTES - length + 1)
        copied = os.copy_file_range(source_file, self.file, length, start, target)
        os.close(source_file)
        self.expected[:] = after
        self.expected[target : target + copied] = before[start : start + copied]

    def punch(self) -> None:
        self.clear(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

    def zero(self) -> None:
        self.clear(FALLOC_FL_ZERO_RANGE)

    def clear(self, mode: int) -> None:
        self.write()
        start, length = self.range()
        fallocate(self.file, mode, start, length)
        self.expected[start : start + length] = bytes(length)

    def cut(self) -> None:
        self.write()
        start, _ = self.range()
        os.ftruncate(self.file, start)
        os.ftruncate(self.file, SIZE_BYTES)
        self.expected[start:] = bytes(SIZE_BYTES - start)

    def grow(self) -> None:
        """Direct writes behind the end of the file."""
        self.renew()
        self.aio = self.aio or Aio()
        os.ftruncate(self.file, 0)
        self.aio.write(self.direct_file, self.address, [(0, SIZE_BYTES)])

    def replace(self) -> None:
        """Opens the file to cut it."""
        self.renew()
        with open(self.path, "wb") as file:
            file.write(self.memory)

    def move(self) -> None:
        """Has the file migrate under direct writes."""
        tier = [b"slow", b"fast"][self.version % 2]
        # It moves there already, or stays where the kernel passes it through.
        with contextlib.suppress(OSError):
            os.setxattr(self.path, "user.terrace.tier", tier)
        self.submit_pieces()

    def close(self) -> None:
        os.close(self.file)
        os.close(self.direct_file)
        self.mapping.close()


def closing(change: Callable[[Writer], None]) -> Callable[[Writer], None]:
    """The same through a file that is closed afterwards, as other clients need it."""

    def changed(writer: Writer) -> None:
        writer.direct_file = os.open(writer.path, os.O_RDWR | os.O_DIRECT)
        writer.file = os.open(writer.path, os.O_RDWR)
        writer.mapping = mmap.mmap(writer.file, SIZE_BYTES)
        change(writer)
        writer.close()

    return changed


CHANGES: dict[str, Callable[[Writer], None]] = {
    "write": Writer.write,
    "direct write": Writer.write_directly,
    "io_submit": Writer.submit,
    "io_submit in pieces": Writer.submit_pieces,
    "io_submit of many": Writer.submit_many,
    "io_uring": Writer.submit_to_ring,
    "io_submit with F_SETFL": Writer.submit_with_flag,
    "io_submit behind the end": Writer.grow,
    "io_submit while it moves": Writer.move,
    "store": Writer.store,
    "store and msync": Writer.store_and_sync,
    "copy_file_range": Writer.copy,
    "copy_file_range of a part": Writer.copy_part,
    "punch": Writer.punch,
    "zero": Writer.zero,
    "truncate": Writer.cut,
    "O_TRUNC": Writer.replace,
}

# While these are made the file is shorter for a moment: whoever has it mapped gets SIGBUS.
CUTTING = {"io_submit behind the end", "truncate", "O_TRUNC"}


class Reader:
    """Reads the file in all ways."""

    def __init__(self, path: str, writer: Writer) -> None:
        self.path = path
        self.writer = writer
        self.file = os.open(path, os.O_RDONLY)
        self.mapping = mmap.mmap(self.file, SIZE_BYTES, prot=mmap.PROT_READ)
        self.aim = os.memfd_create("aim")
        self.memory = mmap.mmap(-1, SIZE_BYTES)

    def read(self) -> bytes:
        return os.pread(self.file, SIZE_BYTES, 0)

    def open_and_read(self) -> bytes:
        with open(self.path, "rb", buffering=0) as file:
            return os.pread(file.fileno(), SIZE_BYTES, 0)

    def read_as_writer(self) -> bytes:
        """Through the file that direct writes go to."""
        file = self.writer.direct_file
        flags = fcntl.fcntl(file, fcntl.F_GETFL)
        fcntl.fcntl(file, fcntl.F_SETFL, flags & ~os.O_DIRECT)
        found = os.pread(file, SIZE_BYTES, 0)
        fcntl.fcntl(file, fcntl.F_SETFL, flags)
        return found

    def read_directly(self) -> bytes:
        file = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        length = os.preadv(file, [self.memory], 0)
        os.close(file)
        return self.memory[:length]

    def load(self) -> bytes:
        return self.mapping[:]

    def map_and_load(self) -> bytes:
        with open(self.path, "rb", buffering=0) as file:
            mapping = mmap.mmap(file.fileno(), SIZE_BYTES, flags=mmap.MAP_PRIVATE)
            found = mapping[:]
            mapping.close()
            return found

    def send(self) -> bytes:
        done = 0
        os.lseek(self.aim, 0, os.SEEK_SET)
        while done < SIZE_BYTES:
            sent = os.sendfile(self.aim, self.file, done, SIZE_BYTES - done)
            if sent == 0:
                break
            done += sent
        return os.pread(self.aim, done, 0)

    def splice(self) -> bytes:
        found = b""
        reader, writer = os.pipe()
        while len(found) < SIZE_BYTES:
            length = os.splice(self.file, writer, 1 << 16, offset_src=len(found))
            if length == 0:
                break
            while length > 0:
                piece = os.read(reader, length)
                length -= len(piece)
                found += piece
        os.close(reader)
        os.close(writer)
        return found


READS: dict[str, Callable[[Reader], bytes]] = {
    "pread": Reader.read,
    "open and pread": Reader.open_and_read,
    "pread of the writer": Reader.read_as_writer,
    "direct pread": Reader.read_directly,
    "mapping": Reader.load,
    "new mapping": Reader.map_and_load,
    "sendfile": Reader.send,
    "splice": Reader.splice,
}


def read_on(path: str) -> None:
    with open(path, "rb", buffering=0) as file:
        os.pread(file.fileno(), SIZE_BYTES, 0)


def read_ahead_on(path: str) -> None:
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
        os.pread(file.fileno(), PAGE_BYTES, SIZE_BYTES // 2)


def load_on(path: str) -> None:
    with open(path, "rb", buffering=0) as file:
        mapping = mmap.mmap(file.fileno(), SIZE_BYTES, prot=mmap.PROT_READ)
        for page in range(PAGES):
            _ = mapping[page * PAGE_BYTES]
        mapping.close()


@contextlib.contextmanager
def others(path: str, acts: list[Callable[[str], None]]) -> Iterator[None]:
    """Has a process for each act do that all the time."""
    parent = os.getpid()
    processes = []
    for act in acts:
        process = os.fork()
        if process == 0:
            while os.getppid() == parent:
                act(path)
            os._exit(0)
        processes.append(process)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def old_pages(found: bytes, expected: bytes) -> list[int]:
    if len(found) != len(expected):
        return list(range(PAGES))
    pages = range(0, SIZE_BYTES, PAGE_BYTES)
    ends = [slice(at, at + PAGE_BYTES) for at in pages]
    return [page for page, end in enumerate(ends) if found[end] != expected[end]]


def check(name: str, writer: Writer, reader: Reader, task: dict[str, Any]) -> list[str]:
    """Makes a change again and again; the first time that something old is read after it."""
    change, reads = CHANGES[name], list(task["reads"])
    if task["closes"]:
        change = closing(change)
    acts: list[Callable[[str], None]] = [read_on, read_ahead_on]
    if name not in CUTTING:
        acts.append(load_on)
    end = time.monotonic() + task["seconds"]
    with others(task["read"], acts):
        for number in range(ROUNDS_MAX):
            if number >= ROUNDS_MIN and time.monotonic() >= end:
                break
            change(writer)
            # Each of them is once the first.
            reads = reads[1:] + reads[:1]
            wrong = []
            for read in reads:
                pages = old_pages(READS[read](reader), writer.expected)
                if pages:
                    wrong.append(f"{name}: {read}: round {number}: {len(pages)} pages {pages[:8]}")
            if wrong:
                return wrong
    return []


def main() -> None:
    task = json.loads(sys.argv[1])
    writer = Writer(task["write"])
    if task["closes"]:
        writer.close()
    reader = Reader(task["read"], writer)
    wrong = []
    for name in task["changes"]:
        wrong += check(name, writer, reader, task)
    print("\n".join(wrong))
    sys.exit(bool(wrong))


main()
