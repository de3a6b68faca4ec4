# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Data and names by the project's own load generator, which is coordinated over all clients.

docs/reference/lab-gen.md has the program and the parameters. Each phase is one invocation.
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from terrace_lab.errors import ParseError, PhaseFailed
from terrace_lab.hosts import Command, Host
from terrace_lab.records import Stamp
from terrace_lab.settings import Settings
from terrace_lab.workloads.base import (
    Client,
    Context,
    Direction,
    PhaseSpec,
    Problem,
    Result,
    Span,
    Verdict,
)
from terrace_lab.workloads.configured import Configured, check_phases, missing
from terrace_lab.workloads.launch import launch, on_client, parameters_table

TIMEOUT_SECONDS = 6 * 3600
DEFAULT_BYTES_PER_CLIENT = 64 << 20
LAYOUT_BYTES = 1 << 20
"""Of one transfer where files are made that are not measured."""
NAME_BYTES = 4096
"""What an inode and a name may take."""

_FREE_PORT = "import socket; s = socket.socket(); s.bind(('', 0)); print(s.getsockname()[1])"


@dataclass(frozen=True, slots=True)
class _Phase:
    command: str
    unit: str
    direction: Direction
    has_flush_tail: bool = False
    is_random: bool = False


_PHASES = {
    "write": _Phase("write", "B", Direction.WRITE, has_flush_tail=True),
    "read": _Phase("read", "B", Direction.READ),
    "randwrite": _Phase("write", "ops", Direction.IOPS, has_flush_tail=True, is_random=True),
    "randread": _Phase("read", "ops", Direction.IOPS, is_random=True),
    "create": _Phase("create", "files", Direction.METADATA, has_flush_tail=True),
    "stat": _Phase("stat", "files", Direction.METADATA),
    "read-files": _Phase("read-files", "files", Direction.METADATA),
    "remove": _Phase("remove", "files", Direction.METADATA, has_flush_tail=True),
}
_DATA = ("write", "read", "randwrite", "randread")


@dataclass(frozen=True, slots=True)
class Parameters:
    phases: tuple[str, ...]
    processes: int
    """Of each client."""
    threads: int
    """Of each process: the depth of its queue."""
    api: str
    fpp: bool
    xfer: int
    block: int | None
    """Contiguous bytes of a process; None: those of the client by processes and segments."""
    segments: int
    direct: bool
    fsync_per_write: bool
    reorder: bool
    """Nobody reads, or asks for, what its host has written or created."""
    stonewall: float
    """Sequential phases end after so many seconds if they are not done; 0: never."""
    seconds: float
    """How long random phases go on; 0: until each block had its turn."""
    files: int
    """Items of each process."""
    items: str
    bytes: int
    """Of each file, written and read."""
    depth: int
    branch: int
    leaf_only: bool
    unique: bool
    verify: str
    program: str

    @classmethod
    def read(cls, settings: Settings) -> Parameters:
        parameters = cls(
            phases=settings.texts("phases", ("write", "read")),
            processes=settings.integer("processes", 1, least=1),
            threads=settings.integer("threads", 1, least=1),
            api=settings.choice("api", ("POSIX",), "POSIX"),
            fpp=settings.flag("fpp", True),
            xfer=settings.bytes("xfer", "1MiB"),
            block=settings.bytes("block") if "block" in settings else None,
            segments=settings.integer("segments", 1, least=1),
            direct=settings.flag("direct", False),
            fsync_per_write=settings.flag("fsync_per_write", False),
            reorder=settings.flag("reorder", True),
            stonewall=settings.seconds("stonewall", 0),
            seconds=settings.seconds("seconds", 0),
            files=settings.integer("files", 1024, least=1),
            items=settings.choice("items", ("files", "directories", "both"), "files"),
            bytes=settings.bytes("bytes", 0),
            depth=settings.integer("depth", 0),
            branch=settings.integer("branch", 1, least=1),
            leaf_only=settings.flag("leaf_only", False),
            unique=settings.flag("unique", False),
            verify=settings.choice("verify", ("content", "none"), "content"),
            program=settings.text("program", os.environ.get("TERRACE_GEN", "terrace-gen")),
        )
        settings.finish()
        parameters._validate(settings)
        return parameters

    def _validate(self, settings: Settings) -> None:
        check_phases(settings, self.phases, _PHASES)
        if self.xfer == 0:
            raise settings.error("xfer", "must not be 0")
        if self.block is not None and (self.block == 0 or self.block % self.xfer):
            raise settings.error("block", f"must be a multiple of xfer, {self.xfer}")
        if "read-files" in self.phases and self.items == "directories":
            raise settings.error("items", "directories cannot be read; leave out read-files")

    def block_bytes(self, bytes_per_client: int | None) -> int:
        """Whole transfers; at least one."""
        if self.block is not None:
            return self.block
        size = (bytes_per_client or DEFAULT_BYTES_PER_CLIENT) // self.processes // self.segments
        return max(size - size % self.xfer, self.xfer)

    def process_bytes(self, bytes_per_client: int | None) -> int:
        return self.block_bytes(bytes_per_client) * self.segments

    def items_of(self, phase: str) -> int:
        """Operations of one process in a phase of names."""
        return self.files * (2 if self.items == "both" and phase != "read-files" else 1)


@dataclass(slots=True)
class _Member:
    """The clients of one host, whose processes one command starts."""

    host: Host
    clients: list[Client]
    first_rank: int


def create(name: str, settings: Settings) -> Gen:
    return Gen(name, *parameters_table(settings))


class Gen(Configured[Parameters]):
    """One group of processes over all clients, which begin each phase together."""

    def _read(self, settings: Settings) -> Parameters:
        return Parameters.read(settings)

    def check(self, hosts: Mapping[str, Host]) -> list[Problem]:
        return missing(
            hosts,
            self._parameters.program,
            "build it with `cargo build --release -p terrace-gen` and put it on the PATH, or name "
            "it in `program` or TERRACE_GEN",
        )

    def describe(self) -> Mapping[str, Any]:
        about = dataclasses.asdict(self._parameters)
        # Where it lies changes nothing of the work.
        del about["program"]
        return {"kind": "gen", **about}

    def space_bytes(self, clients: int, bytes_per_client: int | None) -> int:
        parameters = self._parameters
        total = 0
        if any(phase in _DATA for phase in parameters.phases):
            total += parameters.process_bytes(bytes_per_client)
        if any(phase not in _DATA for phase in parameters.phases):
            file_bytes = parameters.bytes + -parameters.bytes % 4096
            total += parameters.items_of("create") * (NAME_BYTES + file_bytes)
        return clients * parameters.processes * total

    def prepare(self, context: Context) -> None:
        """Makes directories, and what is read before it is written."""
        parameters = self._parameters
        for client in context.clients:
            places = [str(client.shared / f"gen-{kind}") for kind in ("data", "names")]
            on_client(client, ["mkdir", "-p", *places], "mkdir")
        if _is_laid_out(parameters):
            block = parameters.block_bytes(context.bytes_per_client)
            xfer = LAYOUT_BYTES if block % LAYOUT_BYTES == 0 else parameters.xfer
            whole = dataclasses.replace(
                parameters, phases=("write",), xfer=xfer, block=block, stonewall=0.0, direct=False
            )
            self._run(context, whole, "write", "layout")
        names = [phase for phase in parameters.phases if phase not in _DATA]
        if names and names[0] != "create":
            self._run(context, parameters, "create", "layout-names")

    def phases(self, context: Context) -> Sequence[PhaseSpec]:
        parameters = self._parameters
        return [
            PhaseSpec(
                name,
                _PHASES[name].unit,
                _PHASES[name].direction,
                is_fixed_time=_seconds(parameters, name) > 0,
                has_flush_tail=_PHASES[name].has_flush_tail,
            )
            for name in parameters.phases
        ]

    def run(self, context: Context, phase: PhaseSpec) -> Result:
        return self._run(context, self._parameters, phase.name, phase.name)

    def verify(self, context: Context) -> Verdict:
        parameters = self._parameters
        names = [phase for phase in parameters.phases if phase not in _DATA]
        if "remove" in names:
            for client in context.clients:
                place = str(client.shared / "gen-names")
                if on_client(client, ["find", place, "-mindepth", "1"], "look for files"):
                    return Verdict(False, f"files are left after remove client={client.index}")
        if parameters.verify == "none":
            return Verdict(True, "nothing was compared, as the experiment says")
        told = ["what was removed is gone"] if "remove" in names else []
        whole = dataclasses.replace(parameters, stonewall=0.0, seconds=0.0)
        try:
            if any(phase in _DATA for phase in parameters.phases):
                self._run(context, whole, "read", "verify", ["-R"])
                told.append("all bytes are those that were written")
            if names and "remove" not in names:
                if parameters.items == "directories":
                    self._run(context, whole, "stat", "verify-names")
                else:
                    self._run(context, whole, "read-files", "verify-names", ["-R"])
                told.append("all items are there, with their bytes")
        except PhaseFailed as error:
            return Verdict(False, str(error))
        return Verdict(True, "; ".join(told))

    def _run(
        self,
        context: Context,
        parameters: Parameters,
        phase: str,
        label: str,
        more: Sequence[str] = (),
    ) -> Result:
        members = _members(context, parameters)
        total = len(context.clients) * parameters.processes
        pattern = [*_pattern(context, parameters, phase, members), *more]
        # One that is known from the command line of another process would be none.
        secret = f"/tmp/terrace-gen-{secrets.token_hex(16)}"
        content = secrets.token_hex(32).encode()
        own = [member.clients[0] for member in members]
        groups = [["--processes", str(total)]]
        if len(members) > 1:
            groups = [
                [*words, "--secret-file", secret] for words in _group(members, parameters, total)
            ]
        commands = [
            Command(
                [
                    parameters.program,
                    _PHASES[phase].command,
                    *_place(client, phase),
                    *pattern,
                    *words,
                    f"--timeout={TIMEOUT_SECONDS}",
                ],
                timeout_s=TIMEOUT_SECONDS + 60.0,
            )
            for client, words in zip(own, groups, strict=True)
        ]
        try:
            if len(members) > 1:
                for member in members:
                    member.host.write_file(secret, content, 0o600)
            ended = launch(dataclasses.replace(context, clients=own), label, commands)
        finally:
            if len(members) > 1:
                for client in own:
                    on_client(client, ["rm", "-f", secret], "remove the secret")
        report = _parse(ended[0].stdout)
        seconds = _seconds(parameters, phase)
        work = _work(context, parameters, phase, report, is_fixed=seconds == 0)
        parts = report["processes"]
        spans = _spans(context, parameters, members, parts)
        latency = report["latency"]
        named = latency["percentiles_ns"] or {}
        return Result(
            work=work,
            spans=spans,
            latency_s={name: ns / 1e9 for name, ns in named.items() if name.startswith("p")},
            latency_ecdf=[(ns / 1e9, part) for ns, part in latency["ecdf_ns"]],
            commands=[list(command.argv) for command in commands],
            extra={"sync_s": max(part["sync_ns"] for part in parts) / 1e9},
            notes=_notes(parts, seconds),
        )


def _is_laid_out(parameters: Parameters) -> bool:
    """Whether files are there, whole, before the first phase."""
    data = [phase for phase in parameters.phases if phase in _DATA]
    # One that is ended early would leave others nothing to read at its end.
    return bool(data) and (data[0] != "write" or parameters.stonewall > 0)


def _seconds(parameters: Parameters, phase: str) -> float:
    """How long a phase goes on; 0 where its work is fixed."""
    if phase not in _DATA:
        return 0.0
    return parameters.seconds if _PHASES[phase].is_random else parameters.stonewall


def _members(context: Context, parameters: Parameters) -> list[_Member]:
    """Clients by their hosts, in the order in which those appear."""
    members: dict[str, _Member] = {}
    for client in context.clients:
        member = members.setdefault(client.host.name, _Member(client.host, [], 0))
        member.clients.append(client)
    rank = 0
    for member in members.values():
        member.first_rank = rank
        rank += len(member.clients) * parameters.processes
    return list(members.values())


def _group(members: Sequence[_Member], parameters: Parameters, total: int) -> list[list[str]]:
    """What tells each host how to find the others: the first one coordinates."""
    first = members[0].clients[0]
    # Without what takes Python long to start.
    port = on_client(first, ["python3", "-ISc", _FREE_PORT], "find a free port").strip()
    is_local = all(member.host.address == "localhost" for member in members)
    listen = "127.0.0.1" if is_local else "0.0.0.0"
    address = "127.0.0.1" if is_local else first.host.address
    counts = [len(member.clients) * parameters.processes for member in members]
    words = [["--listen", f"{listen}:{port}", "--workers", str(total - counts[0])]]
    words += [
        ["--join", f"{address}:{port}", "--first-rank", str(member.first_rank)]
        for member in members[1:]
    ]
    return [[*one, "--processes", str(count)] for one, count in zip(words, counts, strict=True)]


def _place(client: Client, phase: str) -> list[str]:
    if phase in _DATA:
        return ["-o", str(client.shared / "gen-data" / "data")]
    return ["-d", str(client.shared / "gen-names")]


def _pattern(
    context: Context, parameters: Parameters, phase: str, members: Sequence[_Member]
) -> list[str]:
    """What all processes are told alike."""
    argv = [f"--seed={context.seed % 2**63}", f"--threads={parameters.threads}"]
    shift = 0
    if parameters.reorder and len(context.clients) > 1:
        # Past all processes of a host; where there is one host only, of a client.
        hosted = max(len(member.clients) for member in members) if len(members) > 1 else 1
        shift = hosted * parameters.processes
    if phase not in _DATA:
        argv += ["-n", str(parameters.files), "-z", str(parameters.depth)]
        argv += ["-b", str(parameters.branch)]
        argv += ["-L"] * parameters.leaf_only + ["-u"] * parameters.unique
        if phase != "create":
            argv += ["-N", str(shift)]
        if phase == "create":
            argv += ["-w", str(parameters.bytes)]
        if phase == "read-files":
            return [*argv, "-e", str(parameters.bytes)]
        kinds = {"files": ["-F"], "directories": ["-D"], "both": []}
        return [*argv, *kinds[parameters.items]]
    kind = _PHASES[phase]
    argv += ["-t", str(parameters.xfer), "-s", str(parameters.segments), "-k"]
    argv += ["-b", str(parameters.block_bytes(context.bytes_per_client))]
    argv += ["-F"] * parameters.fpp + ["-z"] * kind.is_random + ["--direct"] * parameters.direct
    if kind.command == "read":
        argv += ["-C", str(shift)]
    else:
        argv += ["-e"] + ["-Y"] * parameters.fsync_per_write
        argv += ["-E"] * (kind.is_random or _is_laid_out(parameters))
    seconds = _seconds(parameters, phase)
    if seconds > 0:
        argv += ["--duration" if kind.is_random else "--stonewall", f"{seconds:g}"]
    return argv


def _parse(text: str) -> dict[str, Any]:
    try:
        report = json.loads(text)
    except ValueError as error:
        raise PhaseFailed(f"cannot understand terrace-gen: {error}") from ParseError(text[:200])
    if not isinstance(report, dict) or report.get("schema") != 1:
        raise PhaseFailed("cannot understand terrace-gen: its report is not of schema 1")
    return report


def _work(
    context: Context,
    parameters: Parameters,
    phase: str,
    report: Mapping[str, Any],
    *,
    is_fixed: bool,
) -> float:
    """What was done; `PhaseFailed` where it is not what was to be."""
    process = parameters.process_bytes(context.bytes_per_client) // parameters.xfer
    expected = process if phase in _DATA else parameters.items_of(phase)
    expected *= parameters.processes * len(context.clients)
    done = report["total"]["operations"]
    if done == 0 or (is_fixed and done != expected):
        raise PhaseFailed(
            f"cannot {phase}: terrace-gen did not do what it was told to "
            f"expected_operations={expected} done_operations={done}"
        )
    return float(report["total"]["bytes"] if _PHASES[phase].unit == "B" else done)


def _spans(
    context: Context,
    parameters: Parameters,
    members: Sequence[_Member],
    parts: Sequence[Mapping[str, Any]],
) -> list[Span]:
    """From the first begin to the last end of the processes of each client."""
    by_rank = {part["rank"]: part for part in parts}
    spans: dict[int, Span] = {}
    for member in members:
        for number, client in enumerate(member.clients):
            first = member.first_rank + number * parameters.processes
            own = [by_rank[first + process] for process in range(parameters.processes)]
            begin = min((part["begin"] for part in own), key=lambda stamp: stamp["raw_ns"])
            end = max((part["end"] for part in own), key=lambda stamp: stamp["raw_ns"])
            spans[client.index] = Span(client.host.name, _stamp(begin), _stamp(end))
    return [spans[client.index] for client in context.clients]


def _stamp(value: Mapping[str, int]) -> Stamp:
    return Stamp(value["real_ns"], value["raw_ns"])


def _notes(parts: Sequence[Mapping[str, Any]], seconds: float) -> list[str]:
    ended = sum(part["is_stonewalled"] for part in parts)
    if not ended:
        return []
    return [f"{ended} of {len(parts)} processes were ended after {seconds:g} s"]
