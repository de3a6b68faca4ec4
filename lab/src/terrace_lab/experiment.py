# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Experiment files: what is measured on what, how often, and with which meters."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import re
import string
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from terrace_lab.errors import LabError, SettingsError
from terrace_lab.settings import Settings, parse_bytes

SCHEMA = 1

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}\Z")
"""Names become names of directories and parts of file names."""

RAM_MULTIPLE = re.compile(r"([0-9]+(?:\.[0-9]+)?)x_ram\Z")

MAIN_FACTORS = ("target", "workload", "clients")
TRIALS_MAX = 1_000
NAME_BYTES_MAX = 200
"""Of a trial, whose name is that of a directory."""


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


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """One workload; `settings` is what it reads."""

    name: str
    kind: str
    bytes_per_client: str | int | None
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """One system under test; `settings` is what it reads."""

    name: str
    kind: str
    parameters: Mapping[str, Any]
    """Values of its tunables; factors `target.NAME` come before them."""
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trial:
    """One combination of factors."""

    name: str
    target: str
    workload: str
    clients: int
    factors: Mapping[str, Any]
    """The further ones, by name."""

    @property
    def group(self) -> str:
        """What is compared between targets."""
        return "-".join([self.workload, f"c{self.clients}", *_labels(self.factors)])

    def to_json(self) -> dict[str, Any]:
        return {
            "trial": self.name,
            "target": self.target,
            "workload": self.workload,
            "clients": self.clients,
            "factors": dict(self.factors),
        }


@dataclass(frozen=True, slots=True)
class Experiment:
    """A whole experiment file, checked for its form."""

    name: str
    seed: int
    reference: str | None
    hosts: Mapping[str, HostSpec]
    targets: Mapping[str, TargetSpec]
    meters: Mapping[str, MeterSpec]
    workloads: Mapping[str, WorkloadSpec]
    energy: EnergySpec
    repeat: RepeatSpec
    gate: GateSpec
    probes: ProbeSpec
    trials: tuple[Trial, ...]
    text: str
    """The file as it was given."""
    values: Mapping[str, Any]
    """The file with parameters put in and paths made absolute."""

    @property
    def hash(self) -> str:
        """Equal for experiments that say the same."""
        return digest(self.values)

    @property
    def clients(self) -> list[HostSpec]:
        return [one for one in self.hosts.values() if one.is_client]

    @property
    def servers(self) -> list[HostSpec]:
        return [one for one in self.hosts.values() if one.is_server]


def digest(values: object) -> str:
    """The SHA-256 of JSON with sorted keys."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def load(path: Path, parameters: Mapping[str, str] | None = None) -> Experiment:
    """Reads an experiment file; SettingsError says what is wrong in it and where."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"cannot read the experiment: {error} file={path}") from error
    return parse(text, path.parent, parameters)


def load_frozen(path: Path) -> Experiment:
    """Reads what `freeze` has written."""
    text = path.read_text(encoding="utf-8")
    return _experiment(text, _toml(text))


def freeze(experiment: Experiment) -> str:
    """The experiment as TOML without anything left to be filled in."""
    return tomli_w.dumps(experiment.values)


def parse(text: str, directory: Path, parameters: Mapping[str, str] | None = None) -> Experiment:
    """Reads the text of an experiment; relative paths in it are below `directory`."""
    values, unused = _with_parameters(_toml(text), parameters or {})
    experiment = _experiment(text, _with_paths(values, directory))
    if unused:
        name = sorted(unused)[0]
        raise SettingsError(f"parameters.{name}", f"nothing names it as ${name}")
    return experiment


def from_values(values: dict[str, Any]) -> Experiment:
    """An experiment out of what a file of it would parse to, with nothing left to be filled in."""
    return _experiment(tomli_w.dumps(values), values)


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError("experiment", str(error)) from error


def _experiment(text: str, values: dict[str, Any]) -> Experiment:
    top = Settings("experiment", values)
    top.raw("parameters")
    if top.integer("schema", SCHEMA) != SCHEMA:
        raise top.error("schema", f"this lab reads schema {SCHEMA}")
    name = top.text("name")
    if not NAME.match(name):
        raise top.error("name", f"{name!r} is no name: letters, digits and -_.+ only")
    hosts = {key: _host(key, one) for key, one in _named(top, "hosts").items()}
    if not hosts:
        hosts = {"here": HostSpec("here", None, None, True, True, (), (), None, "python3")}
    targets = {key: _target(key, one) for key, one in _named(top, "targets").items()}
    meters = {key: _meter(key, one) for key, one in _named(top, "meters").items()}
    workloads = {key: _workload(key, one) for key, one in _named(top, "workloads").items()}
    for meter in meters.values():
        where = f"meters.{meter.name}.backup_for"
        if meter.backup_for is not None and meter.backup_for not in meters:
            raise SettingsError(where, f"there is no meter {meter.backup_for!r}")
        if meter.backup_for == meter.name:
            raise SettingsError(where, "no meter stands in for itself")
    reference = top.text("reference", "") or None
    if reference is not None and reference not in targets:
        raise top.error("reference", f"there is no target {reference!r}")
    if not any(one.is_client for one in hosts.values()):
        raise SettingsError("hosts", "none has the role client")
    experiment = Experiment(
        name=name,
        seed=top.integer("seed", 0),
        reference=reference,
        hosts=hosts,
        targets=targets,
        meters=meters,
        workloads=workloads,
        energy=_energy(top.table("energy")),
        repeat=_repeat(top.table("repeat")),
        gate=_gate(top.table("gate")),
        probes=_probes(top.table("probes")),
        trials=_trials(top.table("factors"), targets, workloads),
        text=text,
        values=values,
    )
    if "energy" in experiment.repeat.metrics and not meters:
        raise SettingsError("repeat.stop.metric", "there is no meter that energy could come from")
    # Read by the analysis: what a target costs is in its table, these have tables of their own.
    top.raw("bounds")
    _check_references(top, workloads)
    top.raw("description")
    top.finish()
    return experiment


def _with_parameters(
    values: dict[str, Any], given: Mapping[str, str]
) -> tuple[dict[str, Any], set[str]]:
    """Puts the values of `[parameters]` where texts name them as `$name` or `${name}`; also
    returns the parameters that none names."""
    parameters = dict(values.get("parameters", {}))
    for key, text in given.items():
        if key not in parameters:
            known = ", ".join(sorted(parameters)) or "none"
            raise SettingsError("parameters", f"there is no {key!r}; this experiment has: {known}")
        parameters[key] = _typed(text, parameters[key], key)

    used: set[str] = set()

    def put(where: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: put(f"{where}.{key}" if where else key, one) for key, one in value.items()}
        if isinstance(value, list):
            return [put(where, one) for one in value]
        if not isinstance(value, str) or "$" not in value:
            return value
        name = value[1:].strip("{}")
        if value.startswith("$") and name in parameters:
            used.add(name)
            return copy.deepcopy(parameters[name])
        template = string.Template(value)
        if template.is_valid():
            used.update(template.get_identifiers())
        try:
            return template.substitute(parameters)
        except (KeyError, ValueError) as error:
            reason = f"cannot fill {value!r}: {error} is no parameter; a `$` itself is `$$`"
            raise SettingsError(where, reason) from None

    filled: dict[str, Any] = put(
        "", {key: one for key, one in values.items() if key != "parameters"}
    )
    return filled, set(parameters) - used


def _typed(text: str, default: Any, key: str) -> Any:
    """A parameter from the command line, of the type that the file gives it."""
    if isinstance(default, str):
        return text
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        raise SettingsError(f"parameters.{key}", f"{text!r} is no TOML value") from None
    if isinstance(default, float) and isinstance(value, int):
        value = float(value)
    if type(value) is not type(default):
        kind = type(default).__name__
        raise SettingsError(f"parameters.{key}", f"must be of type {kind} as in the file")
    return value


PATH_KEYS = ("setup", "teardown", "remount", "server_setup", "server_teardown")


def _with_paths(values: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Scripts of targets are named from where the experiment file is."""
    values = copy.deepcopy(values)
    targets = values.get("targets", {})
    for target in targets.values() if isinstance(targets, dict) else ():
        if isinstance(target, dict):
            for key in PATH_KEYS:
                if isinstance(target.get(key), str):
                    target[key] = str((directory / target[key]).resolve())
    return values


def _named(top: Settings, key: str) -> dict[str, Settings]:
    table = top.table(key).tables()
    for name in table:
        if not NAME.match(name):
            raise SettingsError(f"{key}.{name}", "is no name: letters, digits and -_.+ only")
    return {name: Settings(f"{key}.{name}", one.values) for name, one in table.items()}


def _host(name: str, settings: Settings) -> HostSpec:
    role = settings.choice("role", ("client", "server", "both"), "both")
    spec = HostSpec(
        name=name,
        ssh=settings.text("ssh", "") or None,
        address=settings.text("address", "") or None,
        is_client=role != "server",
        is_server=role != "client",
        devices=settings.texts("devices", ()),
        probe_directories=settings.texts("probe_directories", ()),
        nic=settings.text("nic", "") or None,
        python=settings.text("python", "python3"),
    )
    settings.finish()
    return spec


def _meter(name: str, settings: Settings) -> MeterSpec:
    backup_for = settings.text("backup_for", "") or None
    own = ("required", "backup_for")
    return MeterSpec(
        name=name,
        kind=settings.text("kind"),
        is_required=settings.flag("required", backup_for is None),
        backup_for=backup_for,
        settings={key: one for key, one in settings.values.items() if key not in own},
    )


def _target(name: str, settings: Settings) -> TargetSpec:
    # For the analysis, which reads the file itself.
    for key in (analysed := ("price", "power_limit_w")):
        if key in settings:
            settings.number(key)
    own = (*analysed, "parameters")
    return TargetSpec(
        name=name,
        kind=settings.text("kind"),
        parameters=settings.table("parameters").values,
        settings={key: one for key, one in settings.values.items() if key not in own},
    )


def _workload(name: str, settings: Settings) -> WorkloadSpec:
    size = settings.raw("bytes_per_client")
    multiple = RAM_MULTIPLE.match(size) if isinstance(size, str) else None
    is_nothing = size is not None and multiple is None and settings.bytes("bytes_per_client") == 0
    if is_nothing or (multiple is not None and float(multiple[1]) == 0):
        raise settings.error("bytes_per_client", "must be more than nothing")
    own = ("bytes_per_client",)
    return WorkloadSpec(
        name=name,
        kind=settings.text("kind"),
        bytes_per_client=size,
        settings={key: one for key, one in settings.values.items() if key not in own},
    )


def resolve_bytes(size: str | int | None, memory_bytes: int) -> int | None:
    """What `bytes_per_client` means on a host with so much memory."""
    if isinstance(size, str) and (match := RAM_MULTIPLE.match(size)):
        return int(float(match[1]) * memory_bytes)
    return None if size is None else parse_bytes(size)


def _energy(settings: Settings) -> EnergySpec:
    scope = settings.raw("scope", "all")
    idle = settings.table("idle")
    spec = EnergySpec(
        scope=() if scope == "all" else settings.texts("scope"),
        idle_s=idle.seconds("seconds", 30),
        settle_s=idle.seconds("settle", 5),
        on_gap=settings.choice("on_gap", ("repeat", "invalidate", "pause", "abort"), "repeat"),
        min_coverage=settings.number("min_coverage", 0.99),
        max_gap_s=settings.seconds("max_gap", 1),
        guard_s=settings.seconds("guard", 0.5),
        lag=settings.choice("lag", ("auto", "measure", "skip"), "auto"),
        repeats_max=settings.integer("repeats_max", 3),
    )
    idle.finish()
    settings.finish()
    if spec.min_coverage > 1:
        raise settings.error("min_coverage", "must be at most 1")
    return spec


def _repeat(settings: Settings) -> RepeatSpec:
    stop = settings.table("stop")
    cold = settings.table("cold")
    metrics = stop.raw("metric", ["throughput"])
    metrics = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    for one in metrics:
        if one not in ("throughput", "energy"):
            raise stop.error("metric", f"{one!r} is none of throughput, energy")
    spec = RepeatSpec(
        least=settings.integer("min", 6, least=1),
        most=settings.integer("max", 30, least=1),
        metrics=metrics,
        confidence=stop.number("ci", 0.95),
        relative_half_width=stop.number("rel_half_width", 0.05),
        order=settings.choice("order", ("randomized-blocks", "sequential"), "randomized-blocks"),
        warmup=settings.integer("warmup", 1),
        cold=ColdSpec(
            drop_caches=cold.flag("drop_caches", True),
            remount=cold.flag("remount", False),
            cooldown_s=cold.seconds("cooldown", 0),
        ),
    )
    stop.finish()
    cold.finish()
    settings.finish()
    if spec.relative_half_width == 0:
        raise stop.error("rel_half_width", "must be more than 0")
    if spec.most < spec.least:
        raise settings.error("max", f"must be at least min, {spec.least}")
    if not 0 < spec.confidence < 1:
        raise stop.error("ci", "must be between 0 and 1")
    return spec


def _gate(settings: Settings) -> GateSpec:
    spec = GateSpec(
        load_max=settings.number("load_max", 0.5),
        disk_bytes_s_max=float(settings.bytes("disk_bytes_s_max", "10MiB")),
        free_factor=settings.number("free_factor", 1.1, least=1),
        wait_s=settings.seconds("wait", 120),
        clock_bound_s=settings.seconds("clock_bound", 0.005),
        drain_s=settings.seconds("drain", 120),
    )
    settings.finish()
    return spec


def _probes(settings: Settings) -> ProbeSpec:
    spec = ProbeSpec(
        enabled=settings.flag("enabled", True),
        size_bytes=settings.bytes("size", "256MiB"),
        repetitions=settings.integer("repetitions", 3, least=1),
    )
    settings.finish()
    return spec


def _check_references(top: Settings, workloads: Mapping[str, WorkloadSpec]) -> None:
    """Refuses reference lines that a report could not draw, before anything is measured."""
    lines = top.raw("references", [])
    if not isinstance(lines, list):
        raise top.error("references", "must be tables [[references]]")
    for number, line in enumerate(lines, start=1):
        one = Settings(f"references[{number}]", line if isinstance(line, dict) else {})
        for key in ("label", "unit", "source", "conditions"):
            one.text(key)
        one.number("value")
        one.text("phase", "")
        workload = one.text("workload", "")
        if workload and workload not in workloads:
            raise one.error("workload", f"there is no workload {workload!r}")
        one.finish()


def _labels(factors: Mapping[str, Any]) -> list[str]:
    return [
        re.sub(r"[^A-Za-z0-9_.+]+", "_", f"{key.rpartition('.')[2]}_{value}")
        for key, value in factors.items()
    ]


def _trials(
    settings: Settings,
    targets: Mapping[str, TargetSpec],
    workloads: Mapping[str, WorkloadSpec],
) -> tuple[Trial, ...]:
    """All combinations of the factors; by default of all targets and all workloads."""
    choices = {
        "target": list(settings.texts("target", tuple(targets))),
        "workload": list(settings.texts("workload", tuple(workloads))),
        "clients": settings.raw("clients", [1]),
    }
    for key, known in (("target", targets), ("workload", workloads)):
        for one in choices[key]:
            if one not in known:
                raise settings.error(key, f"there is no {key} {one!r}")
        if not choices[key]:
            raise settings.error(key, f"the experiment has no {key}")
    if not isinstance(choices["clients"], list) or not choices["clients"]:
        raise settings.error("clients", "must be a list of numbers of clients")
    for count in choices["clients"]:
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise settings.error("clients", f"{count!r} is no number of clients")
    for key in settings.values:
        if key in MAIN_FACTORS:
            continue
        if not key.startswith(("target.", "workload.")):
            raise settings.error(
                key, "a further factor is the name of a setting: target.NAME or workload.NAME"
            )
        values = settings.raw(key)
        if not isinstance(values, list) or not values:
            raise settings.error(key, "must be a list of values")
        choices[key] = values
    settings.finish()
    trials = []
    for combination in itertools.product(*choices.values()):
        factors = dict(zip(choices, combination, strict=True))
        target, workload, clients = (factors.pop(key) for key in MAIN_FACTORS)
        name = "-".join([workload, target, f"c{clients}", *_labels(factors)])
        if len(name) > NAME_BYTES_MAX:
            raise settings.error("", f"the name of a trial is too long, {name[:60]}…")
        trials.append(Trial(name, target, workload, clients, factors))
        if len(trials) > TRIALS_MAX:
            raise settings.error("", f"more than {TRIALS_MAX} combinations")
    names = [one.name for one in trials]
    for name in names:
        if names.count(name) > 1:
            raise settings.error("", f"two combinations would have the same name {name}")
    return tuple(trials)
