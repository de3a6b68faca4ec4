// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stacks of tiers as one store: what a cluster of servers is without its network.

use std::sync::Arc;

use terrace_backends::kv;
use terrace_backends::object::Memory;
use terrace_client::striped::{Distribution, Map, Member, Striped};
use terrace_core::{Backend, Create, Key, ObjectExt, Open, Persistency, Semantics, TierIndex};
use terrace_stack::{MoveKind, Parts, Stack, Tier};
use terrace_testkit::behaviour_suite;

/// A stack of two tiers that promises nothing.
fn stack() -> Stack {
    let tier = |name| Tier::new(name, Arc::new(Memory::new(64 << 20))).with_capacity(64 << 20);
    let mut parts = Parts::new(vec![tier("fast"), tier("slow")], Arc::new(kv::Memory::default()));
    parts.settings.persistency = Persistency::None;
    Stack::create(&parts).and_then(|_| Stack::open(parts)).expect("opens")
}

fn cluster(distribution: Distribution) -> (Box<Striped>, Vec<Arc<Stack>>) {
    let stacks: Vec<_> = (0..3).map(|_| Arc::new(stack())).collect();
    let member = |(index, stack): (usize, &Arc<Stack>)| Member {
        id: index as u128 + 1,
        name: format!("s{index}"),
        backend: stack.clone(),
        kv: Some(Arc::new(kv::Memory::default())),
        weight: 1,
        since: 0,
    };
    let map = Map::new(0, stacks.iter().enumerate().map(member).collect()).expect("legal");
    (Box::new(Striped::new(map, distribution, 1).expect("legal")), stacks)
}

behaviour_suite!(single, cluster(Distribution::Single));
behaviour_suite!(round_robin, cluster(Distribution::RoundRobin { stripe_bytes: 3000 }));
behaviour_suite!(progressive, {
    cluster(Distribution::Progressive { head_bytes: 100, stripe_bytes: 2000 })
});

/// Servers move the pieces of an object as they like: the object is the same.
#[test]
fn migrations_below_keep_objects_whole() {
    let (store, stacks) = cluster(Distribution::RoundRobin { stripe_bytes: 64 });
    let key = Key::new("test", "a").expect("legal");
    let how = Open { create: Create::New, ..Open::default() }
        .with_semantics(Semantics::at_level(Persistency::None));
    let data: Vec<u8> = (0..5000u32).map(|at| (at / 7) as u8).collect();
    store.open(&key, &how).expect("creates").write(0, &data).expect("writes");
    let mut moved = 0;
    for stack in &stacks {
        for namespace in stack.namespaces().expect("lists") {
            let page = stack.list(&namespace, "", &terrace_core::Cursor::start(), 10);
            for piece in page.expect("lists").keys {
                let tickets = stack.migrate(&piece, TierIndex(1), MoveKind::Move, 0, "test");
                moved += tickets.expect("queued").len();
            }
        }
        assert!(stack.wait_idle(std::time::Duration::from_secs(20)));
    }
    assert_eq!(moved, 3, "one piece on each");
    let object = store.open(&key, &Open::read()).expect("opens");
    assert_eq!(object.read_to_end().expect("reads"), data);
    store.delete(&key).expect("deletes");
    assert!(stacks.iter().all(|stack| stack.namespaces().expect("lists").is_empty()));
}
