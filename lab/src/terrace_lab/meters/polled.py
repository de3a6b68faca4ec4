# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The driver of whatever is asked for a value, again and again."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from terrace_lab.errors import MeterLost
from terrace_lab.meters.base import Channel, Frame, MeterInfo
from terrace_lab.meters.timing import Polls
from terrace_lab.records import Kind, Quality, Sample, now


class Reading(NamedTuple):
    """What one channel said."""

    value: float | None
    """Watts or joules; None unless the quality is usable."""
    quality: Quality = Quality.OK


class Answer(NamedTuple):
    """What a source said when it was asked."""

    raw: bytes
    readings: Mapping[str, Reading]
    """By channel. A channel may be missing where the device has nothing new."""


class Source(Protocol):
    """A device that answers. Every method is bounded by 10 s and raises only `MeterLost`."""

    def connect(self) -> str:
        """Makes `read` possible and returns who answers; may be called on what is connected."""
        ...

    def read(self) -> Answer: ...

    def disconnect(self) -> None:
        """Never raises."""
        ...


class PolledMeter:
    """A meter over a source; docs/reference/lab-meters.md says how its times are meant."""

    def __init__(
        self,
        name: str,
        source: Source,
        info: MeterInfo,
        *,
        window_s: float | None = None,
        window_max_s: float | None = None,
        discover: Callable[[], tuple[Channel, ...]] | None = None,
    ) -> None:
        """`window_s` is what averages of the device are over, by default one period;
        `window_max_s` the longest that one may stand for, by default 1.5 windows; `discover` tells
        the channels of a connected source, where the settings cannot.
        """
        self._name = name
        self._source = source
        self._info = info
        self._window_s = window_s or info.period_s
        self._window_max_s = window_max_s
        self._discover = discover
        self._polls: dict[str, Polls] = {}

    def describe(self) -> MeterInfo:
        return self._info

    def open(self) -> None:
        identity = self._source.connect()
        channels = self._info.channels if self._discover is None else self._discover()
        self._info = dataclasses.replace(self._info, identity=identity, channels=channels)

    def resync(self) -> None:
        self._source.disconnect()
        self._source.connect()

    def close(self) -> None:
        self._source.disconnect()

    def skipped(self) -> int:
        return 0

    def stream(self) -> Iterator[Frame]:
        self._polls = {
            channel.name: Polls(self._window_s, self._window_max_s)
            for channel in self._info.channels
            if channel.kind is Kind.AVERAGE
        }
        due = time.monotonic()
        if not self._polls:
            yield self._poll()
        # The first average is whole one period after the beginning.
        while True:
            due += self._info.period_s
            wait_s = due - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
            else:
                # What was missed is missed: asking twice at once says nothing about then.
                due -= wait_s
            yield self._poll()

    def _poll(self) -> Frame:
        asked = now()
        answer = self._source.read()
        arrived = now()
        samples = []
        for channel in self._info.channels:
            reading = answer.readings.get(channel.name)
            if reading is None:
                continue
            if channel.kind is Kind.AVERAGE:
                begin_ns, end_ns = self._polls[channel.name].window(arrived)
            else:
                # By the clock that does not step, so that a step between the two does no harm.
                begin_ns = arrived.real_ns - (arrived.raw_ns - asked.raw_ns)
                end_ns = arrived.real_ns
            samples.append(
                Sample(
                    t0=begin_ns,
                    t1=end_ns,
                    mono=arrived.raw_ns,
                    channel=channel.name,
                    scope=channel.scope,
                    kind=channel.kind,
                    value=reading.value if reading.quality.is_usable else None,
                    quality=reading.quality,
                    source=self._name,
                )
            )
        if not samples:
            raise MeterLost(f"cannot read a meter: no channel in the answer name={self._name}")
        return Frame(answer.raw, tuple(samples))
