# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Power: its distribution by phase, and its course beside phases and rates."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from terrace_lab.report.plots_rate import draw_references, references
from terrace_lab.report.sheet import Figure, Sheet, ordered, panel_columns
from terrace_lab.report.source import PhaseSpan, PowerSample, Source
from terrace_lab.report.style import LINES, look, series_of, short
from terrace_lab.report.units import number, quantity, rate_unit, scale_for
from terrace_lab.summary import Cell

# More than this is not seen on a page; a trace of more is drawn as mean and range of bins.
TRACE_POINTS = 600
TRACES_PER_FIGURE = 2
OUTLIERS_SHOWN = 200
# A hole of this many sample periods is a gap; a line across it would be an invention.
GAP_PERIODS = 3.0


def boxes(source: Source, workload: str, cells: Sequence[Cell], name: str) -> Figure:
    """Box plots of the samples of power, a panel for each phase, over the number of clients."""
    cells = [cell for cell in cells if cell.energy and cell.energy.box]
    phases = ordered([cell.phase for cell in cells])
    most = max(
        len({c.clients for c in cells if c.phase == phase})
        * len({series_of(c) for c in cells if c.phase == phase})
        for phase in phases
    )
    width = min(20.0, max(3.4, 0.24 * most + 1.3))
    sheet = Sheet(len(phases), columns=panel_columns(width, len(phases)), width=width, height=2.9)
    for axes, phase in zip(sheet.axes, phases, strict=True):
        _box_panel(source, sheet, axes, [cell for cell in cells if cell.phase == phase])
        axes.set_title(short(phase, 45))
    parts = []
    for cell in cells[:40]:
        box = cell.energy.box if cell.energy else None
        if box:
            parts.append(
                f"{cell.target} {cell.phase} {cell.clients} clients median "
                f"{quantity(box.median, 'W')}, from {quantity(box.low, 'W')} to "
                f"{quantity(box.high, 'W')}"
            )
    return sheet.finish(
        name,
        f"Power, {workload}",
        f"Samples of power of the scope of the experiment during {workload}. A box reaches from "
        "the first to the third quartile with the median as a bar; whiskers reach the last sample "
        "within 1.5 quartile ranges, circles are samples beyond. The dashed line at each box is "
        "the idle power of that system. The axis does not begin at zero.",
        f"Box plots of power. {'; '.join(parts)}.",
    )


def _box_panel(source: Source, sheet: Sheet, axes: Axes, cells: Sequence[Cell]) -> None:
    counts = sorted({cell.clients for cell in cells})
    series = [one for one in source.looks.series if any(series_of(cell) == one for cell in cells)]
    width = 0.84 / len(series)
    for cell in cells:
        box = cell.energy.box if cell.energy else None
        if box is None:
            continue
        one = series_of(cell)
        style = source.looks.look(one)
        x = counts.index(cell.clients) + (series.index(one) - (len(series) - 1) / 2) * width
        outliers = _thinned(box.outliers)
        drawn = axes.bxp(
            [
                {
                    "whislo": box.low,
                    "q1": box.q1,
                    "med": box.median,
                    "q3": box.q3,
                    "whishi": box.high,
                    "fliers": outliers,
                }
            ],
            positions=[x],
            widths=[width * 0.72],
            patch_artist=True,
            manage_ticks=False,
            flierprops={"marker": "o", "markersize": 2.5, "markeredgewidth": 0.5},
            medianprops={"color": "black", "linewidth": 2.0},
        )
        for patch in drawn["boxes"]:
            patch.set(facecolor=style.colour, hatch=style.hatch, edgecolor="black", linewidth=0.7)
        sheet.legend_bar(source.energy_label(cell), style)
        modelled = source.is_modelled(cell)
        sheet.stamp(axes, modelled)
        target = source.target(cell.target)
        idle = target.idle_w.median if target and target.idle_w else None
        limit = target.power_limit_w if target else None
        if idle is not None:
            axes.plot([x - width * 0.48, x + width * 0.48], [idle] * 2, "k--", linewidth=1.2)
            sheet.legend_mark("idle", color="black", linestyle="--", linewidth=1.2)
        if limit is not None and limit <= box.high * 1.5:
            axes.plot([x - width * 0.48, x + width * 0.48], [limit] * 2, "k-", linewidth=2.2)
            sheet.legend_mark("power limit", color="black", linewidth=2.2)
        sheet.row(
            panel=cell.phase,
            target=cell.target,
            factors=one.factors,
            clients=cell.clients,
            low_w=box.low,
            q1_w=box.q1,
            median_w=box.median,
            q3_w=box.q3,
            high_w=box.high,
            samples=box.count,
            outliers_w=" ".join(repr(one) for one in outliers),
            outliers=len(box.outliers),
            idle_w="" if idle is None else idle,
            limit_w="" if limit is None else limit,
            source="MODELLED" if modelled else "measured",
        )
    draw_references(
        sheet,
        axes,
        references(source, cells[0].workload, cells[0].phase, "W"),
        scale_for("W", 1.0),
        cells[0].phase,
        "W",
    )
    axes.set_xticks(range(len(counts)), [str(count) for count in counts])
    axes.set_xlim(-0.6, len(counts) - 0.4)
    axes.set_xlabel("clients")
    axes.set_ylabel("power (W)")
    axes.grid(visible=False, axis="x")


def _thinned(values: Sequence[float]) -> list[float]:
    """The extremes and an even choice of the rest."""
    if len(values) <= OUTLIERS_SHOWN:
        return list(values)
    rank = sorted(values)
    step = (len(rank) - 1) / (OUTLIERS_SHOWN - 1)
    return [rank[round(index * step)] for index in range(OUTLIERS_SHOWN)]


@dataclass(slots=True)
class Trace:
    """One repetition whose power is drawn."""

    cell: Cell
    repetition: int
    phases: list[PhaseSpan]
    samples: dict[str, list[PowerSample]] = field(default_factory=dict)
    """By what they are of: a scope, or one of its channels."""

    @property
    def begin_ns(self) -> int:
        return min(phase.begin_ns for phase in self.phases)

    @property
    def end_ns(self) -> int:
        return max(phase.end_ns for phase in self.phases)


def traces_of(source: Source, workload: str) -> list[Trace]:
    """For each system, the first repetition with the most clients that power was sampled in."""
    found: list[Trace] = []
    for series in source.looks.series:
        cells = [
            cell
            for cell in source.summary.cells
            if cell.workload == workload and series_of(cell) == series
        ]
        for cell in sorted(cells, key=lambda one: -one.clients):
            trace = _trace(source, cell)
            if trace:
                found.append(trace)
                break
    return found


def trace_of(source: Source, cell: Cell, repetition: int) -> Trace:
    """One repetition with its phases, and its power where that was sampled."""
    phases = [
        phase
        for phase in source.phases
        if phase.trial == cell.trial and phase.repetition == repetition
    ]
    trace = Trace(cell, repetition, phases)
    window = source.window(trace.begin_ns, trace.end_ns)
    samples = source.without_stand_ins([one for one in window if source.is_in_scope(one.scope)])
    channels = {
        scope: {(one.meter, one.channel) for one in samples if one.scope == scope}
        for scope in {one.scope for one in samples}
    }
    for sample in samples:
        # One line a channel: those of one host are parts of its power, not readings of one.
        is_alone = len(channels[sample.scope]) == 1
        name = sample.scope if is_alone else f"{sample.scope} {sample.channel}"
        trace.samples.setdefault(name, []).append(sample)
    return trace


def _trace(source: Source, cell: Cell) -> Trace | None:
    for repetition in sorted({p.repetition for p in source.phases if p.trial == cell.trial}):
        trace = trace_of(source, cell, repetition)
        if any(one.watts is not None for many in trace.samples.values() for one in many):
            return trace
    return None


def traces(source: Source, workload: str, chosen: Sequence[Trace], name: str) -> Figure:
    """Power above, rates below, for each system; one time axis for all."""
    sheet = Sheet(2 * len(chosen), columns=1, width=9.6, height=1.5, paired=True)
    longest = max((one.end_ns - one.begin_ns) / 1e9 for one in chosen)
    for index, trace in enumerate(chosen):
        power, rate = sheet.axes[2 * index : 2 * index + 2]
        power_panel(source, sheet, power, trace, _names(chosen))
        rate_panel(source, sheet, rate, trace, longest * 1e9)
        for axes in (power, rate):
            axes.set_xlim(0, longest)
        power.tick_params(labelbottom=False)
        rate.set_xlabel("time since the begin of the repetition (s)")
    key = ", ".join(
        f"{index} {short(phase, 40)}" for index, phase in enumerate(_names(chosen), start=1)
    )
    return sheet.finish(
        name,
        f"Power over time, {workload}",
        f"Power and rate of one repetition of {workload} for each system, on one time axis. "
        f"Phases: {key}. White times are guards, in which nothing was done; dotted ones are tails, "
        "in which a system finished what it had taken. The rate is the mean of its phase. Where "
        "samples are missing, the line is broken.",
        f"Power over time of {', '.join(one.cell.target for one in chosen)} with the phases {key}.",
    )


def _names(chosen: Sequence[Trace]) -> list[str]:
    """Phases in the order of their numbers in a figure."""
    return ordered([phase.phase for one in chosen for phase in one.phases if phase.role != "guard"])


def power_panel(
    source: Source, sheet: Sheet, axes: Axes, trace: Trace, names: Sequence[str]
) -> None:
    label = source.looks.label(series_of(trace.cell))
    clients = trace.cell.clients
    for index, (scope, samples) in enumerate(sorted(trace.samples.items())):
        style = look(index)
        points = _points(samples, trace.begin_ns)
        axes.plot(
            [point[0] for point in points],
            [point[1] for point in points],
            color=style.colour,
            linestyle=LINES[index % len(LINES)],
            linewidth=1.0,
            drawstyle="steps-pre",
        )
        if any(point[2] != point[3] for point in points):
            axes.fill_between(
                [point[0] for point in points],
                [point[2] for point in points],
                [point[3] for point in points],
                color=style.colour,
                alpha=0.25,
                linewidth=0,
                step="pre",
            )
        sheet.legend_line(f"power of {short(scope)}", style, line=LINES[index % len(LINES)])
        is_modelled = any(one.quality == "model" for one in samples)
        sheet.stamp(axes, is_modelled)
        for seconds, watts, low, high in points:
            if not math.isnan(watts):
                sheet.row(
                    target=trace.cell.target,
                    trial=trace.cell.trial,
                    repetition=trace.repetition,
                    what=f"power {scope}",
                    begin_s=seconds,
                    value=watts,
                    low=low,
                    high=high,
                    unit="W",
                    source="MODELLED" if is_modelled else "measured",
                )
    axes.set_title(
        f"{label}, {clients} client{'s' if clients != 1 else ''}, repetition {trace.repetition}"
    )
    axes.set_ylabel("power (W)")
    axes.margins(y=0.1)
    low, high = axes.get_ylim()
    # Room for the numbers of the phases above the lines.
    axes.set_ylim(low, high + (high - low) * 0.34)
    shade(sheet, axes, trace, names)


def _points(
    samples: Sequence[PowerSample], begin_ns: int
) -> list[tuple[float, float, float, float]]:
    """End, mean, lowest and highest watts of samples or bins of them; NaN where there are none."""
    good = [(one.t1_ns, one.watts) for one in samples if one.watts is not None]
    if not good:
        return []
    steps = [b - a for (a, _), (b, _) in zip(good, good[1:], strict=False) if b > a]
    period = statistics.median(steps) if steps else 0
    size = -(-len(good) // TRACE_POINTS)
    points: list[tuple[float, float, float, float]] = []
    begin = 0
    for index in range(1, len(good) + 1):
        is_gap = index < len(good) and good[index][0] - good[index - 1][0] > GAP_PERIODS * period
        if index - begin < size and not is_gap and index < len(good):
            continue
        watts = [value for _, value in good[begin:index]]
        end = (good[index - 1][0] - begin_ns) / 1e9
        points.append((end, statistics.fmean(watts), min(watts), max(watts)))
        if is_gap:
            points.append((end, math.nan, math.nan, math.nan))
        begin = index
    return points


def shade(sheet: Sheet, axes: Axes, trace: Trace, names: Sequence[str]) -> None:
    phases = [phase for phase in trace.phases if phase.role != "guard"]
    for position, phase in enumerate(phases):
        begin, end = ((moment - trace.begin_ns) / 1e9 for moment in (phase.begin_ns, phase.end_ns))
        is_tail = phase.role == "tail"
        axes.axvspan(
            begin,
            end,
            facecolor="#ececec",
            edgecolor="#9a9a9a",
            hatch="..." if is_tail else None,
            linewidth=0.5,
            zorder=0,
        )
        axes.text(
            (begin + end) / 2,
            0.98 - 0.14 * (position % 2),
            str(names.index(phase.phase) + 1),
            transform=axes.get_xaxis_transform(),
            ha="center",
            va="top",
            fontsize=7.5,
            fontweight="bold",
        )
        sheet.row(
            target=trace.cell.target,
            trial=trace.cell.trial,
            repetition=trace.repetition,
            what=f"{phase.role} {phase.phase}",
            begin_s=begin,
            end_s=end,
        )
    sheet.legend("phase", Patch(facecolor="#ececec", edgecolor="#9a9a9a"))
    if any(phase.role == "tail" for phase in trace.phases):
        sheet.legend("tail", Patch(facecolor="#ececec", edgecolor="#9a9a9a", hatch="..."))


def rate_panel(source: Source, sheet: Sheet, axes: Axes, trace: Trace, longest_ns: float) -> None:
    """Mean rate of each phase, in percent of the highest of its unit where there are several."""
    rates: list[tuple[PhaseSpan, float, str]] = []
    for phase in trace.phases:
        for one in source.summary.repetitions:
            if (one.trial, one.repetition, one.phase) == (
                phase.trial,
                phase.repetition,
                phase.phase,
            ) and phase.role == "work":
                cell = source.cell(one)
                rates.append((phase, one.rate, rate_unit(cell.unit if cell else "")))
    highest = {unit: max(rate for _, rate, other in rates if other == unit) for _, _, unit in rates}
    if not rates:
        axes.text(0.5, 0.5, "no rate", transform=axes.transAxes, ha="center", va="center")
    if len(highest) == 1:
        ((unit, top),) = highest.items()
        scale = scale_for(unit, top)
        axes.set_ylabel(f"rate ({scale.unit})")
    else:
        axes.set_ylabel("rate (% of highest)")
    for phase, rate, unit in rates:
        begin, end = ((moment - trace.begin_ns) / 1e9 for moment in (phase.begin_ns, phase.end_ns))
        if len(highest) == 1:
            shown = rate / scale_for(unit, highest[unit]).factor
        else:
            shown = rate / highest[unit] * 100 if highest[unit] else 0.0
        axes.plot([begin, end], [shown, shown], color="black", linewidth=2.0)
        axes.fill_between([begin, end], [shown, shown], color="#777777", alpha=0.35, linewidth=0)
        if len(highest) > 1 and phase.end_ns - phase.begin_ns > 0.12 * longest_ns:
            mark = scale_for(unit, rate)
            axes.text(
                (begin + end) / 2,
                50,
                f"{number(rate / mark.factor)} {mark.unit}",
                ha="center",
                va="center",
                fontsize=7,
                clip_on=True,
            )
        sheet.row(
            target=trace.cell.target,
            trial=trace.cell.trial,
            repetition=trace.repetition,
            what=f"rate {phase.phase}",
            begin_s=begin,
            end_s=end,
            value=rate,
            unit=unit,
        )
    axes.set_ylim(bottom=0)
    axes.margins(y=0.15)
