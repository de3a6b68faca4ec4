# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The study of storage policies in full: policies over pairs of tiers, operation by operation.

Each pair has a store of one tier and one that moves nothing beside those with a policy, so that the
overhead of the mechanism, and that of each policy, is measured in the same blocks. Targets are made
out of the parameters, because there are as many as pairs, policies and modes together.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tomli_w

from terrace_lab import experiment as experiments
from terrace_lab.errors import SettingsError
from terrace_lab.experiment import Experiment
from terrace_lab.settings import right_names

NAME = "hsm"
DESCRIPTION = "policies over pairs of tiers, by operation, with their overhead in per cent"

SINGLE = "single"
"""One tier and no policy: the baseline of all others of its pair and mode."""

REAL = (
    *("lru", "write-buffer", "size", "heat", "elevator", "s3-fifo", "sieve", "arc", "2q"),
    *("w-tinylfu", "gdsf", "prefetch", "energy"),
)
"""Policies that move or place by what happens."""

# `dummy` gets the events that every policy gets and moves nothing; the command calls it `pinned`.
# `listener` is the same with the optional events, `stat` and `sync`; of the operations only
# `status` is one of them, a `stat`.
POLICIES = {
    "none": "none",
    "dummy": "pinned",
    "listener": "pinned",
    **{one: one for one in REAL},
}

BEFORE = "-before"
"""Behind the name of a policy: its events are posted before the I/O instead of after it."""

# By pair: where the fast and the slow tier are, by parameter, and what the slow one is slowed by.
PAIRS = {
    "tmpfs/disk": ("memory", "disk", ""),
    "disk/slow": ("disk", "disk", "throttle.latency=50ms"),
    "disk/network": ("disk", "network", ""),
}
MODES = ("embedded", "served")
PORT_FIRST = 7560

PARAMETERS: dict[str, Any] = {
    "pairs": ["tmpfs/disk", "disk/slow"],
    "policies": ["none", "dummy", f"dummy{BEFORE}", "listener", f"listener{BEFORE}", *REAL],
    "modes": list(MODES),
    "object": ["create", "delete", "create+delete", "status", "read", "write"],
    "kv": ["put", "get", "delete", "put+delete"],
    "batches": [1, 100],
    "sizes": ["4KiB", "64KiB"],
    "seconds": 3.0,
    "fast_capacity": "256MiB",
    # Directories on the devices; `network` is one of a network file system.
    "memory": "/dev/shm",
    "disk": "/var/tmp",
    "network": "",
    "program": "terrace",
    "load_max": 0.5,
    "least": 6,
    "most": 10,
    "state": "/var/tmp/terrace-lab",
}
SCALE: dict[str, Any] = {
    "policies": [
        *("none", "dummy", f"dummy{BEFORE}", "listener", f"listener{BEFORE}"),
        *("lru", "write-buffer"),
    ],
    "sizes": ["4KiB"],
    "seconds": 1.0,
    "most": 6,
    "fast_capacity": "64MiB",
}


def text() -> str:
    """Its parameters as TOML, as the file of any other study begins."""
    values = {"name": NAME, "description": DESCRIPTION, "parameters": PARAMETERS, "scale": SCALE}
    return tomli_w.dumps(values)


def experiment(given: Mapping[str, str], *, is_scaled: bool = False) -> Experiment:
    """The experiment that these values of its parameters, as texts, make."""
    # The parameters are read by what reads those of any experiment, of which only they are left.
    names = "\n".join(f'{key} = "${key}"' for key in PARAMETERS)
    values = tomli_w.dumps({"parameters": PARAMETERS, "scale": SCALE})
    table = experiments.filled(f"{values}\n[put]\n{names}\n", given, is_scaled=is_scaled)["put"]
    return experiments.from_values(_values(table))


@dataclass(frozen=True, slots=True)
class _Store:
    """One store: a policy, or one tier alone, over a pair of tiers."""

    pair: str
    policy: str
    mode: str
    port: int

    @property
    def name(self) -> str:
        return f"{self.pair.replace('/', '-')}.{self.policy}.{self.mode}"

    @property
    def baseline(self) -> str:
        return f"{self.pair.replace('/', '-')}.{SINGLE}.{self.mode}"


def _values(table: Mapping[str, Any]) -> dict[str, Any]:
    _check(table)
    stores = [
        _Store(pair, policy, mode, PORT_FIRST + number)
        for number, (pair, mode, policy) in enumerate(
            (pair, mode, policy)
            for pair in table["pairs"]
            for mode in table["modes"]
            for policy in (SINGLE, *table["policies"])
        )
    ]
    params = {key: table[key] for key in ("object", "kv", "batches", "seconds", "program")}
    return {
        "schema": 1,
        "name": NAME,
        "seed": 4711,
        "reference": stores[0].name,
        "targets": {one.name: _target(one, table) for one in stores},
        "meters": {"model": {"kind": "model", "period": "50ms"}},
        "gate": {"load_max": table["load_max"]},
        "energy": {"idle": {"seconds": 10, "settle": 2}},
        "workloads": {"operations": {"kind": "terrace", "params": params}},
        "factors": {"workload.size": table["sizes"]},
        "repeat": {
            "min": table["least"],
            "max": table["most"],
            "stop": {"metric": ["throughput"], "ci": 0.95, "rel_half_width": 0.1},
        },
    }


def _check(table: Mapping[str, Any]) -> None:
    known_policies = [*POLICIES, *(f"{one}{BEFORE}" for one in POLICIES if one != "none")]
    for key, known in (("pairs", PAIRS), ("policies", known_policies), ("modes", MODES)):
        for one in table[key]:
            if one not in known:
                reason = f"there is no {one!r} here; {right_names(str(one), known)}"
                raise SettingsError(f"parameters.{key}", reason)
        if not table[key]:
            raise SettingsError(f"parameters.{key}", "must name at least one")
    for pair in table["pairs"]:
        for place in PAIRS[pair][:2]:
            if not table[place]:
                reason = f"is missing: pair {pair} needs a directory there"
                raise SettingsError(f"parameters.{place}", reason)


def _target(store: _Store, table: Mapping[str, Any]) -> dict[str, Any]:
    """A store with a set-up of its own: nothing is mounted, which would be another layer."""
    state = f"{table['state']}/{store.name}"
    fast_place, slow_place, slowed = PAIRS[store.pair]
    fast = f"{table[fast_place]}/terrace-lab-{store.name}-fast"
    slow = f"{table[slow_place]}/terrace-lab-{store.name}-slow"
    tiers = [
        f"fast={fast},capacity={table['fast_capacity']}",
        f"slow={slow}" + (f",{slowed}" if slowed else ""),
    ]
    if store.policy == SINGLE:
        tiers = [f"fast={fast}"]
    plain = store.policy.removesuffix(BEFORE)
    policy = "none" if store.policy == SINGLE else POLICIES[plain]
    program = table["program"]
    words = [program, "init", f"{state}/store", "--policy", policy]
    words += [word for tier in tiers for word in ("--tier", tier)]
    up = [
        "set -eu; unset TERRACE_STORE TERRACE_SECRET_FILE",
        f"mkdir -p {shlex.quote(state)}",
        f"test -e {shlex.quote(state)}/store || {shlex.join(words)} >/dev/null",
    ]
    if plain == "listener":
        asked = [program, "--store", f"{state}/store", "policy", "set", "all_events=on"]
        up.append(f"{shlex.join(asked)} >/dev/null")
    if plain != store.policy:
        settings = shlex.quote(f"{state}/store/terrace.toml")
        up.append(f"sed -i 's/^post_events = .*/post_events = \"before\"/' {settings}")
        up.append(f"grep -q '^post_events = \"before\"' {settings}")
    endpoint = f"{state}/store"
    if store.mode == "served":
        up.append(_SERVE.format(state=shlex.quote(state), program=program, port=store.port))
        endpoint = f"terrace://127.0.0.1:{store.port}/?secret={state}/secret"
    gone = shlex.join([state, fast, slow])
    down = _END.format(state=shlex.quote(state), gone=gone)
    return {
        "kind": "store",
        "endpoint": endpoint,
        "setup": ["bash", "-c", "\n".join(up)],
        "teardown": ["bash", "-c", down],
        "usable_bytes": 1 << 30,
        "baseline": store.baseline,
    }


_SERVE = """\
cd {state}
if ! {{ [ -e pid ] && kill -0 "$(cat pid)" 2>/dev/null; }}; then
  [ -e secret ] || (umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n' >secret)
  setsid {program} --store store serve --listen 127.0.0.1:{port} --secret-file secret \\
    >log 2>&1 </dev/null &
  echo $! >pid
  for _ in $(seq 300); do grep -q '^serving ' log && exit 0; sleep 0.1; done
  cat log >&2; exit 1
fi"""

_END = """\
set -eu
if [ -e {state}/pid ]; then
  pid=$(cat {state}/pid)
  kill "$pid" 2>/dev/null || true
  for _ in $(seq 300); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
fi
rm -rf --one-file-system {gone}"""


def show() -> str:
    """The whole experiment as TOML, to be changed by hand."""
    return experiments.freeze(experiment({}))
