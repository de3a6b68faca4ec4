// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commits of which nobody heard that they were written, and what was done since.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use crate::common::crashing::Crash;
use crate::common::hooked::{Call, Verdict};
use crate::common::world::{World, assert_sound, cutting, eventually, key, put};
use terrace_core::{
    Atomicity, Backend, BackendExt, Error, ErrorKind, Hint, Key, Kv, Object, ObjectExt, Op, Open,
    Persistency, Request, Result, Semantics, Ticket,
};
use terrace_stack::{Parts, Stack};
use terrace_testkit::{Body, KvLayer, Layered, Operation};

/// What becomes of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Written,
    /// It is written, and whoever commits hears that it failed.
    WrittenUnheard,
    Refused,
    /// The disk is full.
    Full,
}

/// An engine in which the next commits of one thread fail.
struct Doubtful {
    inner: Arc<dyn Kv>,
    thread: ThreadId,
    fates: Mutex<VecDeque<Fate>>,
}

impl Doubtful {
    /// The engine of a world, for the thread that calls.
    fn of(world: &World) -> Arc<Layered<Self>> {
        let (inner, thread) = (world.parts().catalog, std::thread::current().id());
        Arc::new(Layered(Self { inner, thread, fates: Mutex::default() }))
    }

    /// What becomes of the next commits.
    fn next(&self, fates: &[Fate]) {
        self.fates.lock().expect("never poisoned").extend(fates);
    }

    fn is_over(&self) -> bool {
        self.fates.lock().expect("never poisoned").is_empty()
    }

    fn fate(&self) -> Fate {
        let is_meant = self.thread == std::thread::current().id();
        let next = || self.fates.lock().expect("never poisoned").pop_front();
        is_meant.then(next).flatten().unwrap_or(Fate::Written)
    }
}

impl KvLayer for Doubtful {
    fn inner(&self) -> &dyn Kv {
        &*self.inner
    }

    fn transact(&self, body: Body<'_>) -> Result<Ticket> {
        let failed = |kind| Err(Error::new(kind, "commit").because("the test said so"));
        let fate = self.fate();
        let ticket = self.inner.transact(&mut |txn| {
            body(txn)?;
            match fate {
                Fate::Refused => failed(ErrorKind::Io),
                Fate::Full => failed(ErrorKind::NoSpace),
                Fate::Written | Fate::WrittenUnheard => Ok(()),
            }
        })?;
        if fate == Fate::WrittenUnheard {
            failed(ErrorKind::Io)?
        }
        Ok(ticket)
    }
}

/// A store over such an engine.
fn doubtful(world: &World, change: impl Fn(&mut Parts)) -> (Stack, Arc<Layered<Doubtful>>) {
    world.create_parts(|_| {});
    let engine = Doubtful::of(world);
    let stack = world.open_with(|parts| {
        parts.catalog = Arc::clone(&engine) as Arc<dyn Kv>;
        change(parts);
    });
    (stack, engine)
}

fn durable(open: Open) -> Open {
    open.with_semantics(Semantics::at_level(Persistency::Storage))
}

/// Ends the process, and opens the store anew.
fn crashed(world: &World, stack: Stack, object: Option<Box<dyn Object>>) -> Stack {
    world.failpoints().freeze();
    drop((object, stack));
    world.crash(Crash::Process);
    world.open()
}

fn assert_gone(stack: &Stack, name: &Key) {
    let opened = stack.open(name, &Open::read()).map(drop).expect_err("it was deleted");
    assert_eq!(opened.kind(), ErrorKind::NotFound, "{}", opened.chain());
    let deleted = stack.delete(name).expect_err("it was deleted");
    assert_eq!(deleted.kind(), ErrorKind::NotFound, "{}", deleted.chain());
}

#[test]
fn what_was_deleted_is_gone_although_that_could_not_be_made_durable() {
    let world = World::two();
    let stack = world.create();
    let name = key("deleted");
    let object = stack.open(&name, &durable(Open::create_new())).expect("creates");
    object.write(0, &[1; 5000]).expect("writes");
    world.kv().fail_next(Operation::KvWait, ErrorKind::Io);
    let error = stack.delete(&name).expect_err("it cannot be made durable");
    assert_eq!(error.kind(), ErrorKind::Io, "{}", error.chain());
    assert_gone(&stack, &name);
    put(&stack, &name, &[2; 300]);
    drop(object);
    assert_eq!(stack.read_all(&name).expect("reads"), [2; 300]);
    assert_eq!(stack.tiers()[0].used_bytes, 300);
}

#[test]
fn a_create_that_was_taken_back_leaves_nothing_although_that_could_not_be_made_durable() {
    let world = World::two();
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(4096)));
    let name = key("taken-back");
    let kv = world.kv().clone();
    world.tier(0).on(move |moment| match moment.call {
        Call::Write if !moment.is_done => {
            kv.fail_next(Operation::KvWait, ErrorKind::Io);
            Verdict::Fail(ErrorKind::Io)
        }
        _ => Verdict::Go,
    });
    let create = Request::Create { key: &name, data: &[1; 8000], hint: Hint::default() };
    let mut operations = [Op::new(create)];
    let semantics =
        Semantics { atomicity: Atomicity::Operation, ..Semantics::at_level(Persistency::Storage) };
    stack.execute(&mut operations, &semantics);
    let [operation] = operations;
    operation.outcome.expect("is filled").expect_err("its bytes cannot be written");
    world.tier(0).heal();
    assert_gone(&stack, &name);
    put(&stack, &name, &[2; 300]);
    assert_eq!(stack.read_all(&name).expect("reads"), [2; 300]);
}

#[test]
fn an_object_whose_deletion_failed_is_there_after_a_crash() {
    for times in [1, 2] {
        let world = World::two();
        let (stack, engine) = doubtful(&world, |_| {});
        let name = key("kept");
        put(&stack, &name, &[1; 5000]);
        let object = stack.open(&name, &durable(Open::write())).expect("opens");
        engine.next(&[Fate::WrittenUnheard, Fate::Refused][..times]);
        let error = stack.delete(&name).expect_err("the commit fails");
        assert_eq!(error.kind(), ErrorKind::Io, "{}", error.chain());
        assert!(engine.is_over(), "it is said again that the object is there");
        let written = object.write(0, &[2; 100]).and_then(|()| object.sync());
        // What cannot be said again lets nobody believe that what he writes is kept.
        assert_eq!(written.is_ok(), times == 1, "{written:?}");
        let stack = crashed(&world, stack, Some(object));
        if times == 1 {
            let expected = [[2; 100].as_slice(), &[1; 4900]].concat();
            assert_eq!(stack.read_all(&name).expect("reads"), expected);
        }
        assert_sound(&world, &stack);
    }
}

#[test]
fn what_could_not_be_cut_off_is_there_after_a_crash() {
    let world = World::two();
    let (stack, engine) = doubtful(&world, |parts| parts.tactics = Some(cutting(4096)));
    let name = key("kept");
    put(&stack, &name, &[1; 8000]);
    let object = stack.open(&name, &durable(Open::write())).expect("opens");
    engine.next(&[Fate::WrittenUnheard]);
    let error = object.set_len(100).expect_err("the commit fails");
    assert_eq!(error.kind(), ErrorKind::Io, "{}", error.chain());
    object.write(5000, &[2; 100]).expect("writes");
    object.sync().expect("syncs");
    let mut expected = vec![1; 8000];
    expected[5000..5100].fill(2);
    assert_eq!(object.read_to_end().expect("reads"), expected);
    let stack = crashed(&world, stack, Some(object));
    assert_eq!(stack.read_all(&name).expect("reads"), expected);
    assert_sound(&world, &stack);
}

#[test]
fn a_full_disk_of_the_catalog_does_not_stop_the_store() {
    let world = World::two();
    let (stack, engine) = doubtful(&world, |parts| parts.tactics = Some(cutting(4096)));
    let name = key("kept");
    put(&stack, &name, &[1; 8000]);
    let object = stack.open(&name, &Open::write()).expect("opens");
    for is_cut in [true, false] {
        engine.next(&[Fate::Full, Fate::Full]);
        let done = if is_cut { object.set_len(100) } else { stack.delete(&name) };
        assert_eq!(done.expect_err("there is no room").kind(), ErrorKind::NoSpace);
        assert!(engine.is_over());
        object.write(5000, &[2; 100]).expect("writes");
    }
    assert_eq!(object.read_to_end().expect("reads").len(), 8000);
}

/// What found no room may be kept, and be written when there is some.
#[test]
fn an_engine_that_fails_behind_a_full_disk_stops_the_store() {
    for is_cut in [true, false] {
        let world = World::two();
        let (stack, engine) = doubtful(&world, |parts| parts.tactics = Some(cutting(4096)));
        let name = key("kept");
        put(&stack, &name, &[1; 8000]);
        let object = stack.open(&name, &Open::write()).expect("opens");
        engine.next(&[Fate::Full, Fate::Refused]);
        let done = if is_cut { object.set_len(100) } else { stack.delete(&name) };
        assert_eq!(done.expect_err("there is no room").kind(), ErrorKind::NoSpace);
        assert!(engine.is_over());
        let error = object.write(5000, &[2; 100]).expect_err("a crash could undo it");
        assert_eq!(error.kind(), ErrorKind::Io, "{}", error.chain());
    }
}

/// The record of a create that failed is there although nobody heard so, and cannot be taken back.
#[test]
fn a_file_that_a_record_names_is_not_deleted_with_a_create_that_failed() {
    let world = World::two();
    let (stack, engine) = doubtful(&world, |_| {});
    let name = key("created");
    engine.next(&[Fate::WrittenUnheard, Fate::Refused]);
    let error = stack.open(&name, &Open::create_new()).map(drop).expect_err("the commit fails");
    assert_eq!(error.kind(), ErrorKind::Io, "{}", error.chain());
    assert!(engine.is_over());
    // The dropper would have had it by now.
    let gone = key("gone");
    put(&stack, &gone, &[1; 100]);
    stack.delete(&gone).expect("deletes");
    eventually("what was deleted is gone", || stack.tiers()[0].garbage_bytes == 0);
    let stack = crashed(&world, stack, None);
    assert_eq!(stack.read_all(&name).expect("reads"), b"");
    assert_sound(&world, &stack);
}
