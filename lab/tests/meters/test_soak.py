# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A short soak, and that a soak would notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meters.fakes.lmg450 import Sent
from meters.soak import compare, soak

SECOND = 10**9


def test_no_frame_is_invented_and_none_is_lost_without_a_word(tmp_path: Path) -> None:
    faults = {2: "half", 4: "garbage", 6: "shift", 8: "missing", 10: "mute", 12: "nan"}
    outcome = soak(tmp_path, 1.0, faults, seed=5, seconds_of_fault=0.5, cycles=16)
    assert outcome.is_good, outcome
    assert outcome.faults == dict.fromkeys(faults.values(), 1)
    assert outcome.gaps >= 1
    assert outcome.skipped_bytes > 0
    assert outcome.kept >= 6


def record() -> tuple[list[Sent], list[dict[str, Any]]]:
    """Four frames a second apart, with nothing wrong."""
    sent = [Sent(n * SECOND, bytes([n]), True, None) for n in range(1, 5)]
    frames = [{"mono": one.raw_ns + 1, "raw": one.frame.hex(), "samples": []} for one in sent]
    first = [{"event": "start", "mono": 0}, {"event": "open", "mono": 1}]
    return sent, [*first, *frames, {"event": "stop", "mono": 5 * SECOND}]


def test_a_soak_notices_what_is_wrong_with_a_record() -> None:
    sent, lines = record()
    assert compare(sent, lines).is_good
    assert compare(sent, lines[:3] + lines[4:]).unexplained == 1
    assert compare(sent, [*lines[:3], lines[4], lines[3], *lines[5:]]).invented == 1
    changed = [*lines[:3], lines[3] | {"raw": "ff"}, *lines[4:]]
    assert compare(sent, changed).invented == 1
    assert not compare(sent, lines[:-1]).is_good
    silent = [*lines[:3], lines[-1] | {"mono": 60 * SECOND}]
    assert compare(sent, silent).unexplained == 3
    died = [*lines[:-1], lines[-1] | {"cause": "the thread of the driver has died"}]
    assert not compare(sent, died).is_good


def test_a_soak_accepts_what_the_record_owns_up_to() -> None:
    sent, lines = record()
    skipped = {"event": "skipped", "mono": 2 * SECOND + 5, "bytes": 1}
    assert compare(sent, [*lines[:3], skipped, *lines[4:]]).is_good
    begin = {"event": "gap_begin", "mono": 2 * SECOND + SECOND // 2}
    end = {"event": "gap_end", "mono": 3 * SECOND, "missed_ns": SECOND}
    assert compare(sent, [*lines[:3], begin, end, *lines[4:]]).is_good
