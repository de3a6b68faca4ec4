# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads a run directory, also one that is torn or not at its end."""

from __future__ import annotations

import json
import tomllib
from array import array
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrace_lab.errors import LabError
from terrace_lab.experiment import digest
from terrace_lab.records import Kind, Quality, Torn, read_lines
from terrace_lab.summary import Gap

Nanoseconds = NDArray[np.int64]

SILENT_PERIODS, SILENT_S = 3, 1.0
"""A meter that delivers nothing for the longer of both has a gap; as its recorder says."""


@dataclass(frozen=True, slots=True)
class Trial:
    name: str
    target: str
    workload: str
    clients: int
    factors: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChannelRecord:
    """Samples of one channel, in the order of their ends."""

    name: str
    scope: str
    kind: Kind
    gain: float
    offset_w: float
    t0: Nanoseconds
    t1: Nanoseconds
    real: Nanoseconds
    """Stamp of the frame that a sample came with."""
    raw: Nanoseconds
    value: NDArray[np.float64]
    is_usable: NDArray[np.bool_]
    is_reset: NDArray[np.bool_]


@dataclass(slots=True)
class MeterRecord:
    name: str
    info: Mapping[str, Any]
    channels: list[ChannelRecord]
    gaps: list[Gap]
    unusable: dict[str, int]
    samples: int
    stamps: tuple[Nanoseconds, Nanoseconds]
    """Real and raw of each line, in the order of lines."""
    lag_s: float | None
    lag_confidence: float | None
    lag_bound_s: float
    has_model: bool


@dataclass(frozen=True, slots=True)
class Attempt:
    """One repetition as it is on disk."""

    trial: str
    number: int
    order: int
    block: int
    state: str
    reason: str
    is_warmup: bool
    lines: list[dict[str, Any]]
    result: Mapping[str, Any]
    commands: Mapping[str, list[list[str]]]
    zero: tuple[int, int] | None
    """Both clocks of the runner, real and raw, as they were when its times were made of the raw
    one; None where only CLOCK_REALTIME is known."""


@dataclass(slots=True)
class Record:
    """All of a run."""

    path: Path
    head: Mapping[str, Any]
    experiment: dict[str, Any]
    trials: dict[str, Trial]
    journal: list[dict[str, Any]]
    attempts: list[Attempt]
    meters: list[MeterRecord]
    idle: list[dict[str, Any]]
    probes: list[dict[str, Any]]
    environments: dict[str, dict[str, Any]]
    targets: dict[str, dict[str, Any]]
    """What targets said of themselves when they were up."""
    workloads: dict[str, dict[str, Any]]
    torn: list[Torn] = field(default_factory=list)


def read(path: Path) -> Record:
    """Reads a run directory; LabError where it is none."""
    try:
        experiment = tomllib.loads((path / "experiment.toml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LabError(f"cannot read a run: there is no experiment.toml path={path}") from None
    except ValueError as error:
        raise LabError(f"cannot read a run: {error} path={path}") from None
    torn: list[Torn] = []
    journal = _lines(path / "journal.jsonl", torn)
    trials = {
        line["trial"]: Trial(
            line["trial"],
            line["target"],
            line["workload"],
            int(line["clients"]),
            line.get("factors") or {},
        )
        for line in _lines(path / "plan.jsonl", torn)
    }
    until_ns = max((int(line.get("real", 0)) for line in journal), default=0)
    record = Record(
        path=path,
        head=_json(path / "run.json") or {},
        experiment=experiment,
        trials=trials,
        journal=journal,
        attempts=_attempts(path, trials, journal, torn),
        meters=[
            _meter(below, until_ns, torn)
            for below in sorted(path.glob("meters/*"))
            if below.is_dir()
        ],
        idle=list(_named(path / "idle").values()),
        probes=_lines(path / "probes.jsonl", torn),
        environments=_named(path / "env"),
        targets=_named(path / "targets"),
        workloads=_named(path / "workloads"),
    )
    record.torn = torn
    return record


def _attempts(
    path: Path, trials: Mapping[str, Trial], journal: list[dict[str, Any]], torn: list[Torn]
) -> list[Attempt]:
    states: dict[tuple[str, int], tuple[str, str]] = {}
    order: dict[tuple[str, int], int] = {}
    blocks: dict[tuple[str, int], int] = {}
    warmups: set[tuple[str, int]] = set()
    block = 0
    for line in journal:
        event = line.get("event")
        key = (str(line.get("trial")), int(line.get("rep") or 0))
        if event == "block":
            block = int(line.get("block", block + 1))
        elif event == "warmup":
            warmups.add(key)
        elif event == "rep":
            state = str(line.get("state"))
            states[key] = (state, str(line.get("reason") or ""))
            if state == "running":
                order[key] = len(order)
                blocks[key] = int(line.get("block", block))
            if line.get("is_warmup"):
                warmups.add(key)
    attempts: list[Attempt] = []
    for trial in trials:
        for below in sorted((path / "trials" / trial).glob("rep-*")):
            number = below.name.removeprefix("rep-")
            if not number.isdecimal():
                continue
            key = (trial, int(number))
            result = _json(below / "result.json") or {}
            state, reason = states.get(key, (str(result.get("state", "running")), ""))
            attempts.append(
                Attempt(
                    trial=trial,
                    number=key[1],
                    order=order.get(key, len(order) + len(attempts)),
                    block=blocks.get(key, key[1]),
                    state=state,
                    reason=reason,
                    is_warmup=key in warmups or key[1] == 0 or bool(result.get("is_warmup")),
                    lines=_lines(below / "phases.jsonl", torn),
                    result=result,
                    commands=_json(below / "cmd.json") or {},
                    zero=_zero(_json(below / "clock.json") or {}),
                )
            )
    return sorted(attempts, key=lambda one: one.order)


def _meter(path: Path, until_ns: int, torn: list[Torn]) -> MeterRecord:
    info = _json(path / "info.json") or {}
    columns: dict[str, _Columns] = defaultdict(_Columns)
    real, raw = array("q"), array("q")
    events: list[tuple[int, dict[str, Any]]] = []
    unusable: dict[str, int] = defaultdict(int)
    has_model = False
    last_ns = 0
    for file in sorted(path.glob("[0-9]*.jsonl")):
        for line in read_lines(file, torn):
            if "real" in line and "mono" in line:
                real.append(line["real"])
                raw.append(line["mono"])
            if "event" in line:
                events.append((last_ns, line))
                continue
            for sample in line.get("samples", ()):
                quality = Quality(sample["q"])
                has_model |= quality is Quality.MODEL
                if not quality.is_usable:
                    unusable[quality.value] += 1
                else:
                    last_ns = max(last_ns, int(sample["t1"]))
                columns[sample["ch"]].add(line, sample, quality)
    lag = _json(path / "lag.json") or {}
    claims = {one["name"]: one for one in info.get("channels", ())}
    channels = [columns[name].record(name, claims.get(name, {})) for name in sorted(columns)]
    return MeterRecord(
        name=path.name,
        info=info,
        channels=channels,
        gaps=_gaps(events, last_ns, until_ns, float(info.get("period_s") or 0.0)),
        unusable=dict(sorted(unusable.items())),
        samples=sum(len(one.t1) for one in channels),
        stamps=(np.array(real, dtype=np.int64), np.array(raw, dtype=np.int64)),
        lag_s=lag.get("lag_s"),
        lag_confidence=lag.get("confidence"),
        lag_bound_s=float(lag.get("bound_s") or 0.0),
        has_model=has_model,
    )


class _Columns:
    def __init__(self) -> None:
        self.scope = ""
        self.kind = Kind.AVERAGE
        # A day at 20 Hz has millions of samples: plain numbers take an eighth of what objects do.
        self.rows = array("q")
        self.values = array("d")
        self.usable = bytearray()
        self.resets = bytearray()

    def add(self, line: Mapping[str, Any], sample: Mapping[str, Any], quality: Quality) -> None:
        self.scope = sample["scope"]
        self.kind = Kind(sample["kind"])
        value = sample.get("J" if self.kind is Kind.COUNTER else "W")
        times = (sample["t0"], sample["t1"], line.get("real", sample["t1"]), sample["mono"])
        self.rows.extend(times)
        is_usable = quality.is_usable and value is not None
        self.values.append(float(value or 0.0) if is_usable else float("nan"))
        self.usable.append(is_usable)
        self.resets.append(quality is Quality.RESET)

    def record(self, name: str, claim: Mapping[str, Any]) -> ChannelRecord:
        rows = np.array(self.rows, dtype=np.int64).reshape(-1, 4)
        return ChannelRecord(
            name=name,
            scope=self.scope,
            kind=self.kind,
            gain=float(claim.get("gain", 0.0)),
            offset_w=float(claim.get("offset_w", 0.0)),
            t0=rows[:, 0],
            t1=rows[:, 1],
            real=rows[:, 2],
            raw=rows[:, 3],
            value=np.array(self.values),
            is_usable=np.frombuffer(bytes(self.usable), dtype=bool),
            is_reset=np.frombuffer(bytes(self.resets), dtype=bool),
        )


def _gaps(
    events: list[tuple[int, dict[str, Any]]], last_ns: int, until_ns: int, period_s: float
) -> list[Gap]:
    """Gaps that the meter wrote of, and those that the death of its process left.

    `until_ns` is the last line of the journal: what ends within a few periods of it has not died.
    """
    gaps: list[Gap] = []
    is_running = False
    for before_ns, event in events:
        name = event["event"]
        if name == "gap_begin":
            gaps.append(Gap(int(event.get("since") or before_ns), None, str(event.get("cause"))))
        elif name == "gap_end" and gaps and gaps[-1].end_ns is None:
            gaps[-1].end_ns = int(event["real"])
        elif name == "start":
            if is_running and before_ns and (not gaps or gaps[-1].end_ns is not None):
                gaps.append(Gap(before_ns, int(event["real"]), "its process was killed"))
            is_running = True
        elif name == "stop":
            is_running = False
            if event.get("cause"):
                gaps.append(Gap(before_ns, None, str(event["cause"])))
    is_open = bool(gaps) and gaps[-1].end_ns is None
    is_early = until_ns - last_ns > max(SILENT_PERIODS * period_s, SILENT_S) * 1e9
    if is_running and last_ns and is_early and not is_open:
        gaps.append(Gap(last_ns, None, "its process was killed"))
    return gaps


def _lines(path: Path, torn: list[Torn]) -> list[dict[str, Any]]:
    return list(read_lines(path, torn)) if path.exists() else []


def _named(path: Path) -> dict[str, dict[str, Any]]:
    """The JSON files of a directory, by name."""
    found = {file.stem: _json(file) for file in sorted(path.glob("*.json"))}
    return {name: value for name, value in found.items() if value is not None}


def _zero(clock: Mapping[str, Any]) -> tuple[int, int] | None:
    zero = clock.get("zero")
    return (int(zero["real_ns"]), int(zero["raw_ns"])) if isinstance(zero, Mapping) else None


def _json(path: Path) -> dict[str, Any] | None:
    """A JSON file; None where there is none that is whole."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def damage(record: Record) -> list[str]:
    """What is not there, or not whole, of what a run has written by what its journal says."""
    found = []
    for path in sorted(record.path.rglob("*.json")):
        if "report" not in path.parts and "derived" not in path.parts and _json(path) is None:
            found.append(f"damaged: {path.relative_to(record.path)} is no JSON object")
    written = record.head.get("experiment_hash")
    if written is not None and written != digest(record.experiment):
        found.append("damaged: experiment.toml is not what the run was made with")
    known = {line["trial"] for line in record.journal if line.get("event") == "rep"}
    for trial in sorted(known - set(record.trials)):
        found.append(f"damaged: plan.jsonl lacks trial {trial}, which has repetitions")
    have = {(one.trial, one.number): one for one in record.attempts}
    done = {
        (line["trial"], line["rep"])
        for line in record.journal
        if line.get("event") == "rep" and line.get("state") == "done"
    }
    for trial, number in sorted(done):
        one = have.get((trial, number))
        if trial in record.trials and (one is None or not one.lines):
            found.append(f"damaged: trial {trial} repetition {number} is done and has no phases")
    return found
