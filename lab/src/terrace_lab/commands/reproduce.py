# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Lists what the sources report, and repeats here what one machine can, scaled down.

Without options, or with `--list`, every figure and table of the sources is listed with the study
that makes it and its state: runs here scaled, runs with hardware, or not possible and why. `--run`
carries out the scaled runs, of the results that are named or of all, one after the other below one
directory. What is done there is not done again, what was interrupted goes on where it was, and
after `--minutes` it ends and can be called again. `index.html` there has each result beside the
report of its run.
"""

from __future__ import annotations

import argparse
import html
import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

from terrace_lab import reproduction
from terrace_lab.commands import runs
from terrace_lab.errors import LabError
from terrace_lab.records import read_lines, write_json
from terrace_lab.reproduction import STATES, Batch, Catalogue
from terrace_lab.runner.place import Place
from terrace_lab.runner.run import Options
from terrace_lab.runner.run import run as run_place

NAME = "reproduce"
HELP = "list what the sources report, and repeat here what one machine can"

LEAST_SECONDS = 30.0
"""With less time than this left no further batch is begun."""


class TimeIsUp(KeyboardInterrupt):
    """The time that was given is over: what runs ends as after Ctrl-C, to be resumed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", nargs="*", metavar="ID", help="results to run (default: all)")
    parser.add_argument("--list", action="store_true", help="list the results; the default")
    parser.add_argument("--run", action="store_true", help="carry out the scaled runs")
    parser.add_argument(
        "--output", type=Path, default=Path("reproduce"), metavar="DIR", help="of the runs"
    )
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="time for the runs (default: 60)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=runs.assignment,
        metavar="NAME=VALUE",
        dest="parameters",
        help="value of a parameter of all studies that have it; may be repeated",
    )
    parser.add_argument("--yes", action="store_true", help="write to the targets without asking")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    catalogue = reproduction.load()
    if not arguments.run:
        if arguments.results:
            raise LabError("cannot reproduce: results are run with --run")
        _list(catalogue, arguments)
        return 0
    batches = catalogue.chosen(arguments.results)
    if not arguments.yes:
        raise LabError("cannot reproduce: it writes to targets of this machine; see --yes")
    tell, _ = runs.progress(arguments.json)
    deadline = time.monotonic() + arguments.minutes * 60
    outcomes: dict[str, Any] = _outcomes(arguments.output)
    arguments.output.mkdir(parents=True, exist_ok=True)
    for batch in batches:
        if _is_done(arguments.output / batch.name) and outcomes.get(batch.name, {}).get("report"):
            tell(f"{batch.name}: done before")
            continue
        left_s = deadline - time.monotonic()
        if left_s < LEAST_SECONDS:
            tell(f"{batch.name}: no time is left; the same command goes on here")
            continue
        tell(f"{batch.name}: study {batch.study}, {left_s / 60:.0f} min are left")
        outcomes[batch.name] = _carry_out(batch, arguments, left_s, tell)
        tell(f"{batch.name}: {_said(outcomes[batch.name])}")
        write_json(arguments.output / "reproduce.json", outcomes)
    write_json(arguments.output / "reproduce.json", outcomes)
    page = _write_index(catalogue, arguments.output, outcomes)
    if arguments.json:
        print(json.dumps(outcomes, indent=2))
    else:
        tell(f"report: {page}")
    return 0 if all(outcomes.get(one.name, {}).get("state") == "done" for one in batches) else 1


def _said(outcome: dict[str, Any]) -> str:
    """How a batch ended, and why where it did not come to its end."""
    state: str = outcome["state"]
    return f"{state}: {outcome['why']}" if outcome["why"] else state


def _list(catalogue: Catalogue, arguments: argparse.Namespace) -> None:
    outcomes = _outcomes(arguments.output)
    rows = [
        {
            **one.to_json(),
            "source_title": catalogue.sources[one.source],
            "run": str(arguments.output / one.batch) if _has(outcomes, one.batch) else None,
        }
        for one in catalogue.results
    ]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    console = Console(highlight=False)
    table = Table("id", "what", "study", "state", "to know")
    for row in rows:
        state = STATES[row["state"]] + ("; done" if row["run"] else "")
        table.add_row(row["id"], f"{row['kind']}: {row['title']}", row["study"], state, row["why"])
    console.print(table)
    for key, title in catalogue.sources.items():
        console.print(f"{key}: {title}", markup=False)


def _has(outcomes: dict[str, Any], batch: str) -> bool:
    return bool(batch) and outcomes.get(batch, {}).get("state") == "done"


def _outcomes(output: Path) -> dict[str, Any]:
    path = output / "reproduce.json"
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _is_done(directory: Path) -> bool:
    """Whether the run there came to its end."""
    journal = directory / "journal.jsonl"
    return journal.exists() and any(one.get("event") == "end" for one in read_lines(journal))


def _carry_out(
    batch: Batch, arguments: argparse.Namespace, seconds: float, tell: Any
) -> dict[str, Any]:
    """Begins or resumes the run of a batch; what keeps it from its end is in the outcome."""
    # Not at the top: plotting and SciPy take seconds to load.
    from terrace_lab.analyse import analyse
    from terrace_lab.report import write_report

    directory = arguments.output / batch.name
    begin = time.monotonic()
    outcome: dict[str, Any] = {"study": batch.study, "state": "interrupted", "notes": [], "why": ""}
    try:
        if (directory / "run.json").exists():
            place = Place(directory)
        else:
            loaded, said = reproduction.experiment_of(batch, dict(arguments.parameters))
            outcome["notes"] += said
            place = runs.begin(loaded, directory)
        with _bounded(seconds):
            run_place(place, Options(accept_drift=True, tell=tell))
        outcome["state"] = "done"
    except TimeIsUp as error:
        outcome["why"] = str(error)
    except LabError as error:
        outcome |= {"state": "failed", "why": str(error)}
    if outcome["why"]:
        outcome["notes"].append(outcome["why"])
    if (directory / "run.json").exists():
        try:
            summary = analyse(directory)
            outcome["report"] = str(
                write_report(directory, pdf=False).relative_to(arguments.output)
            )
            outcome["cells"] = len(summary.cells)
            outcome["is_modelled"] = summary.is_modelled
        except LabError as error:
            outcome["notes"].append(str(error))
    outcome["seconds"] = round(time.monotonic() - begin, 1)
    return outcome


@contextmanager
def _bounded(seconds: float) -> Iterator[None]:
    """Ends what runs after so long; it is left as it is after an interrupt, to be resumed."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise TimeIsUp("the time was over: the same command goes on from here")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _write_index(catalogue: Catalogue, output: Path, outcomes: dict[str, Any]) -> Path:
    """A page with each result beside the report of its run, without a script."""
    rows = []
    for source, title in catalogue.sources.items():
        rows.append(f'<tr><th colspan="4" scope="colgroup">{html.escape(title)}</th></tr>')
        for one in (one for one in catalogue.results if one.source == source):
            outcome = outcomes.get(one.batch, {}) if one.batch else {}
            report = outcome.get("report")
            state = STATES[one.state]
            if outcome:
                state += f"; {outcome['state']}"
                state += ", energy MODELLED" if outcome.get("is_modelled") else ""
            link = f'<a href="{html.escape(report)}">report</a>' if report else ""
            words = "; ".join([one.why] * bool(one.why) + list(outcome.get("notes", [])))
            rows.append(
                f"<tr><td>{html.escape(one.title)}</td><td>{html.escape(state)}</td>"
                f"<td>{link}</td><td>{html.escape(words)}</td></tr>"
            )
    page = output / "index.html"
    page.write_text(_PAGE.replace("ROWS", "\n".join(rows)), encoding="utf-8")
    return page


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>What the sources report, repeated here</title>
<style>
body { font: 15px/1.45 sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
td, th { border-top: 1px solid #ccc; padding: .35rem .6rem; text-align: left; vertical-align: top; }
th[colspan] { background: #eee; }
</style>
</head>
<body>
<h1>What the sources report, repeated here</h1>
<p>Runs are scaled to this machine: their figures show that the experiment runs, and compare systems
with each other here; they are not those of the hardware of the sources.</p>
<table>
<thead><tr><th scope="col">figure or table</th><th scope="col">state</th>
<th scope="col">report</th><th scope="col">to know</th></tr></thead>
<tbody>
ROWS
</tbody>
</table>
</body>
</html>
"""
