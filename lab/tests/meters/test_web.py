# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Meters with a web server: Redfish, Tasmota, Shelly, Prometheus."""

from __future__ import annotations

import base64
import hashlib
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meters.fakes.web import FakeWeb, Reply, make_certificate
from meters.record import lost, meter, read, samples_of
from terrace_lab.errors import MeterLost, SettingsError
from terrace_lab.records import Kind, Quality

PLUG = {"StatusSNS": {"ENERGY": {"Total": 3.185, "Power": 62}}}


def always(reply: Reply) -> Callable[[str, str, Any, bytes], Reply]:
    return lambda *_: reply


def tasmota(fake: FakeWeb, **more: Any) -> dict[str, Any]:
    return {"kind": "tasmota", "url": fake.url, "scope": "s1", "period": 0.1, **more}


def test_tasmota_gives_power_or_its_counter(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a b&c\n")
    with FakeWeb(always(Reply(PLUG))) as fake:
        (power,) = samples_of(read(meter(tasmota(fake, password_file=str(secret))), 1))
        (energy,) = samples_of(read(meter(tasmota(fake, quantity="energy")), 1))
        assert fake.requests == [
            "GET /cm?user=admin&password=a%20b%26c&cmnd=status%2010",
            "GET /cm?cmnd=status%2010",
        ]
    assert (power.kind, power.value, power.scope) == (Kind.INSTANT, 62.0, "s1")
    assert energy.kind is Kind.COUNTER
    assert energy.value == pytest.approx(3.185 * 3.6e6)


def test_one_outlet_of_several_is_read() -> None:
    several = {"StatusSNS": {"ENERGY": {"Total": 9.5, "Power": [1, 22]}}}
    with FakeWeb(always(Reply(several))) as fake:
        assert samples_of(read(meter(tasmota(fake, outlet=2)), 1))[0].value == 22
        assert samples_of(read(meter(tasmota(fake, outlet=2, quantity="energy")), 1))
        assert "has no 2" in lost(meter(tasmota(fake, outlet=3)))


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(fault="hang"), "no whole answer in 0.3 s"),
        (Reply(PLUG, fault="trickle"), "no whole answer in 0.3 s"),
        (Reply(PLUG, fault="cut"), "lacks"),
        (Reply(PLUG, fault="drop"), "closed connection"),
        (Reply(status=500), "HTTP status 500"),
        (Reply(status=401), "HTTP status 401"),
        (Reply(body=b"<html>login</html>"), "no JSON in"),
        (Reply(body=b"x" * (2 << 20)), "an answer of more than"),
        (Reply({"StatusSNS": {"Time": "now"}}), "has no 'ENERGY'"),
        (Reply({"StatusSNS": {"ENERGY": {"Power": "62"}}}), "is no number"),
        (Reply([1]), "has no 'StatusSNS'"),
    ],
)
def test_what_is_no_answer_is_a_loss(reply: Reply, reason: str) -> None:
    begin = time.monotonic()
    with FakeWeb(always(reply)) as fake:
        assert reason in lost(meter(tasmota(fake, timeout=0.3)))
    assert time.monotonic() - begin < 10


def test_a_connection_is_kept_and_made_again_when_it_was_dropped() -> None:
    drops = iter([Reply(PLUG), Reply(PLUG), Reply(fault="drop"), Reply(PLUG)])
    with FakeWeb(lambda *_: next(drops)) as fake:
        assert len(read(meter(tasmota(fake)), 3)) == 3
        assert len(fake.requests) == 4


def test_a_server_that_is_gone_is_lost() -> None:
    with FakeWeb(always(Reply(PLUG))) as fake:
        table = tasmota(fake)
    assert "Connection refused" in lost(meter(table))


@pytest.mark.parametrize("component", ["Switch", "PM1"])
def test_shelly_gives_power_or_its_counter(component: str) -> None:
    status = {"id": 1, "apower": 8.9, "aenergy": {"total": 6.532}, "errors": []}
    with FakeWeb(always(Reply(status))) as fake:
        table = {"kind": "shelly", "url": fake.url, "component": component, "id": 1, "period": 0.1}
        (power,) = samples_of(read(meter(table), 1))
        (energy,) = samples_of(read(meter(table | {"quantity": "energy"}), 1))
        assert set(fake.requests) == {f"GET /rpc/{component}.GetStatus?id=1"}
    assert (power.value, power.kind, power.scope) == (8.9, Kind.INSTANT, "m")
    assert energy.kind is Kind.COUNTER
    assert energy.value == pytest.approx(6.532 * 3600)


@pytest.mark.parametrize(
    ("status", "quality"),
    [
        ({"apower": None}, Quality.NAN),
        ({"apower": 2.0, "errors": ["power_meas"]}, Quality.NAN),
        ({"apower": 4000.0, "errors": ["overpower"]}, Quality.OVERRANGE),
    ],
)
def test_a_shelly_that_does_not_know_has_no_value(status: Any, quality: Quality) -> None:
    with FakeWeb(always(Reply(status))) as fake:
        table = {"kind": "shelly", "url": fake.url, "period": 0.1}
        (one,) = samples_of(read(meter(table), 1))
    assert (one.value, one.quality) == (None, quality)


def test_a_counter_of_a_plug_that_was_reset_says_so() -> None:
    totals = iter([5.0, 6.0, 0.0, 1.0])
    with FakeWeb(lambda *_: Reply({"aenergy": {"total": next(totals)}})) as fake:
        table = {"kind": "shelly", "url": fake.url, "quantity": "energy", "period": 0.1}
        samples = samples_of(read(meter(table), 4))
    assert [one.quality.value for one in samples] == ["ok", "ok", "reset", "ok"]
    assert [one.value for one in samples] == [18000, 21600, None, 3600]


class Bmc:
    """A Redfish service with one chassis."""

    def __init__(self, auth: str) -> None:
        self.auth = auth
        self.token = "t0ken"
        self.power: Any = 344

    def __call__(self, method: str, path: str, headers: Any, body: bytes) -> Reply:
        sessions = "/redfish/v1/SessionService/Sessions"
        if method == "POST" and path == sessions:
            good = body == b'{"UserName": "lab", "Password": "hunter2"}'
            token = {"X-Auth-Token": self.token, "Location": f"http://bmc{sessions}/7"}
            return Reply({}, 201, token) if good else Reply({}, 401)
        basic = "Basic " + base64.b64encode(b"lab:hunter2").decode()
        if self.auth == "basic" and headers.get("Authorization") != basic:
            return Reply({}, 401)
        if self.auth == "session" and headers.get("X-Auth-Token") != self.token:
            return Reply({}, 401)
        control = {
            "PowerConsumedWatts": self.power,
            "PowerMetrics": {"IntervalInMin": 1, "AverageConsumedWatts": 319},
        }
        return {
            "/redfish/v1/": Reply({"RedfishVersion": "1.6.0", "UUID": "92384634"}),
            "/redfish/v1/Chassis/1U/Power": Reply({"PowerControl": [control]}),
            "/redfish/v1/Chassis/1U/EnvironmentMetrics": Reply(
                {"PowerWatts": {"Reading": 374.5}, "EnergykWh": {"Reading": 325675}}
            ),
            f"{sessions}/7": Reply(),
        }.get(path, Reply({}, 404))


@pytest.fixture(name="secret")
def make_secret(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_text("hunter2\n")
    return str(path)


def redfish(fake: FakeWeb, secret: str, **more: Any) -> dict[str, Any]:
    return {
        "kind": "redfish",
        "url": fake.url,
        "channels": {"1U": "s1"},
        "user": "lab",
        "password_file": secret,
        "period": 0.1,
        **more,
    }


@pytest.mark.parametrize(
    ("quantity", "kind", "value"),
    [
        ("power", Kind.INSTANT, 344.0),
        ("average", Kind.AVERAGE, 319.0),
        ("environment", Kind.INSTANT, 374.5),
        ("energy", Kind.COUNTER, 325675 * 3.6e6),
    ],
)
def test_redfish_values_are_what_the_service_calls_them(
    secret: str, quantity: str, kind: Kind, value: float
) -> None:
    with FakeWeb(Bmc("basic")) as fake:
        one = meter(redfish(fake, secret, quantity=quantity))
        (sample,) = samples_of(read(one, 1))
    assert sample.kind is kind
    assert sample.value == pytest.approx(value)
    assert one.describe().identity == "Redfish 1.6.0 92384634"


def test_a_redfish_session_is_ended(secret: str) -> None:
    with FakeWeb(Bmc("session")) as fake:
        read(meter(redfish(fake, secret, auth="session")), 1)
        session = "/redfish/v1/SessionService/Sessions"
        assert [one for one in fake.requests if session in one] == [
            f"POST {session}",
            f"DELETE {session}/7",
        ]


def test_an_expired_redfish_session_is_made_again(secret: str) -> None:
    bmc = Bmc("session")
    with FakeWeb(bmc) as fake:
        one = meter(redfish(fake, secret, auth="session"))
        one.open()
        stream = one.stream()
        next(stream)
        bmc.token = "other"
        with pytest.raises(MeterLost, match="HTTP status 401"):
            next(stream)
        one.resync()
        assert len(next(one.stream()).samples) == 1
        one.close()


def test_redfish_without_a_reading_has_no_value(secret: str) -> None:
    bmc = Bmc("basic")
    bmc.power = None
    with FakeWeb(bmc) as fake:
        (one,) = samples_of(read(meter(redfish(fake, secret)), 1))
        assert (one.value, one.quality) == (None, Quality.NAN)
        assert "HTTP status 404" in lost(meter(redfish(fake, secret, channels={"2U": "s2"})))
        (Path(secret).parent / "wrong").write_text("guess\n")
        assert "HTTP status 401" in lost(meter(redfish(fake, str(Path(secret).parent / "wrong"))))


def test_a_certificate_is_trusted_by_its_issuer_or_its_fingerprint(
    secret: str, tmp_path: Path
) -> None:
    certificate = make_certificate(tmp_path)
    text = certificate.read_text()
    der = ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERT") :])
    found = hashlib.sha256(der).hexdigest()
    with FakeWeb(Bmc("basic"), certificate) as fake:
        assert "CERTIFICATE_VERIFY_FAILED" in lost(meter(redfish(fake, secret)))
        assert fake.requests == []
        wrong = redfish(fake, secret, fingerprint="0" * 64)
        assert f"its SHA-256 is {found}" in lost(meter(wrong))
        assert fake.requests == [], "the password must not reach who is not the device"
        assert len(read(meter(redfish(fake, secret, fingerprint=found.upper())), 1)) == 1
        assert len(read(meter(redfish(fake, secret, ca_file=str(certificate))), 1)) == 1


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"url": "ftp://bmc"}, "url"),
        ({"url": "https://lab:hunter2@bmc"}, "url"),
        ({"fingerprint": "12:34"}, "fingerprint"),
        ({"password_file": "/nowhere"}, "password_file"),
        ({"password": "hunter2"}, "password"),
        ({"period": 11}, "period"),
        ({"timeout": 60}, "timeout"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    secret: str, wrong: dict[str, Any], where: str
) -> None:
    table = {"kind": "redfish", "url": "http://bmc", "channels": {"1": "s1"}, "user": "lab"}
    with pytest.raises(SettingsError, match=rf"^meters\.m\.{where}: "):
        meter(table | {"password_file": secret} | wrong)


def prometheus(fake: FakeWeb, **more: Any) -> dict[str, Any]:
    queries = {"a": 'node_power_watt{host="s1"}'}
    table = {"kind": "prometheus", "url": fake.url, "channels": {"a": "s1"}, "queries": queries}
    return {**table, "period": 0.1, **more}


def vector(*values: str) -> Reply:
    result = [{"metric": {"n": str(n)}, "value": [17e8, v]} for n, v in enumerate(values)]
    return Reply({"status": "success", "data": {"resultType": "vector", "result": result}})


def test_prometheus_gives_the_one_series_of_a_query(secret: str) -> None:
    asked: list[str] = []

    def answer(_: str, path: str, headers: Any, __: bytes) -> Reply:
        asked.append(f"{path} {headers.get('Authorization')}")
        return vector("0.25")

    with FakeWeb(answer) as fake:
        table = prometheus(fake, factor=1000.0, password_file=secret)
        (power,) = samples_of(read(meter(table), 1))
        (energy,) = samples_of(read(meter(table | {"value_kind": "counter"}), 1))
    assert (power.kind, power.value) == (Kind.INSTANT, 250.0)
    assert (energy.kind, energy.value) == (Kind.COUNTER, 250.0)
    query = "query=node_power_watt%7Bhost%3D%22s1%22%7D"
    assert asked[0] == f"/api/v1/query?{query} Bearer hunter2"


@pytest.mark.parametrize(
    ("reply", "quality"),
    [(vector(), Quality.NAN), (vector("NaN"), Quality.NAN), (vector("+Inf"), Quality.OVERRANGE)],
)
def test_prometheus_without_a_value_has_none(reply: Reply, quality: Quality) -> None:
    with FakeWeb(always(reply)) as fake:
        (one,) = samples_of(read(meter(prometheus(fake)), 1))
    assert (one.value, one.quality) == (None, quality)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (vector("1", "2"), "2 series are one channel"),
        (Reply({"status": "error", "error": "parse error"}), "parse error"),
        (Reply({"status": "success", "data": {}}), "is no result"),
        (Reply({"status": "error"}, 422), "HTTP status 422"),
        (Reply([]), "is no result"),
    ],
)
def test_prometheus_failures_are_losses(reply: Reply, reason: str) -> None:
    with FakeWeb(always(reply)) as fake:
        assert reason in lost(meter(prometheus(fake)))
