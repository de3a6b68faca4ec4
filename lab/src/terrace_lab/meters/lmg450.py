# SPDX-License-Identifier: Apache-2.0 OR MIT
"""ZES LMG450: four channels over a serial line, as often as 20 times a second."""

from __future__ import annotations

import contextlib
import termios
from collections.abc import Mapping

import serial

from terrace_lab.errors import MeterLost
from terrace_lab.hosts import AgentHost
from terrace_lab.meters.lmg import Dialogue, LmgMeter, read_measured
from terrace_lab.meters.lmg_frames import FrameReader, PackedReader, TextReader
from terrace_lab.settings import Settings

_BREAK_S = 0.25
_WRITE_MAX_S = 1.0
_READ_BYTES_MAX = 4096
_CHANNELS = ("1", "2", "3", "4")
_END_OF_LINE = {"lf": b"\n", "crlf": b"\r\n"}
_GONE = (serial.SerialException, OSError, termios.error)


class SerialLink:
    """A serial line."""

    def __init__(self, port: str, baud: int, *, has_handshake: bool) -> None:
        try:
            self._serial = serial.serial_for_url(
                port,
                baudrate=baud,
                rtscts=has_handshake,
                timeout=0,
                write_timeout=_WRITE_MAX_S,
                exclusive=True,
            )
        except (*_GONE, ValueError) as error:
            raise MeterLost(f"cannot open a serial line: {error} port={port}") from error

    def write(self, data: bytes) -> None:
        try:
            self._serial.write(data)
        except _GONE as error:
            raise MeterLost(f"cannot write to a serial line: {error}") from error

    def read(self, wait_s: float) -> bytes:
        try:
            self._serial.timeout = wait_s
            data: bytes = self._serial.read(1)
            if data:
                self._serial.timeout = 0
                data += self._serial.read(_READ_BYTES_MAX)
        except _GONE as error:
            raise MeterLost(f"cannot read from a serial line: {error}") from error
        return data

    def send_break(self) -> None:
        try:
            self._serial.send_break(_BREAK_S)
        except _GONE as error:
            raise MeterLost(f"cannot send a break: {error}") from error

    def close(self) -> None:
        with contextlib.suppress(*_GONE):
            # What a device without CTS never took would hold up the kernel for 30 s.
            self._serial.reset_output_buffer()
        with contextlib.suppress(*_GONE):
            self._serial.close()


def make(name: str, settings: Settings, _hosts: Mapping[str, AgentHost]) -> LmgMeter:
    """Measures true RMS voltage and current and active power of each channel that is named."""
    port = settings.text("port")
    baud = settings.integer("baud", 57600, least=1200)
    has_handshake = settings.flag("rtscts", True)
    measured = read_measured(
        settings, _CHANNELS, cycle_s=0.05, range_i_a=5.0, gain=0.001, offset_w=0.1
    )
    triples = measured.triples
    end_of_line = _END_OF_LINE[settings.choice("eos", tuple(_END_OF_LINE), "lf")]
    frame_format = settings.choice("format", ("packed", "ascii"), "packed")
    byte_order = settings.choice("byte_order", ("little", "big"), "little")
    reader: FrameReader
    if frame_format == "packed":
        reader = PackedReader(triples.size, byte_order, end_of_line, triples.is_plausible)
    else:
        reader = TextReader(triples.size, end_of_line, triples.is_plausible)
    quantities = [f"UTRMS{one.name}?;ITRMS{one.name}?;P{one.name}?" for one in measured.channels]
    dialogue = Dialogue(
        language=(":SYSTem:LANGuage SHORT",),
        setup=(
            "IAM MANUAL",
            f"IRNG {measured.range_i_a:g}",
            "UAM MANUAL",
            f"URNG {measured.range_u_v:g}",
            f"CYCL {measured.cycle_s:g}",
        ),
        action=";".join(("ACTN", *quantities)),
        frame_format=frame_format.upper(),
        # Errors that nobody asked for would be the answer to whoever asks next.
        farewell=("LANG SCPI", "SYST:ERR:ALL?", "GTL"),
        end_of_line=end_of_line,
    )
    return LmgMeter(
        name,
        lambda: SerialLink(port, baud, has_handshake=has_handshake),
        dialogue,
        reader,
        triples,
        measured.info("lmg450"),
    )
