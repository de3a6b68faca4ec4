# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Hosts of an experiment, each through its agent: commands, clocks and counters."""

from __future__ import annotations

import base64
import contextlib
import importlib.resources
import itertools
import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from terrace_lab.errors import HostLost, LabError
from terrace_lab.records import Stamp

ANSWER_SECONDS_MAX = 60.0
"""For whatever is no command."""
GRACE_SECONDS = 30.0
"""Beyond the time limit of a command, until the agent that owes its end counts as lost."""
STOP_SECONDS_MAX = 10.0

_SSH = (
    "ssh",
    "-T",
    "-oBatchMode=yes",
    "-oConnectTimeout=10",
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=3",
)


@dataclass(frozen=True, slots=True)
class Command:
    """What to run on a host."""

    argv: Sequence[str]
    directory: str | None = None
    environment: Mapping[str, str] | None = None
    """Added to that of the agent."""
    stdin: bytes = b""
    timeout_s: float = 3600.0
    """After which the whole process group is ended and the command has failed."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    argv: Sequence[str]
    code: int
    """Exit code, or minus the number of the signal."""
    stdout: str
    stderr: str
    begin: Stamp
    """Just before it was started, by the clocks of its host."""
    end: Stamp
    """When its end was seen there."""
    user_s: float
    system_s: float
    """CPU time of the process and its children that were waited for."""
    is_timed_out: bool


class Host(Protocol):
    """One machine. Raises `HostLost` when its agent is gone."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str:
        """As other hosts of the experiment would reach it; `localhost` for this machine."""
        ...

    def run(self, command: Command) -> Ended:
        """Runs a command to its end."""
        ...

    def has(self, program: str) -> bool:
        """Whether a program is on the PATH, `/usr/sbin` and `/sbin` included."""
        ...

    def write_file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Makes or replaces a small file."""
        ...

    def counters(self) -> dict[str, Any]:
        """CPU, memory, disks and network of the host, as in docs/reference/lab-record.md."""
        ...


def run_together(commands: Sequence[tuple[Host, Command]]) -> list[Ended]:
    """Runs commands side by side and returns how each ended, in the same order.

    Those of one host start right after each other, those of several within a round trip. Where one
    cannot be started or its host is lost the others still end, then the first error is raised.
    """
    ended: list[Ended | None] = [None] * len(commands)
    errors: list[BaseException] = []

    def run(index: int, host: Host, command: Command) -> None:
        try:
            ended[index] = host.run(command)
        except BaseException as error:  # noqa: BLE001 - raised by who waits for all
            errors.append(error)

    threads = [
        threading.Thread(target=run, args=(index, host, command))
        for index, (host, command) in enumerate(commands)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [one for one in ended if one is not None]


def memory_bytes(host: Host) -> int:
    """Main memory of a host."""
    return int(host.counters()["memory"]["memtotal_bytes"])


@dataclass(slots=True)
class _Waiting:
    """A request without its answer."""

    done: threading.Event = field(default_factory=threading.Event)
    answer: dict[str, Any] | None = None


class AgentHost:
    """A host through its agent, on this machine or over OpenSSH."""

    def __init__(
        self,
        name: str,
        ssh: str | None = None,
        *,
        address: str | None = None,
        python: str = "python3",
    ) -> None:
        """`ssh` is what `ssh` takes as destination; without it the host is this machine."""
        self._name = name
        self._ssh = ssh
        self._address = address or (ssh.rpartition("@")[2] if ssh else "localhost")
        self._python = python if ssh else sys.executable
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, _Waiting] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._lost: str | None = None
        # Process groups that run, for who comes after a lost agent: group -> time of its start.
        self._groups: dict[int, int | None] = {}

    @property
    def name(self) -> str:
        return self._name

    @property
    def address(self) -> str:
        return self._address

    @property
    def is_local(self) -> bool:
        return self._ssh is None

    @property
    def groups(self) -> list[int]:
        """Process groups of commands that run now."""
        return list(self._groups)

    def connect(self) -> None:
        """Starts the agent; `HostLost` where it does not answer. Ends what a lost one had left."""
        self.close()
        source = importlib.resources.files("terrace_lab").joinpath("agent.py").read_bytes()
        # The agent reads itself from the pipe first, then requests.
        loader = (
            "import sys;"
            f"exec(compile(sys.stdin.buffer.read({len(source)}),'agent','exec'),"
            "{'__name__':'__main__'})"
        )
        argv = [self._python, "-u", "-c", loader]
        if self._ssh is not None:
            argv = [*_SSH, self._ssh, "exec " + shlex.join(argv)]
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None,
            # Ctrl-C is for the runner, which ends agents in its order.
            start_new_session=True,
        )
        self._lost = None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(source)
            self._process.stdin.flush()
        answers = self._process.stdout
        self._reader = threading.Thread(target=self._read, args=(answers,), daemon=True)
        self._reader.start()
        self._ask("clock")
        left, self._groups = self._groups, {}
        for group, started in left.items():
            self._ask("end", group=group, started=started)

    def close(self) -> None:
        """Ends the agent and what it runs."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._reader is not None:
            # Or it would tell the next connection that its agent has ended.
            self._reader.join(STOP_SECONDS_MAX)

    def run(self, command: Command) -> Ended:
        answer = self._ask(
            "run",
            command.timeout_s + GRACE_SECONDS,
            argv=list(command.argv),
            directory=command.directory,
            environment=dict(command.environment or {}),
            stdin=base64.b64encode(command.stdin).decode(),
            timeout_s=command.timeout_s,
        )
        return Ended(
            argv=command.argv,
            code=answer["code"],
            stdout=answer["stdout"],
            stderr=answer["stderr"],
            begin=Stamp(**answer["begin"]),
            end=Stamp(**answer["end"]),
            user_s=answer["user_s"],
            system_s=answer["system_s"],
            is_timed_out=answer["is_timed_out"],
        )

    def has(self, program: str) -> bool:
        return bool(self._ask("has", program=program))

    def write_file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        text = base64.b64encode(content).decode()
        self._ask("write_file", path=path, content=text, mode=mode)

    def counters(self) -> dict[str, Any]:
        counters: dict[str, Any] = self._ask("counters")
        return counters

    def environment(self) -> dict[str, Any]:
        """What the host is; docs/reference/lab-record.md has the fields."""
        environment: dict[str, Any] = self._ask("environment")
        return environment

    def series_begin(self, period_s: float) -> None:
        """Begins to sample what the host does; docs/reference/lab-record.md has the fields."""
        self._ask("series_begin", period_s=period_s)

    def series_take(self) -> list[dict[str, Any]]:
        """The samples since the last call."""
        samples: list[dict[str, Any]] = self._ask("series_take")
        return samples

    def series_end(self) -> None:
        """Ends sampling; nothing where there is none."""
        self._ask("series_end")

    def clock(self) -> Stamp:
        """Both clocks of the host, at some moment between the call and its return."""
        return Stamp(**self._ask("clock"))

    def end_commands(self) -> None:
        """Ends every command that runs there now, with all its children."""
        self._ask("end_all")

    def sync(self) -> None:
        """Writes all dirty data of the host to its devices."""
        self._ask("sync", 3600.0)

    def drop_caches(self) -> None:
        """Empties the page cache and those of names, after a sync; needs root there."""
        self._ask("drop_caches", 3600.0)

    def _ask(self, what: str, seconds: float = ANSWER_SECONDS_MAX, /, **arguments: Any) -> Any:
        number = next(self._numbers)
        waiting = _Waiting()
        request = json.dumps({"id": number, "do": what, "with": arguments}) + "\n"
        with self._lock:
            process = self._process
            if process is None or self._lost is not None:
                raise self._error(self._lost or "it is not connected")
            assert process.stdin is not None
            self._waiting[number] = waiting
            try:
                process.stdin.write(request.encode())
                process.stdin.flush()
            except OSError as error:
                raise self._error(str(error)) from error
        if not waiting.done.wait(seconds):
            self._waiting.pop(number, None)
            raise self._error(f"no answer in {seconds:.0f} s to {what}")
        if waiting.answer is None:
            raise self._error(self._lost or "it ended")
        if "error" in waiting.answer:
            raise LabError(f"cannot {what} on host {self._name}: {waiting.answer['error']}")
        return waiting.answer["ok"]

    def _error(self, reason: str) -> HostLost:
        return HostLost(f"cannot reach host {self._name}: {reason}")

    def _read(self, answers: IO[bytes]) -> None:
        """Hands answers to who waits for them, until there are no more."""
        started: dict[int, int] = {}
        for line in answers:
            try:
                answer = json.loads(line)
            except ValueError:
                # A login script that prints would garble the protocol.
                self._lost = f"its answer is none: {line[:80]!r}"
                break
            number = answer["id"]
            if "started" in answer:
                group = answer["started"]
                started[number] = group
                self._groups[group] = answer["at"]
                continue
            self._groups.pop(started.pop(number, 0), None)
            waiting = self._waiting.pop(number, None)
            if waiting is not None:
                waiting.answer = answer
                waiting.done.set()
        with self._lock:
            self._lost = self._lost or "its agent ended"
            for waiting in self._waiting.values():
                waiting.done.set()
            self._waiting.clear()
