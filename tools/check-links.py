#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Fails where a page links to a file or a heading that does not exist."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#+\s+(.*?)\s*$", re.MULTILINE)
ELSEWHERE = ("http://", "https://", "mailto:")


def pages() -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as forges make them."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text))
    return {word.replace(" ", "-") for word in words}


def problems(page: Path):
    """Yields a sentence for each link of the page that leads nowhere."""
    text = CODE.sub("", FENCED.sub("", page.read_text(encoding="utf-8")))
    for link in LINK.findall(text):
        if link.startswith(ELSEWHERE):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.is_relative_to(ROOT) or not target.exists():
            yield f"{link}: there is no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{link}: the page has no such heading"


def main() -> int:
    found = [(page, text) for page in pages() for text in problems(page)]
    for page, text in found:
        print(f"check-links: {page.relative_to(ROOT)}: {text}")
    if not found:
        print(f"check-links: the links of {len(pages())} pages lead somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
