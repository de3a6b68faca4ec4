// SPDX-License-Identifier: Apache-2.0 OR MIT
use terrace_core::{ActionKind, EventKind, Outcome, Slot, TierIndex};

use crate::harness::{Harness, tiers};

const MB: u64 = 1_000_000;

/// Two tiers of 100 MB and 1 GB.
fn pair(parameters: &[(&str, &str)]) -> Harness {
    Harness::new("elevator", parameters, tiers(&[100 * MB, 1000 * MB]))
}

/// Writes objects of 10 MB, one a second, while no time is left to copy them.
fn written(harness: &mut Harness, count: usize) -> Vec<Slot> {
    let mut write = |index| {
        harness.advance(1.0);
        harness.write(&format!("n/{index}"), 10 * MB)
    };
    (0..count).map(&mut write).collect()
}

/// Goes on for some rounds of a second; what was copied and what left, in order.
fn go_on(harness: &mut Harness, seconds: usize) -> (Vec<Slot>, Vec<Slot>) {
    let (mut copied, mut left) = (Vec::new(), Vec::new());
    for _ in 0..seconds {
        harness.advance(1.0);
        for action in harness.round() {
            match action.kind {
                ActionKind::Copy { to: TierIndex(1) } => copied.push(action.slot),
                ActionKind::Move { to: TierIndex(1) } => left.push(action.slot),
                _ => {}
            }
        }
    }
    (copied, left)
}

#[test]
fn what_was_written_is_copied_down_in_that_order_and_stays() {
    let mut harness = pair(&[]);
    let slots = written(&mut harness, 5);
    harness.overwrite(slots[1], 10 * MB);
    let (copied, left) = go_on(&mut harness, 20);
    assert_eq!(copied, [slots[0], slots[2], slots[3], slots[4], slots[1]]);
    assert!(left.is_empty());
    assert!(slots.iter().all(|slot| harness.tier(*slot) == 0));
    assert!(go_on(&mut harness, 20).0.is_empty(), "each has its copy");
}

#[test]
fn nothing_is_copied_before_it_is_idle() {
    let mut harness = pair(&[("idle", "30s")]);
    let slot = written(&mut harness, 1)[0];
    assert!(go_on(&mut harness, 20).0.is_empty());
    harness.overwrite(slot, 10 * MB);
    assert!(go_on(&mut harness, 20).0.is_empty());
    assert_eq!(go_on(&mut harness, 20).0, [slot]);
}

#[test]
fn no_more_than_the_streams_are_under_way() {
    let mut harness = pair(&[("streams", "3"), ("share", "1"), ("idle", "0s")]);
    written(&mut harness, 8);
    go_on(&mut harness, 0);
    harness.is_slow = true;
    let mut under_way = 0;
    for _ in 0..20 {
        harness.advance(10.0);
        under_way += harness.round().len();
        assert!(under_way <= 3);
    }
    assert_eq!(under_way, 3);
    harness.fail(Outcome::HotWrite);
    harness.advance(10.0);
    assert_eq!(harness.round().len(), 3, "those that failed are under way no more");
}

#[test]
fn copying_takes_its_share_of_what_applications_leave() {
    // 100 MB/s below, of which applications use 0.5: a tenth of the rest is 5 MB/s.
    let mut harness = pair(&[("share", "0.1"), ("streams", "64"), ("max_bytes", "20MB")]);
    harness.view.tiers[1].utilisation = 0.5;
    written(&mut harness, 8);
    harness.advance(10.0);
    harness.round();
    let (copied, _) = go_on(&mut harness, 10);
    assert!((4..=6).contains(&copied.len()), "50 MB in ten seconds: {}", copied.len());
}

#[test]
fn a_busy_tier_and_a_share_of_nothing_copy_nothing() {
    let mut harness = pair(&[]);
    let slots = written(&mut harness, 2);
    harness.view.tiers[0].utilisation = 0.8;
    assert!(go_on(&mut harness, 20).0.is_empty());
    harness.view.tiers[0].utilisation = 0.0;
    harness.policy.set_parameter("share", "0").expect("a share");
    assert!(go_on(&mut harness, 20).0.is_empty());
    harness.policy.set_parameter("share", "0.5").expect("a share");
    assert_eq!(go_on(&mut harness, 20).0, slots);
}

#[test]
fn what_has_a_copy_leaves_first_and_moves_nothing() {
    let mut harness = pair(&[]);
    let slots = written(&mut harness, 8);
    go_on(&mut harness, 30);
    // One copy is void, and another was used last.
    harness.overwrite(slots[0], 10 * MB);
    harness.read(slots[1], 0, MB);
    harness.write("n/last", 15 * MB);
    harness.budget = (0, 10);
    let (copied, left) = go_on(&mut harness, 1);
    assert!(copied.is_empty(), "there is no budget for it");
    assert_eq!(left, slots[2..5]);
    assert!(harness.fill(0) <= 0.7);
}

#[test]
fn a_burst_larger_than_the_buffer_leaves_in_write_order_and_goes_below() {
    let mut harness = pair(&[("idle", "1h")]);
    let slots = written(&mut harness, 10);
    harness.round();
    let through = harness.write("n/through", 10 * MB);
    assert_eq!(harness.tier(through), 1, "written through while the buffer is above high");
    assert_eq!(slots.iter().filter(|slot| harness.tier(**slot) == 0).count(), 7);
    assert!(slots[..3].iter().all(|slot| harness.tier(*slot) == 1));
    harness.round();
    let next = harness.write("n/next", MB);
    assert_eq!(harness.tier(next), 0);
}

#[test]
fn copying_that_a_write_made_pointless_is_cancelled() {
    let mut harness = pair(&[]);
    let slots = written(&mut harness, 2);
    harness.is_slow = true;
    harness.advance(20.0);
    assert!(!harness.round().is_empty());
    harness.overwrite(slots[0], 10 * MB);
    let cancelled = harness.round();
    assert_eq!((cancelled[0].slot, cancelled[0].kind), (slots[0], ActionKind::Cancel));
    harness.finish();
    harness.is_slow = false;
    assert_eq!(go_on(&mut harness, 20).0.last(), Some(&slots[0]));
}

#[test]
fn pinned_leased_and_deleted_segments_stay_where_they_are() {
    let mut harness = pair(&[]);
    let slots = written(&mut harness, 4);
    harness.event(EventKind::Pin, slots[0]);
    harness.message("stage", r#"{"keys":["n/1"],"tier":"t0"}"#);
    harness.event(EventKind::Delete, slots[2]);
    assert_eq!(go_on(&mut harness, 20).0, [slots[3]]);
    harness.event(EventKind::Unpin, slots[0]);
    harness.message("release", "");
    assert_eq!(go_on(&mut harness, 20).0.len(), 2);
}

#[test]
fn a_wrong_number_of_streams_says_what_would_be_right() {
    let mut harness = pair(&[]);
    let error = harness.policy.set_parameter("streams", "0").expect_err("too few");
    assert!(error.to_string().contains("from 1 to 64"), "{error}");
}
