# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`python -m terrace_lab.report RUN [--pdf]`: write the report of a run directory."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from terrace_lab.errors import LabError
from terrace_lab.report.page import write_report


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m terrace_lab.report", description=__doc__)
    parser.add_argument("run", type=Path, help="run directory with a summary.json")
    parser.add_argument("--pdf", action="store_true", help="also print it to report/report.pdf")
    arguments = parser.parse_args(argv)
    try:
        path = write_report(arguments.run, pdf=arguments.pdf)
    except LabError as error:
        print(f"terrace-lab: {error}", file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
