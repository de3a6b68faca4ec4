# SPDX-License-Identifier: Apache-2.0 OR MIT
"""ZES LMG670: up to seven channels over TCP, with the times of the device itself."""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Mapping

from terrace_lab.errors import MeterLost
from terrace_lab.hosts import AgentHost
from terrace_lab.meters.lmg import Dialogue, LmgMeter, read_measured
from terrace_lab.meters.lmg_frames import TextReader, Values
from terrace_lab.settings import Settings

_CONNECT_S = 2.0
_READ_BYTES_MAX = 1 << 16
_CHANNELS = ("1", "2", "3", "4", "5", "6", "7")
_DURATION_PART = 0.5
"""How far the duration that the device tells may be from the cycle it was told."""


class TcpLink:
    """A connection for commands, and another one for each break."""

    def __init__(self, address: str, port: int, break_port: int) -> None:
        self._address = address
        self._break_port = break_port
        try:
            self._socket = socket.create_connection((address, port), _CONNECT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise MeterLost(f"cannot connect: {error} address={address}:{port}") from error

    def write(self, data: bytes) -> None:
        try:
            self._socket.settimeout(_CONNECT_S)
            self._socket.sendall(data)
        except OSError as error:
            raise MeterLost(f"cannot write to a connection: {error}") from error

    def read(self, wait_s: float) -> bytes:
        try:
            self._socket.settimeout(wait_s)
            data = self._socket.recv(_READ_BYTES_MAX)
        except TimeoutError:
            return b""
        except OSError as error:
            raise MeterLost(f"cannot read from a connection: {error}") from error
        if not data:
            raise MeterLost("cannot read from a connection: the device has closed it")
        return data

    def send_break(self) -> None:
        try:
            with socket.create_connection((self._address, self._break_port), _CONNECT_S) as other:
                other.sendall(b"break\n")
                answer = other.recv(256)
        except OSError as error:
            raise MeterLost(f"cannot send a break: {error}") from error
        if not answer.startswith(b"0"):
            raise MeterLost(f"cannot send a break: the device said {answer[:64]!r}")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()


class _Lines:
    """Checks lines by the times in them: `tsnorm` never repeats, `durnorm` is about a cycle."""

    def __init__(self, cycle_s: float) -> None:
        self._cycle_s = cycle_s
        self._last_time = ""

    def parse(self, fields: list[str]) -> Values | None:
        time, duration, *rest = fields
        try:
            seconds = float(duration)
            values = tuple(float(field) for field in rest)
        except ValueError:
            return None
        is_cycle = math.isclose(seconds, self._cycle_s, rel_tol=_DURATION_PART)
        if not is_cycle or time == self._last_time:
            return None
        self._last_time = time
        return values


def make(name: str, settings: Settings, _hosts: Mapping[str, AgentHost]) -> LmgMeter:
    """Measures true RMS voltage and current and active power of each channel that is named."""
    address = settings.text("address")
    port = settings.integer("port", 5025, least=1)
    break_port = settings.integer("break_port", 5026, least=1)
    measured = read_measured(
        settings, _CHANNELS, cycle_s=0.5, range_i_a=10.0, gain=0.0005, offset_w=0.05
    )
    triples = measured.triples
    setup = []
    for one in measured.channels:
        setup += [
            f"iauto{one.name} 0; irng{one.name} {measured.range_i_a:g}",
            f"uauto{one.name} 0; urng{one.name} {measured.range_u_v:g}",
        ]
    quantities = [f"utrms{one.name}?;itrms{one.name}?;p{one.name}?" for one in measured.channels]
    dialogue = Dialogue(
        language=("*zlang short",),
        setup=(*setup, f"cycl {measured.cycle_s:g}"),
        action=";".join(("actn", "tsnorm?", "durnorm?", *quantities)),
        frame_format="ASCII",
        farewell=("gtl",),
        end_of_line=b"\n",
    )
    lines = _Lines(measured.cycle_s)
    reader = TextReader(2 + triples.size, dialogue.end_of_line, triples.is_plausible, lines.parse)
    return LmgMeter(
        name,
        lambda: TcpLink(address, port, break_port),
        dialogue,
        reader,
        triples,
        measured.info("lmg670"),
    )
