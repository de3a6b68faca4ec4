# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Data and names by fio: sequential, random and mixed accesses; create, stat and delete.

docs/reference/lab-workloads.md has the parameters. Each phase is one invocation on each client.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from terrace_lab.errors import PhaseFailed
from terrace_lab.hosts import Command, Ended, Host
from terrace_lab.records import Stamp
from terrace_lab.settings import Settings
from terrace_lab.workloads import fio_output
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
from terrace_lab.workloads.configured import Configured, check_phases, missing, with_preset
from terrace_lab.workloads.launch import launch, on_client, parameters_table

TIMEOUT_SECONDS = 6 * 3600.0
DEFAULT_BYTES_PER_CLIENT = 64 << 20

PRESETS: dict[str, dict[str, Any]] = {
    "sequential": {"phases": ["write", "read"], "xfer": "1MiB"},
    # IOR's `-t 1200k`: transfers of 1,228,800 bytes of one file, which no usual stripe divides.
    "shared-file": {"phases": ["write", "read"], "xfer": 1_228_800, "fpp": False},
    "iops": {"phases": ["randwrite", "randread"], "xfer": "4KiB"},
    "files": {"phases": ["create", "stat", "delete"], "files": 1024},
    # Processes x bytes of a request, as the study of power saving names them.
    "16x64KiB": {"phases": ["mixed"], "processes": 16, "xfer": "64KiB"},
    "1x4KiB": {"phases": ["mixed"], "processes": 1, "xfer": "4KiB"},
    "1x1GiB": {"phases": ["mixed"], "processes": 1, "xfer": "1GiB"},
}


@dataclass(frozen=True, slots=True)
class _Phase:
    mode: str
    """What `--rw` is; for names, the engine."""
    unit: str
    direction: Direction
    has_flush_tail: bool = False


_PHASES = {
    "write": _Phase("write", "B", Direction.WRITE, has_flush_tail=True),
    "read": _Phase("read", "B", Direction.READ),
    "randwrite": _Phase("randwrite", "ops", Direction.IOPS, has_flush_tail=True),
    "randread": _Phase("randread", "ops", Direction.IOPS),
    "mixed": _Phase("randrw", "ops", Direction.IOPS, has_flush_tail=True),
    "create": _Phase("filecreate", "files", Direction.METADATA),
    "stat": _Phase("filestat", "files", Direction.METADATA),
    "delete": _Phase("filedelete", "files", Direction.METADATA, has_flush_tail=True),
}
_NAMES = ("create", "stat", "delete")
_RANDOM = ("randwrite", "randread", "mixed")

# Each process of fio tells by these when its work begins, with its files laid out, and when it is
# done, synced. What fio appends to the command, a redirection to a file, is in a comment.
_BEGIN = "date +lab-begin:%s%N >&2 #"
_END = "date +lab-end:%s%N >&2 #"
_MARK = re.compile(r"^lab-(begin|end):(\d{19})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Parameters:
    phases: tuple[str, ...]
    processes: int
    xfer: int
    fpp: bool
    size: int | None
    """Bytes of each process; None: those of the client by its processes."""
    files: int
    """Of each process, for create, stat and delete."""
    engine: str
    depth: int
    direct: bool
    seconds: float
    """How long random phases go on; 0: until each block had its turn."""
    read_percent: int
    reorder: bool
    verify: str
    program: str

    @classmethod
    def read(cls, settings: Settings) -> Parameters:
        merged = with_preset(settings, PRESETS, cls.__slots__)
        parameters = cls(
            phases=merged.texts("phases", ("write", "read")),
            processes=merged.integer("processes", 1, least=1),
            xfer=merged.bytes("xfer", "1MiB"),
            fpp=merged.flag("fpp", True),
            size=merged.bytes("size") if "size" in merged else None,
            files=merged.integer("files", 1024, least=1),
            engine=merged.text("engine", "psync"),
            depth=merged.integer("depth", 1, least=1),
            direct=merged.flag("direct", False),
            seconds=merged.seconds("seconds", 0),
            read_percent=merged.integer("read_percent", 50),
            reorder=merged.flag("reorder", True),
            verify=merged.choice("verify", ("size", "content"), "size"),
            program=merged.text("program", "fio"),
        )
        parameters._validate(merged)
        return parameters

    def _validate(self, settings: Settings) -> None:
        check_phases(settings, self.phases, _PHASES)
        if self.xfer == 0:
            raise settings.error("xfer", "must not be 0")
        if self.read_percent > 100:
            raise settings.error("read_percent", "must not be above 100")
        if self.depth > 1 and self.engine in ("sync", "psync", "pvsync", "vsync"):
            raise settings.error("depth", f"engine {self.engine} has one request at a time")

    def process_bytes(self, bytes_per_client: int | None) -> int:
        """Whole blocks for one process; at least one."""
        size = self.size
        if size is None:
            size = (bytes_per_client or DEFAULT_BYTES_PER_CLIENT) // self.processes
        return max(size - size % self.xfer, self.xfer)


def create(name: str, settings: Settings) -> Fio:
    return Fio(name, *parameters_table(settings))


class Fio(Configured[Parameters]):
    """One fio on each client, with as many processes as asked for."""

    def _read(self, settings: Settings) -> Parameters:
        return Parameters.read(settings)

    def check(self, hosts: Mapping[str, Host]) -> list[Problem]:
        return missing(hosts, self._parameters.program, "Debian package fio")

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "fio", **dataclasses.asdict(self._parameters)}

    def space_bytes(self, clients: int, bytes_per_client: int | None) -> int:
        parameters = self._parameters
        total = 0
        if any(phase not in _NAMES for phase in parameters.phases):
            total += parameters.processes * parameters.process_bytes(bytes_per_client)
        if any(phase in _NAMES for phase in parameters.phases):
            # 4 KiB: what an inode and a name may take.
            total += parameters.processes * parameters.files * 4096
        return clients * total

    def prepare(self, context: Context) -> None:
        """Makes directories, the file that is shared, and what is read before it is written."""
        parameters = self._parameters
        for client in context.clients:
            for kind in ("data", "names"):
                # On its own host: where nothing is shared, each needs those that it works in.
                for other in context.clients:
                    on_client(
                        client, ["mkdir", "-p", str(_directory(client, other, kind))], "mkdir"
                    )
        data = [phase for phase in parameters.phases if phase not in _NAMES]
        names = [phase for phase in parameters.phases if phase in _NAMES]
        if data and not parameters.fpp:
            size = parameters.processes * parameters.process_bytes(context.bytes_per_client)
            file = _shared_file(context.clients[0])
            total = str(len(context.clients) * size)
            # With its size, or whoever of fio comes later would cut it to nothing first.
            on_client(context.clients[0], ["truncate", "-s", total, str(file)], "make the file")
        if data and data[0] != "write":
            self._run(context, parameters, "write", "layout")
        if names and names[0] != "create":
            self._run(context, parameters, "create", "layout-names")

    def phases(self, context: Context) -> Sequence[PhaseSpec]:
        parameters = self._parameters
        return [
            PhaseSpec(
                name,
                _PHASES[name].unit,
                _PHASES[name].direction,
                is_fixed_time=name in _RANDOM and parameters.seconds > 0,
                has_flush_tail=_PHASES[name].has_flush_tail,
            )
            for name in parameters.phases
        ]

    def run(self, context: Context, phase: PhaseSpec) -> Result:
        return self._run(context, self._parameters, phase.name, phase.name)

    def verify(self, context: Context) -> Verdict:
        parameters = self._parameters
        if "delete" in parameters.phases:
            for client in context.clients:
                left = _count_files(client, "names")
                if left:
                    return Verdict(False, f"{left} files left after delete client={client.index}")
        if all(phase in _NAMES for phase in parameters.phases):
            return Verdict(True, "what was deleted is gone; names have no content to compare")
        if parameters.verify == "content":
            try:
                self._run(context, parameters, "read", "verify", ["--verify_fatal=1"])
            except PhaseFailed as error:
                return Verdict(False, str(error))
            return Verdict(True, "each block has the checksum that was written with it")
        return self._verify_sizes(context, parameters)

    def _verify_sizes(self, context: Context, parameters: Parameters) -> Verdict:
        expected = parameters.process_bytes(context.bytes_per_client)
        for client in context.clients:
            if parameters.fpp:
                files = [
                    _directory(client, client, "data") / f"fio.{process}.0"
                    for process in range(parameters.processes)
                ]
                size = expected
            else:
                files = [_shared_file(client)]
                size = expected * parameters.processes * len(context.clients)
            try:
                sizes = on_client(client, ["stat", "-c", "%s", *map(str, files)], "stat")
            except PhaseFailed as error:
                return Verdict(False, str(error))
            if sizes.split() != [str(size)] * len(files):
                found = " ".join(sizes.split())
                return Verdict(
                    False,
                    f"sizes are not as written client={client.index} expected={size} {found=}",
                )
        return Verdict(True, "sizes are as written; contents were not compared")

    def _run(
        self,
        context: Context,
        parameters: Parameters,
        phase: str,
        label: str,
        more: Sequence[str] = (),
    ) -> Result:
        commands = [
            Command(
                [*_command(context, parameters, phase, client.index), *more],
                # Where fio would leave files of its own.
                directory="/tmp",
                timeout_s=TIMEOUT_SECONDS,
            )
            for client in context.clients
        ]
        ended = launch(context, label, commands)
        outputs = [fio_output.parse(one.stdout) for one in ended]
        for client, output in zip(context.clients, outputs, strict=True):
            if output.errors:
                raise PhaseFailed(
                    f"cannot {phase}: fio has errors client={client.index} errno={output.errors}"
                )
        work = _work(context, parameters, phase, outputs)
        sides = [side for output in outputs for side in (output.read, output.write)]
        percentiles, steps = fio_output.latencies(sides)
        return Result(
            work=work,
            spans=[_span(client, one) for client, one in zip(context.clients, ended, strict=True)],
            latency_s=percentiles,
            latency_ecdf=steps,
            commands=[list(command.argv) for command in commands],
            extra=_extra(phase, outputs),
            notes=[
                f"client {client.index}: {note}"
                for client, output in zip(context.clients, outputs, strict=True)
                for note in output.notes
            ],
        )


def _command(context: Context, parameters: Parameters, phase: str, index: int) -> list[str]:
    count = len(context.clients)
    client = context.clients[index]
    # Whoever reads takes what the next one wrote, so that no host reads out of its own cache.
    is_reader = phase in ("read", "randread", "stat")
    owner = context.clients[(index + 1) % count] if is_reader and parameters.reorder else client
    argv = [
        parameters.program,
        "--name=fio",
        f"--numjobs={parameters.processes}",
        "--group_reporting",
        "--output-format=json+",
        "--fallocate=none",
        f"--randseed={context.seed + owner.index + 1}",
        f"--exec_prerun={_BEGIN}",
        f"--exec_postrun={_END}",
    ]
    if phase in _NAMES:
        return [
            *argv,
            f"--directory={_directory(client, owner, 'names')}",
            f"--ioengine={_PHASES[phase].mode}",
            f"--nrfiles={parameters.files}",
            "--openfiles=1",
            # Else it looks through all files for each one, and that is what would be measured.
            "--file_service_type=sequential",
            # The open must happen in the run; the size is never written but must not be 0.
            "--create_on_open=1",
            "--filesize=4k",
        ]
    size = parameters.process_bytes(context.bytes_per_client)
    argv += [
        f"--rw={_PHASES[phase].mode}",
        f"--bs={parameters.xfer}",
        f"--size={size}",
        f"--ioengine={parameters.engine}",
        f"--iodepth={parameters.depth}",
        f"--direct={int(parameters.direct)}",
        # Elsewhere some processors copy out of the page cache at a third of their speed.
        "--mem_align=4096",
    ]
    if parameters.fpp:
        argv.append(f"--directory={_directory(client, owner, 'data')}")
    else:
        argv += [
            f"--filename={_shared_file(client)}",
            f"--offset={owner.index * parameters.processes * size}",
            f"--offset_increment={size}",
        ]
    if phase in ("write", "randwrite", "mixed"):
        argv.append("--end_fsync=1")
    if phase == "mixed":
        argv.append(f"--rwmixread={parameters.read_percent}")
    if phase in _RANDOM and parameters.seconds > 0:
        argv += ["--time_based", f"--runtime={round(parameters.seconds * 1000)}ms"]
    if parameters.verify == "content":
        argv += ["--verify=crc32c", "--do_verify=0", "--verify_state_save=0"]
    return argv


def _work(
    context: Context, parameters: Parameters, phase: str, outputs: Sequence[fio_output.Output]
) -> float:
    """What was done; `PhaseFailed` where it is less than it was to be."""
    size = parameters.process_bytes(context.bytes_per_client)
    total = 0
    for client, output in zip(context.clients, outputs, strict=True):
        operations = output.read.operations + output.write.operations
        done = output.read.bytes_done + output.write.bytes_done
        if phase in _NAMES:
            expected, found = parameters.processes * parameters.files, operations
        else:
            expected, found = parameters.processes * size, done
        if phase in _RANDOM and parameters.seconds > 0:
            expected = 1
        if found < expected:
            raise PhaseFailed(
                f"cannot {phase}: fio did less than it was told to "
                f"client={client.index} expected={expected} done={found}"
            )
        total += done if _PHASES[phase].unit == "B" else operations
    return float(total)


def _span(client: Client, ended: Ended) -> Span:
    """From the first mark of any process to the last, which leaves out how long fio starts."""
    marks = {"begin": list[int](), "end": list[int]()}
    for what, time in _MARK.findall(ended.stderr):
        marks[what].append(int(time))
    if not marks["begin"] or len(marks["begin"]) != len(marks["end"]):
        raise PhaseFailed(
            f"cannot tell when fio was at work: {len(marks['begin'])} begins and "
            f"{len(marks['end'])} ends client={client.index}"
        )
    # `date` has the one clock only; the other goes beside it since the start of the command.
    begin, end = (
        Stamp(real_ns, ended.begin.raw_ns + real_ns - ended.begin.real_ns)
        for real_ns in (min(marks["begin"]), max(marks["end"]))
    )
    if not ended.begin.real_ns <= begin.real_ns <= end.real_ns <= ended.end.real_ns:
        raise PhaseFailed(
            f"cannot tell when fio was at work: the clock of the host was set meanwhile "
            f"client={client.index} host={client.host.name}"
        )
    return Span(client.host.name, begin, end)


def _extra(phase: str, outputs: Sequence[fio_output.Output]) -> dict[str, float]:
    if phase != "mixed":
        return {}
    return {
        "reads": float(sum(output.read.operations for output in outputs)),
        "writes": float(sum(output.write.operations for output in outputs)),
    }


def _directory(client: Client, owner: Client, kind: str) -> PurePosixPath:
    """Where the files of `owner` are, as `client` sees it."""
    return client.shared / f"fio-{kind}" / f"client-{owner.index}"


def _shared_file(client: Client) -> PurePosixPath:
    return client.shared / "fio-data" / "all"


def _count_files(client: Client, kind: str) -> int:
    directory = str(_directory(client, client, kind))
    return len(on_client(client, ["find", directory, "-type", "f"], "count files").splitlines())
