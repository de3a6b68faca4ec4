# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a target is to the lab: something that files or objects can be kept on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from terrace_lab.hosts import Host
from terrace_lab.workloads.base import Problem

SERVERS = "servers"
"""The parameter that the factor of that name sets: of how many servers a target is made."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a target can hold."""

    raw_bytes: int | None
    """Of its devices; None where nobody said."""
    usable_bytes: int


@dataclass(frozen=True, slots=True)
class Amplification:
    """Bytes that move inside for one byte of a client."""

    network_write: float = 1.0
    disk_write: float = 1.0
    disk_read: float = 1.0


@dataclass(frozen=True, slots=True)
class Tunable:
    """One parameter that `terrace-lab tune` may set."""

    name: str
    values: Sequence[str | int | float]
    default: str | int | float


class Target(Protocol):
    """A system under test.

    # Contract

    - `setup` and `teardown` may be called twice in a row; the second does nothing.
    - After `teardown` nothing of what `setup` had started is left.
    - A failed `setup` raises `LabError` with what the system printed, after it has torn down.
    """

    name: str
    servers: Sequence[str]
    """Hosts whose power and disks count as the system's."""
    is_exclusive: bool
    """Is torn down before another target has its turn, so that it costs that nothing."""

    def check(self, hosts: Mapping[str, Host]) -> list[Problem]: ...
    def check_parameters(self, parameters: Mapping[str, str | int | float]) -> None:
        """LabError where it has no such tunable, or one has no such value."""
        ...

    def setup(
        self, clients: Sequence[Host], parameters: Mapping[str, str | int | float]
    ) -> None: ...
    def path(self, host: Host) -> PurePosixPath | None:
        """The directory on that client; None where the target is not a file system."""
        ...

    def url(self) -> str | None:
        """The Terrace URL, where the target is a store."""
        ...

    def remount(self, clients: Sequence[Host]) -> bool:
        """Empties caches by mounting again; false where the target has no way to do so."""
        ...

    def capacity(self, clients: Sequence[Host]) -> Capacity: ...
    def amplification(self) -> Amplification: ...
    def tunables(self) -> Sequence[Tunable]: ...
    def teardown(self, clients: Sequence[Host]) -> None: ...
