# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What LMG power meters send in each cycle: blocks of floats, or lines of text.

Neither form has a checksum. A frame is taken only where everything around it fits and where its
values obey physics; whatever else arrives is passed over and counted, never decoded.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Protocol

from terrace_lab.meters.polled import Reading
from terrace_lab.records import Quality

# SCPI 1999, 7.2.1: 9.9E37 stands for infinity and 9.91E37 for no number.
_NAN_LEAST = 9.905e37
_INFINITY_LEAST = 9.8e37
_PENDING_BYTES_MAX = 1 << 16

Values = tuple[float, ...]


class FrameReader(Protocol):
    """Finds frames in a stream of bytes."""

    def feed(self, data: bytes) -> list[tuple[bytes, Values]]:
        """Takes what has arrived and returns the frames that are whole by now."""
        ...

    def reset(self) -> None:
        """Passes over what is incomplete."""
        ...

    def skipped(self) -> int:
        """Bytes passed over since the last call."""
        ...


class _Buffered:
    def __init__(self) -> None:
        self._pending = b""
        self._skipped = 0

    def reset(self) -> None:
        self._skip(len(self._pending))

    def skipped(self) -> int:
        count, self._skipped = self._skipped, 0
        return count

    def _skip(self, count: int) -> None:
        self._pending = self._pending[count:]
        self._skipped += count


class PackedReader(_Buffered):
    """Frames as IEEE 488.2 blocks: `#5`, five digits of length, floats of 32 bits, line end."""

    def __init__(
        self,
        count: int,
        byte_order: str,
        end_of_line: bytes,
        is_plausible: Callable[[Values], bool],
    ) -> None:
        super().__init__()
        self._layout = struct.Struct(f"{'<' if byte_order == 'little' else '>'}{count}f")
        self._header = b"#5%05d" % self._layout.size
        self._end_of_line = end_of_line
        self._is_plausible = is_plausible

    def feed(self, data: bytes) -> list[tuple[bytes, Values]]:
        self._pending += data
        frames: list[tuple[bytes, Values]] = []
        header, size = len(self._header), self._layout.size
        whole = header + size + len(self._end_of_line)
        while True:
            begin = self._pending.find(self._header)
            if begin < 0:
                # All but what may be the beginning of a header.
                tail = next(
                    (n for n in range(header - 1, 0, -1) if self._pending[-n:] == self._header[:n]),
                    0,
                )
                self._skip(len(self._pending) - tail)
                return frames
            self._skip(begin)
            if len(self._pending) < whole:
                return frames
            payload = self._pending[header : header + size]
            values: Values = self._layout.unpack(payload)
            behind = self._pending[whole : whole + 1]
            if (
                self._pending[header + size : whole] == self._end_of_line
                # The rest of a frame that was cut is the beginning of the next one.
                and self._header not in payload
                and behind in (b"", self._header[:1])
                and self._is_plausible(values)
            ):
                frames.append((self._pending[:whole], values))
                self._pending = self._pending[whole:]
            else:
                self._skip(1)


class TextReader(_Buffered):
    """Frames as lines of numbers with `;` between them.

    A line that lost digits may look like one of other numbers: `PackedReader` is the safer one.
    """

    def __init__(
        self,
        count: int,
        end_of_line: bytes,
        is_plausible: Callable[[Values], bool],
        parse: Callable[[list[str]], Values | None] | None = None,
    ) -> None:
        """`parse` makes values of the fields, None where they are none; by default all floats."""
        super().__init__()
        self._count = count
        self._end_of_line = end_of_line
        self._is_plausible = is_plausible
        self._parse = parse or _floats
        self._is_aligned = True
        """What comes next begins behind the end of a line."""

    def feed(self, data: bytes) -> list[tuple[bytes, Values]]:
        self._pending += data
        frames: list[tuple[bytes, Values]] = []
        while (end := self._pending.find(self._end_of_line)) >= 0:
            whole = end + len(self._end_of_line)
            line = self._pending[:whole]
            values = self._values(line) if self._is_aligned else None
            self._is_aligned = True
            if values is None:
                self._skip(whole)
            else:
                frames.append((line, values))
                self._pending = self._pending[whole:]
        if len(self._pending) > _PENDING_BYTES_MAX:
            self.reset()
        return frames

    def reset(self) -> None:
        self._is_aligned = self._is_aligned and not self._pending
        super().reset()

    def begin(self) -> None:
        """The next byte is the first of a line: the device was just told to send."""
        self._is_aligned = True

    def _values(self, line: bytes) -> Values | None:
        try:
            fields = line.decode("ascii").strip().split(";")
        except UnicodeDecodeError:
            return None
        if len(fields) != self._count:
            return None
        values = self._parse(fields)
        return values if values is not None and self._is_plausible(values) else None


def _floats(fields: list[str]) -> Values | None:
    try:
        return tuple(float(field) for field in fields)
    except ValueError:
        return None


def quality_of(value: float) -> Quality:
    """What a number of the device means, whatever the quantity."""
    size = abs(value)
    if math.isnan(value) or _NAN_LEAST <= size < math.inf:
        return Quality.NAN
    return Quality.OVERRANGE if size >= _INFINITY_LEAST else Quality.OK


class Triples:
    """Voltage, current and active power of some channels, one after the other."""

    def __init__(self, count: int, range_u_v: float, range_i_a: float, overrange: float) -> None:
        """Beyond `overrange` times its range a value may be clipped."""
        self._count = count
        self._u_max_v = range_u_v * overrange
        self._i_max_a = range_i_a * overrange

    @property
    def size(self) -> int:
        return 3 * self._count

    def is_plausible(self, values: Values) -> bool:
        """Whether this can have been measured: active power never exceeds U times I."""
        for voltage, current, power in self._triples(values):
            if any(quality_of(one) is not Quality.OK for one in (voltage, current, power)):
                continue
            # Both sides have errors of their own; 2 % and 1 W are far beyond them.
            if voltage < 0 or current < 0 or abs(power) > voltage * current * 1.02 + 1.0:
                return False
        return True

    def readings(self, values: Values) -> list[Reading]:
        """The power of each channel."""
        return [self._reading(*triple) for triple in self._triples(values)]

    def _triples(self, values: Values) -> list[tuple[float, float, float]]:
        return [
            (values[index], values[index + 1], values[index + 2])
            for index in range(0, self.size, 3)
        ]

    def _reading(self, voltage: float, current: float, power: float) -> Reading:
        quality = quality_of(power)
        if quality is Quality.OK and (
            quality_of(voltage) is Quality.OVERRANGE
            or quality_of(current) is Quality.OVERRANGE
            or self._u_max_v < voltage < _INFINITY_LEAST
            or self._i_max_a < current < _INFINITY_LEAST
        ):
            quality = Quality.OVERRANGE
        return Reading(power if quality is Quality.OK else None, quality)
