#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs a tutorial as its reader would, in an empty directory.

Fenced blocks of the page are taken in order: ```LANGUAGE file=NAME is written to NAME, and ```sh
is run. All sh blocks share one shell, which stops at the first command that fails; TERRACE_SOURCE
is this repository. `terrace` has to be on the PATH.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIME_S_MAX = 300


def blocks(page: str):
    """Yields (line number, info string, text) of every fenced block."""
    info, start, lines = None, 0, []
    for number, line in enumerate(page.splitlines(), 1):
        if not line.startswith("```"):
            if info is not None:
                lines.append(line)
        elif info is None:
            info, start, lines = line[3:].strip(), number, []
        else:
            yield start, info, "\n".join(lines) + "\n"
            info = None
    if info is not None:
        sys.exit(f"the block of line {start} has no end")


def script(page: str, name: str) -> str:
    """The page as one shell script; files are quoted into it, so that order is kept."""
    # Background jobs keep their numbers (kill %1) only with job control.
    parts = ["set -euo pipefail", "set -m", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for line, info, text in blocks(page):
        language, _, rest = info.partition(" ")
        if rest.startswith("file="):
            path = rest.removeprefix("file=")
            parts.append(f"mkdir -p {shlex.quote(os.path.dirname(path) or '.')}")
            parts.append(f"printf %s {shlex.quote(text)} > {shlex.quote(path)}")
        elif language == "sh":
            parts.append(f"echo '== {name}:{line}'")
            parts.append(text)
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path, help="the Markdown file")
    arguments = parser.parse_args()
    if shutil.which("terrace") is None:
        print("run-tutorial: `terrace` is not on the PATH; build it and add its directory")
        return 2
    page = arguments.page.read_text(encoding="utf-8")
    environment = dict(os.environ, TERRACE_SOURCE=str(ROOT))
    environment.pop("TERRACE_STORE", None)
    with tempfile.TemporaryDirectory(prefix="terrace-tutorial-") as directory:
        with subprocess.Popen(
            ["bash", "-c", script(page, arguments.page.name)], cwd=directory, env=environment
        ) as shell:
            try:
                status = shell.wait(timeout=TIME_S_MAX)
            except subprocess.TimeoutExpired:
                shell.terminate()
                print(f"run-tutorial: not finished after {TIME_S_MAX} s")
                return 1
    print(f"run-tutorial: {arguments.page}: {'passed' if status == 0 else 'failed'}")
    return 0 if status == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
