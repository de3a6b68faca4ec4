# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the sources report: each has its study, and the runs here are bounded and go on."""

import json
import signal
import tomllib
from pathlib import Path
from typing import Any

import pytest

from terrace_lab import reproduction
from terrace_lab.cli import main
from terrace_lab.commands import reproduce
from terrace_lab.errors import LabError, SettingsError
from terrace_lab.journal import Journal
from terrace_lab.runner.place import Place
from terrace_lab.studies import hsm, texts

CATALOGUE = reproduction.load()


def test_every_result_has_a_study_and_a_state_that_says_why() -> None:
    ids = [one.id for one in CATALOGUE.results]
    assert len(ids) == len(set(ids))
    assert {one.source for one in CATALOGUE.results} == set(CATALOGUE.sources)
    for one in CATALOGUE.results:
        assert one.state in reproduction.STATES
        assert one.kind in ("figure", "table")
        if one.state == "scaled":
            assert CATALOGUE.batches[one.batch].study == one.study
        else:
            assert one.why, one.id
        assert one.study in ("", hsm.NAME, *texts())


@pytest.mark.parametrize("batch", CATALOGUE.batches.values(), ids=lambda one: one.name)
def test_a_batch_is_an_experiment_of_this_machine(batch: reproduction.Batch) -> None:
    known = tomllib.loads(hsm.text() if batch.study == "hsm" else texts()[batch.study])
    assert set(batch.parameters) <= set(known["parameters"])
    loaded, left_out = reproduction.experiment_of(batch, {"state": "/var/tmp/lab", "nothing": "1"})
    assert loaded.trials
    assert loaded.repeat.least >= 6, "fewer have no interval"
    assert {trial.target for trial in loaded.trials}.isdisjoint(
        one.partition(" ")[0] for one in left_out
    )


def test_results_that_cannot_run_here_say_why() -> None:
    with pytest.raises(LabError, match="cannot reproduce arm-paper-x86 here: a cluster of four"):
        CATALOGUE.chosen(["arm-paper-x86"])
    with pytest.raises(LabError, match="no such result, see --list id=x"):
        CATALOGUE.chosen(["x"])
    assert [one.name for one in CATALOGUE.chosen(["learning-iops", "learning-load"])] == [
        "nvme-streams"
    ]


def test_the_list_is_json_for_programs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["reproduce", "--json", "--output", str(tmp_path)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == len(CATALOGUE.results)
    assert {"id", "source_title", "title", "study", "state", "why", "run"} <= set(rows[0])


class World:
    """Runs that end at once, or that are interrupted; analysis and reports that are empty."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran: list[str] = []
        self.interrupts = True
        monkeypatch.setattr(reproduce, "run_place", self.run)
        monkeypatch.setattr("terrace_lab.analyse.analyse", self.analyse)
        monkeypatch.setattr("terrace_lab.report.write_report", self.write)

    def run(self, place: Place, _options: object) -> None:
        self.ran.append(place.path.name)
        if self.interrupts:
            raise reproduce.TimeIsUp("over")
        journal = Journal(place.journal, None)
        journal.write("end")
        journal.close()

    def analyse(self, _path: Path) -> Any:
        class Empty:
            cells: tuple[()] = ()
            is_modelled = True

        return Empty

    def write(self, path: Path, *, pdf: bool) -> Path:
        assert not pdf
        return path / "report" / "index.html"


def test_what_was_interrupted_goes_on_and_what_is_done_is_not_done_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = World(monkeypatch)
    words = ["reproduce", "--run", "policies-overhead", "--yes", "--output", str(tmp_path)]
    words += ["--set", "state=/var/tmp/lab"]
    assert main(words) == 1
    assert json.loads((tmp_path / "reproduce.json").read_text())["hsm"]["state"] == "interrupted"
    world.interrupts = False
    assert main(words) == 0
    assert main(words) == 0
    assert world.ran == ["hsm", "hsm"]
    page = (tmp_path / "index.html").read_text()
    assert 'href="hsm/report/index.html"' in page
    assert "energy MODELLED" in page
    assert "<script" not in page


def test_without_time_nothing_is_begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world = World(monkeypatch)
    words = ["reproduce", "--run", "--yes", "--output", str(tmp_path), "--minutes", "0.1"]
    assert main(words) == 1
    assert world.ran == []


def test_a_batch_that_fails_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(monkeypatch)

    def fails(_place: Place, _options: object) -> None:
        raise LabError("cannot run: terrace-gen is not there")

    monkeypatch.setattr(reproduce, "run_place", fails)
    words = ["reproduce", "--run", "policies-overhead", "--yes", "--output", str(tmp_path)]
    assert main([*words, "--set", "state=/var/tmp/lab"]) == 1
    assert "hsm: failed: cannot run: terrace-gen is not there" in capsys.readouterr().out
    assert world.ran == []


def test_what_runs_is_ended_when_the_time_is_over() -> None:
    with pytest.raises(reproduce.TimeIsUp), reproduce._bounded(0.02):
        signal.pause()


def test_policies_are_measured_beside_one_tier_alone() -> None:
    study = hsm.experiment({"modes": '["embedded"]', "pairs": '["disk/slow"]'})
    single = study.values["targets"]["disk-slow.single.embedded"]
    dummy = study.values["targets"]["disk-slow.dummy.embedded"]
    assert dummy["baseline"] == "disk-slow.single.embedded"
    assert single["setup"][2].count("--tier") == 1
    assert "--policy pinned" in dummy["setup"][2]
    assert "throttle.latency=50ms" in dummy["setup"][2]
    assert len(study.targets) == 1 + len(hsm.PARAMETERS["policies"])
    with pytest.raises(SettingsError, match=r"parameters\.network: is missing: pair disk/network"):
        hsm.experiment({"pairs": '["disk/network"]'})
    with pytest.raises(SettingsError, match=r"parameters\.policies: there is no 'lrv' here"):
        hsm.experiment({"policies": '["lrv"]'})


def test_events_before_the_io_are_a_factor_of_policies() -> None:
    given = {
        "modes": '["embedded"]',
        "pairs": '["disk/slow"]',
        "policies": '["dummy", "dummy-before", "listener", "listener-before", "lru-before"]',
    }
    targets = hsm.experiment(given).values["targets"]

    def setup(policy: str) -> str:
        text: str = targets[f"disk-slow.{policy}.embedded"]["setup"][2]
        return text

    assert "post_events" not in setup("dummy")
    assert "all_events" not in setup("dummy-before")
    assert 'post_events = "before"' in setup("dummy-before")
    assert "--policy pinned" in setup("listener-before")
    assert "policy set all_events=on" in setup("listener-before")
    assert 'post_events = "before"' in setup("listener-before")
    assert "--policy lru" in setup("lru-before")
    assert targets["disk-slow.lru-before.embedded"]["baseline"] == "disk-slow.single.embedded"
    with pytest.raises(SettingsError, match=r"there is no 'none-before' here"):
        hsm.experiment({"policies": '["none-before"]'})
