# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Peaks follow the formulas of lab.md, section 7, and name what binds and what is missing."""

import pytest

from terrace_lab.numbers.peaks import Component, Load, Probe, System, peak, percent_of

GB = 1e9
ALL = [
    Probe(Component.MEMORY, "c1", None, [5 * GB]),
    Probe(Component.MEMORY, "c2", None, [0.5 * GB]),
    Probe(Component.NETWORK_TX, "c1", None, [1 * GB]),
    Probe(Component.NETWORK_TX, "c2", None, [2 * GB]),
    Probe(Component.NETWORK_RX, "c1", None, [1 * GB]),
    Probe(Component.NETWORK_RX, "c2", None, [2 * GB]),
    Probe(Component.NETWORK_RX, "s1", None, [4 * GB]),
    Probe(Component.NETWORK_TX, "s1", None, [4 * GB]),
    Probe(Component.FABRIC, None, None, [10 * GB]),
    Probe(Component.DISK_WRITE, "s1", "sda", [3 * GB]),
    Probe(Component.DISK_WRITE, "s1", "sdb", [4 * GB]),
    Probe(Component.DISK_READ, "s1", "sda", [5 * GB]),
    Probe(Component.DISK_IOPS_WRITE, "s1", "sda", [40e3]),
    Probe(Component.DISK_IOPS_READ, "s1", "sda", [80e3]),
    Probe(Component.RTT, "c1", None, [1e-4]),
    Probe(Component.DEVICE_TIME, "s1", "sda", [3e-4]),
    Probe(Component.PACKET_RATE, "s1", None, [1e6]),
    Probe(Component.SERVER_TIME, "s1", None, [1e-4]),
    Probe(Component.FSYNC_RATE, "s1", "sda", [500.0]),
]
ONE = Load()


def system(**values: float) -> System:
    return System(servers=["s1"], clients=["c1", "c2"], **values)


def test_each_client_is_bounded_by_its_own_least() -> None:
    """c1 by its network (1), c2 by its memory (0.5): less than either sum."""
    found = peak("write", system(), ONE, ALL)
    assert found is not None
    assert found.value == pytest.approx(1.5 * GB)
    assert found.binding == "clients one by one"
    assert found.terms["memory"] == pytest.approx(5.5 * GB)
    assert found.terms["network of clients"] == pytest.approx(3 * GB)
    assert found.missing == []


def test_amplification_divides_what_servers_can_do() -> None:
    found = peak("write", system(network_write=2.0, disk_write=7.0), ONE, ALL)
    assert found is not None
    assert found.terms["network of servers"] == pytest.approx(2 * GB)
    assert found.terms["disk"] == pytest.approx(1 * GB)
    assert found.binding == "disk"


def test_a_controller_bounds_its_disks() -> None:
    together = Probe(Component.DISK_WRITE_TOGETHER, "s1", None, [1.2 * GB])
    found = peak("write", system(), ONE, [*ALL, together])
    assert found is not None
    assert found.binding == "disk"
    assert found.value == pytest.approx(1.2 * GB)


def test_a_disk_that_was_probed_in_two_ways_is_one() -> None:
    device = Probe(Component.DISK_READ, "s1", "/dev/sda", [5.5 * GB])
    found = peak("read", system(), ONE, [*ALL, device])
    assert found is not None
    assert found.terms["disk"] == pytest.approx(5.5 * GB)


def test_what_was_not_probed_is_named() -> None:
    known = [one for one in ALL if (one.component, one.host) != (Component.NETWORK_TX, "c2")]
    found = peak("write", system(), ONE, known)
    assert found is not None
    assert found.missing == ["network_tx of c2"]
    assert "network of clients" not in found.terms
    assert peak("write", system(), ONE, []) is None
    assert peak("none", system(), ONE, ALL) is None


def test_operations_wait_for_network_and_device() -> None:
    load = Load(generators=2, threads=4, depth=1)
    found = peak("iops", system(disk_write=2.0), load, ALL)
    assert found is not None
    assert found.terms == {
        "latency": pytest.approx(8 / 4e-4),
        "disk": pytest.approx(20e3),
        "packets": pytest.approx(1e6),
    }
    reads = peak("iops", system(), Load(generators=64, depth=32, is_read=True), ALL)
    assert reads is not None
    assert reads.binding == "disk"
    assert reads.value == pytest.approx(80e3)


def test_metadata_waits_for_round_trips_and_the_journal() -> None:
    load = Load(generators=2, round_trips=3, group=100)
    found = peak("metadata", system(), load, ALL)
    assert found is not None
    assert found.terms["latency"] == pytest.approx(2 / (3 * 1e-4 + 1e-4))
    assert found.terms["journal"] == pytest.approx(50e3)
    alone = peak("metadata", system(), Load(generators=64), ALL)
    assert alone is not None
    assert alone.binding == "journal"
    assert alone.value == pytest.approx(500)


def test_a_local_target_has_no_network() -> None:
    local = System(servers=[], clients=["h"])
    probes = [
        Probe(Component.MEMORY, "h", None, [5 * GB]),
        Probe(Component.DISK_WRITE, "h", "/d", [2 * GB]),
    ]
    found = peak("write", local, ONE, probes)
    assert found is not None
    assert found.missing == []
    assert (found.binding, found.value) == ("disk", 2 * GB)


def test_the_interval_has_the_spread_of_probes_and_rates() -> None:
    sure = [Probe(Component.MEMORY, "h", None, [1 * GB])]
    spread = [Probe(Component.MEMORY, "h", None, [0.9 * GB, 1.0 * GB, 1.1 * GB])]
    local = System(servers=[], clients=["h"])
    point, wide = (peak("write", local, ONE, probes) for probes in (sure, spread))
    assert point is not None
    assert wide is not None
    assert point.interval is None
    assert wide.interval is not None
    assert wide.interval.low < 0.97 * GB < 1.03 * GB < wide.interval.high
    rates = [0.50 * GB, 0.51 * GB, 0.52 * GB, 0.49 * GB, 0.50 * GB, 0.48 * GB]
    by_rates, by_both = percent_of(point, rates), percent_of(wide, rates)
    assert by_rates.percent == pytest.approx(50.0)
    assert by_rates.interval is not None
    assert by_both.interval is not None
    assert by_both.interval.high - by_both.interval.low > (
        by_rates.interval.high - by_rates.interval.low
    )
    assert not by_both.is_suspicious
    assert percent_of(point, [1.2 * GB]).is_suspicious
    assert percent_of(point, [1.2 * GB]).interval is None
