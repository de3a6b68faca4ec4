# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Forks, signals, and the end of the interpreter."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import terrace
from conftest import SECONDS_MAX, Server, command, run

_FORKING = """
import os, sys, threading, terrace
store = terrace.Store(sys.argv[1])
store.put("a/b", b"x" * 100000)
file, names, watch = store.open("a/b"), store.list(), store.watch()
draft = store.open("a/draft", "wb")
draft.write(b"of the parent")
stop = threading.Event()
def busy():
    while not stop.is_set():
        store.get("a/b")
        store.put("a/c", b"y")
threads = [threading.Thread(target=busy) for _ in range(3)]
for thread in threads: thread.start()
failures = 0
for number in range(10):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert len(store.get("a/b")) == 100000
            assert file.read_at(5, 2) == b"xx"
            with store.open(f"child/{number}", "wb") as own:
                own.write(b"of the child")
            for use in (lambda: next(names), watch.next, lambda: draft.write(b"of the child")):
                try:
                    use()
                except terrace.Invalid as error:
                    assert "forked" in str(error), error
                else:
                    raise AssertionError("it was used")
            assert len(list(store.list("child/"))) == number + 1
            # As programs do that fork: objects are dropped, and exit handlers run.
            del names, watch, draft, file
            store.close()
            code = 0
        finally:
            sys.stderr.flush()
            if number % 2 == 0 or code:
                os._exit(code)
            else:
                stop.set()
                sys.exit(0)
    _, status = os.waitpid(child, 0)
    failures += status != 0
stop.set()
for thread in threads: thread.join()
assert failures == 0, failures
assert len(store.get("a/b")) == 100000
draft.close()
assert store.get("a/draft") == b"of the parent"
store.close()
with terrace.Store(sys.argv[1]) as store:
    assert len(list(store.list("child/"))) == 10
print("done")
"""


def test_a_forked_child_opens_its_own_handles(directory: Path) -> None:
    assert run(_FORKING, directory) == "done\n"


_POOL = """
import multiprocessing, sys, terrace
store = terrace.Store(sys.argv[2])
def read(number):
    return store.get(f"a/{number % 10}")
if __name__ == "__main__":
    for number in range(10):
        with store.open(f"a/{number}", "wb") as file:
            file.write(str(number).encode())
    with multiprocessing.get_context(sys.argv[1]).Pool(4) as pool:
        found = pool.map(read, range(100))
    assert found == [str(number % 10).encode() for number in range(100)], found
    print("done")
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_a_pool_read(directory: Path, tmp_path: Path, method: str) -> None:
    program = tmp_path / "pool.py"
    program.write_text(_POOL)
    command = [sys.executable, str(program), method, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


_OPEN_AT_THE_END = """
import sys, threading, terrace
store = terrace.Store(sys.argv[1])
store.put("a/b", b"x" * 200000)
kept = [store.open("a/b"), store.list(), store.batch(), store.watch(), store.open("a/c", "wb")]
def busy():
    while True:
        try:
            store.get("a/b")
        except terrace.Error:
            pass
for _ in range(4):
    threading.Thread(target=busy, daemon=True).start()
threading.Thread(target=lambda: list(store.watch()), daemon=True).start()
print("ends")
"""


def test_the_interpreter_ends_with_open_handles(directory: Path) -> None:
    for _ in range(5):
        assert run(_OPEN_AT_THE_END, directory) == "ends\n"
    with terrace.Store(directory) as store:
        assert len(store.get("a/b")) == 200000
        assert not store.exists("a/c")


def interrupted_after(seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    return timer


def test_ctrl_c_ends_a_watch(store: terrace.Store) -> None:
    timer = interrupted_after(0.2)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(store.watch())
    assert time.monotonic() - begun < 10
    timer.join()


def test_ctrl_c_ends_a_request_that_no_server_answers(served: str) -> None:
    """The server stops without a word: the request would wait for its whole deadline."""
    server = _process_of(served)
    with terrace.Store(served) as store:
        with store.open("a/b", "wb") as file:
            file.write(b"x" * 1000)
        os.kill(server, signal.SIGSTOP)
        try:
            timer = interrupted_after(0.3)
            begun = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                store.get("a/b")
            assert time.monotonic() - begun < 10
            timer.join()
        finally:
            os.kill(server, signal.SIGCONT)
        assert len(store.get("a/b")) == 1000


@contextlib.contextmanager
def stopped(address: str) -> Iterator[None]:
    """The server answers nothing meanwhile."""
    server = _process_of(address)
    os.kill(server, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server, signal.SIGCONT)


def interrupted(call: Callable[[], object]) -> None:
    """Ctrl-C ends a call that no server answers."""
    timer = interrupted_after(0.3)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        call()
    assert time.monotonic() - begun < 10
    timer.join()


def test_an_interrupted_call_leaves_the_memory_of_its_caller(served: str) -> None:
    """The caller may free it: views that `io.BufferedWriter` and others pass do not keep it."""
    with terrace.Store(served) as store:
        store.put("a/b", bytes(1000))
        file, kv = store.open("a/b", "r+b"), store.kv("pairs")
        items, batch = store.create_collection("items"), store.batch()
        memory = bytearray(b"a" * 100)
        batch.create("a/batch", memory)
        memory.append(0)
        calls: list[Callable[[], object]] = [
            lambda: file.read_into(0, memory),
            lambda: file.write_at(0, memory),
            lambda: file.append(memory),
            lambda: store.put("a/c", memory),
            lambda: items.put("item", memory),
            lambda: kv.get(memory),
            lambda: kv.put(memory, memory),
            lambda: kv.remove(memory),
            lambda: kv.apply([(memory, memory), (memory, None)]),
            lambda: kv.scan(memory, after=memory),
            batch.run,
        ]
        with stopped(served):
            for call in calls:
                interrupted(call)
                # Refused while the memory is in use.
                memory.append(0)


def test_an_interrupted_write_has_the_bytes_of_its_call(served: str) -> None:
    length = 64 << 20
    memory = bytearray(b"a" * length)
    with terrace.Store(served) as store:
        store.put("a/b", b"")
        # Has connections for long requests before the server stops.
        store.put("a/c", memory[: 8 << 20])
        file = store.open("a/b", "r+b")
        with stopped(served):
            interrupted(lambda: file.write_at(0, memory))
            memory[:] = b"b" * length
        # The request goes on behind the exception.
        while store.stat("a/b").size_bytes < length or file.read_at(length - 1, 1) == b"\0":
            pass
        assert store.get("a/b") == b"a" * length


def test_an_uninterrupted_call_on_a_server_uses_the_memory_of_its_caller(served: str) -> None:
    length = (16 << 20) + 3
    data = bytearray(os.urandom(length))
    with terrace.Store(served) as store:
        store.put("a/b", data)
        with store.open("a/b", "r+b") as file:
            again = bytearray(length + 10)
            assert file.read_into(0, again) == length
            assert again == data + bytes(10)
            assert file.write_at(1, memoryview(data)[:5]) == 5
            assert file.append(b"end") == length
            assert file.read_into(length - 1, memoryview(again)[:10]) == 4
        assert again[:4] == data[-1:] + b"end"
        assert store.get("a/b") == data[:1] + data[:5] + data[6:] + b"end"


def test_ctrl_c_ends_the_opening_of_a_store(served: str) -> None:
    with stopped(served):
        interrupted(lambda: terrace.Store(served))


_CHILD_LISTS = """
import os, signal, sys, time, terrace
store = terrace.Store(sys.argv[1])
store.put("a/b", b"x")
server = int(sys.argv[2])
def alarm(*_):
    raise TimeoutError
child = os.fork()
if child == 0:
    signal.signal(signal.SIGALRM, alarm)
    os.kill(server, signal.SIGSTOP)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    begun, code = time.monotonic(), 1
    try:
        %s
    except TimeoutError:
        code = int(time.monotonic() - begun > 10)
    finally:
        os.kill(server, signal.SIGCONT)
        os._exit(code)
assert os.waitpid(child, 0)[1] == 0
print("done")
"""


@pytest.mark.parametrize("call", ["store.list()", "store.watch()", "store.get('a/b')"])
def test_a_signal_ends_the_first_call_of_a_forked_child(served: str, call: str) -> None:
    assert run(_CHILD_LISTS % call, served, _process_of(served)) == "done\n"


_BATCH_OF_TWO_THREADS = """
import os, signal, sys, threading, terrace
store = terrace.Store(sys.argv[1])
server = int(sys.argv[2])
batch = store.batch().create("a/b", b"x")
os.kill(server, signal.SIGSTOP)
outcomes = []
thread = threading.Thread(target=lambda: outcomes.extend(batch.run()))
thread.start()
# Until the thread waits for the server.
while len(batch) > 0:
    pass
batch.stat("a/b")
os.kill(server, signal.SIGCONT)
thread.join()
assert outcomes == [None], outcomes
assert batch.run()[0].size_bytes == 1
print("done")
"""


def test_a_batch_that_runs_is_looked_at(served: str) -> None:
    assert run(_BATCH_OF_TWO_THREADS, served, _process_of(served)) == "done\n"


_CLOSED_WITH_A_CHILD = """
import fcntl, os, sys, terrace
def is_locked():
    with open(os.path.join(sys.argv[1], "lock")) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
store = terrace.Store(sys.argv[1])
store.put("a/b", b"x")
child = os.fork()
if child == 0:
    # As programs do that fork: objects are dropped, and exit handlers run.
    store.close()
    del store
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert is_locked(), "the child released the lock of its parent"
end, keeps = os.pipe()
child = os.fork()
if child == 0:
    os.close(keeps)
    os.read(end, 1)
    os._exit(0)
store.close()
assert not is_locked(), "the child holds the lock of its parent"
with terrace.Store(sys.argv[1]) as store:
    assert not store.is_attached()
    assert store.get("a/b") == b"x"
os.close(keeps)
assert os.waitpid(child, 0)[1] == 0
print("done")
"""


def test_a_closed_store_is_free_while_a_forked_child_lives(directory: Path) -> None:
    assert run(_CLOSED_WITH_A_CHILD, directory) == "done\n"


def _process_of(address: str) -> int:
    """The process that listens at an address."""
    port = int(address.split(":")[2].partition("?")[0])
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    inodes = {
        f"socket:[{line.split()[9]}]"
        for line in lines
        if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
    }
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(entry) in inodes:
                return int(entry.parts[2])
        except OSError:
            continue
    raise AssertionError(f"nothing listens at {address}")


def test_a_server_that_ended_is_unreachable_and_then_comes_back(
    directory: Path, tmp_path: Path
) -> None:
    with Server(command(), directory, tmp_path) as server:
        store = terrace.Store(f"{server.address}&deadline=1s")
        with store.open("a/b", "wb") as file:
            file.write(b"x")
    with pytest.raises(ConnectionError) as failed:
        store.get("a/b")
    assert isinstance(failed.value, terrace.Unreachable)
    with Server(command(), directory, tmp_path, server.port):
        assert store.get("a/b") == b"x"
    store.close()
