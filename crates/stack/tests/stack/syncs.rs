// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Syncs of several threads at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::spawn;
use std::time::Duration;

use crate::common::gate::Gate;
use crate::common::hooked::{Call, Verdict};
use crate::common::world::{LONG, World, bounded, key, put};
use terrace_core::{Backend, Clock, ObjectExt, Open, SystemClock};

/// Long enough for another thread to end, or to wait.
fn pause() {
    SystemClock::default().sleep(Duration::from_millis(100));
}

/// It returns when all bytes are durable that were written before, also those that another call began to sync.
#[test]
fn a_sync_of_everything_covers_what_others_sync() {
    for is_of_all in [false, true] {
        let world = World::two();
        let stack = Arc::new(world.create());
        let name = key("object");
        put(&stack, &name, &[1; 5000]);
        stack.sync_all().expect("syncs");
        let object = stack.open(&name, &Open::write()).expect("opens");
        object.write(0, &[2; 5000]).expect("writes");
        let (gate, begun) = (Arc::new(Gate::default()), AtomicU64::new(0));
        let synced = Arc::new(AtomicU64::new(0));
        gate.close();
        let (held, count) = (gate.clone(), synced.clone());
        world.tier(0).on(move |moment| {
            if moment.call == Call::Sync && moment.is_done {
                count.fetch_add(1, Ordering::SeqCst);
            } else if moment.call == Call::Sync && begun.fetch_add(1, Ordering::SeqCst) == 0 {
                held.pass();
            }
            Verdict::Go
        });
        let all = stack.clone();
        let first = spawn(move || if is_of_all { all.sync_all() } else { object.sync() });
        gate.wait_until_held();
        let (all, done) = (stack.clone(), synced.clone());
        let second = spawn(move || all.sync_all().map(|()| done.load(Ordering::SeqCst)));
        pause();
        gate.open();
        let ended = move || (first.join().expect("ends"), second.join().expect("ends"));
        let (first, second) = bounded(LONG, "two syncs", ended);
        first.expect("syncs");
        assert!(second.expect("syncs") > 0, "beside a sync of everything: {is_of_all}");
    }
}
