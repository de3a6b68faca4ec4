# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes summaries, and the tables beside them, as an analyser would write them."""

from __future__ import annotations

import csv
import json
import math
import random
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from terrace_lab import summary as summaries
from terrace_lab.summary import (
    Box,
    Cell,
    Comparison,
    Drift,
    Energy,
    Gap,
    Interval,
    Latency,
    MeterSummary,
    Peak,
    PercentOfPeak,
    ReferenceLine,
    Repetition,
    Summary,
    TargetSummary,
    Value,
)

BEGIN_NS = 1_760_000_000_000_000_000
IDLE_W = 100.0
MIB = 1024.0**2

# name, kind, [(phase, unit, direction, work of one client, seconds)]
WORKLOADS: dict[str, tuple[str, list[tuple[str, str, str, float, float]]]] = {
    "seq": ("fio", [("write", "B", "write", 2e9, 20), ("read", "B", "read", 2e9, 15)]),
    "md": (
        "mdtest",
        [
            ("create", "files", "metadata", 5e4, 25),
            ("stat", "files", "metadata", 5e4, 8),
            ("remove", "files", "metadata", 5e4, 18),
        ],
    ),
    "rand4k": ("fio", [("rand-write", "ops", "iops", 1e5, 12)]),
    "linux": (
        "compile",
        [
            ("unpack", "files", "none", 7e4, 12),
            ("make", "files", "none", 3e3, 70),
        ],
    ),
    "unet3d": ("dlinput", [("epoch-1", "samples", "read", 400, 30)]),
    "heat": (
        "pde",
        [
            ("compute", "steps", "none", 200, 40),
            ("checkpoint", "checkpoints", "write", 10, 8),
            ("restart", "B", "read", 1e9, 3),
        ],
    ),
}


def value(values: Sequence[float]) -> Value:
    ordered = sorted(values)
    interval = Interval(ordered[0], ordered[-1]) if len(values) >= 6 else None
    return Value(
        list(values),
        statistics.median(values),
        interval,
        statistics.fmean(values),
        statistics.stdev(values) if len(values) > 1 else None,
    )


def make_summary(
    *,
    targets: Sequence[str] = ("nfs", "ceph", "ours"),
    workloads: Sequence[str] = tuple(WORKLOADS),
    clients: Sequence[int] = (1, 2, 4, 8, 16),
    repetitions: int = 6,
    modelled: Sequence[str] = (),
    with_energy: bool = True,
    factors: Sequence[dict[str, Any]] = ({},),
    seed: int = 7,
) -> Summary:
    """A summary of which every figure is drawn; `modelled` names the targets under a model."""
    chance = random.Random(seed)
    cells: list[Cell] = []
    lines: list[Repetition] = []
    order = 0
    now = BEGIN_NS + 10**10
    for workload in workloads:
        kind, phases = WORKLOADS[workload]
        for number, target in enumerate(targets):
            for count in clients:
                for choice in factors:
                    tag = "".join(f"-{one}" for one in choice.values())
                    trial = f"{workload}-{target}-c{count}{tag}"
                    made: dict[str, list[Repetition]] = {}
                    for repetition in range(1, repetitions + 1):
                        order += 1
                        for phase, unit, _, work, seconds in phases:
                            speed = (1 + 0.3 * number) * count**0.6 * chance.lognormvariate(0, 0.04)
                            took = seconds * count / speed
                            watts = IDLE_W + 12 * number + 8 * count**0.7 + chance.gauss(0, 1)
                            one = Repetition(
                                trial=trial,
                                repetition=repetition,
                                order=order,
                                block=repetition,
                                phase=phase,
                                begin_ns=now,
                                end_ns=now + round(took * 1e9),
                                clock_bound_s=1e-4,
                                work=work * count if unit != "s" else work,
                                seconds=took,
                                rate=(work * count if unit != "s" else work) / took,
                                gross_j=watts * took if with_energy else None,
                                net_j=(watts - IDLE_W) * took if with_energy else None,
                                error_j=0.01 * watts * took if with_energy else None,
                                mean_w=watts if with_energy else None,
                                energy_void=None,
                                notes=[],
                            )
                            made.setdefault(phase, []).append(one)
                            lines.append(one)
                            now = one.end_ns + 2 * 10**9
                    for phase, unit, direction, _, _ in phases:
                        cells.append(
                            _cell(
                                made[phase],
                                target,
                                workload,
                                kind,
                                count,
                                choice,
                                unit,
                                direction,
                                target in modelled,
                                with_energy,
                                chance,
                            )
                        )
    _normalise(cells, targets[0])
    return Summary(
        schema=summaries.SCHEMA,
        name="ours against nfs and ceph",
        experiment_hash="0123abcd",
        run_id="run-1",
        begin_ns=BEGIN_NS,
        end_ns=now,
        is_complete=True,
        is_modelled=bool(modelled),
        reference=targets[0],
        energy_scope=["s1", "s2"] if with_energy else [],
        experiment={"name": "x", "factors": {"target": list(targets), "clients": list(clients)}},
        environments={"s1": {"kernel": "6.1.0-40-amd64", "memory_bytes": 8 << 30}},
        meters=_meters(modelled, targets) if with_energy else [],
        targets=[_target(name, index, with_energy) for index, name in enumerate(targets)],
        peaks=_peaks(targets, clients),
        cells=cells,
        comparisons=_comparisons(cells, targets[0], modelled),
        repetitions=lines,
        reference_lines=[
            ReferenceLine(
                "CephFS, 5 nodes",
                95.0,
                "MiB/s",
                "seq",
                "write",
                "conference paper, figure 4",
                "four clients, gigabit network",
            )
        ]
        if "seq" in workloads
        else [],
        idle_drift=0.012 if with_energy else None,
        not_measured=["power of the switch"],
        deviations=["workload seq: ior is not installed, fio was used"],
        commands={f"{cells[0].trial}/write": [["fio", "--name=write", "--size=2g"]]},
    )


def _cell(
    made: list[Repetition],
    target: str,
    workload: str,
    kind: str,
    count: int,
    choice: dict[str, Any],
    unit: str,
    direction: str,
    is_modelled: bool,
    with_energy: bool,
    chance: random.Random,
) -> Cell:
    rate = value([one.rate for one in made])
    energy = None
    if with_energy:
        joules = [one.gross_j or 0.0 for one in made]
        watts = [one.mean_w or 0.0 for one in made]
        middle = statistics.median(watts)
        energy = Energy(
            method="guarded",
            gross_j=value(joules),
            net_j=value([one.net_j or 0.0 for one in made]),
            error_j=max(one.error_j or 0.0 for one in made),
            mean_w=value(watts),
            peak_w=max(watts) + 20,
            box=Box(middle - 12, middle - 4, middle, middle + 5, middle + 14, [middle + 25.0], 400),
            per_joule=value([one.work / (one.gross_j or 1.0) for one in made]),
            edp={
                str(w): value([(one.gross_j or 0.0) * one.seconds**w for one in made])
                for w in (0, 1, 2)
            },
            edp_normalised={},
            edp_rescaled=False,
            voided=0,
            by_scope={
                "s1": value([0.7 * one for one in joules]),
                "switch": value([0.3 * one for one in joules]),
            },
        )
    latency = None
    if direction in ("iops", "write"):
        typical = 0.0008 * count / (1 + 0.2 * len(target) % 3)
        steps = [typical * math.exp(0.6 * (index - 10) / 3) for index in range(21)]
        latency = Latency(
            {
                "p50": value([typical * chance.lognormvariate(0, 0.02) for _ in made]),
                "p99": value([typical * 5 * chance.lognormvariate(0, 0.05) for _ in made]),
                "p99.9": value([typical * 7 for _ in made]),
            },
            [(step, index / 20) for index, step in enumerate(steps)],
        )
    extra = {}
    if kind == "dlinput":
        extra = {
            "accelerator_utilisation": value([0.7 + 0.02 * chance.random() for _ in made]),
            "stall_s": value([3.0 for _ in made]),
        }
    percent = None
    if direction in ("write", "read"):
        percent = PercentOfPeak(61.0, Interval(58.0, 63.0), False)
    return Cell(
        trial=made[0].trial,
        target=target,
        workload=workload,
        kind=kind,
        phase=made[0].phase,
        clients=count,
        factors=choice,
        unit=unit,
        direction=direction,
        work=made[0].work,
        rate=rate,
        rate_total=sum(one.work for one in made) / sum(one.seconds for one in made),
        seconds=value([one.seconds for one in made]),
        percent_of_peak=percent,
        latency=latency,
        energy=energy,
        extra=extra,
        stop="met" if len(made) >= 6 else "too few",
        failed=0,
        drift=Drift(0.2, 0.4, 1.01) if len(made) > 2 else None,
        flags=["MODELLED"] if is_modelled else [],
    )


def _normalise(cells: Sequence[Cell], reference: str) -> None:
    for cell in cells:
        for other in cells:
            key = (other.workload, other.phase, other.clients, other.factors)
            is_same = key == (cell.workload, cell.phase, cell.clients, cell.factors)
            if cell.energy and other.energy and other.target == reference and is_same:
                cell.energy.edp_normalised = {
                    w: cell.energy.edp[w].median / other.energy.edp[w].median
                    for w in ("0", "1", "2")
                }


def _comparisons(
    cells: Sequence[Cell], reference: str, modelled: Sequence[str]
) -> list[Comparison]:
    found = []
    for cell in cells:
        if cell.target == reference:
            continue
        metrics = ("rate", "gross_j", "per_joule", "edp1") if cell.energy else ("rate",)
        for metric in metrics:
            mixed = (cell.target in modelled) != (reference in modelled) and metric != "rate"
            found.append(
                Comparison(
                    cell.workload,
                    cell.phase,
                    cell.clients,
                    metric,
                    cell.target,
                    reference,
                    1.3,
                    Interval(1.2, 1.4),
                    6,
                    0.01,
                    0.03,
                    "not ranked: one is modelled" if mixed else "better",
                )
            )
    return found


def _meters(modelled: Sequence[str], targets: Sequence[str]) -> list[MeterSummary]:
    gap = Gap(BEGIN_NS + 5 * 10**9, BEGIN_NS + 7 * 10**9, "no answer")
    meters = []
    if modelled:
        meters.append(
            MeterSummary(
                "model",
                "model",
                "",
                True,
                0.1,
                {"p1": "s1", "p2": "s2"},
                9000,
                {},
                [],
                0.0,
                None,
                None,
            )
        )
    if set(modelled) != set(targets):
        meters.append(
            MeterSummary(
                "lmg",
                "lmg450",
                "ZES LMG450 4711",
                False,
                0.05,
                {"1": "s1", "2": "s2"},
                120000,
                {"nan": 3},
                [gap],
                2.0,
                0.02,
                0.98,
            )
        )
    return meters


def _target(name: str, index: int, with_energy: bool) -> TargetSummary:
    idle = 0.98 * (IDLE_W + 12 * index) - 10
    return TargetSummary(
        name=name,
        kind="mount",
        servers=["s1", "s2"],
        raw_bytes=int(8e12),
        usable_bytes=int(4e12),
        idle_w=value([idle - 1, idle, idle + 1]) if with_energy else None,
        active_w=idle * 1.3 if with_energy else None,
        usable_bytes_per_idle_w=4e12 / idle if with_energy else None,
        raw_bytes_per_idle_w=8e12 / idle if with_energy else None,
        usable_bytes_per_active_w=4e12 / idle / 1.3 if with_energy else None,
        price=3000.0,
        price_per_tb=750.0,
        price_per_mb_s={"seq/write": 4.2},
        peak_w=idle * 1.6 if with_energy else None,
        power_limit_w=200.0,
        parameters={},
    )


def _peaks(targets: Sequence[str], clients: Sequence[int]) -> list[Peak]:
    found = []
    for target in targets:
        for count in clients:
            for direction, disk in (("write", 0.9e9), ("read", 1.5e9)):
                terms = {"memory": 5e9 * count, "network": 0.6e9 * count, "disk": disk}
                binding = min(terms, key=lambda one: terms[one])
                found.append(
                    Peak(
                        target,
                        count,
                        direction,
                        terms[binding],
                        "B/s",
                        Interval(terms[binding] * 0.97, terms[binding] * 1.02),
                        binding,
                        terms,
                        [],
                    )
                )
            found.append(
                Peak(
                    target,
                    count,
                    "iops",
                    9e3 * count,
                    "ops/s",
                    None,
                    "round trip",
                    {"round trip": 9e3 * count, "disk": 1.6e5},
                    ["server packet rate"],
                )
            )
    return found


def write_run(directory: Path, summary: Summary, *, samples: bool = True) -> Path:
    """Writes the parts of a run directory that a report reads."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "summary.json").write_text(json.dumps(summaries.to_json(summary)))
    (directory / "journal.jsonl").write_text(
        "".join(
            json.dumps({"event": event, "real": BEGIN_NS, "raw": 5}) + "\n"
            for event in ("begin", "end")
        )
        + '{"event": "to'
    )
    derived = directory / "derived"
    derived.mkdir(exist_ok=True)
    names = ["trial", "repetition", "phase", "role", "begin_ns", "end_ns"]
    with open(derived / "phases.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for one in summary.repetitions:
            head = [one.trial, one.repetition]
            writer.writerow([*head, "guard", "guard", one.begin_ns - 10**9, one.begin_ns])
            writer.writerow([*head, one.phase, "work", one.begin_ns, one.end_ns])
            if one.phase == "write":
                tail = f"{one.phase}.flush"
                writer.writerow([*head, tail, "tail", one.end_ns, one.end_ns + 10**9])
    if samples:
        _write_samples(derived / "samples.csv", summary)
    return directory


def _write_samples(path: Path, summary: Summary) -> None:
    modelled = {cell.trial for cell in summary.cells if "MODELLED" in cell.flags}
    is_wanted: Callable[[Repetition], bool] = lambda one: one.repetition == 1  # noqa: E731
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["t0_ns", "t1_ns", "channel", "scope", "kind", "watts", "quality", "meter"])
        for one in filter(is_wanted, summary.repetitions):
            quality, meter = ("model", "model") if one.trial in modelled else ("ok", "lmg")
            step = 250_000_000
            for index, begin in enumerate(range(one.begin_ns - 10**9, one.end_ns + 10**9, step)):
                busy = one.begin_ns <= begin < one.end_ns
                for scope, base in (("s1", 40.0), ("s2", 45.0)):
                    watts = base + (busy * 30) + (index * 7919 % 13) / 5
                    writer.writerow(
                        [begin, begin + step, scope, scope, "avg", watts, quality, meter]
                    )
