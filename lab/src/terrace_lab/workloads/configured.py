# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What workloads have in common that are defined by a table of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from terrace_lab.hosts import Host
from terrace_lab.settings import Settings
from terrace_lab.workloads.base import Problem

P = TypeVar("P")


class Configured(Generic[P]):
    """A workload with a table of parameters."""

    def __init__(self, name: str, where: str, values: Mapping[str, Any]) -> None:
        self.name = name
        self._parameters = self._read(Settings(where, values))

    def _read(self, settings: Settings) -> P:
        """Makes parameters of their table; SettingsError where they are none."""
        raise NotImplementedError

    def needs_files(self) -> bool:
        return True


def missing(hosts: Mapping[str, Host], program: str, help_text: str) -> list[Problem]:
    """The hosts that a program is not on, with what would help."""
    return [
        Problem(host.name, f"{program} is not there; {help_text}")
        for host in hosts.values()
        if not host.has(program)
    ]
