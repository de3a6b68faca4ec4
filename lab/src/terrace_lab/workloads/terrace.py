# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Single operations on objects and key-value pairs, one by one and in batches, by `terrace bench`.

On a store behind servers where the target has an address, else on a store of its own in the
directory of each client.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from terrace_lab.errors import ParseError, PhaseFailed
from terrace_lab.hosts import Command, Ended, Host
from terrace_lab.records import Stamp
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
)
from terrace_lab.workloads.configured import Configured, missing
from terrace_lab.workloads.launch import launch, parameters_table

OBJECT_CASES = ("create", "delete", "create+delete", "create+write", "status", "read", "write")
KV_CASES = ("put", "get", "delete", "put+delete")
_DATA = ("create+write", "read", "write", "put", "get")
TIMEOUT_SECONDS = 3600.0
NOTE = (
    "rates are of the time that terrace bench counts; its preparation is left out of the span by "
    "its length only, so that energy may be of a neighbouring moment"
)


@dataclass(frozen=True, slots=True)
class Parameters:
    object: tuple[str, ...]  # noqa: A003 - the part of `terrace bench`
    kv: tuple[str, ...]
    batches: tuple[int, ...]
    size: int
    threads: int
    level: str
    keys: str
    engine: str
    seconds: float
    program: str

    @classmethod
    def read(cls, settings: Settings) -> Parameters:
        batches = settings.raw("batches", [1, 100])
        parameters = cls(
            object=settings.texts("object", OBJECT_CASES),
            kv=settings.texts("kv", KV_CASES),
            batches=tuple(batches) if isinstance(batches, list) else (),
            size=settings.bytes("size", "4KiB"),
            threads=settings.integer("threads", 1, least=1),
            level=settings.choice("level", ("none", "process", "storage"), "process"),
            keys=settings.choice("keys", ("uniform", "zipf"), "uniform"),
            engine=settings.choice("engine", ("fjall", "lmdb"), "fjall"),
            seconds=settings.seconds("seconds", 3),
            program=settings.text("program", os.environ.get("TERRACE", "terrace")),
        )
        settings.finish()
        for key, given, known in (
            ("object", parameters.object, OBJECT_CASES),
            ("kv", parameters.kv, KV_CASES),
        ):
            for case in given:
                if case not in known:
                    raise settings.error(key, f"{case!r} is none of {', '.join(known)}")
        if not parameters.batches or not all(
            isinstance(one, int) and one > 0 for one in parameters.batches
        ):
            raise settings.error("batches", f"must be a list of whole numbers, not {batches!r}")
        if not parameters.object and not parameters.kv:
            raise settings.error("object", "there is no case, and none of kv")
        return parameters

    def runs(self) -> dict[str, tuple[str, str, int]]:
        """Part, case and batch of each phase, by its name."""
        return {
            f"{part}-{case}" + (f"-x{batch}" if batch > 1 else ""): (part, case, batch)
            for part, cases in (("object", self.object), ("kv", self.kv))
            for case in cases
            for batch in self.batches
        }


def create(name: str, settings: Settings) -> Terrace:
    return Terrace(name, *parameters_table(settings))


class Terrace(Configured[Parameters]):
    """One `terrace bench` for each phase on each client."""

    def _read(self, settings: Settings) -> Parameters:
        return Parameters.read(settings)

    def check(self, hosts: Mapping[str, Host]) -> list[Problem]:
        return missing(hosts, self._parameters.program, "`make release` builds it")

    def needs_files(self) -> bool:
        return False

    def describe(self) -> Mapping[str, Any]:
        values = dataclasses.asdict(self._parameters)
        del values["program"]
        return {"kind": "terrace", **values}

    def space_bytes(self, clients: int, bytes_per_client: int | None) -> int:
        # What `terrace bench` leaves in a block at most (docs/reference/bench.md), and its journal.
        return clients * (3 << 30)

    def prepare(self, context: Context) -> None:
        """Nothing: each phase makes what it needs and removes it, outside of what counts."""

    def phases(self, context: Context) -> Sequence[PhaseSpec]:
        return [
            PhaseSpec(
                name,
                "ops",
                Direction.IOPS if case in _DATA else Direction.METADATA,
                is_fixed_time=True,
            )
            for name, (_, case, _) in self._parameters.runs().items()
        ]

    def run(self, context: Context, phase: PhaseSpec) -> Result:
        parameters = self._parameters
        part, case, batch = parameters.runs()[phase.name]
        starting = _starting(context)
        commands = [
            Command(
                _argv(context, parameters, client, (part, case, batch), processes),
                # What is set for the user must not lead to another store.
                environment={"TERRACE_STORE": ""},
                timeout_s=TIMEOUT_SECONDS,
            )
            for client, processes in starting
        ]
        starters = [client for client, _ in starting]
        ended = launch(dataclasses.replace(context, clients=starters), phase.name, commands)
        rows = [_row(one.stdout, case, batch) for one in ended]
        return Result(
            work=float(sum(row["operations"] for row in rows)),
            spans=[
                _span(client, one, row)
                for (client, processes), one, row in zip(starting, ended, rows, strict=True)
                for _ in range(processes)
            ],
            latency_s=_latency(rows),
            commands=[list(command.argv) for command in commands],
            extra={"ops_per_s": float(sum(row["ops_per_s"] for row in rows))},
            notes=[*_notes(starters, rows)],
        )

    def verify(self, context: Context) -> Verdict:
        return Verdict(True, "terrace bench checks the outcome of each operation")


def _starting(context: Context) -> list[tuple[Client, int]]:
    """The clients that start a program, with the processes of it.

    On a store of the target those of one host are processes of one program, which begin together.
    """
    if context.url is None:
        return [(client, 1) for client in context.clients]
    first: dict[str, Client] = {}
    for client in context.clients:
        first.setdefault(client.host.name, client)
    names = [client.host.name for client in context.clients]
    return [(client, names.count(name)) for name, client in first.items()]


def _notes(starters: Sequence[Client], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    notes = [NOTE]
    if len(starters) > 1:
        notes.append(
            f"{len(starters)} programs did not begin together: the rate is less than `ops_per_s`, "
            "the sum of what each counted, by the time in which not all were at work"
        )
    notes += [
        f"client {client.index}: it ended before its time, as much was left as may be"
        for client, row in zip(starters, rows, strict=True)
        if row.get("ended_early")
    ]
    return notes


def _argv(
    context: Context,
    parameters: Parameters,
    client: Client,
    run: tuple[str, str, int],
    processes: int,
) -> list[str]:
    part, case, batch = run
    where: list[str] = []
    store: list[str] = []
    if context.url is None:
        where = ["--directory", str(client.directory), "--engine", parameters.engine]
    else:
        store = ["--store", context.url]
        where = ["--processes", str(processes)]
    return [
        parameters.program,
        *store,
        "bench",
        part,
        "--json",
        *("--case", case, "--batch", str(batch), "--size", f"{parameters.size}B"),
        *("--threads", str(parameters.threads), "--level", parameters.level),
        *("--keys", parameters.keys, "--seconds", f"{parameters.seconds:g}"),
        # Repetitions are the lab's.
        *("--repetitions", "1"),
        *where,
    ]


def _row(text: str, case: str, batch: int) -> dict[str, Any]:
    """The one row that was asked for."""
    try:
        rows = json.loads(text)["cases"]
    except (ValueError, KeyError, TypeError):
        raise ParseError(
            f"cannot read the output of terrace bench: no cases begins={text[:80]!r}"
        ) from None
    found = [row for row in rows if (row.get("case"), row.get("batch")) == (case, batch)]
    if len(found) != 1:
        raise ParseError(
            f"cannot read the output of terrace bench: {len(found)} rows of {case=} {batch=}"
        )
    row: dict[str, Any] = found[0]
    for key in ("operations", "ops_per_s", "p50_us", "p99_us", "p999_us"):
        if not isinstance(row.get(key), int | float):
            raise ParseError(
                f"cannot read the output of terrace bench: no number {key}={row.get(key)!r}"
            )
    if row["operations"] <= 0 or row["ops_per_s"] <= 0:
        raise PhaseFailed(f"cannot {case}: terrace bench counted no operation batch={batch}")
    return row


def _span(client: Client, ended: Ended, row: Mapping[str, Any]) -> Span:
    """As long as the operations took, up to the end of the command."""
    length_ns = round(row["operations"] / row["ops_per_s"] * 1e9)
    begin = Stamp(ended.end.real_ns - length_ns, ended.end.raw_ns - length_ns)
    if begin.raw_ns < ended.begin.raw_ns:
        raise PhaseFailed(
            "cannot tell the time of the operations: it is longer than the command "
            f"client={client.index}"
        )
    return Span(client.host.name, begin, ended.end)


def _latency(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Of calls, which are whole batches; those of several clients cannot be put together."""
    if len(rows) != 1:
        return {}
    names = {"p50": "p50_us", "p99": "p99_us", "p99.9": "p999_us"}
    return {name: rows[0][key] / 1e6 for name, key in names.items()}
