# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Carries out one of the studies that come with the lab, at a size that fits the machine at hand.

Each is an experiment file with parameters, and published figures as reference lines, each with its
source and conditions. Without a name the studies are listed; `--show` prints the file of one, to be
changed and run by `terrace-lab run`.
"""

import argparse
import importlib.resources
import tomllib
from pathlib import Path

from terrace_lab import experiment
from terrace_lab.commands import runs
from terrace_lab.commands.run import carry_out
from terrace_lab.errors import LabError

NAME = "study"
HELP = "carry out one of the studies that come with the lab"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", nargs="?", metavar="STUDY", help="one of the studies")
    parser.add_argument("--show", action="store_true", help="print the experiment file")
    runs.add_output(parser)
    runs.add_parameters(parser)
    parser.add_argument("--yes", action="store_true", help="write to the targets without asking")
    runs.add_run_options(parser)


def run(arguments: argparse.Namespace) -> int:
    studies = texts()
    if arguments.study is None:
        for name, text in studies.items():
            print(f"{name}: {tomllib.loads(text)['description']}")
            for key, value in tomllib.loads(text)["parameters"].items():
                print(f"    --set {key}={value}")
        return 0
    if arguments.study not in studies:
        known = ", ".join(studies)
        raise LabError(f"cannot find a study: there are {known} study={arguments.study}")
    text = studies[arguments.study]
    if arguments.show:
        print(text, end="")
        return 0
    loaded = experiment.parse(text, Path.cwd(), dict(arguments.parameters))
    return carry_out(loaded, arguments)


def texts() -> dict[str, str]:
    """The studies by name."""
    directory = importlib.resources.files("terrace_lab.studies")
    return {
        one.name.removesuffix(".toml"): one.read_text(encoding="utf-8")
        for one in sorted(directory.iterdir(), key=lambda one: one.name)
        if one.name.endswith(".toml")
    }
