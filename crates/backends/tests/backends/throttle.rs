// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A throttled backend takes exactly the time that was asked for.

use std::io::IoSlice;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use terrace_backends::object::{Memory, Rates, Throttle};
use terrace_core::{
    Access, Backend, Clock, Create, End, ErrorKind, Hint, Key, Object, ObjectExt, Op, Open,
    Persistency, Reply, Request, Semantics, SystemClock,
};
use terrace_testkit::ManualClock;

const VOLATILE: Semantics = Semantics::at_level(Persistency::None);

/// One request takes 1 ms, a read 1 ns a byte more, a write 2 ns.
const RATES: Rates = Rates {
    latency: Duration::from_millis(1),
    read_bytes_per_s: Some(1e9),
    write_bytes_per_s: Some(5e8),
    parallelism: 1,
};

fn key(text: &str) -> Key {
    Key::parse(text).expect("legal")
}

fn opened(backend: &dyn Backend, name: &str, create: Create) -> Box<dyn Object> {
    let how = Open { create, semantics: VOLATILE, ..Open::default() };
    backend.open(&key(name), &how).expect("room")
}

/// Nanoseconds that `action` takes.
fn measure<T>(clock: &dyn Clock, action: impl FnOnce() -> T) -> (u64, T) {
    let start_ns = clock.now_ns();
    let outcome = action();
    (clock.now_ns() - start_ns, outcome)
}

fn throttled(rates: Rates, clock: &Arc<impl Clock + 'static>) -> Throttle {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    Throttle::new(Arc::new(Memory::new(1 << 20)), rates, clock)
}

#[test]
fn each_request_takes_its_latency_and_its_bytes() {
    let clock = Arc::new(ManualClock::new());
    let backend = throttled(RATES, &clock);
    let took = |action: &dyn Fn()| measure(&*clock, action).0;

    let object = opened(&backend, "app/a", Create::New);
    assert_eq!(took(&|| object.write(0, &[1; 500]).expect("room")), 1_001_000);
    let two = [IoSlice::new(&[2; 100]), IoSlice::new(&[3; 150])];
    assert_eq!(took(&|| assert_eq!(object.append(&two).expect("room"), 500)), 1_000_500);
    let past_end = || assert_eq!(object.read(700, &mut [0; 200]).expect("some"), 50);
    assert_eq!(took(&past_end), 1_000_050, "what was read counts, not what was asked for");
    assert_eq!(took(&|| object.set_len(600).expect("cut")), 1_000_000);
    assert_eq!(took(&|| object.punch(0..10).expect("inside")), 1_000_000);
    assert_eq!(took(&|| object.allocate(0..700, End::Grows).expect("room")), 1_000_000);
    assert_eq!(took(&|| drop(opened(&backend, "app/b", Create::New))), 1_000_000);
    assert_eq!(took(&|| drop(opened(&backend, "app/c", Create::IfMissing))), 1_000_000);
    assert_eq!(took(&|| backend.delete(&key("app/b")).expect("there")), 1_000_000);
    let error = || assert!(object.write(0, &[0; 2 << 20]).is_err());
    assert_eq!(took(&error), 1_000_000, "a request that fails takes the latency");
}

#[test]
fn what_moves_no_bytes_is_free() {
    let clock = Arc::new(ManualClock::new());
    let backend = throttled(RATES, &clock);
    let object = opened(&backend, "app/a", Create::New);
    let (took_ns, ()) = measure(&*clock, || {
        drop(opened(&backend, "app/a", Create::Never));
        drop(opened(&backend, "app/a", Create::IfMissing));
        let missing = backend.open(&key("app/b"), &Open::read()).err().expect("missing");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert_eq!(object.stat().expect("stat"), backend.stat(&key("app/a")).expect("stat"));
        object.sync().expect("nothing to do");
        backend.sync().expect("nothing to do");
        assert_eq!(backend.list("app", "", &Default::default(), 9).expect("list").keys.len(), 1);
        let tier = backend.tier().expect("the inner one can be a tier");
        assert_eq!(tier.superblock().expect("read"), None);
        assert_eq!(tier.identity(&key("app/a")).expect("read"), None);
    });
    assert_eq!(took_ns, 0);
    assert!(object.lease_file().expect("asking is allowed").is_none());
    assert!(object.hold_file(Access::Write).expect("asking is allowed").is_none());
    assert!(!backend.capability().leases);
}

#[test]
fn a_batch_costs_what_its_operations_cost() {
    let clock = Arc::new(ManualClock::new());
    let backend = throttled(RATES, &clock);
    let key = key("app/a");
    let mut buffer = [0; 8];
    let mut operations = [
        Request::Create { key: &key, data: &[7; 500], hint: Hint::default() },
        Request::Stat { key: &key },
        Request::Write { key: &key, offset_bytes: 500, data: &[8; 5] },
        Request::Read { key: &key, offset_bytes: 498, buffer: &mut buffer },
        Request::Delete { key: &key },
        Request::Delete { key: &key },
    ]
    .map(Op::new);
    let (took_ns, ()) = measure(&*clock, || backend.execute(&mut operations, &VOLATILE));
    // Creating with bytes is two requests, as it is one by one.
    assert_eq!(took_ns, 6 * 1_000_000 + 2 * 505 + 7);
    let [created, stat, written, read, deleted, again] =
        operations.map(|operation| operation.outcome.expect("executed"));
    assert_eq!(created.expect("created"), Reply::Done);
    assert!(matches!(stat.expect("stat"), Reply::Stat(stat) if stat.size_bytes == 500));
    assert_eq!(written.expect("written"), Reply::Done);
    assert_eq!(read.expect("read"), Reply::Count(7));
    assert_eq!(deleted.expect("deleted"), Reply::Done);
    assert_eq!(again.expect_err("gone").kind(), ErrorKind::NotFound);
    assert_eq!(buffer, [7, 7, 8, 8, 8, 8, 8, 0]);
}

/// 16 requests of 50 ms, 8 at a time: 100 ms, where one at a time takes 800 ms.
fn slow() -> Rates {
    Rates { latency: Duration::from_millis(50), parallelism: 8, ..RATES }
}

const ASKED_NS: u64 = 100_000_000;
const ONE_AT_A_TIME_NS: u64 = 800_000_000;

#[test]
fn threads_share_the_servers_of_a_device_in_real_time() {
    let clock = Arc::new(SystemClock::default());
    let backend = throttled(slow(), &clock);
    let (took_ns, ()) = measure(&*clock, || {
        thread::scope(|scope| {
            for index in 0..16 {
                let backend = &backend;
                scope.spawn(move || opened(backend, &format!("app/{index}"), Create::New));
            }
        });
    });
    assert!((ASKED_NS..ONE_AT_A_TIME_NS).contains(&took_ns), "{took_ns}");
}

#[test]
fn a_batch_uses_all_servers_in_real_time() {
    let clock = Arc::new(SystemClock::default());
    let backend = throttled(slow(), &clock);
    let keys: Vec<Key> = (0..16).map(|index| key(&format!("app/{index}"))).collect();
    let create = |key| Op::new(Request::Create { key, data: &[], hint: Hint::default() });
    let mut operations: Vec<Op<'_>> = keys.iter().map(create).collect();
    let (took_ns, ()) = measure(&*clock, || backend.execute(&mut operations, &VOLATILE));
    assert!((ASKED_NS..ONE_AT_A_TIME_NS).contains(&took_ns), "{took_ns}");
    assert!(operations.iter().all(|operation| matches!(operation.outcome, Some(Ok(_)))));
}
