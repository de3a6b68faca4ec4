#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Fails where a crate depends on one that it is not allowed to, and where modules import each other in new cycles.

`EDGES` lists every allowed dependency between the crates of the workspace. An edge that is not in the list
fails, and so does one in the list that no crate has. `--picture` prints the crates by depth, as
ARCHITECTURE.md shows them, and without it the check compares the two.

A module here is a file or a folder directly below a crate's `src`. Modules that can reach each other by
`use crate::…`, or by a path that begins with `crate::`, form a cycle. `CYCLES` bounds the number of modules in
cycles for each crate; the bound may only fall, so a lower count fails, too, until the bound is lowered.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE_IN = ROOT / "ARCHITECTURE.md"

# Crate: the crates that it may depend on. `terrace-` is left out.
EDGES = {
    "core": [],
    "policy-abi": [],
    "affinity": [],
    "gen": [],
    "coherence": [],
    "backends": ["affinity", "core"],
    "policies": ["core", "policy-abi"],
    "testkit": ["core"],
    "trace": ["core"],
    "wire": ["core"],
    "transport": ["affinity", "core"],
    "fuse": ["affinity"],
    "source": ["core", "fuse"],
    "policy": ["policy-abi"],
    "fs": ["core"],
    "client": ["affinity", "core", "transport", "wire"],
    "server": ["core", "transport", "wire"],
    "replay": ["core", "policies", "trace"],
    "stack": ["affinity", "core", "policies", "trace"],
    "store": [
        "backends", "client", "core", "fs", "policies", "server", "stack", "trace", "transport", "wire",
    ],
    "items": ["core", "store", "transport"],
    "mount": ["affinity", "core", "fs", "fuse", "store"],
    "metrics": ["core", "fs", "mount", "server", "store", "transport"],
    "partdiff": ["store"],
    "terrace": ["core", "items", "store"],
    "python": ["terrace"],
    "c": ["terrace"],
    "fuzzing": [
        "backends", "client", "core", "fs", "fuse", "items", "policies", "replay", "server", "stack",
        "store", "trace", "transport", "wire",
    ],
    "cli": [
        "backends", "client", "core", "fs", "fuse", "items", "metrics", "mount", "partdiff", "policies",
        "replay", "server", "source", "stack", "store", "trace", "transport", "wire",
    ],
}  # fmt: skip

# Tests of every crate but `core` may use these, too.
FOR_TESTS = {"core", "testkit", "backends", "stack", "client", "server"}

# Crate: modules that are in import cycles. What is not named has none.
CYCLES = {
    "cli": 2,
    "core": 2,
    "fs": 4,
    "fuse": 5,
    "items": 2,
    "mount": 3,
    "replay": 2,
    "server": 4,
}

TESTS = re.compile(r"#\[cfg\((?:all\()?test\b.*?\]\s*(?:#\[[^\]]*\]\s*)*(?:pub )?mod \w+ (\{)", re.S)
COMMENT = re.compile(r"//[^\n]*")


def short(name: str) -> str:
    """A crate's name as `EDGES` has it."""
    return name.removeprefix("terrace-")


def dependency_problems(manifest: Path):
    """Yields what is wrong with the dependencies of one crate."""
    package = tomllib.loads(manifest.read_text(encoding="utf-8"))
    name = short(package["package"]["name"])
    if name not in EDGES:
        yield f"{name} is not in EDGES; add it with the crates that it may depend on"
        return
    found = set()
    for table in ("dependencies", "build-dependencies", "dev-dependencies"):
        for dependency in map(short, package.get(table, {})):
            if dependency not in EDGES:
                continue
            if table != "dev-dependencies":
                found.add(dependency)
            elif dependency in FOR_TESTS and name != "core":
                continue
            if dependency not in EDGES[name]:
                yield f"{name} must not depend on {dependency}: the edge is not in EDGES"
    for dependency in EDGES[name]:
        if dependency not in found:
            yield f"{name} does not depend on {dependency} any more; take the edge out of EDGES"


def order_problems():
    """Yields edges of `EDGES` that point at a crate below: the list is in order, so it has no cycle."""
    seen: set[str] = set()
    for name, dependencies in EDGES.items():
        for dependency in dependencies:
            if dependency not in seen:
                yield f"{name} stands before {dependency} in EDGES, which it depends on"
        seen.add(name)


def picture() -> str:
    """The crates by depth, the deepest last; each with what it depends on directly."""
    depth: dict[str, int] = {}
    for name, dependencies in EDGES.items():
        depth[name] = 1 + max((depth[dependency] for dependency in dependencies), default=-1)
    lines = []
    for name in sorted(EDGES, key=lambda name: (-depth[name], name)):
        # An edge that follows from others says nothing new.
        below = {far for near in EDGES[name] for far in reached(near)}
        direct = [dependency for dependency in EDGES[name] if dependency not in below]
        lines.append(f"{depth[name]}  {name:<11} → {', '.join(direct)}" if direct else f"{depth[name]}  {name}")
    return "\n".join(lines)


def reached(name: str) -> set[str]:
    """Every crate below one."""
    found: set[str] = set()
    for dependency in EDGES[name]:
        found |= {dependency} | reached(dependency)
    return found


def code_of(path: Path) -> str:
    """A file without comments and without its tests."""
    text = COMMENT.sub("", path.read_text(encoding="utf-8"))
    while match := TESTS.search(text):
        start, depth, end = match.start(1), 0, len(text)
        for position in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[position], 0)
            if depth == 0:
                end = position + 1
                break
        text = text[: match.start()] + text[end:]
    return text


def first_words(text: str, at: int) -> set[str]:
    """The names that directly follow `crate::` at a position, also several in braces."""
    if text[at] != "{":
        name = re.match(r"\w+", text[at:])
        return {name.group()} if name else set()
    names, depth, fresh = set(), 0, True
    for position in range(at, len(text)):
        letter = text[position]
        if letter == "{":
            depth += 1
        elif letter == "}":
            depth -= 1
            if depth == 0:
                break
        elif letter == ",":
            fresh = True
        elif fresh and depth == 1 and re.match(r"\w", letter):
            names.add(re.match(r"\w+", text[position:]).group())
            fresh = False
    return names


def imports(crate: Path) -> dict[str, set[str]]:
    """The modules of a crate, and which of its modules each imports."""
    source = crate / "src"
    modules: dict[str, list[Path]] = {}
    for path in sorted(source.rglob("*.rs")):
        parts = path.relative_to(source).parts
        name = parts[0].removesuffix(".rs")
        if name in ("lib", "main") or any(part in ("tests", "tests.rs") for part in parts):
            continue
        modules.setdefault(name, []).append(path)
    root = next(path for path in (source / "lib.rs", source / "main.rs") if path.exists())
    # What the root re-exports is imported from the module that has it.
    home = {name: name for name in modules}
    for match in re.finditer(r"\buse (?:self::|crate::)?(\w+)::([^;]+);", code_of(root)):
        if match.group(1) in modules:
            for name in re.findall(r"\w+", match.group(2)):
                home.setdefault(name, match.group(1))
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, paths in modules.items():
        for path in paths:
            text = code_of(path)
            # `super::` leads to the root from a file directly below `src`, or from the head of a folder.
            parts = path.relative_to(source).parts
            is_head = len(parts) == 1 or (len(parts) == 2 and parts[1] == "mod.rs")
            roots = r"\b(?:crate|super)::" if is_head else r"\bcrate::"
            for match in re.finditer(roots, text):
                for word in first_words(text, match.end()):
                    other = home.get(word)
                    if other and other != name:
                        graph[name].add(other)
    return graph


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that can reach each other, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = []
            while not group or group[-1] != name:
                group.append(stack.pop())
            if len(group) > 1:
                groups.append(sorted(group))

    for name in graph:
        if name not in index:
            visit(name)
    return groups


def cycle_problems(crate: Path, name: str):
    """Yields what is wrong with the number of modules in cycles of one crate."""
    groups = cycles(imports(crate))
    count, bound = sum(map(len, groups)), CYCLES.get(name, 0)
    listed = "; ".join(", ".join(group) for group in groups)
    if count > bound:
        yield f"{name} has {count} modules in import cycles, at most {bound} are allowed: {listed}"
    elif count < bound:
        yield f"{name} has {count} modules in import cycles: lower its bound of {bound} in CYCLES"


def main() -> int:
    if "--picture" in sys.argv[1:]:
        print(picture())
        return 0
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    members = [ROOT / member for member in workspace["workspace"]["members"]]
    found = list(order_problems())
    for member in members:
        manifest = member / "Cargo.toml"
        found += dependency_problems(manifest)
        name = short(tomllib.loads(manifest.read_text(encoding="utf-8"))["package"]["name"])
        found += cycle_problems(member, name)
    if picture() not in PICTURE_IN.read_text(encoding="utf-8"):
        found.append(f"{PICTURE_IN.name} does not show the crates as they are; paste `{sys.argv[0]} --picture`")
    for text in found:
        print(f"check-edges: {text}")
    if not found:
        total = sum(CYCLES.values())
        print(f"check-edges: {len(members)} crates, allowed edges only; {total} modules in import cycles")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
