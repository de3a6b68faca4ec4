# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A solver of a differential equation that writes checkpoints, and a reader of their diagonals.

Both are `partdiff` of this project, one on each client, which keeps objects in the store of a
target, or files; through MPI-IO and HDF5 `partdiff-mpi` does it, over the processes of all clients.
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
from terrace_lab.workloads import mpi
from terrace_lab.workloads.base import (
    Client,
    Context,
    Direction,
    PhaseSpec,
    Problem,
    Result,
    Span,
    Verdict,
    spans_of,
)
from terrace_lab.workloads.configured import Configured, missing
from terrace_lab.workloads.launch import launch, on_client, parameters_table

TIMEOUT_SECONDS = 24 * 3600.0
SOLVE, READ = "compute+checkpoint", "read"
# Of each checkpoint, before its points; that of HDF5 takes more.
HEADER_BYTES = 64
FILE_BYTES_MAX = 64 << 10

AUTO, OBJECTS, FILES = "auto", "terrace", "files"
MPI = ("mpiio", "hdf5")
METHODS = ("jacobi", "gauss-seidel")
GRID_MAX = 1 << 15
"""What the readers take: 8 GiB of points."""

_SUMMARY = re.compile(r"^(\d+) checkpoints, checksum ([0-9a-f]{16})$", re.MULTILINE)
_SPLIT = re.compile(r"^compute (\d+\.\d+) s, checkpoints (\d+\.\d+) s$", re.MULTILINE)
_READ = re.compile(r"^read (\d+\.\d+) s$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Parameters:
    api: str
    grid: int
    """Points along one edge."""
    steps: int
    checkpoint_every: int
    method: str
    persistency: str
    processes: int
    """On each client; with MPI alone."""
    program: str
    mpi_program: str
    terrace: str

    @classmethod
    def read(cls, settings: Settings) -> Parameters:
        api = settings.raw("api", AUTO)
        # As a factor one of them, in the file perhaps a list with one.
        api = api[0] if isinstance(api, list) and len(api) == 1 else api
        known = (AUTO, OBJECTS, FILES, *MPI)
        if not isinstance(api, str):
            reason = "must be one name; several are a factor, `workload.api`"
            raise settings.error("api", f"{reason}, not {api!r}")
        if api not in known:
            raise settings.error("api", f"{api!r} is none of {', '.join(known)}")
        is_mpi = api in MPI
        parameters = cls(
            api=api,
            grid=settings.integer("grid", 512, least=3),
            steps=settings.integer("steps", 200, least=1),
            checkpoint_every=settings.integer("checkpoint_every", 20, least=1),
            method=settings.choice("method", METHODS, METHODS[0]),
            persistency=settings.choice("persistency", ("none", "process", "storage"), "storage"),
            processes=settings.integer("processes", 1, least=1),
            program=settings.text("program", os.environ.get("TERRACE_PARTDIFF", "partdiff")),
            mpi_program=settings.text(
                "mpi_program", os.environ.get("TERRACE_PARTDIFF_MPI", "partdiff-mpi")
            ),
            terrace=settings.text("terrace", os.environ.get("TERRACE", "terrace")),
        )
        settings.finish()
        if parameters.grid > GRID_MAX:
            raise settings.error("grid", f"must be at most {GRID_MAX}")
        if parameters.steps % parameters.checkpoint_every:
            raise settings.error("steps", "must be a multiple of checkpoint_every")
        if is_mpi and parameters.method != "jacobi":
            raise settings.error("method", f"must be jacobi with api {api!r}")
        if not is_mpi and parameters.processes != 1:
            raise settings.error("processes", f"must be 1 with api {api!r}, which is not parallel")
        return parameters

    @property
    def checkpoints(self) -> int:
        return self.steps // self.checkpoint_every

    def bytes(self, clients: int) -> int:
        """Of all checkpoints; with MPI they are of one solver, over all clients."""
        solvers = 1 if self.api in MPI else clients
        return solvers * self.checkpoints * (HEADER_BYTES + 8 * self.grid**2)


def create(name: str, settings: Settings) -> Pde:
    return Pde(name, *parameters_table(settings))


class Pde(Configured[Parameters]):
    """Solvers, and then as many readers."""

    def __init__(self, name: str, where: str, values: Mapping[str, Any]) -> None:
        super().__init__(name, where, values)
        self._written: list[str] = []

    def check(self, hosts: Mapping[str, Host]) -> list[Problem]:
        parameters = self._parameters
        if parameters.api in MPI:
            help_text = "`make release` builds it where Debian's libopenmpi-dev is installed"
            found = missing(hosts, parameters.mpi_program, help_text)
            return found or [*mpi.check(hosts, parameters.processes), *self._check_hdf5(hosts)]
        help_text = "`make release` builds it"
        programs = (parameters.program, f"{parameters.program}-read")
        found = [one for program in programs for one in missing(hosts, program, help_text)]
        if parameters.api != FILES:
            found += [
                # Otherwise only targets with an address need it.
                dataclasses.replace(one, is_fatal=parameters.api == OBJECTS)
                for one in missing(hosts, parameters.terrace, help_text)
            ]
        return found

    def _check_hdf5(self, hosts: Mapping[str, Host]) -> list[Problem]:
        if self._parameters.api != "hdf5":
            return []
        text = "was built without parallel HDF5, Debian package libhdf5-openmpi-dev"
        argv = [self._parameters.mpi_program, "--help"]
        return [
            Problem(host.name, f"{self._parameters.mpi_program} {text}")
            for host in hosts.values()
            if "HDF5: yes" not in host.run(Command(argv, timeout_s=60)).stdout
        ]

    def needs_files(self) -> bool:
        return self._parameters.api in (FILES, *MPI)

    def describe(self) -> Mapping[str, Any]:
        values = dataclasses.asdict(self._parameters)
        del values["program"], values["mpi_program"], values["terrace"]
        return {"kind": "pde", **values}

    def space_bytes(self, clients: int, bytes_per_client: int | None) -> int:
        one = self._parameters
        files = 0 if one.api in (AUTO, OBJECTS) else one.checkpoints * FILE_BYTES_MAX
        # The journal of the catalog that each client may have.
        return one.bytes(clients) + clients * max(files, 64 << 20)

    def prepare(self, context: Context) -> None:
        """Makes stores and directories, or empties the namespaces in the store of the target."""
        parameters = self._parameters
        api = _api(context, parameters)
        if api in MPI:
            on_client(context.clients[0], ["mkdir", _shared(context)], "make the directory")
            return
        for client in context.clients:
            if api == FILES:
                on_client(client, ["mkdir", _own(client)], "make the directory")
            elif context.url is None:
                store = str(client.directory / "store")
                tier = f"only={store}/only"
                argv = [parameters.terrace, "init", store, "--policy", "none", "--tier", tier]
                on_client(client, argv, "make the store")
            else:
                argv = [parameters.terrace, "--store", context.url, "rm", "-rf", _namespace(client)]
                on_client(client, argv, "empty the namespace")

    def phases(self, context: Context) -> Sequence[PhaseSpec]:
        return [
            PhaseSpec(SOLVE, "checkpoints", Direction.NONE, has_flush_tail=True),
            PhaseSpec(READ, "B", Direction.READ),
        ]

    def run(self, context: Context, phase: PhaseSpec) -> Result:
        parameters = self._parameters
        is_solving = phase.name == SOLVE
        argvs = _argvs(context, parameters, is_solving)
        notes: list[str] = []
        if parameters.api in MPI:
            ended = [mpi.run(context, phase.name, argvs[0], parameters.processes)]
            spans: Sequence[Span] = mpi.spans(context, ended[0], _seconds(ended[0], is_solving))
            notes = [mpi.NOTE]
        else:
            commands = [Command(argv, timeout_s=TIMEOUT_SECONDS) for argv in argvs]
            ended = launch(context, phase.name, commands)
            spans = spans_of(context, ended)
        checksums = [_checksum(one, parameters.checkpoints) for one in ended]
        if is_solving:
            self._written = checksums
        elif checksums != self._written:
            raise PhaseFailed(
                f"cannot read: checksums differ written={self._written} read={checksums}"
            )
        count = float(parameters.checkpoints * len(ended))
        size = float(parameters.bytes(len(context.clients)))
        return Result(
            work=count if is_solving else size,
            spans=spans,
            commands=[list(one.argv) for one in ended],
            extra={
                "checkpoints": count,
                "bytes": size,
                **(_slowest(ended) if is_solving else {}),
            },
            notes=notes,
        )

    def verify(self, context: Context) -> Verdict:
        # The phase that reads has compared them, and failed where they differ.
        return Verdict(
            bool(self._written), "checksums of what was read are those of what was written"
        )

    def _read(self, settings: Settings) -> Parameters:
        return Parameters.read(settings)


def _api(context: Context, parameters: Parameters) -> str:
    if parameters.api != AUTO:
        return parameters.api
    return FILES if context.url is None else OBJECTS


def _argvs(context: Context, parameters: Parameters, is_solving: bool) -> list[list[str]]:
    """The command of each solver or reader."""
    words = []
    if is_solving:
        words = [
            *("--grid", str(parameters.grid), "--checkpoints", str(parameters.checkpoints)),
            *("--interval", str(parameters.checkpoint_every)),
            *("--persistency", parameters.persistency),
        ]
    if parameters.api in MPI:
        where = ["--api", parameters.api, "--directory", _shared(context)]
        return [[parameters.mpi_program, *where, *(words if is_solving else ["--read"])]]
    if is_solving:
        words += ["--method", parameters.method]
    program = parameters.program if is_solving else f"{parameters.program}-read"
    return [[program, *words, *_where(context, parameters, one)] for one in context.clients]


def _where(context: Context, parameters: Parameters, client: Client) -> list[str]:
    if _api(context, parameters) == FILES:
        return ["--files", _own(client)]
    store = str(client.directory / "store") if context.url is None else context.url
    return ["--store", store, "--namespace", _namespace(client)]


def _own(client: Client) -> str:
    return str(client.directory / "pde")


def _shared(context: Context) -> str:
    return str(context.clients[0].shared / "pde")


def _namespace(client: Client) -> str:
    return f"lab-pde-{client.index}"


def _slowest(ended: Sequence[Ended]) -> dict[str, float]:
    """How the time of the slowest solver splits."""
    compute_s, checkpoint_s = max((_split(one) for one in ended), key=sum)
    return {"compute_s": compute_s, "checkpoint_s": checkpoint_s}


def _split(ended: Ended) -> tuple[float, float]:
    match = _found(_SPLIT, ended, "times")
    return float(match[1]), float(match[2])


def _seconds(ended: Ended, is_solving: bool) -> float:
    return sum(_split(ended)) if is_solving else float(_found(_READ, ended, "time")[1])


def _checksum(ended: Ended, checkpoints: int) -> str:
    match = _found(_SUMMARY, ended, "summary")
    if int(match[1]) != checkpoints:
        raise PhaseFailed(
            f"cannot solve: not all checkpoints are there expected={checkpoints} found={match[1]}"
        )
    return match[2]


def _found(pattern: re.Pattern[str], ended: Ended, what: str) -> re.Match[str]:
    match = pattern.search(ended.stdout)
    if match is None:
        raise ParseError(
            f"cannot read the output of partdiff: no {what} ends={ended.stdout.strip()[-80:]!r}"
        )
    return match
