// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Storage that has to be waited for: the requests of one connection wait for it together.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use terrace_backends::kv;
use terrace_backends::object::{Rates, Throttle};
use terrace_core::{Access, Backend, Clock, Key, ObjectExt, Open, Semantics};
use terrace_server::{Limits, Server};
use terrace_wire::{Header, Kind, OnHandle, Operation, Outcome, pack_semantics, write_operations};

use crate::common::peer::{Peer, opening};
use crate::common::{Kept, Plain, eventually, serve, store};

/// What a device waits by: until a test lets it, once that is asked for.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_shut: bool,
    waiting: usize,
}

impl Gate {
    fn shut(&self) {
        self.state.lock().expect("no panic").is_shut = true;
    }

    fn open(&self) {
        self.state.lock().expect("no panic").is_shut = false;
        self.changed.notify_all();
    }

    fn waiting(&self) -> usize {
        self.state.lock().expect("no panic").waiting
    }
}

/// Where the gate is open, a request takes as long as a slow device would.
impl Clock for Gate {
    fn now_ns(&self) -> u64 {
        0
    }

    fn wall_ns(&self) -> u64 {
        0
    }

    fn sleep(&self, duration: Duration) {
        let mut state = self.state.lock().expect("no panic");
        if !state.is_shut {
            drop(state);
            return crate::common::clock().sleep(duration);
        }
        state.waiting += 1;
        let mut state = self.changed.wait_while(state, |state| state.is_shut).expect("no panic");
        state.waiting -= 1;
    }
}

/// Reads of one connection that wait at once.
const READS: u64 = 250;
/// The number of the first of them.
const FIRST_ID: u64 = 1000;

/// All of them may wait.
fn limits() -> Limits {
    Limits { waiting_max: READS as usize, ..Limits::default() }
}

/// A server of an object on a slow device, and a client that has it open.
struct Slow {
    gate: Arc<Gate>,
    server: Server,
    peer: Peer,
    handle: u64,
    _kept: Arc<Kept>,
}

impl Slow {
    /// The server knows how long its reads take.
    fn new(content: &[u8], limits: Limits) -> Self {
        let gate = Arc::new(Gate::default());
        let rates = Rates {
            latency: Duration::from_millis(2),
            read_bytes_per_s: None,
            write_bytes_per_s: None,
            parallelism: READS as u32,
        };
        let kept = store();
        let inner = Arc::clone(&kept.backend) as Arc<dyn Backend>;
        let key = Key::new("slow", "object").expect("legal");
        let object = inner.open(&key, &Open::create_new()).expect("open");
        object.write(0, content).expect("write");
        let backend = Arc::new(Throttle::new(inner, rates, Arc::clone(&gate) as Arc<dyn Clock>));
        let service = Plain { backend, kv: Arc::new(kv::Memory::default()) };
        let (server, endpoint) = serve(Arc::new(service), limits);
        let mut peer = Peer::greeted(&endpoint);
        let [Outcome::Opened(opened)] = &peer.done(&[opening(key, Access::Read)], b"")[..] else {
            panic!("it is there");
        };
        let handle = opened.handle;
        let mut slow = Self { gate, server, peer, handle, _kept: kept };
        for _ in 0..8 {
            let read = slow.read(0, 1);
            assert!(matches!(slow.peer.done(&read, b"")[..], [Outcome::Read(1)]));
        }
        slow
    }

    fn read(&self, offset_bytes: u64, length_bytes: u32) -> [Operation; 1] {
        let what = OnHandle::Read { offset_bytes, length_bytes };
        [Operation::On { handle: self.handle, what }]
    }

    /// Asks for parts that follow on one another, and waits until all of them wait for the device.
    fn ask_for_all(&self, length_bytes: u32) {
        self.gate.shut();
        let mut frames = Vec::new();
        for at in 0..READS {
            let head = write_operations(&self.read(at * u64::from(length_bytes), length_bytes), 0);
            let header = Header::new(Kind::Request, FIRST_ID + at, &head, b"");
            let semantics = pack_semantics(&Semantics::default());
            Header { acknowledged: FIRST_ID, semantics, ..header }.write(&head, &mut frames);
        }
        self.peer.say_bytes(&frames);
        eventually("all of them wait", || self.gate.waiting() == READS as usize);
        self.gate.open();
    }
}

#[test]
fn small_reads_of_a_slow_device_wait_for_it_together() {
    let content: Vec<u8> = (0..READS as u8).collect();
    let mut slow = Slow::new(&content, limits());
    slow.ask_for_all(1);
    let mut answered = BTreeSet::new();
    for _ in 0..READS {
        let said = slow.peer.hear().expect("an answer");
        assert_eq!(said.header.kind, Kind::Answer);
        let at = said.header.id - FIRST_ID;
        assert_eq!(said.payload, [at as u8]);
        assert!(answered.insert(at), "once");
    }
}

#[test]
fn a_client_that_does_not_read_is_put_out_with_all_who_waited_for_a_device() {
    // More together than any buffer between here and there takes.
    const EACH_BYTES: usize = 256 << 10;
    let limits = Limits { stall_max: Duration::from_millis(300), ..limits() };
    let mut slow = Slow::new(&vec![7; READS as usize * EACH_BYTES], limits);
    slow.ask_for_all(EACH_BYTES as u32);
    eventually("it is put out", || slow.server.status().connections == 0);
    let mut whole = 0;
    while let Some(said) = slow.peer.hear() {
        assert!(said.payload == [7; EACH_BYTES], "what comes is as it was asked for");
        whole += 1;
    }
    assert!(whole < READS, "not all of it fits");
}
