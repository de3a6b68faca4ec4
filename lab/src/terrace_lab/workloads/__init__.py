# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What is done to a target. One line a kind; others come as entry points of `lab.workloads`."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points

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


def create(name: str, settings: Settings) -> Workload:
    """Makes the workload that one table of an experiment describes.

    `bytes_per_client` belongs to the experiment, which resolves it; it is only let pass here.
    """
    kind = settings.text("kind")
    settings.raw("bytes_per_client")
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
