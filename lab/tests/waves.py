# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Power over time whose energy is known exactly."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


class Wave:
    """Pieces, one after the other, each `base + slope*t + sine` from its begin on; in watts."""

    def __init__(self) -> None:
        self._begins = [0.0]
        self._pieces: list[tuple[float, float, float, float]] = []
        self._energies = [0.0]

    @property
    def end_s(self) -> float:
        return self._begins[-1]

    def hold(
        self,
        seconds: float,
        base: float,
        *,
        slope: float = 0.0,
        amplitude: float = 0.0,
        frequency: float = 1.0,
    ) -> None:
        """Appends a piece."""
        piece = (base, slope, amplitude, 2 * np.pi * frequency)
        self._pieces.append(piece)
        self._begins.append(self._begins[-1] + seconds)
        self._energies.append(self._energies[-1] + float(_piece_energy(seconds, *piece)))

    def power(self, at_s: ArrayLike) -> Floats:
        times, index = self._find(at_s)
        base, slope, amplitude, omega = np.array(self._pieces)[index].T
        since = times - np.array(self._begins)[index]
        return np.asarray(base + slope * since + amplitude * np.sin(omega * since))

    def energy(self, begin_s: ArrayLike, end_s: ArrayLike) -> Floats:
        """Joules from one time to another."""
        return self._until(end_s) - self._until(begin_s)

    def _until(self, at_s: ArrayLike) -> Floats:
        times, index = self._find(at_s)
        since = times - np.array(self._begins)[index]
        whole = np.array(self._energies)[index]
        return np.asarray(whole + _piece_energy(since, *np.array(self._pieces)[index].T))

    def _find(self, at_s: ArrayLike) -> tuple[Floats, NDArray[np.int64]]:
        times = np.atleast_1d(np.asarray(at_s, dtype=np.float64))
        index = np.searchsorted(self._begins, times, side="right") - 1
        return times, np.clip(index, 0, len(self._pieces) - 1)


def _piece_energy(
    since: ArrayLike, base: ArrayLike, slope: ArrayLike, amplitude: ArrayLike, omega: ArrayLike
) -> Floats:
    since, omega = np.asarray(since), np.asarray(omega)
    steady = np.asarray(base) * since + np.asarray(slope) * since**2 / 2
    return np.asarray(steady + np.asarray(amplitude) / omega * (1 - np.cos(omega * since)))
