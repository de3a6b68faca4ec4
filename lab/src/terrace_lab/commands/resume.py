# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Continues a run that was killed, interrupted, or could not go on.

What is in its journal as done is not done again. The repetition in which it ended is void and made
anew. Hosts must be what they were when the run began: kernel, processors, memory, disks, packages.
"""

import argparse
from pathlib import Path

from terrace_lab.commands import runs
from terrace_lab.runner.place import Place

NAME = "resume"
HELP = "continue a run that was killed or interrupted"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="DIR", help="directory of the run")
    parser.add_argument(
        "--accept-drift",
        action="store_true",
        help="go on where a host has changed since, and record how",
    )
    runs.add_run_options(parser)


def run(arguments: argparse.Namespace) -> int:
    place = Place(arguments.run)
    place.about()
    return runs.carry_on(place, arguments, accept_drift=arguments.accept_drift)
