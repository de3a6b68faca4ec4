# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The lag of a meter is found from what it recorded, and not where it shows no load."""

import random
from collections.abc import Iterator

import pytest

from terrace_lab.hosts import AgentHost
from terrace_lab.meters import lag
from terrace_lab.records import Kind, Quality, Sample, now
from terrace_lab.runner import lagging

PERIOD_S = 0.05
BEGIN_NS = 10**18


def record(channel: str, late_s: float, swing_w: float) -> list[Sample]:
    """What an averaging meter would have of the pattern, with noise of 2 W."""
    noise = random.Random(1)
    intervals = lag.schedule(PERIOD_S)
    samples = []
    for index in range(-20, int(lag.schedule_seconds(PERIOD_S) / PERIOD_S) + 60):
        begin, end = index * PERIOD_S, (index + 1) * PERIOD_S
        busy = sum(
            max(0.0, min(end, one.end_s + late_s) - max(begin, one.begin_s + late_s))
            for one in intervals
        )
        watts = 100 + swing_w * busy / PERIOD_S + noise.gauss(0, 2)
        t0, t1 = (BEGIN_NS + round(at * 1e9) for at in (begin, end))
        samples.append(Sample(t0, t1, t1, channel, "s1", Kind.AVERAGE, watts, Quality.OK, "m"))
    return samples


def test_the_channel_that_shows_the_load_tells_the_lag() -> None:
    samples = record("switch", 0.0, 0.0) + record("server", 0.31, 10.0)
    found = lagging.find(samples, BEGIN_NS, lag.schedule(PERIOD_S), PERIOD_S)
    assert found is not None
    assert found.channel == "server"
    assert found.lag.lag_s == pytest.approx(0.31, abs=0.4 * PERIOD_S)
    assert found.lag.swing_w == pytest.approx(10, rel=0.2)


def test_without_a_load_in_it_a_record_tells_no_lag() -> None:
    samples = record("switch", 0.0, 0.0)
    assert lagging.find(samples, BEGIN_NS, lag.schedule(PERIOD_S), PERIOD_S) is None


@pytest.fixture
def host() -> Iterator[AgentHost]:
    host = AgentHost("here")
    host.connect()
    yield host
    host.close()


def test_the_load_works_when_it_says(host: AgentHost) -> None:
    before = host.counters()
    earliest = now().real_ns
    begin_ns = lagging._load([host], [lag.On(0.0, 0.3)], 1.0)
    after = host.counters()
    assert earliest <= begin_ns <= now().real_ns
    busy = after["cpu"]["busy_s"] - before["cpu"]["busy_s"]
    # Others may take processors away, but not all of one.
    assert busy >= 0.25
