# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Windows of averages, from arrivals that are late, early, bunched, or over a step of the clock."""

from __future__ import annotations

import itertools
import random

import pytest

from terrace_lab.meters.timing import Cadence, Polls
from terrace_lab.records import Stamp

PERIOD = 50_000_000
REAL = 1_795_000_000 * 10**9


def at(raw_ns: int, step_ns: int = 0) -> Stamp:
    return Stamp(REAL + raw_ns + step_ns, raw_ns)


def test_jitter_leaves_windows_side_by_side_and_of_about_one_period() -> None:
    cadence = Cadence(PERIOD / 1e9)
    chance = random.Random(1)
    windows = [
        cadence.window(at(n * PERIOD + chance.randrange(PERIOD // 4))) for n in range(1, 500)
    ]
    for before, after in itertools.pairwise(windows):
        assert after[0] == before[1]
    settled = windows[100:]
    assert all(0.8 * PERIOD < end - begin < 1.2 * PERIOD for begin, end in settled)
    # Windows end before their frames arrive, by no more than the way takes.
    late = [REAL + (n + 101) * PERIOD - end for n, (_, end) in enumerate(settled)]
    assert all(-PERIOD // 4 < one < PERIOD // 20 for one in late)


def test_a_clock_that_drifts_is_followed() -> None:
    cadence = Cadence(PERIOD / 1e9)
    true = round(PERIOD * 1.0002)
    for n in range(1, 2000):
        _, end = cadence.window(at(n * true))
    assert end == pytest.approx(REAL + 1999 * true, abs=PERIOD // 10)


def test_a_missing_frame_is_a_hole_and_not_a_longer_window() -> None:
    cadence = Cadence(PERIOD / 1e9)
    windows = [cadence.window(at(n * PERIOD)) for n in (1, 2, 4, 5)]
    assert windows[2] == (REAL + 3 * PERIOD, REAL + 4 * PERIOD)
    assert windows[3][0] == windows[2][1]


def test_frames_that_were_held_up_belong_where_they_were_measured() -> None:
    cadence = Cadence(PERIOD / 1e9)
    cadence.window(at(PERIOD))
    # Three frames at once, two periods late for the first.
    bunch = [cadence.window(at(4 * PERIOD), behind=2 - n) for n in range(3)]
    assert bunch == [(REAL + n * PERIOD, REAL + (n + 1) * PERIOD) for n in (1, 2, 3)]


def test_a_step_of_the_clock_moves_windows_and_does_not_stretch_them() -> None:
    for window in (Cadence(PERIOD / 1e9).window, Polls(PERIOD / 1e9).window):
        window(at(PERIOD))
        begin, end = window(at(2 * PERIOD, step_ns=-2 * 10**9))
        assert (begin, end) == (REAL - 2 * 10**9 + PERIOD, REAL - 2 * 10**9 + 2 * PERIOD)


def test_polled_averages_never_cover_a_time_twice() -> None:
    polls = Polls(1.0)
    second = 10**9
    # Sooner than its window, about in time, and far too late.
    arrivals = (10.0, 10.5, 11.7, 15.0)
    windows = [polls.window(at(round(one * second))) for one in arrivals]
    expected = [(9.0, 10.0), (10.0, 10.5), (10.5, 11.7), (14.0, 15.0)]
    assert windows == [(REAL + round(a * second), REAL + round(b * second)) for a, b in expected]
