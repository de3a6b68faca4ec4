# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Workloads that are a sequence of phases: compilations, deep-learning input, the PDE solver."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes

from terrace_lab.report.plots_rate import Quantity
from terrace_lab.report.sheet import CHARACTER_INCHES, Figure, Sheet, ordered, panel_columns
from terrace_lab.report.source import Source
from terrace_lab.report.style import Series, look, series_of, short
from terrace_lab.report.units import Scale, number, quantity, scale_for
from terrace_lab.summary import Cell, Interval, Value

UTILISATION = "accelerator_utilisation"
SPLIT = {"compute_s": "compute", "checkpoint_s": "checkpoint"}
ACCELERATOR_TEXT = (
    "The accelerator is a sleep: its utilisation is the part of the time in which it would have "
    "computed, and its energy is not in any figure. Where a note of a system says that it is a "
    "GPU, the utilisation is the part of the time in which that computed."
)


def stacked(source: Source, workload: str, cells: Sequence[Cell], name: str, kind: str) -> Figure:
    """Medians of time and of energy of the phases, one bar a system and number of clients."""
    timed = [part for cell in cells for part in parts_of(cell)]
    phases = ordered([cell.phase for cell in [*timed, *cells]])
    rows = sorted({(source.looks.series.index(series_of(cell)), cell.clients) for cell in cells})
    labels = [
        f"{source.looks.label(source.looks.series[index])} · {clients}" for index, clients in rows
    ]
    has_energy = any(cell.energy for cell in cells)
    left = max(len(label) for label in labels) * CHARACTER_INCHES + 0.2
    width = left + 3.6
    sheet = Sheet(
        2 if has_energy else 1,
        columns=panel_columns(width, 2),
        width=width,
        height=0.3 * len(rows) + 0.9,
        left=left,
    )
    for axes, stack, some in zip(sheet.axes, _STACKS, (timed, cells), strict=False):
        shown = ordered([cell.phase for cell in some])
        stacks, axes_scale = _stack_panel(source, sheet, axes, some, shown, rows, stack)
        for place, parts in enumerate(stacks):
            left = 0.0
            for phase in shown:
                value = parts.get(phase)
                if value is None:
                    continue
                style = look(phases.index(phase))
                axes.barh(
                    place,
                    value / axes_scale.factor,
                    0.7,
                    left=left,
                    color=style.colour,
                    hatch=style.hatch,
                    edgecolor="black",
                    linewidth=0.6,
                )
                left += value / axes_scale.factor
            if len(parts) == len(shown):
                total = sum(parts.values())
                text = f"{number(total / axes_scale.factor)}"
            else:
                absent = [phase for phase in shown if phase not in parts]
                text = f"without {', '.join(short(one, 12) for one in absent)}"
            axes.annotate(
                text,
                (left, place),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=7.5,
            )
        axes.set_yticks(range(len(rows)), labels)
        axes.invert_yaxis()
        axes.set_xlabel(f"{stack[0]} ({axes_scale.unit})")
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.18)
        axes.set_xlim(left=0)
    drawn = {row["phase"] for row in sheet.rows}
    for index, phase in enumerate(phases):
        if phase in drawn:
            sheet.legend_bar(short(phase), look(index))
    parts_text = [
        f"{cell.target} {cell.clients} clients {cell.phase} {quantity(cell.seconds.median, 's')}"
        + (f" {quantity(cell.energy.gross_j.median, 'J')}" if cell.energy else "")
        for cell in cells[:60]
    ]
    return sheet.finish(
        name,
        f"{kind}, {workload}",
        f"Phases of {workload}, by system and number of clients: median time (of the slowest "
        "client) and median gross energy, one behind the other. The figure at the end is the sum; "
        "a bar whose phases are not all known says which are missing.",
        f"Stacked bars. {'; '.join(parts_text)}.",
    )


def parts_of(cell: Cell) -> list[Cell]:
    """The parts of a phase as if they were phases, where the workload tells how its time splits;
    otherwise the phase itself. Their energy is not known apart."""
    found = [
        dataclasses.replace(cell, phase=name, seconds=cell.extra[key], energy=None)
        for key, name in SPLIT.items()
        if key in cell.extra
    ]
    return found if len(found) == len(SPLIT) else [cell]


_STACKS: tuple[tuple[str, str, Callable[[Cell], Value | None]], ...] = (
    ("time", "s", lambda cell: cell.seconds),
    ("gross energy", "J", lambda cell: cell.energy.gross_j if cell.energy else None),
)


def _stack_panel(
    source: Source,
    sheet: Sheet,
    axes: Axes,
    cells: Sequence[Cell],
    phases: Sequence[str],
    rows: Sequence[tuple[int, int]],
    quantity_of: tuple[str, str, Callable[[Cell], Value | None]],
) -> tuple[list[dict[str, float]], Scale]:
    what, unit, value_of = quantity_of
    stacks: list[dict[str, float]] = []
    for index, clients in rows:
        series: Series = source.looks.series[index]
        parts: dict[str, float] = {}
        for phase in phases:
            for cell in cells:
                if (series_of(cell), cell.clients, cell.phase) != (series, clients, phase):
                    continue
                value = value_of(cell)
                if value is None:
                    continue
                parts[phase] = value.median
                modelled = unit == "J" and source.is_modelled(cell)
                sheet.stamp(axes, modelled)
                sheet.row(
                    panel=what,
                    target=cell.target,
                    factors=series.factors,
                    clients=clients,
                    phase=phase,
                    value=value.median,
                    unit=unit,
                    source="MODELLED" if modelled else "measured",
                )
        stacks.append(parts)
    return stacks, scale_for(unit, max((sum(parts.values()) for parts in stacks), default=1.0))


def utilisation() -> Quantity:
    return Quantity(
        "accelerator utilisation",
        lambda _: "%",
        lambda cell: _percent(cell.extra.get(UTILISATION)),
        bound=lambda _: 100.0,
        bound_label="upper bound",
    )


def has_utilisation_over_time(source: Source, cell: Cell) -> bool:
    return any(source.over_time(one, UTILISATION) for one in source.repetitions(cell)[:1])


def utilisation_over_time(
    source: Source, workload: str, cells: Sequence[Cell], name: str
) -> Figure:
    """How busy accelerators were in the first repetition of each cell, a panel for each number of
    clients."""
    counts = ordered(sorted(cell.clients for cell in cells))
    sheet = Sheet(len(counts), columns=1, width=9.6, height=1.9)
    means = []
    for axes, clients in zip(sheet.axes, counts, strict=True):
        for cell in cells:
            if cell.clients != clients:
                continue
            one = series_of(cell)
            style = source.looks.look(one)
            first = source.repetitions(cell)[0]
            points = source.over_time(first, UTILISATION)
            # Each value holds since the point before.
            axes.step(
                [0.0, *(seconds for seconds, _ in points)],
                [100 * part for _, part in [points[0], *points]],
                where="pre",
                color=style.colour,
                linestyle=style.line,
            )
            sheet.legend_line(source.looks.label(one), style)
            for seconds, part in points:
                sheet.row(
                    clients=clients,
                    target=cell.target,
                    factors=one.factors,
                    phase=cell.phase,
                    repetition=first.repetition,
                    seconds=seconds,
                    part=part,
                )
            length_s = points[-1][0]
            before = [0.0, *(seconds for seconds, _ in points)]
            busy_s = sum(
                part * (end - begin) for begin, (end, part) in zip(before, points, strict=False)
            )
            means.append(f"{cell.target} {clients} clients {100 * busy_s / length_s:.1f} %")
        axes.set_ylim(0, 104)
        axes.set_xlim(left=0)
        axes.set_ylabel("busy (%)")
        axes.set_xlabel("time since the begin of the phase (s)")
        axes.set_title(f"{clients} client{'s' if clients != 1 else ''}")
    return sheet.finish(
        name,
        f"Accelerator utilisation over time, {workload}",
        f"Part of the time in which the accelerators of all clients of {workload} were busy, mean "
        f"over each interval, first repetition. {ACCELERATOR_TEXT}",
        f"Utilisation over time; means: {'; '.join(means)}.",
    )


def _percent(value: Value | None) -> Value | None:
    """A part of one as a percentage."""
    return None if value is None else _mapped(value, lambda one: one * 100)


def _mapped(value: Value, change: Callable[[float], float]) -> Value:
    interval = value.median_interval
    ends = sorted([change(interval.low), change(interval.high)]) if interval else None
    return Value(
        values=[change(one) for one in value.values],
        median=change(value.median),
        median_interval=Interval(*ends) if ends else None,
        mean=sum(change(one) for one in value.values) / len(value.values),
        sd=None,
    )


def joules_per_sample() -> Quantity:
    return Quantity(
        "energy for a sample",
        lambda _: "J/sample",
        lambda cell: _inverse(cell.energy.per_joule) if cell.energy else None,
        is_energy=True,
    )


def _inverse(value: Value) -> Value | None:
    if value.median <= 0 or any(one <= 0 for one in value.values) or not value.values:
        return None
    return _mapped(value, lambda one: 1 / one)


def joules_per_checkpoint() -> Quantity:
    return Quantity(
        "energy for a checkpoint",
        lambda _: "J/checkpoint",
        checkpoint_energy,
        is_energy=True,
    )


def checkpoint_energy(cell: Cell) -> Value | None:
    """Joules for each checkpoint, where a phase tells how many it wrote."""
    if cell.energy is None:
        return None
    if cell.unit == "checkpoints":
        return _inverse(cell.energy.per_joule)
    count = cell.extra.get("checkpoints")
    if count is None or count.median <= 0:
        return None
    return _mapped(cell.energy.gross_j, lambda one: one / count.median)
