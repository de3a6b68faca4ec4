# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The studies that come with the lab could run, and cite what they compare with."""

from pathlib import Path

import pytest

from terrace_lab import experiment, targets, workloads
from terrace_lab.commands.study import texts
from terrace_lab.settings import Settings


@pytest.mark.parametrize("name", texts())
def test_a_study_is_understood_to_its_last_setting(name: str) -> None:
    study = experiment.parse(texts()[name], Path("/"))
    assert study.name == name
    assert study.reference in study.targets
    for key, target in study.targets.items():
        targets.create(key, Settings(f"targets.{key}", target.settings))
    for key, workload in study.workloads.items():
        workloads.create(key, Settings(f"workloads.{key}", workload.settings))


@pytest.mark.parametrize("name", texts())
def test_a_published_figure_has_its_source_and_conditions(name: str) -> None:
    for line in experiment.parse(texts()[name], Path("/")).values.get("references", []):
        assert set(line) == {
            *("label", "value", "unit", "workload", "phase", "source", "conditions"),
        }
        assert line["source"]
        assert line["conditions"]
        assert line["value"] > 0
