# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A workload by a program that few hosts have, else by `gen`, which it says."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from terrace_lab.hosts import Host
from terrace_lab.workloads.base import Context, PhaseSpec, Problem, Result, Verdict, Workload


class Fallback:
    """Decides once, when it first sees the hosts: a run must not mix two programs."""

    def __init__(
        self, kind: str, program: str, wanted: Workload, make_other: Callable[[], Workload]
    ) -> None:
        self._kind = kind
        self._program = program
        self._wanted = wanted
        self._make_other = make_other
        self._chosen: Workload | None = None

    @property
    def falls_back(self) -> bool:
        return self._chosen is not None and self._chosen is not self._wanted

    def check(self, hosts: Mapping[str, Host]) -> list[Problem]:
        missing = self._choose(list(hosts.values()))
        problems = [
            Problem(name, f"{self._program} is not there; gen takes its place", is_fatal=False)
            for name in missing
        ]
        return problems + self._actual.check(hosts)

    def needs_files(self) -> bool:
        return self._actual.needs_files()

    def describe(self) -> Mapping[str, Any]:
        return {**self._actual.describe(), "asked_for": self._kind}

    def space_bytes(self, clients: int, bytes_per_client: int | None) -> int:
        return self._actual.space_bytes(clients, bytes_per_client)

    def prepare(self, context: Context) -> None:
        self._choose([client.host for client in context.clients])
        self._actual.prepare(context)

    def phases(self, context: Context) -> Sequence[PhaseSpec]:
        self._choose([client.host for client in context.clients])
        return self._actual.phases(context)

    def run(self, context: Context, phase: PhaseSpec) -> Result:
        self._choose([client.host for client in context.clients])
        result = self._actual.run(context, phase)
        if self.falls_back:
            note = f"{self._program} is not there: gen did its pattern"
            result = dataclasses.replace(result, notes=[note, *result.notes])
        return result

    def verify(self, context: Context) -> Verdict:
        return self._actual.verify(context)

    @property
    def _actual(self) -> Workload:
        return self._chosen or self._wanted

    def _choose(self, hosts: Sequence[Host]) -> list[str]:
        """The hosts without the program, and by that which workload it is from now on."""
        if self._chosen is self._wanted:
            return []
        missing = sorted({host.name for host in hosts if not host.has(self._program)})
        if self._chosen is None:
            self._chosen = self._make_other() if missing else self._wanted
        return missing


class Divided:
    """A workload whose clients share a constant total: another one for each number of clients."""

    def __init__(self, make: Callable[[int], Workload]) -> None:
        self._make = make
        self._made: dict[int, Workload] = {}

    def _of(self, clients: int) -> Workload:
        if clients not in self._made:
            self._made[clients] = self._make(clients)
        return self._made[clients]

    def check(self, hosts: Mapping[str, Host]) -> list[Problem]:
        return self._of(1).check(hosts)

    def needs_files(self) -> bool:
        return self._of(1).needs_files()

    def describe(self) -> Mapping[str, Any]:
        return {**self._of(1).describe(), "divided": True}

    def space_bytes(self, clients: int, bytes_per_client: int | None) -> int:
        return self._of(clients).space_bytes(clients, bytes_per_client)

    def prepare(self, context: Context) -> None:
        self._of(len(context.clients)).prepare(context)

    def phases(self, context: Context) -> Sequence[PhaseSpec]:
        return self._of(len(context.clients)).phases(context)

    def run(self, context: Context, phase: PhaseSpec) -> Result:
        return self._of(len(context.clients)).run(context, phase)

    def verify(self, context: Context) -> Verdict:
        return self._of(len(context.clients)).verify(context)
