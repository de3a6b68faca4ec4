# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What keeps an experiment from running is told before it runs, factors included."""

from pathlib import Path

import pytest
from clients import host

from terrace_lab.commands.check import look, refuse_problems
from terrace_lab.errors import LabError, SettingsError
from terrace_lab.experiment import parse
from terrace_lab.hosts import AgentHost
from terrace_lab.runner.parts import Parts

__all__ = ["host"]

EXAMPLE = """
name = "example"

[targets.here]
kind = "path"
path = "/tmp"

[workloads.w]
kind = "fio"
params = { phases = ["write"] }
"""
STORE = EXAMPLE.replace('kind = "path"\npath = "/tmp"', 'kind = "store"\nendpoint = "/tmp/none"')
TIERS = EXAMPLE.replace('kind = "path"\npath = "/tmp"', 'kind = "terrace"\nstate = "/tmp/none"')


def problems(text: str, host: AgentHost) -> list[str]:
    return [str(one.text) for one in Parts(parse(text, Path("/"))).problems({"here": host})]


def test_a_trial_has_its_own_work_and_those_with_the_same_share_it() -> None:
    text = EXAMPLE + '[factors]\nclients = [1, 2]\n"workload.xfer" = ["64KiB", "1MiB"]\n'
    experiment = parse(text, Path("/"))
    parts = Parts(experiment)
    made = {trial.name: parts.workload(trial) for trial in experiment.trials}
    assert len({id(one) for one in made.values()}) == 2
    small = made["w-here-c1-xfer_64KiB"]
    assert small is made["w-here-c2-xfer_64KiB"]
    assert small.describe() != made["w-here-c1-xfer_1MiB"].describe()
    assert parts.workloads["w"].describe() == made["w-here-c1-xfer_1MiB"].describe()


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (
            '"workload.xfr" = ["1MiB"]',
            r"workloads\.w\.params\.xfr: .*'xfer'\? known are preset, phases, ",
        ),
        ('"workload.xfer" = ["1MiB", "big"]', r"workloads\.w\.params\.xfer: 'big' is not bytes"),
    ],
)
def test_a_wrong_factor_of_a_workload_is_named(factor: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Parts(parse(f"{EXAMPLE}[factors]\n{factor}\n", Path("/")))


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        ('"target.polcy" = ["lru"]', "no such parameter, only .* parameter=polcy"),
        ('"target.policy" = ["lru", "luck"]', "'luck' is none of .* parameter=policy"),
    ],
)
def test_a_wrong_factor_of_a_target_is_a_problem(
    factor: str, message: str, host: AgentHost
) -> None:
    (found,) = (one for one in problems(f"{TIERS}[factors]\n{factor}\n", host) if "set up" in one)
    with pytest.raises(LabError, match=message):
        raise LabError(found)


def test_pinned_parameters_are_checked_as_well(host: AgentHost) -> None:
    text = TIERS.replace(
        "[workloads.w]", '[targets.here.parameters]\npolicy = "luck"\n[workloads.w]'
    )
    assert any("'luck' is none of" in one for one in problems(text, host))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('path = "/tmp"', 'path = "/tmp"\nprise = 1', r"targets\.here\.prise: .* 'price'\?.*path"),
        ("[workloads.w]", "[workloads.w]\nparam = 1", r"workloads\.w\.param: .* 'params'\?"),
    ],
)
def test_a_setting_that_another_reader_has_is_named_too(old: str, new: str, message: str) -> None:
    assert EXAMPLE.count(old) == 1
    with pytest.raises(SettingsError, match=message):
        Parts(parse(EXAMPLE.replace(old, new), Path("/")))


def test_a_table_may_be_complete_with_its_factors_only() -> None:
    text = EXAMPLE.replace('"fio"', '"pde"').replace('phases = ["write"]', "processes = 4")
    with pytest.raises(SettingsError, match="processes: must be 1 with api 'auto'"):
        Parts(parse(text, Path("/")))
    experiment = parse(f'{text}[factors]\n"workload.api" = ["mpiio", "hdf5"]\n', Path("/"))
    assert Parts(experiment).workloads["w"].describe()["api"] == "mpiio"


def test_files_need_a_directory_and_objects_do_not(host: AgentHost) -> None:
    (found,) = problems(STORE, host)
    assert found == "target here is a store without a mount, which has no files"
    pde = STORE.replace('"fio"', '"pde"').replace('phases = ["write"]', "grid = 8")
    assert found not in problems(pde, host)
    assert found in problems(f'{pde}[factors]\n"workload.api" = ["files"]\n', host)


def test_a_directory_that_is_not_there_is_told(host: AgentHost) -> None:
    (found,) = problems(EXAMPLE.replace('"/tmp"', '"/no/where"'), host)
    assert found == "there is no directory /no/where on here"


def test_check_and_run_say_the_same() -> None:
    experiment = parse(EXAMPLE.replace('"/tmp"', '"/no/where"'), Path("/"))
    (problem,) = look(experiment, with_meters=False).problems
    with pytest.raises(LabError, match=f"{problem.where}: {problem.text}"):
        refuse_problems(experiment)
