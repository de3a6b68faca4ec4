# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Small files of a kernel, on this machine or through the agent of another."""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from terrace_lab.errors import LabError, MeterLost
from terrace_lab.hosts import AgentHost, Command
from terrace_lab.settings import Settings

_PLAIN = re.compile(r"(/[A-Za-z0-9_.-]+)+\Z")
_SECONDS_MAX = 5.0
_FILE_BYTES_MAX = 4096


class Files(Protocol):
    """Every method is bounded by 10 s and raises MeterLost."""

    def connect(self) -> None: ...
    def disconnect(self) -> None:
        """Never raises."""
        ...

    def read(self, paths: Sequence[str]) -> list[str]:
        """The content of each, without the space around it."""
        ...

    def find(self, pattern: str) -> list[str]:
        """What a pattern of the shell matches, sorted."""
        ...


class LocalFiles:
    """Of this machine."""

    def connect(self) -> None:
        """Nothing is needed."""

    def disconnect(self) -> None:
        """Nothing is kept."""

    def read(self, paths: Sequence[str]) -> list[str]:
        texts = []
        for path in paths:
            try:
                with open(path, "rb") as file:
                    texts.append(file.read(_FILE_BYTES_MAX).decode("utf-8", "replace").strip())
            except OSError as error:
                raise MeterLost(f"cannot read a meter: {error}") from error
        return texts

    def find(self, pattern: str) -> list[str]:
        return sorted(glob.glob(pattern))


class HostFiles:
    """Of another machine."""

    def __init__(self, host: AgentHost) -> None:
        self._host = host

    def connect(self) -> None:
        try:
            self._host.connect()
        except LabError as error:
            raise MeterLost(str(error)) from error

    def disconnect(self) -> None:
        self._host.close()

    def read(self, paths: Sequence[str]) -> list[str]:
        # One line is what each of these files has.
        lines = self._run(["cat", "--", *paths]).splitlines()
        if len(lines) != len(paths):
            raise MeterLost(f"cannot read a meter: {len(lines)} lines of {len(paths)} files")
        return [line.strip() for line in lines]

    def find(self, pattern: str) -> list[str]:
        # Unquoted, for the shell to expand; the pattern comes from the driver and a checked root.
        found = self._run(["sh", "-c", f'for f in {pattern}; do echo "$f"; done']).splitlines()
        return sorted(one for one in found if "*" not in one)

    def _run(self, argv: list[str]) -> str:
        try:
            ended = self._host.run(Command(argv, timeout_s=_SECONDS_MAX))
        except LabError as error:
            raise MeterLost(str(error)) from error
        if ended.code != 0:
            reason = ended.stderr.strip() or f"exit code {ended.code}"
            raise MeterLost(f"cannot read a meter: {reason} host={self._host.name}")
        return ended.stdout


def read_host(settings: Settings, hosts: Mapping[str, AgentHost]) -> AgentHost | None:
    """Reads `host`, where the device is: one of the experiment; by default None, this machine."""
    if "host" not in settings:
        return None
    name = settings.text("host")
    if name not in hosts:
        raise settings.error("host", f"{name!r} is no host, only {', '.join(hosts) or 'none'}")
    return None if hosts[name].is_local else hosts[name]


def read_files(settings: Settings, hosts: Mapping[str, AgentHost], root: str) -> tuple[Files, Path]:
    """Reads `host` and `root`, the directory of a device class."""
    host = read_host(settings, hosts)
    path = Path(settings.text("root", root))
    if not _PLAIN.match(str(path)):
        raise settings.error("root", "must be an absolute path of letters, digits and -_.")
    return LocalFiles() if host is None else HostFiles(host), path
