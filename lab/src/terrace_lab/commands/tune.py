# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Searches values of a target's tunables by measuring them.

optuna (TPE) proposes, each candidate is measured by a small run. As many candidates chosen at
random are measured as a control. The best of either is at last measured again beside the
defaults, in blocks and with fresh runs; a search that does not beat the control there has found
nothing. Which tunables a target has is in docs/reference/lab-targets.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from terrace_lab import targets, tuning
from terrace_lab.commands import runs
from terrace_lab.errors import LabError
from terrace_lab.experiment import Experiment
from terrace_lab.records import write_json
from terrace_lab.runner.run import Options
from terrace_lab.runner.run import run as run_place
from terrace_lab.settings import Settings
from terrace_lab.summary import Summary

NAME = "tune"
HELP = "search values of a target's tunables by measuring them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", type=Path, metavar="FILE", help="experiment file, TOML")
    parser.add_argument("--target", required=True, help="one of the experiment's targets")
    parser.add_argument("--workload", required=True, help="one of its workloads")
    parser.add_argument("--clients", type=int, default=1, help="number of clients (default: 1)")
    parser.add_argument(
        "--for",
        dest="metric",
        choices=tuning.METRICS,
        default="throughput",
        help="; ".join(f"{name}: {text}" for name, text in tuning.METRICS.items()),
    )
    parser.add_argument(
        "--weight",
        type=float,
        metavar="W",
        help="of the time in the energy-delay product E*t^W (default: energy.weight of FILE)",
    )
    parser.add_argument(
        "--trials",
        type=int,
        default=12,
        metavar="N",
        help="of each search (default: 12)",
    )
    parser.add_argument(
        "--repetitions", type=int, default=2, metavar="N", help="of each candidate (default: 2)"
    )
    parser.add_argument(
        "--blocks",
        type=int,
        default=10,
        metavar="N",
        help="of the last comparison, at least 6 (default: 10)",
    )
    runs.add_output(parser)
    runs.add_parameters(parser)
    parser.add_argument("--yes", action="store_true", help="write to the target without asking")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")


def run(arguments: argparse.Namespace) -> int:
    loaded = runs.load(arguments)
    question = _question(loaded, arguments)
    if not arguments.yes:
        raise LabError("cannot tune: it writes to the target and changes its parameters; see --yes")
    tell, _ = runs.progress(arguments.json)
    root = arguments.output or Path(f"{loaded.name}-tune")
    if root.exists() and any(root.iterdir()):
        raise LabError(f"cannot tune: the directory is not empty output={root}")

    # Not at the top: plotting and SciPy take seconds to load.
    from terrace_lab.analyse import analyse
    from terrace_lab.report import write_report

    def measure(one: Experiment, directory: Path) -> Summary:
        run_place(runs.begin(one, directory), Options(tell=lambda _: None))
        return analyse(directory)

    options: dict[str, Any] = {
        "trials": arguments.trials,
        "repetitions": arguments.repetitions,
        "tell": tell,
    }
    tell("search by TPE")
    tuned = tuning.search(question, root / "tpe", measure, is_random=False, **options)
    tell("random search")
    control = tuning.search(question, root / "random", measure, is_random=True, **options)
    named = {"default": question.defaults}
    for name, found in (("tuned", tuned), ("random", control)):
        values = tuning.best(found, loaded.seed).values
        # The same values under two names would differ by noise alone.
        if values not in named.values():
            named[name] = values
    if len(named) == 1:
        tell("nothing better than the defaults was found")
        write_json(root / "tune.json", {"values": {"default": dict(question.defaults)}})
        if arguments.json:
            print(json.dumps({"values": {"default": dict(question.defaults)}}))
        return 0
    tell(f"comparing {', '.join(named)}")
    confirm = tuning.confirm_experiment(question, named, arguments.blocks)
    outcome = _outcome(measure(confirm, root / "confirm"), question, named)
    write_json(root / "tune.json", outcome)
    report = write_report(root / "confirm", pdf=False)
    if arguments.json:
        print(json.dumps(outcome, indent=2))
    else:
        _print(outcome, root, report)
    return 0


def _question(loaded: Experiment, arguments: argparse.Namespace) -> tuning.Question:
    for kind, name, known in (
        ("target", arguments.target, loaded.targets),
        ("workload", arguments.workload, loaded.workloads),
    ):
        if name not in known:
            raise LabError(f"cannot tune: there is no {kind} {name!r}, only {', '.join(known)}")
    spec = loaded.targets[arguments.target]
    target = targets.create(spec.name, Settings(f"targets.{spec.name}", spec.settings))
    tunables = target.tunables()
    if not tunables:
        raise LabError(f"cannot tune: target {spec.name} of kind {spec.kind} has no tunables")
    if arguments.metric != "throughput" and not loaded.meters:
        raise LabError(f"cannot tune for {arguments.metric}: the experiment has no meter")
    weight = loaded.energy.weight if arguments.weight is None else arguments.weight
    if not weight >= 0:
        raise LabError(f"cannot tune: a weight is at least 0 weight={weight}")
    return tuning.Question(
        loaded, spec.name, arguments.workload, arguments.clients, arguments.metric, tunables, weight
    )


def _outcome(
    summary: Summary, question: tuning.Question, named: dict[str, tuning.Values]
) -> dict[str, Any]:
    """What the last comparison says, as JSON."""
    comparisons = [
        {
            "phase": one.phase,
            "metric": one.metric,
            "target": one.target,
            "ratio": one.ratio,
            "interval": None if one.interval is None else [one.interval.low, one.interval.high],
            "verdict": one.verdict,
        }
        for one in summary.comparisons
    ]
    return {
        "target": question.target,
        "workload": question.workload,
        "metric": question.metric,
        "weight": question.weight,
        "is_modelled": summary.is_modelled,
        "values": {name: dict(values) for name, values in named.items()},
        "scores": {
            name: tuning.score(summary, question.metric, name, question.weight) for name in named
        },
        "comparisons": comparisons,
    }


def _print(outcome: dict[str, Any], root: Path, report: Path) -> None:
    base = outcome["scores"]["default"]
    for name, values in outcome["values"].items():
        gain = outcome["scores"][name] / base
        settings = ", ".join(f"{key} = {value}" for key, value in values.items())
        print(f"{name:8} {gain:6.3f} of the default  {settings}")
    for one in outcome["comparisons"]:
        interval = one["interval"]
        bounds = "" if interval is None else f" ({interval[0]:.3f} to {interval[1]:.3f})"
        print(
            f"  {one['target']} {one['phase']} {one['metric']}: {one['ratio']:.3f}{bounds},"
            f" {one['verdict']}"
        )
    if outcome["is_modelled"]:
        print("energy is MODELLED")
    best = max(outcome["scores"], key=outcome["scores"].__getitem__)
    if best == "default":
        print("nothing was better than the defaults")
    else:
        print(f"\nas part of an experiment:\n[targets.{outcome['target']}.parameters]")
        for key, value in outcome["values"][best].items():
            print(f"{key} = {json.dumps(value)}")
    print(f"\nall runs: {root}; comparison: {report}")
