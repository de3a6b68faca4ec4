# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Programs of a workload: started on all clients, their outputs kept, their failures told."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from terrace_lab.errors import HostLost, LabError, PhaseFailed
from terrace_lab.hosts import Command, Ended, run_together
from terrace_lab.settings import Settings
from terrace_lab.workloads.base import Client, Context

REASON_CHARACTERS_MAX = 600


def launch(context: Context, phase: str, commands: Sequence[Command]) -> list[Ended]:
    """Runs one command on each client side by side, and returns how each ended.

    Outputs go to the record as `PHASE.CLIENT.stdout` and `.stderr`. Raises `PhaseFailed` where one
    did not end with 0.
    """
    pairs = zip(context.clients, commands, strict=True)
    try:
        ended = run_together([(client.host, command) for client, command in pairs])
    except HostLost:
        raise
    except LabError as error:
        raise PhaseFailed(f"cannot run {phase}: {error}") from error
    context.record.mkdir(parents=True, exist_ok=True)
    for client, one in zip(context.clients, ended, strict=True):
        for kind, text in (("stdout", one.stdout), ("stderr", one.stderr)):
            path = context.record / f"{phase}.{client.index}.{kind}"
            path.write_text(text, encoding="utf-8", errors="replace")
    for client, one in zip(context.clients, ended, strict=True):
        if one.code != 0:
            raise PhaseFailed(_failure(phase, client, one))
    return ended


def on_client(client: Client, argv: Sequence[str], verb: str, stdin: bytes = b"") -> str:
    """Runs one command that is not measured and returns its output; `PhaseFailed` if it fails."""
    ended = client.host.run(Command(argv, stdin=stdin))
    if ended.code != 0:
        raise PhaseFailed(_failure(verb, client, ended))
    return ended.stdout


def parameters_table(settings: Settings) -> tuple[str, dict[str, Any]]:
    """The table `params` of a workload, and where it is."""
    values = settings.raw("params", {})
    if not isinstance(values, dict):
        raise settings.error("params", f"must be a table, not {values!r}")
    return f"{settings.where}.params", values


def _failure(verb: str, client: Client, ended: Ended) -> str:
    how = "took too long" if ended.is_timed_out else f"exit code {ended.code}"
    if ended.code < 0 and not ended.is_timed_out:
        how = f"ended by signal {-ended.code}"
    said = ended.stderr.strip() or ended.stdout.strip()
    if len(said) > REASON_CHARACTERS_MAX:
        # Most tell their reason last; what runs under mpirun tells it first.
        half = REASON_CHARACTERS_MAX // 2
        said = f"{said[:half]} … {said[-half:]}"
    command = shlex.join(ended.argv[:3])
    return (
        f"cannot {verb}: {how} client={client.index} host={client.host.name} "
        f"command={command!r}: {said or 'it said nothing'}"
    )
