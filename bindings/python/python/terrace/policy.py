# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Policies for Terrace in Python.

A policy decides on which tier each segment of each object lives. Terrace tells it what happened
(`observe`), and asks it what to do (`plan`). This file is the manual; docs/tutorials/python.md goes
through it step by step. A policy that moves whatever is read to the first tier:

    from terrace.policy import READ, Policy

    class Eager(Policy):
        def __init__(self, view):
            self.wanted = set()

        def observe(self, view, events):
            self.wanted.update(events["slot"][events["kind"] == READ].tolist())

        def plan(self, view, actions):
            for slot in sorted(self.wanted):
                actions.promote(slot, to=0, reason="it was read")
            self.wanted.clear()

`terrace policy run eager.py` runs it on a store until Ctrl-C, `terrace policy use ./eager.py` for
good, `terrace replay TRACE --policy ./eager.py` on a recorded load. None of them needs this file to
be installed, only NumPy; the package `terrace` has it for editors and tests.

A policy is pure: it reads no clock (`view.now_ns` is the time) and no files, and takes chance from
`view.random` only; the same load then gives the same decisions. It has its process for itself, and
may take seconds before it is replaced; applications never wait for it. An exception that leaves it
ends it: the store goes on with its fallback, and shows the traceback. What it prints goes to
standard error. NumPy's linear algebra has one thread, as the processors are the store's and its
users', unless OPENBLAS_NUM_THREADS, OMP_NUM_THREADS or MKL_NUM_THREADS is in the environment of
what started the policy.

Units are in the names: _bytes, _ns (nanoseconds, monotonic, with an arbitrary origin), _s, _w.
"""

from __future__ import annotations

import math
import random
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from operator import index
from pathlib import Path
from typing import Any, SupportsIndex

try:
    import numpy as np
    import numpy.typing as npt
except ImportError as error:  # Told to whoever started the policy; see host.py.
    MISSING: ImportError | None = error
else:
    MISSING = None

# Kinds of events: events["kind"].
CREATE, PRESENT, OPEN, CLOSE, READ, WRITE, SET_LEN, DELETE = range(1, 9)
QUEUED, MOVED, COPIED, UNCOPIED, RECEIPT, TIMER, PIN, UNPIN = range(9, 17)
STAT, SYNC = range(17, 19)  # only for a policy with these in its `interest`

# Advice of applications: segments["temperature"].
UNKNOWN, HOT, COLD = range(3)

# The slot of events that are about no segment, such as TIMER.
SLOT_NONE = 0xFFFF_FFFF


class Outcome(IntEnum):
    """How an action ended: events["outcome"] of receipts."""

    DONE = 0  # the segment is there
    STALE = 1  # the slot is another segment's, or none's, by now
    ALREADY = 2  # it was there already
    PINNED = 3  # a person pinned it
    TOO_WEAK = 4  # the target cannot keep what the segment was promised
    INVALID = 5  # no such tier, or nothing to drop or cancel
    BUSY = 6  # another migration of it waits or runs, or too many do
    HOT_WRITE = 7  # writers never paused long enough
    NO_SPACE = 8  # the target is full
    IO = 9  # a tier failed
    CANCELLED = 10  # somebody cancelled it
    DRY_RUN = 11  # only decided: the store runs dry


if MISSING is None:
    # One thing that happened, or several of a kind where a full ring had to sum them up: `count`
    # tells how many; lengths and latencies are sums then. `tier` served it, or has the segment now.
    EVENT = np.dtype(
        [
            ("kind", "<u4"),
            ("slot", "<u4"),
            ("incarnation", "<u4"),
            ("count", "<u4"),
            ("time_ns", "<u8"),
            ("offset_bytes", "<u8"),
            ("length_bytes", "<u8"),
            ("latency_ns", "<u8"),
            ("tier", "<u4"),
            ("outcome", "<u4"),
        ]
    )
    # A segment: a contiguous part of an object, the unit of location and migration; most objects
    # have one. Its slot is its index. Slots are used again after a delete; `incarnation` tells the
    # users of a slot apart. `copies` has bit 1 << tier for each clean copy.
    SEGMENT = np.dtype(
        [
            ("start_bytes", "<u8"),
            ("size_bytes", "<u8"),
            ("created_ns", "<u8"),
            ("last_read_ns", "<u8"),
            ("last_write_ns", "<u8"),
            ("last_close_ns", "<u8"),
            ("incarnation", "<u4"),
            ("copies", "<u4"),
            ("opens", "<u4"),
            ("segment", "<u4"),
            ("tier", "u1"),
            ("persistency", "u1"),
            ("temperature", "u1"),
            ("is_live", "?"),
            ("is_moving", "?"),
            ("is_pinned", "?"),
            ("reserved", "V2"),
        ]
    )
    Records = npt.NDArray[np.void]
    Slots = npt.NDArray[np.intp]
    _Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Tier:
    """A tier as it is now. Its number is its index in `view.tiers`; 0 is the most preferred."""

    name: str
    capacity_bytes: float  # inf: not bounded
    latency_ns: int
    read_bytes_per_s: float  # of one large read; inf where nothing was said
    write_bytes_per_s: float
    parallelism: int
    idle_w: float
    active_w: float
    low: float  # watermarks: fractions of the capacity
    high: float
    critical: float
    persistency: int  # 0 none, 1 process, 2 storage, 3 shared
    used_bytes: int  # of primaries
    reserved_bytes: int  # promised to growing objects and running migrations
    copy_bytes: int  # of clean copies, which the store drops by itself when it needs room
    garbage_bytes: int  # superseded and not yet deleted
    incoming_bytes: int  # of migrations that wait or run
    outgoing_bytes: int
    utilisation: float  # share of the last interval that applications kept it busy
    is_writable: bool
    # What its provider charges, in the currency of the store's configuration; 0 for what is free.
    price_per_1000_write_requests: float = 0.0
    price_per_1000_read_requests: float = 0.0
    price_per_gb_month: float = 0.0  # of 10^9 bytes stored for 730 hours
    price_per_gb_read: float = 0.0  # of 10^9 bytes read

    def expected_bytes(self) -> int:
        """What primaries will take when all queued migrations have ended: plan with this, so that
        the same room is not freed twice."""
        return max(0, self.used_bytes + self.incoming_bytes - self.outgoing_bytes)

    def read_s(self, size_bytes: float) -> float:
        """Seconds that one read takes on an idle tier."""
        return self.latency_ns * 1e-9 + size_bytes / self.read_bytes_per_s

    def write_s(self, size_bytes: float) -> float:
        """Seconds that one write takes on an idle tier."""
        return self.latency_ns * 1e-9 + size_bytes / self.write_bytes_per_s


class View:
    """What is where. It changes between calls only."""

    now_ns: int
    keys: list[str]  # by slot: "namespace/name"
    random: random.Random  # the only chance that a policy may use

    def __init__(self, seed: int) -> None:
        self.now_ns, self.keys = 0, []
        self.random = random.Random(seed)
        self._room = np.zeros(1024, SEGMENT)
        self._count = 0
        # Of the tiers, while nobody looked at them.
        self._tiers_told: list[dict[str, Any]] = []
        self._tiers: list[Tier] = []
        # Events, segments that changed and their slots, while nobody looked at the segments.
        self._pending: tuple[Records, _Bytes, _Bytes] | None = None

    @property
    def tiers(self) -> list[Tier]:
        """The tiers, the most preferred first."""
        if self._tiers_told:
            self._tiers, self._tiers_told = [_tier(told) for told in self._tiers_told], []
        return self._tiers.copy()

    @property
    def segments(self) -> Records:
        """All slots, dead ones included, with the fields of SEGMENT."""
        self._catch_up()
        return self._room[: self._count]

    def live(self) -> Slots:
        """The slots that have a segment."""
        return np.flatnonzero(self.segments["is_live"])

    def on(self, tier: int) -> Slots:
        """The slots whose segments have their primary on a tier."""
        segments = self.segments
        return np.flatnonzero(segments["is_live"] & (segments["tier"] == tier))

    def last_access_ns(self) -> npt.NDArray[np.uint64]:
        """When each segment was last touched, by slot."""
        segments = self.segments
        latest: npt.NDArray[np.uint64] = np.maximum(
            np.maximum(segments["last_read_ns"], segments["last_write_ns"]), segments["created_ns"]
        )
        return latest

    def _update(self, head: dict[str, Any], news: _Bytes) -> Records:
        """Takes over what a call says, and returns the events."""
        self.now_ns = head["now_ns"]
        if "tiers" in head:
            self._tiers_told = head["tiers"]
        self._grow(head["slots"])
        for slot, key in head["keys"]:
            self.keys[slot] = key
        events_end = EVENT.itemsize * head["events"]
        segments_end = events_end + SEGMENT.itemsize * head["changed"]
        events = news[:events_end].view(EVENT)
        if len(news) > 0:
            self._pending = events, news[events_end:segments_end], news[segments_end:]
        return events

    def _catch_up(self) -> None:
        """Does to the segments what events changed since they were last read."""
        if self._pending is None:
            return
        (events, rows, slots), self._pending = self._pending, None
        segments = self._room
        is_read = events["kind"] == READ
        reads = events["slot"], events["time_ns"]
        if not is_read.all():
            reads = reads[0][is_read], reads[1][is_read]
            self._write(events, events["kind"] == WRITE)
        # As the indices that NumPy would make of them, more slowly.
        segments["last_read_ns"][reads[0].astype(np.intp)] = reads[1]
        if len(slots) > 0:
            # What was sent whole is as it is after all of these events. As opaque bytes: field by
            # field would be several times as slow.
            opaque = np.dtype(f"V{SEGMENT.itemsize}")
            segments.view(opaque)[slots.view("<u4")] = rows.view(opaque)

    def _write(self, events: Records, is_write: npt.NDArray[np.bool_]) -> None:
        segments = self._room
        changed = events["slot"][is_write].astype(np.intp)
        segments["last_write_ns"][changed] = events["time_ns"][is_write]
        ends = (events["offset_bytes"] + events["length_bytes"])[is_write]
        is_longer = ends > segments["size_bytes"][changed]
        if is_longer.any():
            np.maximum.at(segments["size_bytes"], changed[is_longer], ends[is_longer])

    def _grow(self, count: int) -> None:
        if count > len(self._room):
            room = np.zeros(max(count, 2 * len(self._room)), SEGMENT)
            room[: self._count] = self._room[: self._count]
            self._room = room
        self.keys.extend([""] * (count - len(self.keys)))
        self._count = count


def _tier(told: dict[str, Any]) -> Tier:
    bounded: dict[str, Any] = {
        name: float("inf") if value is None else value for name, value in told.items()
    }
    return Tier(**bounded)


class Actions:
    """Takes the wishes of a plan, most useful first.

    The store checks each and carries it out when it can; a RECEIPT event tells how it ended. Each
    method returns False once the budget is used: stop then, there is a next round.
    """

    bytes_left: int
    count_left: int

    def __init__(self, view: View, bytes_left: int, count_left: int) -> None:
        self.bytes_left, self.count_left = bytes_left, count_left
        self._view = view
        self._packed: list[bytes] = []
        self._reasons: dict[str, int] = {}

    def move(
        self,
        slot: SupportsIndex,
        to: SupportsIndex,
        reason: str,
        *,
        priority: int = 0,
        benefit_s: float = 0.0,
    ) -> bool:
        """Moves the primary to a tier; a clean copy there becomes it."""
        return self._push(1, slot, to, reason, priority, benefit_s)

    def promote(
        self,
        slot: SupportsIndex,
        to: SupportsIndex,
        reason: str,
        *,
        priority: int = 0,
        benefit_s: float = 0.0,
    ) -> bool:
        """Moves the primary to a tier and keeps the old location as a clean copy.

        `benefit_s` is how many seconds it should save; `terrace explain` compares.
        """
        return self._push(2, slot, to, reason, priority, benefit_s)

    def copy(
        self,
        slot: SupportsIndex,
        to: SupportsIndex,
        reason: str,
        *,
        priority: int = 0,
        benefit_s: float = 0.0,
    ) -> bool:
        """Makes a clean copy on a tier."""
        return self._push(3, slot, to, reason, priority, benefit_s)

    def drop_copy(self, slot: SupportsIndex, tier: SupportsIndex, reason: str) -> bool:
        """Drops the clean copy on a tier."""
        return self._push(4, slot, tier, reason, 0, 0.0)

    def cancel(self, slot: SupportsIndex, reason: str) -> bool:
        """Cancels the migration that waits or runs."""
        return self._push(5, slot, 0, reason, 0, 0.0)

    def _push(
        self,
        kind: int,
        meant: SupportsIndex,
        target: SupportsIndex,
        reason: str,
        priority: int,
        benefit_s: float,
    ) -> bool:
        slot, tier, segments = index(meant), index(target), self._view.segments
        if not 0 <= tier < 1 << 32:
            tier = (1 << 32) - 1  # No tier either, which the store says.
        if not 0 <= slot < len(segments):
            raise IndexError(f"there is no slot {slot}, only {len(segments)}")
        segment = segments[slot]
        has_copy = tier < 32 and int(segment["copies"]) >> tier & 1
        cost_bytes = int(segment["size_bytes"]) if kind <= 3 and not has_copy else 0
        if self.count_left < 1 or cost_bytes > self.bytes_left:
            return False
        self.count_left -= 1
        self.bytes_left -= cost_bytes
        number = self._reasons.setdefault(str(reason), len(self._reasons))
        incarnation = int(segment["incarnation"])
        self._packed.append(
            struct.pack("<4IiId", kind, slot, incarnation, tier, priority, number, benefit_s)
        )
        return True


@dataclass(frozen=True)
class Rule:
    """Where new segments go: all that it says must be so."""

    tier: int
    glob: str | None = None  # over "namespace/name": * is any text, ? one character
    size_min_bytes: int | None = None  # an object whose size nobody said matches no size
    size_max_bytes: int | None = None
    temperature: str | None = None  # "hot", "cold", "unknown": advice of the application

    def __post_init__(self) -> None:
        _check_tier(self.tier)
        if self.glob is not None and not isinstance(self.glob, str):
            raise TypeError(f"expected a pattern as `glob`, not {self.glob!r}")
        if self.temperature not in (None, "hot", "cold", "unknown"):
            raise ValueError(f"expected `hot`, `cold` or `unknown`, not {self.temperature!r}")


@dataclass(frozen=True)
class Placement:
    """Where new segments go; creates never wait for a policy, so this is asked in its place."""

    tier: int = 0  # where no rule matches; the store goes on to the next where it is full
    rules: list[Rule] = field(default_factory=list)  # the first that matches counts
    segment_bytes: int | None = None  # cuts new objects into segments of this size

    def __post_init__(self) -> None:
        _check_tier(self.tier)


def _check_tier(tier: Any) -> None:
    if not isinstance(tier, SupportsIndex) or index(tier) < 0:
        raise TypeError(f"expected the number of a tier, from 0, not {tier!r}")


class Parameter:
    """A setting of a policy, as an attribute of its class:

        high = Parameter(0.9, "share of the first tier from which on it is emptied", 0, 1)

    In the policy `self.high` is its value. People set it in the configuration or with
    `terrace policy set high=0.8`; the type is that of the default (float, int, bool, str), the
    bounds are included. `terrace tune` searches switches, and numbers with both bounds.
    """

    def __init__(
        self,
        default: float | bool | str,
        description: str,
        least: float | None = None,
        most: float | None = None,
    ) -> None:
        if not isinstance(default, bool | int | float | str):
            raise TypeError(f"expected a number, a switch or a text as default, not {default!r}")
        self.default, self.description, self.least, self.most = default, description, least, most

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, policy: Any, owner: type | None = None) -> Any:
        return self if policy is None else policy.__dict__.get(self.name, self.default)

    def __set__(self, policy: Any, value: Any) -> None:
        policy.__dict__[self.name] = value

    def parse(self, text: str) -> float | bool | str:
        """The value that a text means, or ValueError."""
        if isinstance(self.default, bool):
            if text not in ("on", "off"):
                raise ValueError("expected `on` or `off`")
            return text == "on"
        if isinstance(self.default, str):
            return text
        try:
            value = type(self.default)(text)
        except ValueError:
            kind = "a whole number" if isinstance(self.default, int) else "a number"
            raise ValueError(f"expected {kind}") from None
        is_low = self.least is not None and value < self.least
        is_high = self.most is not None and value > self.most
        if is_low or is_high or math.isnan(value):
            least = "-inf" if self.least is None else self.least
            most = "inf" if self.most is None else self.most
            raise ValueError(f"expected a number from {least} to {most}")
        return value

    def bounds(self) -> str | dict[str, tuple[float, float]] | None:
        """Its values for those that search them, where both ends are known."""
        if isinstance(self.default, bool):
            return "switch"
        if isinstance(self.default, str) or self.least is None or self.most is None:
            return None
        if not (math.isfinite(self.least) and math.isfinite(self.most)):
            return None
        if isinstance(self.default, int):
            whole = math.ceil(self.least), math.floor(self.most)
            return {"whole": whole} if all(abs(end) < 2**63 for end in whole) else None
        return {"numbers": (self.least, self.most)}

    def show(self, value: float | bool | str) -> str:
        """The text of a value."""
        return ("on" if value else "off") if isinstance(self.default, bool) else str(value)


class Unsupported(Exception):
    """For `message` and `restore`: a message of this kind, or a state of this version, is not
    known."""


class Policy:
    """The base of a policy. Everything is optional; one that says nothing moves nothing.

    Calls never overlap. A ValueError from `__init__`, `message`, `restore` and a parameter refuses,
    with its text for the person who asked; any other exception ends the policy.
    """

    placement: Placement = Placement()  # set it whenever you like; it counts from the next answer
    state_version: int = 0  # of what `save` writes; change it with the format
    interest: tuple[int, ...] = ()  # optional kinds of events that it wants: STAT, SYNC

    def __init__(self, view: View) -> None:
        """Starts over these tiers. The segments that there are come as PRESENT events."""

    def observe(self, view: View, events: Records) -> None:
        """Takes note of events, oldest first; the view already includes what they say. The array is
        the policy's own, to keep and to change."""

    def plan(self, view: View, actions: Actions) -> None:
        """Asks for actions, most useful first."""

    def message(self, view: View, kind: str, body: bytes) -> bytes:
        """Answers `terrace policy message`, and applications."""
        raise Unsupported(f"there are no messages of kind {kind!r}")

    def save(self, view: View) -> bytes:
        """What a restart should keep. Slots differ after it, so name segments by key."""
        return b""

    def restore(self, view: View, version: int, state: bytes) -> None:
        """Takes over what `save` wrote, perhaps of another version. Events come after it."""

    def parameter_changed(self, name: str) -> None:
        """Called after a parameter was set."""


def parameters(policy: type[Policy]) -> Iterator[Parameter]:
    """The parameters of a policy, its bases' first."""
    seen = set()
    for base in reversed(policy.__mro__):
        for value in vars(base).values():
            if isinstance(value, Parameter) and value.name not in seen:
                seen.add(value.name)
                yield value


def load(path: str) -> type[Policy]:
    """The policy of a file: the one class in it that has `Policy` as its base and no class in the
    file below it."""
    sys.path.insert(0, str(Path(path).resolve().parent))
    scope: dict[str, Any] = {"__name__": "terrace_policy_file", "__file__": path}
    source = Path(path).read_bytes()
    exec(compile(source, path, "exec"), scope)
    mine = [
        value
        for value in scope.values()
        if isinstance(value, type)
        and issubclass(value, Policy)
        and value.__module__ == "terrace_policy_file"
    ]
    last = [one for one in mine if not any(one in other.__mro__[1:] for other in mine)]
    if len(last) != 1:
        names = ", ".join(one.__name__ for one in last) or "none"
        raise ValueError(f"{path}: expected one class derived from terrace.policy.Policy: {names}")
    return last[0]
