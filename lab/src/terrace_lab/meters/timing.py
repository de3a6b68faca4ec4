# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Which time a value covers, from when it arrived."""

from __future__ import annotations

from terrace_lab.records import Stamp

_STEP_NS = 10**6
"""CLOCK_REALTIME is slewed by far less than this between two frames; more is a step of it."""
_SLEW = 16
"""A frame that is later than expected moves the clock of its meter by 1/16 of that: slow enough for
the jitter of a serial line, fast enough for the drift of a quartz."""


class Cadence:
    """Times of a device that averages without pause and sends each average when it is done.

    A frame never arrives before its window ended, only later; so early ones are believed and late
    ones are put down to the way, unless they are late by half a period: then frames are missing,
    and the windows have a hole where they belong.
    """

    def __init__(self, period_s: float) -> None:
        self._period_ns = round(period_s * 1e9)
        self._end_raw_ns: int | None = None
        self._end_real_ns = 0

    def reset(self) -> None:
        """Forgets the device, which may have begun anew."""
        self._end_raw_ns = None

    def window(self, arrival: Stamp, behind: int = 0) -> tuple[int, int]:
        """Begin and end of what a frame covers, by CLOCK_REALTIME.

        `behind` is how many frames arrived together with it that are newer: what was held up on its
        way comes in a bunch, and only the last of it is as old as its arrival.
        """
        arrived_ns = arrival.raw_ns - behind * self._period_ns
        begin_ns, end_ns = arrived_ns - self._period_ns, arrived_ns
        is_next = False
        if self._end_raw_ns is not None:
            last_ns = self._end_raw_ns
            late_ns = arrived_ns - (last_ns + self._period_ns)
            if late_ns <= self._period_ns // 2:
                is_next = True
                slew = _SLEW if late_ns > 0 else 1
                begin_ns, end_ns = last_ns, last_ns + self._period_ns + late_ns // slew
                # Bunched frames of a held-up line may seem to end before the last one did.
                end_ns = max(begin_ns + self._period_ns // 2, end_ns)
        offset_ns = arrival.real_ns - arrival.raw_ns
        begin_ns += offset_ns
        if is_next and abs(begin_ns - self._end_real_ns) < _STEP_NS:
            begin_ns = self._end_real_ns
        self._end_raw_ns, self._end_real_ns = end_ns, end_ns + offset_ns
        return begin_ns, self._end_real_ns


class Polls:
    """Times of averages that are asked for: windows that do not overlap.

    Each value covers the time since the one before, as long as that is about the window the device
    averages over, and otherwise that window and no more.
    """

    def __init__(self, window_s: float, window_max_s: float | None = None) -> None:
        """`window_max_s` is the longest that one value may cover, by default 1.5 windows."""
        self._window_ns = round(window_s * 1e9)
        self._window_max_ns = round((window_max_s or window_s * 1.5) * 1e9)
        self._last: Stamp | None = None

    def window(self, arrival: Stamp) -> tuple[int, int]:
        last, self._last = self._last, arrival
        if last is None or (since_ns := arrival.raw_ns - last.raw_ns) > self._window_max_ns:
            return arrival.real_ns - self._window_ns, arrival.real_ns
        begin_ns = arrival.real_ns - since_ns
        is_even = abs(begin_ns - last.real_ns) < _STEP_NS
        return last.real_ns if is_even else begin_ns, arrival.real_ns
