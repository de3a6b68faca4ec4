# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Programs of MPI: one mpirun on the first client starts processes on the hosts of all."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from terrace_lab.errors import PhaseFailed
from terrace_lab.hosts import Command, Ended, Host
from terrace_lab.records import Stamp
from terrace_lab.workloads.base import Context, Problem, Span
from terrace_lab.workloads.launch import launch

TIMEOUT_SECONDS = 24 * 3600.0
NOTE = (
    "the program tells how long its work took but not when: the phase is as long as it says and "
    "ends with the command"
)


def check(hosts: Mapping[str, Host], processes: int) -> list[Problem]:
    """Whether so many processes on each of these hosts can be started."""
    first = next(iter(hosts.values()))
    if first.has("mpirun") or (len(hosts) == 1 and processes == 1):
        return []
    return [Problem(first.name, "mpirun is not there; Debian package openmpi-bin")]


def run(context: Context, phase: str, argv: Sequence[str], processes: int) -> Ended:
    """Runs a program in so many processes on each client."""
    first = context.clients[0]
    words = list(argv)
    if first.host.has("mpirun"):
        words = [*_mpirun(context, processes), *words]
    elif processes * len(context.clients) > 1:
        raise PhaseFailed(
            f"cannot {phase}: there is no mpirun for {processes * len(context.clients)} processes "
            f"host={first.host.name}"
        )
    alone = dataclasses.replace(context, clients=[first])
    (ended,) = launch(alone, phase, [Command(words, timeout_s=TIMEOUT_SECONDS)])
    return ended


def spans(context: Context, ended: Ended, seconds: float) -> list[Span]:
    """For each client the time that the program says it took, up to the end of the command."""
    length_ns = round(seconds * 1e9)
    if ended.begin.raw_ns > ended.end.raw_ns - length_ns:
        raise PhaseFailed(
            f"cannot tell the time of the phase: {seconds} s are longer than the command"
        )
    begin = Stamp(ended.end.real_ns - length_ns, ended.end.raw_ns - length_ns)
    # By the clock of the host that ran mpirun, also for the others.
    return [Span(context.clients[0].host.name, begin, ended.end) for _ in context.clients]


def _mpirun(context: Context, processes: int) -> list[str]:
    first = context.clients[0].host
    said = first.run(Command(["mpirun", "--version"])).stdout
    argv = ["mpirun", "-n", str(processes * len(context.clients))]
    if "Open MPI" in said or "OpenRTE" in said:
        argv += ["--oversubscribe"]
        if first.run(Command(["id", "-u"])).stdout.strip() == "0":
            argv += ["--allow-run-as-root"]
    addresses = [client.host.address for client in context.clients]
    if set(addresses) != {"localhost"}:
        argv += ["--host", ",".join(one for one in addresses for _ in range(processes))]
    return argv
