# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What workloads have in common that are defined by a table of parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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


def with_preset(
    settings: Settings, presets: Mapping[str, Mapping[str, Any]], keys: Sequence[str]
) -> Settings:
    """The table with what its `preset`, if any, says of these keys; others are refused."""
    preset: Mapping[str, Any] = {}
    if "preset" in settings:
        preset = presets[settings.choice("preset", tuple(presets))]
    given = {key: settings.raw(key) for key in keys if key in settings}
    settings.finish()
    return Settings(settings.where, {**preset, **given})


def check_phases(settings: Settings, phases: Sequence[str], known: Collection[str]) -> None:
    """SettingsError unless each of them is known, and none comes twice."""
    for phase in phases:
        if phase not in known:
            raise settings.error("phases", f"{phase!r} is none of {', '.join(known)}")
    if not phases or len(set(phases)) != len(phases):
        raise settings.error("phases", "must name at least one phase, and none twice")


def missing(hosts: Mapping[str, Host], program: str, help_text: str) -> list[Problem]:
    """The hosts that a program is not on, with what would help."""
    return [
        Problem(host.name, f"{program} is not there; {help_text}")
        for host in hosts.values()
        if not host.has(program)
    ]


def letters(size: int) -> str:
    """A size as IOR and mdtest take it, whose letters stand for powers of 1024: `4m`, `1200k`."""
    for letter, shift in (("g", 30), ("m", 20), ("k", 10)):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}{letter}"
    return str(size)
