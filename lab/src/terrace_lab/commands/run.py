# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Carries out an experiment and writes its report.

Everything goes below one new directory. A target is written to only inside of a directory that the
run makes and marks there, and that is removed at the end. When something keeps the run from going
on, or it is killed, `terrace-lab resume` continues it.
"""

import argparse
from pathlib import Path

from terrace_lab import experiment
from terrace_lab.commands import runs
from terrace_lab.commands.check import refuse_problems
from terrace_lab.errors import LabError

NAME = "run"
HELP = "carry out an experiment and write its report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", type=Path, metavar="FILE", help="experiment file, TOML")
    runs.add_output(parser)
    runs.add_parameters(parser)
    parser.add_argument("--yes", action="store_true", help="write to the targets without asking")
    runs.add_run_options(parser)


def run(arguments: argparse.Namespace) -> int:
    loaded = runs.load(arguments)
    return carry_out(loaded, arguments)


def carry_out(loaded: experiment.Experiment, arguments: argparse.Namespace) -> int:
    """Checks an experiment, asks, and runs it; returns the exit code."""
    refuse_problems(loaded)
    if not arguments.yes:
        _ask(loaded)
    place = runs.begin(loaded, arguments.output)
    return runs.carry_on(place, arguments)


def _ask(loaded: experiment.Experiment) -> None:
    names = ", ".join(loaded.targets)
    try:
        answer = input(f"Write to the targets {names}? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise LabError("cannot run: nobody has agreed to write to the targets; see --yes")
