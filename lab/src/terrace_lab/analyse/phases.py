# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Phases of all repetitions, with their time and energy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from terrace_lab.analyse.power import PhaseEnergy, Power
from terrace_lab.analyse.record import Attempt
from terrace_lab.numbers.clock import SLEW, STEP_S, Axis
from terrace_lab.numbers.energy import Guard, Part


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase, or tail of a phase, of one repetition that counts."""

    attempt: Attempt
    name: str
    unit: str
    direction: str
    is_fixed_time: bool
    role: str
    of: str | None
    begin_ns: int
    end_ns: int
    begin_s: float | None
    """On the axis; None where a step of the clock leaves it open."""
    end_s: float | None
    bound_s: float
    work: float
    seconds: float
    latency_s: Mapping[str, float]
    ecdf: Sequence[tuple[float, float]]
    extra: Mapping[str, float]
    notes: tuple[str, ...]
    clock_void: str | None
    energy: PhaseEnergy = field(default_factory=PhaseEnergy)
    idle_w: float | None = None

    @property
    def rate(self) -> float:
        return self.work / self.seconds if self.seconds > 0 else 0.0

    @property
    def gross_j(self) -> float | None:
        return self.energy.gross_j if self.energy.void is None else None

    @property
    def net_j(self) -> float | None:
        if self.gross_j is None or self.idle_w is None:
            return None
        return self.gross_j - self.idle_w * self.seconds

    @property
    def mean_w(self) -> float | None:
        return self.gross_j / self.seconds if self.gross_j is not None and self.seconds else None


@dataclass(frozen=True, slots=True)
class IdlePeriod:
    name: str
    target: str | None
    middle_s: float
    power_w: float


class Idle:
    """Power of doing nothing, from the idle periods around what is measured."""

    def __init__(self, periods: Sequence[IdlePeriod]) -> None:
        self.periods = sorted(periods, key=lambda one: one.middle_s)

    def of(self, target: str) -> list[IdlePeriod]:
        """Periods with that target up, or else those of the whole run."""
        own = [one for one in self.periods if one.target == target]
        return own or [one for one in self.periods if one.target is None]

    def at(self, target: str, at_s: float) -> float | None:
        """On the line between the idle periods before and after."""
        periods = self.of(target)
        if not periods:
            return None
        middles = [one.middle_s for one in periods]
        return float(np.interp(at_s, middles, [one.power_w for one in periods]))

    def applied(self, found: Sequence[Phase], target: str) -> list[Phase]:
        """The phases with what idling would have taken in their time."""
        return [
            one
            if one.begin_s is None or one.end_s is None
            else replace(one, idle_w=self.at(target, (one.begin_s + one.end_s) / 2))
            for one in found
        ]

    @property
    def drift(self) -> float | None:
        """Closing idle power over the opening one, minus 1."""
        by_name = {one.name: one.power_w for one in self.periods}
        opening, closing = by_name.get("opening"), by_name.get("closing")
        return closing / opening - 1 if opening and closing is not None else None


def idle_periods(
    lines: Sequence[Mapping[str, Any]], power: Power, scopes: Sequence[str], axis: Axis
) -> Idle:
    """The idle periods that the meters have seen."""
    periods = []
    for line in lines:
        begin, end = (
            axis.of_stamp(line[edge]["real_ns"], line[edge]["raw_ns"]) for edge in ("begin", "end")
        )
        mean = power.mean_w(scopes, begin, end)
        if mean is not None:
            name = str(line["name"])
            periods.append(IdlePeriod(name, line.get("target"), (begin + end) / 2, mean))
    return Idle(periods)


def phases(attempt: Attempt, axis: Axis, power: Power, scopes: Sequence[str]) -> list[Phase]:
    """Phases of one repetition, in their order, with energy."""
    places = _Places(attempt, axis)
    result: list[Phase] = []
    for before, lines, after in _stretches(attempt.lines):
        made = [_phase(attempt, line, places) for line in lines]
        if any(one.clock_void for one in made):
            # Only what the step touched is lost; its neighbours are cut where they met it.
            for one in made:
                result.extend(_with_energy([one], None, None, power, scopes))
            continue
        guards = _guard(before, places), _guard(after, places)
        result.extend(_with_energy(made, *guards, power, scopes))
    return result


def _stretches(
    lines: Sequence[dict[str, Any]],
) -> Iterator[tuple[dict[str, Any] | None, list[dict[str, Any]], dict[str, Any] | None]]:
    """Phases that follow each other, with the guards around them."""
    before: dict[str, Any] | None = None
    members: list[dict[str, Any]] = []
    for line in lines:
        if line.get("role") != "guard":
            members.append(line)
            continue
        if members:
            yield before, members, line
            members = []
        before = line
    if members:
        yield before, members, None


def _guard(line: Mapping[str, Any] | None, places: _Places) -> Guard | None:
    if line is None:
        return None
    begin, end = places.of(int(line["begin_ns"])), places.of(int(line["end_ns"]))
    return None if begin is None or end is None else Guard(begin, end)


def _with_energy(
    made: Sequence[Phase],
    before: Guard | None,
    after: Guard | None,
    power: Power,
    scopes: Sequence[str],
) -> list[Phase]:
    if any(one.clock_void for one in made):
        return [replace(one, energy=PhaseEnergy(void=one.clock_void)) for one in made]
    parts = [
        Part(one.begin_s, one.end_s, one.bound_s)
        for one in made
        if one.begin_s is not None and one.end_s is not None
    ]
    found = power.energies(scopes, parts, before, after)
    return [
        replace(one, energy=energy, notes=(*one.notes, *energy.notes))
        for one, energy in zip(made, found, strict=True)
    ]


class _Places:
    """Where times of one repetition lie on the axis.

    The runner makes them of its raw clock and one stamp of both, so that they do not step. Where
    that stamp is not known they are placed by CLOCK_REALTIME, and are lost near a step.
    """

    def __init__(self, attempt: Attempt, axis: Axis) -> None:
        self._zero = attempt.zero
        self._axis = axis

    def of(self, real_ns: int) -> float | None:
        if self._zero is None:
            return self._axis.of_real(real_ns)
        zero_real, zero_raw = self._zero
        return self._axis.of_stamp(real_ns, zero_raw + real_ns - zero_real)

    @property
    def are_sure(self) -> bool:
        return self._zero is not None


def _phase(attempt: Attempt, line: Mapping[str, Any], places: _Places) -> Phase:
    begin_ns, end_ns = int(line["begin_ns"]), int(line["end_ns"])
    begin_s, end_s = places.of(begin_ns), places.of(end_ns)
    spans = line.get("spans") or []
    void = None if places.are_sure else _stepped(spans)
    if void is None and (begin_s is None or end_s is None or end_s < begin_s):
        void = "clock stepped at the phase"
    if void is None and begin_s is not None and end_s is not None:
        seconds = (end_ns - begin_ns) / 1e9 if places.are_sure else end_s - begin_s
    else:
        begin_s = end_s = None
        seconds = _raw_seconds(spans, (end_ns - begin_ns) / 1e9)
    return Phase(
        attempt=attempt,
        name=str(line["phase"]),
        unit=str(line.get("unit", "")),
        direction=str(line.get("direction", "none")),
        is_fixed_time=bool(line.get("is_fixed_time")),
        role=str(line.get("role", "work")),
        of=line.get("of"),
        begin_ns=begin_ns,
        end_ns=end_ns,
        begin_s=begin_s,
        end_s=end_s,
        bound_s=int(line.get("bound_ns") or 0) / 1e9,
        work=float(line.get("work") or 0.0),
        seconds=seconds,
        latency_s=line.get("latency_s") or {},
        ecdf=[(float(at), float(part)) for at, part in line.get("latency_ecdf") or []],
        extra=line.get("extra") or {},
        notes=tuple(line.get("notes") or ()),
        clock_void=void,
    )


def _stepped(spans: Sequence[Mapping[str, Any]]) -> str | None:
    """Whether the clocks of a client disagree on how long it was at work."""
    for span in spans:
        begin, end = span["begin"], span["end"]
        raw_s = (end["raw_ns"] - begin["raw_ns"]) / 1e9
        real_s = (end["real_ns"] - begin["real_ns"]) / 1e9
        if abs(real_s - raw_s) > STEP_S + SLEW * abs(raw_s):
            return f"clock stepped in the phase host={span['host']} seconds={real_s - raw_s:+.3f}"
    return None


def _raw_seconds(spans: Sequence[Mapping[str, Any]], otherwise: float) -> float:
    """How long the phase was by clocks that do not step: exact where all clients share one."""
    if not spans:
        return otherwise
    by_host: dict[str, tuple[int, int]] = {}
    for span in spans:
        begin, end = span["begin"]["raw_ns"], span["end"]["raw_ns"]
        low, high = by_host.get(span["host"], (begin, end))
        by_host[span["host"]] = (min(low, begin), max(high, end))
    return max(high - low for low, high in by_host.values()) / 1e9
