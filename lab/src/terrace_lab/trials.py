# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Trials: all combinations of the factors of an experiment."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from terrace_lab.settings import Settings, missing, right_names

MAIN_FACTORS = ("target", "workload", "clients")
PLACEMENTS = ("exclusive", "converged")
TRIALS_MAX = 1_000
NAME_BYTES_MAX = 200
"""Of a trial, whose name is that of a directory."""


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


def _labels(factors: Mapping[str, Any]) -> list[str]:
    return [
        re.sub(r"[^A-Za-z0-9_.+]+", "_", f"{key.rpartition('.')[2]}_{value}")
        for key, value in factors.items()
    ]


def _of_servers(settings: Settings, key: str) -> list[Any]:
    """How many servers a target has, or where the clients are: `exclusive` is apart from them."""
    values = settings.raw(key)
    if not isinstance(values, list) or not values:
        raise settings.error(key, "must be a list of values")
    for one in values:
        if key == "placement" and one not in PLACEMENTS:
            raise settings.error(key, f"{one!r} is none of {', '.join(PLACEMENTS)}")
        if key == "servers" and (not isinstance(one, int) or isinstance(one, bool) or one < 1):
            raise settings.error(key, f"{one!r} is no number of servers")
    return values


def combinations(
    settings: Settings,
    targets: Collection[str],
    workloads: Collection[str],
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
                raise settings.error(key, missing(key, str(one), known))
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
        if key in ("servers", "placement"):
            choices[key] = _of_servers(settings, key)
            continue
        if not key.startswith(("target.", "workload.")):
            raise settings.error(
                key,
                "a further factor is the name of a setting: target.NAME or workload.NAME; "
                + right_names(key, (*MAIN_FACTORS, "servers", "placement")),
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
