# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What has to be so before a phase begins, and how its end is told from its flush tail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from terrace_lab.errors import LabError
from terrace_lab.hosts import AgentHost
from terrace_lab.records import now
from terrace_lab.specs import GateSpec

LOOK_SECONDS = 0.5
"""Over which foreign load is looked at."""
QUIET_LOOKS = 3
"""So many looks in a row without activity end a flush tail."""
TAIL_LOOK_SECONDS = 0.1
TAIL_BYTES_S_MAX = 1 << 20
"""What journals and logs of an idle system write; less is no tail."""


class GateClosed(LabError):
    """A phase cannot begin, and waiting did not help."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What hosts did between two looks."""

    busy: float
    """Processors."""
    disk_bytes_s: float
    """Of the busiest host."""


def activity(before: Mapping[str, Any], after: Mapping[str, Any]) -> Activity:
    """What one host did between two readings of its counters."""
    seconds = (after["at"]["raw_ns"] - before["at"]["raw_ns"]) / 1e9
    if seconds <= 0:
        return Activity(0.0, 0.0)
    moved = 0
    for name, disk in after["disks"].items():
        if (old := before["disks"].get(name)) is not None:
            moved += disk["read_bytes"] - old["read_bytes"]
            moved += disk["written_bytes"] - old["written_bytes"]
    busy = after["cpu"]["busy_s"] - before["cpu"]["busy_s"]
    return Activity(busy / seconds, moved / seconds)


def _together(hosts: Sequence[AgentHost], seconds: float) -> Activity:
    before = [host.counters() for host in hosts]
    time.sleep(seconds)
    found = [activity(one, host.counters()) for one, host in zip(before, hosts, strict=True)]
    return Activity(sum(one.busy for one in found), max(one.disk_bytes_s for one in found))


def wait_until_open(
    spec: GateSpec,
    hosts: Sequence[AgentHost],
    meter_problem: Callable[[], str | None],
    tell: Callable[[str], None],
) -> None:
    """Returns when meters deliver and nobody loads the hosts; GateClosed after `spec.wait_s`."""
    deadline = time.monotonic() + spec.wait_s
    told: str | None = None
    while True:
        found = _together(hosts, LOOK_SECONDS)
        problem = meter_problem()
        if problem is None and found.busy > spec.load_max:
            problem = (
                f"other work keeps {found.busy:.2f} processors busy, gate.load_max is"
                f" {spec.load_max:g}"
            )
        if problem is None and found.disk_bytes_s > spec.disk_bytes_s_max:
            problem = (
                f"other work moves {found.disk_bytes_s / 2**20:.0f} MiB/s on disks,"
                f" gate.disk_bytes_s_max is {spec.disk_bytes_s_max / 2**20:g} MiB/s"
            )
        if problem is None:
            return
        if time.monotonic() >= deadline:
            raise GateClosed(f"cannot begin a phase: {problem} waited_s={spec.wait_s:g}")
        if told is None:
            tell(problem)
            told = problem


def drain(
    hosts: Iterable[AgentHost],
    free_bytes: Callable[[], int | None],
    seconds_max: float,
) -> tuple[int, bool]:
    """Waits until dirty data are on the disks and deletions have given back their room.

    Dirty pages are written at once by a sync, which bounds how long the kernel would keep them;
    what servers do behind it is waited for by looking at disks and free room. Returns when that was
    over, by CLOCK_MONOTONIC_RAW of the runner, and false where it was not within `seconds_max`.
    """
    hosts = list(hosts)
    deadline = time.monotonic() + seconds_max
    for host in hosts:
        host.sync()
    over_ns = now().raw_ns
    quiet = 0
    free = free_bytes()
    while quiet < QUIET_LOOKS:
        found = _together(hosts, TAIL_LOOK_SECONDS)
        free, before = free_bytes(), free
        is_quiet = found.disk_bytes_s <= TAIL_BYTES_S_MAX and free == before
        quiet = quiet + 1 if is_quiet else 0
        if not is_quiet:
            over_ns = now().raw_ns
            if time.monotonic() >= deadline:
                return over_ns, False
    return over_ns, True
