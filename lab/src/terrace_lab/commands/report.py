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
HELP = "make the report of a run again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="DIR", help="directory of the run")
    parser.add_argument("--pdf", action="store_true", help="write report/report.pdf, too")
    parser.add_argument(
        "--json", action="store_true", help="print the summary as JSON and write no report"
    )


def run(arguments: argparse.Namespace) -> int:
    # Not at the top: plotting and SciPy take seconds to load.
    from terrace_lab.analyse import analyse
    from terrace_lab.report import write_report

    Place(arguments.run).about()
    summary = analyse(arguments.run)
    if arguments.json:
        print(json.dumps(to_json(summary), indent=2))
        return 0
    print(write_report(arguments.run, pdf=arguments.pdf))
    return 0
