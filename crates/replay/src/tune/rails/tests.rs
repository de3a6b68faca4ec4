// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each rail by itself, and all of them in windows by chance.

use terrace_core::Random;

use super::*;

const MINUTE: u64 = 60;

fn step(name: &str, from: &str, to: &str) -> Step {
    let text = String::from;
    Step { name: text(name), from: text(from), worth: text(from), to: text(to) }
}

fn idle() -> Trial {
    Trial::Step(step("idle", "1s", "2s"))
}

/// The window that ends after so many minutes and lasted five.
fn window(ended: u64, measured: f64, predicted: f64, trials: &[(Trial, f64)]) -> Window {
    let ended = Duration::from_secs(ended * MINUTE);
    let began = ended.saturating_sub(Duration::from_secs(5 * MINUTE));
    Window { began, ended, accesses: 1000, measured, predicted, trials: trials.to_vec() }
}

fn rails() -> Rails {
    Rails::new(Caution::default())
}

/// Rails after the step was taken, at ten minutes, from a measured value of 1.
fn changed() -> Rails {
    let mut rails = rails();
    rails.rule(&window(5, 1.0, 1.0, &[(idle(), 0.8)]));
    let ruling = rails.rule(&window(10, 1.0, 1.0, &[(idle(), 0.8)]));
    assert_eq!(ruling.decision, Decision::Change(step("idle", "1s", "2s")));
    rails
}

#[test]
fn a_gain_in_one_window_is_not_enough() {
    let mut rails = rails();
    let gain = &[(idle(), 0.8)];
    let decisions = [
        (5, gain.as_slice(), Decision::Keep(Why::Once)),
        // Another one gains: that is not the same in two windows.
        (10, &[(Trial::Step(step("busy", "0.7", "0.9")), 0.8)], Decision::Keep(Why::Once)),
        (15, gain, Decision::Keep(Why::Once)),
        (20, &[(idle(), 0.96)], Decision::Keep(Why::NoGain)),
        (25, gain, Decision::Keep(Why::Once)),
        (30, gain, Decision::Change(step("idle", "1s", "2s"))),
    ];
    for (at, trials, decision) in decisions {
        assert_eq!(rails.rule(&window(at, 1.0, 1.0, trials)).decision, decision, "{at}");
    }
}

#[test]
fn a_gain_must_be_twice_the_error_of_the_model() {
    let rule = |predicted: f64, value: f64| {
        let mut rails = rails();
        let one = window(5, 1.0, predicted, &[(idle(), value)]);
        rails.rule(&one);
        rails.rule(&Window { ended: Duration::from_secs(600), ..one })
    };
    let changes = |ruling: &Ruling| matches!(ruling.decision, Decision::Change(_));
    // 10 % off: a fifth has to be gained, of what is predicted.
    assert!(!changes(&rule(1.1, 1.1 * 0.81)));
    assert!(changes(&rule(1.1, 1.1 * 0.79)));
    assert!(!changes(&rule(0.9, 0.9 * 0.81)));
    assert!(!changes(&rule(1.0, 0.951)), "5 % in any case");
    assert_eq!(rule(1.5, 0.01).decision, Decision::Keep(Why::Useless));
    for nonsense in [0.0, f64::NAN, f64::INFINITY] {
        assert_eq!(rule(nonsense, 0.01).decision, Decision::Keep(Why::Useless), "{nonsense}");
        assert!(!changes(&rule(1.0, nonsense)) || nonsense == 0.0, "{nonsense}");
    }
}

#[test]
fn few_accesses_say_nothing_and_two_windows_must_follow_on_one_another() {
    let mut rails = rails();
    let good = |at| window(at, 1.0, 1.0, &[(idle(), 0.5)]);
    rails.rule(&good(5));
    let few = rails.rule(&Window { accesses: 3, ..good(10) });
    assert_eq!(few.decision, Decision::Keep(Why::Few));
    assert_eq!(rails.rule(&good(15)).decision, Decision::Keep(Why::Once));
}

#[test]
fn nothing_changes_until_the_last_change_has_dwelt() {
    let mut rails = changed();
    let busy = Trial::Step(step("busy", "0.7", "0.9"));
    let better = |at| window(at, 0.8, 0.8, &[(busy.clone(), 0.1)]);
    let left = |ruling: Ruling| match ruling.decision {
        Decision::Keep(Why::Dwelling(left)) => left.as_secs() / MINUTE,
        other => panic!("{other:?}"),
    };
    assert_eq!(left(rails.rule(&better(13))), 7);
    assert_eq!(left(rails.rule(&better(19))), 1);
    // What was seen meanwhile counts.
    let ruling = rails.rule(&better(20));
    assert_eq!(ruling.judged, Some(0.8));
    assert_eq!(ruling.decision, Decision::Change(step("busy", "0.7", "0.9")));
}

#[test]
fn what_made_it_worse_by_more_than_a_tenth_is_taken_back_and_left_alone() {
    let mut rails = changed();
    let again = &[(idle(), 0.5)];
    let ruling = rails.rule(&window(20, 1.11, 1.11, again));
    assert_eq!(ruling.decision, Decision::RollBack(step("idle", "2s", "1s")));
    assert_eq!(ruling.judged, Some(1.11));
    // It dwells, too, and within the hour nothing is done to the parameter.
    let decisions: Vec<_> =
        (5..18).map(|at| rails.rule(&window(at * 5, 1.0, 1.0, again)).decision).collect();
    assert_eq!(decisions[..1], [Decision::Keep(Why::Dwelling(Duration::from_secs(5 * MINUTE)))]);
    assert_eq!(decisions[1..11], vec![Decision::Keep(Why::NoGain); 10]);
    assert_eq!(
        decisions[11..],
        [Decision::Keep(Why::Once), Decision::Change(step("idle", "1s", "2s"))]
    );
}

#[test]
fn what_made_it_worse_by_less_stays_and_is_judged_once() {
    let mut rails = changed();
    assert!(rails.unjudged().is_some());
    let ruling = rails.rule(&window(20, 1.09, 1.09, &[]));
    assert_eq!((ruling.judged, ruling.decision), (Some(1.09), Decision::Keep(Why::NoGain)));
    assert!(rails.unjudged().is_none());
    let ruling = rails.rule(&window(25, 2.0, 2.0, &[]));
    assert_eq!((ruling.judged, ruling.decision), (None, Decision::Keep(Why::NoGain)));
}

#[test]
fn a_judgement_waits_for_accesses_but_not_for_a_model() {
    let mut rails = changed();
    let few = Window { accesses: 0, ..window(20, 9.0, 1.0, &[]) };
    assert_eq!(rails.rule(&few).decision, Decision::Keep(Why::Few));
    let wrong = window(25, 9.0, 1.0, &[]);
    assert!(matches!(rails.rule(&wrong).decision, Decision::RollBack(_)));
}

#[test]
fn pinned_is_recommended_by_name_and_never_used() {
    let mut rails = rails();
    let trials = [(idle(), 0.8), (Trial::Pinned, 0.7)];
    assert_eq!(rails.rule(&window(5, 1.0, 1.0, &trials)).decision, Decision::Keep(Why::Once));
    for at in [10, 15] {
        let ruling = rails.rule(&window(at, 1.0, 1.0, &trials));
        assert_eq!(ruling.decision, Decision::RecommendPinned);
    }
    // Another one that gains more is taken.
    let trials = [(idle(), 0.6), (Trial::Pinned, 0.7)];
    rails.rule(&window(20, 1.0, 1.0, &trials));
    let ruling = rails.rule(&window(25, 1.0, 1.0, &trials));
    assert!(matches!(ruling.decision, Decision::Change(_)), "{ruling:?}");
}

#[test]
fn a_step_that_is_too_long_or_about_something_else_is_never_taken() {
    for (name, from, to) in [
        ("idle", "1s", "2001ms"),
        ("idle", "2001ms", "1s"),
        ("idle", "1s", "1s"),
        ("idle", "0s", "1s"),
        ("high", "tier", "0.8"),
        ("persistency", "process", "none"),
        ("sync", "on", "off"),
        ("place", "fast", "slow"),
        ("rules", "a", "b"),
    ] {
        let mut rails = rails();
        for at in [5, 10, 15] {
            let trials = [(Trial::Step(step(name, from, to)), 0.01)];
            let ruling = rails.rule(&window(at, 1.0, 1.0, &trials));
            assert_eq!(ruling.decision, Decision::Keep(Why::NoGain), "{name} {from} {to}");
            assert_eq!(ruling.best, None);
        }
    }
}

#[test]
fn what_was_not_done_is_not_judged_and_does_not_dwell() {
    let mut rails = rails();
    let good = |at| window(at, 1.0, 1.0, &[(idle(), 0.5)]);
    rails.rule(&good(5));
    assert!(matches!(rails.rule(&good(10)).decision, Decision::Change(_)));
    rails.was_not_done();
    assert!(rails.unjudged().is_none());
    assert_eq!(rails.rule(&good(15)).decision, Decision::Keep(Why::Once));
    let Decision::Change(step) = rails.rule(&good(20)).decision else { panic!("it gains twice") };
    rails.was_refused(&step, Duration::from_secs(20 * MINUTE));
    assert_eq!(rails.rule(&good(25)).decision, Decision::Keep(Why::NoGain), "it is left alone");
}

#[test]
fn who_changes_something_else_begins_anew() {
    let mut rails = changed();
    rails.begin_anew();
    assert!(rails.unjudged().is_none());
    let ruling = rails.rule(&window(20, 9.0, 9.0, &[(idle(), 0.5)]));
    assert_eq!((ruling.judged, ruling.decision), (None, Decision::Keep(Why::Once)));
}

/// A step of any kind, also such as must not be taken.
fn any_step(random: &mut Random) -> Step {
    let names = ["idle", "horizon", "gate", "busy", "persistency", "sync", "place"];
    let values = ["1s", "2s", "3s", "0.4", "0.7", "0.9", "on", "off", "none", "storage"];
    let mut any = |list: &[&str]| list[random.below(list.len() as u64) as usize].to_string();
    let (name, from, to) = (any(&names), any(&values), any(&values));
    Step { name, worth: from.clone(), from, to }
}

fn any_window(random: &mut Random, began: Duration, few: &[Trial]) -> Window {
    let ended = began + Duration::from_secs(1 + random.below(400));
    let measured = 0.5 + random.unit();
    let predicted = measured * (0.9 + 0.2 * random.unit());
    let trial = |random: &mut Random| match random.below(6) {
        0 => Trial::Pinned,
        1 => Trial::Step(any_step(random)),
        // The same ones again and again, so that some gain twice.
        _ => few[random.below(few.len() as u64) as usize].clone(),
    };
    let trials = (0..random.below(8)).map(|_| (trial(random), random.unit() * predicted));
    let trials = trials.collect();
    let accesses = if random.chance(0.1) { random.below(20) } else { 1000 };
    Window { began, ended, accesses, measured, predicted, trials }
}

#[test]
fn all_rails_hold_whatever_comes() {
    let few =
        [idle(), Trial::Step(step("gate", "on", "off")), Trial::Step(step("busy", "0.7", "0.9"))];
    let (mut changes, mut roll_backs) = (0, 0);
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let caution = Caution::default();
        let mut rails = Rails::new(caution);
        let mut windows: Vec<Window> = Vec::new();
        let mut last: Option<(Duration, Step, f64, bool)> = None;
        let mut taken_back: Vec<(String, Duration)> = Vec::new();
        for _ in 0..200 {
            let began = windows.last().map_or(Duration::ZERO, |window| window.ended);
            let window = any_window(&mut random, began, &few);
            let ruling = rails.rule(&window);
            let is_due = last.as_ref().is_none_or(|(at, ..)| window.ended >= *at + caution.dwell);
            let gained = |window: &Window, step: &Step| {
                let needed = (2.0 * (window.predicted / window.measured - 1.0).abs()).max(0.05);
                let mut same =
                    window.trials.iter().filter(|(trial, _)| *trial == Trial::Step(step.clone()));
                window.accesses >= 20
                    && same.any(|(_, value)| 1.0 - value / window.predicted > needed)
            };
            // Whether what was done last has to be taken back by now.
            let has_to_go_back = is_due
                && window.accesses >= 20
                && last.as_ref().is_some_and(|(_, _, before, is_judged)| {
                    !is_judged && window.measured > before * 1.1
                });
            match &ruling.decision {
                Decision::Change(step) => {
                    changes += 1;
                    let tunable = tunable(&step.name).expect("it may be searched");
                    assert!(tunable.is_near(&step.from, &step.to), "{step:?}");
                    assert!(!["persistency", "sync", "place"].contains(&step.name.as_str()));
                    assert!(is_due && !has_to_go_back, "{seed}: {step:?}");
                    let before = windows.last().expect("one window is not enough");
                    assert!(gained(&window, step) && gained(before, step), "{seed}: {step:?}");
                    let is_after = |(at, ..): &(Duration, Step, f64, bool)| before.began >= *at;
                    assert!(last.as_ref().is_none_or(is_after), "{seed}: both after the last one");
                    let is_left_alone = |(name, until): &(String, Duration)| {
                        *name == step.name && *until > window.ended
                    };
                    assert!(!taken_back.iter().any(is_left_alone), "{seed}: {step:?}");
                    let measured = (before.measured + window.measured) / 2.0;
                    last = Some((window.ended, step.clone(), measured, false));
                }
                Decision::RollBack(back) => {
                    roll_backs += 1;
                    assert!(has_to_go_back, "{seed}: {back:?}");
                    let (_, step, ..) = last.take().expect("something was done");
                    assert_eq!(*back, step.back());
                    taken_back.push((step.name.clone(), window.ended + caution.avoid));
                    last = Some((window.ended, step, 0.0, true));
                }
                Decision::Keep(_) | Decision::RecommendPinned => {
                    assert!(!has_to_go_back, "{seed}: {ruling:?}");
                    if let Some((_, _, _, is_judged)) = &mut last {
                        *is_judged |= is_due && window.accesses >= 20;
                    }
                }
            }
            windows.push(window);
        }
    }
    assert!(changes > 1000 && roll_backs > 100, "{changes} {roll_backs}: it has to happen");
}
