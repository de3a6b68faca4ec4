# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A solver of a differential equation that writes checkpoints, and a reader of their diagonals.

Both are `partdiff` of this project, which keeps objects in a Terrace store: that of the target, or
one that each client makes in its directory.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from terrace_lab.errors import ParseError, PhaseFailed
from terrace_lab.hosts import Command, Ended, Host
from terrace_lab.settings import Settings
from terrace_lab.workloads.base import (
    Client,
    Context,
    Direction,
    PhaseSpec,
    Problem,
    Result,
    Verdict,
    spans_of,
)
from terrace_lab.workloads.configured import Configured, missing
from terrace_lab.workloads.launch import launch, on_client, parameters_table

TIMEOUT_SECONDS = 24 * 3600.0
SOLVE, READ = "compute+checkpoint", "read"
# Of each checkpoint, before its points.
HEADER_BYTES = 64

_SUMMARY = re.compile(r"^(\d+) checkpoints, checksum ([0-9a-f]{16})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Parameters:
    api: str
    grid: int
    """Points along one edge."""
    steps: int
    checkpoint_every: int
    method: str
    persistency: str
    split: bool
    """Computes once before with one checkpoint only, to tell how long that alone takes."""
    program: str
    terrace: str

    @classmethod
    def read(cls, settings: Settings) -> Parameters:
        api = settings.raw("api", "terrace")
        # As a factor one of them, in the file perhaps a list with one.
        api = api[0] if isinstance(api, list) and len(api) == 1 else api
        if not isinstance(api, str):
            raise settings.error("api", f"must be one name; several are a factor, not {api!r}")
        parameters = cls(
            api=api,
            grid=settings.integer("grid", 512, least=3),
            steps=settings.integer("steps", 200, least=1),
            checkpoint_every=settings.integer("checkpoint_every", 20, least=1),
            method=settings.choice("method", ("gauss-seidel", "jacobi"), "gauss-seidel"),
            persistency=settings.choice("persistency", ("none", "process", "storage"), "storage"),
            split=settings.flag("split", True),
            program=settings.text("program", os.environ.get("TERRACE_PARTDIFF", "partdiff")),
            terrace=settings.text("terrace", os.environ.get("TERRACE", "terrace")),
        )
        settings.finish()
        if parameters.steps % parameters.checkpoint_every:
            raise settings.error("steps", "must be a multiple of checkpoint_every")
        return parameters

    @property
    def checkpoints(self) -> int:
        return self.steps // self.checkpoint_every

    @property
    def bytes(self) -> int:
        """That one client writes."""
        return self.checkpoints * (HEADER_BYTES + 8 * self.grid**2)


def create(name: str, settings: Settings) -> Pde:
    return Pde(name, *parameters_table(settings))


class Pde(Configured[Parameters]):
    """One solver, and then one reader, on each client."""

    def __init__(self, name: str, where: str, values: Mapping[str, Any]) -> None:
        super().__init__(name, where, values)
        self._compute_s: list[float] = []
        self._written: list[str] = []

    def check(self, hosts: Mapping[str, Host]) -> list[Problem]:
        parameters = self._parameters
        if parameters.api != "terrace":
            text = (
                f"there is no solver with api {parameters.api!r}: partdiff writes to Terrace stores"
            )
            return [Problem(f"workloads.{self.name}", text)]
        programs = (parameters.program, f"{parameters.program}-read", parameters.terrace)
        return [
            problem
            for program in programs
            for problem in missing(hosts, program, "`make release` builds it")
        ]

    def describe(self) -> Mapping[str, Any]:
        values = dataclasses.asdict(self._parameters)
        del values["program"], values["terrace"]
        return {"kind": "pde", **values}

    def space_bytes(self, clients: int, bytes_per_client: int | None) -> int:
        # The journal of the catalog as well.
        return clients * (self._parameters.bytes + (64 << 20))

    def prepare(self, context: Context) -> None:
        """Makes stores, or empties the namespaces in that of the target."""
        parameters = self._of(context)
        self._compute_s = []
        if parameters.split:
            self._compute_s = self._compute(context, parameters)
        for client in context.clients:
            if context.url is None:
                self._init(client, parameters, str(client.directory / "store"))
            else:
                argv = [parameters.terrace, "--store", context.url, "rm", "-rf", _namespace(client)]
                on_client(client, argv, "empty the namespace")

    def phases(self, context: Context) -> Sequence[PhaseSpec]:
        return [
            PhaseSpec(SOLVE, "checkpoints", Direction.NONE, has_flush_tail=True),
            PhaseSpec(READ, "B", Direction.READ),
        ]

    def run(self, context: Context, phase: PhaseSpec) -> Result:
        parameters = self._of(context)
        if phase.name == SOLVE:
            commands = [_solve(context, parameters, client) for client in context.clients]
        else:
            commands = [
                Command(
                    [f"{parameters.program}-read", *_where(context, client)],
                    timeout_s=TIMEOUT_SECONDS,
                )
                for client in context.clients
            ]
        ended = launch(context, phase.name, commands)
        checksums = [_checksum(one, parameters.checkpoints) for one in ended]
        if phase.name == SOLVE:
            self._written = checksums
        elif checksums != self._written:
            raise PhaseFailed(
                f"cannot read: checksums differ written={self._written} read={checksums}"
            )
        count = parameters.checkpoints * len(context.clients)
        is_solving = phase.name == SOLVE
        return Result(
            work=float(count if is_solving else parameters.bytes * len(context.clients)),
            spans=spans_of(context, ended),
            commands=[list(command.argv) for command in commands],
            extra={
                "checkpoints": float(count),
                "bytes": float(parameters.bytes * len(context.clients)),
                **(self._split(ended) if is_solving else {}),
            },
            notes=["compute_s is of the same steps with one checkpoint, run before"]
            if is_solving and self._compute_s
            else [],
        )

    def verify(self, context: Context) -> Verdict:
        # The phase that reads has compared them, and failed where they differ.
        return Verdict(
            bool(self._written), "checksums of what was read are those of what was written"
        )

    def _split(self, ended: Sequence[Ended]) -> dict[str, float]:
        """Of the slowest client: computing alone, and the rest, which is for checkpoints."""
        if not self._compute_s:
            return {}
        both_s = [(one.end.raw_ns - one.begin.raw_ns) / 1e9 for one in ended]
        slowest = both_s.index(max(both_s))
        compute_s = self._compute_s[slowest]
        return {"compute_s": compute_s, "checkpoint_s": both_s[slowest] - compute_s}

    def _compute(self, context: Context, parameters: Parameters) -> list[float]:
        """The same steps with one checkpoint, which survives nothing; seconds of each client."""
        stores = [str(client.directory / "compute") for client in context.clients]
        for client, store in zip(context.clients, stores, strict=True):
            self._init(client, parameters, store)
        alone = dataclasses.replace(
            parameters, checkpoint_every=parameters.steps, persistency="none"
        )
        commands = [
            Command([*_solver(alone), "--store", store], timeout_s=TIMEOUT_SECONDS)
            for store in stores
        ]
        ended = launch(context, "compute", commands)
        return [(one.end.raw_ns - one.begin.raw_ns) / 1e9 for one in ended]

    def _init(self, client: Client, parameters: Parameters, store: str) -> None:
        tier = f"only={store}/only"
        argv = [parameters.terrace, "init", store, "--policy", "none", "--tier", tier]
        on_client(client, argv, "make the store")

    def _read(self, settings: Settings) -> Parameters:
        return Parameters.read(settings)


def _solver(parameters: Parameters) -> list[str]:
    return [
        parameters.program,
        *("--grid", str(parameters.grid), "--method", parameters.method),
        *("--checkpoints", str(parameters.checkpoints)),
        *("--interval", str(parameters.checkpoint_every)),
        *("--persistency", parameters.persistency),
    ]


def _solve(context: Context, parameters: Parameters, client: Client) -> Command:
    argv = [*_solver(parameters), *_where(context, client)]
    return Command(argv, timeout_s=TIMEOUT_SECONDS)


def _where(context: Context, client: Client) -> list[str]:
    store = str(client.directory / "store") if context.url is None else context.url
    return ["--store", store, "--namespace", _namespace(client)]


def _namespace(client: Client) -> str:
    return f"lab-pde-{client.index}"


def _checksum(ended: Ended, checkpoints: int) -> str:
    match = _SUMMARY.search(ended.stdout)
    if match is None:
        raise ParseError(
            f"cannot read the output of partdiff: no summary ends={ended.stdout.strip()[-80:]!r}"
        )
    if int(match[1]) != checkpoints:
        raise PhaseFailed(
            f"cannot solve: not all checkpoints are there expected={checkpoints} found={match[1]}"
        )
    return match[2]
