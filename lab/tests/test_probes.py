# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the measurement of components leaves out where a program is missing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from terrace_lab.runner.probes import _Probing


def test_a_host_without_ping_has_no_round_trip_and_the_run_goes_on() -> None:
    said: list[str] = []
    host = SimpleNamespace(has=lambda program: program != "ping", address="127.0.0.1")
    probing: Any = SimpleNamespace(_hosts={"c1": host, "s1": host}, _tell=said.append)
    client: Any = SimpleNamespace(name="c1")
    server: Any = SimpleNamespace(name="s1")
    _Probing._round_trip(probing, client, server)
    assert said == ["c1: cannot measure the round trip: ping is not installed"]
