# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the analysis needs of the frozen experiment file.

The file was checked when the run began, so that what is missing here has the default of then, and
what is new in a later version does not stop the analysis of an old run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from terrace_lab.numbers.energy import Rules
from terrace_lab.numbers.stopping import Rule
from terrace_lab.settings import parse_bytes, parse_seconds
from terrace_lab.summary import ReferenceLine

ONLY_HOST = "here"
"""Name of the machine of an experiment without hosts."""


def table(experiment: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """A table below others; empty where there is none."""
    value: Any = experiment
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def energy_rules(experiment: Mapping[str, Any]) -> Rules:
    energy = table(experiment, "energy")
    return Rules(
        min_coverage=float(energy.get("min_coverage", 0.99)),
        max_gap_s=seconds(energy.get("max_gap"), 1.0) or 0.0,
    )


def stop_rule(experiment: Mapping[str, Any]) -> Rule | None:
    """None where the number of repetitions is fixed."""
    repeat, stop = table(experiment, "repeat"), table(experiment, "repeat", "stop")
    if not stop_metrics(experiment):
        return None
    return Rule(
        least=int(repeat.get("min", 6)),
        most=int(repeat.get("max", 30)),
        confidence=float(stop.get("ci", 0.95)),
        rel_half_width=float(stop.get("rel_half_width", 0.05)),
    )


def stop_metrics(experiment: Mapping[str, Any]) -> tuple[str, ...]:
    metrics = table(experiment, "repeat", "stop").get("metric", ("throughput",))
    return (metrics,) if isinstance(metrics, str) else tuple(metrics)


def scopes(experiment: Mapping[str, Any], known: list[str]) -> list[str]:
    """What is added up for energy: names, or all that any meter has."""
    value = table(experiment, "energy").get("scope", "all")
    if value == "all":
        return known
    if value == "per host":
        return [name for name in known if name in table(experiment, "hosts")]
    return [value] if isinstance(value, str) else list(value)


def weight(experiment: Mapping[str, Any]) -> float:
    """How much the time counts in the energy-delay product that systems are ranked by."""
    return float(table(experiment, "energy").get("weight", 1.0))


def subtracted(experiment: Mapping[str, Any]) -> dict[str, float]:
    """Watts of parts that are in the scope and not of the systems, by name."""
    parts = table(experiment, "energy", "subtract")
    return {str(name): float(watts) for name, watts in parts.items()}


def shares(experiment: Mapping[str, Any]) -> dict[str, float]:
    """The part that counts of scopes that feed others, too, by name."""
    parts = table(experiment, "energy", "share")
    return {str(name): float(part) for name, part in parts.items()}


def baselines(experiment: Mapping[str, Any]) -> dict[str, str]:
    """What the overhead of a target is measured against, by target."""
    tables = table(experiment, "targets")
    return {
        name: str(one["baseline"])
        for name, one in tables.items()
        if isinstance(one, Mapping) and one.get("baseline")
    }


def number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def size(value: Any) -> int | None:
    return None if value is None else parse_bytes(value)


def seconds(value: Any, default: float | None = None) -> float | None:
    return default if value is None else parse_seconds(value)


def workload_hash(experiment: Mapping[str, Any], name: str) -> str:
    """Equal for tables that say the same; the run's own hash takes its place where it has one."""
    text = json.dumps(table(experiment, "workloads", name), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def reference_lines(experiment: Mapping[str, Any]) -> list[ReferenceLine]:
    """Published figures of `[[references]]`."""
    lines = experiment.get("references")
    return [
        ReferenceLine(
            label=str(one.get("label", "")),
            value=float(one["value"]),
            unit=str(one.get("unit", "")),
            workload=str(one.get("workload", "")),
            phase=str(one.get("phase", "")),
            source=str(one.get("source", "")),
            conditions=str(one.get("conditions", "")),
        )
        for one in (lines if isinstance(lines, list) else [])
    ]
