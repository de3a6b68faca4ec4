# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What commands that carry out runs share: arguments, progress, and the end of a run."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from terrace_lab import __version__, experiment, studies
from terrace_lab.experiment import Experiment
from terrace_lab.journal import Busy
from terrace_lab.runner.place import Place, create
from terrace_lab.runner.run import Options, run


def add_parameters(parser: argparse.ArgumentParser) -> None:
    """`--set NAME=VALUE` and `--scale`, for the parameters of an experiment."""
    add_scale(parser)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=assignment,
        metavar="NAME=VALUE",
        dest="parameters",
        help="value of a parameter of the experiment's table [parameters]; may be repeated",
    )


def add_scale(parser: argparse.ArgumentParser) -> None:
    """`--scale`, for experiments that say how they are scaled down."""
    parser.add_argument(
        "--scale",
        action="store_true",
        help="take the values of the experiment's table [scale], for a small machine",
    )


def assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def load(arguments: argparse.Namespace) -> Experiment:
    """The experiment of the command line, with its parameters."""
    given = dict(arguments.parameters)
    name = str(arguments.experiment)
    if not arguments.experiment.exists() and name in studies.names():
        return studies.load(name, given, is_scaled=arguments.scale)
    return experiment.load(arguments.experiment, given, is_scaled=arguments.scale)


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="directory of the run, new or empty (default: NAME-DATE-TIME here)",
    )


def add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print the journal as JSON lines in place of progress"
    )
    parser.add_argument("--pdf", action="store_true", help="write report/report.pdf, too")


def begin(loaded: Experiment, output: Path | None) -> Place:
    """Makes the directory of a new run."""
    path = output or Path(f"{loaded.name}-{time.strftime('%Y%m%d-%H%M%S')}")
    return create(path, loaded, secrets.token_hex(4), __version__)


def carry_on(place: Place, arguments: argparse.Namespace, *, accept_drift: bool = False) -> int:
    """Takes a run to its end and writes its report; 1 where a trial has no result."""
    tell, listener = progress(arguments.json)
    options = Options(accept_drift=accept_drift, tell=tell, listener=listener)
    try:
        run(place, options)
    except Busy:
        raise
    except BaseException:
        print(
            f"terrace-lab: the record is in {place.path}; once it can go on:"
            f" terrace-lab resume {place.path}",
            file=sys.stderr,
        )
        raise
    tell("writing the report")
    # Not at the top, for `--help` and errors to be there at once: plotting takes seconds to load.
    from terrace_lab.analyse import analyse
    from terrace_lab.report import write_report

    summary = analyse(place.path)
    report = write_report(place.path, pdf=arguments.pdf)
    tell(f"report: {report}")
    measured = {cell.trial for cell in summary.cells}
    empty = [one.name for one in place.experiment().trials if one.name not in measured]
    if empty:
        print(f"terrace-lab: trials without a result: {', '.join(empty)}", file=sys.stderr)
    return 1 if empty else 0


def progress(
    is_json: bool,
) -> tuple[Callable[[str], None], Callable[[dict[str, Any]], None] | None]:
    """How a run tells what it does: text for people, or its journal for programs."""
    if is_json:

        def listener(line: dict[str, Any]) -> None:
            print(json.dumps(line), flush=True)

        return lambda _: None, listener
    console = Console(highlight=False, soft_wrap=True)

    def tell(text: str) -> None:
        console.print(f"{time.strftime('%H:%M:%S')}  {text}", markup=False)

    return tell, None
