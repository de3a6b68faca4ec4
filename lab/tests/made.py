# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes run directories of which the truth is known, as in `docs/reference/lab-record.md`.

`make_run` writes the directory and beside it all says in `truth.json` what each phase really took.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from made_meters import MadeMeter, write_json, write_meter
from waves import Wave

from terrace_lab.experiment import digest
from terrace_lab.records import Kind

REAL_NS = 1_760_000_000_000_000_000
RAW_NS = 5_000_000_000_000
WORK_BYTES = 2e9
IDLE_W = {"s1": 40.0, "s2": 45.0, "switch": 15.0}
LOAD_W = {"s1": 60.0, "s2": 50.0, "switch": 2.0}


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong; times are seconds from the begin of the run."""

    gaps: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """By meter: it delivers nothing, and says so."""
    nans: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """By meter: frames without values."""
    resets: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """By meter: its counters begin anew."""
    kills: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """By meter: its process is killed in the middle of a line, and started again."""
    clock_step: tuple[float, float] | None = None
    """When CLOCK_REALTIME steps, and by how many seconds."""
    unfinished_after: int | None = None
    """The runner dies in the repetition after so many."""


class Zero(NamedTuple):
    """Both clocks when a repetition began, of which its times are made."""

    real_ns: int
    raw_ns: int


@dataclass(frozen=True, slots=True)
class Clock:
    step: tuple[float, float] | None

    def real_ns(self, at_s: float) -> int:
        stepped = self.step is not None and at_s >= self.step[0]
        return REAL_NS + round((at_s + (self.step[1] if self.step and stepped else 0.0)) * 1e9)

    def raw_ns(self, at_s: float) -> int:
        return RAW_NS + round(at_s * 1e9)

    def stamp(self, at_s: float) -> dict[str, int]:
        return {"real_ns": self.real_ns(at_s), "raw_ns": self.raw_ns(at_s)}


DEFAULT_METERS = (
    MadeMeter("lmg", Kind.AVERAGE, ("s1",), period_s=0.1, offset_s=0.013),
    MadeMeter("rapl", Kind.COUNTER, ("s2",), period_s=0.1, offset_s=0.041),
    MadeMeter("plug", Kind.INSTANT, ("switch",), period_s=0.1, offset_s=0.077),
)


def make_run(
    directory: Path,
    *,
    seed: int = 1,
    targets: Mapping[str, float] | None = None,
    workloads: Sequence[str] = ("seq",),
    clients: Sequence[int] = (1, 2),
    repetitions: int = 6,
    phase_s: float = 4.0,
    spread: float = 0.03,
    guard_s: float = 1.0,
    meters: Sequence[MadeMeter] = DEFAULT_METERS,
    faults: Faults | None = None,
    warmup: bool = False,
    experiment: str = "",
    has_zero: bool = True,
) -> Path:
    """Writes a run of targets (each with its speed relative to the first), and returns its path."""
    maker = _Maker(
        directory,
        seed,
        dict(targets or {"nfs": 1.0, "ours": 1.25}),
        tuple(workloads),
        tuple(clients),
        phase_s,
        spread,
        guard_s,
        tuple(meters),
        faults or Faults(),
        has_zero,
    )
    maker.make(repetitions, warmup, experiment)
    return directory


class _Maker:
    def __init__(
        self,
        directory: Path,
        seed: int,
        targets: dict[str, float],
        workloads: tuple[str, ...],
        clients: tuple[int, ...],
        phase_s: float,
        spread: float,
        guard_s: float,
        meters: tuple[MadeMeter, ...],
        faults: Faults,
        has_zero: bool,
    ) -> None:
        self.directory = directory
        self.random = np.random.default_rng(seed)
        self.targets = targets
        self.workloads = workloads
        self.clients = clients
        self.phase_s = phase_s
        self.spread = spread
        self.guard_s = guard_s
        self.meters = meters
        self.faults = faults
        self.has_zero = has_zero
        self.clock = Clock(faults.clock_step)
        self.waves = {scope: Wave() for scope in IDLE_W}
        self.now = 0.0
        self.zero = Zero(0, 0)
        self.journal: list[dict[str, Any]] = []
        self.truth: dict[str, Any] = {}

    def make(self, repetitions: int, warmup: bool, experiment: str) -> None:
        self.directory.mkdir(parents=True)
        self._write_head(experiment)
        self.note("begin")
        self.idle("opening")
        trials = [
            (f"{workload}-{target}-c{count}", target, workload, count)
            for workload in self.workloads
            for target in self.targets
            for count in self.clients
        ]
        _write_lines(
            self.directory / "plan.jsonl",
            [
                {
                    "trial": trial,
                    "target": target,
                    "workload": workload,
                    "clients": count,
                    "factors": {},
                }
                for trial, target, workload, count in trials
            ],
        )
        if warmup:
            for trial in trials:
                self.note("warmup", trial=trial[0], rep=0)
                self.repetition(*trial, 0, False)
        done = 0
        for block in range(1, repetitions + 1):
            self.note("block", block=block)
            for index in self.random.permutation(len(trials)):
                is_last = done == self.faults.unfinished_after
                self.repetition(*trials[int(index)], block, is_last)
                done += 1
                if is_last:
                    return self._write_tail()
        self.idle("closing")
        self.note("end")
        return self._write_tail()

    def note(self, event: str, **values: Any) -> None:
        stamp = {"real": self.clock.real_ns(self.now), "raw": self.clock.raw_ns(self.now)}
        self.journal.append({"event": event, **stamp, **values})

    def hold(self, seconds: float, load: float = 0.0, wobble: float = 0.0) -> tuple[float, float]:
        """Lets time pass under a load, and returns its begin and end."""
        begin = self.now
        for scope, wave in self.waves.items():
            base = IDLE_W[scope] + load * LOAD_W[scope]
            wave.hold(seconds, base, amplitude=wobble * LOAD_W[scope], frequency=0.7)
        self.now += seconds
        return begin, self.now

    def idle(self, name: str) -> None:
        begin, end = self.hold(5.0)
        value = {"name": name, "begin": self.clock.stamp(begin), "end": self.clock.stamp(end)}
        write_json(self.directory / "idle" / f"{name}.json", value)
        self.note("idle", name=name)

    def repetition(
        self, trial: str, target: str, workload: str, count: int, number: int, is_cut: bool
    ) -> None:
        path = self.directory / "trials" / trial / f"rep-{number:03d}"
        self.note("rep", trial=trial, rep=number, block=number, state="running")
        self.zero = Zero(self.clock.real_ns(self.now), self.clock.raw_ns(self.now))
        lines: list[dict[str, Any]] = []
        self.hold(0.3, load=0.4)
        for phase, share in (("write", 1.0), ("read", 0.6)):
            lines.append(self.line("guard", "guard", self.hold(self.guard_s), 0.0, count))
            noise = float(np.exp(self.random.normal(0, self.spread)))
            seconds = self.phase_s * share * noise / self.targets[target] / count**0.5
            load = 0.7 + 0.1 * count
            span = self.hold(seconds, load, wobble=0.1)
            work = WORK_BYTES * count**0.5
            lines.append(self.line(phase, "work", span, work, count))
            self.truth[f"{trial}/{number}/{phase}"] = self.taken(span, work)
            if phase == "write":
                span = self.hold(0.5 * seconds, 0.3)
                tail = self.line("write.flush", "tail", span, 0.0, count)
                lines.append(tail | {"of": "write"})
                self.truth[f"{trial}/{number}/write.flush"] = self.taken(span, 0.0)
            lines.append(self.line("guard", "guard", self.hold(self.guard_s), 0.0, count))
            if is_cut:
                _write_lines(path / "phases.jsonl", lines[:2])
                return
        _write_lines(path / "phases.jsonl", lines)
        command = {
            phase: [["fio", f"--name={phase}", f"--numjobs={count}"]] for phase in ("write", "read")
        }
        write_json(path / "cmd.json", command)
        verdict = {"is_good": True, "text": "read what was written"}
        write_json(path / "result.json", {"state": "done", "verdict": verdict, "notes": []})
        if self.has_zero:
            zero = {"real_ns": self.zero.real_ns, "raw_ns": self.zero.raw_ns}
            write_json(path / "clock.json", {"zero": zero, "step_ns": 0, "hosts": {}})
        self.note("rep", trial=trial, rep=number, block=number, state="done")

    def place_ns(self, at_s: float) -> int:
        """The raw clock, on the real one of when the repetition began."""
        if not self.has_zero:
            return self.clock.real_ns(at_s)
        return self.zero.real_ns + self.clock.raw_ns(at_s) - self.zero.raw_ns

    def taken(self, span: tuple[float, float], work: float) -> dict[str, Any]:
        joules = {name: float(wave.energy(*span)[0]) for name, wave in self.waves.items()}
        return {"begin_s": span[0], "end_s": span[1], "work": work, "joules": joules}

    def line(
        self, phase: str, role: str, span: tuple[float, float], work: float, count: int
    ) -> dict[str, Any]:
        begin, end = span
        slow = 0.002 * count**2
        is_work = role == "work"
        return {
            "phase": phase,
            "unit": "B",
            "direction": phase if is_work else "none",
            "is_fixed_time": False,
            "role": role,
            "begin_ns": self.place_ns(begin),
            "end_ns": self.place_ns(end),
            "bound_ns": 50_000,
            "work": work,
            "spans": [
                {"host": "c1", "begin": self.clock.stamp(begin), "end": self.clock.stamp(end)}
            ],
            "latency_s": {"p50": slow, "p99": 4 * slow} if is_work else {},
            "latency_ecdf": [[slow, 0.5], [2 * slow, 0.95], [4 * slow, 0.99], [9 * slow, 1.0]]
            if is_work
            else [],
            "extra": {},
            "notes": [],
        }

    def _write_head(self, experiment: str) -> None:
        text = experiment or _experiment(
            self.targets, self.workloads, self.clients, self.meters, self.directory.name
        )
        (self.directory / "experiment.toml").write_text(text, encoding="utf-8")
        head = {
            "schema": 1,
            "run_id": f"made-{self.directory.name}",
            "experiment_hash": digest(tomllib.loads(text)),
            "begin": self.clock.stamp(0.0),
            "version": "0.1.0",
        }
        write_json(self.directory / "run.json", head)
        environment = {"kernel": "6.1.0", "memory_bytes": 8 << 30, "packages": {"fio": "3.33"}}
        for host in ("c1", "c2", "s1", "s2"):
            write_json(self.directory / "env" / f"{host}.json", environment)
        _write_lines(self.directory / "probes.jsonl", _probes(self.random))

    def _write_tail(self) -> None:
        _write_lines(self.directory / "journal.jsonl", self.journal)
        for meter in self.meters:
            write_meter(
                self.directory / "meters" / meter.name,
                meter,
                self.waves,
                self.now,
                self.clock,
                gaps=self.faults.gaps.get(meter.name, ()),
                nans=self.faults.nans.get(meter.name, ()),
                resets=self.faults.resets.get(meter.name, ()),
                kills=self.faults.kills.get(meter.name, ()),
            )
        truth = {"phases": self.truth, "idle_w": IDLE_W, "faults": asdict(self.faults)}
        (self.directory / "truth.json").write_text(json.dumps(truth), encoding="utf-8")


def _experiment(
    targets: Mapping[str, float],
    workloads: Sequence[str],
    clients: Sequence[int],
    meters: Sequence[MadeMeter],
    name: str,
) -> str:
    parts = [
        f'schema = 1\nname = "{name}"\nseed = 4711\nreference = "{next(iter(targets))}"',
        '[hosts.c1]\nrole = "client"\n[hosts.c2]\nrole = "client"',
        '[hosts.s1]\nrole = "server"\n[hosts.s2]\nrole = "server"',
    ]
    parts += [
        f'[targets.{target}]\nkind = "mount"\npath = "/mnt/{target}"\nservers = ["s1", "s2"]\n'
        "usable_bytes = 4e12\nraw_bytes = 8e12\nprice = 3000.0\npower_limit_w = 200.0\n"
        "write_net_amp = 1.0\nwrite_disk_amp = 2.0"
        for target in targets
    ]
    for meter in meters:
        text = f'[meters.{meter.name}]\nkind = "{meter.driver}"'
        if meter.backup_for:
            text += f'\nbackup_for = "{meter.backup_for}"'
        parts.append(text)
    parts.append(
        '[energy]\nscope = ["s1", "s2", "switch"]\nidle = { seconds = 5, settle = 0 }\n'
        "min_coverage = 0.99\nmax_gap = 1.0"
    )
    parts += [
        f'[workloads.{workload}]\nkind = "fio"\nparams = {{ xfer = "1MiB", threads = 1 }}'
        for workload in workloads
    ]
    parts.append(
        f"[factors]\ntarget = {json.dumps(list(targets))}\n"
        f"workload = {json.dumps(list(workloads))}\nclients = {json.dumps(list(clients))}"
    )
    parts.append(
        '[repeat]\nmin = 6\nmax = 30\norder = "randomized-blocks"\nwarmup = 1\n'
        'stop = { metric = ["throughput", "energy"], ci = 0.95, rel_half_width = 0.05 }'
    )
    parts.append("[bounds]\nlatency = 0.01\npercentile = 99")
    return "\n\n".join(parts) + "\n"


PROBES: dict[tuple[str, str | None, str | None], tuple[float, str]] = {
    ("memory", "c1", None): (5e9, "B/s"),
    ("memory", "c2", None): (5e9, "B/s"),
    **{
        (f"network_{way}", host, None): (1.1e9, "B/s")
        for way in ("tx", "rx")
        for host in ("c1", "c2", "s1", "s2")
    },
    ("fabric", None, None): (4e9, "B/s"),
    ("disk_write", "s1", "sda"): (0.9e9, "B/s"),
    ("disk_write", "s2", "sda"): (1.0e9, "B/s"),
    ("disk_read", "s1", "sda"): (1.5e9, "B/s"),
    ("disk_read", "s2", "sda"): (1.5e9, "B/s"),
    ("disk_iops_write", "s1", "sda"): (40e3, "ops/s"),
    ("disk_iops_write", "s2", "sda"): (40e3, "ops/s"),
    ("rtt", None, None): (1e-4, "s"),
    ("fsync_rate", "s1", "sda"): (2e3, "ops/s"),
}


def _probes(random: np.random.Generator) -> list[dict[str, Any]]:
    return [
        {
            "component": component,
            "host": host,
            "direction": None,
            "device": device,
            "value": value * float(np.exp(random.normal(0, 0.01))),
            "unit": unit,
            "command": ["fio", component],
        }
        for (component, host, device), (value, unit) in PROBES.items()
        for _ in range(3)
    ]


def _write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")
