# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What becomes of the deliveries of a driver in the record."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meters.record import wait_for
from terrace_lab.errors import MeterLost
from terrace_lab.meters.base import Channel, Frame, MeterInfo
from terrace_lab.meters.pump import Arrived, Event, Lost, Opened, Pump, Skipped
from terrace_lab.meters.recorder import Recorder
from terrace_lab.meters.segments import SegmentWriter, Tail
from terrace_lab.records import Kind, Quality, Sample, Stamp, now, read_lines

SECOND = 10**9
INFO = MeterInfo(
    "fake", (Channel("1", "s1", Kind.AVERAGE, 0.001, 0.1),), 0.05, "serial 7", False, stuck_after=3
)


def sample(value: float | None, at: Stamp, kind: Kind = Kind.AVERAGE) -> Sample:
    begin = at.real_ns - SECOND // 20 if kind is Kind.AVERAGE else at.real_ns
    quality = Quality.NAN if value is None else Quality.OK
    return Sample(begin, at.real_ns, at.raw_ns, "1", "s1", kind, value, quality, "m")


class Script:
    """A recorder whose clock is turned by hand."""

    def __init__(self, run: Path, stuck_after: int | None = None) -> None:
        self.run = run
        self.where = run / "meters" / "m"
        self.recorder = Recorder(self.where, "m", stuck_after)
        self.at = now()
        self.take(Opened(self.at, INFO))

    def take(self, event: Event) -> None:
        self.recorder.take(event)

    def wait(self, seconds: float, step_s: float = 0.0) -> None:
        """`step_s` is what CLOCK_REALTIME jumps by meanwhile."""
        self.at = Stamp(
            self.at.real_ns + round((seconds + step_s) * SECOND),
            self.at.raw_ns + round(seconds * SECOND),
        )
        self.recorder.watch(self.at)

    def frame(self, value: float | None, kind: Kind = Kind.AVERAGE) -> None:
        self.take(Arrived(self.at, Frame(b"\x01\xff", (sample(value, self.at, kind),))))

    def events(self) -> list[dict[str, Any]]:
        return [line for line in self.lines() if "event" in line]

    def lines(self) -> list[dict[str, Any]]:
        return [line for path in sorted(self.where.glob("*.jsonl")) for line in read_lines(path)]

    def qualities(self) -> list[str]:
        return [one["q"] for line in self.lines() for one in line.get("samples", ())]


def test_a_frame_is_kept_with_its_bytes(tmp_path: Path) -> None:
    script = Script(tmp_path)
    script.frame(50.0)
    script.recorder.stop(None)
    start, opened, frame, stop = script.lines()
    assert (start["event"], opened["event"], stop["event"]) == ("start", "open", "stop")
    assert opened["info"]["identity"] == "serial 7"
    assert frame["raw"] == "01ff"
    assert Sample.from_json(frame["samples"][0]).value == 50.0
    assert "cause" not in stop


def test_silence_is_a_gap_with_its_length(tmp_path: Path) -> None:
    script = Script(tmp_path)
    script.frame(50.0)
    last = script.at
    script.wait(0.9)
    assert [one["event"] for one in script.events()] == ["start", "open"]
    script.wait(0.2)
    script.wait(600.0)
    script.frame(None)
    script.frame(51.0)
    begin, end = script.events()[2:]
    assert (begin["event"], begin["since"]) == ("gap_begin", last.real_ns)
    assert begin["mono"] - last.raw_ns == pytest.approx(1.1 * SECOND)
    # The frame that ends it covers its own 50 ms.
    assert (end["event"], end["missed_ns"]) == ("gap_end", 601_050_000_000)
    assert end["cause"] == begin["cause"] == "nothing usable for 1 s"


def test_a_step_of_the_clock_is_no_gap(tmp_path: Path) -> None:
    script = Script(tmp_path)
    for step_s in (2.0, -4.0, 2.0):
        script.frame(50.0)
        script.wait(0.05, step_s)
    assert [one["event"] for one in script.events()] == ["start", "open"]


def test_frames_without_a_value_are_a_gap_too(tmp_path: Path) -> None:
    script = Script(tmp_path)
    script.frame(50.0)
    for _ in range(30):
        script.wait(0.05)
        script.frame(None)
    assert script.events()[-1]["event"] == "gap_begin"
    assert script.qualities() == ["ok"] + ["nan"] * 30


def test_a_lost_device_is_a_gap_at_once_and_says_why_once(tmp_path: Path) -> None:
    script = Script(tmp_path)
    script.frame(50.0)
    script.take(Lost(script.at, "unplugged"))
    script.take(Lost(script.at, "still unplugged"))
    script.wait(0.3)
    script.take(Skipped(script.at, 17))
    script.frame(50.1)
    begin, skipped, end = script.events()[2:]
    assert begin["cause"] == "unplugged"
    assert skipped["bytes"] == 17
    assert (end["event"], end["cause"], end["missed_ns"]) == ("gap_end", "unplugged", SECOND // 4)


def test_the_same_bits_for_too_long_are_stuck_until_they_change(tmp_path: Path) -> None:
    script = Script(tmp_path)
    for value in (50.0, 50.0, 50.0, 50.0, 50.0, 50.1, 50.1):
        script.frame(value)
    assert script.qualities() == ["ok"] * 3 + ["stuck"] * 2 + ["ok"] * 2
    stuck = script.lines()[5]["samples"][0]
    assert stuck["W"] is None
    for again in (60.0, 60.0, 60.0, None, 60.0):
        script.frame(again)
    assert script.qualities()[-5:] == ["ok"] * 3 + ["nan", "ok"]


def test_a_counter_at_rest_is_not_stuck_unless_asked(tmp_path: Path) -> None:
    script = Script(tmp_path / "a")
    asked = Script(tmp_path / "b", stuck_after=3)
    for _ in range(6):
        script.frame(7.0, Kind.COUNTER)
        asked.frame(7.0, Kind.COUNTER)
    assert script.qualities() == ["ok"] * 6
    assert asked.qualities() == ["ok"] * 3 + ["stuck"] * 3


def test_a_counter_begins_anew_with_each_process(tmp_path: Path) -> None:
    for _ in range(2):
        script = Script(tmp_path)
        script.frame(7.0, Kind.COUNTER)
        script.frame(8.0, Kind.COUNTER)
        script.recorder.stop(None)
    assert script.qualities() == ["ok", "ok", "reset", "ok"]


def test_infinity_never_reaches_the_record(tmp_path: Path) -> None:
    script = Script(tmp_path)
    script.frame(float("inf"))
    script.frame(float("nan"))
    assert script.qualities() == ["nan", "nan"]


def test_a_full_disk_is_a_gap_and_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(tmp_path)
    script.frame(50.0)
    with monkeypatch.context() as patch:

        def full(*_: object) -> int:
            raise OSError(28, "No space left on device")

        patch.setattr("terrace_lab.records.LinesWriter.write", full)
        for _ in range(3):
            script.wait(0.05)
            script.frame(51.0)
    monkeypatch.setattr("terrace_lab.meters.segments.SYNC_SECONDS", 0.0)
    script.wait(0.05)
    script.frame(52.0)
    values = [one["W"] for line in script.lines() for one in line.get("samples", ())]
    assert values == [50.0, 52.0]
    begin, end = script.events()[2:]
    assert "No space left" in begin["cause"]
    assert (end["event"], end["missed_ns"]) == ("gap_end", 3 * SECOND // 20)


def test_segments_are_numbered_on_and_never_reopened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SegmentWriter(tmp_path)
    writer.write({"n": 1})
    monkeypatch.setattr("terrace_lab.meters.segments.SEGMENT_SECONDS", 0.0)
    writer.write({"n": 2})
    writer.close()
    SegmentWriter(tmp_path).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "000001.jsonl",
        "000002.jsonl",
        "000003.jsonl",
    ]


def test_a_tail_sees_each_line_once(tmp_path: Path) -> None:
    script = Script(tmp_path)
    tail = Tail(tmp_path, "m")
    assert [one["event"] for one in tail.read()] == ["start", "open"]
    assert tail.frames == 0
    script.frame(50.0)
    usable = script.at
    script.wait(0.05)
    script.frame(None)
    late = Tail(tmp_path, "m")
    late.read()
    script.take(Lost(script.at, "gone"))
    assert [one["event"] for one in tail.read()] == ["gap_begin"]
    assert tail.frames == 2
    assert tail.newest == usable
    assert tail.read() == []
    for _ in range(500):
        script.frame(51.0)
    assert [one["event"] for one in tail.read()] == ["gap_end"]
    script.take(Skipped(script.at, 1))
    assert [one["event"] for one in tail.read()] == ["skipped"]
    assert tail.frames == 502
    with open(script.where / "000001.jsonl", "ab") as file:
        file.write(b'{"event":"sto')
    assert [one["event"] for one in late.read()] == ["gap_begin", "gap_end", "skipped"]
    script.recorder.stop(None)
    again = Script(tmp_path)
    assert [one["event"] for one in late.read()][-2:] == ["start", "open"]
    again.frame(53.0)
    late.read()
    assert late.newest == again.at


class Flaky:
    """A driver that does what a list says: frames, or the errors in it."""

    def __init__(self, script: list[Any]) -> None:
        self.script = iter(script)
        self.calls: list[str] = []

    def describe(self) -> MeterInfo:
        return INFO

    def open(self) -> None:
        self.calls.append("open")
        self._next_error("open")

    def resync(self) -> None:
        self.calls.append("resync")
        self._next_error("resync")

    def close(self) -> None:
        self.calls.append("close")

    def skipped(self) -> int:
        return 0

    def stream(self) -> Iterator[Frame]:
        for one in self.script:
            if isinstance(one, Exception):
                raise one
            yield Frame(b"", (dataclasses.replace(sample(one, now())),))

    def _next_error(self, what: str) -> None:
        if self.calls.count(what) == 2 and what == "open":
            raise MeterLost("not yet")


def test_a_driver_is_brought_back_whatever_it_raises() -> None:
    lost = MeterLost("silent")
    driver = Flaky([1.0, lost, lost, 2.0, ValueError("a bug"), 3.0])
    pump = Pump(driver, back_off_max_s=0.001)
    pump.start()
    pump.join(10)
    assert not pump.is_alive()
    events = []
    while not pump.events.empty():
        events.append(pump.events.get())
    values = [one.frame.samples[0].value for one in events if isinstance(one, Arrived)]
    assert values == [1.0, 2.0, 3.0]
    causes = [one.cause for one in events if isinstance(one, Lost)]
    assert causes == ["silent", "silent", "not yet", "driver failed: ValueError: a bug"]
    # A resync that brought nothing is followed by a new connection.
    assert driver.calls == ["open", "resync", "close", "open", "open", "resync", "close"]


def test_a_pump_ends_when_it_is_asked_to() -> None:
    class Endless(Flaky):
        def stream(self) -> Iterator[Frame]:
            while True:
                yield Frame(b"", (sample(1.0, now()),))

    driver = Endless([])
    pump = Pump(driver)
    pump.start()
    wait_for(pump.events.full, "a full queue")
    pump.stop()
    pump.join(10)
    assert not pump.is_alive()
    assert driver.calls == ["open", "close"]
