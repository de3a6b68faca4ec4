# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a store reports of tiers, objects and migrations, with tables for notebooks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from html import escape
from typing import Any, TypeVar

_Report = TypeVar("_Report")


def _make(kind: type[_Report], found: dict[str, Any], **made: Any) -> _Report:
    """A report from JSON. What a later version of the store adds is left out."""
    names = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in found.items() if name in names} | made)


def size(count: float | None) -> str:
    """Bytes as people read them."""
    if count is None:
        return "unlimited"
    unit = 0
    while count >= 1024 and unit < 5:
        count /= 1024
        unit += 1
    return f"{count:.0f} B" if unit == 0 else f"{count:.1f} {'KMGTP'[unit - 1]}iB"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """A table in HTML."""
    parts = ["<table>"]
    if caption:
        parts.append(f"<caption>{escape(caption)}</caption>")
    parts.append("<tr>" + "".join(f"<th>{escape(head)}</th>" for head in heads) + "</tr>")
    for row in rows:
        parts.append("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>")
    parts.append("</table>")
    return "".join(parts)


@dataclass(frozen=True)
class LedgerReport:
    """What was done with an object or on a tier since the store was opened."""

    reads: int
    read_bytes: int
    writes: int
    written_bytes: int
    device_ns: int
    migration_wait_ns: int
    guard_wait_ns: int
    sync_ns: int
    moves_in: int
    moves_out: int
    moved_in_bytes: int
    moved_out_bytes: int
    move_device_ns: int


@dataclass(frozen=True)
class TierReport:
    """A tier as it is now. `capacity_bytes` is `None` without a bound, `offline` the reason why it
    cannot be used."""

    name: str
    target: str
    offline: str | None
    is_writable: bool
    persistency: str
    capacity_bytes: int | None
    used_bytes: int
    reserved_bytes: int
    copy_bytes: int
    garbage_bytes: int
    kept_bytes: int
    segments: int
    latency_ns: int
    read_bytes_per_s: float | None
    write_bytes_per_s: float | None
    idle_w: float
    active_w: float
    price_per_1000_write_requests: float
    price_per_1000_read_requests: float
    price_per_gb_month: float
    price_per_gb_read: float
    modelled_energy_j: float
    ledger: LedgerReport

    @classmethod
    def from_json(cls, text: str) -> list[TierReport]:
        return [
            _make(cls, tier, ledger=_make(LedgerReport, tier["ledger"]))
            for tier in json.loads(text)
        ]


@dataclass(frozen=True)
class MoveReport:
    """A migration that waits, runs or has ended."""

    id: int  # noqa: A003
    key: str
    segment: int
    kind: str
    from_: str
    to: str
    state: str
    outcome: str | None
    reason: str
    size_bytes: int
    copied_bytes: int
    detail: str


@dataclass(frozen=True)
class HistoryReport:
    """Why a segment is where it is: one past decision."""

    wall_ns: int
    by: str
    what: str
    tier: str
    reason: str
    bytes: int  # noqa: A003
    duration_ns: int
    modelled_energy_j: float
    from_: str | None
    expected_benefit_s: float | None
    measured_benefit_s: float | None
    accesses: int


@dataclass(frozen=True)
class SegmentReport:
    """Where a segment is, and why."""

    segment: int
    start_bytes: int
    size_bytes: int
    allocated_bytes: int
    tier: str
    copies: list[str]
    generation: int
    stored_as: str
    path: str | None
    moving: MoveReport | None
    held: str | None
    history: list[HistoryReport]


@dataclass(frozen=True)
class Explanation:
    """Everything about an object: what `terrace explain` shows."""

    key: str
    object_id: int
    size_bytes: int
    created_ns: int
    modified_ns: int
    persistency: str
    is_pinned: bool
    opens: int
    segments: list[SegmentReport]
    ledger: LedgerReport

    @classmethod
    def from_json(cls, text: str) -> Explanation:
        found = json.loads(text)
        return _make(
            cls,
            found,
            segments=[_segment(one) for one in found["segments"]],
            ledger=_make(LedgerReport, found["ledger"]),
        )

    def _repr_html_(self) -> str:
        rows = []
        for one in self.segments:
            last = one.history[-1] if one.history else None
            why = f"{last.what} by {last.by}: {last.reason}" if last else ""
            place = f"{one.tier} (moving to {one.moving.to})" if one.moving else one.tier
            rows.append((one.segment, size(one.size_bytes), place, ", ".join(one.copies), why))
        pinned = ", pinned" if self.is_pinned else ""
        caption = f"{self.key}: {size(self.size_bytes)}, level {self.persistency}{pinned}"
        return table(("segment", "size", "tier", "copies", "why it is there"), rows, caption)


def _segment(found: dict[str, Any]) -> SegmentReport:
    moving = found["moving"]
    return _make(
        SegmentReport,
        found,
        moving=_make(MoveReport, moving, from_=moving["from"]) if moving else None,
        history=[_make(HistoryReport, one, from_=one["from"]) for one in found["history"]],
    )


@dataclass(frozen=True)
class Notice:
    """Something that happened in a store. `details` depend on `kind`: `migration`, `tier`,
    `policy`, `scrub`, or `lost` where the program was too slow for `count` notices."""

    number: int
    wall_ns: int
    kind: str
    details: dict[str, Any]

    @classmethod
    def from_json(cls, text: str) -> Notice:
        found = json.loads(text)
        number, wall_ns, kind = found.pop("number"), found.pop("wall_ns"), found.pop("kind")
        return cls(number, wall_ns, kind, found)
