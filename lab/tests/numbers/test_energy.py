# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Energy of known waveforms, for every kind of samples."""

import numpy as np
import pytest
from waves import Wave

from terrace_lab.numbers.energy import Guard, Part, Rules, Taken, energies
from terrace_lab.numbers.series import Channel, Readings, Series, series
from terrace_lab.records import Kind

ANY_LENGTH = Rules(min_periods=0)
KINDS = list(Kind)


def channel(period_s: float, gain: float = 0.0, lag_s: float = 0.0) -> Channel:
    return Channel("m", "p1", "s1", period_s, gain, 0.0, lag_s=lag_s)


def sampled(
    wave: Wave, kind: Kind, period_s: float, offset_s: float, noise_w: float = 0.0, lag_s: float = 0
) -> Series:
    """What a meter sees of a wave: exact, but for noise."""
    end = np.arange(offset_s + period_s, wave.end_s, period_s)
    begin = end - period_s
    if kind is Kind.AVERAGE:
        value = wave.energy(begin - lag_s, end - lag_s) / period_s
    elif kind is Kind.INSTANT:
        value = wave.power(end - lag_s)
    else:
        value = 1e6 + wave.energy(0.0, end - lag_s)
    if noise_w:
        value = value + np.random.default_rng(7).normal(0, noise_w, len(value))
    readings = Readings(kind, begin, end, value, np.ones(len(end), dtype=bool))
    return series(readings, channel(period_s, lag_s=lag_s))


def one_phase(periods: float, period_s: float, guard_s: float = 0.0) -> tuple[Wave, Part]:
    """Load of 200 W over idle of 100 W."""
    guard = guard_s or 6 * period_s
    wave = Wave()
    wave.hold(guard, 100)
    wave.hold(periods * period_s, 200)
    wave.hold(guard + period_s, 100)
    return wave, Part(guard, guard + periods * period_s, 0.0)


def taken(
    one: Series, wave: Wave, part: Part, *, guarded: bool, rules: Rules = ANY_LENGTH
) -> Taken:
    before, after = Guard(0.0, part.begin_s), Guard(part.end_s, wave.end_s)
    if guarded:
        return energies(one, [part], before, after, rules)[0]
    return energies(one, [part], None, None, rules)[0]


def offsets(period_s: float, count: int = 150) -> list[float]:
    return list(np.random.default_rng(1).uniform(0, period_s, count))


@pytest.mark.parametrize("period_s", [0.05, 0.2, 1.0])
@pytest.mark.parametrize("periods", [3, 10, 20.4, 60])
@pytest.mark.parametrize("kind", [Kind.AVERAGE, Kind.COUNTER])
def test_guards_take_the_bias_away(kind: Kind, periods: float, period_s: float) -> None:
    for offset in offsets(period_s, 30):
        wave, part = one_phase(periods, period_s)
        found = taken(sampled(wave, kind, period_s, offset), wave, part, guarded=True)
        assert found.is_guarded
        assert found.joules == pytest.approx(200 * part.seconds, rel=1e-9), offset


@pytest.mark.parametrize("kind", [Kind.AVERAGE, Kind.COUNTER])
@pytest.mark.parametrize("periods", [3, 10, 20, 60])
def test_cutting_at_the_marks_books_too_little(kind: Kind, periods: int) -> None:
    """By dP dt / 6 at each of both edges, on average, and never by more than is said."""
    relative = []
    for offset in offsets(0.05):
        wave, part = one_phase(periods, 0.05)
        found = taken(sampled(wave, kind, 0.05, offset), wave, part, guarded=False)
        assert not found.is_guarded
        error = found.joules - 200 * part.seconds
        assert -2 * 100 * 0.05 / 4 <= error <= 1e-9
        assert abs(error) <= 2**0.5 * found.error_j + 1e-9
        relative.append(error / (200 * part.seconds))
    assert np.mean(relative) == pytest.approx(-1 / (6 * periods), rel=0.15)


@pytest.mark.parametrize("periods", [10, 20.4, 60])
def test_instants_have_no_bias_and_say_how_sure_they_are(periods: float) -> None:
    errors, within = [], []
    for offset in offsets(0.05, 300):
        wave, part = one_phase(periods, 0.05)
        found = taken(sampled(wave, Kind.INSTANT, 0.05, offset), wave, part, guarded=True)
        errors.append(found.joules - 200 * part.seconds)
        within.append(abs(errors[-1]) <= found.error_j)
    assert abs(np.mean(errors)) < 3 * np.std(errors) / len(errors) ** 0.5 + 1e-9
    assert np.mean(within) > 0.93


@pytest.mark.parametrize("kind", KINDS)
def test_ramps_and_bursts_are_within_the_error(kind: Kind) -> None:
    outside = 0
    for offset in offsets(0.1, 60):
        wave = Wave()
        wave.hold(1.0, 80)
        wave.hold(2.0, 90, slope=40)
        wave.hold(3.0, 150, amplitude=50, frequency=1.3)
        wave.hold(0.7, 220, amplitude=15, frequency=7.0)
        wave.hold(1.2, 80)
        part = Part(1.0, 6.7, 0.0)
        one = sampled(wave, kind, 0.1, offset, noise_w=0.02 if kind is not Kind.COUNTER else 0.0)
        found = taken(one, wave, part, guarded=True)
        truth = float(wave.energy(1.0, 6.7)[0])
        assert found.joules == pytest.approx(truth, rel=0.02)
        # The noise of samples inside of the phase is the meter's own, which its gain stands for.
        outside += abs(found.joules - truth) > found.error_j + 0.02 * 0.1 * 67**0.5 * 2
    assert outside <= 3


def test_noise_of_the_guards_is_in_the_error() -> None:
    wave, part = one_phase(20, 0.05, guard_s=0.5)
    quiet = taken(sampled(wave, Kind.AVERAGE, 0.05, 0.02), wave, part, guarded=True)
    noisy = taken(sampled(wave, Kind.AVERAGE, 0.05, 0.02, noise_w=5), wave, part, guarded=True)
    assert quiet.error_j == pytest.approx(0.0, abs=1e-6)
    assert noisy.error_j > 0.02


def test_the_terms_of_the_error_add_as_squares() -> None:
    wave, part = one_phase(20, 0.05)
    plain = sampled(wave, Kind.AVERAGE, 0.05, 0.02)
    claims = Channel("m", "p1", "s1", 0.05, gain=0.01, offset_w=3.0)
    claimed = Series(
        claims, plain.kind, plain.begin_s, plain.end_s, plain.energy_j, plain.swing_w, 0.0
    )
    unsure = Part(part.begin_s, part.end_s, 0.002)
    found = taken(claimed, wave, unsure, guarded=True)
    gain, offset, edge = 0.01 * 200, 3.0 * 1.0, 100 * 0.002
    assert found.joules == pytest.approx(200, rel=1e-6)
    assert found.error_j == pytest.approx((gain**2 + offset**2 + 2 * edge**2) ** 0.5, rel=1e-3)


def test_a_phase_and_its_tail_are_split_without_losing_a_joule() -> None:
    for offset in offsets(0.05, 40):
        wave = Wave()
        for seconds, watts in ((0.5, 100), (2.0, 220), (1.0, 150), (0.6, 100)):
            wave.hold(seconds, watts)
        parts = [Part(0.5, 2.5, 0.0), Part(2.5, 3.5, 0.0)]
        one = sampled(wave, Kind.AVERAGE, 0.05, offset)
        work, tail = energies(one, parts, Guard(0, 0.5), Guard(3.5, wave.end_s), Rules())
        assert work.joules + tail.joules == pytest.approx(440 + 150, rel=1e-9)
        assert not work.is_guarded
        # The sample across the mark is off by at most dP dt / 4, and both know it.
        for found, truth in ((work, 440), (tail, 150)):
            assert abs(found.joules - truth) <= 70 * 0.05 / 4 + 1e-9
            assert found.error_j == pytest.approx(70 * 0.05 / 4, rel=1e-6, abs=70 * 0.05 / 4)


def test_load_that_runs_into_a_guard_is_not_taken_for_idle() -> None:
    """Marks may be off by their bound: samples so near to them are none of the guard."""
    wave, part = one_phase(20, 0.05, guard_s=1.0)
    late = Part(part.begin_s + 0.06, part.end_s, 0.06)
    found = taken(sampled(wave, Kind.AVERAGE, 0.05, 0.01), wave, late, guarded=True)
    # 0.06 s of the load lie before the mark; idle is subtracted for them, and the load stays.
    assert found.joules == pytest.approx(200 - 100 * 0.06, rel=1e-9)
    assert abs(found.joules - 200) <= found.error_j


def test_what_starts_the_load_is_not_taken_for_idle() -> None:
    """A program that starts between guard and phase takes more than idling does."""
    wave = Wave()
    for seconds, watts in ((1.0, 100), (0.5, 160), (2.0, 200), (1.0, 100)):
        wave.hold(seconds, watts)
    one = sampled(wave, Kind.AVERAGE, 0.05, 0.01)
    part = Part(1.5, 3.5, 0.0)
    found = energies(one, [part], Guard(0.0, 1.0), Guard(3.5, 4.5), Rules())[0]
    assert found.joules == pytest.approx(400, rel=1e-9)
    late = Part(1.07, 3.5, 0.0)
    whole = energies(one, [late], Guard(0.0, 1.0), Guard(3.5, 4.5), Rules())[0]
    # Within two periods the guard counts, and what was started in between is the phase's.
    assert whole.joules == pytest.approx(0.43 * 160 + 400 + 0.07 * 60, rel=1e-9)
    assert abs(whole.joules - (0.43 * 160 + 400)) <= whole.error_j


def test_a_lag_is_moved_back() -> None:
    wave, part = one_phase(20, 0.05, guard_s=1.0)
    late = sampled(wave, Kind.AVERAGE, 0.05, 0.013, lag_s=0.12)
    assert taken(late, wave, part, guarded=True).joules == pytest.approx(200, rel=1e-9)


def test_a_short_phase_has_no_energy() -> None:
    for periods, is_void in ((9.9, True), (10.0, False)):
        wave, part = one_phase(periods, 0.05)
        found = taken(
            sampled(wave, Kind.AVERAGE, 0.05, 0.02), wave, part, guarded=True, rules=Rules()
        )
        assert (found.void is not None) == is_void
        assert not is_void or "shorter than 10 periods" in str(found.void)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("lost", "void"), [(1, None), (4, "too few samples"), (30, "gap")])
def test_holes_void_what_they_are_in(kind: Kind, lost: int, void: str | None) -> None:
    wave, part = one_phase(200, 0.05)
    end = np.arange(0.07, wave.end_s, 0.05)
    usable = np.ones(len(end), dtype=bool)
    usable[60 : 60 + lost] = False
    value = {
        Kind.AVERAGE: wave.energy(end - 0.05, end) / 0.05,
        Kind.INSTANT: wave.power(end),
        Kind.COUNTER: wave.energy(0.0, end),
    }[kind]
    one = series(Readings(kind, end - 0.05, end, value, usable), channel(0.05), gap_s=0.0)
    found = taken(one, wave, part, guarded=True, rules=Rules())
    if void is None:
        assert found.void is None
        assert found.joules == pytest.approx(2000, abs=max(found.error_j, 1e-6))
        assert found.coverage == pytest.approx(1 - (lost + (kind is not Kind.AVERAGE)) / 200)
    else:
        assert void in str(found.void)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lost", [slice(2, 25), slice(100, 123), slice(-25, -2)])
def test_a_gap_that_only_touches_a_phase_voids_it(kind: Kind, lost: slice) -> None:
    wave, _ = one_phase(200, 0.05, guard_s=1.2)
    end = np.arange(0.07, wave.end_s, 0.05)
    value = {
        Kind.AVERAGE: wave.energy(end - 0.05, end) / 0.05,
        Kind.INSTANT: wave.power(end),
        Kind.COUNTER: wave.energy(0.0, end),
    }[kind]
    keep = np.ones(len(end), dtype=bool)
    keep[lost] = False
    readings = Readings(kind, end[keep] - 0.05, end[keep], value[keep], np.ones(keep.sum(), bool))
    one = series(readings, channel(0.05), gap_s=0.5)
    # An average after the gap is whole; the other kinds need a first one to begin from.
    extra = 0.0 if kind is Kind.AVERAGE else 0.05
    holes = (end[~keep].min() - 0.05, end[~keep].max() + extra)
    rules = Rules(max_gap_s=0.5)
    for part, is_touched in (
        (Part(holes[1] - 0.01, holes[1] + 5, 0.0), True),
        (Part(holes[0] - 5, holes[0] + 0.01, 0.0), True),
        (Part(holes[1] + 0.01, holes[1] + 5, 0.0), False),
        (Part(holes[0] - 5, holes[0] - 0.01, 0.0), False),
    ):
        if part.begin_s > 0.1 and part.end_s < wave.end_s - 0.1:
            found = energies(one, [part], None, None, rules)[0]
            assert (found.void is not None) == is_touched, (part, found.void)


def test_a_counter_goes_on_over_a_lost_reading() -> None:
    wave, part = one_phase(200, 0.05)
    end = np.arange(0.07, wave.end_s, 0.05)
    end = np.delete(end, slice(60, 64))
    usable = np.ones(len(end), dtype=bool)
    readings = Readings(Kind.COUNTER, end, end, wave.energy(0.0, end), usable)
    found = taken(series(readings, channel(0.05)), wave, part, guarded=True, rules=Rules())
    assert found.joules == pytest.approx(2000, rel=1e-9)


def test_a_counter_that_begins_anew_loses_two_periods_and_no_joule() -> None:
    wave, part = one_phase(400, 0.05)
    end = np.arange(0.07, wave.end_s, 0.05)
    joules = wave.energy(0.0, end)
    for is_said in (True, False):
        counted = joules.copy()
        counted[100:] -= counted[100]
        usable = np.ones(len(end), dtype=bool)
        usable[100] = not is_said
        one = series(Readings(Kind.COUNTER, end, end, counted, usable), channel(0.05), gap_s=0.0)
        found = taken(one, wave, part, guarded=True, rules=Rules())
        assert found.joules == pytest.approx(4000, rel=1e-9)
        assert found.coverage == pytest.approx(1 - (2 if is_said else 1) / 400)


def test_a_counter_in_coarse_steps_is_as_sure_as_a_step() -> None:
    wave, part = one_phase(400, 0.05)
    end = np.arange(0.07, wave.end_s, 0.05)
    step = 36.0
    value = np.floor(wave.energy(0.0, end) / step) * step
    readings = Readings(Kind.COUNTER, end, end, value, np.ones(len(end), dtype=bool))
    found = taken(series(readings, channel(0.05)), wave, part, guarded=True, rules=Rules())
    assert found.void is None
    assert found.error_j >= step
    assert abs(found.joules - 4000) <= found.error_j


def test_stamps_that_jitter_leave_no_holes() -> None:
    wave, part = one_phase(100, 0.05)
    jitter = np.random.default_rng(5).normal(0, 0.004, 400)
    true_end = np.arange(0.07, wave.end_s, 0.05)
    end = true_end + jitter[: len(true_end)]
    value = wave.energy(true_end - 0.05, true_end) / 0.05
    readings = Readings(Kind.AVERAGE, end - 0.05, end, value, np.ones(len(end), dtype=bool))
    found = taken(series(readings, channel(0.05)), wave, part, guarded=True, rules=Rules())
    assert found.coverage == pytest.approx(1.0)
    assert found.joules == pytest.approx(1000, rel=0.003)
