#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Fails where comments or pages speak of parts of the system as of persons more often than before.

Counts the lines of comments in `crates/*/src`, and of text in pages, with one of `WORDS`: a sentence names the actor
(the client, the kernel, the migrator) and what it does (returns, blocks, invalidates). `BOUNDS` holds the count of
each crate, `PAGE_BOUNDS` that of each page or folder of pages; they may only fall. Of comments it also prints what is
left of `BEFORE`, the count before the language pass; the aim is less than 5 %. Lines of the client cache of mounts
(`CLIENT_CACHE`), which a redesign replaces, have bounds and are left out there. `--list NAME` prints the lines of a
crate, a page or a folder, `--list client-cache` those of the cache.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

WORDS = re.compile(r"\b(who|whoever|whom|nobody|somebody|told|said|heard|hears)\b", re.I)
COMMENT = re.compile(r"(?:^|\s)//[/!]?(.*)")

# Lines of comments outside the client cache with such a word, before the language pass (commit a1d9ce6d).
BEFORE = 1585
AIM_PERCENT = 5

# Files of the client cache, by their paths below `crates`, without what they end in.
CLIENT_CACHE = {
    *(f"fs/src/files/{name}" for name in ("kept", "opened_ahead")),
    *(f"fs/src/tree/{name}" for name in ("delegations", "read_delegations")),
    *(f"mount/src/{name}" for name in ("behind", "caching", "front/put_off", "locked", "refresher", "seen")),
    *(
        f"fs-client/src/{name}"
        for name in (
            "ahead", "attributes", "changed", "delegated", "held", "in_use", "later", "listings", "neighbours",
            "recent", "removals", "soon",
        )
    ),
}  # fmt: skip

# Crate: lines of comments with such a word outside the client cache. A crate that is not named has none.
BOUNDS = {
    "client-cache": 267,
}

# Page, or folder of pages: lines of text with such a word. What is not named has none.
PAGE_BOUNDS = {
    "docs/adr": 92,
}

FENCE = re.compile(r"^\s*```")
# Code and the targets of links, which pages repeat as they are.
NAMES = re.compile(r"`[^`]*`|\]\([^)]*\)")


def is_of_cache(path: Path) -> bool:
    """Whether a source belongs to the client cache."""
    below = path.relative_to(ROOT / "crates")
    return any(str(one).removesuffix(".rs") in CLIENT_CACHE for one in (below, *below.parents))


def found(crate: Path):
    """Yields the lines of a crate that count, each with its file and its place."""
    for path in sorted((crate / "src").rglob("*.rs")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            comment = COMMENT.search(line)
            if comment and WORDS.search(comment.group(1)):
                yield path, f"{path.relative_to(ROOT)}:{number}:{line.strip()}"


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
    lines_of: dict[str, list[str]] = {"client-cache": []}
    for manifest in sorted((ROOT / "crates").glob("*/Cargo.toml")):
        crate = lines_of.setdefault(manifest.parent.name, [])
        for path, line in found(manifest.parent):
            (lines_of["client-cache"] if is_of_cache(path) else crate).append(line)
    counted = {name: (lines, BOUNDS.get(name, 0)) for name, lines in lines_of.items()}
    left = sum(len(lines) for name, lines in lines_of.items() if name != "client-cache")
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
        print(
            f"check-words: {total} lines speak of parts as of persons, no more than before; of those in comments outside "
            f"the client cache {100 * left / BEFORE:.1f} % are left (aim: below {AIM_PERCENT} %)"
        )
    return is_wrong


if __name__ == "__main__":
    sys.exit(main())
