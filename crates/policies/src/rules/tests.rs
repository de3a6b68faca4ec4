// SPDX-License-Identifier: Apache-2.0 OR MIT
use terrace_core::{Action, ActionKind, EventKind, Slot, TierIndex};

use super::book::Book;
use crate::harness::{Harness, SECOND_NS, tiers};
use crate::registry;

const MB: u64 = 1_000_000;

/// Two tiers of 100 MB and 100 GB with these rules.
fn pair(rules: &str, parameters: &[(&str, &str)]) -> Harness {
    let mut all = vec![("rules", rules)];
    all.extend(parameters);
    Harness::new("rules", &all, tiers(&[100 * MB, 100_000 * MB]))
}

/// Writes objects `NAME/0`, `NAME/1`, … one a second.
fn written(harness: &mut Harness, name: &str, count: usize, bytes: u64) -> Vec<Slot> {
    let mut write = |index| {
        harness.advance(1.0);
        harness.write(&format!("{name}/{index}"), bytes)
    };
    let slots = (0..count).map(&mut write).collect();
    harness.round();
    slots
}

fn moved(actions: &[Action]) -> Vec<Slot> {
    let is_move = |action: &&Action| matches!(action.kind, ActionKind::Move { .. });
    actions.iter().filter(is_move).map(|action| action.slot).collect()
}

fn after(harness: &mut Harness, seconds: f64) -> Vec<Action> {
    harness.advance(seconds);
    harness.round()
}

#[test]
fn a_rule_with_a_time_moves_when_the_time_has_come() {
    let rules = r#"
        [[rule]]
        name = "old results"
        glob = "run/*"
        size_min = "1MB"
        idle_min = "1h"
        action = "move"
        to = "t1"
    "#;
    let mut harness = pair(rules, &[]);
    let large = written(&mut harness, "run", 2, 2 * MB);
    written(&mut harness, "run/small", 2, 1000);
    written(&mut harness, "other", 2, 2 * MB);
    assert!(moved(&after(&mut harness, 3000.0)).is_empty());
    harness.read(large[0], 0, MB);
    let actions = after(&mut harness, 700.0);
    assert_eq!(moved(&actions), [large[1]], "the other was used");
    assert_eq!(actions[0].reason, "the rule \"old results\"");
    assert!(moved(&after(&mut harness, 2800.0)).is_empty());
    assert_eq!(moved(&after(&mut harness, 200.0)), [large[0]]);
}

#[test]
fn what_is_read_often_enough_comes_back() {
    let rules = r#"
        [[rule]]
        on = "t1"
        heat_min = 2.5
        action = "move"
        to = "t0"
        [[rule]]
        idle_min = "1h"
        action = "move"
        to = "t1"
    "#;
    let mut harness = pair(rules, &[]);
    let slot = written(&mut harness, "n", 1, MB)[0];
    assert_eq!(moved(&after(&mut harness, 3700.0)), [slot]);
    harness.read(slot, 0, MB);
    assert_eq!(after(&mut harness, 60.0).len(), 0);
    harness.read(slot, 0, MB);
    let actions = after(&mut harness, 60.0);
    assert_eq!(actions[0].kind, ActionKind::Promote { to: TierIndex(0) });
}

#[test]
fn what_is_kept_leaves_last_and_what_never_moves_does_not() {
    let rules = r#"
        [[rule]]
        glob = "keep/*"
        action = "keep"
        [[rule]]
        glob = "never/*"
        action = "never"
    "#;
    let mut harness = pair(rules, &[]);
    let never = written(&mut harness, "never", 3, 10 * MB);
    let keep = written(&mut harness, "keep", 3, 10 * MB);
    let rest = written(&mut harness, "n", 3, 10 * MB);
    harness.advance(5.0);
    harness.write("n/last", 5 * MB);
    assert_eq!(moved(&after(&mut harness, 5.0)), rest, "down to low");
    written(&mut harness, "more", 2, 10 * MB);
    harness.policy.set_parameter("low", "0.1").expect("a share");
    harness.policy.set_parameter("high", "0.2").expect("a share");
    let moved = moved(&after(&mut harness, 5.0));
    assert!(moved.len() > keep.len() && moved.ends_with(&keep), "{moved:?}");
    assert!(never.iter().all(|slot| harness.tier(*slot) == 0));
}

#[test]
fn weights_say_what_leaves_first() {
    let rules = "[[rule]]\nglob = \"b/*\"\nweight = 100\naction = \"move\"\nto = \"t0\"";
    for (parameters, expected) in [
        // The first to be written, whatever it is.
        (vec![("rules", "")], "n/0"),
        (vec![("rules", ""), ("idle_weight", "0"), ("size_weight", "1")], "a/large"),
        (vec![], "b/0"),
    ] {
        let mut all = vec![("rules", rules)];
        all.extend(parameters);
        let mut harness = Harness::new("rules", &all, tiers(&[100 * MB, 1000 * MB]));
        written(&mut harness, "n", 3, 10 * MB);
        harness.write("a/large", 30 * MB);
        written(&mut harness, "b", 3, 10 * MB);
        harness.write("n/last", 5 * MB);
        let first = moved(&after(&mut harness, 5.0))[0];
        assert_eq!(harness.view.segments[first as usize].key.as_str(), expected);
    }
}

#[test]
fn premigration_makes_demotion_free() {
    let mut harness = pair("", &[]);
    let slots = written(&mut harness, "n", 8, 10 * MB);
    harness.policy.set_parameter("premigrate", "0.3").expect("a share");
    let actions = after(&mut harness, 5.0);
    let copied: Vec<_> = actions.iter().map(|action| (action.slot, action.kind)).collect();
    let copy = ActionKind::Copy { to: TierIndex(1) };
    let expected: Vec<_> = slots[..5].iter().map(|slot| (*slot, copy)).collect();
    assert_eq!(copied, expected, "the first to leave, down to 30 MB without a copy");
    assert_eq!(after(&mut harness, 5.0), [], "it has what it wants");
    // A write takes the copy back.
    harness.overwrite(slots[0], 10 * MB);
    let actions = after(&mut harness, 5.0);
    assert_eq!((actions.len(), actions[0].kind, actions[0].slot), (1, copy, slots[5]));
    (0..2).for_each(|index| {
        harness.write(&format!("more/{index}"), 10 * MB);
    });
    let moved = moved(&after(&mut harness, 5.0));
    assert!(!moved.is_empty());
    let has_left = |slot: &Slot| slots[1..6].contains(slot);
    assert!(moved.iter().all(has_left), "what leaves has its copy there");
}

#[test]
fn new_objects_are_placed_by_their_rule() {
    let rules = "[[rule]]\nglob = \"logs/*\"\naction = \"place\"\nto = \"t1\"";
    let mut harness = pair(rules, &[]);
    let (log, other) = (harness.write("logs/a", MB), harness.write("n/a", MB));
    assert_eq!((harness.tier(log), harness.tier(other)), (1, 0));
}

#[test]
fn new_rules_hold_for_what_is_there() {
    let mut harness = pair("", &[]);
    let slots = written(&mut harness, "n", 5, MB);
    assert_eq!(after(&mut harness, 100.0), []);
    let rules = "[[rule]]\nname = \"all\"\naction = \"move\"\nto = \"t1\"";
    harness.policy.set_parameter("rules", rules).expect("legal");
    let wrong = harness.policy.set_parameter("rules", "[[rule]]");
    assert!(wrong.is_err());
    assert_eq!(moved(&after(&mut harness, 1.0)), slots);
    let status = harness.message("status", "");
    assert_eq!(status["rules"][0], serde_json::json!({ "rule": "all", "segments": 5 }));
}

#[test]
fn many_that_are_due_at_once_are_moved_in_many_rounds() {
    let rules = "[[rule]]\nidle_min = \"1h\"\naction = \"move\"\nto = \"t1\"";
    let mut harness = pair(rules, &[("max_bytes", "unlimited")]);
    for index in 0..5000 {
        harness.write(&format!("n/{index}"), 1000);
    }
    harness.round();
    harness.advance(4000.0);
    let mut rounds = Vec::new();
    while harness.view.live().any(|(_, segment)| segment.tier == TierIndex(0)) {
        rounds.push(moved(&after(&mut harness, 1.0)).len());
    }
    assert_eq!(rounds.iter().sum::<usize>(), 5000);
    assert!(rounds.iter().all(|moves| *moves <= 1024), "{rounds:?}");
    assert!(rounds.len() <= 6, "{rounds:?}");
}

#[test]
fn ages_go_on_where_the_clock_begins_anew() {
    let rules = "[[rule]]\nage_min = \"10d\"\naction = \"move\"\nto = \"t1\"";
    let mut harness = pair(rules, &[]);
    let slot = written(&mut harness, "n", 1, MB)[0];
    assert_eq!(after(&mut harness, 9.0 * 86_400.0), []);
    let mut state = Vec::new();
    harness.policy.save(&harness.view, &mut state);
    harness.view.now_ns = SECOND_NS;
    let segment = &mut harness.view.segments[slot as usize];
    (segment.created_ns, segment.last_write_ns, segment.last_close_ns) = (0, 0, 0);
    let parameters = [("rules".to_string(), rules.to_string())];
    harness.policy = registry::create("rules", &harness.view, &parameters).expect("legal");
    harness.policy.restore(&harness.view, 1, &state).expect("its own");
    harness.event(EventKind::Present, slot);
    assert_eq!(after(&mut harness, 80_000.0), []);
    assert_eq!(moved(&after(&mut harness, 7000.0)), [slot]);
}

#[test]
fn the_rules_of_the_page_are_legal() {
    let page = include_str!("../../../../docs/policies/rules.md");
    let blocks: Vec<_> =
        page.split("```toml\n").skip(1).filter_map(|it| it.split("```").next()).collect();
    let books: Vec<_> = blocks.iter().filter(|block| block.starts_with("# rules")).collect();
    assert!(!books.is_empty());
    let tiers = ["fast", "disk", "archive"].map(String::from);
    for text in books {
        assert!(Book::read(text, &tiers).expect("legal").rules.len() > 1);
    }
}
