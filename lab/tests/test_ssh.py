# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Hosts behind OpenSSH: a real server on loopback, with keys of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from terrace_lab.clocks import measure
from terrace_lab.errors import HostLost
from terrace_lab.hosts import AgentHost, Command
from terrace_lab.records import now

WAIT_SECONDS_MAX = 20


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """An sshd that `ssh lab-host` leads to."""
    program = shutil.which("sshd", path="/usr/sbin:/sbin:/usr/bin")
    assert program, "there is no sshd: install openssh-server"
    for name in ("host", "user"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(key, check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {tmp_path}/host\nStrictModes no\n"
        f"AuthorizedKeysFile {tmp_path}/user.pub\nPidFile none\nUsePAM no\n"
        "PasswordAuthentication no\n"
    )
    (tmp_path / "config").write_text(
        f"Host lab-host\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n"
        f"  IdentityFile {tmp_path}/user\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {tmp_path}/known\n  StrictHostKeyChecking accept-new\n"
    )
    # Without a place of its own the user's configuration would count.
    wrapper = tmp_path / "bin" / "ssh"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {tmp_path}/config "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    Path("/run/sshd").mkdir(exist_ok=True)
    process = subprocess.Popen([program, "-D", "-e", "-f", str(tmp_path / "sshd_config")])
    end = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        assert process.poll() is None, "sshd ended"
        assert time.monotonic() < end, "sshd does not listen"
        time.sleep(0.02)
    yield process
    process.terminate()
    process.wait()


@pytest.mark.usefixtures("server")
def test_a_host_behind_ssh_does_what_one_beside_does(tmp_path: Path) -> None:
    host = AgentHost("far", "lab-host")
    assert host.address == "lab-host"
    host.connect()
    # An argument with everything that a shell on the way could take for its own.
    hostile = "a b'\"$HOME;`id`\\ *"
    ended = host.run(Command(["printf", "%s", hostile], directory=str(tmp_path)))
    assert ended.stdout == hostile
    offset = measure(host.clock)
    # The same machine: whatever is not zero is the error.
    assert abs(offset.offset_ns) <= offset.bound_ns
    assert abs(ended.end.raw_ns - now().raw_ns) < 60e9
    host.close()


@pytest.mark.usefixtures("server")
def test_a_connection_that_breaks_is_a_host_that_is_lost() -> None:
    host = AgentHost("far", "lab-host")
    host.connect()
    assert host._process is not None
    os.kill(host._process.pid, signal.SIGKILL)
    with pytest.raises(HostLost, match="cannot reach host far"):
        host.run(Command(["sleep", "60"]))
    host.connect()
    assert host.has("sh")
    host.close()


def test_a_host_that_is_not_there_is_an_error_and_no_wait(
    server: subprocess.Popen[bytes],
) -> None:
    server.terminate()
    server.wait()
    with pytest.raises(HostLost, match="cannot reach host far"):
        AgentHost("far", "lab-host").connect()
