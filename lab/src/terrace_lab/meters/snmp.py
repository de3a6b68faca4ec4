# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Power distribution units and whatever else has a number at an OID, by net-snmp's snmpget."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from terrace_lab.errors import MeterLost
from terrace_lab.hosts import AgentHost
from terrace_lab.meters import programs
from terrace_lab.meters.base import MeterInfo
from terrace_lab.meters.channels import read_channels, read_period, read_timeout
from terrace_lab.meters.counting import EnergyCounter
from terrace_lab.meters.polled import Answer, PolledMeter, Reading
from terrace_lab.records import Kind, Quality, now
from terrace_lab.settings import Settings

_OID = re.compile(r"\.?[0-9]+(\.[0-9]+)+\Z")
_LINE = re.compile(r"\.([0-9.]+) (.*)\Z")
_UNITS = {"W": 1.0, "J": 1.0, "Wh": 3600.0, "kWh": 3.6e6}


class _Agent:
    """One SNMP agent, asked for all channels at once."""

    def __init__(
        self,
        argv: tuple[str, ...],
        configuration: str,
        oids: Mapping[str, str],
        factor: float,
        timeout_s: float,
        *,
        is_counter: bool,
    ) -> None:
        self._argv = argv
        self._configuration = configuration
        self._oids = oids
        self._factor = factor
        self._timeout_s = timeout_s
        self._counters = {name: EnergyCounter() for name in oids} if is_counter else {}
        self._directory: str | None = None

    def connect(self) -> str:
        if self._directory is None:
            # snmpget reads secrets from its configuration, so that no list of processes shows them.
            self._directory = tempfile.mkdtemp(prefix="terrace-lab-snmp-")
            Path(self._directory, "snmp.conf").write_text(self._configuration)
        return ""

    def disconnect(self) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def read(self) -> Answer:
        if self._directory is None:
            raise MeterLost("cannot read a meter: not connected")
        text = programs.run(
            (*self._argv, *self._oids.values()),
            self._timeout_s,
            environment={
                "SNMPCONFPATH": self._directory,
                "SNMP_PERSISTENT_DIR": self._directory,
                "MIBS": "",
            },
        )
        said = {match[1]: match[2] for line in text.splitlines() if (match := _LINE.match(line))}
        readings = {}
        for name, oid in self._oids.items():
            if oid not in said:
                raise MeterLost(f"cannot read a meter: no answer for {oid} in {text[:200]!r}")
            readings[name] = self._reading(name, said[oid])
        return Answer(text.encode(), readings)

    def _reading(self, name: str, text: str) -> Reading:
        try:
            value = float(text.strip('"')) * self._factor
        except ValueError:
            # "No Such Instance currently exists at this OID", and the like.
            return Reading(None, Quality.NAN)
        if name in self._counters:
            return Reading(*self._counters[name].take(value, now().raw_ns))
        return Reading(value)


def make(name: str, settings: Settings, _hosts: Mapping[str, AgentHost]) -> PolledMeter:
    """Reads one OID for each channel, times `factor` and ten to the power of `exponent`."""
    period_s = read_period(settings, 1.0, least_s=0.1)
    timeout_s = read_timeout(settings, period_s)
    unit = settings.choice("unit", tuple(_UNITS), "W")
    kind = Kind.INSTANT if unit == "W" else Kind.COUNTER
    if "window" in settings and kind is Kind.INSTANT:
        kind = Kind.AVERAGE
    window_s = settings.seconds("window", period_s)
    channels = read_channels(settings, kind, gain=0.02, offset_w=2.0)
    table = settings.table("oids")
    oids = {}
    for channel in channels:
        oid = table.text(channel.name)
        if not _OID.match(oid):
            raise table.error(channel.name, f"{oid!r} is no numeric OID")
        oids[channel.name] = oid.lstrip(".")
    table.finish()
    exponent = settings.integer("exponent", 0, least=-12)
    factor = settings.number("factor", 1.0) * 10.0**exponent * _UNITS[unit]
    argv = (
        settings.text("command", "snmpget"),
        *("-Oqn", "-r0", f"-t{timeout_s:g}"),
        settings.text("address"),
    )
    source = _Agent(
        argv,
        _configuration(settings),
        oids,
        factor,
        # The program has its own limit; this one is for a program that hangs.
        min(timeout_s + 1.0, 9.5),
        is_counter=kind is Kind.COUNTER,
    )
    info = MeterInfo("snmp", channels, period_s, "", is_modelled=False)
    return PolledMeter(name, source, info, window_s=window_s)


def _configuration(settings: Settings) -> str:
    """The text of a snmp.conf(5) with version and secrets."""
    version = settings.choice("version", ("1", "2c", "3"), "2c")
    lines = [f"defVersion {version}"]
    if version != "3":
        community = settings.text("community", "public")
        if "community_file" in settings:
            community = _secret(settings, "community_file")
        return "\n".join([*lines, f"defCommunity {community}", ""])
    level = settings.choice("level", ("noAuthNoPriv", "authNoPriv", "authPriv"), "authPriv")
    lines += [f"defSecurityName {settings.text('user')}", f"defSecurityLevel {level}"]
    if level != "noAuthNoPriv":
        protocol = settings.choice("auth", ("SHA", "SHA-256", "SHA-512", "MD5"), "SHA")
        lines += [f"defAuthType {protocol}"]
        lines += [f"defAuthPassphrase {_secret(settings, 'auth_file')}"]
    if level == "authPriv":
        protocol = settings.choice("privacy", ("AES", "AES-256", "DES"), "AES")
        lines += [f"defPrivType {protocol}"]
        lines += [f"defPrivPassphrase {_secret(settings, 'privacy_file')}"]
    return "\n".join([*lines, ""])


def _secret(settings: Settings, key: str) -> str:
    try:
        lines = Path(settings.text(key)).read_text().splitlines()
    except OSError as error:
        raise settings.error(key, str(error)) from None
    if not lines or not lines[0].strip():
        raise settings.error(key, "is empty")
    return lines[0].strip()
