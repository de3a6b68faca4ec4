# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Stores for tests: in a directory of this process, of another process, behind a server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import terrace

# Ends a process that hangs, and with it the test.
SECONDS_MAX = 60

_OWNER = """
import sys, terrace
store = terrace.Store(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
store.close()
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A new store, which is not open."""
    path = tmp_path / "store"
    terrace.Store.create(path)
    return path


@pytest.fixture
def store(directory: Path) -> Iterator[terrace.Store]:
    """A store that this process owns."""
    with terrace.Store(directory) as store:
        yield store


@pytest.fixture
def attached(directory: Path) -> Iterator[terrace.Store]:
    """A store that another process owns."""
    command = [sys.executable, "-c", _OWNER, str(directory)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdin is not None
        try:
            assert owner.stdout.readline() == "open\n"
            with terrace.Store(directory) as store:
                assert store.is_attached()
                yield store
            owner.stdin.close()
            assert owner.wait(SECONDS_MAX) == 0
        finally:
            owner.kill()


@pytest.fixture
def served(directory: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a server over TCP."""
    with Server(command(), directory, tmp_path / "address") as server:
        yield server.address


def command() -> str:
    """The program that serves stores and mounts them."""
    found = os.environ.get("TERRACE_COMMAND") or shutil.which("terrace")
    if found is None:
        pytest.fail("there is no command `terrace`: build it, and put it on the PATH")
    return found


class Server:
    """`terrace serve` on a free port, or on one that it had before."""

    def __init__(self, command: str, directory: Path, file: Path, port: int = 0) -> None:
        self._arguments = [
            command, "--store", str(directory), "serve", "--listen", f"127.0.0.1:{port}",
            "--no-secret",
        ]  # fmt: skip
        self._file = file

    def __enter__(self) -> Server:
        self._process = subprocess.Popen(
            self._arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        self.lines = []
        for line in self._process.stdout:
            self.lines.append(line)
            words = [word for word in line.split() if "127.0.0.1:" in word]
            if words:
                at = words[0].index("127.0.0.1:")
                self.port = int("".join(c for c in words[0][at + 10 :] if c.isdigit()))
                self.address = f"terrace://127.0.0.1:{self.port}?secret=none"
                return self
        raise AssertionError(f"the server did not start: {self.lines}")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(SECONDS_MAX)
        finally:
            self._process.kill()
            self._process.communicate()


def run(code: str, *arguments: object, timeout: float = SECONDS_MAX) -> str:
    """Runs Python and returns what it printed."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
