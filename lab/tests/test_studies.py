# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The studies that come with the lab could run, and cite what they compare with."""

from pathlib import Path

import pytest

from terrace_lab import experiment
from terrace_lab.commands.study import texts
from terrace_lab.runner.parts import Parts


@pytest.mark.parametrize("name", texts())
def test_a_study_is_understood_to_its_last_setting(name: str) -> None:
    study = experiment.parse(texts()[name], Path("/"))
    assert study.name == name
    assert study.reference in study.targets
    parts = Parts(study)
    for trial in study.trials:
        parts.targets[trial.target].check_parameters(parts.parameters(trial))


@pytest.mark.parametrize("name", texts())
def test_a_published_figure_has_its_source_and_conditions(name: str) -> None:
    for line in experiment.parse(texts()[name], Path("/")).values.get("references", []):
        assert set(line) == {
            *("label", "value", "unit", "workload", "phase", "source", "conditions"),
        }
        assert line["source"]
        assert line["conditions"]
        assert line["value"] > 0
