# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Measures the components that bound any target: memory, network, disks, round trips.

Each by the tool that is usual for it, on the hosts and directories that the experiment names;
what it does not name, or what a tool is missing for, is not measured, and the report says so.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from terrace_lab.errors import LabError
from terrace_lab.experiment import Experiment
from terrace_lab.hosts import AgentHost, Command, run_together
from terrace_lab.numbers.peaks import Component
from terrace_lab.records import STREAMS, LinesWriter
from terrace_lab.specs import HostSpec

TIMEOUT_SECONDS = 300.0
"""Beyond the time that a probe is given."""
RANDOM_SECONDS = 2
PINGS = 20
PORT_FIRST = 52_010
"""Of iperf3; a port for each pair that is measured at once."""
MEMORY_PLACE = "/dev/shm"

_RTT = re.compile(r"= ([0-9.]+)/([0-9.]+)/([0-9.]+)/[0-9.]+ ms")

Tell = Callable[[str], None]


def measure(experiment: Experiment, hosts: Mapping[str, AgentHost], path: Path, tell: Tell) -> None:
    """Measures what can be, and appends it to the record."""
    with LinesWriter(path) as lines:
        probing = _Probing(experiment, hosts, lines, tell)
        for spec in experiment.clients:
            probing.memory(spec)
        for spec in experiment.servers:
            probing.disks(spec)
        probing.network()


class _Probing:
    def __init__(
        self,
        experiment: Experiment,
        hosts: Mapping[str, AgentHost],
        lines: LinesWriter,
        tell: Tell,
    ) -> None:
        self._experiment = experiment
        self._hosts = hosts
        self._lines = lines
        self._tell = tell
        self._timeout_s = TIMEOUT_SECONDS + experiment.probes.disk_s

    def _write(
        self,
        component: Component,
        host: str | None,
        value: float,
        unit: str,
        command: Sequence[str],
        device: str | None = None,
    ) -> None:
        self._lines.write(
            {
                "component": component.value,
                "host": host,
                "device": device,
                "value": value,
                "unit": unit,
                "command": list(command),
            }
        )

    # -- fio -----------------------------------------------------------------------------------

    def memory(self, spec: HostSpec) -> None:
        """The copy into memory that each byte of a client takes at least."""
        file = f"{MEMORY_PLACE}/terrace-lab-probe"
        argv = self._fio(file, "write", "1MiB", ["--ioengine=psync"])
        self._repeat(spec, Component.MEMORY, argv, "write", "bw_bytes", "B/s", None, file)

    def disks(self, spec: HostSpec) -> None:
        direct = ["--direct=1", "--ioengine=libaio"]
        probes = self._experiment.probes
        random_s = probes.disk_s or RANDOM_SECONDS
        timed = [f"--runtime={random_s:g}", "--time_based"]
        sequential = [f"--iodepth={probes.depth}"]
        if probes.disk_s:
            sequential += timed
        xfer = str(probes.xfer_bytes)
        for directory in spec.probe_directories:
            file = f"{directory}/terrace-lab-probe"
            for component, rw, size, more, side, key, unit in (
                (Component.DISK_WRITE, "write", xfer, sequential, "write", "bw_bytes", "B/s"),
                (Component.DISK_READ, "read", xfer, sequential, "read", "bw_bytes", "B/s"),
                (
                    Component.DISK_IOPS_WRITE,
                    *("randwrite", "4KiB", ["--iodepth=32", *timed], "write", "iops", "1/s"),
                ),
                (
                    Component.DISK_IOPS_READ,
                    *("randread", "4KiB", ["--iodepth=32", *timed], "read", "iops", "1/s"),
                ),
                (
                    Component.FSYNC_RATE,
                    *("write", "4KiB", ["--fsync=1", *timed], "write", "iops", "1/s"),
                ),
            ):
                options = [*direct, *more]
                if component is Component.FSYNC_RATE:
                    options = ["--ioengine=psync", *more]
                argv = self._fio(file, rw, size, options)
                self._repeat(spec, component, argv, side, key, unit, directory, None)
            argv = self._fio(file, "randread", "4KiB", [*direct, "--iodepth=1", *timed])
            for _ in range(self._experiment.probes.repetitions):
                if (found := self._one(spec, argv, "read")) is not None:
                    seconds = float(found["clat_ns"]["mean"]) / 1e9
                    self._write(Component.DEVICE_TIME, spec.name, seconds, "s", argv, directory)
            self._remove(spec, file)
        for device in spec.devices:
            # A device that may hold data is only read.
            for component, rw, size, more, key, unit in (
                (Component.DISK_READ, "read", xfer, sequential, "bw_bytes", "B/s"),
                (
                    Component.DISK_IOPS_READ,
                    *("randread", "4KiB", ["--iodepth=32", *timed], "iops", "1/s"),
                ),
            ):
                argv = self._fio(device, rw, size, [*direct, *more, "--readonly"])
                self._repeat(spec, component, argv, "read", key, unit, device, None)
        if len(spec.probe_directories) > 1:
            self._together(spec)

    def _together(self, spec: HostSpec) -> None:
        """All disks of a host at once: its controller may take less than their sum."""
        host = self._hosts[spec.name]
        files = [f"{directory}/terrace-lab-probe" for directory in spec.probe_directories]
        for component, rw in (
            (Component.DISK_WRITE_TOGETHER, "write"),
            (Component.DISK_READ_TOGETHER, "read"),
        ):
            probes = self._experiment.probes
            options = ["--direct=1", "--ioengine=libaio", f"--iodepth={probes.depth}"]
            if probes.disk_s:
                options += [f"--runtime={probes.disk_s:g}", "--time_based"]
            xfer = str(probes.xfer_bytes)
            argvs = [self._fio(file, rw, xfer, options) for file in files]
            for _ in range(self._experiment.probes.repetitions):
                commands = [Command(argv, timeout_s=self._timeout_s) for argv in argvs]
                ended = run_together([(host, command) for command in commands])
                if any(one.code != 0 for one in ended):
                    self._tell(f"{spec.name}: cannot measure {component.value}")
                    break
                total = sum(float(_fio_result(one.stdout)[rw]["bw_bytes"]) for one in ended)
                self._write(component, spec.name, total, "B/s", argvs[0])
        for file in files:
            self._remove(spec, file)

    def _fio(self, file: str, rw: str, size: str, options: Sequence[str]) -> list[str]:
        return [
            "fio",
            "--name=probe",
            f"--filename={file}",
            f"--rw={rw}",
            f"--bs={size}",
            f"--size={self._experiment.probes.size_bytes}",
            "--output-format=json",
            *options,
        ]

    def _repeat(
        self,
        spec: HostSpec,
        component: Component,
        argv: list[str],
        side: str,
        key: str,
        unit: str,
        device: str | None,
        file: str | None,
    ) -> None:
        for _ in range(self._experiment.probes.repetitions):
            found = self._one(spec, argv, side)
            if found is None:
                break
            self._write(component, spec.name, float(found[key]), unit, argv, device)
            if file is not None:
                # Memory that is written again is memory that is there already.
                self._remove(spec, file)

    def _one(self, spec: HostSpec, argv: Sequence[str], side: str) -> dict[str, Any] | None:
        """One run of fio; None, and a word about it, where that was not possible."""
        host = self._hosts[spec.name]
        try:
            if not host.has("fio"):
                raise LabError("fio is not installed")
            ended = host.run(Command(argv, timeout_s=self._timeout_s))
            if ended.code != 0:
                raise LabError(ended.stderr.strip() or ended.stdout.strip() or str(ended.code))
            found: dict[str, Any] = _fio_result(ended.stdout)[side]
        except LabError as error:
            self._tell(f"{spec.name}: cannot measure by {shlex.join(argv[:4])}: {error}")
            return None
        return found

    def _remove(self, spec: HostSpec, file: str) -> None:
        self._hosts[spec.name].run(Command(["rm", "-f", file], timeout_s=60))

    # -- network -------------------------------------------------------------------------------

    def network(self) -> None:
        """Rates and round trips between clients and servers that are not the same machine."""
        pairs = [
            (client, server)
            for client, server in itertools.product(
                self._experiment.clients, self._experiment.servers
            )
            if client.name != server.name
        ]
        for client, server in pairs:
            self._round_trip(client, server)
        for _ in range(self._experiment.probes.repetitions if pairs else 0):
            for client, server in pairs:
                for is_reverse in (False, True):
                    if not self._streams(client, server, is_reverse):
                        return
            if len(pairs) > 1 and (found := self._iperf(pairs, False)) is not None:
                self._write(Component.FABRIC, None, found[0], "B/s", found[1])

    def _streams(self, client: HostSpec, server: HostSpec, is_reverse: bool) -> bool:
        """Each number of streams; the network can do what the best of them does."""
        sender, receiver = (server, client) if is_reverse else (client, server)
        best: tuple[float, list[str]] | None = None
        for count in self._experiment.probes.streams:
            found = self._iperf([(client, server)], is_reverse, count)
            if found is None:
                return False
            self._lines.write(
                {
                    "component": STREAMS,
                    "host": sender.name,
                    "to": receiver.name,
                    "streams": count,
                    "device": None,
                    "value": found[0],
                    "unit": "B/s",
                    "command": found[1],
                }
            )
            if best is None or found[0] > best[0]:
                best = found
        assert best is not None
        self._write(Component.NETWORK_TX, sender.name, best[0], "B/s", best[1])
        self._write(Component.NETWORK_RX, receiver.name, best[0], "B/s", best[1])
        return True

    def _round_trip(self, client: HostSpec, server: HostSpec) -> None:
        if not self._hosts[client.name].has("ping"):
            self._tell(f"{client.name}: cannot measure the round trip: ping is not installed")
            return
        address = self._hosts[server.name].address
        argv = ["ping", "-n", "-q", "-c", str(PINGS), "-i", "0.01", address]
        ended = self._hosts[client.name].run(Command(argv, timeout_s=60))
        match = _RTT.search(ended.stdout)
        if match is None:
            self._tell(f"{client.name}: cannot measure the round trip to {server.name} by ping")
            return
        self._write(Component.RTT, client.name, float(match[2]) / 1e3, "s", argv)

    def _iperf(
        self, pairs: Sequence[tuple[HostSpec, HostSpec]], is_reverse: bool, streams: int = 1
    ) -> tuple[float, list[str]] | None:
        """Bytes per second of all pairs at once; None where iperf3 is not everywhere."""
        for spec in {one.name: one for pair in pairs for one in pair}.values():
            if not self._hosts[spec.name].has("iperf3"):
                self._tell(f"{spec.name}: cannot measure the network: iperf3 is not installed")
                return None
        commands = []
        for port, (client, server) in enumerate(pairs, start=PORT_FIRST):
            serve = ["iperf3", "-s", "-1", "-p", str(port)]
            network_s = self._experiment.probes.network_s
            seconds = network_s + 30.0
            commands.append((self._hosts[server.name], Command(serve, timeout_s=seconds)))
            argv = ["iperf3", "-J", "-t", f"{network_s:g}", "-p", str(port)]
            argv += ["-P", str(streams)] if streams > 1 else []
            argv += ["-c", self._hosts[server.name].address, *(["-R"] if is_reverse else [])]
            # The server needs a moment; a refused client tries again.
            retry = f"for i in 1 2 3 4 5; do {shlex.join(argv)} && exit; sleep 0.3; done; exit 1"
            command = Command(["sh", "-c", retry], timeout_s=seconds)
            commands.append((self._hosts[client.name], command))
        ended = run_together(commands)[1::2]
        total = 0.0
        for one in ended:
            try:
                # The answer of the attempt that succeeded is the last one.
                text = one.stdout[one.stdout.rindex('{\n\t"start"') :]
                total += float(json.loads(text)["end"]["sum_received"]["bits_per_second"]) / 8
            except (ValueError, KeyError):
                self._tell(f"cannot measure the network by iperf3: {one.stdout.strip()[-200:]}")
                return None
        return total, argv


def _fio_result(text: str) -> dict[str, Any]:
    """The only job of an output of fio, which may begin with warnings."""
    try:
        found = json.loads(text[text.index("{") :])
        job: dict[str, Any] = found["jobs"][0]
    except (ValueError, KeyError, IndexError):
        raise LabError(f"its output is none: {text.strip()[:200]!r}") from None
    if job.get("error", 0) != 0:
        raise LabError(f"fio reports error {job['error']}")
    return job
