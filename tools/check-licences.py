#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Fails where a dependency's licence is not one that this project may be shipped with."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = {
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "0BSD",
    "CC0-1.0",
    # The list of root certificates, for systems without one of their own.
    "CDLA-Permissive-2.0",
}
TOKEN = re.compile(r"\(|\)|[^\s()]+")


def is_allowed(expression: str) -> bool:
    """Whether an SPDX expression can be met; `A/B` is the old way to write `A OR B`."""
    text = expression.replace("/", " OR ").replace(" WITH ", "\0")
    tokens = [token.replace("\0", " WITH ") for token in TOKEN.findall(text)]
    for index, token in enumerate(tokens):
        if token in ("(", ")"):
            continue
        words = {"AND": "and", "OR": "or"}
        tokens[index] = words.get(token) or str(token in ALLOWED)
    # Only brackets, `and`, `or`, `True` and `False` are left.
    return bool(tokens) and eval(" ".join(tokens), {"__builtins__": {}})


def main() -> int:
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    packages = json.loads(listed)["packages"]
    refused = [one for one in packages if not is_allowed(one["license"] or "")]
    for one in refused:
        print(
            f"check-licences: {one['name']} {one['version']} has the licence {one['license']!r}; "
            "replace it, or allow the licence in tools/check-licences.py with a reason"
        )
    if not refused:
        print(f"check-licences: {len(packages)} packages have licences that allow shipping")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
