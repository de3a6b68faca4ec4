# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One figure: panels, a legend that covers nothing, its data as CSV, and the stamp MODELLED."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from terrace_lab.report.style import Look, clean
from terrace_lab.report.units import number, quantity

SETTINGS = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    # Where it is put is not searched for.
    "axes.titley": 1.0,
    "axes.titlelocation": "left",
    "axes.unicode_minus": True,
    "errorbar.capsize": 2.5,
    "figure.dpi": 72,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana"],
    "font.size": 8.5,
    "grid.color": "#d8d8d8",
    "grid.linewidth": 0.5,
    "hatch.color": "black",
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "text.hinting": "none",
    "lines.linewidth": 1.3,
    "lines.markersize": 5.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "terrace-lab",
    # Names come from whoever wrote the experiment; a dollar sign in one is no formula.
    "text.parse_math": False,
}
"""Applied while figures are drawn; fixed, so that a user's matplotlibrc changes nothing."""

SVG = "http://www.w3.org/2000/svg"
LEFT_INCHES = 0.72
"""Of a panel, for the label and the figures of its axis; likewise the others."""
LEAST_INCHES = 7.0
TOP_INCHES = 0.28
BOTTOM_INCHES = 0.48
CHARACTER_INCHES = 0.068
"""Mean width of a character of the text of figures."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A finished figure."""

    name: str
    title: str
    caption: str
    alt: str
    svg: str
    csv: str
    is_modelled: bool

    def inline(self) -> str:
        """The SVG for an HTML page: with ids of its own, without a size and a style sheet."""
        root = ElementTree.fromstring(self.svg)
        names = {
            element.get("id"): f"{self.name}-{element.get('id')}"
            for element in root.iter()
            if element.get("id")
        }
        for parent in root.iter():
            for child in list(parent):
                if child.tag == f"{{{SVG}}}style":
                    parent.remove(child)
        for element in root.iter():
            for key, value in list(element.attrib.items()):
                element.set(key, _renamed(key, value, names))
        root.attrib.pop("width", None)
        root.attrib.pop("height", None)
        root.set("role", "img")
        root.set("aria-label", self.alt)
        return ElementTree.tostring(root, encoding="unicode")

    @property
    def width_px(self) -> int:
        """Width at which its text has the size of the text of the page."""
        root = ElementTree.fromstring(self.svg)
        return round(float(root.get("viewBox", "0 0 720 0").split()[2]) * 4 / 3)


def _renamed(key: str, value: str, names: dict[str | None, str]) -> str:
    if key == "id":
        return names[value]
    if key.endswith("href") and value.startswith("#"):
        return f"#{names.get(value[1:], value[1:])}"
    if "url(#" in value:
        head, _, rest = value.partition("url(#")
        name, _, tail = rest.partition(")")
        return f"{head}url(#{names.get(name, name)}){tail}"
    return value


class Sheet:
    """A figure while it is drawn."""

    def __init__(
        self,
        count: int,
        *,
        columns: int = 2,
        width: float = 5.0,
        height: float = 3.0,
        left: float = LEFT_INCHES,
        right: float = 0.12,
        paired: bool = False,
    ) -> None:
        """Panels of a width and height in inches, with their labels; where they are `paired`, each
        second one stands close below the one before, with which it shares its axis."""
        columns = max(1, min(columns, count))
        self._columns, self._width, self._height = columns, width, height
        self._left, self._right, self._is_paired = left, right, paired
        self.canvas = Canvas()
        # Places are computed and not searched for: a layout engine draws each figure three times.
        self.axes: list[Axes] = [
            self.canvas.add_axes((0, 0, 1, 1), label=str(index)) for index in range(count)
        ]
        self.rows: list[dict[str, object]] = []
        self._modelled: dict[Axes, None] = {}
        self._legend: dict[str, tuple[int, Any]] = {}
        self._marks: dict[tuple[Any, ...], tuple[list[float], list[float]]] = {}
        self._ranges: dict[tuple[Axes, bool], list[tuple[float, float, float]]] = {}

    def row(self, **fields: object) -> None:
        """Adds what was just drawn to the CSV."""
        self.rows.append(fields)

    def mark(self, axes: Axes, x: float, y: float, **style: Any) -> None:
        """Draws a point. Those of one style become one path: a report has tens of thousands."""
        xs, ys = self._marks.setdefault((axes, tuple(sorted(style.items()))), ([], []))
        xs.append(x)
        ys.append(y)

    def interval(
        self, axes: Axes, at: float, low: float, high: float, *, is_upright: bool = True
    ) -> None:
        """Draws an interval as a line with caps."""
        self._ranges.setdefault((axes, is_upright), []).append((at, low, high))

    def _draw_collected(self) -> None:
        for (axes, style), (xs, ys) in self._marks.items():
            axes.plot(xs, ys, **{"linestyle": "none", **dict(style)})
        for (axes, is_upright), ranges in self._ranges.items():
            at = [one[0] for one in ranges]
            middle = [(low + high) / 2 for _, low, high in ranges]
            half = [(high - low) / 2 for _, low, high in ranges]
            style = {"fmt": "none", "ecolor": "black", "elinewidth": 1.0, "zorder": 3.5}
            if is_upright:
                axes.errorbar(at, middle, yerr=half, **style)
            else:
                axes.errorbar(middle, at, xerr=half, **style)

    def legend(self, label: str, handle: Any, rank: int = 0) -> None:
        """Adds an entry once; those of lower rank come first."""
        self._legend.setdefault(label, (rank, handle))

    def legend_bar(self, label: str, one: Look) -> None:
        self.legend(
            label, Patch(facecolor=one.colour, edgecolor="black", hatch=one.hatch, linewidth=0.6)
        )

    def legend_line(self, label: str, one: Look, *, line: Any = None, marker: str = "") -> None:
        self.legend(
            label,
            Line2D(
                [],
                [],
                color=one.colour,
                linestyle=one.line if line is None else line,
                marker=marker,
                markeredgecolor="black",
                markeredgewidth=0.5,
            ),
        )

    def legend_mark(self, label: str, **style: Any) -> None:
        self.legend(label, Line2D([], [], **style), rank=1)

    def finish(self, name: str, title: str, caption: str, alt: str) -> Figure:
        self._draw_collected()
        self._arrange()
        self._stamp()
        return Figure(
            name,
            clean(title),
            clean(caption),
            clean(alt),
            self._svg(),
            self._csv(),
            bool(self._modelled),
        )

    def _arrange(self) -> None:
        rows = -(-len(self.axes) // self._columns)
        width = max(self._width * self._columns, LEAST_INCHES)
        entries = sorted(self._legend.items(), key=lambda one: one[1][0])
        labels = [label for label, _ in entries]
        columns = _legend_columns(labels, width)
        foot = 0.1 + 0.185 * -(-len(labels) // columns) if labels else 0.0
        height = self._height * rows + foot
        self.canvas.set_size_inches(width, height)
        for index, axes in enumerate(self.axes):
            row, column = divmod(index, self._columns)
            above, below = TOP_INCHES, BOTTOM_INCHES
            if self._is_paired:
                above, below = (TOP_INCHES, 0.08) if row % 2 == 0 else (0.02, BOTTOM_INCHES)
            axes.set_position(
                (
                    (column * self._width + self._left) / width,
                    1 - ((row + 1) * self._height - below) / height,
                    (self._width - self._left - self._right) / width,
                    (self._height - above - below) / height,
                )
            )
        if labels:
            self.canvas.legend(
                [handle for _, (_, handle) in entries],
                labels,
                loc="lower center",
                ncols=columns,
                handlelength=2.6,
                borderaxespad=0.2,
            )

    def stamp(self, axes: Axes, is_modelled: bool) -> None:
        """Notes that a panel shows energy or power of a model."""
        if is_modelled:
            self._modelled[axes] = None

    def _stamp(self) -> None:
        for axes in self._modelled:
            axes.text(
                0.5,
                0.5,
                "MODELLED",
                transform=axes.transAxes,
                ha="center",
                va="center",
                rotation=18,
                fontsize=26,
                fontweight="bold",
                color="#000000",
                alpha=0.16,
                zorder=9,
            )

    def _svg(self) -> str:
        buffer = io.BytesIO()
        with warnings.catch_warnings():
            # A glyph that matplotlib's own font lacks comes from a font of who looks at it.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            printer: Any = FigureCanvasSVG(self.canvas)
            printer.print_svg(
                buffer, metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
            )
        ElementTree.register_namespace("", SVG)
        ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
        root = ElementTree.fromstring(buffer.getvalue())
        for metadata in root.findall(f"{{{SVG}}}metadata"):
            root.remove(metadata)
        return ElementTree.tostring(root, encoding="unicode") + "\n"

    def _csv(self) -> str:
        names = list(dict.fromkeys(key for row in self.rows for key in row))
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return buffer.getvalue()


def _legend_columns(labels: Sequence[str], width: float) -> int:
    """The most columns in which a legend, filled column by column, is not wider than its figure."""
    for columns in range(len(labels), 1, -1):
        # The first columns are one longer where it does not come out even, as in matplotlib.
        rows, longer = divmod(len(labels), columns)
        ends = [index * rows + min(index, longer) for index in range(columns + 1)]
        widest = [max(map(len, labels[a:b])) for a, b in itertools.pairwise(ends)]
        if sum(widest) * CHARACTER_INCHES + 0.7 * columns <= width:
            return columns
    return 1


def plain_logarithmic(axis: Axis, unit: str = "") -> None:
    """Labels a logarithmic axis with figures in place of powers, which are formulas."""
    low, high = sorted(axis.get_view_interval())
    if high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(
        FuncFormatter(lambda value, _: quantity(value, unit, 1) if unit else number(value, 1))
    )
    axis.set_minor_formatter(NullFormatter())


def drawing() -> contextlib.AbstractContextManager[None]:
    """The context in which sheets are made and finished."""
    settings: Any = {**matplotlib.rcParamsDefault, **SETTINGS}
    return matplotlib.rc_context(settings)


def spread(index: float, count: int, width: float) -> float:
    """Where the `index`th of `count` things lies that share a place of that width."""
    return 0.0 if count < 2 else width * (index / (count - 1) - 0.5)


def panel_columns(width: float, count: int, total: float = 12.0) -> int:
    """How many panels of a width stand side by side on a page."""
    return max(1, min(count, int(total // width)))


def ordered(values: Sequence[Any]) -> list[Any]:
    """Each value once, in the order of its first appearance."""
    return list(dict.fromkeys(values))
