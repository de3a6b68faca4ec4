# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Sensors of power and energy that Linux's hwmon shows: INA2xx shunts, boards, some devices."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

from terrace_lab.errors import MeterLost
from terrace_lab.hosts import AgentHost
from terrace_lab.meters.base import MeterInfo
from terrace_lab.meters.channels import read_channels, read_period
from terrace_lab.meters.counting import EnergyCounter
from terrace_lab.meters.polled import Answer, PolledMeter, Reading
from terrace_lab.meters.sysfs import Files, read_files
from terrace_lab.records import Kind, now
from terrace_lab.settings import Settings

# Documentation/hwmon/sysfs-interface.rst: microwatts and microjoules.
_SENSOR = re.compile(r"([A-Za-z0-9_.-]+)/(power|energy)([0-9]+)_(input|average)\Z")


class _Sensors:
    """The sensors that channels name as DEVICE/FILE."""

    def __init__(self, files: Files, root: Path, names: tuple[str, ...]) -> None:
        self._files = files
        self._root = root
        self._names = names
        self._paths: dict[str, str] = {}
        self._counters = {name: EnergyCounter() for name in names if "/energy" in name}

    def connect(self) -> str:
        self._files.connect()
        found = self._files.find(f"{self._root}/hwmon*/name")
        devices = [path.rpartition("/")[0] for path in found]
        named = list(zip(devices, self._files.read(found), strict=True))
        for name in self._names:
            wanted, _, file = name.partition("/")
            paths = [path for path, known in named if wanted in (known, path.rpartition("/")[2])]
            if len(paths) != 1:
                known = ", ".join(f"{path.rpartition('/')[2]} ({one})" for path, one in named)
                raise MeterLost(
                    f"cannot open a meter: {len(paths)} devices are {wanted!r}, there are {known}"
                )
            self._paths[name] = f"{paths[0]}/{file}"
        return "hwmon " + " ".join(self._names)

    def disconnect(self) -> None:
        self._files.disconnect()

    def read(self) -> Answer:
        texts = self._files.read(list(self._paths.values()))
        raw_ns = now().raw_ns
        readings = {}
        for name, text in zip(self._paths, texts, strict=True):
            try:
                value = int(text) / 1e6
            except ValueError:
                raise MeterLost(f"cannot read a meter: {text[:40]!r} is no number") from None
            counter = self._counters.get(name)
            readings[name] = (
                Reading(value) if counter is None else Reading(*counter.take(value, raw_ns))
            )
        return Answer(" ".join(texts).encode(), readings)


def make(name: str, settings: Settings, hosts: Mapping[str, AgentHost]) -> PolledMeter:
    """Channels are `DEVICE/power1_input`, `power1_average` or `energy1_input`."""
    files, root = read_files(settings, hosts, "/sys/class/hwmon")
    channels = []
    for channel in read_channels(settings, Kind.INSTANT, gain=0.01, offset_w=0.1):
        match = _SENSOR.match(channel.name)
        if match is None or (match[2], match[4]) == ("energy", "average"):
            raise settings.error(
                "channels",
                f"{channel.name!r} is not DEVICE/powerN_input, powerN_average or energyN_input",
            )
        kind = Kind.INSTANT
        if match[2] == "energy":
            kind = Kind.COUNTER
        elif match[4] == "average":
            kind = Kind.AVERAGE
        channels.append(dataclasses.replace(channel, kind=kind))
    period_s = read_period(settings, 0.1, least_s=0.005)
    window_s = settings.seconds("window", period_s)
    sensors = _Sensors(files, root, tuple(one.name for one in channels))
    info = MeterInfo("hwmon", tuple(channels), period_s, "", is_modelled=False)
    return PolledMeter(name, sensors, info, window_s=window_s)
