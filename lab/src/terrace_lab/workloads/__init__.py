# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What is done to a target. One line a kind; others come as entry points of `lab.workloads`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from terrace_lab.settings import Settings
from terrace_lab.workloads.base import Workload

# Each module has `create(name, settings)`.
KINDS = {
    "compile": "terrace_lab.workloads.compile",
    "dlinput": "terrace_lab.workloads.dlinput",
    "fio": "terrace_lab.workloads.fio",
    "gen": "terrace_lab.workloads.gen",
    "ior": "terrace_lab.workloads.ior",
    "mdtest": "terrace_lab.workloads.mdtest",
    "pde": "terrace_lab.workloads.pde",
    "terrace": "terrace_lab.workloads.terrace",
}
ENTRY_POINTS = "lab.workloads"


def kinds() -> list[str]:
    """All kinds that an experiment may name."""
    return sorted({*KINDS, *(point.name for point in entry_points(group=ENTRY_POINTS))})


def create_for(
    name: str, table: Mapping[str, Any], parameters: Mapping[str, Any] | None = None
) -> Workload:
    """Makes the workload of a table, with what differs from trial to trial in its `params`."""
    values = dict(table)
    if parameters:
        own = values.get("params", {})
        values["params"] = {**own, **parameters} if isinstance(own, dict) else own
    return create(name, Settings(f"workloads.{name}", values))


def create(name: str, settings: Settings) -> Workload:
    """Makes the workload that one table of an experiment describes."""
    # They belong to the experiment, which resolves them, and are only let pass here.
    settings.also_known("bytes_per_client", "total_bytes")
    kind = settings.text("kind")
    if kind in KINDS:
        make = import_module(KINDS[kind]).create
    else:
        found = [point for point in entry_points(group=ENTRY_POINTS) if point.name == kind]
        if not found:
            raise settings.error("kind", f"{kind!r} is none of {', '.join(kinds())}")
        make = found[0].load()
    workload: Workload = make(name, settings)
    settings.finish()
    return workload
