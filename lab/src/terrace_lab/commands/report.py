# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes the report of a run again, from its record.

Reads nothing but the directory of the run, and needs none of its hosts: the report can be made on
another machine and as often as one likes. The same record gives the same report.
"""

import argparse
import json
from pathlib import Path

from terrace_lab.runner.place import Place
from terrace_lab.summary import to_json

NAME = "report"
WEIGHT_MOST = 10.0
HELP = "make the report of a run again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="DIR", help="directory of the run")
    parser.add_argument("--pdf", action="store_true", help="write report/report.pdf, too")
    parser.add_argument(
        "--weight",
        type=_weight,
        metavar="W",
        help="rank by the energy-delay product E*t^W (default: energy.weight of the experiment)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the summary as JSON and write no report"
    )


def _weight(text: str) -> float:
    value = float(text)
    if not 0 <= value <= WEIGHT_MOST:
        raise argparse.ArgumentTypeError(f"{text} is no weight from 0 to {WEIGHT_MOST:g}")
    return value


def run(arguments: argparse.Namespace) -> int:
    # Not at the top: plotting and SciPy take seconds to load.
    from terrace_lab.analyse import analyse
    from terrace_lab.report import write_report

    Place(arguments.run).about()
    summary = analyse(arguments.run, arguments.weight)
    if arguments.json:
        print(json.dumps(to_json(summary), indent=2))
        return 0
    print(write_report(arguments.run, pdf=arguments.pdf))
    return 0
