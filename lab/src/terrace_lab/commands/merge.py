# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Joins runs of different systems, for one comparison and one report.

The runs must have done the same work (same workloads, same numbers of clients) and must count the
energy of the same scope; otherwise the difference is named. The runs themselves are only read.
"""

import argparse
from pathlib import Path

NAME = "merge"
HELP = "join runs of different systems into one comparison"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="DIR", help="directories of runs")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="new directory")
    parser.add_argument("--pdf", action="store_true", help="write report/report.pdf, too")


def run(arguments: argparse.Namespace) -> int:
    # Not at the top: plotting and SciPy take seconds to load.
    from terrace_lab.analyse import merge
    from terrace_lab.report import write_report

    merge(arguments.runs, arguments.output)
    print(write_report(arguments.output, pdf=arguments.pdf))
    return 0
