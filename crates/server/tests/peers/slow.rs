// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Storage that has to be waited for: the requests of one connection wait for it together.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use terrace_backends::kv;
use terrace_backends::object::{Rates, Throttle};
use terrace_core::{Access, Backend, Clock, Key, ObjectExt, Open, Semantics};
use terrace_server::Limits;
use terrace_wire::{Header, Kind, OnHandle, Operation, Outcome, pack_semantics, write_operations};

use crate::common::peer::{Peer, opening};
use crate::common::{Plain, eventually, serve, store};

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

#[test]
fn small_reads_of_a_slow_device_wait_for_it_together() {
    const READS: u64 = 8;
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
    object.write(0, b"01234567").expect("write");
    let backend = Arc::new(Throttle::new(inner, rates, Arc::clone(&gate) as Arc<dyn Clock>));
    let service = Plain { backend, kv: Arc::new(kv::Memory::default()) };
    let (_server, endpoint) = serve(Arc::new(service), Limits::default());
    let mut peer = Peer::greeted(&endpoint);
    let [Outcome::Opened(opened)] = &peer.done(&[opening(key, Access::Read)], b"")[..] else {
        panic!("it is there");
    };
    let handle = opened.handle;
    let read = |offset_bytes| {
        [Operation::On { handle, what: OnHandle::Read { offset_bytes, length_bytes: 1 } }]
    };
    // One after the other: the server learns how long they take.
    for at in 0..READS {
        assert!(matches!(peer.done(&read(at), b"")[..], [Outcome::Read(1)]));
    }
    gate.shut();
    let first_id = 1000;
    let mut frames = Vec::new();
    for at in 0..READS {
        let head = write_operations(&read(at), 0);
        let header = Header::new(Kind::Request, first_id + at, &head, b"");
        let semantics = pack_semantics(&Semantics::default());
        Header { acknowledged: first_id, semantics, ..header }.write(&head, &mut frames);
    }
    peer.say_bytes(&frames);
    eventually("all of them wait for the device", || gate.waiting() == READS as usize);
    gate.open();
    let mut answered = BTreeSet::new();
    for _ in 0..READS {
        let said = peer.hear().expect("an answer");
        assert_eq!(said.header.kind, Kind::Answer);
        let at = said.header.id - first_id;
        assert_eq!(said.payload, [b'0' + at as u8]);
        assert!(answered.insert(at), "once");
    }
}
