# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Power of the energy scope: which channel counts for what, and who stands in for whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from terrace_lab.analyse.record import ChannelRecord, MeterRecord
from terrace_lab.numbers.clock import Axis
from terrace_lab.numbers.energy import Guard, Part, Rules, Taken, energies
from terrace_lab.numbers.series import Channel, Floats, Readings, Series, series
from terrace_lab.numbers.standin import Calibration, calibrate
from terrace_lab.records import Kind


@dataclass(frozen=True, slots=True)
class PhaseEnergy:
    """Energy of the whole scope in one phase; `void` says why there is none."""

    gross_j: float = 0.0
    error_j: float = 0.0
    is_guarded: bool = False
    void: str | None = None
    by_scope: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    is_modelled: bool = False


@dataclass(frozen=True, slots=True)
class _Source:
    """All channels that one meter has for one scope."""

    meter: str
    channels: list[Series]

    @property
    def is_modelled(self) -> bool:
        return any(one.channel.is_modelled for one in self.channels)


class Power:
    """Energy and power of the scope at any time of the run."""

    def __init__(
        self,
        meters: Sequence[MeterRecord],
        experiment: Mapping[str, Any],
        axis: Axis,
        rules: Rules,
        subtracted_w: float = 0.0,
        shares: Mapping[str, float] | None = None,
    ) -> None:
        """Power without `subtracted_w`, and with no more of each scope than its share."""
        self._rules = rules
        self._subtracted_w = subtracted_w
        self._shares = dict(shares or {})
        settings = experiment.get("meters") or {}
        names = sorted(
            (meter.name for meter in meters),
            key=lambda name: list(settings).index(name) if name in settings else len(settings),
        )
        by_name = {meter.name: meter for meter in meters}
        sources: dict[str, list[_Source]] = {}
        for name in names:
            for scope, channels in _by_scope(by_name[name], axis, rules).items():
                sources.setdefault(scope, []).append(_Source(name, channels))
        self.known = list(sources)
        self._all = [
            one for found in sources.values() for source in found for one in source.channels
        ]
        self._first: dict[str, _Source] = {}
        self._standins: dict[str, list[tuple[_Source, Calibration]]] = {}
        self.notes: list[str] = []
        for scope, candidates in sources.items():
            self._choose(scope, candidates, settings)

    def _choose(self, scope: str, candidates: list[_Source], settings: Mapping[str, Any]) -> None:
        def rank(source: _Source) -> tuple[bool, bool, bool]:
            table = settings.get(source.meter, {})
            is_backup = bool(table.get("backup_for"))
            return is_backup, source.is_modelled, not table.get("required", False)

        first, *others = sorted(candidates, key=rank)
        self._first[scope] = first
        self._standins[scope] = []
        for other in others:
            if settings.get(other.meter, {}).get("backup_for") != first.meter:
                self.notes.append(
                    f"{scope} is measured by {first.meter}; {other.meter} has it too "
                    "and is not added"
                )
                continue
            calibration = calibrate(first.channels, other.channels)
            if calibration is None:
                self.notes.append(
                    f"{other.meter} cannot stand in for {first.meter}: "
                    f"too little time with both scope={scope}"
                )
            else:
                self._standins[scope].append((other, calibration))

    def is_modelled(self, scopes: Sequence[str]) -> bool:
        return any(self._first[scope].is_modelled for scope in scopes if scope in self._first)

    def energies(
        self,
        scopes: Sequence[str],
        parts: Sequence[Part],
        before: Guard | None,
        after: Guard | None,
    ) -> list[PhaseEnergy]:
        """Energy of each part of the phases that follow each other between two guards."""
        missing = [scope for scope in scopes if scope not in self._first]
        if missing or not scopes:
            void = f"no meter scope={','.join(missing)}" if missing else "no meter"
            return [PhaseEnergy(void=void) for _ in parts]
        taken = {scope: self._scope_energies(scope, parts, before, after) for scope in scopes}
        return [
            self._without_shared(_sum({scope: one[index] for scope, one in taken.items()}), part)
            for index, part in enumerate(parts)
        ]

    def _without_shared(self, energy: PhaseEnergy, part: Part) -> PhaseEnergy:
        if energy.void is not None or self._subtracted_w == 0:
            return energy
        left = energy.gross_j - self._subtracted_w * part.seconds
        if left <= 0:
            return PhaseEnergy(void="the meters show no more than energy.subtract takes off")
        return replace(energy, gross_j=left)

    def _share(self, scope: str) -> float:
        """The part of a scope that counts."""
        return self._shares.get(scope, 1.0)

    def _scope_energies(
        self, scope: str, parts: Sequence[Part], before: Guard | None, after: Guard | None
    ) -> list[tuple[Taken, bool]]:
        first = self._first[scope]
        result = _source_energies(first, parts, before, after, self._rules)
        stamped = [(taken, first.is_modelled) for taken in result]
        for other, calibration in self._standins[scope]:
            if all(taken.void is None for taken, _ in stamped):
                break
            others = _source_energies(other, parts, before, after, self._rules)
            for index, taken in enumerate(others):
                if stamped[index][0].void is None or taken.void is not None:
                    continue
                note = f"backup meter {other.meter} stood in for {first.meter} scope={scope}"
                stamped[index] = (
                    replace(
                        taken,
                        joules=calibration.joules(taken.joules, parts[index].seconds),
                        error_j=calibration.error_j(taken.error_j, parts[index].seconds),
                        notes=[*taken.notes, note],
                    ),
                    other.is_modelled,
                )
        share = self._share(scope)
        if share == 1.0:
            return stamped
        return [
            (replace(one, joules=one.joules * share, error_j=one.error_j * share), is_modelled)
            for one, is_modelled in stamped
        ]

    def mean_w(self, scopes: Sequence[str], begin_s: float, end_s: float) -> float | None:
        """Mean power of the scope; None where a channel has nothing whole in that time."""
        total = 0.0
        if not scopes:
            return None
        for scope in scopes:
            if scope not in self._first:
                return None
            for one in self._first[scope].channels:
                mean = one.mean_w(begin_s, end_s)
                if mean is None:
                    return None
                total += mean * self._share(scope)
        return total - self._subtracted_w

    def samples_w(self, scopes: Sequence[str], begin_s: float, end_s: float) -> Floats:
        """Power of the scope over time, in steps of its slowest channel."""
        channels = [
            (one, self._share(scope))
            for scope in scopes
            if scope in self._first
            for one in self._first[scope].channels
        ]
        if not channels:
            return np.zeros(0)
        slowest = max((one for one, _ in channels), key=lambda one: one.channel.period_s)
        inside = slowest.within(begin_s, end_s)
        begin, end = slowest.begin_s[inside], slowest.end_s[inside]
        joules = sum(
            (share * (one.joules_until(end) - one.joules_until(begin)) for one, share in channels),
            start=np.zeros(len(begin)),
        )
        return np.asarray(joules / (end - begin)) - self._subtracted_w

    def all_series(self) -> list[Series]:
        """Of all meters, those that do not count included."""
        return self._all


def _by_scope(meter: MeterRecord, axis: Axis, rules: Rules) -> dict[str, list[Series]]:
    scopes: dict[str, list[Series]] = {}
    for record in meter.channels:
        period_s = float(meter.info.get("period_s") or _period_s(record))
        channel = Channel(
            meter=meter.name,
            name=record.name,
            scope=record.scope,
            period_s=period_s,
            gain=record.gain,
            offset_w=record.offset_w,
            lag_s=meter.lag_s or 0.0,
            lag_bound_s=meter.lag_bound_s,
            is_modelled=meter.has_model or bool(meter.info.get("is_modelled")),
        )
        readings = _readings(record, axis, period_s)
        scopes.setdefault(record.scope, []).append(series(readings, channel, rules.max_gap_s))
    return scopes


def _period_s(record: ChannelRecord) -> float:
    """Median distance, where a meter that was killed early left no description."""
    return float(np.median(np.diff(record.t1))) / 1e9 if len(record.t1) > 1 else 1.0


def _readings(record: ChannelRecord, axis: Axis, period_s: float) -> Readings:
    begin = axis.of_frame(record.t0, record.real, record.raw)
    end = axis.of_frame(record.t1, record.real, record.raw)
    usable = record.is_usable.copy()
    if record.kind is Kind.AVERAGE:
        # An average whose begin was stamped before a step and its end behind it.
        for step in axis.steps:
            index = int(np.searchsorted(end, step.at_s))
            for near in range(max(0, index - 1), min(len(end), index + 2)):
                usable[near] &= abs(end[near] - begin[near] - period_s) < period_s / 2
    order = np.argsort(end, kind="stable")
    if record.kind is Kind.COUNTER:
        order = order[(usable | record.is_reset)[order]]
    return Readings(record.kind, begin[order], end[order], record.value[order], usable[order])


def _source_energies(
    source: _Source,
    parts: Sequence[Part],
    before: Guard | None,
    after: Guard | None,
    rules: Rules,
) -> list[Taken]:
    by_channel = [energies(one, parts, before, after, rules) for one in source.channels]
    return [_add([one[index] for one in by_channel]) for index in range(len(parts))]


def _add(taken: Sequence[Taken]) -> Taken:
    """Channels of one meter share their errors, which therefore add up as they are."""
    for one in taken:
        if one.void is not None:
            return one
    return Taken(
        joules=sum(one.joules for one in taken),
        error_j=sum(one.error_j for one in taken),
        is_guarded=all(one.is_guarded for one in taken),
        coverage=min(one.coverage for one in taken),
        notes=[note for one in taken for note in one.notes],
    )


def _sum(taken: Mapping[str, tuple[Taken, bool]]) -> PhaseEnergy:
    """Scopes of one meter share errors too, but those of several do not: the wider is taken."""
    voids = [one.void for one, _ in taken.values() if one.void is not None]
    if not voids and sum(one.joules for one, _ in taken.values()) <= 0:
        voids = ["the meters show no power"]
    if voids:
        return PhaseEnergy(void="; ".join(dict.fromkeys(voids)))
    return PhaseEnergy(
        gross_j=sum(one.joules for one, _ in taken.values()),
        error_j=sum(one.error_j for one, _ in taken.values()),
        is_guarded=all(one.is_guarded for one, _ in taken.values()),
        by_scope={scope: one.joules for scope, (one, _) in taken.items()},
        notes=tuple(dict.fromkeys(note for one, _ in taken.values() for note in one.notes)),
        is_modelled=any(is_modelled for _, is_modelled in taken.values()),
    )
