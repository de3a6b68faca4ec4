# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Listens to a meter for a while, without a record."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from terrace_lab.errors import MeterLost
from terrace_lab.meters.base import Meter, MeterInfo
from terrace_lab.records import Kind, Quality, Sample


@dataclass(frozen=True, slots=True)
class ChannelTrial:
    """What one channel delivered."""

    name: str
    scope: str
    kind: Kind
    samples: int
    power_w: float | None
    """Median, or mean by the difference of a counter; None where there is none."""
    sd_w: float | None
    unusable: dict[str, int]
    """Samples without a value, by quality."""

    def __str__(self) -> str:
        power = "no value" if self.power_w is None else f"{self.power_w:.4g} W"
        spread = "" if self.sd_w is None else f" sd {self.sd_w:.2g} W"
        unusable = "".join(f" {count} {quality}" for quality, count in self.unusable.items())
        return f"{self.name}={self.scope} {self.kind.value} {power}{spread}{unusable}"


@dataclass(frozen=True, slots=True)
class MeterTrial:
    """What a meter delivered in a short time."""

    info: MeterInfo
    frames: int
    period_s: float | None
    """Median time between frames as they arrived; None below two."""
    skipped_bytes: int
    channels: list[ChannelTrial]

    @property
    def is_good(self) -> bool:
        """Each channel had a value."""
        return all(channel.power_w is not None for channel in self.channels)

    def __str__(self) -> str:
        period = "?" if self.period_s is None else f"{self.period_s:.3g}"
        stamp = " MODELLED" if self.info.is_modelled else ""
        what = self.info.identity or self.info.kind
        head = f"{what}{stamp}: {self.frames} frames, one each {period} s"
        skipped = f", {self.skipped_bytes} bytes skipped" if self.skipped_bytes else ""
        return "; ".join([head + skipped, *map(str, self.channels)])


def self_test(meter: Meter, seconds: float) -> MeterTrial:
    """Opens a meter, listens for so long, and closes it. Raises MeterLost.

    At least two frames are waited for, within the bounds that the driver itself has.
    """
    samples: list[Sample] = []
    arrivals: list[int] = []
    try:
        meter.open()
        deadline = time.monotonic() + seconds
        for frame in meter.stream():
            samples.extend(frame.samples)
            arrivals.append(frame.samples[0].mono)
            if time.monotonic() >= deadline and len(arrivals) > 1:
                break
        info = meter.describe()
        skipped_bytes = meter.skipped()
    finally:
        meter.close()
    if not arrivals:
        raise MeterLost("cannot try a meter: it delivered nothing")
    steps = [after - before for before, after in zip(arrivals, arrivals[1:], strict=False)]
    return MeterTrial(
        info=info,
        frames=len(arrivals),
        period_s=statistics.median(steps) / 1e9 if steps else None,
        skipped_bytes=skipped_bytes,
        channels=[
            _channel(one.name, one.scope, one.kind, [s for s in samples if s.channel == one.name])
            for one in info.channels
        ],
    )


def _channel(name: str, scope: str, kind: Kind, samples: list[Sample]) -> ChannelTrial:
    unusable: dict[str, int] = {}
    for sample in samples:
        if not sample.quality.is_usable:
            unusable[sample.quality.value] = unusable.get(sample.quality.value, 0) + 1
    power_w, sd_w = _counted(samples) if kind is Kind.COUNTER else _averaged(samples)
    return ChannelTrial(name, scope, kind, len(samples), power_w, sd_w, unusable)


def _averaged(samples: list[Sample]) -> tuple[float | None, float | None]:
    values = [sample.value for sample in samples if sample.value is not None]
    if not values:
        return None, None
    return statistics.median(values), statistics.stdev(values) if len(values) > 1 else None


def _counted(samples: list[Sample]) -> tuple[float | None, float | None]:
    # Only what comes behind the last new beginning is one count.
    begun = [index for index, one in enumerate(samples) if one.quality is Quality.RESET]
    rest = [one for one in samples[begun[-1] + 1 if begun else 0 :] if one.value is not None]
    if len(rest) < 2 or rest[-1].mono == rest[0].mono:
        return None, None
    assert rest[-1].value is not None
    assert rest[0].value is not None
    return (rest[-1].value - rest[0].value) / ((rest[-1].mono - rest[0].mono) / 1e9), None
