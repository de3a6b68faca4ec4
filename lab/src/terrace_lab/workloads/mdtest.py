# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Files and directories by mdtest, each phase an invocation; by `gen` where there is no mdtest."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from terrace_lab import workloads
from terrace_lab.errors import PhaseFailed
from terrace_lab.hosts import Host
from terrace_lab.settings import Settings
from terrace_lab.workloads import mdtest_output, mpi
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

PRESETS: dict[str, dict[str, Any]] = {
    # Files without bytes, 1024 for each process.
    "empty-files": {"files": 1024, "bytes": 0, "items": "files"},
    "large-directory": {"files": 50_000, "bytes": "1KiB"},
    # A binary tree of depth 4.
    "tree": {"files": 50_000, "bytes": "1KiB", "depth": 4, "branch": 2},
}

# Letter, and what the summary calls it.
_PHASES = {
    "create": ("-C", "creation"),
    "stat": ("-T", "stat"),
    "read-files": ("-E", "read"),
    "remove": ("-r", "removal"),
}


@dataclass(frozen=True, slots=True)
class Parameters:
    phases: tuple[str, ...]
    files: int
    """Of each process; of directories as many, where `items` has them."""
    items: str
    bytes: int  # noqa: A003 - of each file
    depth: int
    branch: int
    unique: bool
    """Each process has a directory of its own."""
    processes: int
    reorder: bool

    @classmethod
    def read(cls, settings: Settings) -> Parameters:
        merged = with_preset(settings, PRESETS, cls.__slots__)
        parameters = cls(
            phases=merged.texts("phases", tuple(_PHASES)),
            files=merged.integer("files", 1024, least=1),
            items=merged.choice("items", ("both", "files", "directories"), "both"),
            bytes=merged.bytes("bytes", "1KiB"),
            depth=merged.integer("depth", 0),
            branch=merged.integer("branch", 2 if merged.raw("depth", 0) else 1, least=1),
            unique=merged.flag("unique", False),
            processes=merged.integer("processes", 1, least=1),
            reorder=merged.flag("reorder", True),
        )
        order = tuple(one for one in _PHASES if one in parameters.phases)
        if parameters.phases != order or "create" not in order:
            raise settings.error(
                "phases", f"must be create and some of {', '.join(_PHASES)}, in order"
            )
        if _items(parameters) == 0:
            raise settings.error(
                "files", f"must be at least {_directories(parameters)}, one for each directory"
            )
        return parameters

    def nouns(self, phase: str) -> list[str]:
        """What the summary has a line of in a phase; only files are read."""
        nouns = {"both": ["Directory", "File"], "files": ["File"], "directories": ["Directory"]}
        return [one for one in nouns[self.items] if phase != "read-files" or one == "File"]


def create(name: str, settings: Settings) -> Fallback:
    where, values = parameters_table(settings)
    mdtest = Mdtest(name, where, values)
    return Fallback("mdtest", "mdtest", mdtest, lambda: _gen(name, where, values))


def _gen(name: str, where: str, values: Mapping[str, Any]) -> Workload:
    parameters = Parameters.read(Settings(where, values))
    table = {
        **dataclasses.asdict(parameters),
        "phases": [one for one in parameters.phases if parameters.nouns(one)],
        "files": _items(parameters),
    }
    return workloads.create(name, Settings(where, {"kind": "gen", "params": table}))


class Mdtest(Configured[Parameters]):
    """mdtest over all clients."""

    def _read(self, settings: Settings) -> Parameters:
        return Parameters.read(settings)

    def check(self, hosts: Mapping[str, Host]) -> list[Problem]:
        return mpi.check(hosts, self._parameters.processes)

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "mdtest", **dataclasses.asdict(self._parameters)}

    def space_bytes(self, clients: int, bytes_per_client: int | None) -> int:
        one = self._parameters
        # 4 KiB: what an inode and a name may take; as much for a file however small.
        file = 4096 + (one.bytes + 4095) // 4096 * 4096
        return clients * one.processes * one.files * (file + 4096)

    def prepare(self, context: Context) -> None:
        """Makes the directory that mdtest works in."""
        on_client(context.clients[0], ["mkdir", "-p", _directory(context)], "make the directory")

    def phases(self, context: Context) -> Sequence[PhaseSpec]:
        return [
            PhaseSpec(
                name, "files", Direction.METADATA, has_flush_tail=name in ("create", "remove")
            )
            for name in self._parameters.phases
            if self._parameters.nouns(name)
        ]

    def run(self, context: Context, phase: PhaseSpec) -> Result:
        parameters = self._parameters
        argv = _argv(context, parameters, phase.name)
        ended = mpi.run(context, phase.name, argv, parameters.processes)
        rates = mdtest_output.parse(ended.stdout)
        count = len(context.clients) * parameters.processes * _items(parameters)
        names = [f"{noun} {_PHASES[phase.name][1]}" for noun in parameters.nouns(phase.name)]
        missing = [name for name in names if name not in rates]
        if missing:
            raise PhaseFailed(f"cannot {phase.name}: mdtest has no rate of {', '.join(missing)}")
        # One kind after the other.
        seconds = sum(count / rates[name] for name in names)
        return Result(
            work=float(count * len(names)),
            spans=mpi.spans(context, ended, seconds),
            commands=[list(ended.argv)],
            extra={
                "command_s": (ended.end.raw_ns - ended.begin.raw_ns) / 1e9,
                **{f"{name.replace(' ', '_').lower()}_per_s": rates[name] for name in names},
            },
            notes=[mpi.NOTE],
        )

    def verify(self, context: Context) -> Verdict:
        parameters = self._parameters
        argv = ["find", _directory(context), "-type", "f"]
        found = len(on_client(context.clients[0], argv, "count files").splitlines())
        expected = 0
        if "remove" not in parameters.phases and parameters.items != "directories":
            expected = len(context.clients) * parameters.processes * _items(parameters)
        return Verdict(found == expected, f"{found} files are there of {expected}")


def _directory(context: Context) -> str:
    return str(context.clients[0].shared / "mdtest")


def _directories(parameters: Parameters) -> int:
    """Of the tree that mdtest spreads its items over."""
    return sum(parameters.branch**level for level in range(parameters.depth + 1))


def _items(parameters: Parameters) -> int:
    """Of each kind for each process: as many in each directory, so that a rest is left out."""
    return parameters.files // _directories(parameters) * _directories(parameters)


def _argv(context: Context, parameters: Parameters, phase: str) -> list[str]:
    argv = [
        "mdtest",
        *("-d", _directory(context), "-i", "1", _PHASES[phase][0]),
        *("-I", str(_items(parameters) // _directories(parameters))),
        *("-z", str(parameters.depth), "-b", str(parameters.branch)),
    ]
    if parameters.bytes and phase == "create":
        argv += ["-w", str(parameters.bytes)]
    if parameters.bytes and phase == "read-files":
        argv += ["-e", str(parameters.bytes)]
    if parameters.items != "both":
        argv.append("-F" if parameters.items == "files" else "-D")
    if parameters.unique:
        argv.append("-u")
    if parameters.reorder and phase != "create" and len(context.clients) > 1:
        argv += ["-N", str(parameters.processes)]
    return argv
