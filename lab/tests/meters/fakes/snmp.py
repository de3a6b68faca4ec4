# SPDX-License-Identifier: Apache-2.0 OR MIT
"""An SNMP agent that answers GET of version 2c, with just the BER that it takes."""

from __future__ import annotations

import contextlib
import socket
import threading

_SEQUENCE, _INTEGER, _TEXT, _NULL, _OID = 0x30, 0x02, 0x04, 0x05, 0x06
_GET, _RESPONSE, _NO_INSTANCE = 0xA0, 0xA2, 0x81


class FakeSnmp:
    """Values by OID; `fault` is one of `silence`, `garbage`, `half`, `error`."""

    def __init__(self, values: dict[str, int | str], community: str = "public") -> None:
        self.values = values
        self.fault: str | None = None
        self._community = community
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"udp:127.0.0.1:{self._socket.getsockname()[1]}"
        self._socket.settimeout(0.05)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> FakeSnmp:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(10)
        self._socket.close()

    def _run(self) -> None:
        while not self._is_over.is_set():
            with contextlib.suppress(TimeoutError):
                data, sender = self._socket.recvfrom(65536)
                answer = self._answer(data)
                if self.fault == "garbage":
                    answer = b"\x30\x84\xff\xff\xff\xff" + answer[6:]
                elif self.fault == "half":
                    answer = answer[: len(answer) // 2]
                if answer and self.fault != "silence":
                    self._socket.sendto(answer, sender)

    def _answer(self, data: bytes) -> bytes:
        ((_, message),) = _parts(data)
        (_, version), (_, community), (kind, request) = _parts(message)
        if kind != _GET or community.decode() != self._community:
            return b""
        (_, number), _, _, (_, wanted) = _parts(request)
        bindings = b""
        for _, binding in _parts(wanted):
            (_, oid), _ = _parts(binding)
            bindings += _tagged(_SEQUENCE, _tagged(_OID, oid) + self._value(_oid_text(oid)))
        status = 5 if self.fault == "error" else 0
        body = _tagged(_INTEGER, number) + _integer(status) + _integer(min(status, 1))
        body += _tagged(_SEQUENCE, bindings)
        content = _tagged(_INTEGER, version) + _tagged(_TEXT, community)
        return _tagged(_SEQUENCE, content + _tagged(_RESPONSE, body))

    def _value(self, oid: str) -> bytes:
        value = self.values.get(oid)
        if value is None:
            return _tagged(_NO_INSTANCE, b"")
        return _tagged(_TEXT, value.encode()) if isinstance(value, str) else _integer(value)


def _parts(data: bytes) -> list[tuple[int, bytes]]:
    """Tags and contents, one after the other."""
    parts = []
    while data:
        tag, length, begin = data[0], data[1], 2
        if length & 0x80:
            begin += length & 0x7F
            length = int.from_bytes(data[2:begin], "big")
        parts.append((tag, data[begin : begin + length]))
        data = data[begin + length :]
    return parts


def _tagged(tag: int, content: bytes) -> bytes:
    if len(content) < 0x80:
        return bytes([tag, len(content)]) + content
    return bytes([tag, 0x82]) + len(content).to_bytes(2, "big") + content


def _integer(value: int) -> bytes:
    return _tagged(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _oid_text(content: bytes) -> str:
    numbers = [content[0] // 40, content[0] % 40]
    value = 0
    for one in content[1:]:
        value = value << 7 | one & 0x7F
        if not one & 0x80:
            numbers.append(value)
            value = 0
    return ".".join(map(str, numbers))
