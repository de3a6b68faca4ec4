# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Meters that are asked by a program or a library: IPMI, SNMP, NVML."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from meters.fakes.ipmi import READING, make_ipmitool
from meters.fakes.nvml import FakeNvml
from meters.fakes.snmp import FakeSnmp
from meters.record import lost, meter, read, samples_of
from terrace_lab.errors import MeterLost, SettingsError
from terrace_lab.records import Kind, Quality


def ipmi(command: Path, **more: Any) -> dict[str, Any]:
    return {"kind": "ipmi", "command": str(command), "scope": "s1", "period": 0.1, **more}


def test_ipmi_gives_the_power_of_the_controller(tmp_path: Path) -> None:
    frames = read(meter(ipmi(make_ipmitool(tmp_path), window=5)), 2)
    assert [one.value for one in samples_of(frames)] == [216.0, 216.0]
    assert {one.kind for one in samples_of(frames)} == {Kind.AVERAGE}
    first, second = samples_of(frames)
    assert second.t0 == first.t1
    assert b"216 Watts" in frames[0].raw


def test_ipmi_passwords_are_on_no_command_line(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    where = {"address": "10.0.0.1", "user": "lab", "password_file": str(secret)}
    read(meter(ipmi(make_ipmitool(tmp_path), **where)), 1)
    said = (tmp_path / "arguments.txt").read_text()
    assert said == f"-I lanplus -H 10.0.0.1 -U lab -f {secret} dcmi power reading\n"


def test_an_ipmi_reading_that_is_not_activated_has_no_value(tmp_path: Path) -> None:
    tool = make_ipmitool(tmp_path)
    (tmp_path / "reading.txt").write_text(READING.replace(" activated", " deactivated"))
    (one,) = samples_of(read(meter(ipmi(tool)), 1))
    assert (one.value, one.quality) == (None, Quality.NAN)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("echo 'Unable to get Power Reading' >&2; exit 1", "Unable to get Power Reading code=1"),
        ("echo '    Instantaneous power reading:       '", "no power reading"),
        ("head -c 400 /dev/urandom", "no power reading"),
        ("sleep 30", "took more than 0.2 s"),
    ],
)
def test_ipmi_failures_are_losses(tmp_path: Path, body: str, reason: str) -> None:
    begin = time.monotonic()
    assert reason in lost(meter(ipmi(make_ipmitool(tmp_path, body), timeout=0.2)))
    assert time.monotonic() - begin < 10
    missing = tmp_path / "absent"
    assert "No such file" in lost(meter(ipmi(missing)))


OIDS = {"a": "1.3.6.1.4.1.318.1.1.26.6.3.1.7.1", "b": ".1.3.6.1.4.1.13742.6.5.4.3.1.4.1.2.5"}


def snmp(fake: FakeSnmp, **more: Any) -> dict[str, Any]:
    return {
        "kind": "snmp",
        "address": fake.address,
        "channels": {"a": "s1", "b": "s2"},
        "oids": OIDS,
        "period": 0.1,
        "timeout": 1.0,
        **more,
    }


def values() -> dict[str, int | str]:
    return {oid.lstrip("."): value for oid, value in zip(OIDS.values(), (1234, -56), strict=True)}


def test_snmp_values_have_the_scale_that_is_asked_for(tmp_path: Path) -> None:
    secret = tmp_path / "community"
    secret.write_text("quiet\n")
    with FakeSnmp(values(), "quiet") as fake:
        table = snmp(fake, exponent=-1, community_file=str(secret))
        (frame,) = read(meter(table), 1)
        assert [one.value for one in frame.samples] == pytest.approx([123.4, -5.6])
        assert {one.kind for one in frame.samples} == {Kind.INSTANT}
        for one in frame.samples:
            assert one.t0 < one.t1, "it was asked for before it came"
        (energy, _) = samples_of(read(meter(table | {"unit": "Wh", "exponent": 0}), 1))
        assert (energy.kind, energy.value) == (Kind.COUNTER, 1234 * 3600)


def test_an_outlet_without_a_number_has_no_value() -> None:
    with FakeSnmp(values() | {OIDS["a"]: "12.5"}) as fake:
        del fake.values[OIDS["b"].lstrip(".")]
        text, none = samples_of(read(meter(snmp(fake)), 1))
    assert text.value == 12.5
    assert (none.value, none.quality) == (None, Quality.NAN)


@pytest.mark.parametrize("fault", ["silence", "garbage", "half", "error"])
def test_snmp_failures_are_losses_that_end(fault: str) -> None:
    with FakeSnmp(values()) as fake:
        one = meter(snmp(fake, timeout=0.15))
        fake.fault = fault
        assert "cannot ask a meter: snmpget" in lost(one)
        fake.fault = None
        assert len(read(meter(snmp(fake)), 1)) == 1


def test_snmp_settings_that_make_no_request_are_refused(tmp_path: Path) -> None:
    with FakeSnmp({}) as fake:
        for wrong, where in (
            ({"oids": {"a": "sysDescr.0", "b": "1.3.6"}}, "oids.a"),
            ({"oids": {"a": "1.3.6"}}, "oids.b"),
            ({"community_file": str(tmp_path / "none")}, "community_file"),
            ({"version": "3"}, "user"),
        ):
            with pytest.raises(SettingsError, match=rf"^meters\.m\.{where}: "):
                meter(snmp(fake, **wrong))


def nvml(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch, **more: Any) -> dict[str, Any]:
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return {"kind": "nvml", "channels": {"0": "gpu0", "1": "gpu1"}, "period": 0.02, **more}


def test_nvml_gives_energy_where_the_device_counts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml()
    one = meter(nvml(fake, monkeypatch))
    (frame,) = read(one, 1)
    assert {(sample.kind, sample.quality) for sample in frame.samples} == {
        (Kind.COUNTER, Quality.OK)
    }
    first, second = (sample.value for sample in frame.samples)
    assert first is not None
    assert second == first + 5.0
    assert "GPU-handle0" in one.describe().identity
    assert fake.open == 0, "the library is let go of"


@pytest.mark.parametrize(("window", "kind"), [(1.0, Kind.AVERAGE), (0, Kind.INSTANT)])
def test_nvml_falls_back_to_power_with_its_own_kind(
    monkeypatch: pytest.MonkeyPatch, window: float, kind: Kind
) -> None:
    fake = FakeNvml(has_counter=False)
    one = meter(nvml(fake, monkeypatch, power_window=window))
    (frame,) = read(one, 1)
    assert {(sample.kind, sample.value) for sample in frame.samples} == {(kind, 70.5)}
    assert {channel.kind for channel in one.describe().channels} == {kind}
    assert "Not Supported" in lost(meter(nvml(fake, monkeypatch, quantity="energy")))


def test_an_accelerator_that_falls_off_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml()
    one = meter(nvml(fake, monkeypatch))
    one.open()
    stream = one.stream()
    next(stream)
    fake.is_lost = True
    with pytest.raises(MeterLost, match="GPU is lost"):
        next(stream)
    one.close()
    fake.is_lost = False
    assert len(read(one, 1)) == 1
    assert "Invalid Argument" in lost(meter(nvml(fake, monkeypatch, channels={"7": "gpu"})))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py is missing" in lost(meter({"kind": "nvml", "channels": {"0": "gpu"}}))
