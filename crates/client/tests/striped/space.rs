// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The room of all servers while one of them does not answer.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use terrace_client::striped::{Map, Striped};
use terrace_core::{Backend, ErrorKind, Result, Space};

use crate::cluster::{CAPACITY_BYTES, EVEN, Server, over, put, servers};
use crate::counted::{Counted, Speech};

/// Much longer than anybody waits for a server of which something is known.
const WAIT_TIME_MAX: Duration = Duration::from_secs(60);

/// Stores of which a test decides whether they speak.
struct Scene {
    store: Arc<Striped>,
    servers: Vec<Server>,
    counted: Vec<Arc<Counted>>,
}

impl Scene {
    fn new() -> Self {
        let servers = servers(3);
        let counted: Vec<_> = servers
            .iter()
            .map(|server| Arc::new(Counted::new(Arc::new(server.memory.clone()))))
            .collect();
        let members = servers.iter().zip(&counted).map(|(server, counted)| {
            let mut member = server.member();
            member.backend = Arc::clone(counted) as Arc<dyn Backend>;
            member
        });
        let map = Map::new(0, members.collect()).expect("legal");
        Self { store: Arc::new(over(map, EVEN)), servers, counted }
    }

    /// What a thread is told that asks for the room of all.
    #[track_caller]
    fn space(&self) -> Result<Space> {
        let (sender, receiver) = mpsc::channel();
        let store = Arc::clone(&self.store);
        thread::spawn(move || sender.send(store.space()));
        receiver.recv_timeout(WAIT_TIME_MAX).expect("it waits for nobody for long")
    }

    #[track_caller]
    fn known(&self) -> (u64, u64) {
        let space = self.space().unwrap_or_else(|error| panic!("{}", error.chain()));
        (space.capacity_bytes, space.used_bytes)
    }

    fn used_bytes(&self) -> u64 {
        self.servers.iter().map(Server::used_bytes).sum()
    }

    fn set_speech(&self, speech: Speech) {
        self.counted[1].set_speech(speech);
    }

    /// How often the one that may be silent was asked for anything since this was asked last.
    fn asked(&self) -> usize {
        self.counted[1].take().1
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Threads that wait for one end.
        self.set_speech(Speech::Answers);
    }
}

#[test]
fn a_server_that_is_silent_counts_as_what_it_said_last() {
    let scene = Scene::new();
    put(&*scene.store, "a", &[1; 100]);
    let before = (3 * CAPACITY_BYTES, scene.used_bytes());
    assert_eq!(scene.known(), before);
    scene.set_speech(Speech::IsSilent);
    assert_eq!(scene.known(), before);
    // As long as it does not answer, it is not asked again.
    scene.asked();
    assert_eq!(scene.known(), before);
    assert_eq!(scene.asked(), 0);
    // What others say counts all the same.
    let others = |scene: &Scene| scene.servers[0].used_bytes() + scene.servers[2].used_bytes();
    let of_others = others(&scene);
    put(&*scene.store, "b", &[1; 300]);
    let added = others(&scene) - of_others;
    assert!(added > 0, "they hold a part");
    assert_eq!(scene.known(), (before.0, before.1 + added));
    // The request that got no answer in time ends, and the next one is answered.
    scene.set_speech(Speech::IsGivenUp);
    assert_eq!(scene.known(), (before.0, before.1 + added));
    scene.set_speech(Speech::Answers);
    while scene.known() != (before.0, scene.used_bytes()) {
        thread::yield_now();
    }
}

#[test]
fn a_server_that_never_said_anything_counts_as_nothing() {
    let scene = Scene::new();
    scene.set_speech(Speech::IsGivenUp);
    assert_eq!(scene.known().0, 2 * CAPACITY_BYTES);
    // Nobody waits for it again.
    scene.set_speech(Speech::IsSilent);
    assert_eq!(scene.known().0, 2 * CAPACITY_BYTES);
}

#[test]
fn nothing_is_told_where_nobody_said_anything() {
    let scene = Scene::new();
    scene.counted.iter().for_each(|server| server.set_speech(Speech::IsGivenUp));
    let error = scene.space().expect_err("nothing is known");
    assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{}", error.chain());
    assert!(error.to_string().contains("server-"), "{error}");
}
