# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The model, the registry and the self-test."""

from __future__ import annotations

import random
import statistics
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from meters.record import lost, meter, read, samples_of
from terrace_lab.errors import SettingsError
from terrace_lab.hosts import AgentHost
from terrace_lab.meters import create, kinds, registry, self_test
from terrace_lab.meters.model import Activity, Coefficients
from terrace_lab.records import Kind, Quality
from terrace_lab.settings import Settings

COEFFICIENTS = Coefficients(idle_w=40, cpu_w=10, disk_w=6, network_w=2, noise_w=0)


def counters(seconds: float, busy_s: float = 0, disk_s: float = 0, moved: int = 0) -> Any:
    return {
        "at": {"raw_ns": round(seconds * 1e9)},
        "processors": 4,
        "cpu": {"busy_s": busy_s},
        "disks": {
            "nvme0n1": {"busy_s": disk_s},
            # What a mapper does its disk counts, too.
            "dm-0": {"busy_s": disk_s},
            "loop0": {"busy_s": disk_s},
        },
        "network": {
            "lo": {"received_bytes": moved, "sent_bytes": moved},
            "eth0": {"received_bytes": moved, "sent_bytes": moved},
        },
    }


@pytest.mark.parametrize(
    ("after", "power_w"),
    [
        (counters(2.0), 40.0),
        (counters(2.0, busy_s=3.0), 40.0 + 15.0),
        (counters(2.0, disk_s=1.0), 40.0 + 3.0),
        (counters(2.0, moved=10**9), 40.0 + 2.0),
        # Ticks may be off: never more than all processors, nor less than none.
        (counters(2.0, busy_s=9.0), 40.0 + 40.0),
        (counters(2.0, busy_s=-0.01), 40.0),
    ],
)
def test_power_is_what_the_coefficients_say(after: Any, power_w: float) -> None:
    activity = Activity()
    assert activity.power_w(counters(0.0), COEFFICIENTS) is None
    assert activity.power_w(after, COEFFICIENTS) == pytest.approx(power_w)


def test_a_disk_that_appears_has_done_nothing_yet() -> None:
    activity = Activity()
    before = counters(0.0)
    before["disks"] = {}
    activity.power_w(before, COEFFICIENTS)
    assert activity.power_w(counters(1.0, disk_s=500.0), COEFFICIENTS) == 40.0


def test_every_sample_of_a_model_is_stamped_and_none_is_missing() -> None:
    one = meter({"kind": "model", "period": 0.03, "channels": {"here": "s1"}})
    samples = samples_of(read(one, 4))
    assert {(one.quality, one.kind, one.scope) for one in samples} == {
        (Quality.MODEL, Kind.AVERAGE, "s1")
    }
    assert all(after.t0 == before.t1 for before, after in zip(samples, samples[1:], strict=False))
    assert all(20.0 < (one.value or 0) < 1000.0 for one in samples)
    assert one.describe().is_modelled


def test_noise_is_that_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr("terrace_lab.agent.activity", lambda: counters(next(clock)))
    settings = {"kind": "model", "period": 0.02, "noise_w": 3.0}
    values = [one.value for one in samples_of(read(meter(settings | {"seed": 5}), 10))]
    expected = random.Random(5)
    assert values == pytest.approx([40.0 + expected.gauss(0, 3) for _ in range(10)])
    assert statistics.stdev(one or 0 for one in values) > 0.5


class Elsewhere(AgentHost):
    """This machine, through an agent, as if it were another one."""

    is_local = False


def test_other_hosts_are_modelled_through_their_agents() -> None:
    hosts = {"s1": Elsewhere("s1"), "c1": AgentHost("c1")}
    table = {"kind": "model", "period": 0.05}
    frames = read(create("m", Settings("meters.m", table), hosts), 2)
    assert [one.scope for one in frames[1].samples] == ["s1", "c1"]
    with pytest.raises(SettingsError, match="'s2' is no host, only s1, c1"):
        create("m", Settings("meters.m", table | {"channels": {"s2": "s2"}}), hosts)


def test_a_host_that_cannot_be_reached_is_a_lost_meter() -> None:
    host = AgentHost("s1", "nobody@127.0.0.1.invalid")
    table = {"kind": "model", "channels": {"s1": "s1"}}
    assert "s1" in lost(create("m", Settings("meters.m", table), {"s1": host}))


def test_all_kinds_are_known_and_a_plug_in_is_one_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len(kinds()) == 14
    entry = EntryPoint("model2", "terrace_lab.meters.model:make", registry.ENTRY_POINTS)

    def found(group: str, name: str = "model2") -> tuple[EntryPoint, ...]:
        return (entry,) if (group, name) == (registry.ENTRY_POINTS, "model2") else ()

    monkeypatch.setattr(registry, "entry_points", found)
    assert "model2" in kinds()
    assert create("m", Settings("meters.m", {"kind": "model2"})).describe().kind == "model"


def test_an_unknown_kind_is_told_which_there_are() -> None:
    with pytest.raises(SettingsError, match=r"there is no meter 'modell', only csv, hwmon, .*tasm"):
        meter({"kind": "modell"})


def test_every_kind_of_the_table_can_be_loaded() -> None:
    for kind in kinds():
        with pytest.raises(SettingsError, match=r"^meters\.m"):
            create("m", Settings("meters.m", {"kind": kind, "no_such_setting": 1}))


def test_a_self_test_says_what_each_channel_delivers(tmp_path: Path) -> None:
    report = self_test(meter({"kind": "model", "period": 0.02}), 0.1)
    assert report.is_good
    assert report.frames >= 3
    assert report.period_s is not None
    assert report.period_s > 0.015
    assert str(report).startswith("model MODELLED: ")
    assert "here=here avg" in str(report)
    zone = tmp_path / "intel-rapl:0"
    zone.mkdir()
    files = {"name": "package-0", "max_energy_range_uj": 262143328850, "energy_uj": 5}
    for name, content in files.items():
        (zone / name).write_text(f"{content}\n")
    rapl = self_test(meter({"kind": "rapl", "root": str(tmp_path), "period": 0.02}), 0.1)
    assert rapl.channels[0].kind is Kind.COUNTER
    assert rapl.channels[0].power_w == pytest.approx(0.0)
    assert rapl.channels[0].unusable == {}
