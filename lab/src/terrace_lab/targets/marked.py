# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Directories that the lab may work in: those that carry its marker.

Nothing is removed anywhere else. What is done on a host is `marked_remote.py`, sent there.
"""

from __future__ import annotations

import importlib.resources
import json
from pathlib import PurePosixPath

from terrace_lab.errors import LabError
from terrace_lab.hosts import Command, Host

MARKER = ".terrace-lab"
CLEAR_SECONDS_MAX = 3600.0


def make_marked(host: Host, path: PurePosixPath, run_id: str) -> None:
    """Marks a directory for a run; makes it where it is not there.

    It must be empty, or carry the marker of the same run. `LabError` otherwise.
    """
    _remotely(host, "mark", path, run_id)


def clear_marked(host: Host, path: PurePosixPath, run_id: str) -> None:
    """Removes all that is in a marked directory, and keeps it marked.

    Links are removed, not followed. Raises `LabError`, with nothing removed, where the directory
    does not carry the marker of this run, is reached through a link, or something is mounted below.
    """
    _remotely(host, "clear", path, run_id)


def remove_marked(host: Host, path: PurePosixPath, run_id: str) -> None:
    """As `clear_marked`, and the directory itself; nothing where it is gone already."""
    _remotely(host, "remove", path, run_id)


def make_below(host: Host, marked: PurePosixPath, *names: str) -> list[PurePosixPath]:
    """Makes directories in a marked one and returns them.

    Raises `LabError` where the marker is not there, as below a mount that is gone: what would be
    measured is something else.
    """
    paths = [marked / name for name in names]
    script = '[ -f "$0" ] || { echo "its marker is gone" >&2; exit 1; }; mkdir -p "$@"'
    argv = ["sh", "-c", script, str(marked / MARKER), *map(str, paths)]
    ended = host.run(Command(argv, timeout_s=60))
    if ended.code != 0:
        reason = ended.stderr.strip() or f"exit code {ended.code}"
        raise LabError(f"cannot make directories: {reason} path={marked} host={host.name}")
    return paths


def _remotely(host: Host, verb: str, path: PurePosixPath, run_id: str) -> None:
    source = importlib.resources.files("terrace_lab.targets").joinpath("marked_remote.py")
    argv = ["python3", "-IS", "-", verb, str(path), run_id]
    ended = host.run(Command(argv, stdin=source.read_bytes(), timeout_s=CLEAR_SECONDS_MAX))
    if ended.code == 0:
        return
    try:
        reason = json.loads(ended.stdout)["reason"]
    except (ValueError, KeyError, TypeError):
        late = "it took too long" if ended.is_timed_out else f"exit code {ended.code}"
        reason = ended.stderr.strip() or late
    raise LabError(f"cannot {verb} a directory: {reason} path={path} host={host.name}")
