# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Parallel sequential access by IOR, each phase an invocation; by `gen` where there is no IOR."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from terrace_lab import workloads
from terrace_lab.errors import PhaseFailed
from terrace_lab.hosts import Ended, Host
from terrace_lab.settings import Settings
from terrace_lab.workloads import ior_output, mpi
from terrace_lab.workloads.base import (
    Context,
    Direction,
    PhaseSpec,
    Problem,
    Result,
    Span,
    Verdict,
    Workload,
)
from terrace_lab.workloads.configured import Configured, letters, with_preset
from terrace_lab.workloads.fallback import Fallback
from terrace_lab.workloads.launch import on_client, parameters_table

DEFAULT_BYTES_PER_CLIENT = 64 << 20
# IOR prints four to six digits; a run that was cut short is off by more.
ROUNDING = 0.02

PRESETS: dict[str, dict[str, Any]] = {
    "multi-stream": {"xfer": "2MiB", "fpp": True},
    # IOR's `-t 1200k`, whose letters stand for powers of 1024.
    "shared-file": {"xfer": 1_228_800, "fpp": False},
}


@dataclass(frozen=True, slots=True)
class Parameters:
    api: str
    phases: tuple[str, ...]
    fpp: bool
    xfer: int
    block: int | None
    """Bytes of each process; None: those of the client by its processes."""
    processes: int
    reorder: bool
    memory: str
    """What IOR fills of the memory of a client before it begins, as `85%`; empty: nothing."""
    random: bool
    """Offsets in random order, each once: `-z`."""
    fsync: bool
    """Data is on stable storage before a file is closed: `-e`."""
    whole: bool
    """One invocation for all phases and repetitions, as studies publish it."""
    iterations: int
    """Of one invocation, where it is whole; else repetitions are those of the lab."""
    pause: int
    """Seconds between them."""

    @classmethod
    def read(cls, settings: Settings) -> Parameters:
        merged = with_preset(settings, PRESETS, cls.__slots__)
        phases = merged.texts("phases", ("write", "read"))
        if phases not in (("write",), ("write", "read")):
            raise settings.error("phases", f"must be write, or write and read, not {phases}")
        xfer = merged.bytes("xfer", "1MiB")
        if xfer == 0:
            raise settings.error("xfer", "must not be 0")
        return cls(
            api=merged.choice("api", ("POSIX", "MPIIO", "HDF5"), "POSIX"),
            phases=phases,
            fpp=merged.flag("fpp", True),
            xfer=xfer,
            block=merged.bytes("block") if "block" in merged else None,
            processes=merged.integer("processes", 1, least=1),
            reorder=merged.flag("reorder", True),
            memory=merged.text("memory", ""),
            random=merged.flag("random", False),
            fsync=merged.flag("fsync", True),
            whole=merged.flag("whole", False),
            iterations=merged.integer("iterations", 1, least=1),
            pause=merged.integer("pause", 0),
        )

    def process_bytes(self, bytes_per_client: int | None) -> int:
        block = self.block or (bytes_per_client or DEFAULT_BYTES_PER_CLIENT) // self.processes
        return max(block - block % self.xfer, self.xfer)


def create(name: str, settings: Settings) -> Fallback:
    where, values = parameters_table(settings)
    ior = Ior(name, where, values)
    return Fallback("ior", "ior", ior, lambda: _gen(name, where, values))


def _gen(name: str, where: str, values: Mapping[str, Any]) -> Workload:
    """The same pattern under the same names; POSIX alone, and without filling memory."""
    parameters = Parameters.read(Settings(where, values))
    if parameters.api != "POSIX" or parameters.memory:
        key = "api" if parameters.api != "POSIX" else "memory"
        raise Settings(where, values).error(key, "needs ior, which is not there")
    phases = [f"rand{one}" if parameters.random else one for one in parameters.phases]
    table: dict[str, Any] = {
        "phases": phases,
        "fpp": parameters.fpp,
        "xfer": parameters.xfer,
        "processes": parameters.processes,
        "reorder": parameters.reorder,
    }
    if parameters.block is not None:
        table["block"] = parameters.process_bytes(None)
    return workloads.create(name, Settings(where, {"kind": "gen", "params": table}))


class Ior(Configured[Parameters]):
    """IOR over all clients."""

    def _read(self, settings: Settings) -> Parameters:
        return Parameters.read(settings)

    def check(self, hosts: Mapping[str, Host]) -> list[Problem]:
        return mpi.check(hosts, self._parameters.processes)

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "ior", **dataclasses.asdict(self._parameters)}

    def space_bytes(self, clients: int, bytes_per_client: int | None) -> int:
        one = self._parameters
        return clients * one.processes * one.process_bytes(bytes_per_client)

    def prepare(self, context: Context) -> None:
        """Makes the directory; IOR makes the files."""
        directory = str(context.clients[0].shared / "ior")
        on_client(context.clients[0], ["mkdir", "-p", directory], "make the directory")

    def phases(self, context: Context) -> Sequence[PhaseSpec]:
        if self._parameters.whole:
            name = "+".join(self._parameters.phases)
            return [PhaseSpec(name, "B", Direction.NONE, has_flush_tail=True)]
        specs = {
            "write": PhaseSpec("write", "B", Direction.WRITE, has_flush_tail=True),
            "read": PhaseSpec("read", "B", Direction.READ),
        }
        return [specs[name] for name in self._parameters.phases]

    def run(self, context: Context, phase: PhaseSpec) -> Result:
        parameters = self._parameters
        argv = _argv(context, parameters, phase.name)
        ended = mpi.run(context, phase.name, argv, parameters.processes)
        if parameters.whole:
            return self._whole(context, ended)
        output = ior_output.parse(ended.stdout, phase.name)
        work = self._bytes(context, parameters)
        told = output.access.mib_s * output.access.total_s * 1024 * 1024
        if output.bytes_moved not in (None, work) or abs(told - work) > ROUNDING * work:
            raise PhaseFailed(
                f"cannot {phase.name}: ior did not move what it was told to "
                f"expected={work} moved={output.bytes_moved or round(told)}"
            )
        return Result(
            work=float(work),
            spans=mpi.spans(context, ended, output.access.total_s),
            commands=[list(ended.argv)],
            extra={"command_s": (ended.end.raw_ns - ended.begin.raw_ns) / 1e9},
            notes=[mpi.NOTE, *output.notes],
        )

    def _whole(self, context: Context, ended: Ended) -> Result:
        """Of all repetitions together; the time has the pauses between them in it."""
        parameters = self._parameters
        work, extra = 0, {}
        for name in parameters.phases:
            found = ior_output.parse_all(ended.stdout, name)
            if len(found) != parameters.iterations:
                raise PhaseFailed(
                    f"cannot {name}: ior made {len(found)} of {parameters.iterations} repetitions"
                )
            work += len(found) * self._bytes(context, parameters)
            mean_mib_s = statistics.fmean(one.mib_s for one in found)
            extra[f"{name}_b_per_s"] = mean_mib_s * 1024 * 1024
            extra[f"{name}_s"] = sum(one.total_s for one in found)
        span = Span(context.clients[0].host.name, ended.begin, ended.end)
        return Result(
            work=float(work),
            spans=[span for _ in context.clients],
            commands=[list(ended.argv)],
            extra=extra,
            notes=["one invocation: phases have no energy of their own, pauses are in the time"],
        )

    def verify(self, context: Context) -> Verdict:
        if self._parameters.whole:
            return Verdict(True, "ior has removed its files; contents were not compared")
        directory = str(context.clients[0].shared / "ior")
        sizes = on_client(
            context.clients[0], ["find", directory, "-type", "f", "-printf", "%s\\n"], "find"
        )
        found, expected = sum(map(int, sizes.split())), self._bytes(context, self._parameters)
        text = f"files have {found} of {expected} bytes; contents were not compared"
        return Verdict(found == expected, text)

    def _bytes(self, context: Context, parameters: Parameters) -> int:
        one = parameters.process_bytes(context.bytes_per_client)
        return len(context.clients) * parameters.processes * one


def _argv(context: Context, parameters: Parameters, phase: str) -> list[str]:
    size = letters(parameters.process_bytes(context.bytes_per_client))
    argv = ["ior", "-a", parameters.api, "-t", letters(parameters.xfer), "-b", size, "-s", "1"]
    memory = ["-M", parameters.memory] if parameters.memory else []
    sync = ["-e"] * parameters.fsync
    fpp = ["-F"] * parameters.fpp + ["-z"] * parameters.random
    file = ["-o", str(context.clients[0].shared / "ior" / "file")]
    if parameters.whole:
        repeated = ["-i", str(parameters.iterations), "-d", str(parameters.pause)]
        reorder = ["-C"] * parameters.reorder
        return [*argv, *repeated, *reorder, *memory, *sync, *fpp, *file]
    # Files stay: for the phase that reads them, and for the check.
    argv += [*file, "-k", *sync, "-w" if phase == "write" else "-r", *fpp]
    if parameters.reorder and phase == "read" and len(context.clients) > 1:
        # By the processes of a host, so that none reads what its own host wrote.
        argv += ["-C"] + ["-Q", str(parameters.processes)] * (parameters.processes > 1)
    return [*argv, *memory]
