# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Files and directories by mdtest, each phase an invocation; by `gen` where there is no mdtest."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from terrace_lab import workloads
from terrace_lab.errors import PhaseFailed
from terrace_lab.hosts import Ended, Host
from terrace_lab.settings import Settings
from terrace_lab.workloads import mdtest_output, mpi
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
from terrace_lab.workloads.configured import Configured, with_preset
from terrace_lab.workloads.fallback import Divided, Fallback
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
    leaf_only: bool
    """Only the lowest directories of the tree have items: `-L`."""
    processes: int
    reorder: bool
    stride: int | None
    """`-N` as a study publishes it; None: past the processes of a host where `reorder` is set."""
    divide: bool
    """Counts of items are those of all clients, and each has its part of them."""
    per_directory: int | None
    """Items of each directory, `-I`; None: `files`, of the whole tree."""
    of_tree: bool
    """`files` is given to mdtest as `-n`, which divides it among the directories."""
    whole: bool
    """One invocation for all phases and repetitions, as studies publish it."""
    iterations: int
    pause: int
    """Seconds before each repetition, `-p`, where the invocation is whole."""

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
            leaf_only=merged.flag("leaf_only", False),
            processes=merged.integer("processes", 1, least=1),
            reorder=merged.flag("reorder", True),
            stride=merged.integer("stride") if "stride" in merged else None,
            divide=merged.flag("divide", False),
            per_directory=(
                merged.integer("per_directory", least=1) if "per_directory" in merged else None
            ),
            of_tree=merged.flag("of_tree", False),
            whole=merged.flag("whole", False),
            iterations=merged.integer("iterations", 1, least=1),
            pause=merged.integer("pause", 0),
        )
        order = tuple(one for one in _PHASES if one in parameters.phases)
        if parameters.phases != order or "create" not in order:
            raise settings.error(
                "phases", f"must be create and some of {', '.join(_PHASES)}, in order"
            )
        if _items(parameters, 1) == 0:
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
    if parameters.divide:
        return Divided(lambda clients: _gen_of(name, where, parameters, clients))
    return _gen_of(name, where, parameters, 1)


def _gen_of(name: str, where: str, parameters: Parameters, clients: int) -> Workload:
    kept = ("items", "bytes", "depth", "branch", "unique", "leaf_only", "processes", "reorder")
    table = {
        **{key: getattr(parameters, key) for key in kept},
        "phases": [one for one in parameters.phases if parameters.nouns(one)],
        "files": _items(parameters, clients),
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
        return clients * one.processes * _items(one, clients) * (file + 4096)

    def prepare(self, context: Context) -> None:
        """Makes the directory that mdtest works in."""
        on_client(context.clients[0], ["mkdir", "-p", _directory(context)], "make the directory")

    def phases(self, context: Context) -> Sequence[PhaseSpec]:
        if self._parameters.whole:
            return [PhaseSpec("all", "files", Direction.METADATA, has_flush_tail=True)]
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
        clients = len(context.clients)
        count = clients * parameters.processes * _items(parameters, clients)
        if parameters.whole:
            return _whole(context, parameters, ended, rates, count)
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
        is_removed = parameters.whole or "remove" in parameters.phases
        if not is_removed and parameters.items != "directories":
            clients = len(context.clients)
            expected = clients * parameters.processes * _items(parameters, clients)
        return Verdict(found == expected, f"{found} files are there of {expected}")


def _directory(context: Context) -> str:
    return str(context.clients[0].shared / "mdtest")


def _whole(
    context: Context,
    parameters: Parameters,
    ended: Ended,
    rates: Mapping[str, float],
    count: int,
) -> Result:
    """Of all phases and repetitions together; the time has the pauses between them in it."""
    names = [
        f"{noun} {_PHASES[phase][1]}"
        for phase in _PHASES
        for noun in parameters.nouns(phase)
        if f"{noun} {_PHASES[phase][1]}" in rates
    ]
    if not names:
        raise PhaseFailed("cannot read the output of mdtest: it has no rate of any phase")
    span = Span(context.clients[0].host.name, ended.begin, ended.end)
    return Result(
        work=float(count * len(names) * parameters.iterations),
        spans=[span for _ in context.clients],
        commands=[list(ended.argv)],
        extra={f"{name.replace(' ', '_').lower()}_per_s": rates[name] for name in names},
        notes=["one invocation: phases have no energy of their own, pauses are in the time"],
    )


def _directories(parameters: Parameters) -> int:
    """Of the tree that mdtest spreads its items over."""
    if parameters.leaf_only:
        return int(parameters.branch**parameters.depth)
    return sum(parameters.branch**level for level in range(parameters.depth + 1))


def _given(parameters: Parameters, clients: int) -> int:
    """The count that mdtest is given: of a directory, or of the tree.

    The scripts of the studies divide in whole numbers, so that a rest is left out.
    """
    count = parameters.files if parameters.per_directory is None else parameters.per_directory
    return count // clients if parameters.divide else count


def _items(parameters: Parameters, clients: int) -> int:
    """Of each kind for each process: as many in each directory, so that a rest is left out."""
    given, directories = _given(parameters, clients), _directories(parameters)
    if parameters.per_directory is not None:
        return given * directories
    return given // directories * directories


def _argv(context: Context, parameters: Parameters, phase: str) -> list[str]:
    clients = len(context.clients)
    if parameters.of_tree:
        counts = ["-n", str(_given(parameters, clients))]
    else:
        counts = ["-I", str(_items(parameters, clients) // _directories(parameters))]
    tree = ["-b", str(parameters.branch), "-z", str(parameters.depth)]
    leaves = ["-L"] * parameters.leaf_only + ["-u"] * parameters.unique
    kinds = {"files": ["-F"], "directories": ["-D"], "both": []}[parameters.items]
    stride = _stride(parameters, phase, clients)
    write, read = (["-w", str(parameters.bytes)], ["-e", str(parameters.bytes)])
    if parameters.whole:
        repeated = ["-i", str(parameters.iterations)]
        sizes = [*write, *read] if parameters.bytes else []
        pause = ["-p", str(parameters.pause)] if parameters.pause else []
        argv = ["mdtest", *counts, *tree, *repeated, *stride, *sizes, *pause, *leaves, *kinds]
        return [*argv, "-d", _directory(context)]
    argv = ["mdtest", "-d", _directory(context), "-i", "1", _PHASES[phase][0], *counts, *tree]
    if parameters.bytes:
        argv += {"create": write, "read-files": read}.get(phase, [])
    return [*argv, *kinds, *leaves, *stride]


def _stride(parameters: Parameters, phase: str, clients: int) -> list[str]:
    """Who asks for whose items: `-N`."""
    if parameters.stride is not None:
        return ["-N", str(parameters.stride)]
    if parameters.reorder and (phase != "create" or parameters.whole) and clients > 1:
        return ["-N", str(parameters.processes)]
    return []
