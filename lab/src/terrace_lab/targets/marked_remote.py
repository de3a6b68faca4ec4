# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Marks, clears and removes one directory of a host. Runs there alone, with Python 3.9 or later.

Everything is done through descriptors of directories that were opened without following links, so
that whoever swaps a directory for a link meanwhile gains nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import sys

MARKER = ".terrace-lab"
MARKER_BYTES_MAX = 4096
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Refused(Exception):
    """Why nothing was done."""


def mark(path: str, run_id: str) -> None:
    check_path(path)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o755)
    with opened(path) as directory:
        names = os.listdir(directory)
        if MARKER in names:
            check_marker(directory, run_id)
            return
        if names:
            raise Refused(f"it is not empty and carries no marker entries={len(names)}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(MARKER, flags, 0o644, dir_fd=directory), "w") as file:
            json.dump({"run_id": run_id}, file)
            file.write("\n")


def clear(path: str, run_id: str) -> None:
    check_path(path)
    with opened(path) as directory:
        check_marker(directory, run_id)
        check_mounts(path)
        empty(directory, os.fstat(directory).st_dev, {MARKER})


def remove(path: str, run_id: str) -> None:
    if not os.path.lexists(path):
        return
    clear(path, run_id)
    parent, name = os.path.split(path)
    with opened(parent) as above:
        # The marker goes last: a directory that could not be emptied stays the lab's.
        with opened(path) as directory:
            check_marker(directory, run_id)
            os.unlink(MARKER, dir_fd=directory)
        os.rmdir(name, dir_fd=above)


def check_path(path: str) -> None:
    if path != os.path.normpath(path) or not os.path.isabs(path) or path == "/":
        raise Refused("it must be an absolute path without `.` and `..`, and not the root")
    real = os.path.realpath(path)
    if real != path:
        raise Refused(f"it is reached through a link; give the directory itself real={real}")


def check_marker(directory: int, run_id: str) -> None:
    """Refuses where the marker is not that of this run, in a plain file."""
    try:
        descriptor = os.open(MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except FileNotFoundError:
        raise Refused("it carries no marker of the lab") from None
    except OSError as error:
        raise Refused(f"its marker cannot be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Refused("its marker is no plain file")
        try:
            found = json.loads(file.read(MARKER_BYTES_MAX))["run_id"]
        except (ValueError, KeyError, TypeError):
            raise Refused("its marker is not one of the lab") from None
    if found != run_id:
        raise Refused(f"it belongs to another run run_id={found}")


def check_mounts(path: str) -> None:
    """Refuses where something is mounted below: that would be emptied as well."""
    with open("/proc/self/mountinfo", "rb") as file:
        points = [line.split(b" ")[4] for line in file]
    for quoted in points:
        # The kernel writes blanks and such as a backslash with three octal digits.
        unquoted = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), quoted)
        point = os.fsdecode(unquoted)
        if point.startswith(path + "/"):
            raise Refused(f"another file system is mounted below mount={point}")


@contextlib.contextmanager
def opened(path: str, above: int | None = None):  # type: ignore[no-untyped-def]
    descriptor = os.open(path, _DIRECTORY, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def empty(directory: int, device: int, keep: set[str]) -> None:
    """Removes what is in a directory, on its own file system only."""
    with os.scandir(directory) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in names:
        if name in keep:
            continue
        if not is_directory:
            os.unlink(name, dir_fd=directory)
            continue
        with opened(name, directory) as below:
            if os.fstat(below).st_dev != device:
                raise Refused(f"another file system is below name={name}")
            empty(below, device, set())
        os.rmdir(name, dir_fd=directory)


def main(verb: str, path: str, run_id: str) -> int:
    try:
        {"mark": mark, "clear": clear, "remove": remove}[verb](path, run_id)
    except Refused as refused:
        print(json.dumps({"reason": str(refused)}))
        return 1
    except OSError as error:
        print(json.dumps({"reason": f"{error.strerror} name={error.filename}"}))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
