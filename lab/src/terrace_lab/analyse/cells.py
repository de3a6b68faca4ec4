# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One cell for each phase of each trial, from its repetitions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from terrace_lab.analyse import frozen
from terrace_lab.analyse.phases import Phase
from terrace_lab.analyse.record import Attempt, Trial
from terrace_lab.numbers.edp import edp, is_same, key, scale, weights
from terrace_lab.numbers.intervals import drift, rate_total, value_of
from terrace_lab.numbers.series import Floats
from terrace_lab.numbers.stopping import State, decide_all
from terrace_lab.summary import Box, Cell, Energy, Latency, Value

SAME_WORK = 1e-6
ECDF_STEPS = 200
AMOUNT = re.compile(r" (?:periods|seconds|coverage)=\S+")
MODELLED = "MODELLED: the energy is computed, not measured"


@dataclass(frozen=True, slots=True)
class Group:
    """The repetitions of one phase of one trial, in order of the run."""

    trial: Trial
    phases: list[Phase]
    tails: dict[int, list[Phase]]
    """By repetition: what followed the phase and belongs to it."""
    samples_w: list[Floats]
    failed: int
    lost: list[str]
    """Why repetitions do not count, beside those that failed."""

    @property
    def name(self) -> str:
        return self.phases[0].name

    @property
    def key(self) -> tuple[str, str, int, str]:
        """Equal for the same cell of another target."""
        factors = repr(sorted(self.trial.factors.items()))
        return self.trial.workload, self.name, self.trial.clients, factors

    @property
    def work(self) -> float:
        return float(np.median([one.work for one in self.phases]))


def groups(
    trials: Mapping[str, Trial],
    attempts: Sequence[Attempt],
    phases: Sequence[Phase],
    samples_w: Mapping[int, Floats],
) -> list[Group]:
    """Groups phases by trial and name, in the order of the plan and of the phases.

    `samples_w` has the power in a phase by `id` of that phase.
    """
    result = []
    for trial in trials.values():
        own = [one for one in phases if one.attempt.trial == trial.name]
        tries = [one for one in attempts if one.trial == trial.name and not one.is_warmup]
        names = dict.fromkeys(one.name for one in sorted(own, key=lambda one: one.begin_ns))
        for name in names:
            members = [one for one in own if one.name == name]
            tails: dict[int, list[Phase]] = {}
            for one in own:
                if one.role == "tail" and one.of == name:
                    tails.setdefault(one.attempt.number, []).append(one)
            result.append(
                Group(
                    trial=trial,
                    phases=members,
                    tails=tails,
                    samples_w=[samples_w[id(one)] for one in members if id(one) in samples_w],
                    failed=sum(has_failed(one) for one in tries),
                    lost=[
                        f"repetition {one.number} void: {one.reason or 'unfinished'}"
                        for one in tries
                        if not has_failed(one) and one.state != "done"
                    ],
                )
            )
    return result


def has_failed(attempt: Attempt) -> bool:
    """It ended with an error, or what was read is not what had been written."""
    verdict = attempt.result.get("verdict")
    is_bad = isinstance(verdict, Mapping) and verdict.get("is_good") is False
    return attempt.state == "failed" or (attempt.state == "done" and is_bad)


def counts(attempt: Attempt) -> bool:
    return attempt.state == "done" and not attempt.is_warmup and not has_failed(attempt)


def cell(group: Group, reference: Group | None, experiment: Mapping[str, Any]) -> Cell:
    """All figures of one group; peaks are added by who knows the probes."""
    phases = group.phases
    first = phases[0]
    rates = [one.rate for one in phases]
    energy = _energy(group, reference, weights(frozen.weight(experiment)))
    return Cell(
        trial=group.trial.name,
        target=group.trial.target,
        workload=group.trial.workload,
        kind=str(frozen.table(experiment, "workloads", group.trial.workload).get("kind", "")),
        phase=group.name,
        clients=group.trial.clients,
        factors=dict(group.trial.factors),
        unit=first.unit,
        direction=first.direction,
        work=group.work,
        rate=value_of(rates),
        rate_total=_rate_total(phases),
        seconds=value_of([one.seconds for one in phases]),
        percent_of_peak=None,
        latency=_latency(phases),
        energy=energy,
        extra=_extra(group),
        stop=_stop(phases, experiment),
        failed=group.failed,
        drift=drift(rates, [one.attempt.order for one in phases]),
        flags=_flags(group, energy),
        role=first.role,
    )


def _rate_total(phases: Sequence[Phase]) -> float:
    seconds = [one.seconds for one in phases]
    return rate_total([one.work for one in phases], seconds) if sum(seconds) > 0 else 0.0


def _energy(group: Group, reference: Group | None, exponents: Sequence[float]) -> Energy | None:
    known = [one for one in group.phases if one.energy.void is None]
    if not known:
        return None
    gross = [one.energy.gross_j for one in known]
    # `_flags` says so where nobody knows what idling takes.
    net = [one.net_j if one.net_j is not None else one.energy.gross_j for one in known]
    base = reference if reference is not None else group
    products = {key(one): value_of(_edp(known, base.work, one)) for one in exponents}
    joined = np.concatenate(group.samples_w) if group.samples_w else np.zeros(0)
    return Energy(
        method="guarded" if all(one.energy.is_guarded for one in known) else "cut",
        gross_j=value_of(gross),
        net_j=value_of(net),
        error_j=max(one.energy.error_j for one in known),
        mean_w=value_of([joules / one.seconds for one, joules in zip(known, gross, strict=True)]),
        peak_w=float(joined.max()) if len(joined) else None,
        box=box(joined),
        per_joule=value_of([one.work / joules for one, joules in zip(known, gross, strict=True)]),
        edp=products,
        edp_normalised=_normalised(products, reference, exponents),
        edp_rescaled=any(abs(scale(one.work, base.work) - 1) > SAME_WORK for one in known),
        voided=len(group.phases) - len(known),
        by_scope=_by_scope(known),
    )


def _by_scope(known: Sequence[Phase]) -> dict[str, Value]:
    names = sorted(known[0].energy.by_scope)
    if len(names) < 2:
        return {}
    return {name: value_of([one.energy.by_scope[name] for one in known]) for name in names}


def _edp(known: Sequence[Phase], work: float, weight: float) -> list[float]:
    """Of phases with energy, brought to that work."""
    found = []
    for one in known:
        by = scale(one.work, work)
        found.append(edp(one.energy.gross_j, one.seconds, by, weight))
        if one.work > 0 and one.mean_w is not None:
            assert is_same(found[-1], one.mean_w, one.rate, one.work * by, weight)
    return found


def _normalised(
    products: Mapping[str, Value], reference: Group | None, exponents: Sequence[float]
) -> dict[str, float]:
    if reference is None:
        return {}
    known = [one for one in reference.phases if one.energy.void is None]
    middles = {
        key(one): float(np.median(_edp(known, reference.work, one)))
        for one in (exponents if known else ())
    }
    return {name: products[name].median / middle for name, middle in middles.items() if middle > 0}


def box(samples: Floats) -> Box | None:
    """Quartiles, whiskers to the last within 1.5 quartile ranges, and the rest; None of nothing."""
    if not len(samples):
        return None
    q1, median, q3 = (float(one) for one in np.percentile(samples, [25, 50, 75]))
    reach = 1.5 * (q3 - q1)
    inside = samples[(samples >= q1 - reach) & (samples <= q3 + reach)]
    outside = samples[(samples < q1 - reach) | (samples > q3 + reach)]
    return Box(
        low=float(inside.min()),
        q1=q1,
        median=median,
        q3=q3,
        high=float(inside.max()),
        outliers=[float(one) for one in np.sort(outside)],
        count=len(samples),
    )


def _latency(phases: Sequence[Phase]) -> Latency | None:
    names = dict.fromkeys(name for one in phases for name in one.latency_s)
    steps = [one.ecdf for one in phases if one.ecdf]
    if not names and not steps:
        return None
    return Latency(
        percentiles_s={
            name: value_of([one.latency_s[name] for one in phases if name in one.latency_s])
            for name in names
        },
        ecdf=_joined_ecdf(steps),
    )


def _joined_ecdf(ecdfs: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    """The mean of the distributions of repetitions, at up to `ECDF_STEPS` of their steps."""
    if not ecdfs:
        return []
    at = np.unique([step for one in ecdfs for step, _ in one])
    total = np.zeros(len(at))
    for one in ecdfs:
        steps = np.array(sorted(one))
        index = np.searchsorted(steps[:, 0], at, side="right")
        total += np.concatenate([[0.0], steps[:, 1]])[index]
    part = total / len(ecdfs)
    keep = np.unique(np.linspace(0, len(at) - 1, min(len(at), ECDF_STEPS)).astype(int))
    return [(float(at[index]), float(part[index])) for index in keep]


def _extra(group: Group) -> dict[str, Value]:
    names = dict.fromkeys(name for one in group.phases for name in one.extra)
    extra = {
        name: value_of([one.extra[name] for one in group.phases if name in one.extra])
        for name in names
    }
    tailed = [
        (one, group.tails[one.attempt.number])
        for one in group.phases
        if one.attempt.number in group.tails
    ]
    if not tailed:
        return extra
    tail_s = [sum(tail.seconds for tail in tails) for _, tails in tailed]
    extra["tail_s"] = value_of(tail_s)
    extra["rate_with_tail"] = value_of(
        [one.work / (one.seconds + late) for (one, _), late in zip(tailed, tail_s, strict=True)]
    )
    whole = [
        (one.energy.gross_j, sum(tail.energy.gross_j for tail in tails))
        for one, tails in tailed
        if one.energy.void is None and all(tail.energy.void is None for tail in tails)
    ]
    if whole:
        extra["tail_j"] = value_of([late for _, late in whole])
        extra["gross_j_with_tail"] = value_of([joules + late for joules, late in whole])
    return extra


def _stop(phases: Sequence[Phase], experiment: Mapping[str, Any]) -> str:
    rule = frozen.stop_rule(experiment)
    if rule is None or phases[0].role != "work":
        return "fixed"
    figures: dict[str, list[float]] = {}
    metrics = frozen.stop_metrics(experiment)
    if "throughput" in metrics:
        figures["throughput"] = [one.rate for one in phases]
    if "energy" in metrics and any(one.energy.void is None for one in phases):
        figures["energy"] = [one.energy.gross_j for one in phases if one.energy.void is None]
    states = {one.state for one in decide_all(figures, rule, len(phases)).values()}
    if states <= {State.MET}:
        return "met" if states else "fixed"
    return "cap reached" if State.CAP_REACHED in states else "too few"


def _flags(group: Group, energy: Energy | None) -> list[str]:
    phases = group.phases
    flags = []
    if any(one.energy.is_modelled for one in phases):
        flags.append(MODELLED)
    flags += _once(note for one in phases for note in one.notes)
    voids = [one.energy.void for one in phases if one.energy.void is not None]
    if voids and voids != ["no meter"] * len(phases):
        # How short, or how long a gap, is in the table of repetitions.
        reasons = "; ".join(_once(AMOUNT.sub("", one) for one in voids))
        flags.append(f"energy void in {len(voids)} of {len(phases)} repetitions: {reasons}")
    if energy is not None and any(one.net_j is None for one in phases if one.energy.void is None):
        flags.append("no idle period was measured: net energy is gross energy")
    if energy is not None and energy.edp_rescaled:
        flags.append("E*t^w is brought to the work of the reference, because the work differs")
    return flags + group.lost


def _once(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
