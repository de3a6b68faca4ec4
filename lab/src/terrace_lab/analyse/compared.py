# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Every target against the reference, cell by cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from terrace_lab.analyse.cells import Group
from terrace_lab.numbers.comparison import TOO_FEW, Ratio, compare, compare_apart, verdict
from terrace_lab.numbers.edp import edp, key, scale
from terrace_lab.numbers.intervals import holm
from terrace_lab.summary import Cell, Comparison, Interval, Overhead, Repetition

METRICS = {"rate": True, "gross_j": False, "per_joule": True}
"""And whether more is better; beside them `edpW`, of the weight that is ranked by."""
NOT_RANKED = "not ranked: modelled against measured energy"
NOT_EQUAL_WORK = "not ranked: the work differs"


def metric_of(weight: float) -> str:
    """What the energy-delay product of a weight is called among the metrics."""
    return f"edp{key(weight)}"


Key = tuple[str, str, int, str]


def key_of(cell: Cell) -> Key:
    """Equal for the same cell of another target."""
    return cell.workload, cell.phase, cell.clients, repr(sorted(cell.factors.items()))


@dataclass(frozen=True, slots=True)
class System:
    """One cell of one target, as far as it is compared."""

    run: str
    target: str
    key: Key
    is_modelled: bool
    values: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    """By metric and block."""
    work: float = 0.0


def systems_of_run(
    grouped: Sequence[Group], made: Sequence[Cell], weight: float = 1.0
) -> list[System]:
    """What a run has to compare: phases that do work."""
    return [
        _system("", group, cell, weight)
        for group, cell in zip(grouped, made, strict=True)
        if group.phases[0].role == "work"
    ]


def _system(run: str, group: Group, cell: Cell, weight: float) -> System:
    product = metric_of(weight)
    values: dict[str, dict[int, list[float]]] = {name: {} for name in (*METRICS, product)}
    energy = cell.energy
    products = iter(energy.edp[key(weight)].values if energy else ())
    for one in group.phases:
        block = one.attempt.block
        if one.work > 0:
            values["rate"].setdefault(block, []).append(one.rate)
        if one.energy.void is None:
            values["gross_j"].setdefault(block, []).append(one.energy.gross_j)
            values["per_joule"].setdefault(block, []).append(one.work / one.energy.gross_j)
            values[product].setdefault(block, []).append(next(products))
    is_modelled = any(one.energy.is_modelled for one in group.phases)
    return System(run, cell.target, group.key, is_modelled, values, cell.work)


def systems_of_summary(
    run: str,
    cells: Sequence[Cell],
    repetitions: Sequence[Repetition],
    is_modelled: bool,
    works: Mapping[Key, float],
    weight: float = 1.0,
) -> list[System]:
    """The same from a summary alone, as `merge` has it; `works` are those of the reference."""
    found = []
    for cell in cells:
        name = metric_of(weight)
        values: dict[str, dict[int, list[float]]] = {one: {} for one in (*METRICS, name)}
        own_key = key_of(cell)
        work = works.get(own_key, cell.work)
        own = [one for one in repetitions if (one.trial, one.phase) == (cell.trial, cell.phase)]
        for one in own:
            if one.work > 0:
                values["rate"].setdefault(one.block, []).append(one.rate)
            if one.gross_j:
                values["gross_j"].setdefault(one.block, []).append(one.gross_j)
                values["per_joule"].setdefault(one.block, []).append(one.work / one.gross_j)
                product = edp(one.gross_j, one.seconds, scale(one.work, work), weight)
                values[name].setdefault(one.block, []).append(product)
        if values["rate"]:
            found.append(System(run, cell.target, own_key, is_modelled, values, cell.work))
    return found


def comparisons(systems: Sequence[System], reference: str | None) -> list[Comparison]:
    """Each cell of each other target against that of the reference, with p adjusted over all."""
    theirs = {one.key: one for one in systems if one.target == reference}
    pairs = [
        (ours, theirs[ours.key], metric, ratio)
        for ours in systems
        if ours.target != reference and ours.key in theirs
        for metric in ours.values
        if (ratio := _ratio(ours, theirs[ours.key], metric)) is not None
    ]
    adjusted = holm([_ranked_p(*pair) for pair in pairs])
    return [_comparison(*pair, p_holm) for pair, p_holm in zip(pairs, adjusted, strict=True)]


def overheads(
    systems: Sequence[System], cells: Sequence[Cell], baselines: Mapping[str, str]
) -> list[Overhead]:
    """Each cell of a target that has a baseline against the same cell of that."""
    by_cell = {(one.target, one.key): one for one in systems}
    found = []
    for cell in cells:
        own_key = key_of(cell)
        ours = by_cell.get((cell.target, own_key))
        theirs = by_cell.get((baselines.get(cell.target, ""), own_key))
        if ours is None or theirs is None or ours is theirs:
            continue
        ratio = _ratio(ours, theirs, "rate")
        if ratio is None:
            continue
        interval = ratio.interval
        found.append(
            Overhead(
                target=cell.target,
                baseline=theirs.target,
                workload=cell.workload,
                phase=cell.phase,
                clients=cell.clients,
                factors=dict(cell.factors),
                percent=(1 - ratio.ratio) * 100,
                interval=(
                    Interval((1 - interval.high) * 100, (1 - interval.low) * 100)
                    if interval
                    else None
                ),
                blocks=ratio.blocks,
            )
        )
    return found


def _ratio(ours: System, theirs: System, metric: str) -> Ratio | None:
    own, other = ours.values.get(metric), theirs.values.get(metric)
    if not own or not other:
        return None
    seed = (ours.target, theirs.target, ours.key, metric)
    if ours.run == theirs.run:
        return compare(own, other, seed)
    # Blocks of two runs have nothing in common but their numbers.
    return compare_apart(
        [value for block in own.values() for value in block],
        [value for block in other.values() for value in block],
        seed,
    )


def _refusal(ours: System, theirs: System, metric: str) -> str | None:
    if metric == "rate":
        return None
    if ours.is_modelled != theirs.is_modelled:
        return NOT_RANKED
    differs = abs(ours.work - theirs.work) > 1e-6 * max(ours.work, theirs.work)
    return NOT_EQUAL_WORK if metric == "gross_j" and differs else None


def _ranked_p(ours: System, theirs: System, metric: str, ratio: Ratio) -> float | None:
    return None if _refusal(ours, theirs, metric) else ratio.p


def _comparison(
    ours: System, theirs: System, metric: str, ratio: Ratio, p_holm: float | None
) -> Comparison:
    workload, phase, clients, _ = ours.key
    refusal = _refusal(ours, theirs, metric)
    text = refusal or verdict(ratio, p_holm, METRICS.get(metric, False))
    return Comparison(
        workload=workload,
        phase=phase,
        clients=clients,
        metric=metric,
        target=ours.target,
        reference=theirs.target,
        ratio=ratio.ratio,
        interval=ratio.interval,
        blocks=ratio.blocks,
        p=ratio.p,
        p_holm=p_holm,
        verdict=text if ratio.interval is not None or refusal else TOO_FEW,
    )
