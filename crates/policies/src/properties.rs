// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What holds for every policy, tried with random loads. The harness itself checks every action:
//! none is stale, moves what is pinned or moving, or goes where no room is.

use std::collections::BTreeMap;

use terrace_core::{ActionKind, Event, EventKind, Outcome, Random, SLOT_NONE, Slot, TierIndex};

use crate::harness::{Harness, SECOND_NS, tiers};
use crate::registry::POLICIES;

const SEEDS: u64 = 20;
const ROUNDS: usize = 150;

/// Policies that place and do nothing else; every other one asks for something under these loads.
const NEVER_MOVE: [&str; 2] = ["pinned", "size"];

/// Rules of all kinds for the loads below.
const RULES: &str = r#"
[[rule]]
glob = "n/0/*"
action = "never"
[[rule]]
glob = "n/1/*"
action = "place"
to = "t1"
[[rule]]
on = "t1"
heat_min = 1.5
idle_max = "5s"
action = "move"
to = "t0"
[[rule]]
glob = ["n/1/*", "n/2/*"]
idle_min = "12s"
size_min = "1kB"
action = "move"
to = "t2"
[[rule]]
age_max = "9s"
action = "keep"
weight = 2
"#;

/// Every policy, some also without their gates.
fn cases() -> Vec<(&'static str, Vec<(&'static str, &'static str)>)> {
    let mut cases: Vec<_> = POLICIES.iter().map(|entry| (entry.name, Vec::new())).collect();
    cases.push(("lru", vec![("gate", "off")]));
    cases.push(("heat", vec![("gate", "off")]));
    cases.push(("write-buffer", vec![("timeout", "2s")]));
    cases.push(("sieve", vec![("gate", "off"), ("together", "0s")]));
    cases.push(("s3-fifo", vec![("gate", "off"), ("together", "0s")]));
    cases.push(("arc", vec![("gate", "off"), ("together", "0s")]));
    cases.push(("2q", vec![("gate", "off"), ("together", "0s")]));
    cases.push(("w-tinylfu", vec![("gate", "off"), ("together", "0s")]));
    cases.push(("gdsf", vec![("gate", "off"), ("together", "0s")]));
    let eager =
        vec![("gate", "off"), ("together", "0s"), ("min_hit_rate", "0"), ("deadline", "5s")];
    cases.push(("prefetch", eager));
    cases.push(("energy", vec![("batch", "0"), ("idle", "0s"), ("streams", "9")]));
    cases.push(("rules", vec![("premigrate", "0.3"), ("size_weight", "0.5"), ("rules", RULES)]));
    cases.push(("elevator", vec![("idle", "0s"), ("share", "1"), ("streams", "9")]));
    cases
}

/// One random thing that users or applications do.
fn act(harness: &mut Harness, random: &mut Random, serial: usize) {
    let live: Vec<Slot> = harness.view.live().map(|(slot, _)| slot).collect();
    if live.len() < 5 || random.chance(0.2) {
        let class = random.below(4);
        let bytes = 1 + random.below(4000);
        harness.write(&format!("n/{class}/{serial}"), bytes);
        return;
    }
    let slot = live[random.below(live.len() as u64) as usize];
    let size_bytes = harness.view.segments[slot as usize].size_bytes;
    match random.below(12) {
        0..6 => harness.read(slot, random.below(size_bytes.max(1)), 1 + random.below(4000)),
        6 => harness.overwrite(slot, size_bytes),
        7 => harness.event(EventKind::Open, slot),
        8 => harness.event(EventKind::Close, slot),
        9 => harness.event(EventKind::Delete, slot),
        10 => {
            let is_pinned = harness.view.segments[slot as usize].is_pinned;
            harness.event(if is_pinned { EventKind::Unpin } else { EventKind::Pin }, slot);
        }
        _ => {
            let key = harness.view.segments[slot as usize].key.clone();
            let tier = random.below(3);
            let (kind, body) = match random.below(4) {
                0 => ("keep", format!(r#"{{"keys":["{key}"],"until":"20s"}}"#)),
                1 => ("done", format!(r#"{{"keys":["{key}"]}}"#)),
                2 => ("stage", format!(r#"{{"keys":["{key}"],"tier":"t{tier}","until":"20s"}}"#)),
                _ => {
                    let times = r#""deadline":"12s","until":"40s""#;
                    ("stage", format!(r#"{{"keys":["{key}"],"tier":"t{tier}",{times}}}"#))
                }
            };
            // Policies that do not know it refuse it, which is as good.
            let _ = harness.policy.message(&harness.view, kind, body.as_bytes());
        }
    }
}

/// Returns all actions. The policy `is_restarted` or not every ten rounds, when nothing is under way.
fn run(name: &str, parameters: &[(&str, &str)], seed: u64, is_restarted: bool) -> Vec<String> {
    let mut random = Random::new(seed);
    let mut harness = Harness::new(name, parameters, tiers(&[50_000, 100_000, 10_000_000]));
    harness.budget = (20_000, 7);
    for serial in 0..ROUNDS {
        for step in 0..random.below(30) as usize {
            act(&mut harness, &mut random, serial * 100 + step);
        }
        harness.advance(random.unit() * 3.0);
        harness.is_slow = random.chance(0.5);
        for tier in &mut harness.view.tiers {
            tier.utilisation = random.unit();
        }
        let actions = harness.round();
        assert!(actions.len() <= 7, "the budget is a hard limit");
        if random.chance(0.2) {
            harness.fail([Outcome::NoSpace, Outcome::HotWrite, Outcome::Io][serial % 3]);
        }
        if serial % 10 == 9 {
            harness.settle();
            if is_restarted {
                harness.restart(name, parameters);
            }
        }
    }
    harness.asked()
}

/// Names the first action in which two runs differ.
fn assert_same(first: &[String], second: &[String], what: &str) {
    let at = (0..first.len().max(second.len())).find(|at| first.get(*at) != second.get(*at));
    if let Some(at) = at {
        let action = |run: &[String]| run.get(at).map_or("nothing more".into(), String::clone);
        let (first, second) = (action(first), action(second));
        panic!("{what}, from action {at} on:\n   once {first}\n  again {second}");
    }
}

#[test]
fn the_same_events_give_the_same_actions() {
    for (name, parameters) in cases() {
        let mut action_count = 0;
        for seed in 0..SEEDS {
            let first = run(name, &parameters, seed, false);
            let again = run(name, &parameters, seed, false);
            let what = format!("{name} seed {seed}: the same events give other actions");
            assert_same(&first, &again, &what);
            action_count += first.len();
        }
        let moves = !NEVER_MOVE.contains(&name);
        assert_eq!(action_count > 0, moves, "{name}: {action_count} actions; see NEVER_MOVE");
    }
}

#[test]
fn a_restored_policy_goes_on_as_if_it_had_never_stopped() {
    // The write buffer begins anew with the order of the last writes, which the view has.
    for (name, parameters) in cases().into_iter().filter(|(name, _)| *name != "write-buffer") {
        for seed in 0..SEEDS {
            let never_stopped = run(name, &parameters, seed, false);
            let restarted = run(name, &parameters, seed, true);
            let what = format!("{name} seed {seed}: after `save` and `restore` it acts otherwise");
            assert_same(&never_stopped, &restarted, &what);
        }
    }
}

#[test]
fn nonsense_events_do_no_harm() {
    let kinds = [
        EventKind::Create,
        EventKind::Present,
        EventKind::Open,
        EventKind::Close,
        EventKind::Read,
        EventKind::Write,
        EventKind::SetLen,
        EventKind::Queued,
        EventKind::Moved,
        EventKind::Copied,
        EventKind::Uncopied,
        EventKind::Receipt,
        EventKind::Timer,
        EventKind::Pin,
        EventKind::Unpin,
        EventKind::Stat,
        EventKind::Sync,
    ];
    for (name, parameters) in cases() {
        for seed in 0..SEEDS {
            let mut random = Random::new(seed);
            let tiers = tiers(&[50_000, 1 << 62, 1 << 62]);
            let mut harness = Harness::new(name, &parameters, tiers);
            for serial in 0..20 {
                harness.write(&format!("n/{serial}"), 1000);
            }
            let mut events = Vec::new();
            for _ in 0..2000 {
                let kind = kinds[random.below(kinds.len() as u64) as usize];
                let slot = if random.chance(0.1) { SLOT_NONE } else { random.below(25) as Slot };
                let event = Event {
                    count: random.below(5) as u32,
                    tier: TierIndex(random.below(2) as u8),
                    offset_bytes: random.next_u64() >> 30,
                    length_bytes: random.next_u64() >> 30,
                    latency_ns: random.next_u64(),
                    outcome: Outcome::Io,
                    ..Event::new(kind, slot, random.below(25) as u32, random.next_u64())
                };
                harness.view.apply(&event);
                events.push(event);
            }
            harness.policy.observe(&harness.view, &events);
            harness.policy.set_parameter("max_bytes", "unlimited").ok();
            let mut actions = terrace_core::Actions::with_budget(u64::MAX, 1000);
            harness.policy.plan(&harness.view, &mut actions);
            assert!(
                actions.list().iter().all(|action| {
                    harness.view.segment(action.slot, action.incarnation).is_some()
                })
            );
        }
    }
}

#[test]
fn nothing_bounces_under_a_steady_load() {
    // A working set of twice the fast tier, read evenly: whatever is moved up pushes out its like.
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let mut harness = Harness::new("lru", &[], tiers(&[100_000, 10_000_000]));
        let slots: Vec<_> =
            (0..200).map(|index| harness.write(&format!("n/{index}"), 1000)).collect();
        let mut last_ns: BTreeMap<Slot, u64> = BTreeMap::new();
        let (mut early_count, mut late_count) = (0, 0);
        for second in 0..600 {
            for _ in 0..20 {
                harness.read(slots[random.below(200) as usize], 0, 1000);
            }
            harness.advance(1.0);
            for action in harness.round() {
                let is_move = action.kind != ActionKind::Cancel;
                let before_ns = last_ns.insert(action.slot, harness.view.now_ns);
                let pause_ns = before_ns.map(|before_ns| harness.view.now_ns - before_ns);
                assert!(!is_move || pause_ns.is_none_or(|pause_ns| pause_ns >= 10 * SECOND_NS));
                if second < 300 { early_count += 1 } else { late_count += 1 }
            }
        }
        assert!(late_count <= early_count, "seed {seed}: {early_count} then {late_count}");
        assert!(late_count <= 120, "seed {seed}: {late_count} moves for 6000 reads");
    }
}
