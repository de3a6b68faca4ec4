# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a workload is to the lab, and what it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from terrace_lab.hosts import Ended, Host
from terrace_lab.records import Stamp


class Direction(StrEnum):
    """Which theoretical peak bounds a phase."""

    WRITE = "write"
    READ = "read"
    IOPS = "iops"
    METADATA = "metadata"
    NONE = "none"
    """Nothing of the storage alone does, as for a compilation."""


@dataclass(frozen=True, slots=True)
class PhaseSpec:
    """One part of a workload that is timed, metered and reported by itself."""

    name: str
    unit: str
    """Of the work: `B`, `ops`, `files`, `samples`, `s`; a rate is that unit per second."""
    direction: Direction
    is_fixed_time: bool = False
    """Runs for a set time and counts work, in place of doing set work and taking time."""
    has_flush_tail: bool = False
    """May leave dirty data, or deletions, behind that are done later: their end is waited for and
    metered as a phase of its own."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why something cannot run here, and what would help."""

    where: str
    text: str
    is_fatal: bool = True


@dataclass(frozen=True, slots=True)
class Client:
    """One load generator."""

    index: int
    """From 0."""
    host: Host
    directory: PurePosixPath
    """On that host, of this client alone, below the marked directory of the target; exists."""
    shared: PurePosixPath
    """The same for all clients of a repetition; exists."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a repetition works with."""

    clients: Sequence[Client]
    record: Path
    """Directory of this repetition in the record, for raw outputs."""
    seed: int
    url: str | None
    """The Terrace URL of a target of kind `store`; None where the target is a path."""
    bytes_per_client: int | None
    """What the experiment asks for, resolved (`2x_ram` is a number by now)."""


@dataclass(frozen=True, slots=True)
class Span:
    """When one client was at work, by the clock of its host."""

    host: str
    begin: Stamp
    end: Stamp


@dataclass(frozen=True, slots=True)
class Result:
    """What one run of one phase came to."""

    work: float
    """In the unit of the phase, over all clients."""
    spans: Sequence[Span]
    """One for each client; the phase lasts from the first begin to the last end."""
    latency_s: Mapping[str, float] = field(default_factory=dict)
    """Percentiles of single operations as `p50`, `p99`, `p99.9`, where the program tells them."""
    latency_ecdf: Sequence[tuple[float, float]] = ()
    """Steps of their distribution: seconds, part of the operations at or below."""
    commands: Sequence[Sequence[str]] = ()
    """What was run."""
    extra: Mapping[str, float] = field(default_factory=dict)
    """Further figures by name with their unit: `accelerator_utilisation`, `stall_s`."""
    over_time: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """Further figures over the time of the phase: seconds since its begin, in order, and the mean
    since the one before."""
    notes: Sequence[str] = ()
    """What a reader must know: a fallback, a limit, a warning of the program."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether what was read is what had been written."""

    is_good: bool
    text: str


class Workload(Protocol):
    """Does a defined piece of work on the directories of some clients.

    # Contract

    - Same settings and same seed: same work.
    - Everything is written below `Client.directory` and `Client.shared`.
    - `run` returns once the work is durable as the phase defines it (fsync and close for data), and
      raises `PhaseFailed` where any client failed or the program's output cannot be understood. It
      never estimates what a program did not tell.
    - Phases run in the order of `phases`, each once per repetition, after `prepare`.
    """

    def check(self, hosts: Mapping[str, Host]) -> list[Problem]:
        """What is missing on those hosts that would be clients."""
        ...

    def needs_files(self) -> bool:
        """Whether a store alone, without a mount, is not enough."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """All that defines the work, for the hash that makes results comparable."""
        ...

    def space_bytes(self, clients: int, bytes_per_client: int | None) -> int:
        """Upper bound of what a repetition stores."""
        ...

    def prepare(self, context: Context) -> None:
        """Makes what the phases need and is not measured."""
        ...

    def phases(self, context: Context) -> Sequence[PhaseSpec]: ...
    def run(self, context: Context, phase: PhaseSpec) -> Result: ...
    def verify(self, context: Context) -> Verdict: ...


def spans_of(context: Context, ended: Sequence[Ended]) -> list[Span]:
    """The spans of clients that ran one command each, in their order."""
    return [
        Span(client.host.name, one.begin, one.end)
        for client, one in zip(context.clients, ended, strict=True)
    ]
