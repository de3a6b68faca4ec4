# SPDX-License-Identifier: Apache-2.0 OR MIT
"""JSON over HTTP and HTTPS, each request within its time, from devices with odd certificates."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from terrace_lab.errors import MeterLost
from terrace_lab.settings import Settings

_BODY_BYTES_MAX = 1 << 20
_GONE = (OSError, http.client.HTTPException, ValueError)


@dataclass(frozen=True, slots=True)
class Place:
    """Where to ask, and how its certificate is known."""

    url: str
    timeout_s: float
    ca_file: str | None = None
    """Its issuer, in place of those that the system trusts."""
    fingerprint: str | None = None
    """SHA-256 of the certificate itself, for one that is signed by nobody; 64 hex digits."""


class Response(NamedTuple):
    """What was answered."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            raise MeterLost(f"cannot read an answer: no JSON in {self.body[:80]!r}") from None


def read_place(settings: Settings, timeout_s: float) -> Place:
    """Reads `url`, `ca_file` and `fingerprint`."""
    url = settings.text("url").rstrip("/")
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise settings.error("url", f"{url!r} is no http:// or https:// address")
    if parts.username or parts.password:
        raise settings.error("url", "must not have a password in it; name a password_file")
    ca_file = settings.text("ca_file") if "ca_file" in settings else None
    fingerprint = None
    if "fingerprint" in settings:
        fingerprint = settings.text("fingerprint").replace(":", "").lower()
        if len(fingerprint) != 64 or set(fingerprint) - set("0123456789abcdef"):
            raise settings.error("fingerprint", "must be the 64 hex digits of a SHA-256")
    return Place(url, timeout_s, ca_file, fingerprint)


def read_password(settings: Settings) -> str | None:
    """The first line of `password_file`; None where the settings have none."""
    if "password_file" not in settings:
        return None
    try:
        return Path(settings.text("password_file")).read_text().split("\n")[0].strip()
    except OSError as error:
        raise settings.error("password_file", str(error)) from None


def basic(user: str, password: str) -> str:
    """The value of an Authorization header."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Web:
    """One server. Keeps its connection, because a handshake with a small controller is slow."""

    def __init__(self, place: Place) -> None:
        self._place = place
        parts = urllib.parse.urlsplit(place.url)
        assert parts.hostname is not None, "read_place has looked"
        self._is_secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port
        self._base = parts.path
        self._connection: http.client.HTTPConnection | None = None
        self.headers: dict[str, str] = {}
        """Sent with each request."""

    def get(self, path: str) -> Response:
        """Asks for a path below the address; MeterLost for all but a success."""
        return self._success(self.request("GET", path), path)

    def post(self, path: str, value: object) -> Response:
        """Sends JSON; MeterLost for all but a success."""
        return self._success(self.request("POST", path, json.dumps(value).encode()), path)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def request(self, method: str, path: str, body: bytes | None = None) -> Response:
        """Asks once, whatever is answered; a second time where a kept connection was dead."""
        was_kept = self._connection is not None
        try:
            return self._request(method, path, body)
        except (http.client.RemoteDisconnected, ConnectionError) as error:
            self.close()
            if not was_kept:
                raise self._lost(error) from error
        except _GONE as error:
            self.close()
            raise self._lost(error) from error
        try:
            return self._request(method, path, body)
        except _GONE as error:
            self.close()
            raise self._lost(error) from error

    def _lost(self, error: Exception) -> MeterLost:
        reason = str(error) or type(error).__name__
        return MeterLost(f"cannot ask a meter: {reason} url={self._place.url}")

    def _success(self, response: Response, path: str) -> Response:
        if not 200 <= response.status < 300:
            self.close()
            raise MeterLost(
                f"cannot ask a meter: HTTP status {response.status} "
                f"url={self._place.url}{path.partition('?')[0]}"
            )
        return response

    def _request(self, method: str, path: str, body: bytes | None) -> Response:
        connection = self._connection or self._connect()
        headers = {"Accept": "application/json", **self.headers}
        if body is not None:
            headers["Content-Type"] = "application/json"
        with _limit(connection, self._place.timeout_s):
            connection.request(method, self._base + path, body, headers)
            answer = connection.getresponse()
            data = answer.read(_BODY_BYTES_MAX + 1)
            if len(data) > _BODY_BYTES_MAX:
                raise ValueError(f"an answer of more than {_BODY_BYTES_MAX} bytes")
            if answer.length:
                raise ValueError(f"an answer that lacks {answer.length} bytes")
        if answer.will_close:
            self.close()
        lower = {name.lower(): value for name, value in answer.getheaders()}
        return Response(answer.status, lower, data)

    def _connect(self) -> http.client.HTTPConnection:
        timeout_s = self._place.timeout_s
        connection: http.client.HTTPConnection
        if self._is_secure:
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout_s, context=self._context()
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        connection.connect()
        if self._is_secure and self._place.fingerprint is not None:
            # Before anything is said: a password must not reach who is not the device.
            assert isinstance(connection.sock, ssl.SSLSocket)
            certificate = connection.sock.getpeercert(binary_form=True) or b""
            found = hashlib.sha256(certificate).hexdigest()
            if not hmac.compare_digest(found, self._place.fingerprint):
                connection.close()
                raise ValueError(f"the certificate is another one: its SHA-256 is {found}")
        self._connection = connection
        return connection

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._place.ca_file)
        if self._place.fingerprint is not None:
            # The certificate itself is compared; names and issuers add nothing to that.
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@contextlib.contextmanager
def _limit(connection: http.client.HTTPConnection, seconds: float) -> Iterator[None]:
    """Cuts a connection that is not done in time: its own limit is for each byte that comes."""
    is_late = threading.Event()

    def cut() -> None:
        is_late.set()
        with contextlib.suppress(OSError):
            # Not that of ssl, which may be in use by the other thread.
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except _GONE as error:
        # Its own limit, for one wait, is as long and may end first.
        if is_late.is_set() or isinstance(error, TimeoutError):
            raise TimeoutError(f"no whole answer in {seconds:g} s") from error
        raise
    finally:
        timer.cancel()


def number_at(value: Any, *path: str | int) -> float | None:
    """The number at a path in JSON; None for null. MeterLost where there is something else."""
    here = value
    for step in path:
        try:
            here = here[step]
        except (KeyError, IndexError, TypeError):
            raise MeterLost(f"cannot read an answer: it has no {step!r} of {path}") from None
    if here is None:
        return None
    if isinstance(here, bool) or not isinstance(here, int | float):
        raise MeterLost(f"cannot read an answer: {here!r} at {path} is no number")
    return float(here)
