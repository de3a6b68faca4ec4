// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace on which some parameters are plainly better than the defaults.

use std::io::Cursor;
use std::time::Duration;

use terrace_core::{Error, ErrorKind, Figures, TierView, Watermarks};
use terrace_policies::calls::Call;

use super::*;
use crate::read::Options;
use crate::timed::hanging::Hanging;
use crate::timed::{Character, Recent, TimedTier};

/// Objects that are read again and again, but too seldom for the horizon of the defaults.
fn trace(requests: u64) -> Result<Trace> {
    let mut text = String::from("time,id,size,op\n");
    for at in 0..requests {
        text += &format!("{},{},1000000,read\n", at * 5, at % 7);
    }
    Trace::from_stream(Box::new(Cursor::new(text)), "test", &Options::default())
}

/// A fast tier of 20 MB and a slow one, where 1 MB takes 10 and 60 ms.
pub(super) fn tiers(watermarks: Watermarks) -> TimedOptions {
    let tier = |name: &str, capacity_bytes, latency_ns| {
        let figures = Figures {
            capacity_bytes,
            latency_ns,
            read_bytes_per_s: 1e8,
            write_bytes_per_s: 1e8,
            idle_w: 1.0,
            active_w: 5.0,
            ..Figures::default()
        };
        let view = TierView { watermarks, ..TierView::empty(name, figures) };
        TimedTier { view, character: Character::default(), recent: Recent::default() }
    };
    TimedOptions::new(vec![tier("fast", 20_000_000, 0), tier("slow", u64::MAX, 50_000_000)])
}

fn tune(policy: &str, requests: u64, seed: u64, budget: u32) -> Result<Tuned> {
    tune_as(options(policy, seed), requests, budget)
}

fn options(policy: &str, seed: u64) -> TuneOptions {
    let (fixed, own, searched) = (Vec::new(), Vec::new(), Vec::new());
    TuneOptions { policy: policy.into(), fixed, own, searched, objective: Objective::Edp, seed }
}

fn tune_as(options: TuneOptions, requests: u64, budget: u32) -> Result<Tuned> {
    let (timed, open) =
        (tiers(Watermarks { low: 0.5, high: 0.9, critical: 1.0 }), || trace(requests));
    let policy = options.policy.clone();
    let make = |view: &View, parameters: &[(String, String)]| {
        terrace_policies::create(&policy, view, parameters)
    };
    Tuner::new(&timed, options, &make, &open, &mut |_| {})?.search(budget, &mut |_| {})
}

/// Parameters as they are given.
fn pairs(texts: &[(&str, &str)]) -> Vec<(String, String)> {
    texts.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

#[test]
fn only_what_is_asked_for_is_searched_and_what_is_fixed_stays() {
    let searched = vec![("high".into(), Some("0.6..0.8".into())), ("horizon".into(), None)];
    let fixed = pairs(&[("gate", "off")]);
    let own = pairs(&[("high", "0.95")]);
    let given = TuneOptions { fixed: fixed.clone(), own, searched, ..options("lru", 0) };
    let tuned = tune_as(given, 640, 6);
    let tuned = tuned.expect("it is legal");
    let names: Vec<_> = tuned.tunables.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["high", "horizon"]);
    for (parameters, _) in &tuned.tried {
        let [gate, high, horizon] = &parameters[..] else { panic!("{parameters:?}") };
        assert_eq!((gate, horizon.0.as_str()), (&fixed[0], "horizon"));
        let high: f64 = high.1.parse().expect("a number");
        assert!((0.6..=0.8).contains(&high), "{high}");
    }
    assert_eq!(tuned.candidates[DEFAULTS].parameters, fixed);
    assert_eq!(tuned.candidates[3].parameters, []);
}

#[test]
fn a_policy_that_fails_is_an_error_with_its_parameters() {
    let given = TuneOptions { fixed: pairs(&[("high", "0.8")]), ..options("lru", 0) };
    let make = |view: &View, parameters: &[(String, String)]| {
        assert!(parameters.len() < 2, "had enough");
        terrace_policies::create("lru", view, parameters)
    };
    let (timed, open) = (tiers(Watermarks { low: 0.5, high: 0.9, critical: 1.0 }), || trace(640));
    let tuner = Tuner::new(&timed, given, &make, &open, &mut |_| {}).expect("it can be made");
    let error = tuner.search(4, &mut |_| {}).expect_err("no values are taken");
    let text = error.chain().to_string();
    assert!(text.contains("had enough") && text.contains("parameters=high=0.8:"), "{text}");
}

#[test]
fn a_policy_that_hangs_with_some_parameters_ends_the_search_which_says_with_which() {
    let make = |view: &View, parameters: &[(String, String)]| match parameters.is_empty() {
        true => terrace_policies::create("lru", view, parameters),
        false => {
            terrace_policies::create("lru", view, parameters)?;
            Ok(Hanging::policy(Call::Plan, true))
        }
    };
    let mut timed = tiers(Watermarks { low: 0.5, high: 0.9, critical: 1.0 });
    timed.call_time_max = Duration::from_millis(40);
    let open = || trace(640);
    let tuner = Tuner::new(&timed, options("lru", 0), &make, &open, &mut |_| {});
    let error = tuner.expect("the defaults come back").search(4, &mut |_| {}).expect_err("hangs");
    let text = error.to_string();
    assert!(
        text.contains("from `plan` within 40ms") && text.contains("parameters=high="),
        "{text}"
    );
}

#[test]
fn what_cannot_be_searched_is_refused() {
    let of = |fixed: &[(&str, &str)], searched: &[(&str, Option<&str>)]| {
        let of = |(name, values): &(&str, Option<&str>)| ((*name).into(), values.map(Into::into));
        let searched = searched.iter().map(of).collect();
        tune_as(TuneOptions { fixed: pairs(fixed), searched, ..options("lru", 0) }, 640, 4)
    };
    let high = ("high", Some("0.6..0.8"));
    for (found, kind, why) in [
        (of(&[], &[("hihg", None)]), ErrorKind::NotFound, "only high, "),
        (of(&[], &[high, high]), ErrorKind::Invalid, "given twice"),
        (of(&[("high", "0.8")], &[high]), ErrorKind::Invalid, "given twice"),
        (of(&[], &[("high", Some("0.8"))]), ErrorKind::Invalid, "expected the least"),
        (of(&[], &[("high", Some("0.8..0.6"))]), ErrorKind::Invalid, "the lesser one first"),
        (of(&[], &[("gate", Some("1..3"))]), ErrorKind::Invalid, "refuses this value"),
        (of(&[("gate", "maybe")], &[high]), ErrorKind::Invalid, "gate"),
    ] {
        let error = found.expect_err(why);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn a_value_that_the_policy_refuses_is_named_before_anything_is_replayed() {
    let timed = tiers(Watermarks { low: 0.5, high: 0.9, critical: 1.0 });
    let make = |view: &View, parameters: &[(String, String)]| {
        terrace_policies::create("lru", view, parameters)
    };
    let open = || -> Result<Trace> { Err(Error::invalid("open the trace", "it is not needed")) };
    let prepare = |searched: &[(&str, &str)]| {
        let of = |(name, values): &(&str, &str)| ((*name).into(), Some((*values).into()));
        let searched = searched.iter().map(of).collect();
        let own = pairs(&[("high", "0.6")]);
        let given = TuneOptions { own, searched, ..options("lru", 0) };
        let error = Tuner::new(&timed, given, &make, &open, &mut |_| {}).err();
        error.expect("there is no trace").chain().to_string()
    };
    for (searched, named, why) in [
        (vec![("high", "0.5..2")], "value=2", "from 0 to 1"),
        (vec![("low", "-1..0.5")], "value=-1", "from 0 to 1"),
        (vec![("low", "0.5..0.6"), ("high", "0.5..1.5")], "value=1.5", "from 0 to 1"),
        (vec![("low", "0.1..0.9")], "value=0.9", "high"),
    ] {
        let text = prepare(&searched);
        assert!(text.contains(named) && text.contains(why), "{searched:?}: {text}");
    }
    for searched in [vec![("low", "0.1..0.9"), ("high", "0.5..1")], vec![("high", "0.5..1")]] {
        let text = prepare(&searched);
        assert!(text.contains("it is not needed"), "{searched:?}: {text}");
    }
}

#[test]
fn what_is_found_is_reported_beside_chance_the_defaults_and_pinned() {
    let tuned = tune("lru", 1600, 0, 12).expect("readable");
    let names: Vec<_> = tuned.candidates.iter().map(|one| one.name).collect();
    assert_eq!(names, ["tuned", "random", "defaults", "pinned"]);
    assert_eq!((tuned.trained_requests, tuned.tested_requests), (800, 800));
    let [found, _, defaults, pinned] = &tuned.candidates[..] else { panic!("four") };
    assert!(found.trained.objective <= defaults.trained.objective, "{tuned:?}");
    assert!(defaults.tested.objective < pinned.tested.objective, "{tuned:?}");
    let recommended = &tuned.candidates[tuned.recommended];
    assert!(recommended.tested.objective <= defaults.tested.objective, "{tuned:?}");
    assert_eq!(pinned.trained.migrated_bytes, 0);
    // Chance gets as much as the search, which stays within it.
    assert_eq!(tuned.random_requests, 12 * 800);
    assert!(tuned.searched_requests <= 12 * 800, "{}", tuned.searched_requests);
    assert!(tuned.searched_requests > 8 * 800, "{}", tuned.searched_requests);
    assert!(tuned.tried.len() > 4);
}

#[test]
fn the_same_seed_comes_to_the_same() {
    let [one, again, other] = [1, 1, 2].map(|seed| tune("heat", 640, seed, 6).expect("readable"));
    assert_eq!(one, again);
    assert_ne!(one.candidates[0].parameters, other.candidates[0].parameters);
}

#[test]
fn what_cannot_be_tuned_is_refused() {
    for (policy, requests, kind, why) in [
        ("pinned", 640, ErrorKind::Invalid, "no parameters"),
        ("nothing", 640, ErrorKind::NotFound, "built-in"),
        ("lru", 100, ErrorKind::Invalid, "needs 320 requests"),
    ] {
        let error = tune(policy, requests, 0, 4).expect_err(why);
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(why), "{error}");
    }
}
