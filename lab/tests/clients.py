# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Clients on this machine, their directories below `tmp_path`, and programs that were built."""

import functools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from terrace_lab.hosts import AgentHost
from terrace_lab.workloads.base import Client, Context


@pytest.fixture(scope="session")
def host() -> Iterator[AgentHost]:
    host = AgentHost("here")
    host.connect()
    yield host
    host.close()


MakeContext = Callable[..., Context]


@pytest.fixture
def make_context(host: AgentHost, tmp_path: Path) -> MakeContext:
    def make(
        clients: int = 1,
        *,
        bytes_per_client: int | None = None,
        url: str | None = None,
    ) -> Context:
        shared = tmp_path / "shared"
        shared.mkdir(exist_ok=True)
        made = []
        for index in range(clients):
            directory = tmp_path / f"client-{index}"
            directory.mkdir(exist_ok=True)
            made.append(Client(index, host, PurePosixPath(directory), PurePosixPath(shared)))
        return Context(
            clients=made,
            record=tmp_path / "record",
            seed=7,
            url=url,
            bytes_per_client=bytes_per_client,
        )

    return make


@functools.cache
def built_with_mpi() -> str:
    """`partdiff-mpi`, made by the Makefile of its directory; the result stays beside the others."""
    directory = Path(__file__).parents[2] / "examples" / "partdiff-mpi"
    output = Path(built("partdiff")).parent
    make = ["make", "-B", "--no-print-directory", "-C", str(directory), f"OUT={output}"]
    subprocess.run(make, check=True, capture_output=True, timeout=300)
    return str(output / "partdiff-mpi")


def built(name: str) -> str:
    """A program of this project, which has to be built before."""
    targets = [os.environ.get("CARGO_TARGET_DIR", ""), str(Path(__file__).parents[2] / "target")]
    found = [
        str(Path(target) / profile / name)
        for target in targets
        for profile in ("debug", "release")
        if target and (Path(target) / profile / name).exists()
    ]
    program = found[0] if found else shutil.which(name)
    assert program, f"there is no {name}: run `cargo build -p partdiff -p terrace-cli`"
    return program
