# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Offsets of clocks hold within their bounds, and steps of the wall clock move nothing."""

import random

from terrace_lab.clocks import Line, Zero, measure
from terrace_lab.records import Stamp


class Machines:
    """A runner and a host whose clocks differ in zero and rate, with slow and uneven messages."""

    def __init__(self, seed: int, offset_ns: int, drift: float) -> None:
        self.true_ns = 10**15
        self.random = random.Random(seed)
        self.offset_ns = offset_ns
        self.drift = drift

    def pass_by(self, ns: float) -> None:
        self.true_ns += round(ns)

    def runner(self) -> Stamp:
        return Stamp(0, self.true_ns)

    def on_host(self, true_ns: int) -> int:
        return round((true_ns - 10**15) * (1 + self.drift)) + 10**15 - self.offset_ns

    def ask(self) -> Stamp:
        # The way there and the way back differ, and now and then by much.
        self.pass_by(self.random.expovariate(1 / 60_000) + 20_000)
        answer = Stamp(0, self.on_host(self.true_ns))
        self.pass_by(self.random.expovariate(1 / 300_000) + 20_000)
        return answer


def test_marks_of_hosts_are_within_the_bound() -> None:
    for seed in range(50):
        machines = Machines(seed, offset_ns=seed * 7_777_777_777, drift=(seed - 25) * 1e-6)
        first = measure(machines.ask, machines.runner)
        marks = []
        for _ in range(20):
            machines.pass_by(3e9)
            marks.append((machines.true_ns, machines.on_host(machines.true_ns)))
        last = measure(machines.ask, machines.runner)
        line = Line(first, last)
        for true_ns, host_ns in marks:
            assert abs(line.to_runner(host_ns) - true_ns) <= line.bound_ns + 1, seed


def test_a_step_of_the_wall_clock_is_seen_and_moves_no_mark() -> None:
    zero = Zero(real_ns=10**18, raw_ns=5 * 10**9)
    before = zero.real(6 * 10**9)
    assert before == 10**18 + 10**9
    stepped = Stamp(real_ns=10**18 + 10**9 - 2 * 10**9, raw_ns=6 * 10**9)
    assert zero.step_ns(stepped) == -2 * 10**9
    assert zero.real(stepped.raw_ns) == before
