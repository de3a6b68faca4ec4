# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Energy counters of processors and their memory, by Linux's powercap."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from terrace_lab.errors import MeterLost
from terrace_lab.hosts import AgentHost
from terrace_lab.meters.base import Channel, MeterInfo
from terrace_lab.meters.channels import read_period
from terrace_lab.meters.counting import EnergyCounter
from terrace_lab.meters.polled import Answer, PolledMeter, Reading
from terrace_lab.meters.sysfs import Files, read_files
from terrace_lab.records import Kind, now
from terrace_lab.settings import Settings

_DOMAINS = ("package", "dram", "psys", "core", "uncore")


class _Domains:
    """The domains that were asked for; `package-0/dram` is the memory at `package-0`."""

    def __init__(self, files: Files, root: Path, wanted: tuple[str, ...]) -> None:
        self._files = files
        self._root = root
        self._wanted = wanted
        self._paths: dict[str, str] = {}
        # Kept over reconnections, so that a counter that wrapped meanwhile goes on.
        self._counters: dict[str, EnergyCounter] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._paths)

    def connect(self) -> str:
        self._files.connect()
        # Only `intel-rapl:`, which AMD has as well: `intel-rapl-mmio:` counts the same again.
        found = self._files.find(f"{self._root}/intel-rapl:*")
        names = dict(zip(found, self._files.read([f"{one}/name" for one in found]), strict=True))
        self._paths = {}
        for path, name in names.items():
            parent, _, _ = path.rpartition(":")
            is_below = parent in names
            if name.split("-")[0] in self._wanted:
                self._paths[f"{names[parent]}/{name}" if is_below else name] = path
        if not self._paths:
            raise MeterLost(f"cannot open a meter: no such domain root={self._root}")
        ranges = self._files.read([f"{one}/max_energy_range_uj" for one in self._paths.values()])
        for name, range_uj in zip(self._paths, ranges, strict=True):
            range_j = _joules(range_uj)
            if name not in self._counters:
                self._counters[name] = EnergyCounter(range_j)
        return "RAPL " + " ".join(self._paths)

    def disconnect(self) -> None:
        self._files.disconnect()

    def read(self) -> Answer:
        texts = self._files.read([f"{one}/energy_uj" for one in self._paths.values()])
        raw_ns = now().raw_ns
        readings = {
            name: Reading(*self._counters[name].take(_joules(text), raw_ns))
            for name, text in zip(self._paths, texts, strict=True)
        }
        return Answer(" ".join(texts).encode(), readings)


def _joules(microjoules: str) -> float:
    try:
        return int(microjoules) / 1e6
    except ValueError:
        raise MeterLost(f"cannot read a meter: {microjoules[:40]!r} is no counter") from None


def make(name: str, settings: Settings, hosts: Mapping[str, AgentHost]) -> PolledMeter:
    """Adds up, in one scope, the domains of one host."""
    files, root = read_files(settings, hosts, "/sys/class/powercap")
    wanted = settings.texts("domains", ("package", "dram"))
    for one in wanted:
        if one not in _DOMAINS:
            raise settings.error("domains", f"{one!r} is none of {', '.join(_DOMAINS)}")
    if "package" in wanted and {"core", "uncore"} & set(wanted):
        raise settings.error("domains", "core and uncore are in package already")
    host = settings.text("host", "")
    scope = settings.text("scope", host or name)
    gain, offset_w = settings.number("gain", 0.03), settings.number("offset_w", 0.5)
    period_s = read_period(settings, 0.1, least_s=0.01)
    domains = _Domains(files, root, wanted)
    info = MeterInfo("rapl", (), period_s, "", is_modelled=False)

    def discover() -> tuple[Channel, ...]:
        return tuple(Channel(one, scope, Kind.COUNTER, gain, offset_w) for one in domains.names)

    return PolledMeter(name, domains, info, discover=discover)
