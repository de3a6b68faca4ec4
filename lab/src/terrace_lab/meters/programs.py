# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Programs that ask a device, each within its time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from terrace_lab.errors import LabError, MeterLost
from terrace_lab.hosts import AgentHost, Command

_OUTPUT_CHARS_MAX = 1 << 16


def run(
    argv: Sequence[str],
    timeout_s: float,
    *,
    host: AgentHost | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """What a program printed; MeterLost where it failed, hung or cannot be started."""
    environment = {"LC_ALL": "C", **(environment or {})}
    if host is not None:
        try:
            ended = host.run(Command(argv, environment=environment, timeout_s=timeout_s))
        except LabError as error:
            raise MeterLost(str(error)) from error
        code, stdout, stderr = ended.code, ended.stdout, ended.stderr
        if ended.is_timed_out:
            raise MeterLost(f"cannot ask a meter: {argv[0]} took more than {timeout_s:g} s")
    else:
        code, stdout, stderr = _run_here(argv, timeout_s, environment)
    if code != 0:
        said = (stderr.strip() or stdout.strip()).splitlines()
        reason = said[-1][:200] if said else "it said nothing"
        raise MeterLost(f"cannot ask a meter: {argv[0]}: {reason} code={code}")
    return stdout[:_OUTPUT_CHARS_MAX]


def _run_here(
    argv: Sequence[str], timeout_s: float, environment: Mapping[str, str]
) -> tuple[int, str, str]:
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
            text=True,
            errors="replace",
            # With what it starts itself, so that all of it can be ended.
            start_new_session=True,
        )
    except OSError as error:
        raise MeterLost(f"cannot ask a meter: {error}") from error
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise MeterLost(f"cannot ask a meter: {argv[0]} took more than {timeout_s:g} s") from None
    return process.returncode, stdout, stderr
