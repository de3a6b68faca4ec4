# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Systems are ranked where the blocks allow it, and only there."""

import numpy as np
import pytest

from terrace_lab.numbers.comparison import (
    EQUAL,
    TOO_FEW,
    Ratio,
    compare,
    compare_apart,
    verdict,
)


def blocks(values: np.ndarray) -> dict[int, list[float]]:
    return {block: [float(value)] for block, value in enumerate(values)}


def test_what_a_block_does_to_both_cancels() -> None:
    random = np.random.default_rng(1)
    weather = np.exp(random.normal(0, 0.3, 8))
    theirs = weather * np.exp(random.normal(0, 0.005, 8))
    ours = 1.05 * weather * np.exp(random.normal(0, 0.005, 8))
    found = compare(blocks(ours), blocks(theirs))
    assert found is not None
    assert found.interval is not None
    assert found.interval.low > 1.0
    assert found.p is not None
    assert found.p < 0.01
    apart = compare_apart(ours.tolist(), theirs.tolist())
    assert apart.p is not None
    assert apart.p > 0.2, "without blocks the weather hides the difference"


def test_only_blocks_that_both_have_count() -> None:
    found = compare({1: [2.0], 2: [4.0], 9: [100.0]}, {1: [1.0], 2: [2.0], 5: [7.0]})
    assert found == Ratio(2.0, None, 2, None)
    assert verdict(found, None, higher_is_better=True) == TOO_FEW
    assert compare({1: [1.0]}, {2: [1.0]}) is None


def test_better_and_worse_depend_on_what_is_better() -> None:
    ours = blocks(np.array([2.0, 2.1, 1.9, 2.02, 1.98, 2.05]))
    theirs = blocks(np.array([1.0, 1.01, 0.99, 1.0, 1.02, 0.98]))
    found = compare(ours, theirs)
    assert found is not None
    assert verdict(found, found.p, higher_is_better=True) == "better"
    assert verdict(found, found.p, higher_is_better=False) == "worse"
    assert verdict(found, 0.2, higher_is_better=True) == EQUAL


@pytest.mark.parametrize(("count", "spread"), [(6, 0.1), (10, 0.02)])
def test_equal_systems_are_seldom_ranked(count: int, spread: float) -> None:
    random = np.random.default_rng(3)
    trials, ranked = 100, 0
    for trial in range(trials):
        ours = blocks(np.exp(random.normal(0, spread, count)))
        theirs = blocks(np.exp(random.normal(0, spread, count)))
        found = compare(ours, theirs, seed=trial)
        assert found is not None
        ranked += verdict(found, found.p, higher_is_better=True) != EQUAL
    assert ranked / trials <= 0.05 + 3 * (0.05 * 0.95 / trials) ** 0.5


def test_the_same_values_give_the_same_interval() -> None:
    random = np.random.default_rng(4)
    ours, theirs = (blocks(random.uniform(1, 2, 7)) for _ in range(2))
    assert compare(ours, theirs, "x") == compare(ours, theirs, "x")
