# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the tables of an experiment become: its targets, and the workload of each trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from terrace_lab import targets, workloads
from terrace_lab.errors import LabError, SettingsError
from terrace_lab.experiment import Experiment, digest
from terrace_lab.hosts import AgentHost, Command
from terrace_lab.settings import Settings
from terrace_lab.targets.base import SERVERS, Target
from terrace_lab.trials import Trial
from terrace_lab.workloads.base import Problem, Workload


class Parts:
    """Targets by their names, and workloads with what differs from trial to trial.

    Making them raises `SettingsError` where a table, or a factor, has no such setting or value.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self.targets: dict[str, Target] = {
            name: targets.create(name, Settings(f"targets.{name}", spec.settings))
            for name, spec in experiment.targets.items()
        }
        # Trials that do the same work share one, as what it has prepared may last.
        made: dict[str, Workload] = {}
        self._of: dict[str, Workload] = {}
        for trial in experiment.trials:
            factors = _factors(trial, "workload.")
            key = digest([trial.workload, factors])
            if key not in made:
                table = experiment.workloads[trial.workload].settings
                made[key] = workloads.create_for(trial.workload, table, factors)
            self._of[trial.name] = made[key]
        self.workloads = {name: self._base(name) for name in experiment.workloads}
        """As their tables say, without what factors change."""

    def _base(self, name: str) -> Workload:
        try:
            return workloads.create_for(name, self._experiment.workloads[name].settings)
        except SettingsError:
            # It may be complete with its factors only.
            for trial in self._experiment.trials:
                if trial.workload == name:
                    return self._of[trial.name]
            raise

    def workload(self, trial: Trial) -> Workload:
        return self._of[trial.name]

    def parameters(self, trial: Trial) -> dict[str, Any]:
        """What the tunables of the trial's target are set to."""
        pinned = self._experiment.targets[trial.target].parameters
        found = {**pinned, **_factors(trial, "target.")}
        if SERVERS in trial.factors:
            found[SERVERS] = trial.factors[SERVERS]
        return found

    def problems(self, hosts: Mapping[str, AgentHost]) -> list[Problem]:
        """What would keep the experiment from running; targets learn here which hosts there are."""
        clients = {spec.name: hosts[spec.name] for spec in self._experiment.clients}
        # What no trial uses may be of other hosts; it is kept for another choice of targets.
        used = dict.fromkeys(trial.target for trial in self._experiment.trials)
        found = [one for name in used for one in self.targets[name].check(hosts)]
        for work in {id(one): one for one in self._of.values()}.values():
            found += work.check(clients)
        found += self._directories(clients) + self._pairs(clients)
        return list(dict.fromkeys(found))

    def _directories(self, clients: Mapping[str, AgentHost]) -> list[Problem]:
        found = []
        used = {trial.target for trial in self._experiment.trials}
        for name, spec in self._experiment.targets.items():
            if spec.kind == "path" and name in used:
                path = str(self.targets[name].path(next(iter(clients.values()))))
                found += [
                    Problem(f"targets.{name}.path", f"there is no directory {path} on {host.name}")
                    for host in clients.values()
                    if host.run(Command(["test", "-d", path])).code != 0
                ]
        return found

    def _pairs(self, clients: Mapping[str, AgentHost]) -> list[Problem]:
        """Trials that want of their target what it is not."""
        host = next(iter(clients.values()))
        found = []
        for trial in self._experiment.trials:
            target = self.targets[trial.target]
            if not self._experiment.placed(trial):
                text = f"no host has a role for placement {trial.factors['placement']}"
                found.append(Problem(trial.name, text))
            try:
                target.check_parameters(self.parameters(trial))
            except LabError as error:
                found.append(Problem(f"targets.{trial.target}", str(error)))
            if self.workload(trial).needs_files() and target.path(host) is None:
                text = f"target {trial.target} is a store without a mount, which has no files"
                found.append(Problem(trial.name, text))
        return found


def _factors(trial: Trial, prefix: str) -> dict[str, Any]:
    """Further factors that are settings of the target, or of the workload."""
    return {
        key.removeprefix(prefix): value
        for key, value in trial.factors.items()
        if key.startswith(prefix)
    }
