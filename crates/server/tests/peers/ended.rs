// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients that come back while what they left is cleared up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use terrace_backends::object::{Effect, FaultPoint, Faults, Faulty, When};
use terrace_core::{Access, Backend, Error, ErrorKind, Key, Kv, Result};
use terrace_server::{Call, Called, Caller, Kept, Limits, Server, Service};
use terrace_testkit::ManualClock;
use terrace_transport::Endpoint;
use terrace_wire::{Operation, Outcome};

use crate::common::peer::{Peer, opening};
use crate::common::{clock, eventually, secret, store};

const SESSION: u64 = 5;

/// A file system with one lock, which a session has until it ends.
struct OneLock {
    inner: Arc<dyn Service>,
    /// Its objects, which can hang.
    backend: Faulty,
    is_taken: Arc<AtomicBool>,
    /// Where a test says when the lock may be given back: told of it, and what it waits for.
    gate: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

struct Lock {
    is_taken: Arc<AtomicBool>,
    gate: Option<Mutex<(Sender<()>, Receiver<()>)>>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(gate) = self.gate.take() {
            let (begun, gate) = gate.into_inner().expect("nobody panicked");
            // It does not wait any more where it failed.
            let _ = begun.send(());
            // A test that failed lets it, too.
            let _ = gate.recv();
        }
        self.is_taken.store(false, Ordering::Release);
    }
}

impl Service for OneLock {
    fn store_id(&self) -> u128 {
        self.inner.store_id()
    }

    fn openings(&self) -> terrace_wire::Openings {
        self.inner.openings()
    }

    fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    fn kv(&self, namespace: &str) -> Result<Arc<dyn Kv>> {
        self.inner.kv(namespace)
    }

    fn files(&self, _: &str, kept: &Kept, _: &[u8]) -> Result<Vec<u8>> {
        kept.get_or_make("lock", || match self.is_taken.swap(true, Ordering::AcqRel) {
            true => Err(Error::new(ErrorKind::Busy, "lock").because("another has it")),
            false => {
                let gate = self.gate.lock().expect("nobody panicked").take().map(Mutex::new);
                Ok(Lock { is_taken: Arc::clone(&self.is_taken), gate })
            }
        })?;
        Ok(Vec::new())
    }

    fn ends(&self) {}

    fn call(&self, call: &Call<'_>, caller: &mut dyn Caller) -> Result<Called> {
        self.inner.call(call, caller)
    }
}

/// A server of that, whose time is a test's.
struct Scene {
    server: Server,
    endpoint: Endpoint,
    clock: Arc<ManualClock>,
    faults: Arc<Faults>,
}

impl Scene {
    fn new(gate: Option<(Sender<()>, Receiver<()>)>) -> Self {
        let (clock, faults) = (Arc::new(ManualClock::new()), Faults::new(1));
        let inner = store();
        let objects: Arc<dyn Backend> = Arc::clone(&inner.backend) as _;
        let backend = Faulty::new(objects, Arc::clone(&faults));
        let service = OneLock { inner, backend, is_taken: Arc::default(), gate: Mutex::new(gate) };
        let theirs = Arc::clone(&clock) as _;
        let server = Server::new(Arc::new(service), Some(secret()), Limits::default(), theirs);
        let endpoint = server.listen(&"127.0.0.1:0".parse().expect("legal")).expect("listen");
        Self { server, endpoint, clock, faults }
    }

    fn come(&self) -> Peer {
        let mut peer = Peer::connect(&self.endpoint);
        peer.greet(Some(&secret()), SESSION).expect("welcome");
        peer
    }

    /// A client that had the lock, and an object open, is missed for so long that its session ends.
    fn miss_one(&self) {
        let mut peer = self.come();
        let open = opening(Key::new("ended", "object").expect("legal"), Access::Write);
        let outcomes = peer.done(&[open, lock()], b"");
        assert!(matches!(outcomes[..], [Outcome::Opened(_), Outcome::Read(_)]), "{outcomes:?}");
        drop(peer);
        eventually("its connection ends", || self.server.status().connections == 0);
        self.clock.advance(Limits::default().linger + Duration::from_millis(1));
    }
}

fn lock() -> Operation {
    let effect = terrace_wire::Effect::Hold;
    Operation::Files { namespace: "files".into(), effect, data_bytes: 0 }
}

#[test]
fn who_comes_back_while_objects_are_closed_has_no_lock_in_the_way_that_was_its_own() {
    let scene = Scene::new(None);
    scene.faults.add(&[FaultPoint::Close], When::Nth(1), Effect::Hang);
    scene.miss_one();
    scene.faults.wait_hanging(1);
    let outcomes = scene.come().done(&[lock()], b"");
    scene.faults.release();
    assert!(matches!(outcomes[..], [Outcome::Read(_)]), "{outcomes:?}");
}

#[test]
fn who_comes_back_while_its_lock_is_given_back_waits_for_that() {
    /// So long it waits, on any machine that is not too busy: on one that is, the test shows less.
    const STILL: Duration = Duration::from_millis(300);
    let ((begun, has_begun), (go_on, gate)) = (channel(), channel());
    let scene = Scene::new(Some((begun, gate)));
    // Dropped before the server, which waits for it.
    let go_on = go_on;
    scene.miss_one();
    has_begun.recv().expect("it is given back");
    std::thread::scope(|scope| {
        let again = scope.spawn(|| scene.come().done(&[lock()], b""));
        let clock = clock();
        let end_ns = clock.now_ns() + STILL.as_nanos() as u64;
        while !again.is_finished() && clock.now_ns() < end_ns {
            std::thread::yield_now();
        }
        go_on.send(()).expect("it waits");
        let outcomes = again.join().expect("no panic");
        assert!(matches!(outcomes[..], [Outcome::Read(_)]), "{outcomes:?}");
    });
}
