# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a report is made from: the summary of a run and the tables beside it."""

from __future__ import annotations

import csv
import json
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from terrace_lab import records
from terrace_lab.analyse import frozen
from terrace_lab.errors import LabError
from terrace_lab.report.style import Looks, series_of
from terrace_lab.report.units import quantity
from terrace_lab.summary import Cell, Repetition, Summary, TargetSummary, from_json


class PowerSample(NamedTuple):
    """One line of `derived/samples.csv`."""

    t0_ns: int
    t1_ns: int
    channel: str
    scope: str
    kind: str
    watts: float | None
    quality: str
    meter: str


class PhaseSpan(NamedTuple):
    """One line of `derived/phases.csv`."""

    trial: str
    repetition: int
    phase: str
    role: str
    begin_ns: int
    end_ns: int


@dataclass(slots=True)
class Source:
    """A run, with what several figures want to know of it."""

    summary: Summary
    samples: list[PowerSample] = field(default_factory=list)
    phases: list[PhaseSpan] = field(default_factory=list)
    journal: list[dict[str, Any]] = field(default_factory=list)
    run: Path | None = None
    """Of which the series of hosts are read, of those repetitions that are drawn."""
    torn: int = 0
    """Lines of the journal that are none."""
    looks: Looks = field(init=False)
    _repetitions: dict[tuple[str, str], list[Repetition]] = field(init=False)
    _cells: dict[tuple[str, str], Cell] = field(init=False)
    _ends: list[int] = field(init=False)
    """`t1_ns` of the samples, which are in that order."""
    _longest_ns: int = field(init=False)

    def __post_init__(self) -> None:
        self.looks = Looks(self.summary)
        self._repetitions = {}
        for one in sorted(self.summary.repetitions, key=lambda one: one.repetition):
            self._repetitions.setdefault((one.trial, one.phase), []).append(one)
        self._cells = {(cell.trial, cell.phase): cell for cell in self.summary.cells}
        self.samples.sort(key=lambda one: (one.t1_ns, one.meter, one.channel))
        self._ends = [one.t1_ns for one in self.samples]
        self._longest_ns = max((one.t1_ns - one.t0_ns for one in self.samples), default=0)

    def repetitions(self, cell: Cell) -> list[Repetition]:
        return self._repetitions.get((cell.trial, cell.phase), [])

    def cell(self, repetition: Repetition) -> Cell | None:
        return self._cells.get((repetition.trial, repetition.phase))

    def target(self, name: str) -> TargetSummary | None:
        return next((one for one in self.summary.targets if one.name == name), None)

    @property
    def weight(self) -> float:
        """Of the time, in the energy-delay product that systems are ranked by."""
        return frozen.weight(self.summary.experiment)

    @property
    def scope_text(self) -> str:
        """Whose energy a figure shows, to be printed beside it."""
        summary = self.summary
        if not summary.energy_scope:
            return ""
        less = "".join(
            f", less {quantity(watts, 'W')} of {name}"
            for name, watts in summary.subtracted_w.items()
        )
        scopes = [
            f"{summary.shares[name]:.4g} of {name}" if name in summary.shares else name
            for name in summary.energy_scope
        ]
        return f"Scope of energy: {', '.join(scopes)}{less}."

    def is_in_scope(self, scope: str) -> bool:
        """Whether power of that scope counts in the energy of the experiment."""
        wanted = self.summary.energy_scope
        return not wanted or scope in wanted or "all" in wanted

    def is_modelled(self, cell: Cell) -> bool:
        """Whether energy of a cell is from a model: by its flags, or as there is no other meter."""
        if not self.summary.is_modelled or cell.energy is None:
            return False
        if any(flag.upper().startswith("MODELLED") for flag in cell.flags):
            return True
        return all(meter.is_modelled for meter in self.summary.meters)

    def energy_label(self, cell: Cell) -> str:
        """Label of the series of a cell in a figure of energy; says which are modelled."""
        label = self.looks.label(series_of(cell))
        return f"{label} MODELLED" if self.is_modelled(cell) else label

    def is_target_modelled(self, target: TargetSummary) -> bool:
        """Whether idle and mean power of a target are from a model."""
        if not self.summary.is_modelled:
            return False
        if all(meter.is_modelled for meter in self.summary.meters):
            return True
        return any(
            self.is_modelled(cell) for cell in self.summary.cells if cell.target == target.name
        )

    def window(self, begin_ns: int, end_ns: int) -> list[PowerSample]:
        """Samples that touch a time."""
        first = bisect_left(self._ends, begin_ns)
        last = bisect_right(self._ends, end_ns + self._longest_ns)
        return [one for one in self.samples[first:last] if one.t0_ns <= end_ns]

    def series(self, trial: str, repetition: int) -> dict[str, list[dict[str, Any]]]:
        """What the hosts did in one repetition, by host; empty where they were not sampled."""
        if self.run is None:
            return {}
        below = self.run / "trials" / trial / f"rep-{repetition:03d}"
        return {
            path.stem.removeprefix("series-"): list(records.read_lines(path, []))
            for path in sorted(below.glob("series-*.jsonl"))
        }

    def over_time(self, repetition: Repetition, name: str) -> list[tuple[float, float]]:
        """What a workload recorded over the time of a phase; empty where it recorded nothing."""
        if self.run is None:
            return []
        below = self.run / "trials" / repetition.trial / f"rep-{repetition.repetition:03d}"
        path = below / "phases.jsonl"
        if not path.exists():
            return []
        for line in records.read_lines(path, []):
            if line.get("phase") == repetition.phase and line.get("role", "work") == "work":
                points = (line.get("over_time") or {}).get(name) or []
                return [(float(at), float(value)) for at, value in points]
        return []

    def is_backup(self, repetition: Repetition) -> bool:
        """Whether a meter stood in for another while this was measured."""
        return any("backup meter" in note for note in repetition.notes)

    def without_stand_ins(self, samples: Sequence[PowerSample]) -> list[PowerSample]:
        """Leaves out samples of backup meters where the meter that they back up was at work."""
        mains = {(one.meter, one.scope) for one in samples if one.watts is not None}
        backups = self._backup_meters()
        return [one for one in samples if (backups.get(one.meter), one.scope) not in mains]

    def _backup_meters(self) -> dict[str, str]:
        meters = self.summary.experiment.get("meters")
        if not isinstance(meters, dict):
            return {}
        return {
            name: str(settings["backup_for"])
            for name, settings in meters.items()
            if isinstance(settings, dict) and settings.get("backup_for")
        }

    def hollow(self, cell: Cell, count: int) -> list[bool]:
        """Which of the values of a figure of energy, in their order, are from a backup meter."""
        marks = [self.is_backup(one) for one in self.repetitions(cell) if one.gross_j is not None]
        return marks if len(marks) == count else [False] * count


def load(run: Path) -> Source:
    """Reads a run directory; LabError where it has no summary that can be read."""
    path = run / "summary.json"
    try:
        summary = from_json(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise LabError(f"cannot read the summary: {error.strerror} path={path}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"cannot read the summary: {error} path={path}") from error
    torn: list[records.Torn] = []
    journal = run / "journal.jsonl"
    lines = list(records.read_lines(journal, torn)) if journal.exists() else []
    return Source(
        summary=summary,
        samples=_samples(run / "derived" / "samples.csv"),
        phases=_phases(run / "derived" / "phases.csv"),
        journal=lines,
        run=run,
        torn=len(torn),
    )


def _samples(path: Path) -> list[PowerSample]:
    return [
        PowerSample(
            int(line["t0_ns"]),
            int(line["t1_ns"]),
            line["channel"],
            line["scope"],
            line["kind"],
            float(line["watts"]) if line["watts"] else None,
            line["quality"],
            line["meter"],
        )
        for line in _lines(path, PowerSample._fields)
    ]


def _phases(path: Path) -> list[PhaseSpan]:
    return [
        PhaseSpan(
            line["trial"],
            int(line["repetition"]),
            line["phase"],
            line["role"],
            int(line["begin_ns"]),
            int(line["end_ns"]),
        )
        for line in _lines(path, PhaseSpan._fields)
    ]


def _lines(path: Path, fields: Sequence[str]) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        reader = csv.DictReader(file)
        missing = set(fields) - set(reader.fieldnames or ())
        if missing:
            raise LabError(f"cannot read a table: no such column path={path} columns={missing}")
        return list(reader)
