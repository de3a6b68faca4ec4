// SPDX-License-Identifier: Apache-2.0 OR MIT
use terrace_core::{ActionKind, Slot, TierIndex};

use crate::harness::{Harness, tiers};

const MB: u64 = 1_000_000;

const NONE: [Slot; 0] = [];

/// Two tiers of 100 MB and 10 GB; the lower one has the break-even time of 15.2 s.
fn pair(parameters: &[(&str, &str)]) -> Harness {
    let mut tiers = tiers(&[100 * MB, 10_000 * MB]);
    (tiers[1].figures.idle_w, tiers[1].figures.active_w) = (10.2, 13.5);
    Harness::new("energy", parameters, tiers)
}

/// Goes on for some rounds of a second; returns what was copied down and what came up.
fn go_on(harness: &mut Harness, seconds: usize) -> (Vec<Slot>, Vec<Slot>) {
    let (mut copied, mut came) = (Vec::new(), Vec::new());
    for _ in 0..seconds {
        harness.advance(1.0);
        for action in harness.round() {
            match action.kind {
                ActionKind::Copy { to: TierIndex(1) } => copied.push(action.slot),
                ActionKind::Promote { to: TierIndex(0) } => came.push(action.slot),
                _ => {}
            }
        }
    }
    (copied, came)
}

/// Objects of 1 MB on the lower tier, which has slept since.
fn below(harness: &mut Harness, count: usize) -> Vec<Slot> {
    harness.policy.set_parameter("buffer", "t1").expect("a tier");
    harness.round();
    let slots = (0..count).map(|index| harness.write(&format!("b/{index}"), MB)).collect();
    harness.policy.set_parameter("buffer", "t0").expect("a tier");
    harness.round();
    harness.advance(10_000.0);
    harness.round();
    slots
}

fn wake_ups(harness: &mut Harness) -> u64 {
    harness.message("status", "")["lower"][0]["wake_ups"].as_u64().expect("a number")
}

#[test]
fn writes_are_gathered_and_copied_in_one_batch() {
    let mut harness = pair(&[("streams", "64")]);
    let mut slots = Vec::new();
    for index in 0..24 {
        slots.push(harness.write(&format!("n/{index}"), MB));
        assert_eq!(go_on(&mut harness, 60).0, NONE, "{index} MB are worth no wake-up");
    }
    assert_eq!(wake_ups(&mut harness), 0);
    slots.push(harness.write("n/24", MB));
    let (mut copied, _) = go_on(&mut harness, 60);
    copied.sort_unstable();
    assert_eq!((copied, wake_ups(&mut harness)), (slots.clone(), 1));
    assert!(slots.iter().all(|slot| harness.tier(*slot) == 0), "they are read where they were");
}

#[test]
fn what_is_awake_anyway_takes_what_waits() {
    let mut harness = pair(&[]);
    let cold = below(&mut harness, 1)[0];
    let slot = harness.write("n/0", MB);
    assert_eq!(go_on(&mut harness, 100).0, NONE);
    harness.read(cold, 0, MB);
    assert_eq!(go_on(&mut harness, 5).0, [slot]);
    // It sleeps again after the break-even time.
    go_on(&mut harness, 16);
    harness.write("n/1", MB);
    assert_eq!(go_on(&mut harness, 100).0, NONE);
}

#[test]
fn a_full_buffer_wakes_it_and_all_that_waits_goes_along() {
    let mut harness = pair(&[("batch", "1"), ("max_bytes", "1GB")]);
    let slots: Vec<_> = (0..9).map(|index| harness.write(&format!("n/{index}"), 10 * MB)).collect();
    assert_eq!(go_on(&mut harness, 50).0, NONE);
    harness.write("n/9", 5 * MB);
    let (copied, _) = go_on(&mut harness, 50);
    let left = slots.iter().filter(|slot| harness.tier(**slot) == 1).count();
    assert_eq!((left, copied.len()), (3, 7), "down to low, and copies of the rest");
    assert_eq!(wake_ups(&mut harness), 1);
}

#[test]
fn what_would_wake_it_again_comes_up() {
    let mut harness = pair(&[]);
    let slots = below(&mut harness, 2);
    harness.read(slots[0], 0, MB);
    assert_eq!(go_on(&mut harness, 100).1, NONE);
    harness.read(slots[1], 0, MB);
    harness.read(slots[0], 0, MB);
    assert_eq!(go_on(&mut harness, 3).1, [slots[0]], "not what is read for the first time");
    let before = wake_ups(&mut harness);
    for _ in 0..5 {
        go_on(&mut harness, 100);
        harness.read(slots[0], 0, MB);
    }
    assert_eq!(wake_ups(&mut harness), before);
}

#[test]
fn what_costs_more_than_it_saves_stays_below() {
    let mut harness = pair(&[("factor", "100")]);
    harness.view.tiers[1].figures.latency_ns = 1_000_000_000;
    let slot = below(&mut harness, 1)[0];
    for _ in 0..3 {
        harness.read(slot, 0, MB);
        assert_eq!(go_on(&mut harness, 100).1, NONE);
    }
}

#[test]
fn room_is_made_only_by_what_was_not_used_for_longer_than_the_candidate() {
    let parameters = [("batch", "0"), ("streams", "64"), ("max_bytes", "1GB")];
    for (is_used, expected) in [(true, 0), (false, 1)] {
        let mut harness = pair(&parameters);
        let slot = below(&mut harness, 1)[0];
        let name = |index| format!("n/{index}");
        let hot: Vec<_> = (0..90).map(|index| harness.write(&name(index), MB)).collect();
        go_on(&mut harness, 60);
        let mut came = 0;
        for _ in 0..4 {
            harness.read(slot, 0, MB);
            for _ in 0..10 {
                if is_used {
                    hot.iter().for_each(|slot| harness.read(*slot, 0, MB));
                }
                came += go_on(&mut harness, 10).1.len();
            }
        }
        assert_eq!(came, expected, "{is_used}");
    }
}

#[test]
fn a_tier_that_saves_nothing_by_standing_by_is_always_awake() {
    let mut harness = pair(&[("standby_watts", "10.2")]);
    let slot = harness.write("n/0", MB);
    assert_eq!(go_on(&mut harness, 10).0, [slot]);
    assert_eq!(wake_ups(&mut harness), 0);
}
