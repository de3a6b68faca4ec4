// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What objects are promised while it is being made good.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::hooked::{Call, Verdict};
use crate::common::world::{LONG, World, bounded, key, open_durable, put};
use terrace_core::{Backend, BackendExt, Clock, ErrorKind, Open, SystemClock};
use terrace_testkit::Operation;

/// Counts the syncs of the files of the first tier; the first of them fails where `fails` says so.
fn count_syncs(world: &World, fails: bool) -> Arc<AtomicU64> {
    let syncs = Arc::<AtomicU64>::default();
    let counted = syncs.clone();
    world.tier(0).on(move |moment| {
        let is_first = || counted.fetch_add(1, Ordering::SeqCst) == 0;
        let is_sync = moment.call == Call::Sync && !moment.is_done;
        if is_sync && is_first() && fails { Verdict::Fail(ErrorKind::Io) } else { Verdict::Go }
    });
    syncs
}

#[test]
fn whoever_opens_after_a_promise_that_failed_has_it_kept_or_hears_that_it_is_not() {
    for fails_at_commit in [false, true] {
        let world = World::two();
        let stack = world.create();
        let name = key("raised");
        put(&stack, &name, &[1; 5000]);
        if fails_at_commit {
            world.kv().fail_next(Operation::KvCommit, ErrorKind::Io);
        }
        let syncs = count_syncs(&world, !fails_at_commit);
        let error = open_durable(&stack, &name).map(drop).expect_err("it cannot be kept");
        assert_eq!(error.kind(), ErrorKind::Io, "{}", error.chain());
        let before = syncs.load(Ordering::SeqCst);
        let object = open_durable(&stack, &name).expect("now it can");
        assert!(syncs.load(Ordering::SeqCst) > before, "{fails_at_commit}");
        world.failpoints().freeze();
        drop((object, stack));
        world.lose_all_unsynced();
        assert_eq!(world.open().read_all(&name).expect("reads"), [1; 5000]);
    }
}

#[test]
fn a_promise_is_not_given_while_it_is_being_made_good() {
    let world = World::two();
    let stack = Arc::new(world.create());
    let name = key("raised");
    put(&stack, &name, &[1; 5000]);
    world.tier(0).hold(|moment| moment.call == Call::Sync && !moment.is_done);
    let open = |is_open: &Arc<AtomicBool>| {
        let (stack, name, is_open) = (stack.clone(), name.clone(), is_open.clone());
        std::thread::spawn(move || {
            let object = open_durable(&stack, &name).expect("opens");
            is_open.store(true, Ordering::SeqCst);
            object
        })
    };
    let are_open = [(); 2].map(|()| Arc::<AtomicBool>::default());
    let first = open(&are_open[0]);
    world.tier(0).wait_until_held();
    let second = open(&are_open[1]);
    pause();
    assert!(are_open.iter().all(|is_open| !is_open.load(Ordering::SeqCst)));
    // Who asks for no more than there was waits for nobody.
    let (other, its_name) = (stack.clone(), name.clone());
    bounded(LONG, "an open at the old level", move || {
        other.open(&its_name, &Open::write()).map(drop).expect("opens");
    });
    world.tier(0).release();
    bounded(LONG, "opens", move || drop((first.join(), second.join())));
}

/// Long enough for another thread to go on until something holds it.
fn pause() {
    SystemClock::default().sleep(Duration::from_millis(200));
}
