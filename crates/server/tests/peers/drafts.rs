// SPDX-License-Identifier: Apache-2.0 OR MIT
//! New values of objects, whose clients, servers and answers get lost.

use std::sync::Arc;
use std::time::Duration;

use terrace_backends::object::{Effect, FaultPoint, Faults, Faulty, When};
use terrace_core::{
    Access, Applied, Backend, BackendExt, Create, ErrorKind, ObjectExt, Open, Persistency,
    Semantics, Stat,
};
use terrace_server::{Limits, Server};
use terrace_testkit::versions::{content, overwrite_beside_readers, overwrites, version_of};
use terrace_transport::Listener;
use terrace_wire::{Kind, OnHandle, Opened, Operation, Outcome};

use crate::common::peer::{Peer, opening};
use crate::common::{Stacked, connect, eventually, options, secret, serve, stacked};
use crate::lives::{free_endpoint, is_unreachable, key, welcome};

/// Begins a new value and writes a version; its handle.
fn draft(peer: &mut Peer, name: &str, version: u32) -> u64 {
    let Operation::Open(opening) = opening(key(name), Access::Write) else { unreachable!() };
    let outcomes = peer.done(&[Operation::Draft(opening)], b"");
    let [Outcome::Opened(opened)] = &outcomes[..] else { panic!("{outcomes:?}") };
    let data = content(version);
    let what = OnHandle::Write { offset_bytes: 0, data_bytes: data.len() as u32 };
    assert_eq!(peer.done(&[Operation::On { handle: opened.handle, what }], &data), [Outcome::Done]);
    opened.handle
}

fn publish(handle: u64) -> [Operation; 1] {
    [Operation::On { handle, what: OnHandle::Publish }]
}

fn used_bytes(stacked: &Stacked) -> u64 {
    stacked.stack.space().expect("known").used_bytes
}

#[test]
fn a_draft_is_discarded_with_its_session() {
    let stacked = stacked();
    stacked.stack.put(&key("name"), &content(1), &Open::create()).expect("puts");
    let before_bytes = used_bytes(&stacked);
    let limits = Limits { linger: Duration::ZERO, ..Limits::default() };
    let (server, endpoint) = serve(stacked.service(), limits);
    let mut peer = Peer::greeted(&endpoint);
    draft(&mut peer, "name", 2);
    assert!(used_bytes(&stacked) > before_bytes);
    drop(peer);
    eventually("the session ends", || server.status().sessions == 0);
    eventually("its room is free", || used_bytes(&stacked) == before_bytes);
    assert_eq!(version_of(&stacked.stack.read_all(&key("name")).expect("reads")), 1);
}

#[test]
fn a_publication_that_is_asked_for_again_is_carried_out_once() {
    let stacked = stacked();
    let (_server, endpoint) = serve(stacked.service(), Limits::default());
    let mut first = Peer::connect(&endpoint);
    first.greet(Some(&secret()), 5).expect("welcome");
    let handle = draft(&mut first, "name", 1);
    let id = first.ask(&publish(handle), b"");
    assert_eq!(first.outcomes(id).expect("answered").0, [Outcome::Published(Arc::default())]);
    stacked.stack.put(&key("name"), &content(2), &Open::create()).expect("puts");
    // As if the answer had not come.
    drop(first);
    let mut second = Peer::connect(&endpoint);
    second.greet(Some(&secret()), 5).expect("welcome");
    second.ask_as(id, id, &publish(handle), b"");
    assert_eq!(second.outcomes(id).expect("answered").0, [Outcome::Published(Arc::default())]);
    assert_eq!(version_of(&stacked.stack.read_all(&key("name")).expect("reads")), 2);
    // Another request is another publication.
    second.ask_as(id + 1, id + 1, &publish(handle), b"");
    let outcomes = second.outcomes(id + 1).expect("answered").0;
    let [Outcome::Failed(failure)] = &outcomes[..] else { panic!("{outcomes:?}") };
    assert_eq!(failure.clone().into_error().kind(), ErrorKind::Invalid);
}

#[test]
fn an_object_that_is_open_cannot_be_published() {
    let stacked = stacked();
    let (_server, endpoint) = serve(stacked.service(), Limits::default());
    let mut peer = Peer::greeted(&endpoint);
    let outcomes = peer.done(&[opening(key("name"), Access::Write)], b"");
    let [Outcome::Opened(Opened { handle, .. })] = outcomes[..] else { panic!("{outcomes:?}") };
    let outcomes = peer.done(&publish(handle), b"");
    let [Outcome::Failed(failure)] = &outcomes[..] else { panic!("{outcomes:?}") };
    assert_eq!(failure.clone().into_error().kind(), ErrorKind::Invalid);
}

#[test]
fn a_client_for_reading_begins_no_draft() {
    let stacked = stacked();
    stacked.stack.put(&key("name"), &content(1), &Open::create()).expect("puts");
    let (_server, endpoint) = serve(stacked.service(), Limits::default());
    let reading = terrace_client::Options { access: Access::Read, ..options() };
    let client = connect(&endpoint, reading).expect("connect");
    let error = client.put(&key("name"), &content(2), &Open::create()).expect_err("for reading");
    assert_eq!(error.kind(), ErrorKind::Denied, "{}", error.chain());
}

#[test]
fn a_draft_is_lost_with_the_server_and_nothing_is_changed() {
    let stacked = stacked();
    stacked.stack.put(&key("name"), &content(1), &Open::create()).expect("puts");
    let endpoint = free_endpoint();
    let start = || {
        let clock = crate::common::clock();
        let server = Server::new(stacked.service(), Some(secret()), Limits::default(), clock);
        server.listen(&endpoint).expect("listen");
        server
    };
    let server = start();
    let client = connect(&endpoint, options()).expect("connect");
    let begin = || {
        let draft = client.draft(&key("name"), &Open::create()).expect("begins");
        draft.object().write(0, &content(2)).expect("writes");
        draft
    };
    let (writes, publishes) = (begin(), begin());
    drop(server);
    let server = start();
    let error = writes.object().write(0, b"more").expect_err("the server has lost it");
    assert!(is_unreachable(&error, Applied::No), "{}", error.chain());
    let error = publishes.publish().expect_err("the server has lost it");
    assert!(is_unreachable(&error, Applied::No), "{}", error.chain());
    drop((writes, publishes));
    assert_eq!(version_of(&client.read_all(&key("name")).expect("reads")), 1);
    client.put(&key("name"), &content(3), &Open::create()).expect("the next one is as good");
    assert_eq!(version_of(&client.read_all(&key("name")).expect("reads")), 3);
    eventually("nothing is left open", || server.status().handles == 0);
}

#[test]
fn a_publication_without_an_answer_is_looked_for_after_a_restart() {
    // When the object that is found after the restart was made; the draft was at 77.
    for (found_ns, is_known) in [(77, true), (78, false)] {
        let listener = Listener::bind(&"127.0.0.1:0".parse().expect("legal")).expect("listen");
        let endpoint = listener.endpoint().clone();
        let answer = |peer: &mut Peer, outcome: Outcome| {
            let asked = peer.hear().expect("a request");
            let head = terrace_wire::write_outcomes(&[outcome]);
            peer.say(Kind::Answer, asked.header.id, &head, b"");
        };
        std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                let options = terrace_client::Options { secret: None, ..options() };
                let client = connect(&endpoint, options).expect("connect");
                let how = Open::create().with_semantics(Semantics::at_level(Persistency::Storage));
                client.draft(&key("name"), &how).expect("begins").publish()
            });
            let mut first = welcome(&listener, 1);
            let opened = Opened { handle: 1, created_ns: 77, ..Opened::default() };
            answer(&mut first, Outcome::Opened(opened));
            first.hear().expect("the publication");
            drop(first);
            let mut second = welcome(&listener, 2);
            answer(&mut second, Outcome::Stat(Stat { created_ns: found_ns, ..Stat::default() }));
            if is_known {
                // The commit is made durable, because that is what was asked for.
                answer(&mut second, Outcome::Done);
            }
            match client.join().expect("no panic") {
                Ok(replaced) => assert!(is_known && replaced.is_none()),
                Err(error) => {
                    assert!(!is_known && is_unreachable(&error, Applied::Unknown), "{error}");
                }
            }
        });
    }
}

#[test]
fn a_long_sync_before_a_publication_may_take_more_than_one_deadline() {
    let stacked = stacked();
    stacked.stack.put(&key("name"), &content(1), &Open::create()).expect("puts");
    let faults = Faults::new(1);
    let backend = Arc::new(Faulty::new(stacked.stack.clone(), faults.clone()));
    let (_server, endpoint) = serve(stacked.service_of(backend), Limits::default());
    let deadline = Duration::from_secs(8);
    let client = terrace_client::Options { deadline, ..options() };
    let client = connect(&endpoint, client).expect("connect");
    let draft = client.draft(&key("name"), &Open::create()).expect("begins");
    for piece in 0..65 {
        draft.object().write(piece << 20, &[7; 1 << 20]).expect("writes");
    }
    faults.add(&[FaultPoint::Sync], When::Nth(1), Effect::Hang);
    draft.publish().expect("the next sync has less to do");
    assert_eq!(client.stat(&key("name")).expect("is there").size_bytes, 65 << 20);
    faults.release();
}

#[test]
fn the_label_of_what_was_replaced_is_returned() {
    let stacked = stacked();
    let (_server, endpoint) = serve(stacked.service(), Limits::default());
    let client = connect(&endpoint, options()).expect("connect");
    let mut labels = Vec::new();
    for label in [&b"first"[..], b"second", b"third"] {
        let draft = client.draft(&key("name"), &Open::create().with_label(label)).expect("begins");
        assert_eq!(draft.object().label().as_deref(), Some(label));
        labels.push(draft.publish().expect("publishes").map(|label| label.to_vec()));
    }
    assert_eq!(labels, [None, Some(b"first".to_vec()), Some(b"second".to_vec())]);
    let how = Open { create: Create::Never, ..Open::default() };
    client.put(&key("name"), b"", &how).expect("replaces");
    assert_eq!(client.open(&key("name"), &Open::read()).expect("opens").label(), None);
}

#[test]
fn readers_over_tcp_see_the_old_value_or_the_new() {
    let stacked = stacked();
    stacked.stack.put(&key("name"), &content(0), &Open::create()).expect("puts");
    let (server, endpoint) = serve(stacked.service(), Limits::default());
    let clients = [(); 4].map(|()| connect(&endpoint, options()).expect("connect"));
    let [first, second, third, fourth] = &clients;
    for writers in [&[first as &dyn Backend][..], &[first, second]] {
        overwrite_beside_readers(
            writers,
            &[third, fourth],
            &key("name"),
            &Open::create(),
            overwrites(200),
            &|_| {},
        );
        stacked.stack.put(&key("name"), &content(0), &Open::create()).expect("puts");
    }
    drop(clients);
    stacked.stack.delete(&key("name")).expect("deletes");
    eventually("nothing is left open", || server.status().handles == 0);
    eventually("no room is taken", || used_bytes(&stacked) == 0);
}
