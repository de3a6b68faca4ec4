# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tables of components and baselines: peaks, streams of a network, overhead in per cent."""

from __future__ import annotations

from terrace_lab.report.source import Source
from terrace_lab.report.style import factors_text
from terrace_lab.report.tables import Entry, Table, median, with_interval
from terrace_lab.report.units import quantity


def peaks(source: Source) -> Table:
    """Theoretical peak performance with the binding component beside each."""
    table = Table(
        "Theoretical peak (TPP)",
        ["system", "clients", "direction", "TPP (95 % interval)", "bound by", "others", "unknown"],
    )
    for one in source.summary.peaks:
        others = {name: value for name, value in one.terms.items() if name != one.binding}
        table.add(
            one.target,
            Entry(str(one.clients), is_number=True),
            " ".join(word for word in (one.direction, one.workload, one.phase) if word),
            Entry(with_interval(one.value, one.interval, one.unit), is_number=True),
            one.binding,
            ", ".join(f"{name} {quantity(value, one.unit)}" for name, value in others.items()),
            ", ".join(one.missing) or "–",
        )
    return table


def streams(source: Source) -> Table:
    """What TCP streams side by side reach, by their number."""
    table = Table("Network by number of streams", ["from", "to", "streams", "rate (95 % interval)"])
    for one in source.summary.stream_rates:
        table.add(
            one.sender,
            one.receiver,
            Entry(str(one.streams), is_number=True),
            median(one.rate, "B/s"),
        )
    return table


def overheads(source: Source) -> Table:
    """What targets are slower by than their baselines."""
    table = Table(
        "Overhead against the baseline of each target",
        ["workload, phase", "target", "baseline", "clients", "overhead (95 % interval)", "blocks"],
        note="1 less the ratio of the rates; negative where the target is faster.",
    )
    for one in source.summary.overheads:
        text = f"{one.percent:.1f} %"
        if one.interval is not None:
            text += f" ({one.interval.low:.1f} to {one.interval.high:.1f} %)"
        table.add(
            f"{one.workload} / {one.phase}",
            f"{one.target} {factors_text(one.factors)}".strip(),
            one.baseline,
            Entry(str(one.clients), is_number=True),
            Entry(text, is_number=True),
            Entry(str(one.blocks), is_number=True),
        )
    return table
