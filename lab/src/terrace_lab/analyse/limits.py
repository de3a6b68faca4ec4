# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What bounds the cells: the peaks of components, and bounds of latency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from terrace_lab.analyse import frozen
from terrace_lab.analyse.cells import Group
from terrace_lab.analyse.record import Record
from terrace_lab.numbers.bounds import Bound, Point, highest, percentile_of
from terrace_lab.numbers.intervals import value_of
from terrace_lab.numbers.peaks import Component, Found, Load, Probe, System, peak, percent_of
from terrace_lab.records import STREAMS
from terrace_lab.summary import BoundedRate, Cell, Peak, StreamRate

OF_BYTES = ("write", "read")
OF_OPERATIONS = ("iops", "metadata")
LOADS = ("workload.rate", "workload.rate_limit", "workload.load")
"""Factors that are a load, beside the number of clients."""


def probes_of(lines: Sequence[Mapping[str, Any]]) -> list[Probe]:
    """Joins repeated probes of one component; lines of unknown components are passed over."""
    values: dict[tuple[Component, str | None, str | None], list[float]] = {}
    for line in lines:
        try:
            component = Component(line["component"])
            value = float(line["value"])
        except (KeyError, TypeError, ValueError):
            continue
        if value > 0:
            key = (component, line.get("host"), line.get("device"))
            values.setdefault(key, []).append(value)
    return [Probe(*key, found) for key, found in values.items()]


def stream_rates(lines: Sequence[Mapping[str, Any]]) -> list[StreamRate]:
    """The table of streams, in the order of the probes."""
    values: dict[tuple[str, str, int], list[float]] = {}
    for line in lines:
        if line.get("component") == STREAMS:
            key = (str(line["host"]), str(line["to"]), int(line["streams"]))
            values.setdefault(key, []).append(float(line["value"]))
    return [StreamRate(*key, value_of(found)) for key, found in values.items()]


def peaks_of(record: Record, grouped: Sequence[Group], made: Sequence[Cell]) -> list[Peak]:
    """The peaks that cells can be held against; sets their `percent_of_peak` and its flag."""
    probes = probes_of(record.probes)
    found: dict[tuple[Any, ...], tuple[Peak, Found]] = {}
    for group, cell in zip(grouped, made, strict=True):
        if cell.direction in OF_BYTES and cell.unit == "B":
            key: tuple[Any, ...] = (cell.target, cell.clients, cell.direction, None, None)
        elif cell.direction in OF_OPERATIONS:
            key = (cell.target, cell.clients, cell.direction, cell.workload, cell.phase)
        else:
            continue
        if key not in found:
            bound = peak(
                cell.direction,
                _system(record, cell.target, cell.clients),
                _load(record.experiment, cell),
                probes,
                seed=key,
            )
            if bound is None:
                continue
            found[key] = (_peak(bound, key), bound)
        rates = [one.rate for one in group.phases]
        cell.percent_of_peak = percent_of(found[key][1], rates, seed=(cell.trial, cell.phase))
        if cell.percent_of_peak.is_suspicious:
            cell.flags.append("above the peak of the components: a cache was measured")
    return [one for one, _ in found.values()]


def _peak(bound: Found, key: tuple[Any, ...]) -> Peak:
    target, clients, direction, workload, phase = key
    return Peak(
        target=target,
        clients=clients,
        direction=direction,
        value=bound.value,
        unit="B/s" if direction in OF_BYTES else "ops/s",
        interval=bound.interval,
        binding=bound.binding,
        terms=bound.terms,
        missing=sorted(set(bound.missing)),
        workload=workload,
        phase=phase,
    )


def _system(record: Record, target: str, clients: int) -> System:
    table = frozen.table(record.experiment, "targets", target)
    told = record.targets.get(target, {})
    amplification = told.get("amplification", {})
    hosts = [
        name
        for name, host in frozen.table(record.experiment, "hosts").items()
        if host.get("role", "both") != "server"
    ]

    def factor(name: str, key: str) -> float:
        return float(amplification.get(name, table.get(key, 1.0)))

    return System(
        servers=list(told.get("servers", table.get("servers", ()))),
        # Load generators are dealt out to the hosts in turn, so that some hosts have several.
        clients=(hosts or [frozen.ONLY_HOST])[:clients],
        network_write=factor("network_write", "write_net_amp"),
        disk_write=factor("disk_write", "write_disk_amp"),
        disk_read=factor("disk_read", "read_disk_amp"),
    )


def _load(experiment: Mapping[str, Any], cell: Cell) -> Load:
    table = frozen.table(experiment, "workloads", cell.workload)
    factors = {key.removeprefix("workload."): value for key, value in cell.factors.items()}
    params = {**table, **frozen.table(table, "params"), **factors}

    def first(*names: str) -> float:
        found = (frozen.number(params.get(name)) for name in names)
        return next((one for one in found if one is not None), 1.0)

    return Load(
        generators=cell.clients,
        threads=round(first("threads", "numjobs", "processes")),
        depth=round(first("iodepth", "depth")),
        round_trips=first("round_trips"),
        group=first("journal_group"),
        is_read="read" in cell.phase,
    )


def bounded_rates(experiment: Mapping[str, Any], grouped: Sequence[Group]) -> list[BoundedRate]:
    """For each series of loads, the highest rate that keeps the bound of `[bounds]`."""
    table = frozen.table(experiment, "bounds")
    latency_s = frozen.seconds(table.get("latency"))
    if latency_s is None:
        return []
    bound = Bound(latency_s, float(table.get("percentile", 99.0)))
    series: dict[tuple[str, ...], list[tuple[str, Group]]] = {}
    for group in grouped:
        factors = dict(group.trial.factors)
        name = next((name for name in LOADS if name in factors), "clients")
        factors.pop(name, None)
        fixed = [] if name == "clients" else [str(group.trial.clients)]
        key = (group.trial.target, group.trial.workload, group.name, repr(sorted(factors.items())))
        series.setdefault((*key, *fixed), []).append((name, group))
    found = []
    for members in series.values():
        points = [_point(name, group, bound) for name, group in members]
        if not any(point.latencies_s for point in points):
            continue
        name, group = members[0]
        best = highest(points, bound)
        found.append(
            BoundedRate(
                target=group.trial.target,
                workload=group.trial.workload,
                phase=group.name,
                latency_s=bound.latency_s,
                percentile=bound.percentile,
                load_name=name,
                load=best.point.load if best.point else None,
                rate=best.point.rate if best.point else None,
                interval=best.point.rate_interval if best.point else None,
                unit=f"{group.phases[0].unit}/s",
                is_open=best.is_open,
            )
        )
    return found


def _point(name: str, group: Group, bound: Bound) -> Point:
    trial = group.trial
    rate = value_of([one.rate for one in group.phases])
    told = (percentile_of(dict(one.latency_s), one.ecdf, bound) for one in group.phases)
    return Point(
        load=float(trial.clients if name == "clients" else trial.factors[name]),
        rate=rate.median,
        rate_interval=rate.median_interval,
        latencies_s=[one for one in told if one is not None],
    )
