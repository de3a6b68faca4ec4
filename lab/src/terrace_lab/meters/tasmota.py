# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Plugs with the Tasmota firmware."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from typing import Any

from terrace_lab.hosts import AgentHost
from terrace_lab.meters.base import MeterInfo
from terrace_lab.meters.channels import read_period, read_quantity, read_scope, read_timeout
from terrace_lab.meters.plugs import Plug
from terrace_lab.meters.polled import PolledMeter, Reading
from terrace_lab.meters.web import Web, number_at, read_password, read_place
from terrace_lab.records import Kind, Quality
from terrace_lab.settings import Settings

_KWH_J = 3.6e6


def make(name: str, settings: Settings, _hosts: Mapping[str, AgentHost]) -> PolledMeter:
    """Asks for `Status 10`, which has the sensors."""
    period_s = read_period(settings, 1.0, least_s=0.1)
    place = read_place(settings, read_timeout(settings, period_s))
    is_counter = read_quantity(settings, "power") == "energy"
    outlet = settings.integer("outlet", 1, least=1)
    query = {"cmnd": "status 10"}
    password = read_password(settings)
    if password is not None:
        query = {"user": settings.text("user", "admin"), "password": password, **query}
    kind = Kind.COUNTER if is_counter else Kind.INSTANT
    channels = read_scope(settings, name, kind, gain=0.02, offset_w=1.0)

    def value(answer: Any) -> Reading:
        path: tuple[str | int, ...] = ("StatusSNS", "ENERGY", "Total" if is_counter else "Power")
        try:
            is_list = isinstance(answer["StatusSNS"]["ENERGY"][path[-1]], list)
        except (KeyError, TypeError):
            is_list = False
        # One number where there is one outlet, a list where there are several.
        found = number_at(answer, *path, *((outlet - 1,) if is_list else ()))
        if found is None:
            return Reading(None, Quality.NAN)
        return Reading(found * _KWH_J if is_counter else found)

    path = "/cm?" + urllib.parse.urlencode(query, quote_via=urllib.parse.quote)
    info = MeterInfo("tasmota", channels, period_s, "Tasmota", is_modelled=False)
    return PolledMeter(name, Plug(Web(place), path, value, is_counter=is_counter), info)
