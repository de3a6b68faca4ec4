#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Fails where a crate depends on one that it is not allowed to, and where modules import each other in new cycles.

`EDGES` lists every allowed dependency between the crates of the workspace. An edge that is not in the list
fails, and so does one in the list that no crate has. `--picture` prints the crates by depth, as
ARCHITECTURE.md shows them, and without it the check compares the two.

A module is a file or a folder; what lies in a folder is compared with what lies beside it there, at every depth.
Modules that can reach each other by paths that begin with `crate::`, `self::` or `super::` form a cycle; that a
module uses what its own parent has is none. `CYCLES` bounds the number of modules in cycles for each crate; the
bound may only fall, so a lower count fails, too, until the bound is lowered.
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
    "console": ["core"],
    "report": ["core"],
    "measure": ["console", "core"],
    "trace": ["core"],
    "wire": ["core"],
    "transport": ["affinity", "core"],
    "fuse": ["affinity"],
    # A source that is a bucket is read by the client that tiers in buckets have.
    "source": ["backends", "core", "fuse"],
    "policy": ["policy-abi"],
    "fs": ["core"],
    "client": ["affinity", "core", "transport", "wire"],
    "server": ["core", "transport", "wire"],
    "replay": ["core", "policies", "trace"],
    "stack": ["affinity", "core", "policies", "trace"],
    "settings": ["backends", "client", "core", "policies", "stack", "trace", "transport", "wire"],
    "recovery": ["backends", "core", "fs", "settings", "stack", "transport"],
    "admin": [
        "client", "core", "fs", "recovery", "server", "settings", "stack", "trace", "transport",
    ],
    "fs-client": ["client", "core", "fs"],
    "store": [
        "admin", "backends", "client", "core", "fs", "fs-client", "recovery", "server", "settings", "stack",
        "transport",
    ],
    "calibrate": ["core", "settings", "stack", "store"],
    "items": ["core", "store", "transport"],
    "mount": ["affinity", "core", "fs", "fuse", "store"],
    "metrics": ["core", "fs", "mount", "server", "store", "transport"],
    "partdiff": ["store"],
    "demo": ["console", "core", "measure", "partdiff", "report", "settings", "store"],
    "tuning": ["console", "core", "policies", "replay", "settings", "store"],
    "transfer": ["console", "core", "fs", "items", "mount", "settings", "store"],
    "bench": [
        "backends", "calibrate", "client", "console", "core", "fs", "fuse", "measure", "mount", "policies", "replay",
        "report", "settings", "stack", "store", "trace", "transport", "tuning", "wire",
    ],
    "terrace": ["core", "items", "settings", "store"],
    "python": ["terrace"],
    "c": ["terrace"],
    "fuzzing": [
        "backends", "client", "core", "fs", "fuse", "items", "policies", "replay", "server", "settings",
        "stack", "store", "trace", "transport", "wire",
    ],
    "cli": [
        "backends", "bench", "calibrate", "console", "core", "demo", "fs", "fuse", "items", "metrics", "mount",
        "policies", "recovery", "replay", "report", "server", "settings", "source", "store", "trace", "transfer",
        "transport", "tuning", "wire",
    ],
}  # fmt: skip

# Tests of every crate but `core` may use these, too.
FOR_TESTS = {"core", "testkit", "backends", "stack", "client", "server", "transport", "wire"}

# Crate: modules that are in import cycles. What is not named has none.
CYCLES = {
    "source": 2,
}

TESTS = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub )?mod \w+ (\{)", re.S)
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


def paths_at(text: str, at: int) -> list[tuple[str, ...]]:
    """The paths that begin at a position, several where there are braces; without what they end in, a glob or `self`."""
    found: list[tuple[str, ...]] = []

    def read(position: int, before: tuple[str, ...]) -> int:
        position += len(re.match(r"\s*", text[position:]).group())
        if text[position : position + 1] == "{":
            position += 1
            while position < len(text) and text[position] != "}":
                position = read(position, before)
                position += len(re.match(r"[\s,]*", text[position:]).group())
            return position + 1
        word = re.match(r"\w+", text[position:])
        if not word:
            found.append(before)
            return position + 1
        name, position = word.group(), position + len(word.group())
        if text[position : position + 2] == "::":
            return read(position + 2, (*before, name))
        found.append(before if name == "self" else (*before, name))
        return position + len(re.match(r"(\s+as\s+\w+)?", text[position:]).group())

    read(at, ())
    return found


class Crate:
    """The modules of a crate, by their paths, and what they import."""

    def __init__(self, crate: Path) -> None:
        source = crate / "src"
        self.code: dict[tuple[str, ...], str] = {}
        for path in sorted(source.rglob("*.rs")):
            parts = path.relative_to(source).with_suffix("").parts
            if "tests" in parts:
                continue
            self.code[parts[:-1] if parts[-1] == "mod" or parts in (("lib",), ("main",)) else parts] = code_of(path)
        # What a module re-exports is imported from the module that has it.
        self.homes: dict[tuple[tuple[str, ...], str], tuple[str, ...]] = {}
        for module, text in self.code.items():
            for match in re.finditer(r"\bpub(?:\(\w+\))? use (self::|crate::|super::)?", text):
                base = {"crate::": (), "super::": module[:-1]}.get(match.group(1), module)
                for path in paths_at(text, match.end()):
                    if path:
                        self.homes.setdefault((module, path[-1]), base + path)

    def module_of(self, path: tuple[str, ...], depth: int = 0) -> tuple[str, ...] | None:
        """The module in which a path ends."""
        for length in range(len(path), -1, -1):
            if path[:length] not in self.code:
                continue
            home = self.homes.get((path[:length], path[length])) if length < len(path) else None
            if home and home != path and depth < 8:
                return self.module_of(home + path[length + 1 :], depth + 1)
            return path[:length]
        return None

    def imports(self):
        """Yields pairs of modules, the first of which imports from the second."""
        for module, text in self.code.items():
            for match in re.finditer(r"(?<!::)\b(crate|self|super(?:::super)*)::", text):
                word = match.group(1)
                base = {"crate": (), "self": module}.get(word, module[: len(module) - word.count("super")])
                for path in paths_at(text, match.end()):
                    other = self.module_of(base + path)
                    if other is not None:
                        yield module, other

    def graphs(self):
        """Yields each folder of the crate with its modules, and which of these each imports."""
        edges = set(self.imports())
        for folder in sorted({module[:length] for module in self.code for length in range(len(module))}):
            depth = len(folder)
            inside = [module for module in self.code if len(module) > depth and module[:depth] == folder]
            graph: dict[str, set[str]] = {module[depth]: set() for module in inside}
            for module, other in edges:
                are_inside = all(len(one) > depth and one[:depth] == folder for one in (module, other))
                if are_inside and module[depth] != other[depth]:
                    graph[module[depth]].add(other[depth])
            yield folder, graph


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
    groups = [
        ["/".join((*folder, module)) for module in group]
        for folder, graph in Crate(crate).graphs()
        for group in cycles(graph)
    ]
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
