# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The studies that come with the lab could run, and cite what they compare with."""

import argparse
from pathlib import Path

import pytest

from terrace_lab import experiment, studies
from terrace_lab.commands import study as command
from terrace_lab.errors import LabError, SettingsError
from terrace_lab.runner.parts import Parts
from terrace_lab.studies import hsm, texts
from terrace_lab.workloads import fio, ior


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


MIB = 1 << 20


@pytest.mark.parametrize(
    ("study", "label", "workload", "phase", "value"),
    [
        ("nvme-dl", "BeeGFS on NVMe", "shared-file", "read", 7800 * MIB),
        ("nvme-dl", "BeeGFS on NVMe", "shared-file", "write", 5000 * MIB),
        ("arm-cluster", "CephFS, ARM cluster", "own-file", "write", 0.2011 * 496.4e6),
        ("arm-cluster", "CephFS, ARM cluster", "own-file", "read", 0.3636 * 496.4e6),
        ("arm-cluster", "OrangeFS, ARM cluster", "own-file", "write", 0.6110 * 496.4e6),
        ("arm-cluster", "OrangeFS, ARM cluster", "own-file", "read", 0.6270 * 496.4e6),
        ("arm-cluster", "Ceph, x86 reference of the paper", "own-file", "read", 5705 * MIB),
        ("arm-cluster", "idle, ARM cluster", "", "idle", 56.36 - 15.5),
    ],
)
def test_published_figures_agree_with_their_other_published_form(
    study: str, label: str, workload: str, phase: str, value: float
) -> None:
    lines = experiment.parse(texts()[study], Path("/")).values["references"]
    (line,) = [
        one
        for one in lines
        if (one["label"], one["workload"], one["phase"]) == (label, workload, phase)
    ]
    assert line["value"] == pytest.approx(value, rel=2e-3)


def test_transfers_of_the_shared_file_are_1200_kib() -> None:
    for presets in (ior.PRESETS, fio.PRESETS):
        assert presets["shared-file"]["xfer"] == 1200 * 1024


@pytest.mark.parametrize("name", [*texts(), hsm.NAME])
def test_a_wrong_parameter_of_a_study_names_the_right_ones(name: str) -> None:
    with pytest.raises(SettingsError, match=r"^parameters: there is no parameter 'zz'; known "):
        studies.load(name, {"zz": "1"}, is_scaled=False)


def test_a_wrong_value_of_a_study_names_the_right_ones() -> None:
    with pytest.raises(SettingsError, match=r"modes: there is no 'zz' here; known are "):
        studies.load(hsm.NAME, {"modes": '["zz"]'}, is_scaled=False)


def test_a_wrong_study_names_the_right_ones() -> None:
    arguments = argparse.Namespace(study="zz", show=False)
    with pytest.raises(LabError, match=r"there are .*hsm.* study=zz"):
        command.run(arguments)
