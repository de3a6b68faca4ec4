# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Says what an experiment would do, and what is missing for it. Writes nothing to any target.

Reads the file, connects to the hosts, asks workloads and targets for the programs that they need,
and listens to each meter for a few seconds. Exit code 1 when something would keep the run from
starting.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from terrace_lab import planned
from terrace_lab.commands import runs
from terrace_lab.errors import LabError
from terrace_lab.experiment import Experiment, client_bytes
from terrace_lab.hosts import AgentHost, memory_bytes
from terrace_lab.meters import registry
from terrace_lab.meters.trial import self_test
from terrace_lab.runner.parts import Parts
from terrace_lab.settings import Settings, parse_bytes
from terrace_lab.workloads.base import Problem

NAME = "check"
HELP = "say what an experiment would do and what is missing for it"

METER_SECONDS = 3.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", type=Path, metavar="FILE", help="experiment file, TOML")
    runs.add_parameters(parser)
    parser.add_argument(
        "--commands",
        action="store_true",
        help="print the commands that each phase of each trial would run, and touch no host;"
        " FILE may be the name of a study",
    )
    parser.add_argument(
        "--memory",
        type=_size,
        metavar="SIZE",
        help="with --commands, what each host has (default: what this machine has)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _size(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


@dataclass(slots=True)
class Findings:
    """What a check has come to."""

    problems: list[Problem] = field(default_factory=list)
    space_bytes: dict[str, int] = field(default_factory=dict)
    """Room that a trial needs, by its name."""
    meters: dict[str, str] = field(default_factory=dict)
    """What each meter delivered."""
    idle_seconds: float = 0.0
    """Time that a run takes beside its phases, at its least number of repetitions."""

    @property
    def is_fatal(self) -> bool:
        return any(one.is_fatal for one in self.problems)


def run(arguments: argparse.Namespace) -> int:
    loaded = runs.load(arguments)
    if arguments.commands:
        _print_commands(loaded, arguments.memory or psutil.virtual_memory().total, arguments.json)
        return 0
    findings = look(loaded, with_meters=True)
    if arguments.json:
        print(json.dumps(_to_json(loaded, findings), indent=2))
    else:
        _print(loaded, findings)
    return 1 if findings.is_fatal else 0


def _print_commands(loaded: Experiment, memory_bytes: int, is_json: bool) -> None:
    found = list(planned.commands(loaded, memory_bytes))
    of_probes = planned.probe_commands(loaded, memory_bytes) if loaded.probes.enabled else []
    if is_json:
        lines = [dataclasses.asdict(one) for one in found]
        print(json.dumps({"probes": of_probes, "commands": lines}, indent=2))
        return
    for argv in of_probes:
        print(f"probe: {shlex.join(argv)}")
    for one in found:
        print(f"{one.trial} {one.phase} {one.host}: {shlex.join(one.argv)}")


def look(loaded: Experiment, *, with_meters: bool) -> Findings:
    """Finds what would keep an experiment from running, and what it would take."""
    findings = Findings()
    hosts = {
        name: AgentHost(name, spec.ssh, address=spec.address, python=spec.python)
        for name, spec in loaded.hosts.items()
    }
    try:
        for name, host in hosts.items():
            try:
                host.connect()
            except LabError as error:
                findings.problems.append(Problem(f"hosts.{name}", str(error)))
        if not findings.is_fatal:
            _look_at_work(loaded, hosts, findings)
        if with_meters:
            _look_at_meters(loaded, hosts, findings)
    finally:
        for host in hosts.values():
            host.close()
    repeat = loaded.repeat
    rounds = repeat.least * len(loaded.trials)
    findings.idle_seconds = 2 * (loaded.energy.idle_s + loaded.energy.settle_s) + rounds * (
        repeat.cold.cooldown_s + 2 * loaded.energy.guard_s
    )
    return findings


def refuse_problems(loaded: Experiment) -> None:
    """LabError with all that would keep an experiment from running."""
    fatal = [one for one in look(loaded, with_meters=False).problems if one.is_fatal]
    if fatal:
        text = "\n".join(f"  {one.where}: {one.text}" for one in fatal)
        raise LabError(f"cannot run:\n{text}")


def _look_at_work(loaded: Experiment, hosts: Mapping[str, AgentHost], findings: Findings) -> None:
    memory = min(memory_bytes(hosts[spec.name]) for spec in loaded.clients)
    parts = Parts(loaded)
    findings.problems += parts.problems(hosts)
    for trial in loaded.trials:
        spec = loaded.workloads[trial.workload]
        servers = [hosts[one] for one in parts.targets[trial.target].servers if one in hosts]
        total = sum(map(memory_bytes, servers)) or memory
        size = client_bytes(spec, trial.clients, memory, total)
        findings.space_bytes[trial.name] = parts.workload(trial).space_bytes(trial.clients, size)


def _look_at_meters(loaded: Experiment, hosts: Mapping[str, AgentHost], findings: Findings) -> None:
    for name, spec in loaded.meters.items():
        try:
            meter = registry.create(name, Settings(f"meters.{name}", spec.settings), hosts)
            findings.meters[name] = str(self_test(meter, METER_SECONDS))
        except LabError as error:
            findings.problems.append(Problem(f"meters.{name}", str(error), spec.is_required))


def _to_json(loaded: Experiment, findings: Findings) -> dict[str, Any]:
    return {
        "name": loaded.name,
        "hash": loaded.hash,
        "trials": [one.to_json() for one in loaded.trials],
        "repetitions": {"min": loaded.repeat.least, "max": loaded.repeat.most},
        "space_bytes": findings.space_bytes,
        "meters": findings.meters,
        "seconds_beside_phases": findings.idle_seconds,
        "problems": [
            {"where": one.where, "text": one.text, "is_fatal": one.is_fatal}
            for one in findings.problems
        ],
    }


def _print(loaded: Experiment, findings: Findings) -> None:
    console = Console(highlight=False)
    repeat = loaded.repeat
    console.print(
        f"{loaded.name}: {len(loaded.trials)} trials, {repeat.least} to {repeat.most} repetitions"
        f" each, seed {loaded.seed}",
        markup=False,
    )
    table = Table("trial", "target", "workload", "clients", "room needed, MiB")
    for trial in loaded.trials:
        room = findings.space_bytes.get(trial.name)
        shown = "" if room is None else f"{room / 2**20:.1f}"
        table.add_row(trial.name, trial.target, trial.workload, str(trial.clients), shown)
    console.print(table)
    for name, text in findings.meters.items():
        console.print(f"meter {name}: {text}", markup=False)
    if not loaded.meters:
        console.print("no meter: there will be no figures of energy")
    console.print(
        f"beside its phases a run takes at least {findings.idle_seconds / 60:.1f} min"
        " for idle times, guards and cooling down"
    )
    for one in findings.problems:
        word = "problem" if one.is_fatal else "warning"
        console.print(f"{word}: {one.where}: {one.text}", markup=False)
    if not findings.problems:
        console.print("nothing is missing")
