// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes whose connection breaks, and that cannot be asked for again: nobody knows whether they
//! were made.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use terrace_client::{Address, Options, Remote};
use terrace_core::{
    Applied, Backend, Clock, Error, ErrorKind, Key, Object, ObjectExt, Open, Result,
};
use terrace_transport::Listener;
use terrace_wire::{Failure, Kind, Outcome};

use super::lives::{is_unreachable, welcome};
use crate::common::peer::Peer;
use crate::common::{clock, connect, options};

/// Too long for the connection that all share.
const LONG: usize = 100 << 10;

fn listen() -> Listener {
    Listener::bind(&"127.0.0.1:0".parse().expect("legal")).expect("listen")
}

fn answer(peer: &mut Peer, outcome: Outcome) {
    let asked = peer.hear().expect("a request");
    let head = terrace_wire::write_outcomes(&[outcome]);
    peer.say(Kind::Answer, asked.header.id, &head, b"");
}

fn opened() -> Outcome {
    Outcome::Opened(terrace_wire::Opened { handle: 1, ..Default::default() })
}

fn open(client: &Remote) -> Result<Box<dyn Object>> {
    client.open(&Key::new("refused", "object").expect("legal"), &Open::create())
}

/// Answers a client's greeting with a failure.
fn turn_away(listener: &Listener, kind: ErrorKind) {
    let mut peer = Peer::new(listener.accept().expect("accept"));
    peer.hear().expect("a hello");
    let error = Error::new(kind, "serve a connection");
    peer.say(Kind::Failed, 0, &Failure::of(&error).to_head(), b"");
}

/// What a write of so many bytes says whose second try is turned away, or, where it is not `sent`,
/// the first.
fn write_turned_away(length: usize, is_sent: bool, kind: ErrorKind) -> Error {
    let listener = listen();
    let endpoint = listener.endpoint().clone();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let client = connect(&endpoint, Options { secret: None, ..options() });
            let object = open(&client.expect("connect")).expect("open");
            object.write(0, &vec![1; length]).expect_err("it is turned away")
        });
        let mut first = welcome(&listener, 1);
        answer(&mut first, opened());
        if is_sent && length < LONG {
            first.hear().expect("the write");
            drop(first);
        } else if is_sent {
            welcome(&listener, 1).hear().expect("the write");
        }
        turn_away(&listener, kind);
        client.join().expect("no panic")
    })
}

#[test]
fn a_write_that_was_sent_and_is_turned_away_then_may_have_been_made() {
    for kind in [ErrorKind::Denied, ErrorKind::Busy] {
        for length in [5, LONG] {
            let error = write_turned_away(length, true, kind);
            assert!(is_unreachable(&error, Applied::Unknown), "{length}: {}", error.chain());
            let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref());
            assert_eq!(cause.map(Error::kind), Some(kind), "{}", error.chain());
        }
        let error = write_turned_away(LONG, false, kind);
        assert_eq!(error.kind(), kind, "nothing was sent: {}", error.chain());
    }
}

/// It stands still, and stops who sleeps first until a test lets it.
struct Stopping {
    now_ns: AtomicU64,
    gate: Mutex<Option<Receiver<()>>>,
}

impl std::fmt::Debug for Stopping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Stopping").field(&self.now_ns).finish()
    }
}

impl Stopping {
    fn advance(&self, duration: Duration) {
        self.now_ns.fetch_add(duration.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for Stopping {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::SeqCst)
    }

    fn wall_ns(&self) -> u64 {
        self.now_ns()
    }

    fn sleep(&self, duration: Duration) {
        let gate = self.gate.lock().expect("no panic").take();
        match gate {
            Some(gate) => gate.recv().expect("the test lets it"),
            None => self.advance(duration),
        }
    }
}

#[test]
fn a_write_that_was_sent_and_finds_no_connection_then_may_have_been_made() {
    let listener = listen();
    let endpoint = listener.endpoint().clone();
    let (go_on, gate) = channel();
    let stopping = Stopping { now_ns: AtomicU64::new(0), gate: Mutex::new(Some(gate)) };
    let stopping = Arc::new(stopping);
    let options = Options { secret: None, connections_max: 1, ..options() };
    let half = options.deadline / 2;
    let (object, _shared) = std::thread::scope(|scope| {
        let object = scope.spawn(|| {
            let address = Address { endpoint, clock: clock() };
            let clock = Arc::clone(&stopping) as Arc<dyn Clock>;
            let client = Remote::connect(Box::new(address), options, clock).expect("connect");
            open(&client).expect("open")
        });
        let mut shared = welcome(&listener, 1);
        answer(&mut shared, opened());
        (object.join().expect("no panic"), shared)
    });
    let write = || object.write(0, &[1; LONG]);
    std::thread::scope(|scope| {
        let first = scope.spawn(write);
        welcome(&listener, 1).hear().expect("the write");
        // That connection broke. Another write, with a later deadline, takes the only place.
        stopping.advance(half);
        let second = scope.spawn(write);
        let mut other = welcome(&listener, 1);
        let asked = other.hear().expect("the other write");
        stopping.advance(half);
        go_on.send(()).expect("it waits");
        let error = first.join().expect("no panic").expect_err("there is no connection");
        let head = terrace_wire::write_outcomes(&[Outcome::Done]);
        other.say(Kind::Answer, asked.header.id, &head, b"");
        second.join().expect("no panic").expect("it was answered");
        assert!(is_unreachable(&error, Applied::Unknown), "{}", error.chain());
        assert!(error.chain().contains("connections_max=1"), "{}", error.chain());
    });
}
