# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Shelly plugs and meters of the second generation and later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from terrace_lab.hosts import AgentHost
from terrace_lab.meters.base import MeterInfo
from terrace_lab.meters.channels import read_period, read_quantity, read_scope, read_timeout
from terrace_lab.meters.plugs import Plug
from terrace_lab.meters.polled import PolledMeter, Reading
from terrace_lab.meters.web import Web, number_at, read_place
from terrace_lab.records import Kind, Quality
from terrace_lab.settings import Settings

_WH_J = 3600.0
_NO_POWER = ("power_meas", "out_of_range:apower")
_OVER = ("overpower", "overvoltage", "overcurrent")


def make(name: str, settings: Settings, _hosts: Mapping[str, AgentHost]) -> PolledMeter:
    """Asks for the status of one component: `Switch`, or `PM1` where a device only measures."""
    period_s = read_period(settings, 1.0, least_s=0.1)
    place = read_place(settings, read_timeout(settings, period_s))
    is_counter = read_quantity(settings, "power") == "energy"
    component = settings.choice("component", ("Switch", "PM1"), "Switch")
    number = settings.integer("id", 0)
    kind = Kind.COUNTER if is_counter else Kind.INSTANT
    channels = read_scope(settings, name, kind, gain=0.02, offset_w=0.5)

    def value(answer: Any) -> Reading:
        errors = answer.get("errors", []) if isinstance(answer, dict) else []
        if any(error in _OVER for error in errors):
            return Reading(None, Quality.OVERRANGE)
        if any(error in _NO_POWER for error in errors):
            return Reading(None, Quality.NAN)
        path = ("aenergy", "total") if is_counter else ("apower",)
        found = number_at(answer, *path)
        if found is None:
            return Reading(None, Quality.NAN)
        return Reading(found * _WH_J if is_counter else found)

    info = MeterInfo("shelly", channels, period_s, f"Shelly {component}", is_modelled=False)
    path = f"/rpc/{component}.GetStatus?id={number}"
    return PolledMeter(name, Plug(Web(place), path, value, is_counter=is_counter), info)
