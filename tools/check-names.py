#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Fails where a module has a name that says nothing and so collects everything."""

import subprocess
import sys
from pathlib import PurePosixPath

FORBIDDEN = {"util", "utils", "helper", "helpers", "common", "misc"}
SUFFIXES = {".rs", ".py", ".c", ".h"}


def main() -> int:
    command = ["git", "ls-files", "--full-name", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    sources = [PurePosixPath(name) for name in listed.split("\0") if name]
    sources = [path for path in sources if path.suffix in SUFFIXES]
    found = []
    for path in sources:
        # What integration tests share lies in tests/common, as cargo's book has it.
        names = {path.stem, *path.parts[:-1]}
        if "tests" not in path.parts and names & FORBIDDEN:
            found.append(path)
    for path in found:
        print(f"check-names: {path} is named after nothing; name it after what it does")
    if not found:
        print(f"check-names: {len(sources)} files are named after what they do")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
