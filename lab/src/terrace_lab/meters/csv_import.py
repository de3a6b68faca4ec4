# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Imports what another logger has written: a finished CSV file with named columns."""

from __future__ import annotations

import csv
import datetime
import itertools
import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from terrace_lab.errors import MeterLost
from terrace_lab.hosts import AgentHost
from terrace_lab.meters.base import Channel, Frame, MeterInfo
from terrace_lab.meters.channels import read_channels
from terrace_lab.records import Kind, Quality, Sample, now
from terrace_lab.settings import Settings

_POWER = {"W": 1.0, "mW": 1e-3, "kW": 1e3}
_ENERGY = {"J": 1.0, "mJ": 1e-3, "kJ": 1e3, "Wh": 3600.0, "kWh": 3.6e6}
_TIMES = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_ROW_BYTES_MAX = 1 << 16
_LEADING_ROWS = 1000
"""Enough to tell the period from, when nobody says it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a file is to be read."""

    path: Path
    delimiter: str
    time_column: str
    time_unit: str
    """`s`, `ms`, `us`, `ns` since 1970, or `iso`."""
    clock_offset_ns: int
    """Added to all times, to bring them to the clock of the runner."""
    window_ns: int | None
    """What an average is over; None where it is the time since the row before."""
    factor: float
    channels: tuple[Channel, ...]
    source: str


def read_layout(name: str, settings: Settings) -> Layout:
    """Reads the settings of an import. Raises SettingsError."""
    kind = Kind(settings.choice("value_kind", tuple(Kind), Kind.AVERAGE.value))
    units = _ENERGY if kind is Kind.COUNTER else _POWER
    unit = settings.choice("unit", tuple(units), next(iter(units)))
    window_s = settings.seconds("window") if "window" in settings else None
    # May be negative, which no other time may be.
    clock_offset = settings.raw("clock_offset", 0.0)
    if not isinstance(clock_offset, int | float) or isinstance(clock_offset, bool):
        raise settings.error("clock_offset", f"must be a number of seconds, not {clock_offset!r}")
    return Layout(
        path=Path(settings.text("path")),
        delimiter=settings.text("delimiter", ","),
        time_column=settings.text("time_column", "time"),
        time_unit=settings.choice("time_unit", (*_TIMES, "iso"), "s"),
        clock_offset_ns=round(clock_offset * 1e9),
        window_ns=None if window_s is None else round(window_s * 1e9),
        factor=units[unit],
        channels=read_channels(settings, kind, gain=0.01, offset_w=1.0),
        source=name,
    )


class Rows:
    """The frames of a file, in its order, with a count of what was none."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.skipped_bytes = 0

    def frames(self) -> Iterator[Frame]:
        """Yields one frame a row. Raises MeterLost where the file cannot be read at all."""
        layout = self._layout
        try:
            with open(layout.path, encoding="utf-8-sig", errors="replace", newline="") as file:
                header = next(
                    csv.reader([file.readline(_ROW_BYTES_MAX)], delimiter=layout.delimiter), []
                )
                columns = {column.strip(): index for index, column in enumerate(header)}
                wanted = (layout.time_column, *(one.name for one in layout.channels))
                if missing := [one for one in wanted if one not in columns]:
                    raise MeterLost(
                        f"cannot import: no column {missing[0]!r} path={layout.path} "
                        f"columns={','.join(columns)}"
                    )
                last_ns: int | None = None
                while line := file.readline(_ROW_BYTES_MAX):
                    end_ns, frame = self._row(line, columns, len(header), last_ns)
                    if frame is None:
                        self.skipped_bytes += len(line.encode())
                        continue
                    last_ns = end_ns
                    yield frame
        except OSError as error:
            raise MeterLost(f"cannot import: {error}") from error

    def _row(
        self, line: str, columns: Mapping[str, int], width: int, last_ns: int | None
    ) -> tuple[int, Frame | None]:
        layout = self._layout
        try:
            (row,) = csv.reader([line], delimiter=layout.delimiter)
            end_ns = _time_ns(row[columns[layout.time_column]], layout.time_unit)
        except (ValueError, IndexError, OverflowError, csv.Error):
            return 0, None
        end_ns += layout.clock_offset_ns
        # A row that was cut may have lost digits of its last field; one out of order is no time.
        if len(row) != width or not line.endswith("\n") or end_ns <= (last_ns or 0):
            return 0, None
        samples = []
        for channel in layout.channels:
            begin_ns = end_ns
            if channel.kind is Kind.AVERAGE:
                if layout.window_ns is not None:
                    begin_ns = end_ns - layout.window_ns
                elif last_ns is not None:
                    begin_ns = last_ns
                else:
                    # Nobody says since when the first average is.
                    continue
            value, quality = _value(row[columns[channel.name]])
            samples.append(
                Sample(
                    t0=begin_ns,
                    t1=end_ns,
                    mono=now().raw_ns,
                    channel=channel.name,
                    scope=channel.scope,
                    kind=channel.kind,
                    value=None if value is None else value * layout.factor,
                    quality=quality,
                    source=layout.source,
                )
            )
        return end_ns, Frame(line.encode(), tuple(samples))


def _time_ns(text: str, unit: str) -> int:
    if unit == "iso":
        moment = datetime.datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            raise ValueError("a time without its zone may be any of 25")
        since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return (since.days * 86400 + since.seconds) * 10**9 + since.microseconds * 1000
    whole, _, part = text.strip().partition(".")
    # A float has too few digits for nanoseconds since 1970.
    digits = len(str(_TIMES[unit])) - 1
    return int(whole) * _TIMES[unit] + int((part + "0" * digits)[:digits] or "0")


def _value(text: str) -> tuple[float | None, Quality]:
    try:
        value = float(text)
    except ValueError:
        return None, Quality.NAN
    if math.isinf(value):
        return None, Quality.OVERRANGE
    return (None, Quality.NAN) if math.isnan(value) else (value, Quality.OK)


def period_s(layout: Layout) -> float | None:
    """The median time between the first rows; None where there are none to tell it from."""
    leading = itertools.islice(Rows(layout).frames(), _LEADING_ROWS)
    ends = [frame.samples[0].t1 for frame in leading if frame.samples]
    steps = [after - before for before, after in itertools.pairwise(ends)]
    return statistics.median(steps) / 1e9 if steps else None


class CsvMeter:
    """A meter whose frames are the rows of a file; it comes to an end with them."""

    def __init__(self, layout: Layout, period: float | None) -> None:
        self._layout = layout
        self._period_s = period
        self._rows = Rows(layout)

    def describe(self) -> MeterInfo:
        return MeterInfo(
            kind="csv",
            channels=self._layout.channels,
            period_s=self._period_s or 1.0,
            identity=str(self._layout.path),
            is_modelled=False,
        )

    def open(self) -> None:
        if self._period_s is None:
            self._period_s = period_s(self._layout)
        if not self._layout.path.is_file():
            raise MeterLost(f"cannot import: no such file path={self._layout.path}")

    def stream(self) -> Iterator[Frame]:
        return (frame for frame in self._rows.frames() if frame.samples)

    def resync(self) -> None:
        # What was delivered cannot be told from what was not: begin with the file.
        raise MeterLost(f"cannot continue an import path={self._layout.path}")

    def close(self) -> None:
        self._rows = Rows(self._layout)

    def skipped(self) -> int:
        count, self._rows.skipped_bytes = self._rows.skipped_bytes, 0
        return count


def make(name: str, settings: Settings, _hosts: Mapping[str, AgentHost]) -> CsvMeter:
    """Makes a meter of a finished file."""
    period = settings.seconds("period") if "period" in settings else None
    return CsvMeter(read_layout(name, settings), period)
