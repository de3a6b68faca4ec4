# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Theoretical peak performance: what the components could do, and which of them binds.

Each component is probed by itself, more than once, and the peak is the least of their bounds. What
was not probed cannot bind and is named, because the true peak may be lower by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from terrace_lab.numbers.intervals import (
    Floats,
    percentiles,
    resampled_means,
    resampled_medians,
    seeded,
)
from terrace_lab.summary import Interval, PercentOfPeak


class Component(StrEnum):
    """What a line of `probes.jsonl` measures; rates are per second, times in seconds."""

    MEMORY = "memory"
    """B/s into tmpfs on a client: the copy that each byte takes."""
    NETWORK_TX = "network_tx"
    """B/s out of a host."""
    NETWORK_RX = "network_rx"
    """B/s into a host."""
    FABRIC = "fabric"
    """B/s of all clients to all servers at once; of no host."""
    DISK_WRITE = "disk_write"
    """B/s into one device."""
    DISK_READ = "disk_read"
    DISK_WRITE_TOGETHER = "disk_write_together"
    """B/s into all devices of a host at once: what its controller takes."""
    DISK_READ_TOGETHER = "disk_read_together"
    DISK_IOPS_WRITE = "disk_iops_write"
    """Random operations of 4 KiB per second at a high depth, of one device."""
    DISK_IOPS_READ = "disk_iops_read"
    DEVICE_TIME = "device_time"
    """Seconds that one operation at depth one takes on a device."""
    RTT = "rtt"
    """Seconds of a round trip from a client to a server."""
    FSYNC_RATE = "fsync_rate"
    """Small durable appends per second on a server's journal device."""
    PACKET_RATE = "packet_rate"
    """Small requests per second that a server can take off the network."""
    SERVER_TIME = "server_time"
    """Seconds that a server works on one metadata operation."""


@dataclass(frozen=True, slots=True)
class Probe:
    component: Component
    host: str | None
    device: str | None
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class System:
    """A target as far as its bounds go."""

    servers: Sequence[str]
    clients: Sequence[str]
    """Hosts of the load, one an entry; a host with two load generators counts once."""
    network_write: float = 1.0
    """Bytes into the servers for each byte of a client."""
    disk_write: float = 1.0
    disk_read: float = 1.0

    @property
    def is_local(self) -> bool:
        """Nothing goes over a network."""
        return not self.servers or set(self.servers) == set(self.clients) and len(self.servers) == 1

    @property
    def stores(self) -> Sequence[str]:
        return self.servers or self.clients


@dataclass(frozen=True, slots=True)
class Load:
    """What bounds operations rather than bytes."""

    generators: int = 1
    threads: int = 1
    depth: int = 1
    round_trips: float = 1.0
    """Of one metadata operation."""
    group: float = 1.0
    """Metadata operations that one journal write makes durable."""
    is_read: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A peak with what it is made of."""

    value: float
    binding: str
    terms: dict[str, float]
    missing: list[str]
    interval: Interval | None
    draws: Floats | None
    """The peak of resampled probes; None where no probe was repeated."""


def peak(
    direction: str, system: System, load: Load, probes: Sequence[Probe], seed: object = 0
) -> Found | None:
    """The peak in one direction; None where no component of it was probed."""
    means = {
        (one.component, one.host, one.device): np.array([np.mean(one.values)]) for one in probes
    }
    formula = _Formula(system, load, means)
    terms = formula.terms(direction)
    if not terms:
        return None
    binding = min(terms, key=lambda name: float(terms[name][0]))
    draws = None
    if any(len(one.values) > 1 for one in probes):
        random = seeded("peak", seed, direction)
        drawn = {
            (one.component, one.host, one.device): resampled_means(one.values, random)
            for one in probes
        }
        resampled = _Formula(system, load, drawn).terms(direction)
        draws = np.min(np.stack(list(resampled.values())), axis=0)
    return Found(
        value=float(terms[binding][0]),
        binding=binding,
        terms={name: float(term[0]) for name, term in terms.items()},
        missing=formula.missing,
        interval=None if draws is None else percentiles(draws),
        draws=draws,
    )


def percent_of(found: Found, rates: Sequence[float], seed: object = 0) -> PercentOfPeak:
    """The median rate in per cent of a peak, with the spread of both."""
    percent = 100 * float(np.median(rates)) / found.value
    interval = None
    if len(rates) > 1 or found.draws is not None:
        medians = resampled_medians(rates, seeded("percent", seed))
        bound = np.array([found.value]) if found.draws is None else found.draws
        interval = percentiles(100 * medians / bound)
    return PercentOfPeak(percent, interval, is_suspicious=percent > 100)


class _Formula:
    """The terms of a peak, for one or many values of each probe at once."""

    def __init__(
        self,
        system: System,
        load: Load,
        probes: Mapping[tuple[Component, str | None, str | None], Floats],
    ) -> None:
        self._system = system
        self._load = load
        self._probes = probes
        self.missing: list[str] = []

    def terms(self, direction: str) -> dict[str, Floats]:
        found = {
            "write": self._write,
            "read": self._read,
            "iops": self._iops,
            "metadata": self._metadata,
        }.get(direction, dict)()
        return {name: term for name, term in found.items() if term is not None}

    def _write(self) -> dict[str, Floats | None]:
        system = self._system
        terms = self._client_side(Component.NETWORK_TX)
        if not system.is_local:
            received = self._sum(Component.NETWORK_RX, system.servers)
            terms["network of servers"] = _over(received, system.network_write)
        stored = self._disks(Component.DISK_WRITE, Component.DISK_WRITE_TOGETHER)
        return terms | {"disk": _over(stored, system.disk_write)}

    def _read(self) -> dict[str, Floats | None]:
        system = self._system
        terms = self._client_side(Component.NETWORK_RX)
        if not system.is_local:
            terms["network of servers"] = self._sum(Component.NETWORK_TX, system.servers)
        stored = self._disks(Component.DISK_READ, Component.DISK_READ_TOGETHER)
        return terms | {"disk": _over(stored, system.disk_read)}

    def _iops(self) -> dict[str, Floats | None]:
        load, system = self._load, self._system
        rtt = self._rtt()
        device = self._mean(Component.DEVICE_TIME)
        latency = _add(rtt, device)
        waiting = load.generators * load.threads * load.depth
        component = Component.DISK_IOPS_READ if load.is_read else Component.DISK_IOPS_WRITE
        amplification = system.disk_read if load.is_read else system.disk_write
        terms = {
            "latency": None if latency is None else waiting / latency,
            "disk": _over(self._sum(component, system.stores), amplification),
        }
        if not system.is_local:
            terms["packets"] = self._sum(Component.PACKET_RATE, system.servers)
        return terms

    def _metadata(self) -> dict[str, Floats | None]:
        load, system = self._load, self._system
        rtt = self._rtt()
        travel = None if rtt is None else rtt * load.round_trips
        latency = _add(travel, self._mean(Component.SERVER_TIME))
        journal = self._sum(Component.FSYNC_RATE, system.stores)
        return {
            "latency": None if latency is None else load.generators * load.threads / latency,
            "journal": None if journal is None else journal * load.group,
        }

    def _client_side(self, network: Component) -> dict[str, Floats | None]:
        clients = self._system.clients
        memory = self._sum(Component.MEMORY, clients)
        if self._system.is_local:
            return {"memory": memory}
        wire = self._sum(network, clients)
        terms: dict[str, Floats | None] = {
            "memory": memory,
            "network of clients": wire,
            "fabric": self._mean(Component.FABRIC),
        }
        if memory is not None and wire is not None:
            # Below both sums where one client lacks memory and another one network.
            least = [
                np.minimum(self._of(Component.MEMORY, host), self._of(network, host))
                for host in clients
            ]
            each = np.sum(np.stack(least), axis=0)
            if float(each[0]) < min(float(memory[0]), float(wire[0])) * (1 - 1e-9) or len(each) > 1:
                terms["clients one by one"] = each
        return terms

    def _disks(self, single: Component, together: Component) -> Floats | None:
        parts = []
        for host in self._system.stores:
            alone = self._sum(single, [host])
            if alone is None:
                return None
            if (together, host, None) in self._probes:
                alone = np.minimum(alone, self._probes[together, host, None])
            parts.append(alone)
        return np.asarray(np.sum(np.stack(parts), axis=0)) if parts else None

    def _sum(self, component: Component, hosts: Sequence[str]) -> Floats | None:
        lacking = [host for host in hosts if not self._has(component, host)]
        self.missing += [f"{component} of {host}" for host in lacking]
        if lacking or not hosts:
            return None
        return np.asarray(np.sum(np.stack([self._of(component, host) for host in hosts]), axis=0))

    def _has(self, component: Component, host: str) -> bool:
        return any(key[:2] == (component, host) for key in self._probes)

    def _of(self, component: Component, host: str) -> Floats:
        """All devices of a host together.

        Where a host was probed by device and by directory, these are the same disks twice, and the
        larger sum counts.
        """
        sums: dict[bool, Floats] = {}
        for key, value in self._probes.items():
            if key[:2] == (component, host):
                is_device = str(key[2]).startswith("/dev/")
                sums[is_device] = sums[is_device] + value if is_device in sums else value
        return np.asarray(np.max(np.stack(list(sums.values())), axis=0))

    def _rtt(self) -> Floats | None:
        return np.zeros(1) if self._system.is_local else self._mean(Component.RTT)

    def _mean(self, component: Component) -> Floats | None:
        """Over all hosts, for what is no sum; None where nobody has it."""
        found = [value for key, value in self._probes.items() if key[0] is component]
        if not found:
            self.missing.append(str(component))
            return None
        return np.asarray(np.mean(np.stack(found), axis=0))


def _over(value: Floats | None, divisor: float) -> Floats | None:
    return None if value is None else value / divisor


def _add(first: Floats | None, second: Floats | None) -> Floats | None:
    """The sum of what is known; None where that is nothing, or no time at all."""
    known = [one for one in (first, second) if one is not None]
    total = np.asarray(sum(known)) if known else None
    return total if total is not None and float(total[0]) > 0 else None
