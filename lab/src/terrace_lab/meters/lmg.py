# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Talks to LMG power meters in their SHORT language, whatever carries it.

Every earlier logger for these devices that we know of lost data by one of three ways: it took a
timeout for the end, a short read for a fault of its own, or left-over output for an answer. Here a
timeout is `MeterLost`, bytes are searched for frames, and a device is silenced before it is asked.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from terrace_lab.errors import MeterLost
from terrace_lab.meters.base import Channel, Frame, MeterInfo, gap_limit_s
from terrace_lab.meters.channels import PERIOD_MAX_S, read_channels
from terrace_lab.meters.lmg_frames import FrameReader, TextReader, Triples
from terrace_lab.meters.timing import Cadence
from terrace_lab.records import Kind, Sample, Stamp, now
from terrace_lab.settings import Settings

STUCK_SECONDS = 10.0
"""The last of 24 bits of a live mains measurement does not rest for so long."""
_SILENCE_S = 0.1
_DRAIN_MAX_S = 2.0
_ANSWER_MAX_S = 2.5
_READ_S = 0.05
_ANSWER_BYTES_MAX = 4096


class Link(Protocol):
    """What carries bytes to a device and back. Every method raises MeterLost where it is gone."""

    def write(self, data: bytes) -> None: ...
    def read(self, wait_s: float) -> bytes:
        """What has arrived; empty when nothing has for `wait_s`."""
        ...

    def send_break(self) -> None:
        """Resets the interface of the device, whatever it was doing."""
        ...

    def close(self) -> None:
        """Never raises."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Dialogue:
    """What one model wants to be told."""

    language: Sequence[str]
    """Behind *RST, to speak SHORT."""
    setup: Sequence[str]
    """Ranges and cycle."""
    action: str
    """What each cycle returns."""
    frame_format: str
    """`PACKED` or `ASCII`."""
    farewell: Sequence[str]
    """Behind the end of continuous output."""
    end_of_line: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """What both models are told to measure, with fixed ranges."""

    cycle_s: float
    channels: tuple[Channel, ...]
    range_u_v: float
    range_i_a: float
    triples: Triples

    def info(self, kind: str) -> MeterInfo:
        return MeterInfo(
            kind,
            self.channels,
            self.cycle_s,
            "",
            is_modelled=False,
            stuck_after=max(20, round(STUCK_SECONDS / self.cycle_s)),
        )


def read_measured(
    settings: Settings,
    names: Sequence[str],
    *,
    cycle_s: float,
    range_i_a: float,
    gain: float,
    offset_w: float,
) -> Measured:
    """Reads cycle, channels and ranges, with the defaults of a model that has these channels."""
    cycle_s = settings.seconds("cycle", cycle_s)
    # The devices take 0.05 to 60 s.
    if not 0.05 <= cycle_s <= PERIOD_MAX_S:
        raise settings.error("cycle", f"must be from 0.05 to {PERIOD_MAX_S:g} s")
    channels = read_channels(settings, Kind.AVERAGE, gain=gain, offset_w=offset_w)
    for channel in channels:
        if channel.name not in names:
            raise settings.error("channels", f"{channel.name!r} is none of {', '.join(names)}")
    ranges = settings.table("range")
    range_u_v, range_i_a = ranges.number("U", 250.0), ranges.number("I", range_i_a)
    ranges.finish()
    overrange = settings.number("overrange", 1.2, least=1.0)
    triples = Triples(len(channels), range_u_v, range_i_a, overrange)
    return Measured(cycle_s, channels, range_u_v, range_i_a, triples)


class LmgMeter:
    """One device over one link, sending by itself once a cycle."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], Link],
        dialogue: Dialogue,
        reader: FrameReader,
        triples: Triples,
        info: MeterInfo,
    ) -> None:
        self._name = name
        self._connect = connect
        self._dialogue = dialogue
        self._reader = reader
        self._triples = triples
        self._info = info
        self._cadence = Cadence(info.period_s)
        self._link: Link | None = None
        self._drained = 0

    def describe(self) -> MeterInfo:
        return self._info

    def skipped(self) -> int:
        count, self._drained = self._drained + self._reader.skipped(), 0
        return count

    def open(self) -> None:
        self.close()
        self._link = self._connect()
        try:
            self._arm(self._link)
        except MeterLost:
            self.close()
            raise

    def resync(self) -> None:
        if self._link is None:
            raise MeterLost(f"cannot resynchronise: not connected name={self._name}")
        self._arm(self._link)

    def close(self) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        try:
            for command in ("CONT OFF", "FRMT ASCII", *self._dialogue.farewell):
                self._send(link, command)
            # So that nothing is on its way when the next one opens the line.
            self._drain(link)
        except MeterLost:
            pass
        link.close()

    def _arm(self, link: Link) -> None:
        self._reader.reset()
        self._cadence.reset()
        link.send_break()
        # A device that did not take the break for one may still be sending.
        self._send(link, "CONT OFF")
        self._drained += self._drain(link)
        for command in ("*CLS", "*RST", *self._dialogue.language):
            self._send(link, command)
        self._send(link, "*IDN?")
        self._info = dataclasses.replace(self._info, identity=self._answer(link))
        for command in (
            *self._dialogue.setup,
            self._dialogue.action,
            f"FRMT {self._dialogue.frame_format}",
            "CONT ON",
        ):
            self._send(link, command)
        if isinstance(self._reader, TextReader):
            self._reader.begin()

    def _send(self, link: Link, command: str) -> None:
        link.write(command.encode("ascii") + self._dialogue.end_of_line)

    def _drain(self, link: Link) -> int:
        """Reads until the device is silent, and returns how many bytes that were."""
        count = 0
        deadline = time.monotonic() + _DRAIN_MAX_S
        while data := link.read(_SILENCE_S):
            count += len(data)
            if time.monotonic() > deadline:
                self._drained += count
                raise MeterLost(f"cannot silence a meter: it goes on sending {data[:32].hex()}")
        return count

    def _answer(self, link: Link) -> str:
        answer = b""
        deadline = time.monotonic() + _ANSWER_MAX_S
        while not answer.endswith(b"\n"):
            answer += link.read(_READ_S)
            if time.monotonic() > deadline or len(answer) > _ANSWER_BYTES_MAX:
                self._drained += len(answer)
                raise MeterLost(f"cannot open a meter: no answer to *IDN? got={answer[:64].hex()}")
        text = answer.decode("ascii", errors="replace").strip()
        if not text.isprintable() or "\ufffd" in text or text.count("\n"):
            self._drained += len(answer)
            raise MeterLost(f"cannot open a meter: its answer is none got={answer[:64].hex()}")
        return text

    def stream(self) -> Iterator[Frame]:
        limit_s = gap_limit_s(self._info.period_s)
        last = time.monotonic()
        while True:
            if self._link is None:
                raise MeterLost(f"cannot read a meter: not connected name={self._name}")
            data = self._link.read(_READ_S)
            arrival = now()
            frames = self._reader.feed(data)
            for index, (raw, values) in enumerate(frames):
                behind = len(frames) - 1 - index
                yield self._frame(raw, values, arrival, behind)
            if frames:
                last = time.monotonic()
            elif time.monotonic() - last > limit_s:
                self._reader.reset()
                raise MeterLost(f"cannot read a meter: no frame for {limit_s:g} s")

    def _frame(self, raw: bytes, values: tuple[float, ...], arrival: Stamp, behind: int) -> Frame:
        begin_ns, end_ns = self._cadence.window(arrival, behind)
        return Frame(
            raw,
            tuple(
                Sample(
                    t0=begin_ns,
                    t1=end_ns,
                    mono=arrival.raw_ns,
                    channel=channel.name,
                    scope=channel.scope,
                    kind=channel.kind,
                    value=reading.value,
                    quality=reading.quality,
                    source=self._name,
                )
                for channel, reading in zip(
                    self._info.channels, self._triples.readings(values), strict=True
                )
            ),
        )
