# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What plugs with a web server have in common: one request, one power, one counter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from terrace_lab.meters.counting import EnergyCounter
from terrace_lab.meters.polled import Answer, Reading
from terrace_lab.meters.web import Web
from terrace_lab.records import now


class Plug:
    """A device that answers one path with all that it measures."""

    def __init__(
        self, web: Web, path: str, value: Callable[[Any], Reading], *, is_counter: bool
    ) -> None:
        """`value` finds watts or joules in the answer; its MeterLost says that there are none."""
        self._web = web
        self._path = path
        self._value = value
        self._counter = EnergyCounter() if is_counter else None

    def connect(self) -> str:
        return ""

    def disconnect(self) -> None:
        self._web.close()

    def read(self) -> Answer:
        response = self._web.get(self._path)
        reading = self._value(response.json())
        if self._counter is not None and reading.value is not None:
            reading = Reading(*self._counter.take(reading.value, now().raw_ns))
        return Answer(response.body, {"1": reading})
