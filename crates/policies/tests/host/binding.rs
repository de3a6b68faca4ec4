// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `bindings/policy`, by a library that uses all of it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use terrace_core::{
    ActionKind, Actions, ErrorKind, Interest, Layout, Placed, Prices, TierIndex, View,
};
use terrace_policies::host;

use crate::build;
use crate::loading::place;
use crate::misbehaviour::scripted;
use crate::world::{World, load, tier, two_tiers};

#[test]
fn the_binding_carries_everything_both_ways() {
    let mut world = World::new(build::binding(), &[]);
    let placed = place(&*world.policy.placer());
    let layout = Layout::Steps { starts_bytes: [4096].into() };
    assert_eq!(placed, Placed { tier: TierIndex(1), layout });

    assert_eq!(world.policy.interest(), Interest { stat: true, sync: true });

    world.create("t/a", 10);
    world.wait_s(1);
    assert_eq!(world.round(), ["a promote 0: because"]);
    let mut message = |kind: &str| world.policy.message(&world.view, kind, b"xyz");
    assert_eq!(message("seen").expect("known"), b"t/a nothing");
    assert_ne!(message("random").expect("known"), b"0", "two numbers differ");
    let error = message("read").expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("3 bytes are no body"), "{error}");
    assert_eq!(message("what").expect_err("unknown").kind(), ErrorKind::Unsupported);
    let now = message("now").expect("known");
    assert_eq!(now, world.view.now_ns.to_string().into_bytes());

    let mut actions = Actions::with_budget(100, 1);
    world.policy.plan(&world.view, &mut actions);
    let [action] = &actions.into_list()[..] else { panic!("one object") };
    assert_eq!(action.kind, ActionKind::Promote { to: TierIndex(0) });
    assert_eq!((action.priority, action.benefit_s), (-3, 1.5));
}

#[test]
fn libraries_see_prices() {
    for library in [build::binding(), scripted()] {
        let mut world = World::new(library, &[]);
        world.view.tiers[1].figures.prices = Prices {
            per_1000_write_requests: 5.0,
            per_1000_read_requests: 0.4,
            per_gb_month: 0.02,
            per_gb_read: 0.09,
        };
        let prices = world.policy.message(&world.view, "prices", b"").expect("known");
        assert_eq!(String::from_utf8_lossy(&prices), "0 0 0 0;5 0.4 0.02 0.09;");
    }
}

#[test]
fn the_binding_keeps_state() {
    let mut world = World::new(build::binding(), &[]);
    world.create("t/a", 10);
    world.round();
    let mut state = Vec::new();
    world.policy.save(&world.view, &mut state);
    let mut new = load(build::binding(), &[]).expect("loads");
    assert_eq!(new.state_version(), 5);
    new.restore(&world.view, 5, &state).expect("its own");
    assert_eq!(new.message(&world.view, "seen", b"").expect("known"), b"t/a");
    let error = new.restore(&world.view, 4, &state).expect_err("another version");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let error = new.restore(&world.view, 5, b"\xff").expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn the_binding_refuses_tiers_with_its_reason() {
    let view = View::new(vec![tier("only", 100)], 1);
    let error = host::load(build::binding(), &view, &[]).err().expect("refused");
    assert!(error.to_string().contains("fast and slow are expected, not [\"only\"]"), "{error}");
}

#[test]
fn a_panic_stays_in_the_library() {
    for call in
        ["publish", "observe", "plan", "message", "parameters", "set_parameter", "save", "restore"]
    {
        let mut policy = load(build::binding(), &[]).expect("loads");
        let view = two_tiers();
        let payload = catch_unwind(AssertUnwindSafe(|| {
            policy.set_parameter("panic", call).expect("legal");
            drop(policy.placer());
            policy.observe(&view, &[]);
            policy.plan(&view, &mut Actions::with_budget(1, 1));
            policy.message(&view, "now", b"").expect("known");
            policy.parameters();
            policy.save(&view, &mut Vec::new());
            policy.restore(&view, 5, b"x").expect("its own");
        }))
        .expect_err(call);
        // The library's own panic has another text.
        let text = payload.downcast_ref::<String>().expect("a text");
        assert_eq!(text, &format!("the policy library binding failed in {call} with status 6"));
    }
}

#[test]
fn a_panic_in_place_is_the_first_tier() {
    let policy = load(build::binding(), &[("panic", "place")]).expect("loads");
    assert_eq!(place(&*policy.placer()), Placed::on(TierIndex(0)));
}
