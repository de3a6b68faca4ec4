# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a server's management controller says about its power, by IPMI DCMI and ipmitool."""

from __future__ import annotations

import re
from collections.abc import Mapping

from terrace_lab.errors import LabError, MeterLost
from terrace_lab.hosts import AgentHost
from terrace_lab.meters import programs
from terrace_lab.meters.base import MeterInfo
from terrace_lab.meters.channels import read_period, read_scope, read_timeout
from terrace_lab.meters.polled import Answer, PolledMeter, Reading
from terrace_lab.meters.sysfs import read_host
from terrace_lab.records import Kind, Quality
from terrace_lab.settings import Settings

_POWER = re.compile(r"Instantaneous power reading:\s+(\d+)\s+Watts")
_STATE = re.compile(r"Power reading state is:\s+(\w+)")


class _Controller:
    """One management controller."""

    def __init__(self, argv: tuple[str, ...], timeout_s: float, host: AgentHost | None) -> None:
        self._argv = argv
        self._timeout_s = timeout_s
        self._host = host

    def connect(self) -> str:
        if self._host is not None:
            try:
                self._host.connect()
            except LabError as error:
                raise MeterLost(str(error)) from error
        return "IPMI DCMI"

    def disconnect(self) -> None:
        if self._host is not None:
            self._host.close()

    def read(self) -> Answer:
        text = programs.run(self._argv, self._timeout_s, host=self._host)
        power, state = _POWER.search(text), _STATE.search(text)
        if power is None or state is None:
            raise MeterLost(f"cannot read a meter: no power reading in {text[:200]!r}")
        # One that is not activated answers as well, with what it had last or nothing.
        reading = Reading(float(power[1]))
        if state[1] != "activated":
            reading = Reading(None, Quality.NAN)
        return Answer(text.encode(), {"1": reading})


def make(name: str, settings: Settings, hosts: Mapping[str, AgentHost]) -> PolledMeter:
    """Asks the controller of a host from inside, or one at an address over the network."""
    period_s = read_period(settings, 1.0, least_s=0.1)
    timeout_s = read_timeout(settings, period_s)
    argv = [settings.text("command", "ipmitool")]
    if "address" in settings:
        argv += ["-I", "lanplus", "-H", settings.text("address"), "-U", settings.text("user")]
        # ipmitool reads the password from there, so that no list of processes shows it.
        argv += ["-f", settings.text("password_file")]
    argv += ["dcmi", "power", "reading"]
    channels = read_scope(settings, name, Kind.AVERAGE, gain=0.03, offset_w=5.0)
    window_s = settings.seconds("window", period_s)
    host = read_host(settings, hosts)
    info = MeterInfo("ipmi", channels, period_s, "", is_modelled=False)
    source = _Controller(tuple(argv), timeout_s, host)
    return PolledMeter(name, source, info, window_s=window_s)
