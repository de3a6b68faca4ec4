# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Takes a run from where it is to its end.

Whatever has to be known to go on is in the journal; this process may be killed at any time.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from terrace_lab.errors import HostLost, LabError, PhaseFailed
from terrace_lab.experiment import client_bytes, digest
from terrace_lab.hosts import AgentHost, Command, memory_bytes
from terrace_lab.journal import (
    STOP_CAP,
    STOP_MET,
    STOP_NOTHING,
    Journal,
    Past,
    Repetition,
    State,
    locked,
    read_past,
)
from terrace_lab.meters.lag import schedule_seconds
from terrace_lab.numbers.energy import is_for_want_of_samples
from terrace_lab.records import now, write_json
from terrace_lab.runner import gate, lagging, probes, repetition
from terrace_lab.runner.parts import Parts
from terrace_lab.runner.place import Place
from terrace_lab.runner.watch import Watch
from terrace_lab.summary import Cell, Summary
from terrace_lab.targets.base import Target
from terrace_lab.targets.marked import clear_marked, make_below, make_marked, remove_marked
from terrace_lab.trials import Trial
from terrace_lab.workloads.base import Client, Context, Workload

METER_SECONDS_MAX = 30.0
"""Until every required meter has delivered its first frame."""
GUARD_PERIODS = 3
LOSSES_MAX = 10
"""Hosts lost and found again in one session; more, and somebody has to look."""
FAILURES_MAX = 3
"""Failed repetitions of one trial in a row, after which it is given up."""

Tell = Callable[[str], None]


class GapAbort(LabError):
    """A meter had a gap, and the experiment says to end then."""


@dataclass(slots=True)
class Options:
    """How a run is carried out, beside what the experiment says."""

    accept_drift: bool = False
    tell: Tell = print
    listener: Callable[[dict[str, Any]], None] | None = None


@dataclass(slots=True)
class _Up:
    """A target that is set up."""

    target: Target
    parameters: Mapping[str, Any]
    marked: dict[str, PurePosixPath] = field(default_factory=dict)
    """Directory by client host."""
    is_whole: bool = False
    """Its set-up came to its end, so that what is measured there is the target."""


class Runner:
    """One session of a run."""

    def __init__(self, place: Place, options: Options) -> None:
        self._place = place
        self._options = options
        self._experiment = place.experiment()
        about = place.about()
        self._run_id: str = about["run_id"]
        if about["experiment_hash"] != self._experiment.hash:
            raise LabError(
                "cannot resume: experiment.toml is not what the run began with; begin a new run"
                f" for another experiment run={place.path}"
            )
        self._past = read_past(place.journal) if place.journal.exists() else Past()
        self._journal = Journal(place.journal, options.listener)
        self._hosts = {
            spec.name: AgentHost(spec.name, spec.ssh, address=spec.address, python=spec.python)
            for spec in self._experiment.hosts.values()
        }
        self._watch = Watch(place, self._experiment.meters, self._experiment.hosts, self._journal)
        self._parts = Parts(self._experiment)
        self._up: dict[str, _Up] = {}
        self._losses = 0
        # Targets that cannot be set up or torn down in this session, and why.
        self._broken: dict[str, str] = {}

    def go(self) -> None:
        """Carries on to the end of the plan; what is raised leaves the run to be resumed."""
        self._begin()
        try:
            try:
                self._prepare()
                self._blocks()
                self._close()
            finally:
                self._tear_down_all()
        except BaseException as error:
            self._journal.write("interrupted", reason=str(error) or type(error).__name__)
            raise
        finally:
            self._watch.stop()
            for host in self._hosts.values():
                host.close()
            self._journal.close()

    def _tell(self, text: str) -> None:
        self._options.tell(text)

    # -- begin and end of a session ------------------------------------------------------------

    def _begin(self) -> None:
        if self._past.repetitions or self._past.resumed or self._past.is_probed:
            self._journal.write("resume")
        else:
            self._journal.write("begin", run_id=self._run_id)
        for one in self._past.repetitions:
            if not one.state.is_final:
                one.state = State.VOID
                reason = "the runner ended meanwhile"
                self._journal.repetition(one.trial, one.number, one.block, State.VOID, reason)

    def _prepare(self) -> None:
        for host in self._hosts.values():
            host.connect()
        self._check()
        self._environments()
        self._describe_workloads()
        self._watch.start()
        self._wait_for_meters()
        for name, parameters in self._past.targets_up.items():
            # A killed session has left it up; as one of this session it is torn down.
            with contextlib.suppress(LabError):
                self._set_up(name, parameters)
            self._leave(name)
        if not self._past.is_probed and self._experiment.probes.enabled:
            self._tell("measuring the components")
            self._probe()
        self._check_scope()
        self._lags()
        if "opening" not in self._past.idle:
            self._idle("opening")

    def _check(self) -> None:
        """Refuses what is missing; targets also learn here which hosts there are."""
        found = self._parts.problems(self._hosts)
        fatal = [f"{one.where}: {one.text}" for one in found if one.is_fatal]
        if fatal:
            raise LabError(f"cannot run: {'; '.join(fatal)}")

    def _environments(self) -> None:
        """Writes what the hosts are, or compares it with what they were."""
        machines: dict[str, str] = {}
        for name, host in self._hosts.items():
            environment = host.environment()
            boot = str(environment["boot_id"])
            if boot in machines and not self._past.repetitions:
                first = machines[boot]
                text = f"hosts {first} and {name} are one machine, whose power counts for both"
                self._journal.write("note", text=text)
                self._tell(text)
            machines.setdefault(boot, name)
            path = self._place.environment(name)
            if not path.exists():
                write_json(path, environment)
                continue
            drift = environment_drift(path, environment)
            if not drift:
                continue
            text = f"host {name} is not what it was: {', '.join(drift)}"
            if not self._options.accept_drift:
                raise LabError(f"cannot resume: {text}; `--accept-drift` goes on and records it")
            self._journal.write("drift_accepted", host=name, what=drift)
            self._tell(text)

    def _required(self) -> list[str]:
        return [name for name, one in self._experiment.meters.items() if one.is_required]

    def _describe_workloads(self) -> None:
        clients = {host.name: host for host in self._client_hosts()}
        for name, spec in self._experiment.workloads.items():
            workload = self._parts.workloads[name]
            # Programs that it may use in place of others depend on the hosts.
            workload.check(clients)
            about = {"kind": spec.kind, **workload.describe()}
            write_json(
                self._place.path / "workloads" / f"{name}.json",
                {"hash": digest(about), **about},
            )

    def _wait_for_meters(self) -> None:
        deadline = time.monotonic() + METER_SECONDS_MAX
        while (problem := self._watch.problem(self._required())) is not None:
            if time.monotonic() > deadline:
                raise LabError(f"cannot begin: {problem}")
            time.sleep(0.1)

    def _probe(self) -> None:
        probes.measure(self._experiment, self._hosts, self._place.probes, self._tell)
        self._journal.write("probed")
        self._past.is_probed = True

    def _check_scope(self) -> None:
        """Refuses to measure for an energy that no meter has a part of."""
        infos = [self._watch.info(name) for name in self._experiment.meters]
        known = {one["scope"] for info in infos if info for one in info["channels"]}
        for scope in self._experiment.energy.scope if infos else ():
            if scope not in known:
                raise LabError(
                    f"cannot run: energy.scope: no meter has {scope!r}; there are"
                    f" {', '.join(sorted(known)) or 'none'}"
                )

    def _lags(self) -> None:
        """Finds how late meters are, each once in a run."""
        for name in self._experiment.meters:
            asked = self._experiment.energy.lag
            info = self._watch.info(name)
            if name in self._past.lags or info is None or asked == "skip":
                continue
            if asked == "auto" and info["is_modelled"]:
                continue
            seconds = schedule_seconds(float(info["period_s"]))
            self._tell(f"finding the lag of meter {name}, {seconds:.0f} s")
            self._open_gate()
            hosts = list(self._hosts.values())
            found = lagging.measure(self._place.path, name, float(info["period_s"]), hosts)
            fields = {} if found is None else {"lag_s": found.lag.lag_s}
            self._journal.write("lag", meter=name, **fields)
            self._past.lags.add(name)

    def _idle(self, name: str) -> None:
        spec = self._experiment.energy
        if not self._experiment.meters or spec.idle_s <= 0:
            return
        self._tell(f"measuring idle power for {spec.idle_s:g} s")
        time.sleep(spec.settle_s)
        self._open_gate()
        begin = now()
        time.sleep(spec.idle_s)
        end = now()
        write_json(
            self._place.idle(name),
            {"name": name, "begin": begin._asdict(), "end": end._asdict()},
        )
        self._journal.write("idle", name=name)
        self._past.idle.add(name)

    def _close(self) -> None:
        self._tear_down_all()
        if "closing" not in self._past.idle:
            self._idle("closing")
        self._journal.write("end")

    # -- the plan ------------------------------------------------------------------------------

    def _blocks(self) -> None:
        repeat = self._experiment.repeat
        groups: dict[str, list[Trial]] = {}
        for trial in self._experiment.trials:
            groups.setdefault(trial.group, []).append(trial)
        for block in range(repeat.most):
            active = [name for name in groups if name not in self._past.stopped]
            if not active:
                return
            self._journal.write("block", block=block, groups=active)
            wanted = [trial for name in active for trial in groups[name]]
            self._block(wanted, block)
            summary = self._summary()
            while self._void_uncovered(summary, block):
                self._block(wanted, block)
                summary = self._summary()
            self._decide({name: groups[name] for name in active}, summary, block)

    def _block(self, wanted: Sequence[Trial], block: int) -> None:
        """Makes what a block lacks, all of one target together: it is set up once."""
        for name in self._shuffled(wanted, block):
            for trial in wanted:
                if trial.target == name:
                    self._trial(trial, block)
            self._leave(name)

    def _summary(self) -> Summary:
        """What the run has come to so far."""
        # Not at the top: SciPy takes a second to load, in which a run has begun already.
        from terrace_lab.analyse import summarise

        return summarise(self._place.path)

    def _void_uncovered(self, summary: Summary, block: int) -> bool:
        """Voids energies that samples do not cover without a gap that the meter knew of.

        Whether there was any: values that were none, or samples that came late.
        """
        if self._experiment.energy.on_gap != "repeat" or not self._experiment.meters:
            return False
        known = {(one.trial, one.number): one for one in self._past.repetitions}
        found = False
        for row in summary.repetitions:
            if row.block != block or row.energy_void is None:
                continue
            one = known.get((row.trial, row.repetition))
            if (
                one is None
                or one.energy_void
                or not is_for_want_of_samples(row.energy_void, self._required())
            ):
                continue
            self._void_energy(one, row.energy_void)
            found = True
        return found

    def _shuffled(self, trials: Sequence[Trial], block: int) -> list[str]:
        """The targets of a block in an order that the seed gives, the same after a resume."""
        names = list(dict.fromkeys(trial.target for trial in trials))
        if self._experiment.repeat.order == "randomized-blocks":
            random.Random(digest([self._experiment.seed, block])).shuffle(names)
        return names

    def _decide(self, groups: Mapping[str, Sequence[Trial]], summary: Summary, block: int) -> None:
        """Ends groups whose figures are known well enough, or never will be."""
        repeat = self._experiment.repeat
        if block + 1 < repeat.least:
            return
        cells: dict[str, list[Cell]] = {}
        for cell in summary.cells:
            if cell.role == "work":
                cells.setdefault(cell.trial, []).append(cell)
        for name, trials in groups.items():
            # What has no result by now, or cannot have one, is not waited for.
            wanted = [one for one in trials if one.name in cells and one.target not in self._broken]
            if not wanted:
                reason = STOP_NOTHING
            elif not repeat.metrics:
                reason = "the number of repetitions is fixed"
            elif all(self._is_known(cell) for one in wanted for cell in cells[one.name]):
                reason = STOP_MET
            elif block + 1 >= repeat.most:
                reason = STOP_CAP
            else:
                continue
            self._journal.write("stop", group=name, reason=reason)
            self._past.stopped[name] = reason
            self._tell(f"{name}: {reason} after {block + 1} blocks")

    def _is_known(self, cell: Cell) -> bool:
        """Whether the figures that the experiment asks for are known to the width it asks for."""
        has_energy = cell.energy is not None or "energy" not in self._experiment.repeat.metrics
        return has_energy and cell.stop == STOP_MET

    def _trial(self, trial: Trial, block: int) -> None:
        """Makes the repetition of a trial that a block needs, again where that is called for."""
        energy = self._experiment.energy
        while trial.target not in self._broken:
            past = self._past.of(trial.name, block)
            counted = [one for one in past if one.counts]
            if any(one.energy_void is None for one in counted):
                return
            if counted and (energy.on_gap != "repeat" or len(counted) > energy.repeats_max):
                return
            failed = [one for one in past if one.state is State.FAILED]
            if len(failed) >= FAILURES_MAX:
                return
            if self._is_given_up(trial):
                return
            self._repetition(trial, block)

    def _is_given_up(self, trial: Trial) -> bool:
        """Whether a trial has done nothing but fail."""
        past = self._past.of(trial.name)
        tried = [one for one in past if one.state in (State.DONE, State.FAILED)]
        return len(tried) >= FAILURES_MAX and not any(one.counts for one in tried)

    # -- one repetition ------------------------------------------------------------------------

    def _repetition(self, trial: Trial, block: int) -> None:
        number = self._next_number(trial)
        one = Repetition(trial.name, number, block, State.ARMED)
        self._past.repetitions.append(one)
        self._tell(f"{trial.name} repetition {number}, block {block + 1}")
        try:
            up = self._set_up(trial.target, self._parts.parameters(trial))
            self._state(one, State.ARMED)
            setting = self._setting(trial, up)
            workload = self._parts.workload(trial)
            self._warm_up(trial, up, workload)
            context = self._context(trial, up, self._place.repetition(trial.name, number))
            self._check_room(trial, up, context)
            self._state(one, State.RUNNING)
            outcome = repetition.run(setting, workload, context)
            result = {"state": State.DONE.value, "notes": outcome.notes, "block": block}
            write_json(context.record / "result.json", result)
            self._state(one, State.DONE)
            self._note_energy(one, outcome)
        except PhaseFailed as error:
            self._fail(one, str(error))
        except HostLost as error:
            self._state(one, State.VOID, str(error))
            self._losses += 1
            if self._losses > LOSSES_MAX:
                raise
            self._reconnect()
        except gate.GateClosed as error:
            self._state(one, State.VOID, str(error))
            raise
        except GapAbort:
            raise
        except KeyboardInterrupt:
            self._state(one, State.VOID, "interrupted")
            raise
        except LabError as error:
            self._fail(one, str(error))
        finally:
            # Nothing runs any more unless this was interrupted; then it would keep a mount busy.
            self._end_commands()
            self._clear(trial)

    def _next_number(self, trial: Trial) -> int:
        """A number that neither the journal nor a directory has; a damaged one may lack some."""
        taken = [one.number for one in self._past.of(trial.name)]
        for directory in self._place.repetition(trial.name, 0).parent.glob("rep-*"):
            if directory.name[4:].isdecimal():
                taken.append(int(directory.name[4:]))
        return max(taken, default=0) + 1

    def _state(self, one: Repetition, state: State, reason: str | None = None) -> None:
        one.state, one.reason = state, reason
        self._journal.repetition(one.trial, one.number, one.block, state, reason)

    def _fail(self, one: Repetition, reason: str) -> None:
        self._tell(f"{one.trial} repetition {one.number} failed: {reason}")
        self._state(one, State.FAILED, reason)

    def _end_commands(self) -> None:
        for host in self._hosts.values():
            # One that is lost has ended them, or its successor does.
            with contextlib.suppress(HostLost):
                host.end_commands()

    def _reconnect(self) -> None:
        """Starts agents again; they end what the lost ones had left."""
        for host in self._hosts.values():
            host.connect()

    def _clients(self, trial: Trial) -> list[AgentHost]:
        """The host of each client: as many hosts as there are, in turn."""
        hosts = [self._hosts[spec.name] for spec in self._experiment.placed(trial)]
        return [hosts[index % len(hosts)] for index in range(trial.clients)]

    def _set_up(self, name: str, parameters: Mapping[str, Any]) -> _Up:
        """Brings a target up, with these values of its tunables."""
        target = self._parts.targets[name]
        up = self._up.get(name)
        if up is not None and (up.parameters != parameters or not up.is_whole):
            self._tear_down(name)
            up = None
        if up is None:
            up = _Up(target, parameters)
            self._journal.write("setup", target=name, parameters=dict(parameters))
            # Before, so that it is torn down where the set-up is interrupted.
            self._up[name] = up
            try:
                target.setup(self._client_hosts(), parameters)
                self._describe_target(name, up)
                up.is_whole = True
            except HostLost:
                raise
            except LabError as error:
                self._break(name, error)
                raise
        for host in self._client_hosts():
            if host.name in up.marked:
                continue
            base = target.path(host)
            if base is None:
                # A store has no directory; what its clients need beside it lies here.
                base = PurePosixPath("/var/tmp")
            directory = base / f"terrace-lab-{self._run_id}"
            make_marked(host, directory, self._run_id)
            up.marked[host.name] = directory
            # What a killed session has left.
            clear_marked(host, directory, self._run_id)
        return up

    def _describe_target(self, name: str, up: _Up) -> None:
        """Writes down what the target says about itself, for the analysis."""
        capacity = up.target.capacity(self._client_hosts())
        write_json(
            self._place.path / "targets" / f"{name}.json",
            {
                "kind": self._experiment.targets[name].kind,
                "servers": list(up.target.servers),
                "raw_bytes": capacity.raw_bytes,
                "usable_bytes": capacity.usable_bytes,
                "amplification": asdict(up.target.amplification()),
                "parameters": dict(up.parameters),
            },
        )

    def _client_hosts(self) -> list[AgentHost]:
        return [self._hosts[spec.name] for spec in self._experiment.clients]

    def _servers(self, target: Target) -> list[AgentHost]:
        return [self._hosts[name] for name in target.servers if name in self._hosts]

    def _context(self, trial: Trial, up: _Up, record: Path) -> Context:
        hosts = self._clients(trial)
        clients = []
        for index, host in enumerate(hosts):
            marked = up.marked[host.name]
            own, shared = make_below(host, marked, f"client-{index}", "shared")
            clients.append(Client(index, host, own, shared))
        spec = self._experiment.workloads[trial.workload]
        memory = min(memory_bytes(host) for host in hosts)
        servers = [memory_bytes(host) for host in self._servers(up.target)]
        return Context(
            clients=clients,
            record=record,
            seed=self._experiment.seed,
            url=up.target.url(),
            bytes_per_client=client_bytes(spec, trial.clients, memory, sum(servers) or memory),
        )

    def _setting(self, trial: Trial, up: _Up) -> repetition.Setting:
        clients = {host.name: host for host in self._clients(trial)}
        servers = {host.name: host for host in self._servers(up.target)}
        series = self._experiment.series
        return repetition.Setting(
            hosts={**clients, **servers},
            cold=self._experiment.repeat.cold,
            gate=self._experiment.gate,
            guard_s=self._guard_s(),
            series_s=series.period_s if series.enabled else 0.0,
            open_gate=self._open_gate,
            remount=lambda: up.target.remount(list(clients.values())),
            free_bytes=lambda: self._free_bytes(up),
        )

    def _guard_s(self) -> float:
        if not self._experiment.meters:
            return 0.0
        slowest = max(self._watch.period_s(name) for name in self._experiment.meters)
        return max(self._experiment.energy.guard_s, GUARD_PERIODS * slowest)

    def _free_bytes(self, up: _Up) -> int | None:
        """Room on the target as its first client sees it."""
        for name, directory in up.marked.items():
            if up.target.url() is not None:
                return None
            ended = self._hosts[name].run(
                Command(["stat", "-f", "-c", "%a %S", str(directory)], timeout_s=60)
            )
            if ended.code == 0:
                blocks, size = ended.stdout.split()
                return int(blocks) * int(size)
        return None

    def _check_room(self, trial: Trial, up: _Up, context: Context) -> None:
        wanted = self._parts.workload(trial).space_bytes(trial.clients, context.bytes_per_client)
        free = self._free_bytes(up)
        if free is not None and free < wanted * self._experiment.gate.free_factor:
            raise LabError(f"cannot begin: too little room needed={wanted} available={free}")

    def _warm_up(self, trial: Trial, up: _Up, workload: Workload) -> None:
        if trial.name in self._past.warmed or self._experiment.repeat.warmup == 0:
            return
        for _ in range(self._experiment.repeat.warmup):
            context = self._context(trial, up, self._place.warmup(trial.name))
            self._check_room(trial, up, context)
            context.record.mkdir(parents=True, exist_ok=True)
            self._open_gate()
            repetition.warm_up(workload, context)
            self._clear(trial)
        self._journal.write("warmup", trial=trial.name)
        self._past.warmed.add(trial.name)

    def _open_gate(self) -> None:
        def tell(problem: str) -> None:
            self._journal.write("wait", reason=problem)
            self._tell(f"waiting: {problem}")

        gate.wait_until_open(
            self._experiment.gate,
            list(self._hosts.values()),
            lambda: self._watch.problem(self._required()),
            tell,
        )

    def _note_energy(self, one: Repetition, outcome: repetition.Outcome) -> None:
        """Voids the energy of a repetition in which a meter had a gap, and does what is asked."""
        names = self._required()
        reason = self._watch.gap_since(outcome.begin_real_ns, names)
        if reason is None:
            return
        self._void_energy(one, reason)
        if self._experiment.energy.on_gap == "abort":
            raise GapAbort(f"cannot go on: {reason}, and energy.on_gap is abort")
        while self._experiment.energy.on_gap == "pause":
            if self._watch.problem(names) is None:
                return
            time.sleep(1)

    def _void_energy(self, one: Repetition, reason: str) -> None:
        one.energy_void = reason
        self._journal.write("energy_void", trial=one.trial, rep=one.number, reason=reason)
        self._tell(f"{one.trial} repetition {one.number}: no energy, {reason}")

    def _clear(self, trial: Trial) -> None:
        """Removes what a repetition has left on the target."""
        up = self._up.get(trial.target)
        if up is None:
            return
        try:
            for name, directory in up.marked.items():
                clear_marked(self._hosts[name], directory, self._run_id)
        except HostLost:
            self._reconnect()

    def _leave(self, name: str) -> None:
        """Ends a target that is not to cost the others of its block anything."""
        up = self._up.get(name)
        if up is not None and up.target.is_exclusive:
            try:
                self._tear_down(name)
            except LabError as error:
                self._break(name, error)

    def _break(self, name: str, error: LabError) -> None:
        """Goes on without a target; what it has so far counts."""
        self._broken[name] = str(error)
        self._journal.write("note", text=f"target {name} is left out from here: {error}")
        self._tell(f"target {name} is left out from here: {error}")

    def _tear_down(self, name: str) -> None:
        up = self._up.pop(name)
        error: LabError | None = None
        for host, directory in up.marked.items():
            try:
                remove_marked(self._hosts[host], directory, self._run_id)
            except LabError as found:
                # The target itself is torn down all the same.
                error = found
        up.target.teardown(self._client_hosts())
        if error is not None:
            raise error
        self._journal.write("teardown", target=name)

    def _tear_down_all(self) -> None:
        """Every target, also behind an error of one of them; the first of these is raised."""
        self._end_commands()
        errors: list[LabError] = []
        for name in list(self._up):
            try:
                self._tear_down(name)
            except LabError as error:
                errors.append(error)
                self._journal.write("note", text=f"teardown of {name}: {error}")
        if errors:
            raise errors[0]


def environment_drift(path: Path, environment: Mapping[str, Any]) -> list[str]:
    """What of a host is another than it was when the run began, of what figures depend on."""
    try:
        before = json.loads(path.read_text())
    except ValueError as error:
        raise LabError(f"cannot compare a host with what it was: {error} file={path}") from error
    keys = (
        "hostname kernel machine processor processors memory_bytes governor boost packages devices"
    )
    return [key for key in keys.split() if before.get(key) != environment.get(key)]


def run(place: Place, options: Options) -> None:
    """Carries a run on to its end, as the only runner of it."""
    with locked(place.path):
        Runner(place, options).go()
