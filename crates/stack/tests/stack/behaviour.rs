// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stack is a backend: the suite of all backends, on four kinds of stack.

use std::sync::Arc;

use crate::common::bouncer::Bouncer;
use crate::common::crashing::Crash;
use crate::common::world::{ROOMY, World, key, migrate, put};
use terrace_core::{Backend, ObjectExt, Open, Persistency, Result, TierIndex};
use terrace_stack::{MoveKind, Parts, Stack, Tier};
use terrace_testkit::pattern_bytes;

/// One tier without a policy: hardly a stack at all.
fn one_tier() -> (Box<Stack>, World) {
    let world = World::with(&[("only", ROOMY, Persistency::Storage)]).lending();
    (Box::new(world.create()), world)
}

fn two_tiers() -> (Box<Stack>, World) {
    let world = World::two().lending();
    (Box::new(world.create()), world)
}

/// A stack whose tiers are stacks.
fn stack_of_stacks() -> (Box<Stack>, Nest) {
    let nest = Nest([World::two().lending(), World::two(), World::with(&[])]);
    (Box::new(nest.open(World::create, |parts| Stack::create(parts).map(drop))), nest)
}

/// The worlds of two stacks, and that of the stack over them, which has no disk.
struct Nest([World; 3]);

impl Nest {
    fn open(
        &self,
        inner: impl Fn(&World) -> Stack,
        prepare: impl Fn(&Parts) -> Result<()>,
    ) -> Stack {
        let Self([upper, lower, outer]) = self;
        let tier = |name: &str, world: &World| Tier::new(name, Arc::new(inner(world)));
        let parts = Parts::new(vec![tier("upper", upper), tier("lower", lower)], outer.kv().open());
        let stack = prepare(&parts).and_then(|()| Stack::open(parts));
        stack.unwrap_or_else(|error| panic!("{}", error.chain()))
    }
}

/// What is synced in a stack of stacks survives the loss of power, wherever it was moved.
#[test]
fn a_stack_of_stacks_keeps_what_was_synced() {
    for seed in 0..5 {
        let (stack, nest) = stack_of_stacks();
        let names: Vec<_> = (0..20).map(|number| key(&format!("object-{number}"))).collect();
        let data = |number: usize| pattern_bytes(number as u64, 1, 0, 1000 * (number + 1));
        for (number, name) in names.iter().enumerate() {
            put(&stack, name, &data(number));
            if number % 2 == 0 {
                migrate(&stack, name, TierIndex(1), MoveKind::Move);
            }
        }
        stack.sync().expect("syncs");
        for name in &names[..10] {
            // These are under way, or done and not certain, when it happens.
            stack.migrate(name, TierIndex(seed as u8 % 2), MoveKind::Move, 0, "test").ok();
        }
        nest.0.iter().for_each(|world| world.failpoints().freeze());
        drop(stack);
        nest.0.iter().for_each(|world| world.crash(Crash::Power { seed }));
        let stack = nest.open(World::open, |_| Ok(()));
        for (number, name) in names.iter().enumerate() {
            let object = stack.open(name, &Open::read()).expect("it was synced");
            let mut found = vec![0; 1000 * (number + 1) + 1];
            let count = object.read(0, &mut found).expect("reads");
            assert!(found[..count] == data(number), "seed {seed}: {name} has other bytes");
        }
        let check = stack.check(true, &mut |_, _| {}).expect("checks");
        assert!(check.problems.is_empty(), "seed {seed}: {:?}", check.problems);
    }
}

/// A stack whose objects never stay where they are.
fn bouncing() -> (Box<Stack>, (Bouncer, World)) {
    let world = World::three().lending();
    let stack = world.create();
    let bouncer = Bouncer::start(stack.clone());
    (Box::new(stack), (bouncer, world))
}

terrace_testkit::behaviour_suite!(on_one_tier, one_tier());
terrace_testkit::behaviour_suite!(on_two_tiers, two_tiers());
terrace_testkit::behaviour_suite!(on_stacks, stack_of_stacks());
terrace_testkit::behaviour_suite!(while_objects_bounce, bouncing());
