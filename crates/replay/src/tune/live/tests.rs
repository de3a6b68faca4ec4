// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Windows of which it is plain what would have been better.

use terrace_core::Watermarks;

use super::*;
use crate::read::lived::Present;
use crate::request::{Operation, Request};
use crate::tune::tests::tiers;

const MB: u64 = 1_000_000;

/// A fast tier of 20 MB and a slow one, where 1 MB takes 10 and 60 ms.
fn shadows(policy: &str, given: &[(&str, &str)]) -> Shadows {
    let timed = tiers(Watermarks::default());
    let given: Vec<_> =
        given.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let made = terrace_policies::create(policy, &timed.view(), &given).expect("it is legal");
    let parameters = made.parameters().into_iter().map(|one| (one.name, one.value)).collect();
    Shadows { timed, objective: Objective::Time, policy: policy.into(), parameters }
}

/// What was asked for, twice a second, each time 1 MB of the next of so many objects.
fn lived(operation: Operation, count: u64, objects: u64) -> Lived {
    let one = |at: u64| Request {
        latency_ns: 60_000_000,
        ..Request::whole(at * 500_000_000, at % objects, MB, operation)
    };
    let present = (0..objects).map(|id| Present { id, tier: TierIndex(1), bytes: MB });
    Lived {
        requests: (0..count).map(one).collect(),
        present: if operation == Operation::Read { present.collect() } else { Vec::new() },
        names: Vec::new(),
        accesses: count,
        span_s: count as f64 / 2.0,
        access_s: count as f64 * 0.06,
        tiers: Vec::new(),
        summed_up: 0,
        left_out: 0,
    }
}

fn foresee(shadows: &Shadows, lived: &Lived, fast_bytes: u64) -> Foreseen {
    let fast = TierFill { used_bytes: fast_bytes, segments: fast_bytes / MB };
    let found = shadows.foresee(lived, &[fast, TierFill::default()], &Arc::default());
    found.expect("it can be replayed").expect("nobody stops it")
}

fn best(foreseen: &Foreseen) -> (Trial, Value) {
    let order = |(_, one): &&(Trial, Value), (_, other): &&(Trial, Value)| {
        one.objective.total_cmp(&other.objective)
    };
    foreseen.trials.iter().min_by(order).expect("there are some").clone()
}

#[test]
fn a_choice_that_is_plainly_better_is_found_beside_what_runs() {
    // A promotion has to save a hundred times its cost: none does.
    let careful = [("factor", "100"), ("horizon", "30s"), ("min_residency", "1s")];
    let shadows = shadows("lru", &careful);
    let lived = lived(Operation::Read, 400, 4);
    let foreseen = foresee(&shadows, &lived, 0);
    assert!((foreseen.running.access_s - 0.06).abs() < 1e-6, "{:?}", foreseen.running);
    let (trial, value) = best(&foreseen);
    let Trial::Step(step) = trial else { panic!("{trial:?}") };
    assert_eq!((step.name.as_str(), step.from.as_str(), step.to.as_str()), ("gate", "on", "off"));
    assert!(value.access_s < 0.02, "{value:?}");
    assert_eq!(foresee(&shadows, &lived, 0), foreseen, "the same comes to the same");
}

#[test]
fn trials_differ_in_one_thing_by_one_step_and_pinned_is_among_them() {
    for policy in ["lru", "heat", "write-buffer", "elevator"] {
        let shadows = shadows(policy, &[]);
        assert!(shadows.tunable_count().expect("it is legal") > 0);
        let tried = shadows.tried().expect("it is legal");
        assert_eq!(tried[0], (None, policy.into(), shadows.parameters.clone()));
        assert_eq!(tried.last().expect("not empty").0, Some(Trial::Pinned));
        for (trial, name, parameters) in &tried[1..tried.len() - 1] {
            let Some(Trial::Step(step)) = trial else { panic!("{trial:?}") };
            assert_eq!(name, policy);
            let others = parameters.iter().zip(&shadows.parameters).filter(|(a, b)| a != b);
            let [(new, old)] = others.collect::<Vec<_>>()[..] else { panic!("{step:?}") };
            assert_eq!((&new.0, &new.1, &old.1), (&step.name, &step.to, &step.from));
            let tunable = terrace_policies::tunable::tunable(&step.name).expect("there is one");
            assert!(tunable.is_near(&step.worth, &step.to), "{step:?}");
        }
    }
}

#[test]
fn a_watermark_of_the_tiers_counts_as_the_number_that_it_is() {
    let highs = |shadows: &Shadows| -> Vec<(String, String)> {
        let steps = shadows.tried().expect("it is legal").into_iter();
        let steps = steps.filter_map(|(trial, ..)| match trial {
            Some(Trial::Step(step)) if step.name == "high" => Some((step.from, step.worth)),
            _ => None,
        });
        steps.collect()
    };
    let mut shadows = shadows("lru", &[]);
    assert!(highs(&shadows).contains(&("tier".into(), "0.9".into())));
    // Of two tiers with different ones there is no such number.
    shadows.timed.tiers[1].view.watermarks.high = 0.8;
    assert_eq!(highs(&shadows), []);
}

#[test]
fn what_nobody_asks_for_takes_room() {
    let shadows = shadows("pinned", &[]);
    let lived = lived(Operation::Write, 10, 10);
    let (empty, full) = (foresee(&shadows, &lived, 0), foresee(&shadows, &lived, 19 * MB));
    assert!((empty.running.access_s - 0.01).abs() < 1e-6, "{:?}", empty.running);
    assert!((full.running.access_s - 0.06).abs() < 1e-6, "{:?}", full.running);
}

#[test]
fn who_does_not_want_to_know_any_more_is_not_kept_waiting() {
    let stop = Arc::new(AtomicBool::new(true));
    let found = shadows("lru", &[]).foresee(&lived(Operation::Read, 100, 4), &[], &stop);
    assert_eq!(found.expect("it can be replayed"), None);
}

#[test]
fn values_are_for_each_access() {
    let of = |objective: Objective| objective.value(10, 5.0, 20.0).objective;
    let measured = [Objective::Edp, Objective::Energy, Objective::Ed2p, Objective::Time];
    assert_eq!(measured.map(of), [1.0, 2.0, 0.5, 0.5]);
}
