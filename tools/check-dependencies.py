#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Checks the dependencies of the workspace, from `cargo metadata` alone.

Fails where a package needs a later Rust than `rust-version` in Cargo.toml says, and where a crate of the workspace
names a dependency in none of its sources. Clippy's `incompatible_msrv` does the first for what the sources use of the
standard library. Licences and where packages come from are for cargo-deny, by deny.toml.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Named for their features alone: of `reqwest`, which `object_store` uses, the one that chooses its cryptography.
FOR_FEATURES = {"reqwest"}

PATH = re.compile(r'^\s*#\[path = "([^"]+)"\]', re.M)


def version_of(text: str | None) -> tuple[int, ...]:
    """A version as numbers; that of packages which name none comes before all."""
    return tuple(int(part) for part in text.split(".")) if text else ()


def rust_problems(packages: list[dict], members: list[dict]):
    """Yields packages that need a later Rust than the members of the workspace do."""
    for member in members:
        if not member["rust_version"]:
            yield f"{member['name']} has no `rust-version.workspace = true`"
    rust = min((version_of(member["rust_version"]) for member in members if member["rust_version"]), default=())
    for one in packages:
        if version_of(one["rust_version"])[: len(rust)] > rust:
            yield f"{one['name']} {one['version']} needs Rust {one['rust_version']}; `rust-version` says less"


def unused_problems(member: dict):
    """Yields dependencies of a crate whose names are in none of its sources."""
    folder = Path(member["manifest_path"]).parent
    targets = [Path(target["src_path"]) for target in member["targets"]]
    # A target takes the sources in its folder; that of `build.rs` is the crate's own, so only the file counts there.
    files = {file for path in targets for file in ([path] if path.parent == folder else path.parent.rglob("*.rs"))}
    # And those of another crate that it takes by their paths.
    files |= {file.parent / path for file in files for path in PATH.findall(file.read_text(encoding="utf-8"))}
    text = "\n".join(file.read_text(encoding="utf-8") for file in sorted(files))
    for dependency in member["dependencies"]:
        name = (dependency["rename"] or dependency["name"]).replace("-", "_")
        if name not in FOR_FEATURES and not re.search(rf"\b{name}\b", text):
            yield f"{member['name']} does not use {dependency['name']}; take it out of its Cargo.toml"


def main() -> int:
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    metadata = json.loads(listed)
    packages = metadata["packages"]
    members = [one for one in packages if one["id"] in metadata["workspace_members"]]
    found = [*rust_problems(packages, members)]
    for member in members:
        found += unused_problems(member)
    for text in found:
        print(f"check-dependencies: {text}")
    if not found:
        print(
            f"check-dependencies: {len(packages)} packages need no later Rust; "
            f"{len(members)} crates use all that they depend on"
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
