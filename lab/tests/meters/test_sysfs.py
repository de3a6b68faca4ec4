# SPDX-License-Identifier: Apache-2.0 OR MIT
"""RAPL and hwmon, against trees like those of a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meters.record import lost, meter, read
from terrace_lab.errors import SettingsError
from terrace_lab.hosts import AgentHost
from terrace_lab.meters import registry
from terrace_lab.meters.counting import Count, EnergyCounter
from terrace_lab.records import Kind, Quality
from terrace_lab.settings import Settings

SECOND = 10**9
RANGE_UJ = 262_143_328_850


def powercap(tmp_path: Path) -> Path:
    root = tmp_path / "powercap"
    for zone, name in (
        ("intel-rapl:0", "package-0"),
        ("intel-rapl:0:0", "core"),
        ("intel-rapl:0:1", "dram"),
        ("intel-rapl:1", "package-1"),
        ("intel-rapl-mmio:0", "package-0"),
    ):
        (root / zone).mkdir(parents=True)
        (root / zone / "name").write_text(f"{name}\n")
        (root / zone / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
        (root / zone / "energy_uj").write_text("5000000\n")
    return root


def rapl(root: Path, **more: Any) -> dict[str, Any]:
    return {"kind": "rapl", "root": str(root), "period": 0.01, "scope": "s1", **more}


def test_each_domain_is_read_once(tmp_path: Path) -> None:
    one = meter(rapl(powercap(tmp_path)))
    (frame,) = read(one, 1)
    # Neither the cores, which the package has in it, nor the second way to the same counter.
    names = {"package-0", "package-0/dram", "package-1"}
    assert {sample.channel for sample in frame.samples} == names
    assert {(one.scope, one.kind, one.value) for one in frame.samples} == {
        ("s1", Kind.COUNTER, 5.0)
    }
    assert {channel.name for channel in one.describe().channels} == names


def test_a_counter_goes_on_where_it_wraps(tmp_path: Path) -> None:
    root = powercap(tmp_path)
    energy = root / "intel-rapl:1" / "energy_uj"
    energy.write_text(f"{RANGE_UJ - 1_000_000}\n")
    one = meter(rapl(root, domains=["package"]))
    one.open()
    stream = one.stream()
    first = {sample.channel: sample.value for sample in next(stream).samples}
    energy.write_text("2000000\n")
    second = {sample.channel: sample.value for sample in next(stream).samples}
    one.close()
    assert first["package-1"] is not None
    assert second["package-1"] == pytest.approx(first["package-1"] + 3.0)


def test_a_step_that_no_power_explains_is_a_reset() -> None:
    counter = EnergyCounter(range_j=1000.0, power_max_w=100.0)
    assert counter.take(900.0, 0) == Count(900.0, Quality.OK)
    assert counter.take(50.0, 2 * SECOND) == Count(1050.0, Quality.OK)
    # 150 J in a second is too much; so is to have been away for long enough to go round.
    assert counter.take(200.0, 3 * SECOND) == Count(None, Quality.RESET)
    assert counter.take(210.0, 4 * SECOND) == Count(210.0, Quality.OK)
    assert counter.take(220.0, 20 * SECOND) == Count(None, Quality.RESET)
    assert counter.take(221.0, 21 * SECOND) == Count(221.0, Quality.OK)


def test_a_counter_without_a_range_never_goes_back() -> None:
    counter = EnergyCounter()
    assert counter.take(10.0, 0) == Count(10.0, Quality.OK)
    assert counter.take(10.0, SECOND) == Count(10.0, Quality.OK)
    assert counter.take(3.0, 2 * SECOND) == Count(None, Quality.RESET)
    assert counter.take(4.0, 3 * SECOND) == Count(4.0, Quality.OK)


def test_a_domain_that_goes_away_or_says_nonsense_is_lost(tmp_path: Path) -> None:
    root = powercap(tmp_path)
    energy = root / "intel-rapl:1" / "energy_uj"
    energy.write_text("\n")
    assert "is no counter" in lost(meter(rapl(root)))
    energy.unlink()
    assert "No such file" in lost(meter(rapl(root)))
    assert "no such domain" in lost(meter(rapl(tmp_path / "none")))


def test_domains_are_not_counted_twice(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="in package already"):
        meter(rapl(tmp_path, domains=["package", "core"]))


class Elsewhere(AgentHost):
    """This machine, through an agent, as if it were another one."""

    is_local = False


def test_another_host_is_read_through_its_agent(tmp_path: Path) -> None:
    host = Elsewhere("s1")
    table = rapl(powercap(tmp_path), host="s1", period=0.1)
    one = registry.create("m", Settings("meters.m", table), {"s1": host})
    (frame,) = read(one, 1)
    assert len(frame.samples) == 3
    (tmp_path / "powercap" / "intel-rapl:0" / "energy_uj").unlink()
    text = lost(one)
    assert "No such file" in text
    assert "host=s1" in text
    with pytest.raises(SettingsError, match=r"'s2' is no host, only s1"):
        registry.create("m", Settings("meters.m", table | {"host": "s2"}), {"s1": host})


def hwmon(tmp_path: Path) -> Path:
    root = tmp_path / "hwmon"
    for device, name in (("hwmon0", "ina226"), ("hwmon1", "ina226"), ("hwmon2", "board")):
        (root / device).mkdir(parents=True)
        (root / device / "name").write_text(f"{name}\n")
        (root / device / "power1_input").write_text("12500000\n")
        (root / device / "power1_average").write_text("12000000\n")
        (root / device / "energy1_input").write_text("7000000\n")
    return root


def test_sensors_are_found_by_device_or_name(tmp_path: Path) -> None:
    channels = {
        "hwmon1/power1_input": "s1",
        "board/power1_average": "s2",
        "board/energy1_input": "s3",
    }
    table = {"kind": "hwmon", "root": str(hwmon(tmp_path)), "channels": channels, "period": 0.02}
    (frame,) = read(meter(table), 1)
    assert [(one.scope, one.kind, one.value) for one in frame.samples] == [
        ("s1", Kind.INSTANT, 12.5),
        ("s2", Kind.AVERAGE, 12.0),
        ("s3", Kind.COUNTER, 7.0),
    ]


def test_a_sensor_that_is_not_one_is_lost(tmp_path: Path) -> None:
    root = hwmon(tmp_path)

    def table(channel: str) -> dict[str, Any]:
        return {"kind": "hwmon", "root": str(root), "channels": {channel: "s1"}}

    assert "2 devices are 'ina226'" in lost(meter(table("ina226/power1_input")))
    assert "0 devices are 'ina219'" in lost(meter(table("ina219/power1_input")))
    assert "No such file" in lost(meter(table("board/power2_input")))
    (root / "hwmon2" / "power1_input").write_text("N/A\n")
    assert "is no number" in lost(meter(table("board/power1_input")))
    with pytest.raises(SettingsError, match="is not DEVICE/powerN_input"):
        meter(table("board/curr1_input"))
