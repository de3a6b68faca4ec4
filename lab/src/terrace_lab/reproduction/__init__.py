# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the sources report, and the scaled runs that repeat it here."""

from __future__ import annotations

import importlib.resources
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from terrace_lab import experiment
from terrace_lab.errors import LabError
from terrace_lab.experiment import Experiment
from terrace_lab.hosts import AgentHost
from terrace_lab.runner.parts import Parts
from terrace_lab.studies import hsm, texts

STATES = {
    "scaled": "runs here, scaled",
    "hardware": "runs with hardware",
    "impossible": "not possible",
}


@dataclass(frozen=True, slots=True)
class Result:
    """One figure or table of a source."""

    id: str  # noqa: A003 - its name on the command line
    source: str
    kind: str
    title: str
    study: str
    """That makes it; empty where none does."""
    state: str
    batch: str = ""
    """That makes it here."""
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Batch:
    """A scaled run that makes some of the results."""

    name: str
    study: str
    parameters: Mapping[str, Any]
    without: tuple[str, ...]
    """Workloads of the study that are left out."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    sources: Mapping[str, str]
    batches: Mapping[str, Batch]
    results: tuple[Result, ...]

    def chosen(self, names: list[str]) -> list[Batch]:
        """The batches of these results, or all; LabError for a name that is none."""
        known = {one.id: one for one in self.results}
        wanted = []
        for name in names or [one.id for one in self.results if one.state == "scaled"]:
            if name not in known:
                raise LabError(f"cannot reproduce: there is no such result, see --list id={name}")
            if known[name].state != "scaled":
                raise LabError(f"cannot reproduce {name} here: {known[name].why}")
            wanted.append(known[name].batch)
        return [self.batches[name] for name in dict.fromkeys(wanted)]


def load() -> Catalogue:
    text = importlib.resources.files(__name__).joinpath("results.toml").read_text(encoding="utf-8")
    values = tomllib.loads(text)
    batches = {
        name: Batch(name, one["study"], one.get("set", {}), tuple(one.get("without", ())))
        for name, one in values["batches"].items()
    }
    return Catalogue(values["sources"], batches, tuple(Result(**one) for one in values["results"]))


def experiment_of(batch: Batch, given: Mapping[str, str]) -> tuple[Experiment, list[str]]:
    """The experiment of a batch, and what it leaves out because a program is missing here."""
    parameters = {key: _text(value) for key, value in batch.parameters.items()}
    text = hsm.text() if batch.study == "hsm" else texts()[batch.study]
    known = tomllib.loads(text)["parameters"]
    parameters |= {key: value for key, value in given.items() if key in known}
    if batch.study == "hsm":
        loaded = hsm.experiment(parameters, is_scaled=True)
        return loaded, []
    loaded = experiment.parse(text, Path.cwd(), parameters, is_scaled=True)
    if batch.without:
        kept = [one for one in loaded.workloads if one not in batch.without]
        factors = {**loaded.values["factors"], "workload": kept}
        loaded = experiment.from_values({**loaded.values, "factors": factors})
    return _without_missing(loaded)


def _text(value: Any) -> str:
    """As `--set` is given a value."""
    return value if isinstance(value, str) else json.dumps(value)


def _without_missing(loaded: Experiment) -> tuple[Experiment, list[str]]:
    """Leaves out targets whose programs are not on this machine; LabError where none is left."""
    parts = Parts(loaded)
    hosts = {name: AgentHost(name) for name in loaded.hosts}
    used = list(dict.fromkeys(trial.target for trial in loaded.trials))
    missing: dict[str, str] = {}
    try:
        for host in hosts.values():
            host.connect()
        for name in used:
            found = [one.text for one in parts.targets[name].check(hosts) if one.is_fatal]
            if found:
                missing[name] = found[0]
    finally:
        for host in hosts.values():
            host.close()
    kept = [name for name in used if name not in missing]
    if not kept:
        raise LabError(f"cannot run: no target is left: {'; '.join(missing.values())}")
    said = [f"{name} is left out: {text}" for name, text in missing.items()]
    if not missing:
        return loaded, said
    values = {**loaded.values, "factors": {**loaded.values["factors"], "target": kept}}
    if loaded.reference not in kept:
        values["reference"] = kept[0]
    return experiment.from_values(values), said
