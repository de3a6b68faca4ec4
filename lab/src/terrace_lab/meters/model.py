# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Power that is computed from what hosts do, for machines without any meter.

P = idle_w + cpu_w * busy processors + disk_w * busy disks + network_w * GB/s + noise. Good for
trying out everything else; no number that it gives is one about energy, and each says so.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from terrace_lab import agent
from terrace_lab.errors import LabError, MeterLost
from terrace_lab.hosts import AgentHost
from terrace_lab.meters.base import MeterInfo, gap_limit_s
from terrace_lab.meters.channels import read_channels, read_period
from terrace_lab.meters.polled import Answer, PolledMeter, Reading
from terrace_lab.records import Kind, Quality
from terrace_lab.settings import Settings

_STACKED = ("dm-", "loop", "md", "ram", "zram")
"""Block devices that only pass on to others, or are none."""


@dataclass(frozen=True, slots=True)
class Coefficients:
    """What a host takes."""

    idle_w: float
    cpu_w: float
    """For each processor that is busy."""
    disk_w: float
    """For each disk that is busy."""
    network_w: float
    """For each GB/s that is sent or received."""
    noise_w: float
    """Standard deviation of one sample."""


class Activity:
    """What a host did between two readings of its counters."""

    def __init__(self) -> None:
        self._last: dict[str, Any] | None = None

    def power_w(self, counters: dict[str, Any], coefficients: Coefficients) -> float | None:
        """Mean power since the last call, without noise; None for the first."""
        last, self._last = self._last, counters
        if last is None:
            return None
        seconds = (counters["at"]["raw_ns"] - last["at"]["raw_ns"]) / 1e9
        if seconds <= 0:
            return None
        # Counters of a time that is shorter than their tick may go back by one.
        busy: float = max(0.0, counters["cpu"]["busy_s"] - last["cpu"]["busy_s"]) / seconds
        disks = sum(
            min(1.0, max(0.0, _difference(counters, last, "disks", name, "busy_s")) / seconds)
            for name in counters["disks"]
            if not name.startswith(_STACKED)
        )
        moved = sum(
            max(0.0, _difference(counters, last, "network", name, way))
            for name in counters["network"]
            if name != "lo"
            for way in ("received_bytes", "sent_bytes")
        )
        power_w: float = (
            coefficients.idle_w
            + coefficients.cpu_w * min(busy, counters["processors"])
            + coefficients.disk_w * disks
            + coefficients.network_w * moved / seconds / 1e9
        )
        return power_w


def _difference(
    counters: dict[str, Any], last: dict[str, Any], table: str, name: str, what: str
) -> float:
    """How far a counter has come; nothing for a device that was not there before."""
    before = last[table].get(name)
    return 0.0 if before is None else float(counters[table][name][what] - before[what])


class _Counters:
    """The counters of all hosts as a source of modelled power."""

    def __init__(
        self,
        scopes: Mapping[str, str],
        hosts: Mapping[str, AgentHost],
        coefficients: Coefficients,
        noise: random.Random,
    ) -> None:
        self._scopes = scopes
        self._hosts = hosts
        self._coefficients = coefficients
        self._noise = noise
        self._activities: dict[str, Activity] = {}

    def connect(self) -> str:
        self._activities = {name: Activity() for name in self._scopes}
        for name in self._scopes:
            host = self._hosts.get(name)
            if host is not None and not host.is_local:
                try:
                    host.connect()
                except LabError as error:
                    raise MeterLost(str(error)) from error
            # Averages are over a time: this begins it.
            self._power_w(name)
        return ""

    def disconnect(self) -> None:
        for name in self._scopes:
            if name in self._hosts:
                self._hosts[name].close()

    def read(self) -> Answer:
        readings = {}
        for name in self._scopes:
            power_w = self._power_w(name)
            if power_w is not None:
                power_w += self._noise.gauss(0.0, self._coefficients.noise_w)
                readings[name] = Reading(max(0.0, power_w), Quality.MODEL)
        return Answer(b"", readings)

    def _power_w(self, name: str) -> float | None:
        host = self._hosts.get(name)
        try:
            counters = agent.activity() if host is None or host.is_local else host.counters()
        except (LabError, OSError, ValueError) as error:
            raise MeterLost(f"cannot read counters: {error} host={name}") from error
        return self._activities[name].power_w(counters, self._coefficients)


def make(name: str, settings: Settings, hosts: Mapping[str, AgentHost]) -> PolledMeter:
    """Channels are hosts; by default all of the experiment, or else this machine as `here`."""
    channels = read_channels(
        settings,
        Kind.AVERAGE,
        gain=0.3,
        offset_w=10.0,
        default={host: host for host in hosts} or {"here": "here"},
    )
    for channel in channels:
        if hosts and channel.name not in hosts:
            known = ", ".join(hosts)
            raise settings.error("channels", f"{channel.name!r} is no host, only {known}")
    period_s = read_period(settings, 0.1, least_s=0.02)
    coefficients = Coefficients(
        idle_w=settings.number("idle_w", 40.0),
        cpu_w=settings.number("cpu_w", 10.0),
        disk_w=settings.number("disk_w", 6.0),
        network_w=settings.number("network_w", 2.0),
        noise_w=settings.number("noise_w", 0.5),
    )
    source = _Counters(
        {channel.name: channel.scope for channel in channels},
        hosts,
        coefficients,
        random.Random(settings.integer("seed", 0)),
    )
    info = MeterInfo("model", channels, period_s, "", is_modelled=True)
    # Each value is the mean since the one before, also where a busy machine asks late.
    return PolledMeter(name, source, info, window_max_s=gap_limit_s(period_s))
