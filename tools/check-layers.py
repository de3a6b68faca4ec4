#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Fails where a crate depends on one that is not below it, or has no layer."""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

LAYERS = {
    "terrace-core": 0,
    "terrace-policy-abi": 0,
    "terrace-affinity": 0,
    "terrace-backends": 1,
    "terrace-policies": 1,
    "terrace-testkit": 1,
    "terrace-trace": 1,
    "terrace-wire": 1,
    "terrace-transport": 1,
    "terrace-fuse": 1,
    "terrace-replay": 2,
    "terrace-stack": 2,
    "terrace-client": 2,
    "terrace-server": 2,
    "terrace-fs": 2,
    "terrace-store": 3,
    "terrace-items": 4,
    "terrace-mount": 4,
    "terrace-policy": 4,
    "partdiff": 4,
    "terrace-gen": 4,
    "terrace-fuzzing": 5,
    "terrace-cli": 5,
}

# Tests may use these from any layer above the words.
FOR_TESTS = {"terrace-testkit", "terrace-backends", "terrace-stack", "terrace-client"}


def problems(manifest: Path):
    """Yields what is wrong with the dependencies of one crate."""
    package = tomllib.loads(manifest.read_text(encoding="utf-8"))
    name = package["package"]["name"]
    layer = LAYERS.get(name)
    if layer is None:
        yield f"{name} has no layer; give it one in tools/check-layers.py and ARCHITECTURE.md"
        return
    for table in ("dependencies", "build-dependencies", "dev-dependencies"):
        for dependency in package.get(table, {}):
            if dependency not in LAYERS:
                continue
            is_for_tests = table == "dev-dependencies" and dependency in FOR_TESTS and layer > 0
            if LAYERS[dependency] >= layer and not is_for_tests:
                yield (
                    f"{name} (layer {layer}) must not depend on {dependency} "
                    f"(layer {LAYERS[dependency]}): a crate depends on lower layers only"
                )


def main() -> int:
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    members = workspace["workspace"]["members"]
    found = [text for member in members for text in problems(ROOT / member / "Cargo.toml")]
    for text in found:
        print(f"check-layers: {text}")
    if not found:
        print(f"check-layers: {len(members)} crates, each depends on lower layers only")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
