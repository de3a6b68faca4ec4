# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One repetition of one trial: phases between guards, with marks on one clock."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from terrace_lab.clocks import Line, Offset, Zero, measure
from terrace_lab.errors import LabError, PhaseFailed
from terrace_lab.hosts import AgentHost
from terrace_lab.records import LinesWriter, now, write_json
from terrace_lab.runner.gate import drain
from terrace_lab.specs import ColdSpec, GateSpec
from terrace_lab.workloads.base import Context, PhaseSpec, Result, Span, Workload


@dataclass(frozen=True, slots=True)
class Mark:
    """One line of phases.jsonl in the making; times are CLOCK_MONOTONIC_RAW of the runner."""

    phase: str
    role: str
    begin_ns: int
    end_ns: int
    spec: PhaseSpec | None = None
    result: Result | None = None
    of: str | None = None
    notes: Sequence[str] = ()


@dataclass(slots=True)
class Setting:
    """What repetitions of a trial have in common."""

    hosts: Mapping[str, AgentHost]
    """Those of the clients, and the servers of the target."""
    cold: ColdSpec
    gate: GateSpec
    guard_s: float
    """0 where no meter is there."""
    series_s: float
    """How often hosts are sampled; 0: not at all."""
    open_gate: Callable[[], None]
    remount: Callable[[], bool]
    free_bytes: Callable[[], int | None]


@dataclass(slots=True)
class Outcome:
    """What a repetition came to."""

    marks: list[Mark] = field(default_factory=list)
    commands: dict[str, list[list[str]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    bound_ns: int = 0
    begin_real_ns: int = 0
    samples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Of each host, by its own clock."""


def warm_up(workload: Workload, context: Context) -> None:
    """Runs all phases once and forgets what they came to."""
    workload.prepare(context)
    for phase in workload.phases(context):
        workload.run(context, phase)


def run(setting: Setting, workload: Workload, context: Context) -> Outcome:
    """Runs all phases and writes what they came to below `context.record`.

    Raises PhaseFailed where the work was not done or not done right, GateClosed where it could not
    begin, HostLost where an agent is gone.
    """
    outcome = Outcome()
    context.record.mkdir(parents=True, exist_ok=True)
    workload.prepare(context)
    zero = Zero.take()
    outcome.begin_real_ns = zero.real_ns
    first = _offsets(setting.hosts)
    counters = {
        name: LinesWriter(context.record / f"counters-{name}.jsonl") for name in setting.hosts
    }
    try:
        for host in setting.hosts.values() if setting.series_s > 0 else ():
            host.series_begin(setting.series_s)
        for phase in workload.phases(context):
            _chill(setting, outcome)
            setting.open_gate()
            _guard(setting, outcome)
            with _counted(setting.hosts, counters, phase.name):
                begin = now().raw_ns
                result = workload.run(context, phase)
                end = now().raw_ns
            outcome.marks.append(Mark(phase.name, "work", begin, end, phase, result))
            outcome.commands[phase.name] = [list(one) for one in result.commands]
            if phase.has_flush_tail:
                _tail(setting, outcome, phase, end)
            _guard(setting, outcome)
            _take_samples(setting, outcome)
    finally:
        _end_series(setting)
        for lines in counters.values():
            lines.close()
    last = _offsets(setting.hosts)
    clocks = {name: Line(first[name], last[name]) for name in setting.hosts}
    outcome.bound_ns = max((one.bound_ns for one in clocks.values()), default=0)
    _write(context.record, outcome, zero, clocks)
    _check_clocks(setting, outcome)
    verdict = workload.verify(context)
    if not verdict.is_good:
        raise PhaseFailed(f"cannot trust what was read: {verdict.text}")
    return outcome


def _take_samples(setting: Setting, outcome: Outcome) -> None:
    """Fetches them phase by phase, so that no agent holds those of hours."""
    for name, host in setting.hosts.items() if setting.series_s > 0 else ():
        outcome.samples.setdefault(name, []).extend(host.series_take())


def _end_series(setting: Setting) -> None:
    for host in setting.hosts.values() if setting.series_s > 0 else ():
        # What keeps the repetition from going on is told by itself.
        with contextlib.suppress(LabError):
            host.series_end()


def _offsets(hosts: Mapping[str, AgentHost]) -> dict[str, Offset]:
    # The clock of this machine is the same for all its processes.
    return {
        name: Offset(now().raw_ns, 0, 0) if host.is_local else measure(host.clock)
        for name, host in hosts.items()
    }


def _chill(setting: Setting, outcome: Outcome) -> None:
    """Empties caches and lets things cool down, as the experiment says."""
    if setting.cold.remount and not setting.remount():
        note = "the target has no way to remount: caches of its client may be warm"
        if note not in outcome.notes:
            outcome.notes.append(note)
    if setting.cold.drop_caches:
        for host in setting.hosts.values():
            host.drop_caches()
    time.sleep(setting.cold.cooldown_s)


def _guard(setting: Setting, outcome: Outcome) -> None:
    """Waits and does nothing, for the meters to see the power of that."""
    if setting.guard_s <= 0:
        return
    begin = now().raw_ns
    time.sleep(setting.guard_s)
    outcome.marks.append(Mark("guard", "guard", begin, now().raw_ns))


def _tail(setting: Setting, outcome: Outcome, phase: PhaseSpec, begin: int) -> None:
    end, is_over = drain([*setting.hosts.values()], setting.free_bytes, setting.gate.drain_s)
    notes = [] if is_over else [f"not over after {setting.gate.drain_s:g} s (gate.drain)"]
    name = f"{phase.name} tail"
    outcome.marks.append(Mark(name, "tail", begin, end, of=phase.name, notes=notes))


@contextlib.contextmanager
def _counted(
    hosts: Mapping[str, AgentHost], counters: Mapping[str, LinesWriter], phase: str
) -> Iterator[None]:
    """Writes what the hosts have done before and behind a phase."""
    for name, host in hosts.items():
        counters[name].write({"phase": phase, "edge": "begin", **host.counters()})
    yield
    for name, host in hosts.items():
        counters[name].write({"phase": phase, "edge": "end", **host.counters()})


def _write(record: Path, outcome: Outcome, zero: Zero, clocks: Mapping[str, Line]) -> None:
    step_ns = zero.step_ns(now())
    write_json(
        record / "clock.json",
        {
            "zero": {"real_ns": zero.real_ns, "raw_ns": zero.raw_ns},
            "step_ns": step_ns,
            "hosts": {name: one.to_json() for name, one in clocks.items()},
        },
    )
    write_json(record / "cmd.json", outcome.commands)
    for name, samples in outcome.samples.items():
        with LinesWriter(record / f"series-{name}.jsonl") as lines:
            for sample in samples:
                # Where the phases are: on the clock of the runner.
                at = zero.real(clocks[name].to_runner(sample.pop("at")["raw_ns"]))
                lines.write({"at_ns": at, **sample})
    ends: dict[str, int] = {}
    with LinesWriter(record / "phases.jsonl") as phases:
        for mark in outcome.marks:
            line = _line(mark, zero, clocks)
            if mark.of is not None:
                # Nothing lies between a phase and its tail.
                line["begin_ns"] = ends[mark.of]
            ends[mark.phase] = line["end_ns"]
            phases.write(line)


def _line(mark: Mark, zero: Zero, clocks: Mapping[str, Line]) -> dict[str, Any]:
    begin, end, bound = mark.begin_ns, mark.end_ns, 0
    line: dict[str, Any] = {"phase": mark.phase, "role": mark.role}
    if mark.of is not None:
        line["of"] = mark.of
    if mark.result is not None and mark.spec is not None:
        result = mark.result
        if result.spans:
            # Starting and gathering belong to the lab, not to what it measures.
            spans = result.spans
            begin = min(clocks[one.host].to_runner(one.begin.raw_ns) for one in spans)
            end = max(clocks[one.host].to_runner(one.end.raw_ns) for one in spans)
            bound = max(clocks[one.host].bound_ns for one in spans)
        line |= {
            "unit": mark.spec.unit,
            "direction": mark.spec.direction.value,
            "is_fixed_time": mark.spec.is_fixed_time,
            "work": result.work,
            "spans": [_span(span) for span in result.spans],
            "latency_s": dict(result.latency_s),
            "latency_ecdf": [list(one) for one in result.latency_ecdf],
            "extra": dict(result.extra),
            "over_time": {
                name: [list(point) for point in points] for name, points in result.over_time.items()
            },
        }
        notes = [*result.notes, *mark.notes]
    else:
        notes = list(mark.notes)
    line |= {
        "begin_ns": zero.real(begin),
        "end_ns": zero.real(end),
        "bound_ns": bound,
        "notes": notes,
    }
    return line


def _span(span: Span) -> dict[str, Any]:
    return {
        "host": span.host,
        "begin": {"real_ns": span.begin.real_ns, "raw_ns": span.begin.raw_ns},
        "end": {"real_ns": span.end.real_ns, "raw_ns": span.end.raw_ns},
    }


def _check_clocks(setting: Setting, outcome: Outcome) -> None:
    """Refuses marks that are too uncertain for what they mark."""
    bound_s = outcome.bound_ns / 1e9
    shortest = min(
        ((mark.end_ns - mark.begin_ns) / 1e9 for mark in outcome.marks if mark.role == "work"),
        default=0.0,
    )
    if bound_s > setting.gate.clock_bound_s:
        raise PhaseFailed(
            f"cannot place marks: clocks of hosts are known to {bound_s * 1e3:.1f} ms only,"
            f" gate.clock_bound is {setting.gate.clock_bound_s * 1e3:g} ms"
        )
    if bound_s > 0.1 * shortest:
        raise PhaseFailed(
            f"cannot place marks: clocks of hosts are known to {bound_s * 1e3:.1f} ms, the shortest"
            f" phase takes {shortest * 1e3:.1f} ms"
        )
