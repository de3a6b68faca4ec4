#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Fails where a source file does not name its licence in the first two lines."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINE = "SPDX-License-Identifier: Apache-2.0 OR MIT"
SUFFIXES = {".rs", ".toml", ".py", ".sh", ".c", ".h", ".js", ".css"}
NAMES = {"Makefile", "run"}
# Two lines: a script begins with its interpreter.
LINES_MAX = 2


def files() -> list[Path]:
    """Every source file of the checkout, also those not yet committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in paths if path.suffix in SUFFIXES or path.name in NAMES]


def is_marked(path: Path) -> bool:
    lines = path.read_text(encoding="utf-8").splitlines()[:LINES_MAX]
    return any(LINE in line for line in lines)


def main() -> int:
    sources = [path for path in files() if path.is_file()]
    missing = [path for path in sources if not is_marked(path)]
    for path in missing:
        print(f"check-spdx: {path.relative_to(ROOT)} does not begin with a line `{LINE}`")
    if not missing:
        print(f"check-spdx: {len(sources)} source files name their licence")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
