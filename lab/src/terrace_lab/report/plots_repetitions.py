# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Every repetition in the order of the run, so that drift and first-run effects are seen."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.ticker import MaxNLocator

from terrace_lab.report.sheet import Figure, Sheet, ordered, panel_columns
from terrace_lab.report.source import Source
from terrace_lab.report.style import series_of, short
from terrace_lab.report.units import rate_unit
from terrace_lab.summary import Cell


def strip(source: Source, workload: str, cells: Sequence[Cell], name: str) -> Figure:
    """Rate of each repetition in percent of the median of its cell, over its place in the run."""
    phases = ordered([cell.phase for cell in cells])
    sheet = Sheet(len(phases), columns=panel_columns(5.0, len(phases)), width=5.0, height=2.6)
    for axes, phase in zip(sheet.axes, phases, strict=True):
        for cell in cells:
            if cell.phase != phase:
                continue
            one = series_of(cell)
            look = source.looks.look(one)
            for repetition in source.repetitions(cell):
                percent = repetition.rate / cell.rate.median * 100 if cell.rate.median else 0.0
                is_void = repetition.energy_void is not None
                sheet.mark(
                    axes,
                    repetition.order,
                    percent,
                    marker=look.marker,
                    markersize=4.5,
                    markerfacecolor="white" if is_void else look.colour,
                    markeredgecolor=look.colour if is_void else "black",
                    markeredgewidth=1.0 if is_void else 0.4,
                )
                if is_void:
                    sheet.legend_mark(
                        "energy is void",
                        color="none",
                        marker="o",
                        markerfacecolor="white",
                        markeredgecolor="black",
                    )
                sheet.row(
                    panel=phase,
                    target=cell.target,
                    factors=one.factors,
                    clients=cell.clients,
                    order=repetition.order,
                    repetition=repetition.repetition,
                    block=repetition.block,
                    rate=repetition.rate,
                    unit=rate_unit(cell.unit),
                    percent_of_median=percent,
                    energy_void=repetition.energy_void or "",
                )
            sheet.legend_mark(
                source.looks.label(one),
                color="none",
                marker=look.marker,
                markerfacecolor=look.colour,
                markeredgecolor="black",
                markeredgewidth=0.4,
            )
        axes.axhline(100, color="black", linewidth=0.8, linestyle="--")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("place in the run")
        axes.set_ylabel("rate (% of median)")
        axes.set_title(short(phase, 45))
    drifting = [
        f"{cell.target} {cell.phase} {cell.clients} clients rho {cell.drift.spearman:.2f}"
        for cell in cells
        if cell.drift and cell.drift.p < 0.05
    ]
    return sheet.finish(
        name,
        f"Repetitions, {workload}",
        f"Every repetition of {workload} in the order of the run, in percent of the median of its "
        "cell. A slope says that the order shows in the figures. The axis does not begin at zero.",
        "Strip of repetitions. "
        + (f"Drift with p below 0.05: {'; '.join(drifting[:20])}." if drifting else "No drift."),
    )
