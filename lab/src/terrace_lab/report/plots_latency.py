# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Distribution of the latency of single operations."""

from __future__ import annotations

from collections.abc import Sequence

from terrace_lab.report.sheet import Figure, Sheet, ordered, panel_columns, plain_logarithmic
from terrace_lab.report.source import Source
from terrace_lab.report.style import series_of
from terrace_lab.report.units import quantity
from terrace_lab.summary import Cell

PERCENTILES = {"p50": ("o", 0.5), "p99": ("s", 0.99), "p99.9": ("^", 0.999)}


def ecdf(source: Source, cells: Sequence[Cell], name: str) -> Figure:
    """Part of the operations that took at most so long; a panel for each number of clients."""
    counts = ordered(sorted(cell.clients for cell in cells))
    sheet = Sheet(len(counts), columns=panel_columns(5.0, len(counts)), width=5.0, height=2.9)
    for axes, clients in zip(sheet.axes, counts, strict=True):
        for cell in cells:
            if cell.clients != clients or cell.latency is None:
                continue
            one = series_of(cell)
            look = source.looks.look(one)
            steps = cell.latency.ecdf
            axes.step(
                [seconds for seconds, _ in steps],
                [part for _, part in steps],
                where="post",
                color=look.colour,
                linestyle=look.line,
            )
            sheet.legend_line(source.looks.label(one), look)
            for seconds, part in steps:
                sheet.row(
                    clients=clients,
                    target=cell.target,
                    factors=one.factors,
                    what="ecdf",
                    seconds=seconds,
                    part=part,
                )
            for key, (marker, part) in PERCENTILES.items():
                value = cell.latency.percentiles_s.get(key)
                if value is None:
                    continue
                sheet.mark(
                    axes,
                    value.median,
                    part,
                    marker=marker,
                    color=look.colour,
                    markeredgecolor="black",
                    zorder=5,
                )
                sheet.legend_mark(
                    key,
                    color="none",
                    marker=marker,
                    markerfacecolor="white",
                    markeredgecolor="black",
                )
                sheet.row(
                    clients=clients,
                    target=cell.target,
                    factors=one.factors,
                    what=key,
                    seconds=value.median,
                    part=part,
                )
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_xscale("log")
        plain_logarithmic(axes.xaxis, "s")
        axes.set_ylim(0, 1.04)
        axes.set_xlabel("latency (logarithmic)")
        axes.set_ylabel("part of operations")
        axes.set_title(f"{clients} client{'s' if clients != 1 else ''}")
    first = cells[0]
    parts = [
        f"{cell.target} {cell.clients} clients "
        + " ".join(
            f"{key} {quantity(value.median, 's')}"
            for key, value in cell.latency.percentiles_s.items()
        )
        for cell in cells[:40]
        if cell.latency
    ]
    return sheet.finish(
        name,
        f"Latency, {first.workload} {first.phase}",
        f"Latency of the operations of {first.workload}, phase {first.phase}: part of all "
        "operations of all repetitions that took at most so long. Marks are the medians over "
        "the repetitions of p50, p99 and p99.9.",
        f"Distribution functions. {'; '.join(parts)}.",
    )
