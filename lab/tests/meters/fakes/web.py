# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A web server for devices that answer in JSON, and for those that do not."""

from __future__ import annotations

import datetime
import http.server
import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from terrace_lab.meters.programs import run


@dataclass
class Reply:
    """What to answer; `fault` is one of `hang`, `cut`, `trickle`, `drop`."""

    value: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    fault: str | None = None


class FakeWeb:
    """Answers each request by a function of its method, path, headers and body."""

    def __init__(
        self, answer: Callable[[str, str, Any, bytes], Reply], certificate: Path | None = None
    ) -> None:
        self.requests: list[str] = []
        self.is_over = threading.Event()
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                fake.requests.append(f"{self.command} {self.path}")
                reply = answer(self.command, self.path, self.headers, body)
                data = json.dumps(reply.value).encode() if reply.body is None else reply.body
                if reply.fault == "hang":
                    fake.is_over.wait(20)
                    self.close_connection = True
                    return
                if reply.fault == "drop":
                    self.close_connection = True
                    return
                self.send_response(reply.status)
                self.send_header("Content-Length", str(len(data)))
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if reply.fault == "trickle":
                    for index in range(len(data)):
                        if fake.is_over.wait(0.05):
                            return
                        self.wfile.write(data[index : index + 1])
                        self.wfile.flush()
                    return
                if reply.fault == "cut":
                    data = data[: len(data) // 2]
                    self.close_connection = True
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - what http.server looks for

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                """Clients that go away are what is tested."""

        self._server = Server(("127.0.0.1", 0), Handler)
        scheme = "http"
        if certificate is not None:
            scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    def __enter__(self) -> FakeWeb:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def make_certificate(directory: Path) -> Path:
    """A certificate that is signed by itself, with its key, in one file."""
    path = directory / f"certificate-{datetime.datetime.now().timestamp()}.pem"
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    files = ["-keyout", f"{path}.key", "-out", f"{path}.crt"]
    names = ["-subj", "/CN=bmc", "-addext", "subjectAltName=IP:127.0.0.1"]
    run([*request, "-nodes", "-days", "2", *files, *names], 20)
    path.write_text(Path(f"{path}.key").read_text() + Path(f"{path}.crt").read_text())
    return path
