# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What hosts did while phases ran: processors, memory, network, disks, beside power and rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes

from terrace_lab.report.plots_power import Trace, power_panel, rate_panel, shade, trace_of
from terrace_lab.report.sheet import Figure, Sheet, ordered
from terrace_lab.report.source import Source
from terrace_lab.report.style import LINES, look, series_of, short
from terrace_lab.report.units import scale_for

CPU = ("user", "nice", "system", "irq", "softirq", "iowait", "steal")
"""Kinds of time of processors, stacked in this order; the rest is idle."""
LINES_MOST = 8
"""Of one panel: the busiest ones are drawn, the others are in the record."""
POINTS = 600

Samples = Sequence[Mapping[str, Any]]
Line = list[tuple[float, float]]
"""Seconds since the begin of the repetition, and what was so up to then."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One quantity of all hosts; of processors, of one host."""

    label: str
    unit: str
    lines: dict[str, Line]
    is_stacked: bool = False


def load_of(source: Source, workload: str) -> list[tuple[Trace, dict[str, Samples]]]:
    """For each system, the first repetition with the most clients whose hosts were sampled."""
    found = []
    for series in source.looks.series:
        cells = [
            cell
            for cell in source.summary.cells
            if cell.workload == workload and series_of(cell) == series
        ]
        for cell in sorted(cells, key=lambda one: -one.clients):
            chosen = _sampled(source, cell.trial)
            if chosen is not None:
                repetition, samples = chosen
                found.append((trace_of(source, cell, repetition), samples))
                break
    return found


def _sampled(source: Source, trial: str) -> tuple[int, dict[str, Samples]] | None:
    for repetition in sorted({one.repetition for one in source.phases if one.trial == trial}):
        samples = {
            name: many for name, many in source.series(trial, repetition).items() if len(many) > 1
        }
        if samples:
            return repetition, dict(samples)
    return None


def load(source: Source, trace: Trace, samples: Mapping[str, Samples], name: str) -> Figure:
    """A panel a quantity, with the phases of one repetition behind all of them."""
    panels = panels_of(samples, trace.begin_ns)
    has_power = bool(trace.samples)
    count = len(panels) + has_power + 1
    sheet = Sheet(count, columns=1, width=9.6, height=1.55)
    names = ordered([one.phase for one in trace.phases if one.role != "guard"])
    length_s = (trace.end_ns - trace.begin_ns) / 1e9
    axes = list(sheet.axes)
    if has_power:
        power_panel(source, sheet, axes.pop(0), trace, names)
    for panel in panels:
        one = axes.pop(0)
        _draw(sheet, one, panel)
        shade(sheet, one, trace, names)
    rate_panel(source, sheet, axes.pop(0), trace, length_s * 1e9)
    for one in sheet.axes:
        one.set_xlim(0, length_s)
    sheet.axes[-1].set_xlabel("time since the begin of the repetition (s)")
    key = ", ".join(f"{number} {short(one, 40)}" for number, one in enumerate(names, start=1))
    system = source.looks.label(series_of(trace.cell))
    interval_s = _period_s(samples)
    return sheet.finish(
        name,
        f"Load of the hosts, {trace.cell.workload}, {system}",
        f"What the hosts did in repetition {trace.repetition} of {trace.cell.trial}, with power "
        f"above and the mean rate of each phase below. Phases: {key}. Each value is the mean over "
        f"{interval_s:.2g} s, n = 1 repetition, without an interval. Time of processors is stacked "
        "by kind, in per cent of all processors of a host; what is missing to 100 is idle.",
        f"Load of hosts over time with the phases {key}: {', '.join(one.label for one in panels)}.",
    )


def panels_of(samples: Mapping[str, Samples], begin_ns: int) -> list[Panel]:
    """All quantities that the hosts told, from counters that only grow."""
    panels = [
        Panel(f"processors of {short(host)}", "%", _processors(many, begin_ns), is_stacked=True)
        for host, many in samples.items()
    ]
    memory: dict[str, Line] = {}
    switches: dict[str, Line] = {}
    network: dict[str, Line] = {}
    disks: dict[str, Line] = {}
    gpus: dict[str, Line] = {}
    for host, many in samples.items():
        memory[host] = [(_at(one, begin_ns), _used(one["memory"])) for one in many]
        switches[host] = _rate(many, begin_ns, lambda one: one["context_switches"])
        for kind, words, into in (
            ("network", {"received_bytes": "in", "sent_bytes": "out"}, network),
            ("disks", {"read_bytes": "read", "written_bytes": "written"}, disks),
        ):
            for thing in ordered([name for one in many for name in one[kind]]):
                for key, word in words.items():
                    line = _rate(many, begin_ns, _counter(kind, thing, key))
                    if any(value for _, value in line):
                        into[f"{host} {thing} {word}"] = line
        for one in many:
            for gpu in one.get("gpus", ()):
                line = gpus.setdefault(f"{host} GPU {gpu['name']}", [])
                line.append((_at(one, begin_ns), gpu["busy"] * 100))
    for label, unit, lines in (
        ("memory in use", "B", memory),
        ("network", "B/s", network),
        ("disks", "B/s", disks),
        ("context switches", "1/s", switches),
        ("accelerators busy", "%", gpus),
    ):
        if any(lines.values()):
            panels.append(Panel(label, unit, lines))
    return panels


def _used(memory: Mapping[str, int]) -> float:
    return float(memory["memtotal_bytes"] - memory["memavailable_bytes"])


def _counter(kind: str, thing: str, key: str) -> Any:
    return lambda one: one[kind].get(thing, {}).get(key)


def _at(one: Mapping[str, Any], begin_ns: int) -> float:
    return float((one["at_ns"] - begin_ns) / 1e9)


def _steps(many: Samples) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any], float]]:
    """Neighbours with the time between them; stamps that do not grow are left out."""
    for before, after in pairwise(many):
        seconds = (after["at_ns"] - before["at_ns"]) / 1e9
        if seconds > 0:
            yield before, after, seconds


def _rate(many: Samples, begin_ns: int, value: Any) -> Line:
    """Growth per second; a counter that began anew, or a device that came, has none there."""
    line = []
    for before, after, seconds in _steps(many):
        first, last = value(before), value(after)
        if first is not None and last is not None and last >= first:
            line.append((_at(after, begin_ns), (last - first) / seconds))
    return line


def _processors(many: Samples, begin_ns: int) -> dict[str, Line]:
    lines: dict[str, Line] = {kind: [] for kind in CPU}
    for before, after, seconds in _steps(many):
        whole = seconds * (after.get("processors") or 1)
        for kind in CPU:
            spent = max(0.0, after["cpu_s"][kind] - before["cpu_s"][kind])
            lines[kind].append((_at(after, begin_ns), spent / whole * 100))
    return lines


def _draw(sheet: Sheet, axes: Axes, panel: Panel) -> None:
    lines = {name: _thinned(line) for name, line in panel.lines.items()}
    top = max((value for line in lines.values() for _, value in line), default=0.0)
    scale = scale_for(panel.unit, top)
    is_plain = panel.unit in ("%", "1/s")
    factor, unit = (1.0, panel.unit) if is_plain else (scale.factor, scale.unit)
    axes.set_ylabel(unit)
    axes.set_title(panel.label)
    busiest = sorted(lines, key=lambda name: -sum(value for _, value in lines[name]))
    shown = set(lines) if panel.is_stacked else set(busiest[:LINES_MOST])
    drawn = {name: line for name, line in lines.items() if name in shown and line}
    if panel.is_stacked and drawn:
        first = next(iter(drawn.values()))
        kinds = list(drawn)
        axes.stackplot(
            [at for at, _ in first],
            [[value for _, value in drawn[kind]] for kind in kinds],
            colors=[look(CPU.index(kind)).colour for kind in kinds],
            linewidth=0,
            step="pre",
        )
        for kind in kinds:
            sheet.legend_bar(f"processors: {kind}", _plain(CPU.index(kind)))
        axes.set_ylim(0, 100)
    else:
        for number, (name, line) in enumerate(drawn.items()):
            axes.plot(
                [at for at, _ in line],
                [value / factor for _, value in line],
                color=look(number).colour,
                linestyle=LINES[number % len(LINES)],
                linewidth=1.0,
                drawstyle="steps-pre",
            )
            label = f"{panel.label}: {short(name, 30)}"
            sheet.legend_line(label, look(number), line=LINES[number % len(LINES)])
        axes.set_ylim(bottom=0)
    for name, line in lines.items():
        for at, value in line:
            sheet.row(what=f"{panel.label} {name}", begin_s=at, value=value, unit=panel.unit)


def _plain(index: int) -> Any:
    """The look of an area that is filled by colour alone."""
    one = look(index)
    return type(one)(one.colour, "", one.marker, one.line)


def _thinned(line: Line) -> Line:
    """The means of as many neighbours as leave what can be seen on a page."""
    size = -(-len(line) // POINTS)
    if size <= 1:
        return line
    return [
        (part[-1][0], sum(value for _, value in part) / len(part))
        for part in (line[begin : begin + size] for begin in range(0, len(line), size))
    ]


def _period_s(samples: Mapping[str, Samples]) -> float:
    steps = sorted(seconds for many in samples.values() for _, _, seconds in _steps(many))
    return steps[len(steps) // 2] if steps else 0.0
