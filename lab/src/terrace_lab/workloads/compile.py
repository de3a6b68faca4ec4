# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Source code unpacked, configured, built and deleted, by each client in its own directory.

The time of a phase is that of the slowest client.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.resources
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from terrace_lab.errors import PhaseFailed
from terrace_lab.hosts import Command, Host
from terrace_lab.settings import Settings
from terrace_lab.workloads.base import (
    Client,
    Context,
    Direction,
    PhaseSpec,
    Problem,
    Result,
    Span,
    Verdict,
    spans_of,
)
from terrace_lab.workloads.configured import Configured, missing
from terrace_lab.workloads.launch import launch, on_client, parameters_table

CACHE = "/var/tmp/terrace-lab-sources"
TIMEOUT_SECONDS = 6 * 3600.0

_PHASES = ("unpack", "configure", "make", "clean")
_COPIED = ("copy", "build", "clean")
"""The phases of studies: a tree that is there is copied, configured and built in one, deleted."""


@dataclass(frozen=True, slots=True)
class _Source:
    """How a source is built, and what it takes."""

    configure: tuple[str, ...]
    """Empty where there is nothing to configure."""
    make: tuple[str, ...]
    product: str
    """A file that is there once it is built; empty where nobody said."""
    programs: tuple[str, ...]
    bytes_needed: int


_AUTOCONF = _Source(("./configure",), ("make", "-j{jobs}"), "", ("tar", "make", "cc"), 1 << 30)
# By the begin of the name.
_SOURCES = {
    "bzip2": dataclasses.replace(
        _AUTOCONF,
        configure=(),
        make=("make", "-j{jobs}", "bzip2"),
        product="bzip2",
        bytes_needed=16 << 20,
    ),
    # The smallest kernel: some hundred files of C, after the unpacking of all of them.
    "linux-source-": _Source(
        ("make", "tinyconfig"),
        ("make", "-j{jobs}", "vmlinux"),
        "vmlinux",
        ("tar", "xz", "make", "cc", "flex", "bison", "bc"),
        3 << 30,
    ),
}


@dataclass(frozen=True, slots=True)
class Parameters:
    phases: tuple[str, ...]
    configure: tuple[str, ...]
    make: tuple[str, ...]
    jobs: int
    """Of make; 0: as many as the host has processors."""
    product: str
    space: int
    cache: str

    @classmethod
    def read(cls, settings: Settings, source: _Source) -> Parameters:
        configure = settings.texts("configure", source.configure)
        given = settings.texts("phases", ())
        known = _COPIED if "copy" in given else _PHASES
        phases = tuple(one for one in known if one != "configure" or configure)
        parameters = cls(
            phases=given or phases,
            configure=configure,
            make=settings.texts("make", source.make),
            jobs=settings.integer("jobs", 0),
            product=settings.text("product", source.product),
            space=settings.bytes("space", source.bytes_needed),
            cache=settings.text("cache", CACHE),
        )
        settings.finish()
        if parameters.phases != tuple(one for one in phases if one in parameters.phases):
            raise settings.error("phases", f"must be some of {', '.join(phases)}, in this order")
        if parameters.phases[:1] != phases[:1]:
            raise settings.error("phases", "must begin with unpack, or with copy")
        return parameters


def create(name: str, settings: Settings) -> Compile:
    where, values = parameters_table(settings)
    # A setting of the workload, not of a trial; written beside the kind or with the others.
    own = settings if "source" in settings else Settings(where, values)
    return Compile(name, own.text("source"), where, values)


class Compile(Configured[Parameters]):
    """A real source, with the programs that people build it with."""

    def __init__(self, name: str, source: str, where: str, values: Mapping[str, Any]) -> None:
        self._source = source
        known = [one for prefix, one in _SOURCES.items() if source.startswith(prefix)]
        self._how = known[0] if known else _AUTOCONF
        self._tarballs: dict[str, str] = {}
        own = {key: value for key, value in values.items() if key != "source"}
        super().__init__(name, where, own)

    def check(self, hosts: Mapping[str, Host]) -> list[Problem]:
        problems = [
            problem
            for program in self._how.programs
            for problem in missing(hosts, program, f"Debian package build-essential or {program}")
        ]
        if self._source.startswith("/"):
            problems += [
                Problem(host.name, f"the source is not there source={self._source}")
                for host in hosts.values()
                if host.run(Command(["test", "-f", self._source])).code != 0
            ]
        return problems

    def describe(self) -> Mapping[str, Any]:
        values = dataclasses.asdict(self._parameters)
        # Where a tarball is kept says nothing about the work.
        del values["cache"], values["space"]
        return {"kind": "compile", "source": self._source, **values}

    def space_bytes(self, clients: int, bytes_per_client: int | None) -> int:
        return clients * self._parameters.space

    def prepare(self, context: Context) -> None:
        """Has the tarball on each host, outside the target, fetched where that is needed."""
        script = importlib.resources.files("terrace_lab.workloads").joinpath("fetch_source.py")
        cache = self._parameters.cache
        argv = ["python3", "-IS", "-", self._source, cache]
        for client in context.clients:
            if client.host.name not in self._tarballs:
                found = on_client(client, argv, "find the source", script.read_bytes()).strip()
                self._tarballs[client.host.name] = found
                if "copy" in self._parameters.phases:
                    self._unpack_beside(client, found)

    def _original(self) -> str:
        """The tree that is copied from, on each host outside of the target."""
        name = self._source
        if name.startswith("/"):
            # Others may have that file name elsewhere.
            digest = hashlib.sha256(name.encode()).hexdigest()[:12]
            name = f"{PurePosixPath(name).name}-{digest}"
        return f"{self._parameters.cache}/{name}.tree"

    def _unpack_beside(self, client: Client, tarball: str) -> None:
        original = self._original()
        if client.host.run(Command(["test", "-d", original])).code == 0:
            return
        # Renamed when it is whole, so that one that was interrupted is not taken for it.
        partial = f"{original}.partial"
        on_client(client, ["rm", "-rf", partial], "remove a part of the source")
        on_client(client, ["mkdir", "-p", partial], "make the directory")
        argv = ["tar", "-xf", tarball, "-C", partial, "--strip-components=1"]
        on_client(client, argv, "unpack the source")
        on_client(client, ["mv", partial, original], "keep the source")

    def phases(self, context: Context) -> Sequence[PhaseSpec]:
        specs = {
            "copy": PhaseSpec("copy", "files", Direction.METADATA, has_flush_tail=True),
            "build": PhaseSpec("build", "ops", Direction.NONE, has_flush_tail=True),
            "unpack": PhaseSpec("unpack", "files", Direction.METADATA, has_flush_tail=True),
            "configure": PhaseSpec("configure", "ops", Direction.NONE, has_flush_tail=True),
            "make": PhaseSpec("make", "ops", Direction.NONE, has_flush_tail=True),
            "clean": PhaseSpec("clean", "files", Direction.METADATA, has_flush_tail=True),
        }
        return [specs[name] for name in self._parameters.phases]

    def run(self, context: Context, phase: PhaseSpec) -> Result:
        parameters = self._parameters
        files_before = _count(context) if phase.name == "clean" else 0
        commands = [self._command(parameters, client, phase.name) for client in context.clients]
        if phase.name in ("unpack", "copy"):
            for client in context.clients:
                on_client(client, ["mkdir", str(_tree(client))], "make the directory")
        ended = launch(context, phase.name, commands)
        if phase.name in ("make", "build") and parameters.product:
            for client in context.clients:
                product = str(_tree(client) / parameters.product)
                on_client(client, ["test", "-s", product], f"make {parameters.product}")
        if phase.name in ("unpack", "copy"):
            work = _count(context)
            if work == 0:
                raise PhaseFailed(f"cannot {phase.name}: no file in {self._source}")
        else:
            work = files_before or len(context.clients)
        return Result(
            work=float(work),
            spans=spans_of(context, ended),
            commands=[list(command.argv) for command in commands],
            extra={
                "slowest_client_s": max(_seconds(one) for one in spans_of(context, ended)),
                "cpu_s": sum(one.user_s + one.system_s for one in ended),
            },
        )

    def verify(self, context: Context) -> Verdict:
        if "clean" not in self._parameters.phases:
            return Verdict(True, "what was built is there" if self._how.product else "not checked")
        for client in context.clients:
            gone = client.host.run(Command(["test", "!", "-e", str(_tree(client))])).code == 0
            if not gone:
                return Verdict(False, f"the tree is still there client={client.index}")
        return Verdict(True, "it was built and is gone")

    def _read(self, settings: Settings) -> Parameters:
        return Parameters.read(settings, self._how)

    def _command(self, parameters: Parameters, client: Client, phase: str) -> Command:
        tree = str(_tree(client))
        if phase == "unpack":
            tarball = self._tarballs.get(client.host.name)
            if tarball is None:
                raise PhaseFailed(f"cannot unpack: not prepared host={client.host.name}")
            argv = ["tar", "-xf", tarball, "-C", tree, "--strip-components=1"]
        elif phase == "copy":
            argv = ["cp", "-r", f"{self._original()}/.", tree]
        elif phase == "clean":
            argv = ["rm", "-rf", tree]
        else:
            jobs = parameters.jobs or int(on_client(client, ["nproc"], "count processors"))
            make = [word.replace("{jobs}", str(jobs)) for word in parameters.make]
            argv = list(parameters.configure) if phase == "configure" else make
            if phase == "build" and parameters.configure:
                both = f"{shlex.join(parameters.configure)} && {shlex.join(make)}"
                argv = ["sh", "-c", both]
            return Command(argv, directory=tree, timeout_s=TIMEOUT_SECONDS)
        return Command(argv, timeout_s=TIMEOUT_SECONDS)


def _tree(client: Client) -> PurePosixPath:
    return client.directory / "source"


def _count(context: Context) -> int:
    """Files in the trees of all clients; not measured."""
    return sum(
        len(on_client(client, ["find", str(_tree(client)), "-type", "f"], "count").splitlines())
        for client in context.clients
    )


def _seconds(span: Span) -> float:
    return (span.end.raw_ns - span.begin.raw_ns) / 1e9
