# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Frames are found in damaged streams, and nothing else is."""

from __future__ import annotations

import struct

import pytest

from terrace_lab.meters.lmg_frames import PackedReader, TextReader, Triples, quality_of
from terrace_lab.records import Quality

# Each byte of this value is a line end, the worst that a reader of line ends can meet.
LINE_ENDS = b"\n" * 12


def packed(payload: bytes) -> bytes:
    return b"#500012" + payload + b"\n"


FIRST, SECOND, THIRD = (packed(struct.pack("<3f", 230, 1, power)) for power in (100, 101, 102))
WORST = packed(LINE_ENDS)


def reader() -> PackedReader:
    return PackedReader(3, "little", b"\n", lambda _: True)


def found(one: PackedReader, data: bytes, step: int) -> list[bytes]:
    """The frames in a stream that arrives in pieces."""
    pieces = [data[index : index + step] for index in range(0, len(data), step)]
    return [raw for piece in pieces for raw, _ in one.feed(piece)]


@pytest.mark.parametrize("step", [1, 7, 1000])
@pytest.mark.parametrize("frame", [FIRST, WORST])
def test_a_frame_that_lost_its_end_or_middle_is_none(step: int, frame: bytes) -> None:
    for begin in range(len(frame)):
        for end in range(begin + 1, len(frame) + 1):
            one = reader()
            damaged = frame[:begin] + frame[end:]
            data = damaged + WORST + WORST + SECOND
            assert found(one, data, step) == [WORST, WORST, SECOND], (begin, end)
            assert one.skipped() == len(damaged)


@pytest.mark.parametrize("frame", [FIRST, WORST])
def test_a_frame_with_bytes_put_into_it_is_none(frame: bytes) -> None:
    for place in range(1, len(frame)):
        for more in (b"#", b"\n\n\n\n", b"#500012", b"\xff" * 12):
            data = frame[:place] + more + frame[place:]
            got = found(reader(), data + SECOND + THIRD, 1000)
            # Put behind the first bytes of what is the same, it leaves the frame whole.
            sent = {frame, SECOND, THIRD} if frame in data else {SECOND, THIRD}
            assert set(got) <= sent, (place, more)
            assert got[-1] == THIRD, (place, more)


def test_garbage_between_frames_costs_none_of_them() -> None:
    for garbage in (b"x", b"#", b"#5", b"#500012", b"#500013", b"\n" * 30, b"#5000#500012"):
        one = reader()
        assert found(one, garbage + FIRST + SECOND, 1)[-1] == SECOND
        assert found(reader(), garbage + FIRST + SECOND + THIRD, 1000)[-2:] == [SECOND, THIRD]


def test_a_stream_of_garbage_takes_no_memory() -> None:
    one = reader()
    for _ in range(100):
        assert one.feed(b"x" * 1000) == []
    assert one.skipped() == 100_000
    text = TextReader(3, b"\n", lambda _: True)
    for _ in range(100):
        assert text.feed(b"1;" * 500) == []
    assert text.skipped() >= 30_000


def test_big_floats_and_long_line_ends_can_be_asked_for() -> None:
    one = PackedReader(1, "big", b"\r\n", lambda _: True)
    ((_, values),) = one.feed(b"#500004" + struct.pack(">f", 1.5) + b"\r\n")
    assert values == (1.5,)


def test_the_rest_of_a_line_is_no_line() -> None:
    one = TextReader(3, b"\n", lambda _: True)
    assert one.feed(b"2") == []
    one.reset()
    assert [values for _, values in one.feed(b"30;1;100\n230;1;101\n")] == [(230, 1, 101)]
    assert one.skipped() == len("230;1;100\n")


@pytest.mark.parametrize("line", [b"1;2\n", b"1;2;x\n", b"1;2;3;4\n", b"\n", b"1;2;\xff\n"])
def test_a_line_of_something_else_is_passed_over(line: bytes) -> None:
    one = TextReader(3, b"\n", lambda _: True)
    assert [values for _, values in one.feed(line + b"1;2;3\n")] == [(1, 2, 3)]
    assert one.skipped() == len(line)


@pytest.mark.parametrize(
    ("value", "quality"),
    [
        (230.0, Quality.OK),
        (-0.0, Quality.OK),
        (9.91e37, Quality.NAN),
        (struct.unpack("<f", struct.pack("<f", 9.91e37))[0], Quality.NAN),
        (float("nan"), Quality.NAN),
        (struct.unpack("<f", struct.pack("<f", -9.9e37))[0], Quality.OVERRANGE),
        (float("inf"), Quality.OVERRANGE),
    ],
)
def test_numbers_that_stand_for_something_are_known(value: float, quality: Quality) -> None:
    assert quality_of(value) is quality


def test_active_power_never_exceeds_voltage_times_current() -> None:
    triples = Triples(2, 250, 5, 1.2)
    for values, is_plausible in (
        ((230, 1, 230, 230, 1, -230), True),
        # A clamp the wrong way round is a mistake of the user and not a damaged frame.
        ((230, 1, -229, 0, 0, 0.5), True),
        ((230, 1, 240, 230, 1, 0), False),
        ((230, 1, 0, 230, -1, 0), False),
        ((-230, 1, 0, 230, 1, 0), False),
        ((9.91e37, 9.91e37, 9.91e37, 230, 1, 1), True),
    ):
        assert triples.is_plausible(values) == is_plausible, values
