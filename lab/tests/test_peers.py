# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What `benches/peers` makes of the rows that it measured."""

import argparse
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PEERS = runpy.run_path(str(Path(__file__).resolve().parents[2] / "benches" / "peers"))
judge: Callable[[dict[str, Any], int], list[dict[str, str]]] = PEERS["judge"]

GROUPS = 20

Bounds = dict[str, tuple[float, float]]


def judged(row: str, bounds: Bounds, groups: int = GROUPS, **cpu_us: float) -> list[str]:
    """The verdicts on a row, from 95 % bounds of how many times the others we are."""
    places: list[dict[str, Any]] = [{"name": "terrace", "first_times": None}]
    for name, (low, high) in bounds.items():
        places.append(
            {"name": name.replace("_", "-"), "first_times": {"low95": low, "high95": high}}
        )
    for place in places:
        place["daemon_cpu_us_per_op"] = cpu_us.get(place["name"], 10.0)
    bars = judge({"row": row, "places": places}, groups)
    return [bar["verdict"] for bar in bars]


@pytest.mark.parametrize(
    ("moosefs", "ceph", "passes_on", "verdict"),
    [
        # Either of both limits is enough, with all of its bound.
        ((5.0, 6.0), (7.0, 8.0), (0.1, 0.2), "met"),
        ((1.0, 2.0), (1.0, 2.0), (0.6, 0.7), "met"),
        # Every peer counts, also the one that does best.
        ((4.0, 4.9), (7.0, 8.0), (0.1, 0.2), "missed"),
        ((4.0, 5.0), (7.0, 8.0), (0.1, 0.2), "not resolved"),
        ((4.0, 5.0), (4.0, 4.9), (0.1, 0.2), "missed"),
        ((1.0, 2.0), (1.0, 2.0), (0.5, 0.6), "not resolved"),
        ((1.0, 2.0), (1.0, 2.0), (0.5, 0.59), "missed"),
    ],
)
def test_names_reach_a_multiple_of_the_peers_or_a_part_of_the_daemon_that_passes_on(
    moosefs: tuple[float, float],
    ceph: tuple[float, float],
    passes_on: tuple[float, float],
    verdict: str,
) -> None:
    bounds = {"moosefs": moosefs, "ceph": ceph, "passes_on": passes_on, "native": (0.0, 0.1)}
    assert judged("stat", bounds)[0] == verdict


def test_a_shared_file_is_held_against_the_directory_beside_it_and_cpu_is_not_asked_for() -> None:
    bounds: Bounds = {"ceph": (1.0, 1.5), "passes_on": (9.0, 9.0), "native": (0.9, 1.0)}
    assert judged("shared-seq-read-1m", bounds) == ["met"]
    bounds["native"] = (0.8, 0.89)
    assert judged("shared-seq-read-1m", bounds) == ["missed"]
    bounds["ceph"] = (2.0, 2.1)
    assert judged("shared-seq-read-1m", bounds) == ["met"]


@pytest.mark.parametrize(("ours", "verdict"), [(4.0, "met"), (4.1, "missed")])
def test_cpu_is_a_fifth_of_that_of_the_peer_with_the_least(ours: float, verdict: str) -> None:
    bounds = {"moosefs": (9.0, 9.0), "ceph": (9.0, 9.0), "passes_on": (1.0, 1.0)}
    assert judged("stat", bounds, terrace=ours, moosefs=20.0, ceph=90.0) == ["met", verdict]


def test_without_peers_the_daemon_that_passes_on_is_left() -> None:
    assert judged("stat", {"passes_on": (0.6, 0.7)}) == ["met"]
    assert judged("stat", {"passes_on": (0.5, 0.59)}) == ["missed"]


def test_few_groups_support_no_verdict() -> None:
    bounds = {"ceph": (9.0, 9.0), "passes_on": (1.0, 1.0)}
    assert judged("stat", bounds, GROUPS - 1, terrace=1.0) == ["not resolved", "not resolved"]
    assert judged("stat", bounds, GROUPS, terrace=1.0) == ["met", "met"]


@pytest.mark.parametrize("before", ["N", "Y"])
def test_the_kernel_offers_io_uring_as_long_as_it_is_measured(
    before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offers = tmp_path / "enable_uring"
    offers.write_text(f"{before}\n")
    monkeypatch.setitem(judge.__globals__, "URING", offers)
    arguments = argparse.Namespace(
        scripts=tmp_path, terrace=tmp_path, uring=True, directory=tmp_path
    )
    stage = PEERS["Stage"](arguments)
    stage.offer_uring()
    assert offers.read_text().strip() == "Y"
    stage.tear_down()
    assert offers.read_text().strip() == before
    assert list(tmp_path.iterdir()) == [offers]
