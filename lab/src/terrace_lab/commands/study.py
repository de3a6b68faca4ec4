# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Carries out one of the studies that come with the lab, at its published size or scaled down.

Each is an experiment file with parameters, and published figures as reference lines, each with its
source and conditions. Without a name the studies are listed; `--show` prints the file of one, to be
changed and run by `terrace-lab run`.
"""

import argparse
import tomllib

from terrace_lab import studies
from terrace_lab.commands import runs
from terrace_lab.commands.run import carry_out
from terrace_lab.errors import LabError
from terrace_lab.studies import hsm

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
    known = {**studies.texts(), hsm.NAME: hsm.text()}
    if arguments.study is None:
        for name, text in known.items():
            print(f"{name}: {tomllib.loads(text)['description']}")
            for key, value in tomllib.loads(text)["parameters"].items():
                print(f"    --set {key}={value}")
        return 0
    if arguments.study not in known:
        there = ", ".join(known)
        raise LabError(f"cannot find a study: there are {there} study={arguments.study}")
    if arguments.show:
        is_made = arguments.study == hsm.NAME
        print(hsm.show() if is_made else known[arguments.study], end="")
        return 0
    given = dict(arguments.parameters)
    return carry_out(studies.load(arguments.study, given, is_scaled=arguments.scale), arguments)
