#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Fails where comments or pages speak of parts of the system as of persons more often than before.

Counts the lines of comments in `crates/*/src`, and of text in pages, with one of `WORDS`: a sentence names the actor
(the client, the kernel, the migrator) and what it does (returns, blocks, invalidates). `BOUNDS` holds the count of
each crate, `PAGE_BOUNDS` that of each page or folder of pages; they may only fall. `--list NAME` prints the lines of
a crate, a page or a folder.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

WORDS = re.compile(r"\b(who|whoever|whom|nobody|somebody|told|said|heard|hears)\b", re.I)
COMMENT = re.compile(r"(?:^|\s)//[/!]?(.*)")

# Crate: lines of comments with such a word. A crate that is not named has none.
BOUNDS = {
    "cli": 169,
    "client": 9,
    "fs": 371,
    "fuse": 16,
    "fuzzing": 1,
    "gen": 1,
    "mount": 135,
    "stack": 276,
    "store": 288,
}

# Page, or folder of pages: lines of text with such a word. What is not named has none.
PAGE_BOUNDS = {
    "docs/adr": 92,
    "docs/how-to": 2,
    "docs/reference": 16,
}

FENCE = re.compile(r"^\s*```")
# Code and the targets of links, which pages repeat as they are.
NAMES = re.compile(r"`[^`]*`|\]\([^)]*\)")


def found(crate: Path):
    """Yields the lines of a crate that count, each with its place."""
    for path in sorted((crate / "src").rglob("*.rs")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            comment = COMMENT.search(line)
            if comment and WORDS.search(comment.group(1)):
                yield f"{path.relative_to(ROOT)}:{number}:{line.strip()}"


def found_in_pages(pages: list[Path]):
    """Yields the lines of pages that count, each with its place."""
    for page in pages:
        is_code = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            if FENCE.match(line):
                is_code = not is_code
            elif not is_code and WORDS.search(NAMES.sub("", line)):
                yield f"{page.relative_to(ROOT)}:{number}:{line.strip()}"


def page_groups() -> dict[str, list[Path]]:
    """The pages of the root by their names, those below `docs` by their folders."""
    groups: dict[str, list[Path]] = {page.name: [page] for page in sorted(ROOT.glob("*.md"))}
    for page in sorted((ROOT / "docs").rglob("*.md")):
        groups.setdefault(str(page.parent.relative_to(ROOT)), []).append(page)
    return groups


def main() -> int:
    counted = {
        path.parent.name: (list(found(path.parent)), BOUNDS.get(path.parent.name, 0))
        for path in sorted((ROOT / "crates").glob("*/Cargo.toml"))
    }
    for name, pages in page_groups().items():
        counted[name] = (list(found_in_pages(pages)), PAGE_BOUNDS.get(name, 0))
    if sys.argv[1:2] == ["--list"]:
        for name in sys.argv[2:]:
            print("\n".join(counted[name][0]))
        return 0
    is_wrong, total = False, 0
    for name, (lines, bound) in counted.items():
        total += len(lines)
        if len(lines) > bound:
            is_wrong = True
            print(
                f"check-words: {name} has {len(lines)} such lines, at most {bound} are allowed: "
                f"see {Path(sys.argv[0]).name} --list {name}"
            )
        elif len(lines) < bound:
            print(f"check-words: {name} has {len(lines)} such lines: its bound of {bound} can be lowered")
    if not is_wrong:
        print(f"check-words: {total} lines speak of parts as of persons, no more than before")
    return is_wrong


if __name__ == "__main__":
    sys.exit(main())
