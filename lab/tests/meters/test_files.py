# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Meters of what was recorded before: CSV files and replays."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from meters.record import events, lost, meter, read, samples_of
from terrace_lab.errors import MeterLost, SettingsError
from terrace_lab.meters import replay as replay_driver
from terrace_lab.meters.base import Channel, Frame, MeterInfo
from terrace_lab.meters.pump import Arrived, Opened
from terrace_lab.meters.recorder import Recorder
from terrace_lab.records import Kind, Quality, Sample, now

SECOND = 10**9


def table(path: Path, text: str, **more: Any) -> dict[str, Any]:
    path.write_text(text)
    return {"kind": "csv", "path": str(path), "channels": {"p": "s1"}, **more}


def imported(settings: dict[str, Any]) -> tuple[list[Sample], int]:
    """All samples of a file, and how many bytes were none."""
    one = meter(settings)
    one.open()
    samples = samples_of(list(one.stream()))
    skipped = one.skipped()
    one.close()
    return samples, skipped


def test_averages_cover_the_time_since_the_row_before(tmp_path: Path) -> None:
    text = "time,u,p\n1700000000.25,230,5\n1700000000.75,230,6.5\n1700000001.25,230,7\n"
    samples, _ = imported(table(tmp_path / "a.csv", text, clock_offset=-2.5))
    # Nobody says since when the first one is.
    assert [(one.t0, one.t1, one.value) for one in samples] == [
        (1699999997750000000, 1699999998250000000, 6.5),
        (1699999998250000000, 1699999998750000000, 7.0),
    ]
    assert {one.kind for one in samples} == {Kind.AVERAGE}


@pytest.mark.parametrize(
    ("unit", "moments"),
    [
        ("s", ("1700000000.123456789", "1700000001")),
        ("ms", ("1700000000123.456789", "1700000001000")),
        ("ns", ("1700000000123456789", "1700000001000000000")),
    ],
)
def test_times_keep_their_nanoseconds(tmp_path: Path, unit: str, moments: tuple[str, str]) -> None:
    text = f"t;p\n{moments[0]};1\n{moments[1]};2\n"
    settings = table(tmp_path / "a.csv", text, time_column="t", time_unit=unit, delimiter=";")
    samples, _ = imported(settings | {"value_kind": "inst"})
    assert [one.t1 for one in samples] == [1700000000123456789, 1700000001000000000]
    assert [one.t0 for one in samples] == [one.t1 for one in samples]


def test_times_in_words_need_their_zone(tmp_path: Path) -> None:
    text = "time,p\n2023-11-14T23:13:20.5+01:00,1\n2023-11-14T22:13:21,2\n"
    samples, skipped = imported(table(tmp_path / "a.csv", text, time_unit="iso", value_kind="inst"))
    assert [one.t1 for one in samples] == [1700000000500000000]
    assert skipped == len("2023-11-14T22:13:21,2\n")


def test_units_are_watts_and_joules(tmp_path: Path) -> None:
    text = "time,p\n1700000000,2\n1700000001,3\n"
    energy, _ = imported(table(tmp_path / "a", text, value_kind="counter", unit="Wh"))
    assert [(one.kind, one.value) for one in energy] == [
        (Kind.COUNTER, 7200.0),
        (Kind.COUNTER, 10800.0),
    ]
    power, _ = imported(table(tmp_path / "b", text, value_kind="inst", unit="mW"))
    assert [one.value for one in power] == [0.002, 0.003]
    with pytest.raises(SettingsError, match=r"unit: 'Wh' is none of W, mW, kW"):
        meter(table(tmp_path / "c", text, unit="Wh"))


def test_rows_that_are_none_are_passed_over_and_counted(tmp_path: Path) -> None:
    bad = ["1700000002\n", "yesterday,5\n", "1700000001,5\n", "1700000003,5,6\n", "170000001"]
    good = ["time,p\n", "1700000001,1\n", "1700000004,\n", "1700000005,inf\n", "1700000006,2\n"]
    text = "".join([*good[:2], *bad[:4], *good[2:], bad[4]])
    samples, skipped = imported(table(tmp_path / "a.csv", text, value_kind="inst"))
    assert [(one.value, one.quality) for one in samples] == [
        (1.0, Quality.OK),
        (None, Quality.NAN),
        (None, Quality.OVERRANGE),
        (2.0, Quality.OK),
    ]
    assert skipped == sum(map(len, bad))


def test_a_file_that_cannot_be_read_is_a_loss(tmp_path: Path) -> None:
    settings = table(tmp_path / "a.csv", "time,q\n1700000000,5\n")
    assert "no column 'p'" in lost(meter(settings))
    (tmp_path / "a.csv").unlink()
    assert "No such file" in lost(meter(settings))


def recorded(tmp_path: Path, kind: Kind = Kind.AVERAGE, gap_s: float = 0.0) -> Path:
    """A record of six frames, 20 ms apart, in the middle of which nothing came for a while."""
    where = tmp_path / "meters" / "old"
    recorder = Recorder(where, "old", None)
    channel = Channel("1", "s1", kind, 0.001, 0.1)
    recorder.take(Opened(now(), MeterInfo("lmg450", (channel,), 0.02, "", False)))
    at = 1_700_000_000 * SECOND
    for number in range(6):
        at += 20_000_000 + round(gap_s * SECOND) * (number == 3)
        begin = at - 20_000_000 if kind is Kind.AVERAGE else at
        one = Sample(begin, at, 1, "1", "s1", kind, 50.0 + number, Quality.OK, "old")
        recorder.take(Arrived(now(), Frame(bytes([number]), (one,))))
    recorder.stop(None)
    return where


def replay(where: Path, **more: Any) -> dict[str, Any]:
    return {"kind": "replay", "path": str(where), **more}


def test_a_replay_happens_now_at_its_own_pace(tmp_path: Path) -> None:
    begin = now()
    one = meter(replay(recorded(tmp_path)))
    frames = read(one, 8)
    samples = samples_of(frames)
    assert [sample.value for sample in samples] == [50, 51, 52, 53, 54, 55, 50, 51]
    assert {(sample.quality, sample.source) for sample in samples} == {(Quality.MODEL, "m")}
    assert frames[5].raw == b"\x05"
    assert samples[0].t1 >= begin.real_ns
    assert samples[7].t1 - samples[0].t1 == pytest.approx(7 * 20_000_000, abs=2_000_000)
    assert samples[7].t0 == samples[7].t1 - 20_000_000
    assert now().raw_ns - begin.raw_ns >= 7 * 20_000_000
    assert one.describe().is_modelled


def test_a_replay_without_loop_comes_to_its_end(tmp_path: Path) -> None:
    one = meter(replay(recorded(tmp_path), loop=False, speed=0))
    one.open()
    assert len(list(one.stream())) == 6


def test_a_gap_in_a_record_is_replayed_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_driver, "gap_limit_s", lambda _: 0.1)
    one = meter(replay(recorded(tmp_path, gap_s=1.6), speed=10.0))
    one.open()
    stream = one.stream()
    assert len([next(stream) for _ in range(3)]) == 3
    with pytest.raises(MeterLost, match=r"nothing was recorded for 0\.1"):
        next(stream)
    one.resync()
    (sample,) = next(one.stream()).samples
    assert sample.value == 53


def test_faults_are_those_that_are_asked_for(tmp_path: Path) -> None:
    faults = {"drop": [1], "nan": [2], "stuck": [3], "split": [4], "lost": [5], "late": [6]}
    one = meter(replay(recorded(tmp_path), speed=0, faults=faults, late=0.1))
    one.open()
    stream = one.stream()
    frames = [next(stream) for _ in range(3)]
    assert [frame.raw[0] for frame in frames] == [0, 2, 3]
    assert [sample.quality.value for sample in samples_of(frames)] == ["model", "nan", "nan"]
    with pytest.raises(MeterLost, match="lost as asked frame=5"):
        next(stream)
    assert one.skipped() == 1
    begin = time.monotonic()
    assert next(one.stream()).raw == b"\x00"
    assert time.monotonic() - begin >= 0.1


def test_a_stuck_frame_has_the_value_before_it(tmp_path: Path) -> None:
    frames = read(meter(replay(recorded(tmp_path), speed=0, faults={"stuck": [2, 3]})), 5)
    assert [one.value for one in samples_of(frames)] == [50, 51, 51, 51, 54]


def test_a_counter_that_is_reset_begins_anew(tmp_path: Path) -> None:
    where = recorded(tmp_path, Kind.COUNTER)
    frames = read(meter(replay(where, speed=0, faults={"reset": [3]})), 8)
    assert [one.value for one in samples_of(frames)] == [50, 51, 52, None, 1, 2, None, 1]
    assert samples_of(frames)[3].quality is Quality.RESET
    # The same happens where it begins again.
    assert samples_of(frames)[6].quality is Quality.RESET


def test_chances_of_faults_depend_on_the_seed_alone(tmp_path: Path) -> None:
    where = recorded(tmp_path)

    def values(seed: int) -> list[float | None]:
        settings = replay(where, speed=0, seed=seed, faults={"drop": 0.3, "nan": 0.3})
        return [one.value for one in samples_of(read(meter(settings), 20))]

    assert values(1) == values(1)
    assert values(1) != values(2)
    assert None in values(1)


def test_a_csv_file_can_be_replayed(tmp_path: Path) -> None:
    text = "time,p\n" + "".join(f"{1700000000 + n},{n}\n" for n in range(4))
    settings = table(tmp_path / "a.csv", text) | {"kind": "replay", "speed": 0}
    one = meter(settings)
    assert [sample.value for sample in samples_of(read(one, 4))] == [1, 2, 3, 1]
    assert one.describe().period_s == 1.0


def test_replays_of_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^meters\.m\.path: cannot replay"):
        meter(replay(tmp_path))
    with pytest.raises(SettingsError, match=r"faults\.flood: is no fault, only drop, late"):
        meter(replay(recorded(tmp_path), faults={"flood": [1]}))
    with pytest.raises(SettingsError, match=r"faults\.drop: must be a list"):
        meter(replay(recorded(tmp_path / "b"), faults={"drop": 2}))
    assert events(tmp_path, "old")[-1]["event"] == "stop"
