# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Counters of energy: on where those of the device wrap, marked where they begin anew."""

from __future__ import annotations

from typing import NamedTuple

from terrace_lab.records import Quality

POWER_MAX_W = 5000.0
"""More than any single domain takes; a step that would need more is no wrap but a new beginning."""


class Count(NamedTuple):
    """One reading of an energy counter."""

    joules: float | None
    quality: Quality


class EnergyCounter:
    """Follows one counter of a device, in joules."""

    def __init__(self, range_j: float | None = None, power_max_w: float = POWER_MAX_W) -> None:
        """`range_j` is where the device begins again at zero; None where it never does."""
        self._range_j = range_j
        self._power_max_w = power_max_w
        self._last: tuple[float, int] | None = None
        self._base_j = 0.0

    def take(self, reading_j: float, raw_ns: int) -> Count:
        """Takes a reading at a time of CLOCK_MONOTONIC_RAW.

        Its quality is `reset`, without a value, where the difference to the one before is not
        known: the device began anew, or may have wrapped more than once since.
        """
        last, self._last = self._last, (reading_j, raw_ns)
        if last is None:
            return Count(reading_j, Quality.OK)
        last_j, last_ns = last
        possible_j = self._power_max_w * (raw_ns - last_ns) / 1e9
        if self._range_j is None:
            is_known = reading_j >= last_j
        else:
            if reading_j < last_j:
                self._base_j += self._range_j
            step_j = (reading_j - last_j) % self._range_j
            # With the longest step below the range, the counter cannot have gone round twice.
            is_known = step_j <= possible_j < self._range_j
        if not is_known:
            self._base_j = 0.0
            return Count(None, Quality.RESET)
        return Count(self._base_j + reading_j, Quality.OK)
