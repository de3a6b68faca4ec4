# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The LMG450 driver, against an instrument that speaks its dialogue and fails in all known ways."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path
from typing import Any

import pytest

from meters.fakes.lmg450 import IDENTITY, INFINITY, FakeLmg450
from meters.record import lost, meter, read, wait_for
from terrace_lab.errors import MeterLost, SettingsError
from terrace_lab.meters import lmg
from terrace_lab.meters.base import Frame
from terrace_lab.records import Kind, Quality

CHANNELS = {"1": "s1", "2": "s2", "3": "s3", "4": "switch"}


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake is silent at once."""
    monkeypatch.setattr(lmg, "_SILENCE_S", 0.03)


def settings(fake: FakeLmg450, **more: Any) -> dict[str, Any]:
    return {"kind": "lmg450", "port": str(fake.path), "channels": CHANNELS, **more}


def powers(frame: Frame) -> list[float | None]:
    return [sample.value for sample in frame.samples]


@pytest.mark.parametrize("frame_format", ["packed", "ascii"])
def test_frames_are_what_the_device_sent(tmp_path: Path, frame_format: str) -> None:
    with FakeLmg450(tmp_path) as fake:
        frames = read(meter(settings(fake, format=frame_format)), 5)
        sent = [one.frame for one in fake.sent]
    assert [frame.raw for frame in frames] == sent[:5]
    first = frames[0].samples
    assert [sample.scope for sample in first] == ["s1", "s2", "s3", "switch"]
    assert {sample.kind for sample in first} == {Kind.AVERAGE}
    assert powers(frames[3]) == pytest.approx([50 * c + 3 / 4096 for c in (1, 2, 3, 4)])
    # No time is counted twice, however late a busy machine reads.
    for before, after in itertools.pairwise(frames):
        assert after.samples[0].t0 >= before.samples[0].t1


def test_the_device_is_told_what_to_send_and_left_as_it_was(tmp_path: Path) -> None:
    with FakeLmg450(tmp_path) as fake:
        one = meter(settings(fake, range={"U": 400, "I": 10}, cycle=0.1))
        read(one, 2)
        assert one.describe().identity == IDENTITY
        assert one.describe().period_s == 0.1
        wait_for(lambda: fake.is_local, "local")
        assert fake.ranges == {"IAM": "MANUAL", "IRNG": "10", "UAM": "MANUAL", "URNG": "400"}
        assert not fake.is_continuous
        action = next(one for one in fake.commands if one.startswith("ACTN"))
        assert action.startswith("ACTN;UTRMS1?;ITRMS1?;P1?;UTRMS2?")
        tail = fake.commands[-5:]
        assert tail == ["CONT OFF", "FRMT ASCII", "LANG SCPI", "SYST:ERR:ALL?", "GTL"]


def test_a_break_comes_before_everything(tmp_path: Path) -> None:
    with FakeLmg450(tmp_path) as fake:
        log = tmp_path / "spy.txt"
        read(meter(settings(fake) | {"port": f"spy://{fake.path}?file={log}"}), 1)
        text = log.read_text()
    assert 0 <= text.index("BRK") < text.index("CONT OFF") < text.index("*RST")


def test_output_left_running_is_no_answer(tmp_path: Path) -> None:
    with FakeLmg450(tmp_path) as fake:
        fake.start_sending(["P1", "P2"], 0.01)
        wait_for(lambda: len(fake.sent) > 5, "stale output")
        one = meter(settings(fake))
        frames = read(one, 3)
        assert one.describe().identity == IDENTITY
        assert {len(frame.raw) for frame in frames} == {7 + 48 + 1}


def test_a_damaged_frame_costs_itself_alone(tmp_path: Path) -> None:
    faults = {2: "half", 4: "garbage", 6: "shift", 8: "missing", 10: "half", 11: "shift"}
    with FakeLmg450(tmp_path, fault_of=faults.get, seed=7) as fake:
        one = meter(settings(fake))
        frames = read(one, 10)
        whole = [sent.frame for sent in fake.sent if sent.is_whole]
    assert [frame.raw for frame in frames] == whole[:10]
    assert one.skipped() > 0


def test_no_value_and_beyond_the_range_are_no_numbers(tmp_path: Path) -> None:
    def value(_: int, action: str) -> float:
        over = {"ITRMS1": 6.5, "UTRMS2": 301.0, "P3": INFINITY, "ITRMS4": 1.0}
        return over.get(action, {"U": 230.0, "I": 1.0, "P": 100.0}[action[0]])

    with FakeLmg450(tmp_path, fault_of={1: "nan"}.get) as fake:
        fake.values = value
        first, second = read(meter(settings(fake)), 2)
    over, nan, ok = Quality.OVERRANGE, Quality.NAN, Quality.OK
    assert [sample.quality for sample in first.samples] == [over, over, over, ok]
    assert powers(first) == [None, None, None, 100.0]
    assert [sample.quality for sample in second.samples] == [over, nan, nan, nan]
    assert powers(second) == [None] * 4


def test_values_that_cannot_be_are_garbage(tmp_path: Path) -> None:
    with FakeLmg450(tmp_path) as fake:
        # More active power than voltage times current.
        fake.values = lambda n, action: 50_000.0 if action == "P2" and n == 1 else 200.0
        one = meter(settings(fake, range={"U": 250, "I": 250}))
        frames = read(one, 3)
        sent = [one.frame for one in fake.sent]
    assert [frame.raw for frame in frames] == [sent[0], sent[2], sent[3]]
    assert one.skipped() == len(sent[1])


def test_silence_is_a_loss_and_resync_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmg, "gap_limit_s", lambda _: 0.3)
    with FakeLmg450(
        tmp_path, fault_of=lambda n: "mute" if n == 2 else None, seconds_of_fault=0.1
    ) as fake:
        one = meter(settings(fake))
        one.open()
        stream = one.stream()
        frames = [next(stream), next(stream)]
        with pytest.raises(MeterLost, match="no frame for 0.3 s"):
            next(stream)
        one.resync()
        frames.append(next(one.stream()))
        one.close()
    assert struct.unpack_from("<f", frames[2].raw, 7 + 8)[0] == pytest.approx(50 + 3 / 4096)


def test_an_unplugged_line_is_a_loss_and_opening_again_ends_it(tmp_path: Path) -> None:
    with FakeLmg450(
        tmp_path, fault_of=lambda n: "disconnect" if n == 2 else None, seconds_of_fault=0.1
    ) as fake:
        one = meter(settings(fake))
        one.open()
        stream = one.stream()
        assert len([next(stream), next(stream)]) == 2
        with pytest.raises(MeterLost, match="serial line"):
            next(stream)
        one.close()
        wait_for(fake.path.exists, "plugged in")
        assert len(read(one, 2)) == 2


def test_a_device_that_does_not_answer_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmg, "_ANSWER_MAX_S", 0.2)
    with FakeLmg450(tmp_path) as fake:
        fake._silent_until = float("inf")
        assert "no answer to *IDN?" in lost(meter(settings(fake)))
    assert "cannot open a serial line" in lost(meter(settings(fake)))


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"channels": {"5": "s5"}}, "channels"),
        ({"channels": {}}, "channels"),
        ({"cycle": 0.01}, "cycle"),
        ({"format": "binary"}, "format"),
        ({"range": {"V": 250}}, "range.V"),
        ({"speed": 9600}, "speed"),
    ],
)
def test_settings_that_the_device_cannot_do_are_refused(wrong: dict[str, Any], where: str) -> None:
    table = {"kind": "lmg450", "port": "/dev/null", "channels": CHANNELS, **wrong}
    with pytest.raises(SettingsError, match=rf"^meters\.m\.{where}: "):
        meter(table)
