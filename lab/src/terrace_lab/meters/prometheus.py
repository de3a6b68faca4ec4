# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Whatever a Prometheus server knows as power or energy, by a query for each channel."""

from __future__ import annotations

import math
import urllib.parse
from collections.abc import Mapping
from typing import Any

from terrace_lab.errors import MeterLost
from terrace_lab.hosts import AgentHost
from terrace_lab.meters.base import MeterInfo
from terrace_lab.meters.channels import read_channels, read_period, read_timeout
from terrace_lab.meters.counting import EnergyCounter
from terrace_lab.meters.polled import Answer, PolledMeter, Reading
from terrace_lab.meters.web import Web, basic, read_password, read_place
from terrace_lab.records import Kind, Quality, now
from terrace_lab.settings import Settings


class _Server:
    """One Prometheus server, or what speaks its query interface."""

    def __init__(self, web: Web, queries: Mapping[str, str], factor: float, *, is_counter: bool):
        self._web = web
        self._queries = queries
        self._factor = factor
        self._counters = {name: EnergyCounter() for name in queries} if is_counter else {}

    def connect(self) -> str:
        return ""

    def disconnect(self) -> None:
        self._web.close()

    def read(self) -> Answer:
        raw = []
        readings = {}
        for name, query in self._queries.items():
            text = urllib.parse.urlencode({"query": query})
            response = self._web.get(f"/api/v1/query?{text}")
            raw.append(response.body)
            readings[name] = self._reading(name, response.json())
        return Answer(b"\n".join(raw), readings)

    def _reading(self, name: str, answer: Any) -> Reading:
        try:
            if answer["status"] != "success":
                raise MeterLost(f"cannot read a meter: {answer.get('error')} channel={name}")
            kind, result = answer["data"]["resultType"], answer["data"]["result"]
            if kind == "vector" and not result:
                # The exporter is away; the server has no value to tell.
                return Reading(None, Quality.NAN)
            if kind == "vector" and len(result) != 1:
                raise MeterLost(f"cannot read a meter: {len(result)} series are one channel {name}")
            value = float(result[0]["value"][1] if kind == "vector" else result[1])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            raise MeterLost(f"cannot read a meter: {str(answer)[:80]} is no result") from None
        if math.isnan(value):
            return Reading(None, Quality.NAN)
        if math.isinf(value):
            return Reading(None, Quality.OVERRANGE)
        value *= self._factor
        if name in self._counters:
            return Reading(*self._counters[name].take(value, now().raw_ns))
        return Reading(value)


def make(name: str, settings: Settings, _hosts: Mapping[str, AgentHost]) -> PolledMeter:
    """`queries` has the query of each channel, which must come to one series."""
    kind = Kind(settings.choice("value_kind", tuple(Kind), Kind.INSTANT.value))
    period_s = read_period(settings, 1.0, least_s=0.1)
    timeout_s = read_timeout(settings, period_s)
    window_s = settings.seconds("window", period_s)
    channels = read_channels(settings, kind, gain=0.05, offset_w=5.0)
    table = settings.table("queries")
    queries = {channel.name: table.text(channel.name) for channel in channels}
    table.finish()
    web = Web(read_place(settings, timeout_s / len(channels)))
    password = read_password(settings)
    if password is not None:
        # A token where there is no user: what proxies in front of such servers ask for.
        user = settings.text("user", "")
        web.headers["Authorization"] = basic(user, password) if user else f"Bearer {password}"
    factor = settings.number("factor", 1.0)
    server = _Server(web, queries, factor, is_counter=kind is Kind.COUNTER)
    info = MeterInfo("prometheus", channels, period_s, "Prometheus", is_modelled=False)
    return PolledMeter(name, server, info, window_s=window_s)
