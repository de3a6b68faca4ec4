# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the tables of an experiment file say, one class a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class HostSpec:
    """One machine."""

    name: str
    ssh: str | None
    """Destination for ssh; None is this machine."""
    address: str | None
    """As the other hosts reach it; by default what ssh is given."""
    is_client: bool
    is_server: bool
    devices: tuple[str, ...]
    """Disks of a server, which probes read."""
    probe_directories: tuple[str, ...]
    """Directories on them, one each, where probes write a file and remove it."""
    nic: str | None
    python: str


@dataclass(frozen=True, slots=True)
class MeterSpec:
    """One meter; `settings` is what its driver reads."""

    name: str
    kind: str
    is_required: bool
    backup_for: str | None
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EnergySpec:
    """Whose energy counts, and when it does not."""

    scope: tuple[str, ...]
    """Scopes of channels; empty means all."""
    idle_s: float
    settle_s: float
    on_gap: str
    """`repeat`, `invalidate`, `pause` or `abort`."""
    min_coverage: float
    max_gap_s: float
    guard_s: float
    """Least idle time before and behind a phase; never less than three periods of the meters."""
    lag: str
    """`auto`: found by a load, for meters that are not modelled; `measure`: for all; `skip`."""
    repeats_max: int
    """How often a repetition is tried again for the sake of its energy."""
    weight: float
    """How much the time counts in the energy-delay product that systems are ranked by."""
    subtract_w: Mapping[str, float]
    """Watts of parts that are in the scope and shared with others, by name."""
    share: Mapping[str, float]
    """The part that counts of scopes that feed others, too, as a supply of several hosts does."""


@dataclass(frozen=True, slots=True)
class ColdSpec:
    """What is done to caches before each phase."""

    drop_caches: bool
    remount: bool
    cooldown_s: float


@dataclass(frozen=True, slots=True)
class RepeatSpec:
    """How often, and in which order."""

    least: int
    most: int
    metrics: tuple[str, ...]
    """Which have to be known well enough to stop: `throughput`, `energy`; empty: `least` is all."""
    confidence: float
    relative_half_width: float
    order: str
    """`randomized-blocks` or `sequential`."""
    warmup: int
    cold: ColdSpec


@dataclass(frozen=True, slots=True)
class GateSpec:
    """What has to be so before a phase may begin."""

    load_max: float
    """Processors that others keep busy, of all hosts."""
    disk_bytes_s_max: float
    """That others move on the disks of a host."""
    free_factor: float
    """Room for so many times what the workload stores."""
    wait_s: float
    """How long it is waited for."""
    clock_bound_s: float
    """Largest uncertainty of the marks of other hosts."""
    drain_s: float
    """How long a flush tail is waited for."""


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """How the components are measured, for the theoretical peak."""

    enabled: bool
    size_bytes: int
    """Of the file that is written and read."""
    repetitions: int
    xfer_bytes: int
    """Of a sequential request; random ones have 4 KiB."""
    depth: int
    """Of the queue of sequential requests."""
    disk_s: float
    """How long each disk is loaded; 0: as long as the file lasts, and 2 s at random."""
    network_s: float
    streams: tuple[int, ...]
    """Numbers of TCP streams side by side that iperf3 is run with."""


@dataclass(frozen=True, slots=True)
class SeriesSpec:
    """How often hosts are sampled while phases run."""

    enabled: bool
    period_s: float


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """One workload; `settings` is what it reads."""

    name: str
    kind: str
    bytes_per_client: str | int | None
    total_bytes: str | int | None
    """Of all clients together, whatever their number."""
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """One system under test; `settings` is what it reads."""

    name: str
    kind: str
    parameters: Mapping[str, Any]
    """Values of its tunables; factors `target.NAME` come before them."""
    settings: Mapping[str, Any]
