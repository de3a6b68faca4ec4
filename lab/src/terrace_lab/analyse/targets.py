# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What is said of each target as a whole: capacity, cost and power."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from terrace_lab.analyse import frozen
from terrace_lab.analyse.cells import Group
from terrace_lab.analyse.phases import Idle
from terrace_lab.analyse.record import Record
from terrace_lab.numbers import cost
from terrace_lab.numbers.intervals import value_of
from terrace_lab.summary import Cell, TargetSummary


def target_summaries(
    record: Record, idle: Idle, grouped: Sequence[Group], made: Sequence[Cell]
) -> list[TargetSummary]:
    """One for each target of the plan, in its order."""
    names = dict.fromkeys(one.target for one in record.trials.values())
    return [
        _target(
            name,
            frozen.table(record.experiment, "targets", name),
            record.targets.get(name, {}),
            idle,
            [one for one in grouped if one.trial.target == name],
            [one for one in made if one.target == name],
        )
        for name in names
    ]


def _target(
    name: str,
    table: Mapping[str, Any],
    told: Mapping[str, Any],
    idle: Idle,
    grouped: Sequence[Group],
    made: Sequence[Cell],
) -> TargetSummary:
    raw = frozen.size(told.get("raw_bytes", table.get("raw_bytes")))
    usable = frozen.size(told.get("usable_bytes", table.get("usable_bytes")))
    periods = idle.of(name)
    idle_w = value_of([one.power_w for one in periods]) if periods else None
    known = [one for group in grouped for one in group.phases if one.energy.void is None]
    seconds = sum(one.seconds for one in known)
    active_w = sum(one.energy.gross_j for one in known) / seconds if seconds > 0 else None
    nominal = frozen.size(table.get("nominal_bytes"))
    price = frozen.number(table.get("price"))
    peaks = [one.energy.peak_w for one in made if one.energy and one.energy.peak_w is not None]
    by_idle = idle_w.median if idle_w else None
    return TargetSummary(
        name=name,
        kind=str(table.get("kind", "")),
        servers=list(told.get("servers", table.get("servers", ()))),
        raw_bytes=raw,
        usable_bytes=usable,
        idle_w=idle_w,
        active_w=active_w,
        usable_bytes_per_idle_w=cost.ratio(usable, by_idle),
        raw_bytes_per_idle_w=cost.ratio(raw, by_idle),
        usable_bytes_per_active_w=cost.ratio(usable, active_w),
        price=price,
        price_per_tb=cost.price_per_tb(price, usable),
        price_per_mb_s=_price_per_mb_s(price, made),
        peak_w=max(peaks, default=None),
        power_limit_w=frozen.number(table.get("power_limit_w")),
        parameters=dict(told.get("parameters", table.get("parameters", {}))),
        nominal_bytes=nominal,
        nominal_bytes_per_idle_w=cost.ratio(nominal, by_idle),
    )


def _price_per_mb_s(price: float | None, made: Sequence[Cell]) -> dict[str, float]:
    """By workload and phase that moves bytes, at its highest rate."""
    highest: dict[str, float] = {}
    for one in made:
        if one.unit == "B" and one.rate.median > 0:
            key = f"{one.workload}/{one.phase}"
            highest[key] = max(highest.get(key, 0.0), one.rate.median)
    prices = {key: cost.price_per_mb_s(price, rate) for key, rate in highest.items()}
    return {key: value for key, value in prices.items() if value is not None}
