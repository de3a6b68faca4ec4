#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tries random load, faults, crashes, kill -9 and changes of the policy for a given time.

First a file that moves under 200,000 operations, a directory and a tree of a million files, 100
takeovers from an owner that is killed with its machine, and
1,200,000 operations of several clients on one tree, beside a directory. Then rounds: each takes
seeds that no earlier one had: the model test and the crash test of the stack, its crashes with the
loss of the catalog, the real command under kill -9, clients and a server over a simulated network,
mounts beside a directory and below applications, and the short form of fuzzing.
Everything is compared byte by byte.
Ends with one line: rounds, seeds, bytes compared, failures; exits with 1 where there were any.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Package, test, filter, seeds a round: each takes some ten seconds, applications two minutes.
TESTS = [
    ("terrace-stack", "stack", "model::", 60),
    ("terrace-stack", "crash", "", 2),
    ("terrace-stack", "stack", "rebuild::acknowledged", 400),
    ("terrace-cli", "cli", "killed::", 20),
    ("terrace-store", "takeover", "nothing", 10),
    ("terrace-cli", "cli", "network::histories", 10),
    ("terrace-server", "simulated", "", 40),
    ("terrace-cli", "mount", "trees::", 6),
    ("terrace-cli", "mount", "fsx::", 2),
    ("terrace-cli", "mount", "apps::", 1),
    ("terrace-fuzzing", "short", "mutations", 3),
]
# What `make test` does with little, once before the rounds: package, test, filter, how much.
LONG = [
    ("terrace-cli", "mount", "fsx::", {"TERRACE_FSX_OPERATIONS": "200000"}),
    ("terrace-cli", "mount", "many::", {"TERRACE_FILES": "1000000"}),
    ("terrace-store", "takeover", "nothing", {"TERRACE_TAKEOVERS": "100"}),
    # Of three strict clients, and of two others, at the same time.
    ("terrace-cli", "mount", "clients_are_like", {"TERRACE_TREE_OPERATIONS": "600000"}),
]
# No test takes nearly as long, beside other work either; one that hangs is a failure.
TEST_SECONDS_MAX = 900
LONG_SECONDS_MAX = 7200
FAILURES_MAX = 10
# Seeds are multiplied in the tests; this leaves room.
SEED_MAX = 1 << 32


def directory(package: str) -> Path:
    """Where a package is."""
    return ROOT / "crates" / package.removeprefix("terrace-")


def missing() -> list[str]:
    """Which of the tests are not where the tables say."""
    found = []
    for package, test, only, _ in [*TESTS, *LONG]:
        tests = directory(package) / "tests"
        sources = [*tests.glob(f"{test}.rs"), *(tests / test).rglob("*.rs")]
        module, _, name = only.rpartition("::")
        is_there = any(
            (not module or path.stem == module or path.parent.name == module)
            and re.search(rf"#\[test\]\s+fn \w*{name}", path.read_text(encoding="utf-8"))
            for path in sources
        )
        if not is_there:
            found.append(f"{package} has no test {test} {only}")
    return found


def build(profile: str) -> dict[tuple[str, str], str]:
    """Builds the tests; returns their programs by package and test."""
    packages = [word for package, *_ in TESTS for word in ("-p", package)]
    command = ["cargo", "test", "--locked", "--profile", profile, "--no-run"]
    command += ["--message-format=json"]
    lines = subprocess.run(
        command + packages, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()
    programs = {}
    for message in map(json.loads, lines):
        if message.get("executable") and message["profile"]["test"]:
            package = Path(message["manifest_path"]).parent
            programs[(str(package), message["target"]["name"])] = message["executable"]
    return {
        (package, test): programs[(str(directory(package)), test)]
        for package, test, *_ in TESTS
    }


def run(
    program: str, package: str, test: str, only: str, settings: dict[str, str], seconds_max: int
) -> tuple[int, str]:
    """Runs one test; returns the bytes that it compared, and what went wrong."""
    environment = os.environ | settings
    environment.pop("TERRACE_SEED", None)
    words = [f"{name}={value}" for name, value in settings.items()]
    words += ["cargo test --profile soak -p", package, "--test", test, only]
    replay = " ".join(words).rstrip()
    try:
        done = subprocess.run(
            [program, "--nocapture", *([only] if only else [])],
            # Where cargo runs it, too.
            cwd=directory(package),
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds_max,
        )
    except subprocess.TimeoutExpired:
        return 0, f"soak: replay: {replay}\nit did not end within {seconds_max} s"
    verified_bytes = sum(map(int, re.findall(r"^verified_bytes=(\d+)$", done.stdout, re.M)))
    has_run = not re.search(r"^test result: ok\. 0 passed", done.stdout, re.M)
    if done.returncode == 0 and has_run:
        return verified_bytes, ""
    words = (done.stdout + done.stderr).splitlines()[-60:]
    return verified_bytes, "\n".join([f"soak: replay: {replay}", *words])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="default: 60")
    parser.add_argument("--seed", type=int, help="the first seed; default: a new one each time")
    parser.add_argument(
        "--profile",
        default="soak",
        help="that of cargo, for example `dev` where `make test` has built its tests; default: soak",
    )
    parser.add_argument("--check", action="store_true", help="say whether there are such tests, and end")
    arguments = parser.parse_args()
    lost = missing()
    for text in lost:
        print(f"soak: {text}")
    if lost or arguments.check:
        return int(bool(lost))
    programs = build(arguments.profile)
    start = time.monotonic()
    end = start + arguments.minutes * 60
    seed = random.randrange(SEED_MAX // 2) if arguments.seed is None else arguments.seed
    first_seed, rounds, runs, verified_bytes, failures = seed, 0, 0, 0, 0
    for package, test, only, asked in LONG:
        settings = asked | {"TERRACE_SEED_FIRST": str(seed)}
        _, wrong = run(programs[(package, test)], package, test, only, settings, LONG_SECONDS_MAX)
        failures += bool(wrong)
        minutes = (time.monotonic() - start) / 60
        print(f"soak: {only} {settings} done, {minutes:.1f} min\n{wrong}".rstrip(), flush=True)
    # At least one round, however short the time.
    while (rounds == 0 or time.monotonic() < end) and failures < FAILURES_MAX:
        for package, test, only, count in TESTS:
            program = programs[(package, test)]
            seeds = {"TERRACE_SEED_FIRST": str(seed), "TERRACE_SEEDS": str(count)}
            compared_bytes, wrong = run(program, package, test, only, seeds, TEST_SECONDS_MAX)
            runs += 1
            verified_bytes += compared_bytes
            if wrong:
                failures += 1
                print(wrong, flush=True)
        rounds += 1
        seed += max(count for *_, count in TESTS)
        minutes = (time.monotonic() - start) / 60
        print(
            f"soak: round {rounds} done, {minutes:.1f} min, "
            f"{verified_bytes / 1e6:.0f} MB compared, {failures} failures",
            flush=True,
        )
    minutes = (time.monotonic() - start) / 60
    print(
        f"soak: {rounds} rounds of {len(TESTS)} tests in {minutes:.1f} min, "
        f"seeds {first_seed} to {seed - 1}, {verified_bytes} bytes compared, {failures} failures"
        + (": each is above with its replay" if failures else "")
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
