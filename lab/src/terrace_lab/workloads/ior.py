# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Parallel sequential access by IOR, each phase an invocation; by `gen` where there is no IOR."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from terrace_lab import workloads
from terrace_lab.errors import PhaseFailed
from terrace_lab.hosts import Host
from terrace_lab.settings import Settings
from terrace_lab.workloads import ior_output, mpi
from terrace_lab.workloads.base import (
    Context,
    Direction,
    PhaseSpec,
    Problem,
    Result,
    Verdict,
    Workload,
)
from terrace_lab.workloads.configured import Configured, with_preset
from terrace_lab.workloads.fallback import Fallback
from terrace_lab.workloads.launch import on_client, parameters_table

DEFAULT_BYTES_PER_CLIENT = 64 << 20
# IOR prints four to six digits; a run that was cut short is off by more.
ROUNDING = 0.02

PRESETS: dict[str, dict[str, Any]] = {
    "multi-stream": {"xfer": "2MiB", "fpp": True},
    "shared-file": {"xfer": 1_200_000, "fpp": False},
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
    table: dict[str, Any] = {
        "phases": list(parameters.phases),
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
        specs = {
            "write": PhaseSpec("write", "B", Direction.WRITE, has_flush_tail=True),
            "read": PhaseSpec("read", "B", Direction.READ),
        }
        return [specs[name] for name in self._parameters.phases]

    def run(self, context: Context, phase: PhaseSpec) -> Result:
        parameters = self._parameters
        argv = _argv(context, parameters, phase.name)
        ended = mpi.run(context, phase.name, argv, parameters.processes)
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

    def verify(self, context: Context) -> Verdict:
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
    argv = [
        "ior",
        *("-a", parameters.api, "-t", str(parameters.xfer)),
        *("-b", str(parameters.process_bytes(context.bytes_per_client)), "-s", "1"),
        *("-o", str(context.clients[0].shared / "ior" / "file")),
        # Files stay: for the phase that reads them, and for the check.
        *("-k", "-e", "-w" if phase == "write" else "-r"),
    ]
    if parameters.fpp:
        argv.append("-F")
    if parameters.reorder and phase == "read" and len(context.clients) > 1:
        # By the processes of a host, so that none reads what its own host wrote.
        argv += ["-C", "-Q", str(parameters.processes)]
    if parameters.memory:
        argv += ["-M", parameters.memory]
    return argv
