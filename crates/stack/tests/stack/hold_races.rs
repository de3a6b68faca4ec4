// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads that hold objects, write them past the stack and let go, while others move everything.

use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::directories::Directories;
use crate::common::pattern::stamped;
use crate::common::world::{LONG, key, outcome_of, put};
use terrace_core::{Access, Backend, BackendExt, Key, ObjectExt, Open, TierIndex};
use terrace_stack::{MoveKind, MoveTicket, Stack};

const FAST: TierIndex = TierIndex(0);
const SLOW: TierIndex = TierIndex(1);
const OBJECTS: usize = 4;
const ROUNDS: u64 = 150;
const FIRST_BYTES: usize = 3200;
const STEP_BYTES: usize = 320;

struct Run {
    stack: Stack,
    names: Vec<Key>,
    holds: AtomicU64,
    is_over: AtomicBool,
    tickets: Mutex<Vec<MoveTicket>>,
}

impl Run {
    fn new(stack: Stack) -> Self {
        let names: Vec<_> = (0..OBJECTS).map(|number| key(&number.to_string())).collect();
        names.iter().for_each(|name| put(&stack, name, &stamped(1, 0, 0, FIRST_BYTES)));
        Self {
            stack,
            names,
            holds: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            tickets: Mutex::default(),
        }
    }

    /// Writes an object again and again, longer each time, past the stack where it can be held.
    fn write(&self, name: &Key) {
        for round in 1..=ROUNDS {
            let data = stamped(1, round, 0, FIRST_BYTES + round as usize * STEP_BYTES);
            let object = self.stack.open(name, &Open::write()).expect("opens");
            match object.hold_file(Access::Write).expect("no failure") {
                Some(file) => {
                    self.holds.fetch_add(1, Ordering::Relaxed);
                    // In pieces, so that a migration that missed it has some and not others.
                    for (index, part) in data.chunks(STEP_BYTES).enumerate() {
                        file.write_all_at(part, (index * STEP_BYTES) as u64).expect("writes");
                    }
                }
                None => object.write(0, &data).expect("writes"),
            }
            drop(object);
            let found = self.stack.read_all(name).expect("reads");
            assert!(found == data, "{name} after round {round}: {} bytes", found.len());
        }
    }

    fn move_about(&self) {
        let wishes = [(SLOW, MoveKind::Move), (FAST, MoveKind::Promote), (SLOW, MoveKind::Copy)];
        while !self.is_over.load(Ordering::Acquire) {
            for name in &self.names {
                for (to, kind) in wishes {
                    let tickets = self.stack.migrate(name, to, kind, 0, "test");
                    // Most are refused: it is held, or moves already.
                    self.tickets
                        .lock()
                        .expect("never poisoned")
                        .extend(tickets.unwrap_or_default());
                }
            }
        }
    }

    fn moved(&self) -> usize {
        let is_done = |ticket: &&MoveTicket| {
            let report = self.stack.wait(**ticket, LONG).ok().flatten();
            report.is_some_and(|report| outcome_of(&report) == "done")
        };
        self.tickets.lock().expect("never poisoned").iter().filter(is_done).count()
    }
}

#[test]
fn no_byte_is_lost_between_holders_and_migrations() {
    let machine = Directories::two();
    let run = Run::new(machine.create());
    std::thread::scope(|scope| {
        let writers: Vec<_> =
            run.names.iter().map(|name| scope.spawn(|| run.write(name))).collect();
        scope.spawn(|| run.move_about());
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        run.is_over.store(true, Ordering::Release);
        assert!(ended.iter().all(Result::is_ok), "a writer found other bytes than its own");
    });
    assert!(run.stack.wait_idle(LONG));
    let (holds, moved) = (run.holds.load(Ordering::Relaxed), run.moved());
    assert!(holds > 0 && moved > 0, "{holds} holds, {moved} migrations: it tried nothing");
    let bytes = FIRST_BYTES + ROUNDS as usize * STEP_BYTES;
    for name in &run.names {
        let found = run.stack.read_all(name).expect("reads");
        assert!(found == stamped(1, ROUNDS, 0, bytes), "{name}");
        assert_eq!(run.stack.stat(name).expect("stats").size_bytes, bytes as u64);
    }
    machine.assert_sound(&run.stack);
}
