# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Searches values of a target's tunables by measuring, with a random search beside it.

Each candidate is a small run of its own. What either search finds best is then measured again
beside the defaults, in blocks, by measurements that neither search has seen: the best of many
noisy figures is better than its truth.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from terrace_lab.errors import LabError
from terrace_lab.experiment import Experiment, from_values
from terrace_lab.summary import Cell, Summary
from terrace_lab.targets.base import Tunable

METRICS = {
    "throughput": "work per second, more is better",
    "energy": "work per joule, more is better",
    "edp": "energy times a power of the time (--weight) for the same work, less is better",
}
CANDIDATE = "candidate"
CONFIRM_BLOCKS_MIN = 6

Values = Mapping[str, Any]
Measure = Callable[[Experiment, Path], Summary]
"""Carries out an experiment in a directory, and says what it came to."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Values of the tunables, and what they came to."""

    values: Values
    score: float
    """More is better, whatever the metric."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is tuned for what."""

    experiment: Experiment
    target: str
    workload: str
    clients: int
    metric: str
    tunables: Sequence[Tunable]
    weight: float = 1.0
    """Of the time, in the energy-delay product."""

    @property
    def defaults(self) -> Values:
        return {one.name: one.default for one in self.tunables}


def score(summary: Summary, metric: str, target: str = CANDIDATE, weight: float = 1.0) -> float:
    """One figure for all phases of a workload, more is better; LabError where there is none.

    Phases are put together by their costs: time, or energy, or both, of doing each of them once.
    What a phase leaves to be flushed behind it counts in its energy.
    """
    cells = [cell for cell in summary.cells if cell.target == target and cell.role == "work"]
    if not cells:
        cause = f": {summary.deviations[-1]}" if summary.deviations else ""
        raise LabError(f"cannot tune: no repetition came to a result{cause}")
    seconds = sum(cell.seconds.median for cell in cells)
    if metric == "throughput":
        return 1 / seconds
    joules = sum(_joules(cell) for cell in cells)
    return 1 / joules if metric == "energy" else 1 / (joules * seconds**weight)


def _joules(cell: Cell) -> float:
    if cell.energy is None:
        raise LabError(
            f"cannot tune for energy: phase {cell.phase} has none; it needs a meter, and"
            " at least ten of its periods"
        )
    whole = cell.extra.get("gross_j_with_tail", cell.energy.gross_j)
    return whole.median


def candidate_experiment(question: Question, values: Values, repetitions: int) -> Experiment:
    """The experiment that measures one candidate."""
    return _experiment(question, {CANDIDATE: values}, repetitions)


def confirm_experiment(question: Question, named: Mapping[str, Values], blocks: int) -> Experiment:
    """The experiment that measures several sets of values beside each other."""
    return _experiment(question, named, max(blocks, CONFIRM_BLOCKS_MIN))


def _experiment(question: Question, named: Mapping[str, Values], repetitions: int) -> Experiment:
    given = question.experiment.values
    target = given["targets"][question.target]
    targets = {
        # One at a time: candidates would get into each other's way.
        name: {**target, "exclusive": True, "parameters": dict(values)}
        for name, values in named.items()
    }
    repeat = {
        **given.get("repeat", {}),
        "min": repetitions,
        "max": repetitions,
        "stop": {"metric": []},
    }
    values = {
        **given,
        "targets": targets,
        "workloads": {question.workload: given["workloads"][question.workload]},
        "factors": {
            "target": list(targets),
            "workload": [question.workload],
            "clients": [question.clients],
        },
        "repeat": repeat,
        "reference": next(iter(targets)),
        "probes": {"enabled": False},
        "energy": {**given.get("energy", {}), "weight": question.weight},
    }
    return from_values(values)


def search(
    question: Question,
    directory: Path,
    measure: Measure,
    *,
    trials: int,
    repetitions: int,
    is_random: bool,
    tell: Callable[[str], None],
) -> list[Candidate]:
    """Measures so many candidates, by optuna's TPE or at random; the defaults come first."""
    # Not at the top: it takes a second to load, and only tuning needs it.
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    seed = question.experiment.seed
    sampler = (
        optuna.samplers.RandomSampler(seed=seed)
        if is_random
        else optuna.samplers.TPESampler(seed=seed, n_startup_trials=max(3, trials // 4))
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.enqueue_trial(dict(question.defaults))
    found: list[Candidate] = []
    cause = "there were no candidates"
    for number in range(trials):
        trial = study.ask()
        values = {
            one.name: trial.suggest_categorical(one.name, list(one.values))
            for one in question.tunables
        }
        known = next((one for one in found if one.values == values), None)
        if known is None:
            experiment = candidate_experiment(question, values, repetitions)
            summary = measure(experiment, directory / f"{number + 1:03d}")
            try:
                known = Candidate(values, score(summary, question.metric, weight=question.weight))
            except LabError as error:
                # Values that the target does not take are an answer, too.
                cause = str(error)
                tell(f"{values}: {error}")
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
                continue
            found.append(known)
            tell(f"{number + 1} of {trials}: {values} {known.score:.6g}")
        study.tell(trial, known.score)
    if not found:
        raise LabError(f"cannot tune: no candidate could be measured; the last one: {cause}")
    return found


def best(found: Sequence[Candidate], seed: int) -> Candidate:
    """The candidate with the highest score; among equals one at random, by the seed."""
    top = max(one.score for one in found)
    return random.Random(seed).choice([one for one in found if one.score == top])
