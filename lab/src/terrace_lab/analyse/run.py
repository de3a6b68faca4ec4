# SPDX-License-Identifier: Apache-2.0 OR MIT
"""From the record of a run to its summary and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from terrace_lab.analyse import cells, frozen, tables
from terrace_lab.analyse.cells import Group
from terrace_lab.analyse.compared import comparisons, overheads, systems_of_run
from terrace_lab.analyse.limits import bounded_rates, peaks_of, stream_rates
from terrace_lab.analyse.phases import Idle, Phase, idle_periods, phases
from terrace_lab.analyse.power import Power
from terrace_lab.analyse.record import Attempt, MeterRecord, Record, damage, read
from terrace_lab.analyse.remarks import (
    deviations,
    mark_power_limits,
    not_measured,
    with_outliers,
)
from terrace_lab.analyse.targets import target_summaries
from terrace_lab.numbers.clock import Axis
from terrace_lab.records import write_json
from terrace_lab.summary import SCHEMA, Cell, MeterSummary, Repetition, Summary, to_json


def analyse(run: Path, weight: float | None = None) -> Summary:
    """Reads a run, writes `derived/` and `summary.json`, and returns the summary.

    The same record gives the same bytes. A run that is not at its end, or torn, gives what it has.
    Systems are ranked by the energy-delay product of `weight`, or of that of the experiment.
    """
    made = _analysis(run, weight)
    tables.write(run / "derived", made.summary, made.phases, made.power, made.axis)
    write_json(run / "summary.json", to_json(made.summary))
    return made.summary


def summarise(run: Path) -> Summary:
    """The summary alone, for a decision in the middle of a run; writes nothing."""
    return _analysis(run).summary


@dataclass(frozen=True, slots=True)
class _Analysis:
    summary: Summary
    phases: list[Phase]
    power: Power
    axis: Axis


def _analysis(run: Path, weight: float | None = None) -> _Analysis:
    record = read(run)
    if weight is not None:
        record.experiment.setdefault("energy", {})["weight"] = weight
    axis = _axis(record)
    power = Power(
        record.meters,
        record.experiment,
        axis,
        frozen.energy_rules(record.experiment),
        sum(frozen.subtracted(record.experiment).values()),
        frozen.shares(record.experiment),
    )
    scopes = frozen.scopes(record.experiment, power.known)
    idle = idle_periods(record.idle, power, scopes, axis)
    made = _phases(record, axis, power, scopes, idle)
    samples_w = {
        id(one): power.samples_w(scopes, one.begin_s, one.end_s)
        for one in made
        if one.begin_s is not None and one.end_s is not None and one.energy.void is None
    }
    grouped = cells.groups(record.trials, record.attempts, made, samples_w)
    reference = record.experiment.get("reference")
    by_reference = {one.key: one for one in grouped if one.trial.target == reference}
    made_cells = [cells.cell(one, by_reference.get(one.key), record.experiment) for one in grouped]
    summary = _summary(record, axis, power, scopes, idle, grouped, made_cells, made)
    return _Analysis(summary, made, power, axis)


def _axis(record: Record) -> Axis:
    journal = [line for line in record.journal if "real" in line and "raw" in line]
    real = np.array([line["real"] for line in journal], dtype=np.int64)
    raw = np.array([line["raw"] for line in journal], dtype=np.int64)
    return Axis([(real, raw), *(meter.stamps for meter in record.meters)])


def _phases(
    record: Record, axis: Axis, power: Power, scopes: Sequence[str], idle: Idle
) -> list[Phase]:
    made: list[Phase] = []
    for attempt in record.attempts:
        if cells.counts(attempt) and attempt.trial in record.trials:
            target = record.trials[attempt.trial].target
            found = phases(attempt, axis, power, scopes)
            made += idle.applied(found, target)
    return made


def _summary(
    record: Record,
    axis: Axis,
    power: Power,
    scopes: list[str],
    idle: Idle,
    grouped: Sequence[Group],
    made_cells: list[Cell],
    made: Sequence[Phase],
) -> Summary:
    experiment = record.experiment
    peaks = peaks_of(record, grouped, made_cells)
    mark_power_limits(record, made_cells)
    journal = record.journal
    ends = [int(line["real"]) for line in journal if line.get("event") == "end"]
    is_modelled = power.is_modelled(scopes) or any(one.energy.is_modelled for one in made)
    repetitions = with_outliers([_repetition(one) for one in made], journal)
    reference = experiment.get("reference")
    systems = systems_of_run(grouped, made_cells, frozen.weight(experiment))
    return Summary(
        schema=SCHEMA,
        name=str(experiment.get("name", record.path.name)),
        experiment_hash=str(record.head.get("experiment_hash", "")),
        run_id=str(record.head.get("run_id", record.path.name)),
        begin_ns=_begin_ns(record),
        end_ns=ends[-1] if ends else None,
        is_complete=bool(ends) and not damage(record),
        is_modelled=is_modelled,
        reference=reference,
        energy_scope=list(scopes),
        subtracted_w=frozen.subtracted(experiment),
        shares=frozen.shares(experiment),
        experiment=experiment,
        environments=record.environments,
        meters=[_meter(one) for one in record.meters],
        targets=target_summaries(record, idle, grouped, made_cells),
        peaks=peaks,
        cells=made_cells,
        comparisons=comparisons(systems, reference),
        repetitions=repetitions,
        idle_drift=idle.drift,
        not_measured=not_measured(record, power, scopes, peaks, made_cells, idle),
        deviations=deviations(record, power, axis),
        commands=_commands(record.attempts),
        reference_lines=frozen.reference_lines(experiment),
        bounded_rates=bounded_rates(experiment, grouped),
        overheads=overheads(systems, made_cells, frozen.baselines(experiment)),
        stream_rates=stream_rates(record.probes),
        workload_hashes=_hashes(record),
    )


def _begin_ns(record: Record) -> int:
    begin = record.head.get("begin")
    if isinstance(begin, Mapping):
        return int(begin["real_ns"])
    return next((int(line["real"]) for line in record.journal if "real" in line), 0)


def _hashes(record: Record) -> dict[str, str]:
    names = dict.fromkeys(one.workload for one in record.trials.values())
    return {
        name: str(
            record.workloads.get(name, {}).get("hash")
            or frozen.workload_hash(record.experiment, name)
        )
        for name in names
    }


def _meter(meter: MeterRecord) -> MeterSummary:
    info = meter.info
    return MeterSummary(
        name=meter.name,
        kind=str(info.get("kind", "")),
        identity=str(info.get("identity", "")),
        is_modelled=bool(info.get("is_modelled")) or meter.has_model,
        period_s=float(info.get("period_s") or 0.0),
        channels={one.name: one.scope for one in meter.channels},
        samples=meter.samples,
        unusable=meter.unusable,
        gaps=meter.gaps,
        gap_seconds=sum(
            (gap.end_ns - gap.begin_ns) / 1e9 for gap in meter.gaps if gap.end_ns is not None
        ),
        lag_s=meter.lag_s,
        lag_confidence=meter.lag_confidence,
    )


def _repetition(one: Phase) -> Repetition:
    is_void = one.energy.void is not None
    return Repetition(
        trial=one.attempt.trial,
        repetition=one.attempt.number,
        order=one.attempt.order,
        block=one.attempt.block,
        phase=one.name,
        begin_ns=one.begin_ns,
        end_ns=one.end_ns,
        clock_bound_s=one.bound_s,
        work=one.work,
        seconds=one.seconds,
        rate=one.rate,
        gross_j=one.gross_j,
        net_j=one.net_j,
        error_j=None if is_void else one.energy.error_j,
        mean_w=one.mean_w,
        energy_void=None if one.energy.void == "no meter" else one.energy.void,
        notes=list(one.notes),
    )


def _commands(attempts: Sequence[Attempt]) -> dict[str, list[list[str]]]:
    commands: dict[str, list[list[str]]] = {}
    for attempt in attempts:
        for phase, argvs in attempt.commands.items():
            commands.setdefault(f"{attempt.trial}/{phase}", argvs)
    return dict(sorted(commands.items()))
