# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`python -m terrace_lab.analyse RUN…`: makes summaries and tables of runs anew."""

import sys
from pathlib import Path

from terrace_lab.analyse import analyse
from terrace_lab.errors import LabError


def main(arguments: list[str]) -> int:
    if not arguments:
        print("usage: python -m terrace_lab.analyse RUN…", file=sys.stderr)
        return 2
    for argument in arguments:
        try:
            summary = analyse(Path(argument))
        except LabError as error:
            print(error, file=sys.stderr)
            return 1
        print(f"{argument}: {len(summary.cells)} cells of {len(summary.repetitions)} phases")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
