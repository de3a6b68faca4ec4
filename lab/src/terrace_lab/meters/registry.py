# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Which kinds of meters there are, and what all of them can be told."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points

from terrace_lab.hosts import AgentHost
from terrace_lab.meters.base import Meter
from terrace_lab.settings import Settings

ENTRY_POINTS = "lab.meters"

Make = Callable[[str, Settings, Mapping[str, AgentHost]], Meter]
"""Makes a driver of its name, its table and the hosts of the experiment that have an agent; reads
what it understands, and leaves it to the registry to refuse the rest."""

_BUILT_IN = {
    kind: f"terrace_lab.meters.{module}:make"
    for kind, module in (
        ("csv", "csv_import"),
        ("hwmon", "hwmon"),
        ("ipmi", "ipmi"),
        ("lmg450", "lmg450"),
        ("lmg670", "lmg670"),
        ("model", "model"),
        ("nvml", "nvml"),
        ("prometheus", "prometheus"),
        ("rapl", "rapl"),
        ("redfish", "redfish"),
        ("replay", "replay"),
        ("shelly", "shelly"),
        ("snmp", "snmp"),
        ("tasmota", "tasmota"),
    )
}
"""Loaded when they are asked for, so that a missing library costs only those who need it."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What the table of any meter may say, whatever its kind.

    `required` and `backup_for` are for the runner, which takes them out before.
    """

    kind: str
    stuck_after: int | None
    """Frames; None leaves it to the driver, 0 never calls a channel stuck."""
    orphan_after_s: float
    """How long its process goes on without a living runner."""


def shared(settings: Settings) -> Shared:
    """Reads what is the same for all kinds. Raises SettingsError."""
    kind = settings.text("kind")
    known = kinds()
    if kind not in known:
        raise settings.error("kind", f"there is no meter {kind!r}, only {', '.join(known)}")
    stuck_after = settings.integer("stuck_after") if "stuck_after" in settings else None
    return Shared(
        kind=kind,
        stuck_after=stuck_after,
        orphan_after_s=settings.seconds("orphan_after", "1h"),
    )


def kinds() -> tuple[str, ...]:
    """All kinds that `create` knows, sorted."""
    return tuple(sorted({*_BUILT_IN, *(one.name for one in entry_points(group=ENTRY_POINTS))}))


def create(name: str, settings: Settings, hosts: Mapping[str, AgentHost] | None = None) -> Meter:
    """Makes the driver that a table asks for, without touching the device.

    Raises SettingsError where the table is wrong, an unknown kind or a setting too many included.
    """
    kind = shared(settings).kind
    settings.also_known("required", "backup_for")
    meter = _maker(kind)(name, settings, hosts or {})
    settings.finish()
    return meter


def _maker(kind: str) -> Make:
    if kind in _BUILT_IN:
        module, attribute = _BUILT_IN[kind].split(":")
        found: Make = getattr(importlib.import_module(module), attribute)
        return found
    entry, *_ = entry_points(group=ENTRY_POINTS, name=kind)
    made: Make = entry.load()
    return made
