# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a reader must know of a run beside its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from terrace_lab.analyse import frozen
from terrace_lab.analyse.cells import has_failed
from terrace_lab.analyse.phases import Idle
from terrace_lab.analyse.power import Power
from terrace_lab.analyse.record import Record, damage
from terrace_lab.numbers.clock import Axis
from terrace_lab.numbers.cost import over_limit
from terrace_lab.summary import Cell, Peak, Repetition

LEAST_FOR_OUTLIERS = 6
CAUSES = ("gap_begin", "gap_end", "wait", "note", "resume", "drift_accepted")
"""Events of the journal that may be why a repetition is far from the others."""
STAMPS = ("event", "real", "raw")


def deviations(record: Record, power: Power, axis: Axis) -> list[str]:
    """Where the run is not what the experiment says."""
    found = damage(record)
    for line in record.journal:
        event = line.get("event")
        if (
            event in ("resume", "drift_accepted", "note")
            or event == "rep"
            and line.get("state") in ("void", "failed")
        ):
            found.append(_told(line))
    for attempt in record.attempts:
        verdict = attempt.result.get("verdict")
        if has_failed(attempt) and isinstance(verdict, Mapping) and not verdict.get("is_good"):
            found.append(f"failed trial={attempt.trial} rep={attempt.number}: {verdict['text']}")
        found += [f"{attempt.trial}: {note}" for note in attempt.result.get("notes") or ()]
        found += [
            f"{attempt.trial}/{line.get('phase')}: {note}"
            for line in attempt.lines
            for note in line.get("notes") or ()
        ]
    found += power.notes
    found += [
        f"the clock stepped by {step.by_s:+.3f} s at {step.at_s:.1f} s" for step in axis.steps
    ]
    if axis.has_rebooted:
        found.append("the machine was started anew in the run: steps of its clock are not seen")
    found += [
        f"torn line: {torn.path.relative_to(record.path)}:{torn.number}" for torn in record.torn
    ]
    return list(dict.fromkeys(found))


def _told(line: Mapping[str, Any]) -> str:
    rest = " ".join(f"{key}={value}" for key, value in line.items() if key not in STAMPS)
    return f"{line['event']} {rest}".strip()


def not_measured(
    record: Record,
    power: Power,
    scopes: Sequence[str],
    peaks: Sequence[Peak],
    made: Sequence[Cell],
    idle: Idle,
) -> list[str]:
    """What the experiment would have liked to know and nobody measured."""
    found = []
    if not record.meters:
        found.append("energy: there is no meter")
    found += [f"energy of {scope}: no meter has it" for scope in scopes if scope not in power.known]
    found += [
        f"energy of {name}: outside of the scope" for name in power.known if name not in scopes
    ]
    if record.meters and not idle.periods:
        found.append("idle power: there is no idle period with samples")
    bounded = {direction: False for cell in made if (direction := cell.direction) != "none"}
    bounded |= {cell.direction: True for cell in made if cell.percent_of_peak is not None}
    found += [
        f"theoretical peak of {direction}: no component of it was probed"
        for direction, is_known in bounded.items()
        if not is_known
    ]
    missing = dict.fromkeys(name for peak in peaks for name in peak.missing)
    found += [f"component {name}: not probed, may bind lower" for name in missing]
    started = {cell.trial for cell in made}
    found += [
        f"trial {name}: no repetition that counts" for name in record.trials if name not in started
    ]
    for name, table in frozen.table(record.experiment, "targets").items():
        limit = frozen.number(table.get("power_limit_w"))
        reached = [
            cell.energy.peak_w
            for cell in made
            if cell.target == name and cell.energy and cell.energy.peak_w is not None
        ]
        if limit is not None and not reached:
            found.append(f"peak power of {name}: no samples to hold against {limit:g} W")
    return found


def mark_power_limits(record: Record, made: Sequence[Cell]) -> None:
    """Flags cells whose highest sample is above the limit of their target."""
    for cell in made:
        table = frozen.table(record.experiment, "targets", cell.target)
        peak_w = cell.energy.peak_w if cell.energy else None
        flag = over_limit(peak_w, frozen.number(table.get("power_limit_w")))
        if flag:
            cell.flags.append(flag)


def with_outliers(
    repetitions: Sequence[Repetition], journal: Sequence[Mapping[str, Any]]
) -> list[Repetition]:
    """Notes repetitions beyond 1.5 quartile ranges, with what the journal says of their time.

    They are kept in every figure.
    """
    cells: dict[tuple[str, str], list[Repetition]] = {}
    for one in repetitions:
        cells.setdefault((one.trial, one.phase), []).append(one)
    for members in cells.values():
        if len(members) < LEAST_FOR_OUTLIERS:
            continue
        seconds = np.array([one.seconds for one in members])
        q1, q3 = np.percentile(seconds, [25, 75])
        reach = 1.5 * (q3 - q1)
        for one in members:
            if not q1 - reach <= one.seconds <= q3 + reach:
                causes = [_told(line) for line in journal if _is_cause(line, one)]
                one.notes.append("far from the others: " + ("; ".join(causes) or "cause unknown"))
    return list(repetitions)


def _is_cause(line: Mapping[str, Any], one: Repetition) -> bool:
    return line.get("event") in CAUSES and one.begin_ns <= int(line.get("real", 0)) <= one.end_ns
