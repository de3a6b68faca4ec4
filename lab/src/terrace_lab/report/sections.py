# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The sections of the report in their order; one without data is named and left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from terrace_lab.report import (
    plots_energy,
    plots_latency,
    plots_load,
    plots_phases,
    plots_power,
    plots_rate,
    plots_repetitions,
    tables,
    tables_components,
)
from terrace_lab.report.sheet import Figure, ordered
from terrace_lab.report.source import Source
from terrace_lab.report.style import clean, factors_text
from terrace_lab.report.tables import Table
from terrace_lab.report.units import rate_unit
from terrace_lab.summary import Cell

OF_ENERGY = (
    *("Distribution of power", "Power over time", "Energy efficiency", "Energy-delay product"),
    *("Capacity per watt", "Compilation", "Deep-learning input", "PDE solver"),
    *("Throughput against power", "Load of the hosts"),
)
"""Sections whose figures say whose energy they show."""
OWN_SECTION = ("compile", "dlinput", "pde")


@dataclass(slots=True)
class Section:
    """One numbered part of the report."""

    number: int
    title: str
    text: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    slider: list[SliderRow] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not self.figures and not any(table.rows for table in self.tables)


@dataclass(frozen=True, slots=True)
class SliderRow:
    """Normalised energy-delay products of one cell, from which others are interpolated."""

    what: str
    system: str
    clients: int
    normalised: tuple[float, float, float]
    is_modelled: bool


def sections(source: Source) -> tuple[list[Section], list[str]]:
    """All sections with data after the head, and what is said of those without."""
    found: list[Section] = []
    absent: list[str] = []
    for number, (title, make, reason) in enumerate(_SECTIONS, start=2):
        section = Section(number, title)
        make(source, section)
        if section.is_empty:
            absent.append(f"{title}: {reason}")
        else:
            section.tables = [table for table in section.tables if table.rows]
            if title in OF_ENERGY and source.scope_text:
                section.figures = [_with_scope(source, one) for one in section.figures]
                section.text.append(source.scope_text)
            found.append(section)
    return found, absent


def _with_scope(source: Source, figure: Figure) -> Figure:
    return dataclasses.replace(figure, caption=f"{figure.caption} {clean(source.scope_text)}")


def _by_workload(section: Section, cells: Sequence[Cell]) -> Iterator[tuple[str, list[Cell], str]]:
    """Cells by workload, with a file name for the figure of each."""
    for workload in ordered([cell.workload for cell in cells]):
        yield (
            workload,
            [cell for cell in cells if cell.workload == workload],
            _name(section, workload),
        )


def _name(section: Section, *parts: str) -> str:
    """A file name that no text of an experiment can lead elsewhere, and that is not taken."""
    words = "-".join(
        "".join(one if one.isascii() and one.isalnum() else "-" for one in part.lower())
        for part in parts
    )
    words = "-".join(word for word in words.split("-") if word)[:40]
    return "-".join(
        one for one in (f"{section.number:02d}", f"{len(section.figures) + 1:02d}", words) if one
    )


def _setup(source: Source, section: Section) -> None:
    section.tables = [tables.setup(source), tables.environment(source)]
    if source.summary.deviations:
        table = Table("Where the run is not what the experiment says", ["deviation"])
        for one in source.summary.deviations:
            table.add(one)
        section.tables.insert(0, table)
    else:
        section.text.append("The run is what the experiment says: no fallback, no accepted drift.")


def _roofline(source: Source, section: Section) -> None:
    kinds = [(p.direction, p.workload, p.phase) for p in source.summary.peaks if p.terms]
    for kind in ordered(kinds):
        peaks = [
            peak
            for peak in source.summary.peaks
            if peak.terms and (peak.direction, peak.workload, peak.phase) == kind
        ]
        words = [one for one in kind if one]
        section.figures.append(plots_rate.roofline(source, peaks, _name(section, *words)))
    section.tables = [tables_components.peaks(source), tables_components.streams(source)]


def _throughput(source: Source, section: Section) -> None:
    cells = [
        cell
        for cell in source.summary.cells
        if cell.unit == "B" and _counts(cell) and cell.kind not in OWN_SECTION
    ]
    for workload, some, name in _by_workload(section, cells):
        section.figures.append(plots_rate.throughput(source, workload, some, name))
    section.tables = [tables.throughput(source, cells), tables.references(source)]


def _rates(source: Source, section: Section) -> None:
    cells = [
        cell
        for cell in source.summary.cells
        if cell.unit != "B" and _counts(cell) and cell.kind not in OWN_SECTION
    ]

    def peak(cell: Cell) -> float | None:
        found = plots_rate.peak_of(source, cell)
        return found.value if found else None

    rate = plots_rate.Quantity(
        "rate",
        lambda cell: rate_unit(cell.unit),
        lambda cell: cell.rate,
        bound=peak,
        bound_label="TPP",
    )
    for workload, some, name in _by_workload(section, cells):
        section.figures.append(
            plots_rate.bars(
                source,
                some,
                rate,
                name,
                f"Rates, {workload}",
                f"Operations per second of {workload}, a panel for each phase. Bars are medians "
                "with their 95 % interval, small points are single repetitions, and the thick line "
                "above a bar is its theoretical peak (TPP).",
            )
        )
    section.tables = [tables.throughput(source, cells)]


def _latency(source: Source, section: Section) -> None:
    cells = [cell for cell in source.summary.cells if cell.latency]
    for workload, phase in ordered([(cell.workload, cell.phase) for cell in cells]):
        some = [
            cell
            for cell in cells
            if (cell.workload, cell.phase) == (workload, phase)
            and cell.latency
            and cell.latency.ecdf
        ]
        if some:
            section.figures.append(
                plots_latency.ecdf(source, some, _name(section, workload, phase))
            )
    section.tables = [tables.latency(cells), tables.bounded_rates(source)]


def _boxes(source: Source, section: Section) -> None:
    cells = [cell for cell in source.summary.cells if cell.energy and cell.energy.box]
    for workload, some, name in _by_workload(section, cells):
        section.figures.append(plots_power.boxes(source, workload, some, name))


def _traces(source: Source, section: Section) -> None:
    for workload in ordered([cell.workload for cell in source.summary.cells]):
        chosen = plots_power.traces_of(source, workload)
        for begin in range(0, len(chosen), plots_power.TRACES_PER_FIGURE):
            part = chosen[begin : begin + plots_power.TRACES_PER_FIGURE]
            section.figures.append(
                plots_power.traces(source, workload, part, _name(section, workload))
            )


def _loads(source: Source, section: Section) -> None:
    for workload in ordered([cell.workload for cell in source.summary.cells]):
        for trace, samples in plots_load.load_of(source, workload):
            name = _name(section, workload, trace.cell.target)
            section.figures.append(plots_load.load(source, trace, samples, name))


def _with_work(source: Source) -> list[Cell]:
    return [cell for cell in source.summary.cells if cell.energy and _counts(cell)]


def _counts(cell: Cell) -> bool:
    """Whether a phase did work of its own, so that it has a rate."""
    return cell.work > 0 and cell.role == "work"


def _efficiency(source: Source, section: Section) -> None:
    for workload, some, name in _by_workload(section, _with_work(source)):
        section.figures.append(
            plots_rate.bars(
                source,
                some,
                plots_energy.EFFICIENCY,
                name,
                f"Energy efficiency, {workload}",
                f"Work of {workload} for each joule of gross energy, which is the same as its rate "
                "for each watt. Bars are medians with their 95 % interval; hollow points are "
                "repetitions in which a backup meter stood in.",
            )
        )
    section.tables = [tables.energy(source, source.summary.cells)]
    by_scope = tables.energy_by_scope(source, source.summary.cells)
    if by_scope is not None:
        section.tables.append(by_scope)


def _edp(source: Source, section: Section) -> None:
    cells = [
        cell
        for cell in source.summary.cells
        if cell.energy and cell.energy.edp_normalised and cell.role == "work"
    ]
    for workload, some, name in _by_workload(section, cells):
        section.figures.append(plots_energy.edp(source, workload, some, name))
    for cell in cells:
        values = [
            cell.energy.edp_normalised.get(weight) if cell.energy else None
            for weight in plots_energy.WEIGHTS
        ]
        low, middle, high = values
        if low is not None and middle is not None and high is not None:
            section.slider.append(
                SliderRow(
                    f"{cell.workload} / {cell.phase}",
                    f"{cell.target} {factors_text(cell.factors)}".strip(),
                    cell.clients,
                    (low, middle, high),
                    source.is_modelled(cell),
                )
            )


def _capacity(source: Source, section: Section) -> None:
    targets = [
        target
        for target in source.summary.targets
        if any(getattr(target, key) is not None for key, _ in plots_energy.CAPACITIES)
    ]
    if targets:
        section.figures.append(plots_energy.capacity(source, targets, _name(section)))
    if targets or any(t.idle_w or t.price is not None for t in source.summary.targets):
        section.tables = [tables.capacity(source)]


def _own(source: Source, kind: str) -> list[Cell]:
    return [cell for cell in source.summary.cells if cell.kind == kind and cell.role == "work"]


def _compile(source: Source, section: Section) -> None:
    for workload, some, name in _by_workload(section, _own(source, "compile")):
        section.figures.append(plots_phases.stacked(source, workload, some, name, "Compilation"))


def _learning(source: Source, section: Section) -> None:
    cells = _own(source, "dlinput")
    section.text.append(plots_phases.ACCELERATOR_TEXT)
    for quantity, words in (
        (plots_phases.utilisation(), "Part of the time in which the accelerator was not waiting"),
        (plots_phases.joules_per_sample(), "Gross energy of the storage for each sample"),
    ):
        for workload, some, name in _by_workload(section, _learning_cells(cells, quantity)):
            section.figures.append(
                plots_rate.bars(
                    source,
                    some,
                    quantity,
                    name,
                    f"{quantity.label.capitalize()}, {workload}",
                    f"{words}, {workload}. {plots_phases.ACCELERATOR_TEXT}",
                )
            )
    recorded = [cell for cell in cells if plots_phases.has_utilisation_over_time(source, cell)]
    for workload, some, _ in _by_workload(section, recorded):
        section.figures.append(
            plots_phases.utilisation_over_time(
                source, workload, some, _name(section, workload, "over-time")
            )
        )
    section.tables = [tables.throughput(source, cells)]


def _learning_cells(cells: Sequence[Cell], quantity: plots_rate.Quantity) -> list[Cell]:
    return [
        cell
        for cell in cells
        if quantity.value(cell) is not None and (not quantity.is_energy or cell.unit == "samples")
    ]


def _pde(source: Source, section: Section) -> None:
    cells = _own(source, "pde")
    for workload, some, name in _by_workload(section, cells):
        section.figures.append(plots_phases.stacked(source, workload, some, name, "PDE solver"))
    checkpoint = plots_phases.joules_per_checkpoint()
    some_checkpoints = [cell for cell in cells if checkpoint.value(cell) is not None]
    for workload, some, _ in _by_workload(section, some_checkpoints):
        section.figures.append(
            plots_rate.bars(
                source,
                some,
                checkpoint,
                _name(section, workload, "checkpoint"),
                f"Energy for a checkpoint, {workload}",
                f"Gross energy of {workload} for each checkpoint.",
            )
        )
    section.tables = [tables.throughput(source, cells)]


def _pareto(source: Source, section: Section) -> None:
    cells = [
        cell
        for cell in _with_work(source)
        if cell.energy and cell.energy.mean_w.median > 0 and cell.rate.median > 0
    ]
    for workload, some, name in _by_workload(section, cells):
        section.figures.append(plots_energy.pareto(source, workload, some, name))


def _strips(source: Source, section: Section) -> None:
    cells = [cell for cell in source.summary.cells if _counts(cell) and source.repetitions(cell)]
    for workload, some, name in _by_workload(section, cells):
        section.figures.append(plots_repetitions.strip(source, workload, some, name))
    section.tables = [tables.drift(cells)]


def _overheads(source: Source, section: Section) -> None:
    section.tables = [tables_components.overheads(source)]


def _raw(source: Source, section: Section) -> None:
    section.tables = [
        tables.comparisons(source),
        tables.extras(source.summary.cells),
        tables.repetitions(source),
        tables.commands(source),
        tables.journal(source),
    ]


_SECTIONS: tuple[tuple[str, Callable[[Source, Section], None], str], ...] = (
    ("Set-up, factors and deviations", _setup, "the summary tells none."),
    ("Component roofline", _roofline, "no component was probed."),
    ("Throughput over clients", _throughput, "no phase moved bytes."),
    ("IOPS and metadata", _rates, "no phase counted operations."),
    ("Latency", _latency, "no workload told the latency of single operations."),
    ("Distribution of power", _boxes, "there are no samples of power in any phase."),
    ("Power over time", _traces, "there are no samples of power in any phase."),
    ("Energy efficiency", _efficiency, "no phase has an energy."),
    ("Energy-delay product", _edp, "no phase has an energy and a reference."),
    ("Capacity per watt", _capacity, "capacity or idle power is not known."),
    ("Compilation", _compile, "no workload of kind compile."),
    ("Deep-learning input", _learning, "no workload of kind dlinput."),
    ("PDE solver", _pde, "no workload of kind pde."),
    ("Throughput against power", _pareto, "no phase has an energy."),
    ("Every repetition", _strips, "no repetition was finished."),
    ("Load of the hosts", _loads, "hosts were not sampled."),
    ("Overhead", _overheads, "no target has a baseline."),
    ("Raw tables, commands and journal", _raw, "nothing was recorded."),
)
