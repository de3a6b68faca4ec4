// SPDX-License-Identifier: Apache-2.0 OR MIT
use terrace_core::{ActionKind, EventKind, Slot};

use super::classes::SAMPLES_NEEDED;
use crate::harness::{Harness, SECOND_NS, tiers};

const MB: u64 = 1_000_000;

/// Two tiers of 100 MB and 1 GB.
fn pair(parameters: &[(&str, &str)]) -> Harness {
    Harness::new("write-buffer", parameters, tiers(&[100 * MB, 1000 * MB]))
}

fn slots(harness: &mut Harness) -> Vec<Slot> {
    harness.round().iter().map(|action| action.slot).collect()
}

/// Writes an object for some time and closes it.
fn write_for(harness: &mut Harness, key: &str, seconds: f64) -> Slot {
    let slot = harness.create(key);
    harness.event(EventKind::Open, slot);
    harness.advance(seconds);
    harness.overwrite(slot, 1000);
    harness.event(EventKind::Close, slot);
    slot
}

fn class(harness: &mut Harness, name: &str) -> serde_json::Value {
    let status = harness.message("status", "");
    let classes = status["classes"].as_array().expect("a list");
    classes.iter().find(|class| class["class"] == name).expect("a known class").clone()
}

#[test]
fn a_segment_leaves_so_long_after_its_last_write() {
    let mut harness = pair(&[("timeout", "2s")]);
    let first = harness.write("n/a", MB);
    harness.advance(1.0);
    let second = harness.write("n/b", MB);
    harness.advance(0.5);
    harness.overwrite(first, MB);
    assert!(slots(&mut harness).is_empty());
    harness.advance(1.5);
    harness.read(second, 0, MB);
    assert_eq!(slots(&mut harness), [second], "a read is no write");
    harness.advance(0.5);
    assert_eq!(slots(&mut harness), [first]);
    assert_eq!((harness.tier(first), harness.tier(second)), (1, 1));
}

#[test]
fn a_timeout_is_deduced_from_twenty_closed_segments() {
    let mut harness = pair(&[("timeout", "deduced"), ("default_timeout", "60s")]);
    for index in 1..SAMPLES_NEEDED {
        write_for(&mut harness, &format!("n/run/{index}"), 1.0);
        // One that stays open teaches nothing.
        let open = harness.create(&format!("n/run/open-{index}"));
        harness.event(EventKind::Open, open);
        harness.overwrite(open, 1000);
    }
    harness.round();
    assert_eq!(class(&mut harness, "n/run")["samples"], SAMPLES_NEEDED - 1);
    assert_eq!(class(&mut harness, "n/run")["timeout_ns"], 60 * SECOND_NS);
    assert_eq!(class(&mut harness, "n/run")["since_ns"], serde_json::Value::Null);

    let last = write_for(&mut harness, "n/run/last", 1.0);
    let taken_over_ns = harness.view.now_ns;
    harness.round();
    assert_eq!(class(&mut harness, "n/run")["deduced_ns"], 1_200_000_000);
    assert_eq!(class(&mut harness, "n/run")["since_ns"], taken_over_ns);
    harness.advance(1.1);
    assert!(!slots(&mut harness).contains(&last));
    harness.advance(0.2);
    assert!(slots(&mut harness).contains(&last));
}

#[test]
fn each_class_has_its_own_timeout() {
    let mut harness = pair(&[("classes", "*.log"), ("default_timeout", "60s")]);
    for index in 0..SAMPLES_NEEDED {
        write_for(&mut harness, &format!("n/a/{index}"), 1.0);
        write_for(&mut harness, &format!("n/a/{index}.log"), 5.0);
    }
    write_for(&mut harness, "n/b/0", 1.0);
    harness.round();
    let mut timeout_s =
        |name| class(&mut harness, name)["timeout_ns"].as_u64().expect("a number") / SECOND_NS;
    assert_eq!((timeout_s("n/a"), timeout_s("*.log"), timeout_s("n/b")), (1, 6, 60));
}

#[test]
fn a_full_buffer_sends_its_oldest_closed_segments_first() {
    let mut harness = pair(&[("timeout", "1h")]);
    let mut written = Vec::new();
    for index in 0..9 {
        harness.advance(1.0);
        written.push(harness.write(&format!("n/{index}"), 10 * MB));
    }
    harness.event(EventKind::Open, written[0]);
    harness.read(written[1], 0, MB);
    harness.advance(1.0);
    let last = harness.write("n/last", 5 * MB);
    assert_eq!(slots(&mut harness), written[1..4]);
    harness.event(EventKind::Close, written[0]);
    assert!(slots(&mut harness).is_empty());
    harness.write("n/more", 30 * MB);
    assert!(slots(&mut harness).contains(&written[4]));
    assert_eq!(harness.tier(last), 0);
}

#[test]
fn a_buffer_of_open_segments_is_written_through() {
    let mut harness = pair(&[("timeout", "1h")]);
    let open: Vec<_> = (0..10)
        .map(|index| {
            let slot = harness.create(&format!("n/{index}"));
            harness.event(EventKind::Open, slot);
            harness.overwrite(slot, 95 * MB / 10);
            slot
        })
        .collect();
    assert!(slots(&mut harness).is_empty());
    let through = harness.write("n/through", MB);
    assert_eq!(harness.tier(through), 1);
    open.iter().for_each(|slot| harness.event(EventKind::Close, *slot));
    assert_eq!(slots(&mut harness).len(), 3);
    assert!(slots(&mut harness).is_empty());
    let buffered = harness.write("n/buffered", MB);
    assert_eq!(harness.tier(buffered), 0, "there is room again");
}

#[test]
fn a_demotion_of_what_is_written_again_is_cancelled() {
    let mut harness = pair(&[("timeout", "2s")]);
    harness.is_slow = true;
    let slot = harness.write("n/a", MB);
    harness.advance(3.0);
    assert_eq!(slots(&mut harness), [slot]);
    harness.overwrite(slot, MB);
    let actions = harness.round();
    assert_eq!(actions.len(), 1);
    assert_eq!(actions[0].kind, ActionKind::Cancel);
    harness.advance(1.0);
    assert!(slots(&mut harness).is_empty());
    harness.advance(1.1);
    assert_eq!(slots(&mut harness), [slot], "its time begins anew");
}

#[test]
fn a_staged_segment_outlives_its_timeout() {
    let mut harness = pair(&[("timeout", "2s")]);
    let slot = harness.write("n/a", MB);
    harness.round();
    harness.message("stage", r#"{"keys":["n/a"],"tier":"t0","until":"1min"}"#);
    harness.advance(30.0);
    assert!(slots(&mut harness).is_empty());
    harness.advance(30.0);
    assert_eq!(slots(&mut harness), [slot]);
    harness.message("stage", r#"{"glob":"*","tier":"t0"}"#);
    assert_eq!(slots(&mut harness), [slot], "and comes back when it is asked for");
    assert_eq!(harness.tier(slot), 0);
    harness.message("release", "");
    assert_eq!(slots(&mut harness), [slot]);
}

#[test]
fn what_was_learned_survives_a_restart() {
    let mut harness = pair(&[]);
    for index in 0..SAMPLES_NEEDED {
        write_for(&mut harness, &format!("n/a/{index}"), 2.0);
    }
    harness.round();
    let mut state = Vec::new();
    harness.policy.save(&harness.view, &mut state);
    let mut restarted = pair(&[]);
    restarted.policy.restore(&restarted.view, 1, &state).expect("its own state");
    assert_eq!(class(&mut restarted, "n/a")["deduced_ns"], 2_400_000_000_u64);
    assert!(restarted.policy.restore(&restarted.view, 1, b"[]").is_err());
}

#[test]
fn the_timeout_can_change_while_segments_wait() {
    let mut harness = pair(&[("timeout", "1h")]);
    let slot = harness.write("n/a", MB);
    harness.advance(5.0);
    assert!(slots(&mut harness).is_empty());
    harness.policy.set_parameter("timeout", "2s").expect("legal");
    assert_eq!(slots(&mut harness), [slot]);
}
