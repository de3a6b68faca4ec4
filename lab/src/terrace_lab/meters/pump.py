# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Keeps one driver going: opens it, reads it, and brings it back for as long as it takes.

Runs in a thread of its own and hands over what happens in a bounded queue, so that neither a slow
disk holds up the device nor a silent device what watches over it.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass

from terrace_lab.errors import MeterLost
from terrace_lab.meters.base import Frame, Meter, MeterInfo
from terrace_lab.records import Stamp, now

QUEUE_FRAMES = 4096
"""Over three minutes of the fastest meter; a device waits when it is full, nothing is dropped."""
BACK_OFF_FIRST_S = 0.05
BACK_OFF_MAX_S = 5.0


@dataclass(frozen=True, slots=True)
class Opened:
    """The device answers."""

    at: Stamp
    info: MeterInfo


@dataclass(frozen=True, slots=True)
class Arrived:
    """A frame, with when it came."""

    at: Stamp
    frame: Frame


@dataclass(frozen=True, slots=True)
class Skipped:
    """Bytes that were no frame."""

    at: Stamp
    count: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The device is gone, or does not say anything that could be used."""

    at: Stamp
    cause: str


@dataclass(frozen=True, slots=True)
class Finished:
    """A driver with an end, such as an import, came to it."""

    at: Stamp


Event = Opened | Arrived | Skipped | Lost | Finished


class Pump(threading.Thread):
    """Reads a driver until it is told to stop."""

    def __init__(self, meter: Meter, *, back_off_max_s: float = BACK_OFF_MAX_S) -> None:
        super().__init__(name="meter", daemon=True)
        self.events: queue.Queue[Event] = queue.Queue(QUEUE_FRAMES)
        self._meter = meter
        self._back_off_max_s = back_off_max_s
        self._is_stopping = threading.Event()

    def stop(self) -> None:
        """Asks the thread to end; `join` it with a bound."""
        self._is_stopping.set()

    def run(self) -> None:
        back_off_s = BACK_OFF_FIRST_S
        is_open = False
        try:
            while not self._is_stopping.is_set():
                frames = 0
                try:
                    is_open = self._make_ready(is_open)
                    for frame in self._meter.stream():
                        at = now()
                        self._report_skipped(at)
                        self._put(Arrived(at, frame))
                        frames += 1
                        if self._is_stopping.is_set():
                            return
                    self._report_skipped(now())
                    self._put(Finished(now()))
                    return
                except MeterLost as lost:
                    cause = str(lost)
                except Exception as error:  # a driver that fails must not end the record
                    cause = f"driver failed: {type(error).__name__}: {error}"
                at = now()
                self._report_skipped(at)
                self._put(Lost(at, cause))
                if frames > 0:
                    back_off_s = BACK_OFF_FIRST_S
                elif is_open:
                    # Resynchronising brought nothing: begin with the connection.
                    self._close()
                    is_open = False
                self._is_stopping.wait(back_off_s)
                back_off_s = min(back_off_s * 2, self._back_off_max_s)
        finally:
            self._close()

    def _make_ready(self, is_open: bool) -> bool:
        if is_open:
            try:
                self._meter.resync()
                return True
            except MeterLost:
                self._close()
        self._meter.open()
        self._put(Opened(now(), self._meter.describe()))
        return True

    def _report_skipped(self, at: Stamp) -> None:
        count = self._meter.skipped()
        if count > 0:
            self._put(Skipped(at, count))

    def _close(self) -> None:
        # `close` never raises by contract; a driver that breaks it must not end the record.
        try:
            self._meter.close()
        except Exception as error:
            self._put(Lost(now(), f"driver failed to close: {type(error).__name__}: {error}"))

    def _put(self, event: Event) -> None:
        while True:
            try:
                self.events.put(event, timeout=0.1)
                return
            except queue.Full:
                if self._is_stopping.is_set():
                    return
