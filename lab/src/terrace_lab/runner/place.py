# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Where everything of a run lies; docs/reference/lab-record.md is the format."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from terrace_lab.errors import LabError
from terrace_lab.experiment import Experiment, freeze, load_frozen
from terrace_lab.records import LinesWriter, now, write_json

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Place:
    """The directory of a run."""

    path: Path

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def probes(self) -> Path:
        return self.path / "probes.jsonl"

    def repetition(self, trial: str, number: int) -> Path:
        return self.path / "trials" / trial / f"rep-{number:03d}"

    def warmup(self, trial: str) -> Path:
        return self.path / "trials" / trial / "warmup"

    def environment(self, host: str) -> Path:
        return self.path / "env" / f"{host}.json"

    def idle(self, name: str) -> Path:
        return self.path / "idle" / f"{name}.json"

    def experiment(self) -> Experiment:
        """The experiment as it was frozen."""
        return load_frozen(self.path / "experiment.toml")

    def about(self) -> dict[str, Any]:
        """What `run.json` says."""
        try:
            about = json.loads((self.path / "run.json").read_text())
        except (OSError, ValueError) as error:
            raise LabError(f"cannot open a run: {error} run={self.path}") from error
        if about.get("schema") != SCHEMA:
            schema = about.get("schema")
            raise LabError(f"cannot open a run: this lab reads schema {SCHEMA} schema={schema}")
        return dict(about)

    def freeze(self, experiment: Experiment) -> None:
        """Makes this the experiment of the run from now on."""
        about = {**self.about(), "experiment_hash": experiment.hash}
        partial = self.path / "experiment.toml.partial"
        partial.write_text(freeze(experiment), encoding="utf-8")
        partial.replace(self.path / "experiment.toml")
        write_json(self.path / "run.json", about)


def create(path: Path, experiment: Experiment, run_id: str, version: str) -> Place:
    """Makes the directory of a run; LabError where it has something in it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise LabError(
                f"cannot begin a run: the directory is not empty, `terrace-lab resume` continues"
                f" one that is there run={path}"
            )
    except OSError as error:
        raise LabError(f"cannot begin a run: {error}") from error
    place = Place(path)
    (path / "experiment.given.toml").write_text(experiment.text, encoding="utf-8")
    (path / "experiment.toml").write_text(freeze(experiment), encoding="utf-8")
    with LinesWriter(path / "plan.jsonl") as plan:
        for trial in experiment.trials:
            plan.write(trial.to_json())
    begin = now()
    # Last: a directory with it is a whole run.
    write_json(
        path / "run.json",
        {
            "schema": SCHEMA,
            "run_id": run_id,
            "name": experiment.name,
            "experiment_hash": experiment.hash,
            "begin": {"real_ns": begin.real_ns, "raw_ns": begin.raw_ns},
            "version": version,
        },
    )
    return place
