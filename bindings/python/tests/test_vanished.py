# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Stores whose owner is killed, or whose directory is removed, and long reads that Ctrl-C ends."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import terrace
from conftest import _OWNER, SECONDS_MAX, Server, command
from test_process import interrupted_after

MIB = 1 << 20
LONG_BYTES = 64 * MIB


def test_the_owner_is_killed_and_another_one_comes(directory: Path) -> None:
    def owner() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", _OWNER, str(directory)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        return process

    def kill(process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate(timeout=SECONDS_MAX)

    first = owner()
    store = terrace.Store(directory)
    try:
        assert store.is_attached()
        store.put("a/b", b"x" * 1000)
        file, names, notices = store.open("a/b"), store.list(), store.watch()
    finally:
        kill(first)

    def read_in_a_batch() -> None:
        outcome = store.batch().read("a/b", 0, 9).run()[0]
        assert isinstance(outcome, terrace.Error)
        raise outcome

    uses: list[Callable[[], object]] = [
        lambda: store.get("a/b"),
        lambda: store.put("a/c", b"y"),
        lambda: file.read_at(0, 10),
        lambda: next(names),
        lambda: store.admin().tiers(),
        read_in_a_batch,
    ]
    for use in uses:
        with pytest.raises(terrace.Unreachable):
            use()
    with pytest.raises(terrace.Unreachable):
        list(notices)
    second = owner()
    try:
        assert store.get("a/b") == b"x" * 1000
        store.close()
    finally:
        kill(second)
    with terrace.Store(directory) as own:
        assert not own.is_attached()
        assert own.get("a/b") == b"x" * 1000


def test_no_change_is_acknowledged_in_a_directory_that_was_removed(directory: Path) -> None:
    store = terrace.Store(directory)
    for number in range(3):
        store.put(f"a/{number}", bytes(100_000))
    shutil.rmtree(directory)
    for use in (
        lambda: store.put("a/new", b"x"),
        lambda: store.put("a/2", b"x"),
        lambda: store.open("a/3", "xb"),
        lambda: store.sync(),
        lambda: store.close(),
    ):
        with pytest.raises(terrace.Io, match="was removed while it was open"):
            use()
    assert store.closed
    with pytest.raises(terrace.NotFound):
        terrace.Store(directory)


@pytest.fixture(params=["embedded", "server"])
def slow(
    request: pytest.FixtureRequest, directory: Path, tmp_path: Path
) -> Iterator[terrace.Store]:
    """A store with an object that takes seconds to read."""
    with terrace.Store(directory) as store:
        store.put("a/long", b"x" * LONG_BYTES)
    settings = directory / "terrace.toml"
    throttled = 'throttle = { latency = "1ms", bandwidth = "20MB/s" }\n'
    settings.write_text(
        settings.read_text().replace('name = "fast"\n', f'name = "fast"\n{throttled}')
    )
    assert throttled in settings.read_text()
    with ExitStack() as stack:
        address: str | Path = directory
        if request.param == "server":
            address = stack.enter_context(Server(command(), directory, tmp_path)).address
        yield stack.enter_context(terrace.Store(address))


def test_ctrl_c_ends_a_long_read(slow: terrace.Store) -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    for read in (
        lambda: slow.get("a/long"),
        lambda: slow.open("a/long").read(),
        lambda: slow.batch().read("a/long", 0, LONG_BYTES).run(),
    )[: 2 if not slow.is_attached() else 3]:
        timer = interrupted_after(0.2)
        with pytest.raises(KeyboardInterrupt):
            read()
        timer.join()
    found = bytearray(LONG_BYTES)
    timer = interrupted_after(0.2)
    with pytest.raises(KeyboardInterrupt):
        slow.get_into("a/long", found)
    timer.join()
    # It was not read to the end first.
    assert found[-1] == 0
    # The store is as usable as before.
    with slow.open("a/long") as file:
        assert file.read_at(LONG_BYTES - 10, 20) == b"x" * 10
