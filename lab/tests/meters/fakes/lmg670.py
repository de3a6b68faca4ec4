# SPDX-License-Identifier: Apache-2.0 OR MIT
"""An LMG670: commands on one TCP port, breaks on another, lines of text once a cycle."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable

IDENTITY = "ZES ZIMMER Electronic Systems GmbH,LMG670,12345678,1.5"


class FakeLmg670:
    """Serves one client at a time; `fault_of` tells what is wrong with a cycle: `half`, `garbage`,
    `doubled`, `close` or `mute`.
    """

    def __init__(self, fault_of: Callable[[int], str | None] = lambda _: None) -> None:
        self.commands: list[str] = []
        self.sent: list[bytes] = []
        self.breaks = 0
        self.break_answer = b"0 ok\n"
        self._fault_of = fault_of
        self._is_over = threading.Event()
        self._cycle = 0
        self._listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self.port, self.break_port = (one.getsockname()[1] for one in self._listening)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> FakeLmg670:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(10)
        for one in self._listening:
            one.close()

    def _run(self) -> None:
        client: socket.socket | None = None
        while not self._is_over.is_set():
            waiting = [*self._listening, *([client] if client else [])]
            ready, _, _ = select.select(waiting, [], [], 0.005)
            if self._listening[1] in ready:
                self._break()
            if self._listening[0] in ready:
                if client is not None:
                    client.close()
                client, _ = self._listening[0].accept()
                self._begin()
            try:
                if client is not None and client in ready:
                    data = client.recv(4096)
                    if not data:
                        raise ConnectionError
                    self._take(client, data)
                if client is not None:
                    self._send_due(client)
            except OSError:
                assert client is not None
                client.close()
                client = None
        if client is not None:
            client.close()

    def _begin(self) -> None:
        self._input = b""
        self._actions: list[str] = []
        self._cycle_s = 0.5
        self._is_continuous = False
        self._is_short = False
        self._due = 0.0

    def _break(self) -> None:
        other, _ = self._listening[1].accept()
        with other, contextlib.suppress(OSError):
            other.settimeout(1)
            if other.recv(64) == b"break\n":
                self.breaks += 1
                self._is_continuous = False
                other.sendall(self.break_answer)

    def _take(self, client: socket.socket, data: bytes) -> None:
        self._input += data
        while b"\n" in self._input:
            line, _, self._input = self._input.partition(b"\n")
            text = line.decode().strip().lower()
            self.commands.append(text)
            if text == "*idn?":
                client.sendall(IDENTITY.encode() + b"\n")
            elif text == "*zlang short":
                self._is_short = True
            elif not self._is_short:
                continue
            elif text.startswith("actn;"):
                self._actions = text.split(";")[1:]
            elif text.startswith("cycl "):
                self._cycle_s = float(text.split()[1])
            elif text.startswith("cont "):
                self._is_continuous = text == "cont on"
                self._due = time.monotonic() + self._cycle_s

    def _send_due(self, client: socket.socket) -> None:
        if not self._is_continuous or time.monotonic() < self._due:
            return
        self._due += self._cycle_s
        number, self._cycle = self._cycle, self._cycle + 1
        line = ";".join(self._value(number, one) for one in self._actions).encode() + b"\n"
        fault = self._fault_of(number)
        if fault == "close":
            raise ConnectionError
        if fault == "mute":
            self._is_continuous = False
        elif fault == "half":
            client.sendall(line[: len(line) // 2] + b"\n")
        elif fault == "garbage":
            client.sendall(b"\xff\x00;;\n")
        elif fault == "doubled":
            client.sendall(line + line)
            self.sent.append(line)
        else:
            client.sendall(line)
            self.sent.append(line)

    def _value(self, number: int, action: str) -> str:
        if action == "tsnorm?":
            return f"2026:11:22D12:00:{number * self._cycle_s:09.6f}"
        if action == "durnorm?":
            return f"{self._cycle_s:.6f}"
        return {"u": "230.1", "i": "1.5", "p": f"{100 + number / 64:.6f}"}[action[0]]
