# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The tables of `derived/`: CSV, and Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
import dataclasses
import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from terrace_lab.analyse.phases import Phase
from terrace_lab.analyse.power import Power
from terrace_lab.numbers.clock import Axis
from terrace_lab.records import Quality
from terrace_lab.summary import Repetition, Summary

Columns = Mapping[str, Sequence[Any]]

PHASE_COLUMNS = (
    *("trial", "repetition", "phase", "role", "of", "begin_ns", "end_ns", "seconds", "work"),
    *("unit", "gross_j", "idle_w", "by_scope", "is_guarded", "is_modelled"),
)
SAMPLE_COLUMNS = ("t0_ns", "t1_ns", "channel", "scope", "kind", "watts", "quality", "meter")


def write(
    directory: Path, summary: Summary, phases: Sequence[Phase], power: Power, axis: Axis
) -> None:
    """Writes `samples`, `phases` and `metrics`."""
    directory.mkdir(parents=True, exist_ok=True)
    _table(directory, "samples", _samples(power, axis))
    metrics = [field.name for field in dataclasses.fields(Repetition)]
    _table(directory, "phases", _columns(PHASE_COLUMNS, [_phase(one) for one in phases]))
    _table(directory, "metrics", _columns(metrics, [_metric(one) for one in summary.repetitions]))


def _samples(power: Power, axis: Axis) -> Columns:
    """Pieces of known energy of every channel of every meter, on the clock of the runner."""
    columns: dict[str, list[Any]] = {name: [] for name in SAMPLE_COLUMNS}
    for one in power.all_series():
        channel, count = one.channel, len(one.end_s)
        quality = Quality.MODEL if channel.is_modelled else Quality.OK
        columns["t0_ns"] += axis.real_of(one.begin_s).tolist()
        columns["t1_ns"] += axis.real_of(one.end_s).tolist()
        columns["channel"] += [channel.name] * count
        columns["scope"] += [channel.scope] * count
        columns["kind"] += [one.kind.value] * count
        columns["watts"] += np.round(one.power_w, 6).tolist()
        columns["quality"] += [quality.value] * count
        columns["meter"] += [channel.meter] * count
    return columns


def _phase(one: Phase) -> dict[str, Any]:
    return {
        "trial": one.attempt.trial,
        "repetition": one.attempt.number,
        "phase": one.name,
        "role": one.role,
        "of": one.of,
        "begin_ns": one.begin_ns,
        "end_ns": one.end_ns,
        "seconds": one.seconds,
        "work": one.work,
        "unit": one.unit,
        "gross_j": one.gross_j,
        "idle_w": one.idle_w,
        "by_scope": json.dumps(dict(one.energy.by_scope), sort_keys=True),
        "is_guarded": one.energy.is_guarded,
        "is_modelled": one.energy.is_modelled,
    }


def _metric(one: Repetition) -> dict[str, Any]:
    row = {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}
    return row | {"notes": "; ".join(one.notes)}


def _columns(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Columns:
    return {name: [row[name] for row in rows] for name in names}


def _table(directory: Path, name: str, columns: Columns) -> None:
    with open(directory / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    if importlib.util.find_spec("pyarrow") is not None:
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.table(dict(columns))
        pyarrow.parquet.write_table(table, directory / f"{name}.parquet")
