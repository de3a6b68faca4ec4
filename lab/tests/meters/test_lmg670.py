# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The LMG670 driver, against an instrument on two TCP ports."""

from __future__ import annotations

from typing import Any

import pytest

from meters.fakes.lmg670 import IDENTITY, FakeLmg670
from meters.record import lost, meter, read
from terrace_lab.errors import MeterLost
from terrace_lab.meters import lmg
from terrace_lab.records import Kind


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake is silent at once."""
    monkeypatch.setattr(lmg, "_SILENCE_S", 0.03)


def settings(fake: FakeLmg670, **more: Any) -> dict[str, Any]:
    return {
        "kind": "lmg670",
        "address": "127.0.0.1",
        "port": fake.port,
        "break_port": fake.break_port,
        "cycle": 0.05,
        "channels": {"1": "s1", "7": "s2"},
        **more,
    }


def test_lines_are_what_the_device_sent() -> None:
    with FakeLmg670() as fake:
        one = meter(settings(fake))
        frames = read(one, 3)
        assert [frame.raw for frame in frames] == fake.sent[:3]
        assert fake.breaks == 1
        assert one.describe().identity == IDENTITY
        assert "iauto7 0; irng7 10" in fake.commands
        action = "actn;tsnorm?;durnorm?;utrms1?;itrms1?;p1?;utrms7?;itrms7?;p7?"
        assert action in fake.commands
    assert [sample.value for sample in frames[2].samples] == [100 + 2 / 64] * 2
    assert {sample.kind for sample in frames[2].samples} == {Kind.AVERAGE}


def test_damaged_and_doubled_lines_are_passed_over() -> None:
    faults = {1: "half", 3: "garbage", 5: "doubled"}
    with FakeLmg670(faults.get) as fake:
        one = meter(settings(fake))
        frames = read(one, 6)
        assert [frame.raw for frame in frames] == fake.sent[:6]
    assert one.skipped() > 0


def test_a_closed_connection_is_a_loss_and_opening_again_ends_it() -> None:
    with FakeLmg670({2: "close"}.get) as fake:
        one = meter(settings(fake))
        one.open()
        stream = one.stream()
        assert len([next(stream), next(stream)]) == 2
        with pytest.raises(MeterLost, match="the device has closed it"):
            next(stream)
        one.close()
        assert len(read(one, 1)) == 1


def test_silence_is_a_loss_and_resync_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmg, "gap_limit_s", lambda _: 0.3)
    with FakeLmg670({1: "mute"}.get) as fake:
        one = meter(settings(fake))
        one.open()
        stream = one.stream()
        next(stream)
        with pytest.raises(MeterLost, match="no frame for 0.3 s"):
            next(stream)
        one.resync()
        assert len(next(one.stream()).samples) == 2
        one.close()
        assert fake.breaks == 2


def test_a_refused_break_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmg, "_ANSWER_MAX_S", 0.2)
    with FakeLmg670() as fake:
        fake.break_answer = b"1 busy\n"
        assert "the device said b'1 busy" in lost(meter(settings(fake)))
        assert "cannot connect" in lost(meter(settings(fake, port=1)))
