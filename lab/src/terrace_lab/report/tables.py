# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tables of the report; each cell of modelled energy carries the stamp."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from terrace_lab.report.plots_rate import peak_of
from terrace_lab.report.sheet import ordered
from terrace_lab.report.source import Source
from terrace_lab.report.style import clean, factors_text
from terrace_lab.report.units import duration, number, quantity, rate_unit, scale_for
from terrace_lab.summary import Cell, Interval, Value

REPETITIONS_SHOWN = 1000
ROWS_OPEN = 24
COMMANDS_SHOWN = 400
JOURNAL_SHOWN = 1000


@dataclass(frozen=True, slots=True)
class Entry:
    """One cell of a table."""

    text: str
    is_modelled: bool = False
    is_number: bool = False


@dataclass(slots=True)
class Table:
    caption: str
    header: list[str]
    rows: list[list[Entry]] = field(default_factory=list)
    note: str = ""
    is_for_look_up: bool = False

    @property
    def is_folded(self) -> bool:
        """Shut until it is opened: long, or for those who look something up."""
        return self.is_for_look_up or len(self.rows) > ROWS_OPEN

    def add(self, *entries: Entry | str) -> None:
        cells = [one if isinstance(one, Entry) else Entry(one) for one in entries]
        self.rows.append([Entry(clean(one.text), one.is_modelled, one.is_number) for one in cells])


NONE = Entry("–", is_number=True)


def figure(value: float | None, unit: str, *, is_modelled: bool = False) -> Entry:
    if value is None:
        return NONE
    return Entry(quantity(value, unit), is_modelled, is_number=True)


def median(value: Value | None, unit: str, *, is_modelled: bool = False) -> Entry:
    """Median with its interval."""
    if value is None:
        return NONE
    return Entry(with_interval(value.median, value.median_interval, unit), is_modelled, True)


def mean(value: Value | None, unit: str, *, is_modelled: bool = False) -> Entry:
    """Mean and standard deviation."""
    if value is None:
        return NONE
    scale = scale_for(unit, value.mean)
    text = number(value.mean / scale.factor)
    if value.sd is not None:
        text += f" ± {number(value.sd / scale.factor, 2)}"
    return Entry(f"{text} {scale.unit}".strip(), is_modelled, is_number=True)


def with_interval(value: float, interval: Interval | None, unit: str) -> str:
    """A figure and its interval in one unit: `500 [479, 527] MiB/s`."""
    if interval is None:
        return quantity(value, unit)
    scale = scale_for(unit, value)
    low, high = number(interval.low / scale.factor), number(interval.high / scale.factor)
    return f"{number(value / scale.factor)} [{low}, {high}] {scale.unit}".strip()


def overview(source: Source) -> Table:
    """One line for each system and phase, at its most clients, with what the comparison says."""
    summary = source.summary
    product = "E·t" if source.weight == 1 else f"E·t^{source.weight:g}"
    table = Table(
        "Verdict, at the highest number of clients of each phase",
        [
            "workload, phase",
            "clients",
            "system",
            "rate",
            "% of TPP",
            "work per energy",
            f"{product} over reference",
            "rate",
            "energy",
            "work per energy",
            product,
        ],
        note=(
            "The last four columns compare with the reference"
            + (f" {clean(summary.reference)}" if summary.reference else "")
            + " over the blocks that have both; figures are medians with their 95 % interval."
        ),
    )
    verdicts = {
        (one.workload, one.phase, one.clients, one.target, one.metric): one.verdict
        for one in summary.comparisons
    }
    work = [cell for cell in summary.cells if cell.role == "work"]
    pairs = ordered([(cell.workload, cell.phase) for cell in work])
    for workload, phase in pairs:
        cells = [c for c in work if (c.workload, c.phase) == (workload, phase)]
        most = max(cell.clients for cell in cells)
        for cell in cells:
            if cell.clients != most:
                continue
            modelled = source.is_modelled(cell)
            said = [
                verdicts.get((workload, phase, most, cell.target, metric))
                for metric in ("rate", "gross_j", "per_joule", f"edp{source.weight:g}")
            ]
            energy = cell.energy
            table.add(
                f"{workload} / {phase}",
                Entry(str(most), is_number=True),
                f"{cell.target} {factors_text(cell.factors)}".strip(),
                median(cell.rate, rate_unit(cell.unit)),
                _percent(cell),
                median(energy.per_joule, f"{cell.unit}/J", is_modelled=modelled)
                if energy
                else NONE,
                figure(energy.edp_normalised.get(f"{source.weight:g}"), "", is_modelled=modelled)
                if energy
                else NONE,
                *(
                    Entry(one or "–", bool(one) and modelled and index > 0)
                    for index, one in enumerate(said)
                ),
            )
    return table


def _percent(cell: Cell) -> Entry:
    percent = cell.percent_of_peak
    if percent is None:
        return NONE
    text = f"{number(percent.percent)} %"
    if percent.interval:
        text += f" [{number(percent.interval.low)}, {number(percent.interval.high)}]"
    if percent.is_suspicious:
        text += " ⚠ above 100: a cache, or the peak, is wrong"
    return Entry(text, is_number=True)


def meters(source: Source) -> Table:
    table = Table(
        "Meters",
        [
            "meter",
            "kind",
            "identity",
            "source",
            "period",
            "channels",
            "samples",
            "without a value",
            "gaps",
            "time in gaps",
            "lag",
        ],
    )
    for meter in source.summary.meters:
        lag = NONE
        if meter.lag_s is not None:
            text = quantity(meter.lag_s, "s")
            if meter.lag_confidence is not None:
                text += f" (confidence {number(meter.lag_confidence, 2)})"
            lag = Entry(text, is_number=True)
        table.add(
            meter.name,
            meter.kind,
            meter.identity or "–",
            Entry("" if meter.is_modelled else "measured", meter.is_modelled),
            figure(meter.period_s, "s"),
            ", ".join(f"{channel}: {scope}" for channel, scope in meter.channels.items()),
            Entry(str(meter.samples), is_number=True),
            ", ".join(f"{count} {why}" for why, count in meter.unusable.items()) or "none",
            ", ".join(ordered([gap.cause for gap in meter.gaps])[:4])
            and f"{len(meter.gaps)}: {', '.join(ordered([gap.cause for gap in meter.gaps])[:4])}"
            or "none",
            Entry(duration(meter.gap_seconds), is_number=True),
            lag,
        )
    return table


def setup(source: Source) -> Table:
    """The parts of the experiment file, flat."""
    table = Table("Experiment", ["setting", "value"])
    for name, value in _flat("", source.summary.experiment):
        table.add(name, value)
    return table


def environment(source: Source) -> Table:
    table = Table("Hosts", ["host", "property", "value"], is_for_look_up=True)
    for host, values in source.summary.environments.items():
        for name, value in _flat("", values):
            table.add(host, name, value)
    return table


def _flat(prefix: str, value: object) -> list[tuple[str, str]]:
    if isinstance(value, dict) and value:
        return [
            pair
            for key, one in value.items()
            for pair in _flat(f"{prefix}.{key}" if prefix else str(key), one)
        ]
    if isinstance(value, str):
        return [(prefix, value)]
    return [(prefix, json.dumps(value, ensure_ascii=False))]


def throughput(source: Source, cells: Sequence[Cell]) -> Table:
    table = Table(
        "Rates",
        [
            "workload, phase",
            "system",
            "clients",
            "median",
            "mean ± sd",
            "total work / total time",
            "% of TPP",
            "TPP",
            "binding",
            "repetitions",
            "stop",
            "to know",
        ],
    )
    for cell in cells:
        peak = peak_of(source, cell)
        unit = rate_unit(cell.unit)
        bound = NONE
        if peak:
            text = with_interval(peak.value, peak.interval, unit)
            if peak.missing:
                text += f" (not measured: {', '.join(peak.missing)})"
            bound = Entry(text, is_number=True)
        table.add(
            f"{cell.workload} / {cell.phase}",
            _system(cell),
            Entry(str(cell.clients), is_number=True),
            median(cell.rate, unit),
            mean(cell.rate, unit),
            figure(cell.rate_total, unit),
            _percent(cell),
            bound,
            peak.binding if peak else "–",
            Entry(
                f"{len(cell.rate.values)}" + (f", {cell.failed} failed" if cell.failed else ""),
                is_number=True,
            ),
            cell.stop,
            "; ".join(cell.flags) or "–",
        )
    return table


def _system(cell: Cell) -> str:
    return f"{cell.target} {factors_text(cell.factors)}".strip()


def references(source: Source) -> Table:
    table = Table("Published figures", ["what", "value", "workload, phase", "source", "conditions"])
    for line in source.summary.reference_lines:
        table.add(
            line.label,
            Entry(f"{number(line.value)} {line.unit}", is_number=True),
            " / ".join(one for one in (line.workload, line.phase) if one) or "–",
            line.source,
            line.conditions,
        )
    return table


def latency(cells: Sequence[Cell]) -> Table:
    keys = ordered([k for cell in cells if cell.latency for k in cell.latency.percentiles_s])
    table = Table("Percentiles of latency", ["workload, phase", "system", "clients", *keys])
    for cell in cells:
        if cell.latency:
            table.add(
                f"{cell.workload} / {cell.phase}",
                _system(cell),
                Entry(str(cell.clients), is_number=True),
                *(median(cell.latency.percentiles_s.get(key), "s") for key in keys),
            )
    return table


def bounded_rates(source: Source) -> Table:
    table = Table(
        "Highest rate under a bound of latency",
        ["workload, phase", "system", "bound", "rate", "at", "to know"],
    )
    for one in source.summary.bounded_rates:
        rate = "no load keeps the bound"
        if one.rate is not None:
            rate = with_interval(one.rate, one.interval, one.unit)
        table.add(
            f"{one.workload} / {one.phase}",
            one.target,
            f"{number(one.percentile)} % within {quantity(one.latency_s, 's')}",
            Entry(rate, is_number=True),
            "–" if one.load is None else f"{one.load_name} {number(one.load)}",
            "the highest load keeps the bound: more may be possible" if one.is_open else "–",
        )
    return table


def energy(source: Source, cells: Sequence[Cell]) -> Table:
    table = Table(
        "Energy",
        [
            "workload, phase",
            "system",
            "clients",
            "gross",
            "net of idle",
            "error of one",
            "mean power",
            "peak power",
            "work per energy",
            "method",
            "void",
        ],
        note="Method `guarded` integrates whole samples over the phase and the idle guards around "
        "it; `cut` cuts at the marks, with its bound in the error.",
    )
    for cell in cells:
        if cell.energy is None:
            continue
        one, modelled = cell.energy, source.is_modelled(cell)
        table.add(
            f"{cell.workload} / {cell.phase}",
            _system(cell),
            Entry(str(cell.clients), is_number=True),
            median(one.gross_j, "J", is_modelled=modelled),
            median(one.net_j, "J", is_modelled=modelled),
            Entry(f"± {quantity(one.error_j, 'J')}", modelled, is_number=True),
            median(one.mean_w, "W", is_modelled=modelled),
            figure(one.peak_w, "W", is_modelled=modelled and one.peak_w is not None),
            median(one.per_joule, f"{cell.unit}/J", is_modelled=modelled),
            one.method,
            Entry(str(one.voided), is_number=True),
        )
    return table


def energy_by_scope(source: Source, cells: Sequence[Cell]) -> Table | None:
    """Of each host; None where the energy has one scope only."""
    some = [cell for cell in cells if cell.energy is not None and cell.energy.by_scope]
    if not some:
        return None
    scopes = list(dict.fromkeys(name for cell in some for name in _scoped(cell)))
    table = Table(
        "Energy by host",
        ["workload, phase", "system", "clients", *scopes],
        note="Gross, median of the repetitions; medians of parts need not add up to that of the "
        "sum.",
    )
    for cell in some:
        values, modelled = _scoped(cell), source.is_modelled(cell)
        table.add(
            f"{cell.workload} / {cell.phase}",
            _system(cell),
            Entry(str(cell.clients), is_number=True),
            *(
                median(values[name], "J", is_modelled=modelled) if name in values else "–"
                for name in scopes
            ),
        )
    return table


def _scoped(cell: Cell) -> dict[str, Value]:
    return cell.energy.by_scope if cell.energy is not None else {}


def capacity(source: Source) -> Table:
    table = Table(
        "Capacity, idle power, limits and cost",
        [
            "system",
            "nominal",
            "raw",
            "usable",
            "idle power",
            "mean power",
            "usable / idle",
            "raw / idle",
            "nominal / idle",
            "usable / active",
            "peak power",
            "power limit",
            "price",
            "price per TB",
            "price per MB/s",
        ],
    )
    for one in source.summary.targets:
        modelled = source.is_target_modelled(one)
        limit: Entry = figure(one.power_limit_w, "W")
        if one.peak_w is not None and one.power_limit_w is not None:
            word = "kept" if one.peak_w <= one.power_limit_w else "EXCEEDED"
            limit = Entry(f"{limit.text} ({word})", modelled, is_number=True)
        table.add(
            one.name,
            figure(one.nominal_bytes, "B"),
            figure(one.raw_bytes, "B"),
            figure(one.usable_bytes, "B"),
            median(one.idle_w, "W", is_modelled=modelled and one.idle_w is not None),
            *(
                figure(value, unit, is_modelled=modelled and value is not None)
                for value, unit in (
                    (one.active_w, "W"),
                    (one.usable_bytes_per_idle_w, "B/W"),
                    (one.raw_bytes_per_idle_w, "B/W"),
                    (one.nominal_bytes_per_idle_w, "B/W"),
                    (one.usable_bytes_per_active_w, "B/W"),
                    (one.peak_w, "W"),
                )
            ),
            limit,
            figure(one.price, ""),
            figure(one.price_per_tb, ""),
            "; ".join(f"{key} {number(value)}" for key, value in one.price_per_mb_s.items()) or "–",
        )
    return table


def drift(cells: Sequence[Cell]) -> Table:
    table = Table(
        "Order of the repetitions",
        ["workload, phase", "system", "clients", "Spearman", "p", "first over median of others"],
        is_for_look_up=True,
    )
    for cell in cells:
        if cell.drift:
            table.add(
                f"{cell.workload} / {cell.phase}",
                _system(cell),
                Entry(str(cell.clients), is_number=True),
                Entry(number(cell.drift.spearman, 2), is_number=True),
                Entry(number(cell.drift.p, 2), is_number=True),
                figure(cell.drift.first_ratio, ""),
            )
    return table


def comparisons(source: Source) -> Table:
    table = Table(
        "Comparisons with the reference",
        [
            "workload, phase",
            "clients",
            "metric",
            "system",
            "reference",
            "ratio",
            "95 % interval",
            "blocks",
            "p",
            "p (Holm)",
            "verdict",
        ],
        is_for_look_up=True,
    )
    modelled = {
        (cell.workload, cell.phase, cell.clients, cell.target): source.is_modelled(cell)
        for cell in source.summary.cells
    }
    for one in source.summary.comparisons:
        is_energy = one.metric != "rate"
        stamp = is_energy and any(
            modelled.get((one.workload, one.phase, one.clients, name), False)
            for name in (one.target, one.reference)
        )
        between = "–"
        if one.interval:
            between = f"[{number(one.interval.low)}, {number(one.interval.high)}]"
        table.add(
            f"{one.workload} / {one.phase}",
            Entry(str(one.clients), is_number=True),
            one.metric,
            one.target,
            one.reference,
            figure(one.ratio, "", is_modelled=stamp),
            Entry(between, stamp and one.interval is not None, is_number=True),
            Entry(str(one.blocks), is_number=True),
            figure(one.p, "", is_modelled=stamp and one.p is not None),
            figure(one.p_holm, "", is_modelled=stamp and one.p_holm is not None),
            Entry(one.verdict, stamp),
        )
    return table


def extras(cells: Sequence[Cell]) -> Table:
    table = Table(
        "Further figures of the workloads",
        ["workload, phase", "system", "clients", "figure", "median", "mean ± sd"],
        is_for_look_up=True,
    )
    for cell in cells:
        for name, value in cell.extra.items():
            table.add(
                f"{cell.workload} / {cell.phase}",
                _system(cell),
                Entry(str(cell.clients), is_number=True),
                name,
                median(value, ""),
                mean(value, ""),
            )
    return table


def repetitions(source: Source) -> Table:
    table = Table(
        "Repetitions",
        [
            "place",
            "block",
            "trial",
            "phase",
            "rep.",
            "work",
            "time",
            "rate",
            "gross",
            "net",
            "error",
            "mean power",
            "energy void",
            "notes",
        ],
        is_for_look_up=True,
    )
    everything = sorted(source.summary.repetitions, key=lambda one: (one.order, one.begin_ns))
    stamps: dict[tuple[str, str], bool] = {}
    for one in everything[:REPETITIONS_SHOWN]:
        cell = source.cell(one)
        unit = cell.unit if cell else ""
        key = (one.trial, one.phase)
        if cell and key not in stamps:
            stamps[key] = source.is_modelled(cell)
        modelled = stamps.get(key, source.summary.is_modelled)
        table.add(
            Entry(str(one.order), is_number=True),
            Entry(str(one.block), is_number=True),
            one.trial,
            one.phase,
            Entry(str(one.repetition), is_number=True),
            figure(one.work, unit),
            figure(one.seconds, "s"),
            figure(one.rate, rate_unit(unit)),
            *(
                figure(value, unit, is_modelled=modelled and value is not None)
                for value, unit in (
                    (one.gross_j, "J"),
                    (one.net_j, "J"),
                    (one.error_j, "J"),
                    (one.mean_w, "W"),
                )
            ),
            one.energy_void or "–",
            "; ".join(one.notes) or "–",
        )
    table.note = _cut(len(everything), REPETITIONS_SHOWN, "derived/metrics.csv")
    return table


def commands(source: Source) -> Table:
    table = Table("Commands", ["trial and phase", "command"], is_for_look_up=True)
    lines = [
        (trial, json.dumps(argv, ensure_ascii=False))
        for trial, many in source.summary.commands.items()
        for argv in many
    ]
    for trial, argv in lines[:COMMANDS_SHOWN]:
        table.add(trial, argv)
    table.note = _cut(len(lines), COMMANDS_SHOWN, "trials/*/rep-*/cmd.json")
    return table


def journal(source: Source) -> Table:
    table = Table("Journal", ["time (ns)", "event", "details"], is_for_look_up=True)
    for line in source.journal[:JOURNAL_SHOWN]:
        rest = {k: v for k, v in line.items() if k not in ("event", "real", "raw")}
        table.add(
            Entry(str(line.get("real", "–")), is_number=True),
            str(line.get("event", "–")),
            json.dumps(rest, ensure_ascii=False) if rest else "–",
        )
    table.note = _cut(len(source.journal), JOURNAL_SHOWN, "journal.jsonl")
    if source.torn:
        table.note += f" {source.torn} lines are torn."
    return table


def _cut(count: int, limit: int, where: str) -> str:
    if count <= limit:
        return f"All of it is in {where}."
    return f"The first {limit} of {count}; all of them are in {where}."
