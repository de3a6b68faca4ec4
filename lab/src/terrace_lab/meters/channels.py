# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Settings that drivers have in common: which channels there are, how exact, and how often."""

from __future__ import annotations

from collections.abc import Mapping

from terrace_lab.meters.base import Channel, gap_limit_s
from terrace_lab.records import Kind
from terrace_lab.settings import Settings

PERIOD_MAX_S = 10.0
"""A driver that sleeps for longer would not end when it is asked to."""


def read_channels(
    settings: Settings,
    kind: Kind,
    *,
    gain: float,
    offset_w: float,
    default: Mapping[str, str] | None = None,
) -> tuple[Channel, ...]:
    """Reads `channels` (channel to scope), `gain` and `offset_w`; the last two have defaults.

    Raises SettingsError where there are no channels, neither given nor by default.
    """
    table = settings.table("channels")
    scopes = {key: table.text(key) for key in table.values} or dict(default or {})
    if not scopes:
        raise settings.error("channels", "is missing: a table of channel = scope")
    gain = settings.number("gain", gain)
    offset_w = settings.number("offset_w", offset_w)
    return tuple(Channel(name, scope, kind, gain, offset_w) for name, scope in scopes.items())


def read_scope(
    settings: Settings, name: str, kind: Kind, *, gain: float, offset_w: float
) -> tuple[Channel, ...]:
    """Reads `scope` of a meter that has one channel, by default the name of the meter."""
    return read_channels(
        settings, kind, gain=gain, offset_w=offset_w, default={"1": settings.text("scope", name)}
    )


def read_period(settings: Settings, default_s: float, *, least_s: float = 0.001) -> float:
    """Reads `period`, the time between two readings."""
    period_s = settings.seconds("period", default_s)
    if not least_s <= period_s <= PERIOD_MAX_S:
        raise settings.error("period", f"must be from {least_s:g} to {PERIOD_MAX_S:g} s")
    return period_s


def read_timeout(settings: Settings, period_s: float) -> float:
    """Reads `timeout`, the longest that one request may take; by default what makes a gap."""
    timeout_s = settings.seconds("timeout", min(gap_limit_s(period_s), 9.0))
    if not 0.05 <= timeout_s <= 9.0:
        raise settings.error("timeout", "must be from 0.05 to 9 s")
    return timeout_s


def read_quantity(settings: Settings, default: str) -> str:
    """Reads whether a meter that has both gives `power` or its counter of `energy`."""
    return settings.choice("quantity", ("power", "energy"), default)
