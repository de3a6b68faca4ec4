# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Work per joule, energy-delay product, capacity per watt, and throughput against power."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
from matplotlib.axes import Axes

from terrace_lab.report.plots_rate import Quantity
from terrace_lab.report.sheet import CHARACTER_INCHES, Figure, Sheet, ordered, panel_columns
from terrace_lab.report.source import Source
from terrace_lab.report.style import series_of, short
from terrace_lab.report.units import number, quantity, rate_unit, scale_for, to_base
from terrace_lab.summary import Cell, TargetSummary

WEIGHTS = ("0", "1", "2")
EFFICIENCY = Quantity(
    "work per energy",
    lambda cell: f"{cell.unit}/J",
    lambda cell: cell.energy.per_joule if cell.energy else None,
    is_energy=True,
)
CAPACITIES = (
    ("usable_bytes_per_idle_w", "usable, idle"),
    ("raw_bytes_per_idle_w", "raw, idle"),
    ("nominal_bytes_per_idle_w", "nominal, idle"),
    ("usable_bytes_per_active_w", "usable, active"),
)
EDP_CURVES = 4


def edp(source: Source, workload: str, cells: Sequence[Cell], name: str) -> Figure:
    """Energy-delay product over that of the reference: rows are phases, columns are weights w."""
    cells = [cell for cell in cells if cell.energy and cell.energy.edp_normalised]
    phases = ordered([cell.phase for cell in cells])
    counts_most = max(len({c.clients for c in cells if c.phase == phase}) for phase in phases)
    series = [one for one in source.looks.series if any(series_of(c) == one for c in cells)]
    width = min(12.0, max(3.3, 0.2 * counts_most * len(series) + 1.2))
    exponents = sorted({w for c in cells if c.energy for w in c.energy.edp_normalised}, key=float)
    columns = len(exponents)
    sheet = Sheet(len(phases) * columns, columns=columns, width=width, height=2.4)
    barwidth = 0.84 / len(series)
    for row, phase in enumerate(phases):
        mine = [cell for cell in cells if cell.phase == phase]
        counts = sorted({cell.clients for cell in mine})
        for column, weight in enumerate(exponents):
            axes = sheet.axes[row * columns + column]
            for cell in mine:
                energy = cell.energy
                if energy is None or (value := energy.edp_normalised.get(weight)) is None:
                    continue
                one = series_of(cell)
                look = source.looks.look(one)
                x = counts.index(cell.clients)
                x_bar = x + (series.index(one) - (len(series) - 1) / 2) * barwidth
                axes.bar(
                    x_bar,
                    value,
                    barwidth * 0.9,
                    color=look.colour,
                    hatch=look.hatch,
                    edgecolor="black",
                    linewidth=0.6,
                )
                modelled = source.is_modelled(cell)
                sheet.stamp(axes, modelled)
                sheet.legend_bar(source.energy_label(cell), look)
                sheet.row(
                    panel=phase,
                    w=weight,
                    target=cell.target,
                    factors=one.factors,
                    clients=cell.clients,
                    normalised=value,
                    edp=energy.edp[weight].median if weight in energy.edp else "",
                    rescaled=energy.edp_rescaled,
                    source="MODELLED" if modelled else "measured",
                )
            axes.axhline(1.0, color="black", linewidth=1.0, linestyle="--")
            axes.set_title(f"{short(phase, 28)}, w = {weight}")
            axes.set_xticks(range(len(counts)), [str(count) for count in counts])
            axes.set_xlim(-0.6, len(counts) - 0.4)
            axes.set_xlabel("clients")
            axes.set_ylabel("E·t^w, reference = 1" if column == 0 else "")
            axes.grid(visible=False, axis="x")
    reference = source.summary.reference or "the reference"
    sheet.legend_mark(f"{short(reference)} = 1", color="black", linestyle="--", linewidth=1.0)
    rescaled = ordered(
        [f"{cell.phase}" for cell in cells if cell.energy and cell.energy.edp_rescaled]
    )
    caption = (
        f"Energy-delay product E·t^w of {workload} over that of {reference}; lower is better. "
        "With w = 0 it is energy alone; the higher w, the more the time counts."
    )
    if rescaled:
        caption += (
            f" Brought to the work of the reference, as time was fixed: {', '.join(rescaled)}."
        )
    parts = [
        f"{cell.target} {cell.phase} {cell.clients} clients "
        + ", ".join(f"w={w} {number(v)}" for w, v in cell.energy.edp_normalised.items())
        for cell in cells[:40]
        if cell.energy
    ]
    return sheet.finish(
        name,
        f"Energy-delay product, {workload}",
        caption,
        f"Bars of the normalised energy-delay product. {'; '.join(parts)}.",
    )


def capacity(source: Source, targets: Sequence[TargetSummary], name: str) -> Figure:
    """Bytes for a watt, a panel for each kind of capacity."""
    kinds = [
        (key, label)
        for key, label in CAPACITIES
        if any(getattr(target, key) is not None for target in targets)
    ]
    height = 0.34 * len(targets) + 0.9
    widest = max(len(source.looks.target_label(target.name)) for target in targets)
    left = widest * CHARACTER_INCHES + 0.2
    width = left + 2.4
    sheet = Sheet(
        len(kinds), columns=panel_columns(width, len(kinds)), width=width, height=height, left=left
    )
    for axes, (key, label) in zip(sheet.axes, kinds, strict=True):
        values = [(target, getattr(target, key)) for target in targets]
        published = [
            (line, value)
            for line in source.summary.reference_lines
            for value, unit in [to_base(line.value, line.unit)]
            if unit == "B/W" and line.phase in ("", "idle", "capacity")
        ]
        top = max([v for _, v in values if v is not None] + [v for _, v in published])
        scale = scale_for("B/W", top)
        for place, (target, value) in enumerate(values):
            if value is None:
                axes.annotate(
                    "not known",
                    (0, place),
                    xytext=(3, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=7.5,
                )
                continue
            look = source.looks.target_look(target.name)
            modelled = source.is_target_modelled(target)
            sheet.stamp(axes, modelled)
            axes.barh(
                place,
                value / scale.factor,
                0.7,
                color=look.colour,
                hatch=look.hatch,
                edgecolor="black",
                linewidth=0.6,
            )
            sheet.row(
                target=target.name,
                what=label,
                value=value,
                unit="B/W",
                source="MODELLED" if modelled else "measured",
            )
        if "active" not in key:
            for index, (line, value) in enumerate(published):
                style = (0, (1, 1 + index))
                axes.axvline(value / scale.factor, color="#555555", linewidth=1.1, linestyle=style)
                sheet.legend_mark(
                    f"published: {short(line.label, 40)}",
                    color="#555555",
                    linewidth=1.1,
                    linestyle=style,
                )
                sheet.row(target=line.label, what="published", value=value, unit="B/W")
        axes.set_yticks(
            range(len(values)), [source.looks.target_label(target.name) for target, _ in values]
        )
        axes.invert_yaxis()
        axes.set_xlim(0, top / scale.factor * 1.1)
        axes.set_xlabel(f"{label} power ({scale.unit})")
        axes.grid(visible=False, axis="y")
    parts = [
        f"{target.name} {label} {quantity(value, 'B/W')}"
        for target in targets
        for key, label in kinds
        if (value := getattr(target, key)) is not None
    ]
    return sheet.finish(
        name,
        "Capacity per watt",
        "Bytes that a system keeps for each watt it takes: usable and raw capacity over idle "
        "power, and usable capacity over the mean power of all phases.",
        f"Bars of capacity per watt. {'; '.join(parts)}.",
    )


def pareto(source: Source, workload: str, cells: Sequence[Cell], name: str) -> Figure:
    """Throughput against power, with curves of equal energy-delay product."""
    cells = [cell for cell in cells if cell.energy]
    phases = ordered([cell.phase for cell in cells])
    sheet = Sheet(len(phases), columns=panel_columns(5.0, len(phases)), width=5.0, height=3.3)
    power = 1 + source.weight
    product = "E·t" if source.weight == 1 else f"E·t^{source.weight:g}"
    for axes, phase in zip(sheet.axes, phases, strict=True):
        mine = [cell for cell in cells if cell.phase == phase]
        watts = {id(cell): cell.energy.mean_w.median for cell in mine if cell.energy}
        right = max(watts.values()) * 1.12
        top = max(cell.rate.median for cell in mine)
        scale = scale_for(rate_unit(mine[0].unit), top)
        front = _front([(watts[id(cell)], cell.rate.median) for cell in mine])
        for cell in mine:
            _pareto_point(source, sheet, cell, watts[id(cell)], scale.factor, front, axes)
        axes.set_xlim(0, right)
        axes.set_ylim(0, top / scale.factor * 1.15)
        # E·t^w = (W/r)^(1+w)·P: equal where P grows as r^(1+w).
        for index in range(EDP_CURVES):
            factor = 2.0**index
            curve_watts = numpy.linspace(0, right, 60)
            best = min(
                watts[id(cell)] / cell.rate.median**power for cell in mine if cell.rate.median
            )
            rates = (curve_watts / (best * factor)) ** (1 / power)
            axes.plot(
                curve_watts,
                rates / scale.factor,
                color="#777777",
                linewidth=0.8,
                linestyle=(0, (4, 1 + 2 * index)),
                zorder=1,
            )
            sheet.legend_mark(
                f"{product} ×{factor:g} of the best",
                color="#777777",
                linewidth=0.8,
                linestyle=(0, (4, 1 + 2 * index)),
            )
            sheet.row(
                panel=phase, what=f"curve of {product} ×{factor:g}", watts_per_rate2=best * factor
            )
        axes.set_xlabel("mean power (W)")
        axes.set_ylabel(f"throughput ({scale.unit})")
        axes.set_title(short(phase, 45))
    sheet.legend_mark(
        "nothing better in both",
        color="none",
        marker="o",
        markersize=10,
        markerfacecolor="none",
        markeredgecolor="black",
    )
    parts = [
        f"{cell.target} {cell.phase} {cell.clients} clients "
        f"{quantity(cell.rate.median, rate_unit(cell.unit))} at "
        f"{quantity(cell.energy.mean_w.median, 'W')}"
        for cell in cells[:40]
        if cell.energy
    ]
    return sheet.finish(
        name,
        f"Throughput against power, {workload}",
        f"Median throughput of {workload} against median mean power, with the 95 % intervals of "
        "both. The small number at a point is the number of clients. Grey curves join points of "
        f"equal energy-delay product (w = {source.weight:g}): the steepest touches the best point, "
        "each further one stands for twice the product. Ringed points are not beaten in both by "
        "any other.",
        f"Points of throughput and power. {'; '.join(parts)}.",
    )


def _front(points: Sequence[tuple[float, float]]) -> set[tuple[float, float]]:
    """Points that no other beats in one and equals in the other."""
    return {
        (watts, rate)
        for watts, rate in points
        if not any(
            other_watts <= watts
            and other_rate >= rate
            and (other_watts, other_rate) != (watts, rate)
            for other_watts, other_rate in points
        )
    }


def _pareto_point(
    source: Source,
    sheet: Sheet,
    cell: Cell,
    watts: float,
    factor: float,
    front: set[tuple[float, float]],
    axes: Axes,
) -> None:
    if cell.energy is None:
        return
    one = series_of(cell)
    look = source.looks.look(one)
    rate = cell.rate.median
    modelled = source.is_modelled(cell)
    sheet.stamp(axes, modelled)
    hollow = source.hollow(cell, len(cell.energy.mean_w.values))
    is_hollow = bool(hollow) and all(hollow)
    across, up = cell.energy.mean_w.median_interval, cell.rate.median_interval
    if across:
        sheet.interval(axes, rate / factor, across.low, across.high, is_upright=False)
    if up:
        sheet.interval(axes, watts, up.low / factor, up.high / factor)
    is_front = (watts, rate) in front
    if is_front:
        axes.plot(
            watts,
            rate / factor,
            marker="o",
            markersize=11,
            markerfacecolor="none",
            markeredgecolor="black",
            markeredgewidth=0.9,
            zorder=4,
        )
    axes.plot(
        watts,
        rate / factor,
        marker=look.marker,
        markersize=6.5,
        markerfacecolor="white" if is_hollow else look.colour,
        markeredgecolor="black",
        markeredgewidth=0.6,
        linestyle="none",
        zorder=5,
    )
    axes.annotate(
        str(cell.clients),
        (watts, rate / factor),
        xytext=(6, 4),
        textcoords="offset points",
        fontsize=7,
    )
    sheet.legend_mark(
        source.energy_label(cell),
        color="none",
        marker=look.marker,
        markersize=6.5,
        markerfacecolor=look.colour,
        markeredgecolor="black",
        markeredgewidth=0.6,
    )
    sheet.row(
        panel=cell.phase,
        what="point",
        target=cell.target,
        factors=one.factors,
        clients=cell.clients,
        watts=watts,
        watts_low=across.low if across else "",
        watts_high=across.high if across else "",
        rate=rate,
        rate_low=up.low if up else "",
        rate_high=up.high if up else "",
        unit=rate_unit(cell.unit),
        is_on_front=is_front,
        source="MODELLED" if modelled else "measured",
    )
