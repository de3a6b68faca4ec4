# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a server's management controller says about its power, by Redfish."""

from __future__ import annotations

import contextlib
import urllib.parse
from collections.abc import Mapping

from terrace_lab.errors import MeterLost
from terrace_lab.hosts import AgentHost
from terrace_lab.meters.base import MeterInfo
from terrace_lab.meters.channels import read_channels, read_period, read_timeout
from terrace_lab.meters.counting import EnergyCounter
from terrace_lab.meters.polled import Answer, PolledMeter, Reading
from terrace_lab.meters.web import Web, basic, number_at, read_password, read_place
from terrace_lab.records import Kind, Quality, now
from terrace_lab.settings import Settings

_SESSIONS = "/redfish/v1/SessionService/Sessions"

_KWH_J = 3.6e6
_SOURCES: dict[str, tuple[str, tuple[str | int, ...], Kind]] = {
    "power": ("Power", ("PowerControl", 0, "PowerConsumedWatts"), Kind.INSTANT),
    "average": (
        "Power",
        ("PowerControl", 0, "PowerMetrics", "AverageConsumedWatts"),
        Kind.AVERAGE,
    ),
    "environment": ("EnvironmentMetrics", ("PowerWatts", "Reading"), Kind.INSTANT),
    "energy": ("EnvironmentMetrics", ("EnergykWh", "Reading"), Kind.COUNTER),
}
"""Resource of a chassis, where the value is in it, and what it is."""


class _Service:
    """One Redfish service."""

    def __init__(
        self, web: Web, auth: str, user: str, password: str, quantity: str, names: tuple[str, ...]
    ) -> None:
        self._web = web
        self._auth = auth
        self._user = user
        self._password = password
        self._resource, self._path, self._kind = _SOURCES[quantity]
        self._names = names
        self._session: str | None = None
        self._counters = {name: EnergyCounter() for name in names}

    def connect(self) -> str:
        self.disconnect()
        if self._auth == "basic":
            self._web.headers["Authorization"] = basic(self._user, self._password)
        elif self._auth == "session":
            who = {"UserName": self._user, "Password": self._password}
            response = self._web.post(_SESSIONS, who)
            token = response.headers.get("x-auth-token")
            if token is None:
                raise MeterLost("cannot open a meter: a session without a token")
            self._web.headers["X-Auth-Token"] = token
            # The path alone: some services name themselves by an address of their own.
            self._session = urllib.parse.urlsplit(response.headers.get("location", "")).path
        said = self._web.get("/redfish/v1/").json()
        if not isinstance(said, dict):
            raise MeterLost("cannot open a meter: its root is no object")
        return f"Redfish {said.get('RedfishVersion', '?')} {said.get('UUID', '')}".strip()

    def disconnect(self) -> None:
        session, self._session = self._session, None
        if session:
            # Controllers have few sessions, and keep those that nobody ends for long.
            with contextlib.suppress(MeterLost):
                self._web.request("DELETE", session)
        self._web.headers.pop("X-Auth-Token", None)
        self._web.close()

    def read(self) -> Answer:
        raw = []
        readings = {}
        for name in self._names:
            quoted = urllib.parse.quote(name, safe="")
            response = self._web.get(f"/redfish/v1/Chassis/{quoted}/{self._resource}")
            raw.append(response.body)
            value = number_at(response.json(), *self._path)
            if value is None:
                # A service that is starting, or a supply that does not measure.
                readings[name] = Reading(None, Quality.NAN)
            elif self._kind is Kind.COUNTER:
                count = self._counters[name].take(value * _KWH_J, now().raw_ns)
                readings[name] = Reading(*count)
            else:
                readings[name] = Reading(value)
        return Answer(b"\n".join(raw), readings)


def make(name: str, settings: Settings, _hosts: Mapping[str, AgentHost]) -> PolledMeter:
    """Channels are the ids of chassis, for example `1` or `Self`."""
    quantity = settings.choice("quantity", tuple(_SOURCES), "power")
    kind = _SOURCES[quantity][2]
    channels = read_channels(settings, kind, gain=0.03, offset_w=5.0)
    period_s = read_period(settings, 2.0, least_s=0.1)
    # Each channel is a request of its own, and all of them are one reading.
    timeout_s = read_timeout(settings, period_s) / len(channels)
    auth = settings.choice("auth", ("basic", "session", "none"), "basic")
    user = password = ""
    if auth != "none":
        user = settings.text("user")
        password = read_password(settings) or ""
        if not password:
            raise settings.error("password_file", "is missing or empty")
    web = Web(read_place(settings, timeout_s))
    service = _Service(web, auth, user, password, quantity, tuple(one.name for one in channels))
    # IntervalInMin of the service says what it averages over.
    window_s = settings.seconds("window", 60.0 if kind is Kind.AVERAGE else period_s)
    info = MeterInfo("redfish", channels, period_s, "", is_modelled=False)
    return PolledMeter(name, service, info, window_s=window_s)
