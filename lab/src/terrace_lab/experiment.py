# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Experiment files: what is measured on what, how often, and with which meters."""

from __future__ import annotations

import copy
import hashlib
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
from terrace_lab.settings import Settings, missing, parse_bytes
from terrace_lab.specs import (
    ColdSpec,
    EnergySpec,
    GateSpec,
    HostSpec,
    MeterSpec,
    ProbeSpec,
    RepeatSpec,
    SeriesSpec,
    TargetSpec,
    WorkloadSpec,
)
from terrace_lab.trials import Trial, combinations

SCHEMA = 1

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}\Z")
"""Names become names of directories and parts of file names."""

RAM_MULTIPLE = re.compile(r"([0-9]+(?:\.[0-9]+)?)x_(server_)?ram\Z")


SERIES_LEAST_S, SERIES_MOST_S = 0.1, 1.0
"""Sampling more often would be a load by itself, less often would miss phases."""


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
    series: SeriesSpec
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

    def placed(self, trial: Trial) -> list[HostSpec]:
        """Hosts of the clients of a trial: apart from the servers, on them, or as roles say."""
        placement = trial.factors.get("placement")
        if placement == "converged":
            return self.servers
        if placement == "exclusive":
            return [one for one in self.clients if not one.is_server]
        return self.clients

    @property
    def servers(self) -> list[HostSpec]:
        return [one for one in self.hosts.values() if one.is_server]


def digest(values: object) -> str:
    """The SHA-256 of JSON with sorted keys."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def load(
    path: Path, parameters: Mapping[str, str] | None = None, *, is_scaled: bool = False
) -> Experiment:
    """Reads an experiment file; SettingsError says what is wrong in it and where."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"cannot read the experiment: {error} file={path}") from error
    return parse(text, path.parent, parameters, is_scaled=is_scaled)


def load_frozen(path: Path) -> Experiment:
    """Reads what `freeze` has written."""
    text = path.read_text(encoding="utf-8")
    return _experiment(text, _toml(text))


def freeze(experiment: Experiment) -> str:
    """The experiment as TOML without anything left to be filled in."""
    return tomli_w.dumps(experiment.values)


def parse(
    text: str,
    directory: Path,
    parameters: Mapping[str, str] | None = None,
    *,
    is_scaled: bool = False,
) -> Experiment:
    """Reads the text of an experiment; relative paths in it are below `directory`.

    Scaled, its parameters have the values of `[scale]`, for a machine that is smaller than the one
    that it was written for; those that are given come before both.
    """
    values, unused = _filled(text, parameters or {}, is_scaled)
    experiment = _experiment(text, _with_paths(values, directory))
    if unused:
        name = sorted(unused)[0]
        raise SettingsError(f"parameters.{name}", f"nothing names it as ${name}")
    return experiment


def filled(text: str, parameters: Mapping[str, str], *, is_scaled: bool) -> dict[str, Any]:
    """What a TOML text parses to with its parameters put in, whatever its tables are."""
    return _filled(text, parameters, is_scaled)[0]


def _filled(
    text: str, parameters: Mapping[str, str], is_scaled: bool
) -> tuple[dict[str, Any], set[str]]:
    given = _toml(text)
    scale = _scale(given)
    if is_scaled:
        if not scale:
            raise SettingsError("scale", "the experiment has no scaled form")
        given = {**given, "parameters": {**given.get("parameters", {}), **scale}}
    return _with_parameters(given, parameters)


def from_values(values: dict[str, Any]) -> Experiment:
    """An experiment out of what a file of it would parse to, with nothing left to be filled in."""
    return _experiment(tomli_w.dumps(values), values)


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError("experiment", str(error)) from error


def _scale(values: dict[str, Any]) -> dict[str, Any]:
    """Takes `[scale]` out: values of parameters for a small machine."""
    scale = values.pop("scale", {})
    parameters = values.get("parameters", {})
    if not isinstance(scale, dict):
        raise SettingsError("scale", "must be a table")
    for key, value in scale.items():
        if key not in parameters:
            raise SettingsError(f"scale.{key}", missing("parameter", key, sorted(parameters)))
        if type(value) is not type(parameters[key]):
            kind = type(parameters[key]).__name__
            raise SettingsError(f"scale.{key}", f"must be of type {kind} as the parameter")
    return scale


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
            raise SettingsError(where, missing("meter", meter.backup_for, meters))
        if meter.backup_for == meter.name:
            raise SettingsError(where, "no meter stands in for itself")
    for key, table in _named(top, "targets").items():
        baseline = table.text("baseline", "")
        if baseline and baseline not in targets:
            raise SettingsError(f"targets.{key}.baseline", missing("target", baseline, targets))
    reference = top.text("reference", "") or None
    if reference is not None and reference not in targets:
        raise top.error("reference", missing("target", reference, targets))
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
        series=_series(top.table("series")),
        trials=combinations(top.table("factors"), targets, workloads),
        text=text,
        values=values,
    )
    if "energy" in experiment.repeat.metrics and not meters:
        raise SettingsError("repeat.stop.metric", "there is no meter that energy could come from")
    # Read by the analysis: what a target costs is in its table, these have tables of their own.
    _check_bounds(top.table("bounds"))
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
            raise SettingsError("parameters", missing("parameter", key, sorted(parameters)))
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
        except KeyError as error:
            reason = missing("parameter", str(error.args[0]), sorted(parameters))
        except ValueError as error:
            reason = str(error)
        raise SettingsError(where, f"cannot fill {value!r}: {reason}; a `$` itself is `$$`")

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
    settings.text("baseline", "")
    if "nominal_bytes" in settings:
        settings.bytes("nominal_bytes")
    own = (*analysed, "parameters", "baseline", "nominal_bytes")
    return TargetSpec(
        name=name,
        kind=settings.text("kind"),
        parameters=settings.table("parameters").values,
        settings={key: one for key, one in settings.values.items() if key not in own},
    )


def _workload(name: str, settings: Settings) -> WorkloadSpec:
    for key in (own := ("bytes_per_client", "total_bytes")):
        _check_size(settings, key)
    if all(settings.raw(key) is not None for key in own):
        raise settings.error("total_bytes", "is given beside bytes_per_client")
    return WorkloadSpec(
        name=name,
        kind=settings.text("kind"),
        bytes_per_client=settings.raw("bytes_per_client"),
        total_bytes=settings.raw("total_bytes"),
        settings={key: one for key, one in settings.values.items() if key not in own},
    )


def _check_size(settings: Settings, key: str) -> None:
    size = settings.raw(key)
    multiple = RAM_MULTIPLE.match(size) if isinstance(size, str) else None
    is_nothing = size is not None and multiple is None and settings.bytes(key) == 0
    if is_nothing or (multiple is not None and float(multiple[1]) == 0):
        raise settings.error(key, "must be more than nothing")


def resolve_bytes(
    size: str | int | None, memory_bytes: int, server_memory_bytes: int | None = None
) -> int | None:
    """What a size means where a client has so much memory, and all servers together so much."""
    if isinstance(size, str) and (match := RAM_MULTIPLE.match(size)):
        memory = server_memory_bytes if match[2] and server_memory_bytes else memory_bytes
        return int(float(match[1]) * memory)
    return None if size is None else parse_bytes(size)


def client_bytes(
    spec: WorkloadSpec, clients: int, memory_bytes: int, server_memory_bytes: int
) -> int | None:
    """Bytes of each of so many clients: its own size, or its part of the constant total."""
    total = resolve_bytes(spec.total_bytes, memory_bytes, server_memory_bytes)
    if total is not None:
        return total // clients
    return resolve_bytes(spec.bytes_per_client, memory_bytes, server_memory_bytes)


def _energy(settings: Settings) -> EnergySpec:
    scope = settings.raw("scope", "all")
    idle = settings.table("idle")
    subtract = settings.table("subtract")
    share = settings.table("share")
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
        weight=settings.number("weight", 1.0),
        subtract_w={key: subtract.number(key) for key in subtract.values},
        share={key: share.number(key) for key in share.values},
    )
    idle.finish()
    settings.finish()
    if spec.min_coverage > 1:
        raise settings.error("min_coverage", "must be at most 1")
    for name, part in spec.share.items():
        if not 0 < part <= 1:
            raise share.error(name, "must be above 0 and at most 1")
        if spec.scope and name not in spec.scope:
            raise share.error(name, "is no name of energy.scope")
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


def _series(settings: Settings) -> SeriesSpec:
    spec = SeriesSpec(settings.flag("enabled", True), settings.seconds("period", 0.5))
    settings.finish()
    if not SERIES_LEAST_S <= spec.period_s <= SERIES_MOST_S:
        raise settings.error("period", "must be from 100 ms to 1 s")
    return spec


def _probes(settings: Settings) -> ProbeSpec:
    streams = settings.raw("streams", [1])
    spec = ProbeSpec(
        enabled=settings.flag("enabled", True),
        size_bytes=settings.bytes("size", "256MiB"),
        repetitions=settings.integer("repetitions", 3, least=1),
        xfer_bytes=settings.bytes("xfer", "1MiB"),
        depth=settings.integer("depth", 8, least=1),
        disk_s=settings.seconds("disk_seconds", 0),
        network_s=settings.seconds("network_seconds", 2),
        streams=tuple(streams) if isinstance(streams, list) else (),
    )
    settings.finish()
    if not spec.streams or not all(isinstance(one, int) and one > 0 for one in spec.streams):
        raise settings.error("streams", f"must be a list of whole numbers, not {streams!r}")
    if spec.xfer_bytes == 0:
        raise settings.error("xfer", "must not be 0")
    return spec


def _check_bounds(settings: Settings) -> None:
    """Refuses a bound of latency that the analysis could not use."""
    if "latency" in settings:
        settings.seconds("latency")
    if settings.number("percentile", 99.0) > 100:
        raise settings.error("percentile", "must be at most 100")
    settings.finish()


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
            raise one.error("workload", missing("workload", workload, workloads))
        one.finish()
