# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The studies that come with the lab: files of this directory, and those that are made."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from pathlib import Path

from terrace_lab import experiment
from terrace_lab.experiment import Experiment
from terrace_lab.studies import hsm


def texts() -> dict[str, str]:
    """The experiment files, by name."""
    directory = importlib.resources.files(__name__)
    return {
        one.name.removesuffix(".toml"): one.read_text(encoding="utf-8")
        for one in sorted(directory.iterdir(), key=lambda one: one.name)
        if one.name.endswith(".toml")
    }


def names() -> list[str]:
    return [*texts(), hsm.NAME]


def load(name: str, given: Mapping[str, str], *, is_scaled: bool) -> Experiment:
    """One of them, with these values of its parameters."""
    if name == hsm.NAME:
        return hsm.experiment(given, is_scaled=is_scaled)
    return experiment.parse(texts()[name], Path.cwd(), given, is_scaled=is_scaled)
