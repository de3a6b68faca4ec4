# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes more repetitions in a run that had ended at its cap.

The cap of the experiment, `repeat.max`, is raised; the record says so. Groups of trials that were
known well enough stay as they are.
"""

import argparse
import dataclasses
from pathlib import Path

from terrace_lab.commands import runs
from terrace_lab.errors import LabError
from terrace_lab.journal import Journal, locked
from terrace_lab.runner.place import Place

NAME = "extend"
HELP = "make more repetitions in a run that ended at its cap"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="DIR", help="directory of the run")
    parser.add_argument(
        "--max", type=int, required=True, metavar="N", help="repetitions of each trial at most"
    )
    parser.add_argument("--accept-drift", action="store_true", help="as for resume")
    runs.add_run_options(parser)


def run(arguments: argparse.Namespace) -> int:
    place = Place(arguments.run)
    place.about()
    with locked(place.path):
        raise_cap(place, arguments.max)
    return runs.carry_on(place, arguments, accept_drift=arguments.accept_drift)


def raise_cap(place: Place, most: int) -> None:
    """Writes a new cap into the frozen experiment, and that into the journal."""
    experiment = place.experiment()
    before = experiment.repeat.most
    if most <= before:
        raise LabError(f"cannot extend: --max must be more than it was max={most} was={before}")
    repeat = {**experiment.values.get("repeat", {}), "max": most}
    if not experiment.repeat.metrics:
        # Nothing decides when to stop: the least number is all.
        repeat["min"] = most
    values = {**experiment.values, "repeat": repeat}
    place.freeze(dataclasses.replace(experiment, values=values))
    journal = Journal(place.journal)
    journal.write("extend", was=before, max=most)
    journal.close()
