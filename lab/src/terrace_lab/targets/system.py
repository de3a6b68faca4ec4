# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A system under test by the scripts or commands that bring it up and down, on any hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from terrace_lab.errors import HostLost, LabError
from terrace_lab.hosts import Command, Ended, Host
from terrace_lab.targets.base import SERVERS, Amplification, Capacity, Tunable
from terrace_lab.workloads.base import Problem

SAID_CHARACTERS_MAX = 2000

Parameters = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to be run on a host: what it is called in messages, and how."""

    name: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a target is made of. Steps that are not there are left out."""

    name: str
    path: PurePosixPath | None = None
    mounts: tuple[PurePosixPath, ...] = ()
    """One of which has to be a mount point on each client between set-up and tear-down."""
    url: Callable[[Parameters], str | None] = lambda _: None
    servers: tuple[str, ...] = ()
    is_exclusive: bool = False
    server_setup: Step | None = None
    server_teardown: Step | None = None
    setup: Step | None = None
    teardown: Step | None = None
    remount: Step | None = None
    timeout_s: float = 300.0
    """Of one step."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """For all steps."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """What has to be on the clients, with the Debian package that has it; empty where none has."""
    tunables: tuple[Tunable, ...] = ()
    servers_option: str | None = None
    """The option that says of how many servers it is made; None where that is fixed."""
    amplification: Callable[[Parameters], Amplification] = lambda _: Amplification()
    usable_bytes: int | None = None
    raw_bytes: int | None = None


def variable(name: str) -> str:
    """The environment variable that a step finds an option or parameter in."""
    return "LAB_" + "".join(c if c.isalnum() else "_" for c in name).upper()


class System:
    """A target that follows a plan."""

    def __init__(self, plan: Plan) -> None:
        self.name = plan.name
        self.servers: Sequence[str] = plan.servers
        self.is_exclusive = plan.is_exclusive
        self._plan = plan
        self._hosts: dict[str, Host] = {}
        self._mounted: PurePosixPath | None = None
        self._parameters: dict[str, str | int | float] = {
            one.name: one.default for one in plan.tunables
        }

    def check(self, hosts: Mapping[str, Host]) -> list[Problem]:
        """What is missing; takes note of the hosts, which steps of servers need."""
        self._hosts = dict(hosts)
        plan = self._plan
        problems = [
            Problem(f"targets.{self.name}", f"there is no host {server!r} in this experiment")
            for server in plan.servers
            if server not in hosts
        ]
        for host in hosts.values():
            if host.name in plan.servers and len(hosts) > len(plan.servers):
                # Needs what its own steps use, which only they know.
                continue
            for program, package in plan.programs.items():
                if not host.has(program):
                    where = f"Debian package {package}" if package else "not in Debian"
                    problems.append(Problem(host.name, f"{program} is not there; {where}"))
        return problems

    def check_parameters(self, parameters: Parameters) -> None:
        self._checked(parameters)

    def setup(self, clients: Sequence[Host], parameters: Parameters) -> None:
        """Brings the system up on servers, then on clients."""
        plan = self._plan
        self._parameters = self._checked(parameters)
        try:
            for server in self._server_hosts() if plan.server_setup else ():
                self._run("set up", plan.server_setup, server)
            for client in _distinct(clients):
                self._run("set up", plan.setup, client)
                self._expect_path(client)
        except HostLost:
            raise
        except LabError as error:
            try:
                self.teardown(clients)
            except LabError as second:
                raise LabError(f"{error}; and then {second}") from error
            raise

    def _checked(self, parameters: Parameters) -> dict[str, str | int | float]:
        """All tunables, with the values that are asked for."""
        known = {one.name: one for one in self._plan.tunables}
        count = self._server_count(parameters)
        for name, value in parameters.items():
            if name == SERVERS:
                continue
            if name not in known:
                names = ", ".join(known) or "it has none"
                raise LabError(
                    f"cannot set up {self.name}: no such parameter, only {names} parameter={name}"
                )
            if value not in known[name].values:
                values = ", ".join(map(str, known[name].values))
                raise LabError(
                    f"cannot set up {self.name}: {value!r} is none of {values} parameter={name}"
                )
        return {name: parameters.get(name, one.default) for name, one in known.items()} | count

    def _server_count(self, parameters: Parameters) -> dict[str, str | int | float]:
        """The option that the factor `servers` sets, where it is one."""
        if SERVERS not in parameters:
            return {}
        if self._plan.servers_option is None:
            raise LabError(f"cannot set up {self.name}: the number of its servers is fixed")
        return {self._plan.servers_option: parameters[SERVERS]}

    def path(self, host: Host) -> PurePosixPath | None:
        return self._plan.path

    def url(self) -> str | None:
        return self._plan.url(self._parameters)

    def remount(self, clients: Sequence[Host]) -> bool:
        if self._plan.remount is None:
            return False
        for client in _distinct(clients):
            self._run("mount again", self._plan.remount, client)
            self._expect_path(client)
        return True

    def capacity(self, clients: Sequence[Host]) -> Capacity:
        plan = self._plan
        usable = plan.usable_bytes
        if usable is None:
            if plan.path is None:
                raise LabError(
                    f"cannot tell the capacity of {self.name}: it has no path, give usable_bytes"
                )
            where = str(plan.path)
            ended = clients[0].run(Command(["stat", "-f", "-c", "%S %b %f %a", where]))
            if ended.code != 0:
                raise LabError(
                    f"cannot tell the capacity of {self.name}: {_said(ended)} path={where}"
                )
            block, total, free, available = map(int, ended.stdout.split())
            # As `df` does: what is kept for root is not usable.
            usable = (total - free + available) * block
        return Capacity(raw_bytes=plan.raw_bytes, usable_bytes=usable)

    def amplification(self) -> Amplification:
        return self._plan.amplification(self._parameters)

    def tunables(self) -> Sequence[Tunable]:
        return self._plan.tunables

    def teardown(self, clients: Sequence[Host]) -> None:
        """Takes all down that it can, then tells what it could not."""
        plan = self._plan
        errors = []
        steps = [(plan.teardown, client) for client in _distinct(clients)]
        if plan.server_teardown:
            steps += [(plan.server_teardown, server) for server in reversed(self._server_hosts())]
        for step, host in steps:
            try:
                self._run("tear down", step, host)
                if step is plan.teardown and step is not None:
                    self._expect_no_mount(host)
            except HostLost:
                raise
            except LabError as error:
                errors.append(str(error))
        if errors:
            raise LabError("; ".join(errors))

    def _server_hosts(self) -> list[Host]:
        missing = [name for name in self.servers if name not in self._hosts]
        if missing:
            raise LabError(
                f"cannot reach the servers of {self.name}: not among the checked hosts "
                f"servers={','.join(missing)}"
            )
        return [self._hosts[name] for name in self.servers]

    def _run(self, verb: str, step: Step | None, host: Host) -> None:
        if step is None:
            return
        ended = host.run(
            Command(step.argv, environment=self._environment(), timeout_s=self._plan.timeout_s)
        )
        if ended.code != 0:
            how = "took too long" if ended.is_timed_out else f"exit code {ended.code}"
            raise LabError(
                f"cannot {verb} {self.name}: {how} step={step.name} host={host.name}: "
                f"{_said(ended)}"
            )

    def _environment(self) -> dict[str, str]:
        plan = self._plan
        addresses = [self._hosts[one].address for one in plan.servers if one in self._hosts]
        return {
            "LAB_TARGET": plan.name,
            "LAB_MOUNT": str(plan.mounts[0]) if plan.mounts else "",
            "LAB_SERVER": addresses[0] if addresses else "",
            "LAB_SERVERS": " ".join(addresses),
            **plan.environment,
            **{variable(name): str(value) for name, value in self._parameters.items()},
        }

    def _mount(self, host: Host) -> PurePosixPath | None:
        """Where it is mounted."""
        for mount in self._plan.mounts:
            if host.run(Command(["mountpoint", "-q", str(mount)])).code == 0:
                return mount
        return None

    def _expect_path(self, host: Host) -> None:
        """That it is there: without the mount the disk below would be measured."""
        if self._plan.mounts:
            self._mounted = self._mount(host)
            if self._mounted is None:
                raise LabError(
                    f"cannot set up {self.name}: nothing is mounted "
                    f"mount={self._plan.mounts[0]} host={host.name}"
                )
        path = self._plan.path
        if path is not None and host.run(Command(["test", "-d", str(path)])).code != 0:
            raise LabError(
                f"cannot set up {self.name}: there is no directory path={path} host={host.name}"
            )

    def _expect_no_mount(self, host: Host) -> None:
        """That where it was mounted nothing is any more."""
        if self._mounted is not None and self._mount(host) == self._mounted:
            raise LabError(
                f"cannot tear down {self.name}: it is still mounted "
                f"mount={self._mounted} host={host.name}"
            )


def _distinct(hosts: Sequence[Host]) -> list[Host]:
    """Each host once: several clients may be on one."""
    return list({host.name: host for host in hosts}.values())


def _said(ended: Ended) -> str:
    said = "\n".join(text for text in (ended.stdout.strip(), ended.stderr.strip()) if text)
    return said[-SAID_CHARACTERS_MAX:] or "it said nothing"
