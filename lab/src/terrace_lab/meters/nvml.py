# SPDX-License-Identifier: Apache-2.0 OR MIT
"""NVIDIA accelerators of this machine, through the library of their driver."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

from terrace_lab.errors import MeterLost
from terrace_lab.hosts import AgentHost
from terrace_lab.meters.base import Channel, MeterInfo
from terrace_lab.meters.channels import read_channels, read_period
from terrace_lab.meters.counting import EnergyCounter
from terrace_lab.meters.polled import Answer, PolledMeter, Reading
from terrace_lab.records import Kind, now
from terrace_lab.settings import Settings


class _Devices:
    """Accelerators by index or UUID."""

    def __init__(self, names: tuple[str, ...], quantity: str) -> None:
        self._names = names
        self._quantity = quantity
        self._library: Any = None
        self._handles: dict[str, Any] = {}
        self._counters = {name: EnergyCounter() for name in names}
        self.has_counter: dict[str, bool] = {}

    def connect(self) -> str:
        if self._library is not None:
            self.disconnect()
        try:
            import pynvml
        except ImportError as error:
            raise MeterLost(f"cannot open a meter: nvidia-ml-py is missing: {error}") from error
        self._library = pynvml
        return str(self._call(self._connect))

    def _connect(self) -> str:
        library = self._library
        library.nvmlInit()
        self._handles = {
            name: library.nvmlDeviceGetHandleByIndex(int(name))
            if name.isdigit()
            else library.nvmlDeviceGetHandleByUUID(name)
            for name in self._names
        }
        self.has_counter = {name: self._counts(name) for name in self._names}
        said = [library.nvmlDeviceGetUUID(handle) for handle in self._handles.values()]
        return f"NVML {library.nvmlSystemGetDriverVersion()} {' '.join(map(str, said))}"

    def _counts(self, name: str) -> bool:
        if self._quantity == "power":
            return False
        try:
            self._library.nvmlDeviceGetTotalEnergyConsumption(self._handles[name])
        except self._library.NVMLError:
            if self._quantity == "energy":
                raise
            return False
        return True

    def disconnect(self) -> None:
        if self._library is not None:
            # The driver may be what has gone.
            with contextlib.suppress(self._library.NVMLError):
                self._library.nvmlShutdown()
            self._library = None

    def read(self) -> Answer:
        if self._library is None:
            raise MeterLost("cannot read a meter: not connected")
        readings = {}
        raw = []
        for name, handle in self._handles.items():
            if self.has_counter[name]:
                ask = self._library.nvmlDeviceGetTotalEnergyConsumption
            else:
                ask = self._library.nvmlDeviceGetPowerUsage
            # Millijoules and milliwatts.
            value = int(self._call(functools.partial(ask, handle)))
            raw.append(str(value))
            if self.has_counter[name]:
                count = self._counters[name].take(value / 1e3, now().raw_ns)
                readings[name] = Reading(*count)
            else:
                readings[name] = Reading(value / 1e3)
        return Answer(" ".join(raw).encode(), readings)

    def _call(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except self._library.NVMLError as error:
            raise MeterLost(f"cannot read a meter: {error}") from error


def make(name: str, settings: Settings, _hosts: Mapping[str, AgentHost]) -> PolledMeter:
    """Takes the energy counter where the device has one, else its power."""
    channels = read_channels(settings, Kind.COUNTER, gain=0.05, offset_w=5.0)
    quantity = settings.choice("quantity", ("auto", "energy", "power"), "auto")
    # Ampere except GA100 and all later ones average over 1 s; 0 says that the device does not.
    window_s = settings.seconds("power_window", 1.0)
    period_s = read_period(settings, 0.1, least_s=0.02)
    devices = _Devices(tuple(one.name for one in channels), quantity)
    info = MeterInfo("nvml", channels, period_s, "", is_modelled=False)
    without = Kind.AVERAGE if window_s > 0 else Kind.INSTANT

    def discover() -> tuple[Channel, ...]:
        return tuple(
            Channel(
                one.name,
                one.scope,
                Kind.COUNTER if devices.has_counter[one.name] else without,
                one.gain,
                one.offset_w,
            )
            for one in channels
        )

    return PolledMeter(name, devices, info, window_s=window_s or period_s, discover=discover)
