# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Joins runs of different systems, where they did the same work and counted the same energy."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from terrace_lab.analyse import frozen
from terrace_lab.analyse.cells import SAME_WORK
from terrace_lab.analyse.compared import comparisons, key_of, systems_of_summary
from terrace_lab.analyse.run import analyse
from terrace_lab.errors import LabError
from terrace_lab.numbers.edp import edp, scale
from terrace_lab.numbers.intervals import value_of
from terrace_lab.records import write_json
from terrace_lab.summary import Cell, Repetition, Summary, to_json

TABLES = ("samples", "phases", "metrics")


def merge(runs: Sequence[Path], out: Path) -> Summary:
    """Analyses runs and writes `summary.json` and `derived/` of all of them into `out`.

    LabError says what differs where they cannot be compared, or where `out` has something in it.
    """
    if len(runs) < 2:
        raise LabError("cannot merge: there must be at least two runs")
    if out.exists() and any(out.iterdir()):
        raise LabError(f"cannot merge: the directory is not empty path={out}")
    summaries = [analyse(run) for run in runs]
    differences = _differences(runs, summaries)
    if differences:
        raise LabError("cannot merge: " + "; ".join(differences))
    merged = _merged(summaries)
    for name in TABLES:
        _join([run / "derived" / f"{name}.csv" for run in runs], out / "derived" / f"{name}.csv")
    write_json(out / "merged.json", {"runs": [str(run.resolve()) for run in runs]})
    write_json(out / "summary.json", to_json(merged))
    return merged


def _differences(runs: Sequence[Path], summaries: Sequence[Summary]) -> list[str]:
    """Why the runs do not compare."""
    found = []
    first = summaries[0]
    for run, other in zip(runs[1:], summaries[1:], strict=True):
        if sorted(first.energy_scope) != sorted(other.energy_scope):
            found.append(
                f"the energy scope of {run} is {', '.join(other.energy_scope) or 'empty'}"
                f" and that of {runs[0]} is {', '.join(first.energy_scope) or 'empty'}"
            )
        names = set(first.workload_hashes) | set(other.workload_hashes)
        for name in sorted(names):
            ours, theirs = first.workload_hashes.get(name), other.workload_hashes.get(name)
            if ours is None or theirs is None:
                found.append(f"workload {name} is in {run if ours is None else runs[0]} alone")
            elif ours != theirs:
                found.append(f"workload {name} of {run} does other work than that of {runs[0]}")
        both = {one.name for one in first.targets} & {one.name for one in other.targets}
        repeated = sorted(name for name in both if name != _reference(summaries))
        found += [f"target {name} is in {runs[0]} and {run}" for name in repeated]
    return found


def _reference(summaries: Sequence[Summary]) -> str | None:
    return next((one.reference for one in summaries if one.reference), None)


@dataclass(frozen=True, slots=True)
class _Own:
    """What one run brings: each target counts once, also a reference that several runs have."""

    summary: Summary
    targets: set[str]

    @property
    def cells(self) -> list[Cell]:
        return [cell for cell in self.summary.cells if cell.target in self.targets]

    @property
    def repetitions(self) -> list[Repetition]:
        trials = {cell.trial for cell in self.cells}
        return [one for one in self.summary.repetitions if one.trial in trials]


def _owned(summaries: Sequence[Summary]) -> list[_Own]:
    seen: set[str] = set()
    owned = []
    for one in summaries:
        names = {target.name for target in one.targets}
        owned.append(_Own(one, names - seen))
        seen |= names
    return owned


def _merged(summaries: Sequence[Summary]) -> Summary:
    first = summaries[0]
    reference = _reference(summaries)
    owned = _owned(summaries)
    cells = [cell for own in owned for cell in own.cells]
    repetitions = [one for own in owned for one in own.repetitions]
    _refer(cells, repetitions, reference)
    works = {key_of(cell): cell.work for cell in cells if cell.target == reference}
    systems = [
        system
        for own in owned
        for system in systems_of_summary(
            own.summary.run_id,
            own.cells,
            own.repetitions,
            own.summary.is_modelled,
            works,
            frozen.weight(own.summary.experiment),
        )
    ]
    digest = hashlib.sha256("".join(one.run_id for one in summaries).encode()).hexdigest()
    experiment: dict[str, Any] = {}
    for one in reversed(summaries):
        experiment = _over(experiment, one.experiment)
    ends = [one.end_ns for one in summaries]
    return dataclasses.replace(
        first,
        name=" and ".join(dict.fromkeys(one.name for one in summaries)),
        experiment_hash=digest[:16],
        run_id="+".join(one.run_id for one in summaries),
        begin_ns=min(one.begin_ns for one in summaries),
        end_ns=None if None in ends else max(one for one in ends if one is not None),
        is_complete=all(one.is_complete for one in summaries),
        is_modelled=any(one.is_modelled for one in summaries),
        reference=reference,
        experiment=experiment,
        environments={
            f"{one.run_id}/{host}": value
            for one in summaries
            for host, value in one.environments.items()
        },
        meters=[
            dataclasses.replace(meter, name=f"{one.run_id}/{meter.name}")
            for one in summaries
            for meter in one.meters
        ],
        targets=[one for own in owned for one in own.summary.targets if one.name in own.targets],
        peaks=[one for own in owned for one in own.summary.peaks if one.target in own.targets],
        cells=cells,
        comparisons=comparisons(systems, reference),
        repetitions=repetitions,
        reference_lines=_once(line for one in summaries for line in one.reference_lines),
        idle_drift=None,
        not_measured=_told(summaries, "not_measured"),
        deviations=_told(summaries, "deviations"),
        commands={key: value for one in reversed(summaries) for key, value in one.commands.items()},
        bounded_rates=[
            one for own in owned for one in own.summary.bounded_rates if one.target in own.targets
        ],
    )


def _refer(cells: Sequence[Cell], repetitions: Sequence[Repetition], reference: str | None) -> None:
    """Makes the products E*t^w of all runs those of one reference's work, and normalises them."""
    theirs = {key_of(cell): cell for cell in cells if cell.target == reference}

    def products(cell: Cell, work: float, weight: float) -> list[float]:
        return [
            edp(one.gross_j, one.seconds, scale(one.work, work), weight)
            for one in repetitions
            if (one.trial, one.phase) == (cell.trial, cell.phase) and one.gross_j is not None
        ]

    for cell in cells:
        base = theirs.get(key_of(cell))
        if cell.energy is None or base is None or base.energy is None:
            continue
        for name in list(cell.energy.edp):
            found = value_of(products(cell, base.work, float(name)))
            cell.energy.edp[name] = found
            middle = float(np.median(products(base, base.work, float(name))))
            cell.energy.edp_normalised[name] = found.median / middle
        cell.energy.edp_rescaled = abs(scale(cell.work, base.work) - 1) > SAME_WORK


def _told(summaries: Sequence[Summary], name: str) -> list[str]:
    return [f"{one.run_id}: {text}" for one in summaries for text in getattr(one, name)]


def _once(values: Any) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables joined, where both have a value that of `above`."""
    joined = dict(below)
    for key, value in above.items():
        old = joined.get(key)
        is_table = isinstance(old, Mapping) and isinstance(value, Mapping)
        joined[key] = _over(old, value) if is_table else value  # type: ignore[arg-type]
    return joined


def _join(paths: Sequence[Path], out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    with open(out, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        header: list[str] = []
        for path in paths:
            with open(path, encoding="utf-8", newline="") as part:
                rows = csv.reader(part)
                first = next(rows, [])
                if not header and first:
                    header = first
                    writer.writerow(header)
                writer.writerows(rows)
