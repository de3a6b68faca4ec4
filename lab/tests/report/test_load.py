# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Load plots: from counters of hosts to what is drawn, of which the truth is known."""

from typing import Any

import pytest

from terrace_lab.report import plots_load

BEGIN_NS = 10**18
SECOND = 10**9


def sample(second: float, **more: Any) -> dict[str, Any]:
    """Of a host with two processors, one of which works for the user, that sends 1 MB/s."""
    kinds = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    return {
        "at_ns": BEGIN_NS + round(second * SECOND),
        "processors": 2,
        "cpu_s": {**dict.fromkeys(kinds, 0.0), "user": second, "idle": second},
        "memory": {"memtotal_bytes": 8 << 30, "memavailable_bytes": 6 << 30},
        "context_switches": round(1000 * second),
        "disks": {"sda": {"read_bytes": 0, "written_bytes": 5_000_000 * second, "busy_s": 0.0}},
        "network": {"eth0": {"received_bytes": 0, "sent_bytes": 1_000_000 * second}},
        **more,
    }


def panels(*samples: dict[str, Any]) -> dict[str, plots_load.Panel]:
    return {one.label: one for one in plots_load.panels_of({"h": samples}, BEGIN_NS)}


def test_counters_become_rates_on_the_time_of_the_repetition() -> None:
    found = panels(sample(0), sample(0.5), sample(1.5))
    assert found["processors of h"].lines["user"] == [(0.5, 50.0), (1.5, 50.0)]
    assert found["processors of h"].lines["system"] == [(0.5, 0.0), (1.5, 0.0)]
    assert found["memory in use"].lines["h"] == [(0.0, 2 << 30), (0.5, 2 << 30), (1.5, 2 << 30)]
    assert found["context switches"].lines["h"] == [(0.5, 1000.0), (1.5, 1000.0)]
    assert found["disks"].lines == {"h sda written": [(0.5, 5e6), (1.5, 5e6)]}
    assert found["network"].lines == {"h eth0 out": [(0.5, 1e6), (1.5, 1e6)]}
    assert "accelerators busy" not in found


def test_a_counter_that_begins_anew_has_no_rate_there() -> None:
    restarted = sample(2, network={"eth0": {"received_bytes": 0, "sent_bytes": 5}})
    later = sample(3, network={"eth0": {"received_bytes": 0, "sent_bytes": 105}})
    lines = panels(sample(1), restarted, later)["network"].lines
    assert lines == {"h eth0 out": [(3.0, 100.0)]}


def test_accelerators_are_drawn_where_there_are_some() -> None:
    gpus = [{"name": "0", "busy": 0.25, "memory_bytes": 1}]
    found = panels(sample(0, gpus=gpus), sample(1, gpus=gpus))
    assert found["accelerators busy"].lines == {"h GPU 0": [(0.0, 25.0), (1.0, 25.0)]}


def test_long_lines_keep_their_mean() -> None:
    line = [(float(second), float(second % 2)) for second in range(10_000)]
    thinned = plots_load._thinned(line)
    assert len(thinned) <= plots_load.POINTS
    assert thinned[-1][0] == line[-1][0]
    assert sum(value for _, value in thinned) / len(thinned) == pytest.approx(0.5, abs=0.05)
