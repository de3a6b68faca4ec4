# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Components, throughput over clients, and bars of rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from terrace_lab.report.sheet import (
    Figure,
    Sheet,
    ordered,
    panel_columns,
    plain_logarithmic,
    spread,
)
from terrace_lab.report.source import Source
from terrace_lab.report.style import HATCHES, series_of, short
from terrace_lab.report.units import Scale, number, rate_unit, scale_for, to_base
from terrace_lab.summary import Cell, Peak, ReferenceLine, Value

# A bound that is further away than this would press all that was measured to the bottom.
BOUND_FACTOR = 6.0
COMPONENT_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")


def peak_of(source: Source, cell: Cell) -> Peak | None:
    """The theoretical peak that bounds a cell."""
    for peak in source.summary.peaks:
        is_of_cell = (peak.target, peak.clients, peak.direction) == (
            cell.target,
            cell.clients,
            cell.direction,
        )
        is_of_work = peak.workload in (None, cell.workload) and peak.phase in (None, cell.phase)
        if is_of_cell and is_of_work and peak.unit in (rate_unit(cell.unit), cell.unit):
            return peak
    return None


def references(
    source: Source, workload: str, phase: str, unit: str
) -> list[tuple[ReferenceLine, float]]:
    """Published figures for a workload and phase in a unit, with their value in it."""
    found = []
    for line in source.summary.reference_lines:
        value, base = to_base(line.value, line.unit)
        if (line.workload, line.phase) == (workload, phase) and base == unit:
            found.append((line, value))
    return found


def draw_references(
    sheet: Sheet,
    axes: Axes,
    lines: Sequence[tuple[ReferenceLine, float]],
    scale: Scale,
    panel: str,
    unit: str,
) -> None:
    for index, (line, value) in enumerate(lines):
        style = (0, (1, 1 + index))
        axes.axhline(value / scale.factor, color="#555555", linewidth=1.1, linestyle=style)
        sheet.legend_mark(
            f"published: {short(line.label, 40)}", color="#555555", linewidth=1.1, linestyle=style
        )
        sheet.row(panel=panel, what="published", target=line.label, value=value, unit=unit)


def roofline(source: Source, peaks: Sequence[Peak], name: str) -> Figure:
    """Bound of each component, for each target and number of clients, the lowest marked."""
    direction = " ".join(
        one for one in (peaks[0].direction, peaks[0].workload, peaks[0].phase) if one
    )
    targets = ordered([peak.target for peak in peaks])
    components = ordered([term for peak in peaks for term in peak.terms])
    counts = max(len([peak for peak in peaks if peak.target == one]) for one in targets)
    width = max(3.4, 0.24 * counts * len(components) + 1.2)
    sheet = Sheet(len(targets), columns=panel_columns(width, len(targets)), width=width, height=2.7)
    finite = [value for peak in peaks for value in peak.terms.values() if math.isfinite(value)]
    unit = peaks[0].unit
    scale = scale_for(unit, _middle(finite))
    is_log = bool(finite) and min(finite) > 0 and max(finite) / min(finite) > 30
    for axes, target in zip(sheet.axes, targets, strict=True):
        mine = sorted(
            (peak for peak in peaks if peak.target == target), key=lambda one: one.clients
        )
        for place, peak in enumerate(mine):
            _components(sheet, axes, place, peak, components, scale)
        axes.set_title(source.looks.target_label(target))
        axes.set_xticks(range(len(mine)), [str(peak.clients) for peak in mine])
        axes.set_xlabel("clients")
        axes.set_ylabel(f"bound ({scale.unit}{', logarithmic' if is_log else ''})")
        axes.grid(visible=False, axis="x")
        if is_log:
            axes.set_yscale("log")
            plain_logarithmic(axes.yaxis)
            axes.set_ylim(min(finite) / scale.factor / 2, max(finite) / scale.factor * 2.5)
        else:
            axes.set_ylim(0, max(finite, default=1.0) / scale.factor * 1.18)
    for index, component in enumerate(components):
        sheet.legend(
            short(component),
            _patch(COMPONENT_COLOURS[index % len(COMPONENT_COLOURS)], HATCHES[index % 12]),
        )
    sheet.legend_mark(
        "binds: the peak", color="none", marker="v", markerfacecolor="black", markersize=7
    )
    missing = ordered([one for peak in peaks for one in peak.missing])
    caption = (
        f"What each component alone would allow in direction {direction}, by number of clients. "
        "The lowest bar is the theoretical peak performance (TPP) and is marked with a triangle."
    )
    if missing:
        caption += f" Not measured, and might bind lower: {', '.join(missing)}."
    binding = "; ".join(
        f"{peak.target} with {peak.clients} clients: {peak.binding}" for peak in peaks[:12]
    )
    return sheet.finish(
        name, f"Components, {direction}", caption, f"Bars of component bounds. Binding: {binding}."
    )


def _components(
    sheet: Sheet, axes: Axes, place: int, peak: Peak, components: Sequence[str], scale: Scale
) -> None:
    width = 0.84 / len(components)
    for index, component in enumerate(components):
        value = peak.terms.get(component)
        if value is None or not math.isfinite(value):
            continue
        x = place + (index - (len(components) - 1) / 2) * width
        binds = component == peak.binding
        axes.bar(
            x,
            value / scale.factor,
            width * 0.92,
            color=COMPONENT_COLOURS[index % len(COMPONENT_COLOURS)],
            hatch=HATCHES[index % 12],
            edgecolor="black",
            linewidth=1.6 if binds else 0.5,
        )
        if binds:
            axes.annotate(
                "▼",
                (x, value / scale.factor),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
        sheet.row(
            target=peak.target,
            clients=peak.clients,
            component=component,
            bound=value,
            unit=peak.unit,
            binds=binds,
        )


def _patch(colour: str, hatch: str) -> Patch:
    return Patch(facecolor=colour, edgecolor="black", hatch=hatch, linewidth=0.6)


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2] if values else 1.0


def throughput(source: Source, workload: str, cells: Sequence[Cell], name: str) -> Figure:
    """Rate over the number of clients: all repetitions, medians with intervals, and the peak."""
    phases = ordered([cell.phase for cell in cells])
    sheet = Sheet(len(phases), columns=2, width=5.2, height=3.1, right=0.72)
    for axes, phase in zip(sheet.axes, phases, strict=True):
        _over_clients(source, sheet, axes, [cell for cell in cells if cell.phase == phase])
        axes.set_title(short(phase, 50))
    sheet.legend_mark("repetition", color="none", marker=".", markerfacecolor="#333333")
    sheet.legend_mark("95 % interval of the median", color="black", marker="_", linestyle="-")
    return sheet.finish(
        name,
        f"Throughput, {workload}",
        f"Throughput of {workload} over the number of clients. Markers are medians of the "
        "repetitions with their 95 % interval where there are six or more, small points are single "
        "repetitions; systems at the same number of clients stand "
        "a little beside each other. Lines "
        "of points and dashes without markers are the theoretical peak (TPP), and the right axis "
        "counts in percent of the highest TPP of its panel.",
        _alt(cells, "throughput"),
    )


def _alt(cells: Sequence[Cell], what: str) -> str:
    parts = []
    for cell in cells[:40]:
        scale = scale_for(rate_unit(cell.unit), cell.rate.median)
        parts.append(
            f"{cell.target} {cell.phase} {cell.clients} clients "
            f"{number(cell.rate.median / scale.factor)} {scale.unit}"
        )
    more = f"; and {len(cells) - 40} more" if len(cells) > 40 else ""
    return f"Median {what}: {'; '.join(parts)}{more}."


def _over_clients(source: Source, sheet: Sheet, axes: Axes, cells: Sequence[Cell]) -> None:
    unit = rate_unit(cells[0].unit)
    phase = cells[0].phase
    counts = sorted({cell.clients for cell in cells})
    series = [one for one in source.looks.series if any(series_of(cell) == one for cell in cells)]
    is_log = counts[-1] / counts[0] >= 8
    peaks = {id(cell): peak_of(source, cell) for cell in cells}
    highest = max(max(cell.rate.values, default=cell.rate.median) for cell in cells)
    known = [(cell, peak) for cell in cells if (peak := peaks[id(cell)])]
    bounds = [peak.value for _, peak in known]
    is_common = all(len({p.value for c, p in known if c.clients == n}) < 2 for n in counts)
    shown = [bound for bound in bounds if bound <= BOUND_FACTOR * highest]
    published = references(source, cells[0].workload, phase, unit)
    top = max([highest, *shown, *(v for _, v in published if v <= BOUND_FACTOR * highest)])
    scale = scale_for(unit, top)

    def place(clients: int, index: float) -> float:
        # A line of their own for each system, or intervals would hide each other.
        if len(counts) == 1:
            return clients + spread(index, len(series), 0.7)
        if is_log:
            return float(clients * 2 ** spread(index, len(series), 0.25))
        step = min(b - a for a, b in zip(counts, counts[1:], strict=False))
        return clients + spread(index, len(series), 0.14 * step)

    for index, one in enumerate(series):
        look = source.looks.look(one)
        mine = sorted(
            (cell for cell in cells if series_of(cell) == one), key=lambda cell: cell.clients
        )
        xs = [place(cell.clients, index) for cell in mine]
        for x, cell in zip(xs, mine, strict=True):
            beside = [place(cell.clients, index + 0.3)] * len(cell.rate.values)
            draw_value(sheet, axes, x, beside, cell.rate, scale, look.colour, look.marker)
            _rate_row(sheet, cell, peaks[id(cell)])
        axes.plot(
            xs,
            [cell.rate.median / scale.factor for cell in mine],
            color=look.colour,
            linestyle=look.line,
            zorder=3,
        )
        sheet.legend_line(source.looks.label(one), look, marker=look.marker)
        if not is_common:
            bound = [(x, peaks[id(cell)]) for x, cell in zip(xs, mine, strict=True)]
            drawn = [(x, peak.value) for x, peak in bound if peak and peak.value in shown]
            label = f"TPP {source.looks.label(one)}"
            _peak_line(sheet, axes, drawn, scale, label, look.colour)
    if is_common:
        drawn = sorted(
            {(float(cell.clients), peak.value) for cell, peak in known if peak.value in shown}
        )
        _peak_line(sheet, axes, drawn, scale, "TPP of all", "black")
    draw_references(
        sheet, axes, [one for one in published if one[1] <= top * 1.001], scale, phase, unit
    )
    _note_far_bounds(axes, [bound for bound in bounds if bound not in shown], unit)
    if is_log:
        axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    if len(counts) == 1:
        axes.set_xlim(counts[0] - 1, counts[0] + 1)
    axes.set_xlabel("clients" + (" (logarithmic)" if is_log else ""))
    axes.set_ylabel(f"throughput ({scale.unit})")
    axes.set_ylim(0, top / scale.factor * 1.12)
    if bounds:
        base = max(bounds)
        percent = axes.twinx()
        low, high = axes.get_ylim()
        percent.set_ylim(low * scale.factor / base * 100, high * scale.factor / base * 100)
        percent.spines["right"].set_visible(True)
        percent.grid(visible=False)
        mark = scale_for(unit, base)
        percent.set_ylabel(f"% of TPP {number(base / mark.factor)} {mark.unit}")


def _peak_line(
    sheet: Sheet,
    axes: Axes,
    points: Sequence[tuple[float, float]],
    scale: Scale,
    label: str,
    colour: str,
) -> None:
    if not points:
        return
    style: Any = {"color": colour, "linestyle": (0, (6, 2, 1, 2)), "linewidth": 2.0}
    xs, values = zip(*points, strict=True)
    axes.plot(
        xs,
        [value / scale.factor for value in values],
        marker="_",
        markersize=13,
        alpha=0.75,
        zorder=2,
        **style,
    )
    sheet.legend(label, Line2D([], [], **style), rank=1)


def _rate_row(sheet: Sheet, cell: Cell, peak: Peak | None) -> None:
    interval = cell.rate.median_interval
    percent = cell.percent_of_peak
    sheet.row(
        panel=cell.phase,
        what="median",
        target=cell.target,
        factors=series_of(cell).factors,
        clients=cell.clients,
        value=cell.rate.median,
        low=interval.low if interval else "",
        high=interval.high if interval else "",
        unit=rate_unit(cell.unit),
        tpp=peak.value if peak else "",
        binding=peak.binding if peak else "",
        percent_of_tpp=percent.percent if percent else "",
    )
    for index, value in enumerate(cell.rate.values, start=1):
        sheet.row(
            panel=cell.phase,
            what=f"repetition {index}",
            target=cell.target,
            factors=series_of(cell).factors,
            clients=cell.clients,
            value=value,
            unit=rate_unit(cell.unit),
        )


def _note_far_bounds(axes: Axes, bounds: Sequence[float], unit: str) -> None:
    if not bounds:
        return
    low, high = (scale_for(unit, bound) for bound in (min(bounds), max(bounds)))
    text = f"{number(min(bounds) / low.factor)} {low.unit}"
    if max(bounds) > min(bounds) * 1.005:
        text += f" to {number(max(bounds) / high.factor)} {high.unit}"
    axes.text(
        0.99,
        0.985,
        f"▲ TPP above: {text}",
        transform=axes.transAxes,
        ha="right",
        va="top",
        fontsize=7.5,
        bbox={"facecolor": "white", "edgecolor": "#888888", "linewidth": 0.5, "pad": 2},
        zorder=10,
    )


def draw_value(
    sheet: Sheet,
    axes: Axes,
    x: float,
    x_of_values: Sequence[float],
    value: Value,
    scale: Scale,
    colour: str,
    marker: str,
    *,
    hollow: Sequence[bool] = (),
) -> None:
    """Median with interval, and all repetitions, hollow where a backup meter stood in."""
    interval = value.median_interval
    if interval:
        sheet.interval(axes, x, interval.low / scale.factor, interval.high / scale.factor)
    marks = list(hollow) or [False] * len(value.values)
    for x_one, one, is_hollow in zip(x_of_values, value.values, marks, strict=True):
        sheet.mark(
            axes,
            x_one,
            one / scale.factor,
            marker="o",
            markersize=4 if is_hollow else 2.4,
            markerfacecolor="white" if is_hollow else "#333333",
            markeredgecolor="#333333",
            markeredgewidth=0.7 if is_hollow else 0,
            zorder=5,
        )
    if any(marks):
        sheet.legend_mark(
            "backup meter",
            color="none",
            marker="o",
            markerfacecolor="white",
            markeredgecolor="#333333",
        )
    if marker:
        sheet.mark(
            axes,
            x,
            value.median / scale.factor,
            marker=marker,
            markerfacecolor="white" if marks and all(marks) else colour,
            markeredgecolor="black",
            markeredgewidth=0.6,
            zorder=4,
        )


@dataclass(frozen=True, slots=True)
class Quantity:
    """What bars show of a cell."""

    label: str
    unit: Callable[[Cell], str]
    value: Callable[[Cell], Value | None]
    is_energy: bool = False
    bound: Callable[[Cell], float | None] = lambda _: None
    bound_label: str = ""


def bars(
    source: Source, cells: Sequence[Cell], quantity: Quantity, name: str, title: str, caption: str
) -> Figure:
    """Bars by number of clients, one panel a phase: median, interval and all repetitions."""
    cells = [cell for cell in cells if quantity.value(cell) is not None]
    phases = ordered([cell.phase for cell in cells])
    most = max(
        len({c.clients for c in cells if c.phase == phase})
        * len({series_of(c) for c in cells if c.phase == phase})
        for phase in phases
    )
    width = min(20.0, max(3.4, 0.22 * most + 1.3))
    sheet = Sheet(len(phases), columns=panel_columns(width, len(phases)), width=width, height=2.8)
    for axes, phase in zip(sheet.axes, phases, strict=True):
        mine = [cell for cell in cells if cell.phase == phase]
        grouped_bars(source, sheet, axes, mine, quantity)
        axes.set_title(short(phase, 45))
    sheet.legend_mark("repetition", color="none", marker=".", markerfacecolor="#333333")
    sheet.legend_mark("95 % interval of the median", color="black", marker="_", linestyle="-")
    parts = []
    for cell in cells[:40]:
        value = quantity.value(cell)
        assert value is not None
        scale = scale_for(quantity.unit(cell), value.median)
        parts.append(
            f"{cell.target} {cell.phase} {cell.clients} clients "
            f"{number(value.median / scale.factor)} {scale.unit}"
        )
    more = f"; and {len(cells) - 40} more" if len(cells) > 40 else ""
    alt = f"Median {quantity.label}: {'; '.join(parts)}{more}."
    return sheet.finish(name, title, caption, alt)


def grouped_bars(
    source: Source, sheet: Sheet, axes: Axes, cells: Sequence[Cell], quantity: Quantity
) -> None:
    """One panel of bars: groups are numbers of clients, bars of a group are systems."""
    counts = sorted({cell.clients for cell in cells})
    series = [one for one in source.looks.series if any(series_of(cell) == one for cell in cells)]
    unit = quantity.unit(cells[0])
    values = {id(cell): value for cell in cells if (value := quantity.value(cell)) is not None}
    highest = max(max([value.median, *value.values]) for value in values.values())
    bounds = {id(cell): quantity.bound(cell) for cell in cells}
    known = [bound for bound in bounds.values() if bound is not None]
    shown = [bound for bound in known if bound <= BOUND_FACTOR * highest]
    published = references(source, cells[0].workload, cells[0].phase, unit)
    published = [one for one in published if one[1] <= BOUND_FACTOR * highest]
    top = max([highest, *shown, *(value for _, value in published)]) or 1.0
    scale = scale_for(unit, top)
    width = 0.84 / len(series)
    for cell in cells:
        one = series_of(cell)
        look = source.looks.look(one)
        x = counts.index(cell.clients) + (series.index(one) - (len(series) - 1) / 2) * width
        value = values[id(cell)]
        modelled = quantity.is_energy and source.is_modelled(cell)
        sheet.stamp(axes, modelled)
        axes.bar(
            x,
            value.median / scale.factor,
            width * 0.9,
            color=look.colour,
            hatch=look.hatch,
            edgecolor="black",
            linewidth=0.6,
        )
        hollow = source.hollow(cell, len(value.values)) if quantity.is_energy else []
        count = len(value.values)
        inside = [x + spread(index, count, width * 0.6) for index in range(count)]
        draw_value(sheet, axes, x, inside, value, scale, look.colour, "", hollow=hollow)
        label = source.energy_label(cell) if quantity.is_energy else source.looks.label(one)
        sheet.legend_bar(label, look)
        bound = bounds[id(cell)]
        if bound is not None and bound in shown:
            axes.plot(
                [x - width * 0.48, x + width * 0.48],
                [bound / scale.factor] * 2,
                color="black",
                linewidth=2.2,
                solid_capstyle="butt",
                zorder=7,
            )
            sheet.legend_mark(quantity.bound_label, color="black", linewidth=2.2)
        _bar_rows(sheet, cell, value, unit, bound, modelled)
    draw_references(sheet, axes, published, scale, cells[0].phase, unit)
    _note_far_bounds(axes, [bound for bound in known if bound not in shown], unit)
    axes.set_xticks(range(len(counts)), [str(count) for count in counts])
    axes.set_xlim(-0.6, len(counts) - 0.4)
    axes.set_xlabel("clients")
    axes.set_ylabel(f"{quantity.label} ({scale.unit})")
    axes.set_ylim(0, top / scale.factor * 1.12)
    axes.grid(visible=False, axis="x")


def _bar_rows(
    sheet: Sheet, cell: Cell, value: Value, unit: str, bound: float | None, is_modelled: bool
) -> None:
    interval = value.median_interval
    common = {
        "panel": cell.phase,
        "target": cell.target,
        "factors": series_of(cell).factors,
        "clients": cell.clients,
        "unit": unit,
        "source": "MODELLED" if is_modelled else "measured",
    }
    sheet.row(
        **common,
        what="median",
        value=value.median,
        low=interval.low if interval else "",
        high=interval.high if interval else "",
        bound="" if bound is None else bound,
    )
    for index, one in enumerate(value.values, start=1):
        sheet.row(**common, what=f"repetition {index}", value=one)
