// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults hit what they name, when they say, and nothing else.

use std::sync::Arc;
use std::thread;

use terrace_backends::object::{Effect, FaultPoint, Faults, Faulty, Memory, When};
use terrace_core::{
    Backend, Create, ErrorKind, Hint, Key, Object, ObjectExt, Op, Open, Persistency, Request,
    Semantics,
};

const VOLATILE: Semantics = Semantics::at_level(Persistency::None);

fn key(name: &str) -> Key {
    Key::new("app", name).expect("legal")
}

fn fresh() -> (Faulty, Arc<Faults>) {
    let faults = Faults::new(7);
    (Faulty::new(Arc::new(Memory::new(1 << 20)), Arc::clone(&faults)), faults)
}

fn opened(backend: &dyn Backend, name: &str) -> Box<dyn Object> {
    let how = Open { create: Create::IfMissing, semantics: VOLATILE, ..Open::default() };
    backend.open(&key(name), &how).expect("open")
}

fn fail(points: &[FaultPoint], when: When) -> impl Fn(&Faults) {
    move |faults| faults.add(points, when, Effect::Fail(ErrorKind::Io))
}

#[test]
fn the_nth_operation_fails_and_no_other() {
    let (backend, faults) = fresh();
    let object = opened(&backend, "a");
    faults.add(&[FaultPoint::Write], When::Nth(3), Effect::Fail(ErrorKind::NoSpace));
    let outcomes: Vec<bool> = (0..5).map(|_| object.write(0, b"x").is_ok()).collect();
    assert_eq!(outcomes, [true, true, false, true, true]);
    assert_eq!(faults.injected(), 1);
}

#[test]
fn every_second_operation_fails() {
    let (backend, faults) = fresh();
    fail(&[FaultPoint::Stat, FaultPoint::List], When::Every(2))(&faults);
    let object = opened(&backend, "a");
    assert!(object.stat().is_ok());
    assert_eq!(backend.namespaces().expect_err("the second").kind(), ErrorKind::Io);
    assert!(backend.stat(&key("a")).is_ok());
    assert!(backend.space().is_err());
    faults.clear();
    assert!((0..4).all(|_| backend.space().is_ok()));
}

#[test]
fn chance_is_the_same_for_a_seed() {
    let hits = || {
        let (backend, faults) = fresh();
        let object = opened(&backend, "a");
        fail(&[FaultPoint::Read], When::Chance(0.5))(&faults);
        (0..100).map(|_| object.read(0, &mut [0]).is_err()).collect::<Vec<_>>()
    };
    assert_eq!(hits(), hits());
    assert!((20..80).contains(&hits().iter().filter(|hit| **hit).count()));
}

#[test]
fn a_short_write_leaves_its_first_half() {
    let (backend, faults) = fresh();
    let object = opened(&backend, "a");
    object.write(0, b"aaaaaaaa").expect("room");
    faults.add(&[FaultPoint::Write], When::Always, Effect::Short(ErrorKind::NoSpace));
    assert_eq!(object.write(2, b"bbbb").expect_err("short").kind(), ErrorKind::NoSpace);
    let appended = object.append(&[std::io::IoSlice::new(b"cccc")]);
    assert_eq!(appended.expect_err("short").kind(), ErrorKind::NoSpace);
    assert_eq!(object.read_to_end().expect("read"), b"aabbaaaacc");
}

#[test]
fn a_failed_sync_is_sticky_for_its_handle() {
    let (backend, faults) = fresh();
    let (one, other) = (opened(&backend, "a"), opened(&backend, "a"));
    fail(&[FaultPoint::Sync], When::Nth(1))(&faults);
    assert!(one.sync().is_err());
    assert_eq!(one.sync().expect_err("sticky").kind(), ErrorKind::Io);
    other.sync().expect("a handle of its own");
    fail(&[FaultPoint::SyncNames], When::Nth(1))(&faults);
    assert!(backend.sync().is_err());
}

#[test]
fn a_device_that_hangs_goes_on_when_it_is_released() {
    let (backend, faults) = fresh();
    let object = opened(&backend, "a");
    faults.add(&[FaultPoint::Write], When::Nth(1), Effect::Hang);
    thread::scope(|scope| {
        let writer = scope.spawn(|| object.write(0, b"abc"));
        faults.wait_hanging(1);
        assert!(!writer.is_finished());
        assert_eq!(object.stat().expect("others go on").size_bytes, 0);
        faults.release();
        writer.join().expect("no panic").expect("written in the end");
    });
    assert_eq!(object.stat().expect("stat").size_bytes, 3);
}

#[test]
fn what_hangs_during_a_crash_never_takes_effect() {
    let (backend, faults) = fresh();
    let object = opened(&backend, "a");
    faults.add(&[FaultPoint::Write], When::Nth(1), Effect::Hang);
    thread::scope(|scope| {
        let writer = scope.spawn(|| object.write(0, b"abc"));
        faults.wait_hanging(1);
        faults.crash_after(0);
        assert!(object.stat().is_err());
        faults.restart();
        faults.release();
        let error = writer.join().expect("no panic").expect_err("its process is dead");
        assert_eq!(error.kind(), ErrorKind::Io);
    });
    assert_eq!(opened(&backend, "a").stat().expect("stat").size_bytes, 0);
}

#[test]
fn an_offline_device_comes_back_as_it_was() {
    let (backend, faults) = fresh();
    let object = opened(&backend, "a");
    object.write(0, b"abc").expect("room");
    faults.set_offline(true);
    assert_eq!(object.read(0, &mut [0]).expect_err("offline").kind(), ErrorKind::Io);
    assert_eq!(backend.stat(&key("a")).expect_err("offline").kind(), ErrorKind::Io);
    faults.set_offline(false);
    assert_eq!(object.read_to_end().expect("back"), b"abc");
}

#[test]
fn after_a_crash_everything_fails_until_the_restart() {
    let (backend, faults) = fresh();
    let object = opened(&backend, "a");
    faults.crash_after(2);
    object.write(0, b"ab").expect("the first");
    object.stat().expect("the second");
    assert!(!faults.has_crashed());
    assert!(object.stat().is_err() && backend.stat(&key("a")).is_err());
    assert!(faults.has_crashed());
    faults.restart();
    assert!(object.stat().is_err(), "a handle of the process that died");
    assert_eq!(opened(&backend, "a").read_to_end().expect("kept"), b"ab");
}

#[test]
fn each_operation_of_a_batch_can_fail() {
    let (backend, faults) = fresh();
    let keys = ["a", "b", "c"].map(key);
    fail(&[FaultPoint::Create], When::Nth(2))(&faults);
    let create = |key| Op::new(Request::Create { key, data: b"x", hint: Hint::default() });
    let mut operations: Vec<Op<'_>> = keys.iter().map(create).collect();
    backend.execute(&mut operations, &VOLATILE);
    let outcomes: Vec<bool> = operations
        .into_iter()
        .map(|operation| operation.outcome.expect("executed").is_ok())
        .collect();
    assert_eq!(outcomes, [true, false, true]);
    assert_eq!(backend.stat(&keys[1]).expect_err("not made").kind(), ErrorKind::NotFound);
}

#[test]
fn one_device_may_carry_several_tiers() {
    let (one, faults) = fresh();
    let two = Faulty::new(Arc::new(Memory::new(1 << 20)), Arc::clone(&faults));
    faults.set_offline(true);
    assert!(one.space().is_err() && two.space().is_err());
    let error = two.space().expect_err("offline").to_string();
    assert!(error.contains("target=faulty:memory:"), "{error}");
}
