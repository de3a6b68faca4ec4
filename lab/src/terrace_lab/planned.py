# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The commands that an experiment would run, found without running any of them.

Workloads run against hosts that record what they are asked to run: what is printed comes from the
code that would run it, and can be nothing else.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from terrace_lab.errors import LabError
from terrace_lab.experiment import Experiment, client_bytes
from terrace_lab.hosts import Command, Ended
from terrace_lab.records import Stamp
from terrace_lab.runner import probes
from terrace_lab.runner.parts import Parts
from terrace_lab.trials import Trial
from terrace_lab.workloads.base import Client, Context

# Answers of programs that workloads ask before they run what is measured, by the first words.
_ANSWERS: Mapping[tuple[str, ...], str] = {
    ("mpirun", "--version"): "mpirun (Open MPI)",
    ("id", "-u"): "1000",
    ("nproc",): "4",
    ("python3", "-ISc"): "7700",
}
_NOTHING = Stamp(0, 0)


class _Recorded(LabError):
    """A command was taken down and not run."""


@dataclass(slots=True)
class PlannedHost:
    """A host that takes commands down; every program is there."""

    name: str
    address: str
    memory_bytes: int
    processors: int = 4
    is_measured: bool = False
    """Whether what is asked for now is a phase, and no preparation."""
    taken: list[list[str]] = field(default_factory=list)

    def run(self, command: Command) -> Ended:
        argv = list(command.argv)
        answer = next(
            (
                text
                for words, text in _ANSWERS.items()
                if tuple(argv[: len(words)]) == words and not (words == ("nproc",) and argv[1:])
            ),
            None,
        )
        if argv[:3] == ["python3", "-IS", "-"] and len(argv) == 5:
            # What finds the tarball of a source, or fetches it.
            answer = argv[3] if argv[3].startswith("/") else f"{argv[4]}/{argv[3]}.tar.xz"
        if argv[0] in ("mkdir", "test", "rm", "chown", "find", "stat") and not _is_deletion(argv):
            answer = ""
        if answer is None and self.is_measured:
            self.taken.append(argv)
            raise _Recorded("cannot run: it is only planned")
        return Ended(argv, 0, answer or "", "", _NOTHING, _NOTHING, 0.0, 0.0, is_timed_out=False)

    def has(self, program: str) -> bool:
        return True

    def write_file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Nothing is written."""

    def counters(self) -> dict[str, Any]:
        return {
            "processors": self.processors,
            "memory": {"memtotal_bytes": self.memory_bytes},
        }


def _is_deletion(argv: Sequence[str]) -> bool:
    """`rm -rf` of a tree is a phase of a compilation; `rm -f` of a file never is."""
    return argv[:2] == ["rm", "-rf"] and not argv[-1].endswith(".partial")


@dataclass(frozen=True, slots=True)
class Planned:
    """What one client, or the first for all, runs in one phase."""

    trial: str
    phase: str
    host: str
    argv: Sequence[str]


def commands(experiment: Experiment, memory_bytes: int) -> Iterator[Planned]:
    """The commands of all phases of all trials, on hosts with so much memory.

    Paths are below the directory of the target, or below `TARGET` where it is known later only.
    """
    parts = Parts(experiment)
    hosts = {
        name: PlannedHost(name, spec.address or spec.ssh or "localhost", memory_bytes)
        for name, spec in experiment.hosts.items()
    }
    for trial in experiment.trials:
        yield from _of_trial(experiment, parts, trial, hosts)


def _of_trial(
    experiment: Experiment, parts: Parts, trial: Trial, hosts: Mapping[str, PlannedHost]
) -> Iterator[Planned]:
    placed = [hosts[spec.name] for spec in experiment.placed(trial)]
    used = [placed[index % len(placed)] for index in range(trial.clients)]
    target = parts.targets[trial.target]
    count = trial.factors.get("servers", len(target.servers) or 1)
    memory = used[0].memory_bytes
    with tempfile.TemporaryDirectory() as record:
        base = (target.path(used[0]) or PurePosixPath("/TARGET")) / "terrace-lab"
        clients = [
            Client(index, host, base / f"client-{index}", base / "shared")
            for index, host in enumerate(used)
        ]
        context = Context(
            clients=clients,
            record=Path(record),
            seed=experiment.seed,
            url=target.url(),
            bytes_per_client=client_bytes(
                experiment.workloads[trial.workload], trial.clients, memory, count * memory
            ),
        )
        workload = parts.workload(trial)
        workload.check({host.name: host for host in used})
        # Some read what their preparation printed, which nothing did here.
        with contextlib.suppress(LabError):
            workload.prepare(context)
        for phase in workload.phases(context):
            for host in used:
                host.taken.clear()
                host.is_measured = True
            # The command is taken down; what it would print is not there to be read.
            with contextlib.suppress(LabError):
                workload.run(context, phase)
            for host in used:
                host.is_measured = False
            for name in dict.fromkeys(one.name for one in used):
                for argv in hosts[name].taken:
                    yield Planned(trial.name, phase.name, name, argv)


def probe_commands(experiment: Experiment, memory_bytes: int) -> list[list[str]]:
    """The commands that would measure the components, each once."""
    found: list[list[str]] = []
    hosts = {
        name: _Probed(name, spec.address or spec.ssh or "localhost", memory_bytes, found)
        for name, spec in experiment.hosts.items()
    }
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "probes.jsonl"
        measured: Mapping[str, Any] = hosts
        probes.measure(experiment, measured, path, lambda _: None)
    unique = {tuple(argv): argv for argv in found if argv[0] != "rm"}
    return list(unique.values())


@dataclass(slots=True)
class _Probed:
    """A host that takes the commands of probes down, and answers as fio, iperf3 and ping do."""

    name: str
    address: str
    memory_bytes: int
    found: list[list[str]]

    def run(self, command: Command) -> Ended:
        argv = list(command.argv)
        shown = argv
        if argv[:2] == ["sh", "-c"]:
            # The client of iperf3, which is tried again until its server is there.
            shown = argv[2].partition("do ")[2].partition(" &&")[0].split()
        self.found.append(shown)
        rate = '{"bw_bytes": 1, "iops": 1, "clat_ns": {"mean": 1}}'
        text = {
            "fio": f'{{"jobs": [{{"read": {rate}, "write": {rate}}}]}}',
            "ping": "rtt min/avg/max/mdev = 1.0/1.0/1.0/1.0 ms",
            "sh": '{\n\t"start": 0, "end": {"sum_received": {"bits_per_second": 8}}}',
        }.get(argv[0], "")
        return Ended(argv, 0, text, "", _NOTHING, _NOTHING, 0.0, 0.0, is_timed_out=False)

    def has(self, program: str) -> bool:
        return True
