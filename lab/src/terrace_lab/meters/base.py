# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a power meter is to the lab."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from terrace_lab.records import Kind, Sample


@dataclass(frozen=True, slots=True)
class Channel:
    """One quantity that a meter delivers."""

    name: str
    scope: str
    kind: Kind
    gain: float
    """Error in proportion to the value: 0.001 is 0.1 %."""
    offset_w: float
    """Error that does not depend on the value, in watts."""


@dataclass(frozen=True, slots=True)
class MeterInfo:
    """What a meter says about itself once it is open."""

    kind: str
    channels: tuple[Channel, ...]
    period_s: float
    """Time between two frames when all is well."""
    identity: str
    """Model, firmware and serial number as the device tells them; empty where it has none."""
    is_modelled: bool
    stuck_after: int = 0
    """Frames with the same bits after which a channel counts as stuck; 0 where readings are so
    coarse, or rest so often, that this says nothing."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What arrived together: the bytes as they were, and what they mean."""

    raw: bytes
    samples: tuple[Sample, ...]


def gap_limit_s(period_s: float) -> float:
    """How long a meter may be silent before that is a gap."""
    return max(3 * period_s, 1.0)


class Meter(Protocol):
    """A driver. It runs in a process of its own, which writes what it delivers.

    # Contract

    - `open` may be called again after `close`, and after any method has raised `MeterLost`.
    - `stream` yields frames for ever. It never invents one: where the device delivers nothing it
      raises `MeterLost` after at most `max(3 periods, 1 s)`, and a value that the device does not
      have, or that is out of range, is a sample without a value and with that quality.
    - A frame that was cut, doubled or garbled is not decoded to anything: `stream` raises
      `MeterLost` with the bytes in the message, or finds the next whole frame by itself where the
      protocol has marks for that and says so with `skipped`.
    - Every method is bounded in time, by 10 s unless it says otherwise.
    """

    def describe(self) -> MeterInfo: ...
    def open(self) -> None: ...
    def stream(self) -> Iterator[Frame]: ...
    def resync(self) -> None:
        """Brings device and driver to a known state after `MeterLost`, on an open connection."""
        ...

    def close(self) -> None:
        """Leaves the device as it was found, as far as it still listens; never raises."""
        ...

    def skipped(self) -> int:
        """Bytes that `stream` had to pass over since the last call."""
        ...
