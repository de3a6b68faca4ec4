# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a run came to: the content of `summary.json`, which reports and comparisons are made from.

The analyser writes it from the record, the report reads nothing else but the CSV files beside it.
Units are in the names. Each figure that may be missing is None, never zero.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

SCHEMA = 1


@dataclass(slots=True)
class Interval:
    low: float
    high: float


@dataclass(slots=True)
class Value:
    """One figure over repetitions."""

    values: list[float]
    """All of them, in the order of the repetitions."""
    median: float
    median_interval: Interval | None
    """95 % by order statistics; None below six repetitions."""
    mean: float
    sd: float | None
    """Of the sample; None for one repetition."""


@dataclass(slots=True)
class Box:
    """Spread of samples of power: whiskers reach the last within 1.5 quartile ranges."""

    low: float
    q1: float
    median: float
    q3: float
    high: float
    outliers: list[float]
    count: int


@dataclass(slots=True)
class Energy:
    """Of the scope of the experiment, over the repetitions whose energy is not void."""

    method: str
    """`guarded`: whole samples over phase and guards; `cut`: cut at the marks, with its bound."""
    gross_j: Value
    net_j: Value
    """Without what idling for as long would have taken."""
    error_j: float
    """Of one repetition, largest: gain, offset, noise of the guards and clocks together."""
    mean_w: Value
    peak_w: float | None
    """Highest sample of any repetition."""
    box: Box | None
    per_joule: Value
    """Work per joule, gross; bytes/J or ops/J."""
    edp: dict[str, Value]
    """Energy-delay product E*t^w, in J*s^w of equal work, for w = `0`, `1`, `2` and the weight."""
    edp_normalised: dict[str, float]
    """Its median over that of the reference; empty without one."""
    edp_rescaled: bool
    """Work was not equal (fixed time) and was brought to that of the reference."""
    voided: int
    """Repetitions whose energy is void."""
    by_scope: dict[str, Value] = field(default_factory=dict)
    """Gross, of each host or other scope by itself; empty where there is only one."""


@dataclass(slots=True)
class PercentOfPeak:
    percent: float
    interval: Interval | None
    """95 % by bootstrap of rate and peak together."""
    is_suspicious: bool
    """Above 100: a cache was measured, or the peak was not."""


@dataclass(slots=True)
class Latency:
    percentiles_s: dict[str, Value]
    ecdf: list[tuple[float, float]]
    """Of all repetitions together: seconds, part at or below."""


@dataclass(slots=True)
class Drift:
    """Whether the order of repetitions shows in the figures."""

    spearman: float
    p: float
    first_ratio: float | None
    """The first repetition over the median of the others."""


@dataclass(slots=True)
class Cell:
    """One phase of one workload on one target with one number of clients."""

    trial: str
    target: str
    workload: str
    kind: str
    """Of the workload: `fio`, `compile`, …"""
    phase: str
    clients: int
    factors: dict[str, Any]
    """Further factors of the experiment."""
    unit: str
    direction: str
    work: float
    """Of one repetition, median."""
    rate: Value
    """Work per second."""
    rate_total: float
    """Total work by total time of all repetitions."""
    seconds: Value
    percent_of_peak: PercentOfPeak | None
    latency: Latency | None
    energy: Energy | None
    extra: dict[str, Value]
    stop: str
    """`met`: the intervals are narrow enough; `cap reached`; `too few`; `fixed`."""
    failed: int
    drift: Drift | None
    flags: list[str]
    """What a reader must know of this cell."""
    role: str = "work"
    """`tail` for what follows a phase and does no work of its own."""


@dataclass(slots=True)
class Comparison:
    """A target against the reference, over the blocks that have both."""

    workload: str
    phase: str
    clients: int
    metric: str
    """`rate`, `gross_j`, `per_joule` or `edp1`, which has the weight that is ranked by."""
    target: str
    reference: str
    ratio: float
    """Of the medians, target over reference."""
    interval: Interval | None
    """95 % by bootstrap of blocks."""
    blocks: int
    p: float | None
    p_holm: float | None
    verdict: str
    """`better`, `worse`, `equal within the interval`, `too few blocks`, or why it is not ranked."""


@dataclass(slots=True)
class Peak:
    """Theoretical peak performance of the components, for one target and number of clients."""

    target: str
    clients: int
    direction: str
    value: float
    unit: str
    interval: Interval | None
    binding: str
    """The component that bounds it."""
    terms: dict[str, float]
    """Each component's own bound, in the same unit."""
    missing: list[str]
    """Components that were not measured and might bind lower."""
    workload: str | None = None
    """Where the bound depends on threads and depth of a workload; None for bytes."""
    phase: str | None = None


@dataclass(slots=True)
class Overhead:
    """What a target is slower than its baseline by, over the blocks that have both."""

    target: str
    baseline: str
    workload: str
    phase: str
    clients: int
    factors: dict[str, Any]
    percent: float
    """1 less the ratio of the rates; negative where the target is faster."""
    interval: Interval | None
    blocks: int


@dataclass(slots=True)
class StreamRate:
    """What so many TCP streams side by side reached from one host to another."""

    sender: str
    receiver: str
    streams: int
    rate: Value


@dataclass(slots=True)
class BoundedRate:
    """The highest measured rate at which so many of the requests stay under a bound."""

    target: str
    workload: str
    phase: str
    latency_s: float
    percentile: float
    load_name: str
    """The factor that was raised: `clients`, `rate`, …"""
    load: float | None
    """At that rate; None where no load keeps the bound."""
    rate: float | None
    interval: Interval | None
    unit: str
    is_open: bool
    """The highest load that was tried keeps the bound, so that a higher rate may do so, too."""


@dataclass(slots=True)
class Gap:
    begin_ns: int
    end_ns: int | None
    cause: str


@dataclass(slots=True)
class MeterSummary:
    name: str
    kind: str
    identity: str
    is_modelled: bool
    period_s: float
    channels: dict[str, str]
    """Scope by channel."""
    samples: int
    unusable: dict[str, int]
    """Samples without a value, by quality."""
    gaps: list[Gap]
    gap_seconds: float
    lag_s: float | None
    lag_confidence: float | None


@dataclass(slots=True)
class TargetSummary:
    name: str
    kind: str
    servers: list[str]
    raw_bytes: int | None
    usable_bytes: int | None
    idle_w: Value | None
    active_w: float | None
    """Mean over all phases."""
    usable_bytes_per_idle_w: float | None
    raw_bytes_per_idle_w: float | None
    usable_bytes_per_active_w: float | None
    price: float | None
    price_per_tb: float | None
    price_per_mb_s: dict[str, float]
    """By workload and phase, `seq/write`, at the number of clients with the highest rate."""
    peak_w: float | None
    power_limit_w: float | None
    parameters: dict[str, Any]
    nominal_bytes: int | None = None
    """As printed on the drives."""
    nominal_bytes_per_idle_w: float | None = None


@dataclass(slots=True)
class Repetition:
    """One phase of one repetition, as it is in `derived/metrics.csv`."""

    trial: str
    repetition: int
    order: int
    """Position in the run."""
    block: int
    phase: str
    begin_ns: int
    end_ns: int
    """CLOCK_REALTIME of the runner."""
    clock_bound_s: float
    """What begin and end may be off by."""
    work: float
    seconds: float
    rate: float
    gross_j: float | None
    net_j: float | None
    error_j: float | None
    mean_w: float | None
    energy_void: str | None
    """Why there is no energy; None where there is, or no meter."""
    notes: list[str]


@dataclass(slots=True)
class ReferenceLine:
    """A published figure to be drawn beside what was measured."""

    label: str
    value: float
    unit: str
    workload: str
    phase: str
    source: str
    conditions: str


@dataclass(slots=True)
class Summary:
    schema: int
    name: str
    experiment_hash: str
    run_id: str
    begin_ns: int
    end_ns: int | None
    is_complete: bool
    is_modelled: bool
    """At least one figure of energy comes from a model."""
    reference: str | None
    energy_scope: list[str]
    experiment: dict[str, Any]
    environments: dict[str, dict[str, Any]]
    meters: list[MeterSummary]
    targets: list[TargetSummary]
    peaks: list[Peak]
    cells: list[Cell]
    comparisons: list[Comparison]
    repetitions: list[Repetition]
    reference_lines: list[ReferenceLine] = field(default_factory=list)
    idle_drift: float | None = None
    """Closing idle power over the opening one, minus 1."""
    not_measured: list[str] = field(default_factory=list)
    deviations: list[str] = field(default_factory=list)
    """Where the run is not what the experiment says: fallbacks, accepted drift, resumes."""
    commands: dict[str, list[list[str]]] = field(default_factory=dict)
    """What was run, by trial and phase, as of its first repetition."""
    bounded_rates: list[BoundedRate] = field(default_factory=list)
    subtracted_w: dict[str, float] = field(default_factory=dict)
    """Watts that are in the scope and in no figure of energy: shared parts, by name."""
    shares: dict[str, float] = field(default_factory=dict)
    """The part that figures of energy have of scopes that feed others, too, by name."""
    overheads: list[Overhead] = field(default_factory=list)
    stream_rates: list[StreamRate] = field(default_factory=list)
    workload_hashes: dict[str, str] = field(default_factory=dict)
    """Of what defines the work; runs are merged where they agree."""


def to_json(summary: Summary) -> dict[str, Any]:
    return dataclasses.asdict(summary)


def from_json(value: dict[str, Any]) -> Summary:
    """The summary as it was written; ValueError where that is another schema."""
    if value.get("schema") != SCHEMA:
        raise ValueError(f"schema {value.get('schema')!r} is not {SCHEMA}")
    return typing.cast(Summary, _build(Summary, value))


def _build(kind: Any, value: Any) -> Any:
    """Makes a value of an annotated type out of JSON."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        (kind,) = (one for one in typing.get_args(kind) if one is not type(None))
        return _build(kind, value)
    if origin is list:
        (item,) = typing.get_args(kind)
        return [_build(item, one) for one in value]
    if origin is tuple:
        return tuple(
            _build(item, one) for item, one in zip(typing.get_args(kind), value, strict=True)
        )
    if origin is dict:
        item = typing.get_args(kind)[1]
        return {key: _build(item, one) for key, one in value.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{key: _build(hints[key], one) for key, one in value.items()})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    return value
