// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Servers that end, are started anew, or do not answer.

use std::sync::Arc;
use std::time::Duration;

use terrace_client::{Address, Options, Remote};
use terrace_core::{
    Access, Applied, Backend, BackendExt, Clock, Error, ErrorKind, Key, KvExt, ObjectExt, Open,
    Result,
};
use terrace_server::{Limits, Openings, Server};
use terrace_transport::{Endpoint, Listener};
use terrace_wire::{
    Challenge, Header, Kind, LAST_WORD, OnHandle, Operation, Outcome, PIECE_BYTES_MAX, Welcome,
};

use crate::common::peer::{Peer, opening};
use crate::common::{Hasty, Held, Kept, clock, connect, eventually, options, secret, serve, store};

pub(crate) fn key(name: &str) -> Key {
    Key::new("lives", name).expect("legal")
}

pub(crate) fn start(kept: &Arc<Kept>, endpoint: &Endpoint) -> Server {
    let server = Server::new(kept.clone(), Some(secret()), Limits::default(), clock());
    server.listen(endpoint).expect("listen");
    server
}

pub(crate) fn free_endpoint() -> Endpoint {
    let listener = Listener::bind(&"127.0.0.1:0".parse().expect("legal")).expect("listen");
    listener.endpoint().clone()
}

pub(crate) fn is_unreachable(error: &Error, applied: Applied) -> bool {
    error.kind() == ErrorKind::Unreachable { applied }
}

#[test]
fn handles_are_opened_again_when_the_server_was_started_anew() {
    let (kept, endpoint) = (store(), free_endpoint());
    let server = start(&kept, &endpoint);
    let client = connect(&endpoint, options()).expect("connect");
    let written = client.open(&key("written"), &Open::create_new()).expect("open");
    written.write(0, b"bytes").expect("write");
    let synced = client.open(&key("synced"), &Open::create_new()).expect("open");
    synced.write(0, b"bytes").expect("write");
    synced.sync().expect("sync");
    let gone = client.open(&key("gone"), &Open::create_new()).expect("open");
    drop(server);
    let server = start(&kept, &endpoint);
    kept.backend.delete(&key("gone")).expect("delete");
    assert_eq!(written.read_to_end().expect("read"), b"bytes");
    synced.write(5, b" more").expect("write");
    assert_eq!(synced.read_to_end().expect("read"), b"bytes more");
    synced.sync().expect("what was written before was durable, and this is now");
    for _ in 0..2 {
        let error = written.sync().expect_err("nobody made it durable before the server ended");
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    }
    let again = client.open(&key("written"), &Open::write()).expect("open");
    again.sync().expect("another handle wrote nothing");
    let error = gone.stat().expect_err("deleted meanwhile");
    assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale), "{error}");
    drop((written, synced, gone, again));
    eventually("nothing is left open", || server.status().handles == 0);
}

#[test]
fn a_sync_fails_where_what_was_written_was_in_a_server_that_has_ended() {
    let (kept, endpoint) = (store(), free_endpoint());
    let server = start(&kept, &endpoint);
    let client = connect(&endpoint, options()).expect("connect");
    let object = client.open(&key("written"), &Open::create_new()).expect("open");
    object.write(0, b"bytes").expect("write");
    drop(server);
    let _server = start(&kept, &endpoint);
    for _ in 0..2 {
        // Nothing was asked for meanwhile that could have noticed it.
        let error = object.sync().expect_err("nobody made it durable before the server ended");
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    }
}

#[test]
fn a_loss_is_told_to_all_that_had_the_object_open_and_to_who_opens_it_before_it_was_told() {
    let (kept, endpoint) = (store(), free_endpoint());
    let server = start(&kept, &endpoint);
    let client = connect(&endpoint, options()).expect("connect");
    let open = |name| client.open(&key(name), &Open::write()).expect("open");
    for name in ["written", "closed"] {
        let object = client.open(&key(name), &Open::create_new()).expect("open");
        object.write(0, b"bytes").expect("write");
    }
    let (first, second) = (open("written"), open("written"));
    drop(server);
    let _server = start(&kept, &endpoint);
    for object in [&first, &second, &open("closed")] {
        for _ in 0..2 {
            let error = object.sync().expect_err("nobody made it durable before the server ended");
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        }
    }
    for object in [open("written"), open("closed")] {
        object.sync().expect("it was told");
        object.write(0, b"again").expect("write");
        object.sync().expect("this is durable");
    }
    first.sync().expect_err("it fails as long as this is open");
    let error = client.sync_all().expect_err("who asks for all was not told");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    client.sync_all().expect("it was told");
}

#[test]
fn another_object_of_the_same_name_is_not_the_one_that_was_open() {
    let (kept, endpoint) = (store(), free_endpoint());
    let server = start(&kept, &endpoint);
    let client = connect(&endpoint, options()).expect("connect");
    let object = client.open(&key("name"), &Open::create_new()).expect("open");
    object.write(0, b"the first").expect("write");
    drop(server);
    kept.backend.delete(&key("name")).expect("delete");
    kept.backend.write_all(&key("name"), b"the second").expect("write");
    let _server = start(&kept, &endpoint);
    let error = object.read_to_end().expect_err("another object");
    assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale), "{error}");
}

#[test]
fn a_handle_of_a_former_life_is_none_of_this_one() {
    let (kept, endpoint) = (store(), free_endpoint());
    let mut handles = Vec::new();
    let mut lives = Vec::new();
    for name in ["first", "second"] {
        let _server = start(&kept, &endpoint);
        let mut peer = Peer::connect(&endpoint);
        lives.push(peer.greet(Some(&secret()), 5).expect("welcome").life);
        if let Some(handle) = handles.first() {
            // A client that does not know yet that the server was started anew.
            let opened = open(&mut peer, name);
            let append = OnHandle::Append { data_bytes: 1 };
            let outcomes = peer.done(&[Operation::On { handle: *handle, what: append }], b"x");
            let [Outcome::Failed(failure)] = &outcomes[..] else { panic!("{outcomes:?}") };
            assert_eq!(failure.clone().into_error().kind(), ErrorKind::Stale);
            handles.push(opened);
        } else {
            handles.push(open(&mut peer, name));
        }
    }
    assert_ne!(lives[0], lives[1]);
    assert_eq!(kept.backend.read_all(&key("second")).expect("read"), b"");
}

fn open(peer: &mut Peer, name: &str) -> u64 {
    let outcomes = peer.done(&[opening(key(name), Access::Write)], b"");
    let [Outcome::Opened(opened)] = &outcomes[..] else { panic!("{outcomes:?}") };
    opened.handle
}

#[test]
fn a_change_that_a_dead_server_had_may_have_been_made() {
    let endpoint = free_endpoint();
    let limits = Limits { drain_time_max: Duration::ZERO, ..Limits::default() };
    let held = Arc::new(Held::new(store()));
    let first = Server::new(held.clone(), Some(secret()), limits, clock());
    first.listen(&endpoint).expect("listen");
    let client = connect(&endpoint, options()).expect("connect");
    std::thread::scope(|scope| {
        let call = scope.spawn(|| client.call(b"\"hold\"", &[], &mut |_, _| {}));
        held.wait_until_held();
        first.end();
        let second = Server::new(store(), Some(secret()), limits, clock());
        second.listen(&endpoint).expect("listen");
        let error = call.join().expect("no panic").expect_err("nobody knows");
        assert!(is_unreachable(&error, Applied::Unknown), "{}", error.chain());
        client.namespaces().expect("the new server is used");
        held.release();
    });
}

#[test]
fn a_write_that_a_dead_server_had_is_made_by_the_next_one() {
    let listener = Listener::bind(&"127.0.0.1:0".parse().expect("legal")).expect("listen");
    let endpoint = listener.endpoint().clone();
    let answer = |peer: &mut Peer, outcome: Outcome| {
        let asked = peer.hear().expect("a request");
        let head = terrace_wire::write_outcomes(&[outcome]);
        peer.say(Kind::Answer, asked.header.id, &head, b"");
        asked.head
    };
    let opened = |handle| Outcome::Opened(terrace_wire::Opened { handle, ..Default::default() });
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let options = Options { secret: None, ..options() };
            let client = connect(&endpoint, options).expect("connect");
            let object = client.open(&key("object"), &Open::create()).expect("open");
            object.write(0, b"bytes").expect("the next server makes it");
        });
        let mut first = welcome(&listener, 1);
        answer(&mut first, opened(1));
        let lost = first.hear().expect("the write").head;
        drop(first);
        let mut second = welcome(&listener, 2);
        let stale = Error::new(ErrorKind::Stale, "use an object");
        let again = answer(&mut second, Outcome::Failed(terrace_wire::Failure::of(&stale)));
        assert_eq!(again, lost, "by the handle of the former life");
        answer(&mut second, opened(2));
        assert_ne!(answer(&mut second, Outcome::Done), lost, "by its own");
        client.join().expect("no panic");
    });
}

#[test]
fn a_long_write_of_which_a_part_was_made_may_have_been_made() {
    let listener = Listener::bind(&"127.0.0.1:0".parse().expect("legal")).expect("listen");
    let endpoint = listener.endpoint().clone();
    // One request takes 16 MiB; none of these goes over the connection that all share.
    let (long, short) = (vec![1; 17 << 20], vec![1; 1 << 20]);
    let answer = |peer: &mut Peer, outcome: Outcome| {
        let mut asked = peer.hear().expect("a request");
        let (id, mut payload_bytes) = (asked.header.id, 0);
        loop {
            payload_bytes += asked.payload.len();
            if payload_bytes == 0 || payload_bytes == 16 << 20 {
                break;
            }
            asked = peer.hear().expect("more of it");
        }
        let head = terrace_wire::write_outcomes(&[outcome]);
        let mut said = Vec::new();
        Header::new(Kind::Answer, id, &head, b"").write(&head, &mut said);
        // Something comes behind it, so that nothing more is sent on this connection.
        if payload_bytes > 0 {
            said.push(0);
        }
        peer.say_bytes(&said);
    };
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let options = Options { secret: None, reconnect_time_max: Duration::ZERO, ..options() };
            let client = connect(&endpoint, options).expect("connect");
            let object = client.open(&key("object"), &Open::create()).expect("open");
            let written = |data: &[u8]| object.write(0, data).expect_err("the server has ended");
            (written(&long), [written(&long), written(&short)])
        });
        let mut first = welcome(&listener, 1);
        let opened = terrace_wire::Opened { handle: 1, ..Default::default() };
        answer(&mut first, Outcome::Opened(opened));
        let mut second = welcome(&listener, 1);
        // Before the answer: nobody is let in any more when the next part is to be sent.
        drop(listener);
        answer(&mut second, Outcome::Done);
        let (in_part, unsent) = client.join().expect("no panic");
        assert!(is_unreachable(&in_part, Applied::Unknown), "{}", in_part.chain());
        for error in unsent {
            assert!(is_unreachable(&error, Applied::No), "{}", error.chain());
        }
    });
}

#[test]
fn a_server_that_ends_says_that_it_carries_out_nothing_more() {
    let (kept, endpoint) = (store(), free_endpoint());
    let server = start(&kept, &endpoint);
    let mut peer = Peer::connect(&endpoint);
    peer.greet(Some(&secret()), 5).expect("welcome");
    let handle = open(&mut peer, "object");
    // An append without its last byte.
    let append = OnHandle::Append { data_bytes: 2 };
    let head = terrace_wire::write_operations(&[Operation::On { handle, what: append }], 2);
    let mut request = Vec::new();
    Header::new(Kind::Request, 9, &head, b"ab").write(&head, &mut request);
    peer.say_bytes(&request);
    peer.say_bytes(b"a");
    server.end();
    let said = std::iter::from_fn(|| peer.hear());
    let last = said.last().expect("a last word");
    assert_eq!((last.header.kind, &last.head[..]), (Kind::Farewell, LAST_WORD));
    assert_eq!(kept.backend.read_all(&key("object")).expect("read"), b"");
}

#[test]
fn a_server_that_ends_does_not_say_so_where_it_has_written_a_part() {
    let (kept, endpoint) = (store(), free_endpoint());
    let server = start(&kept, &endpoint);
    let mut peer = Peer::connect(&endpoint);
    peer.greet(Some(&secret()), 5).expect("welcome");
    let handle = open(&mut peer, "object");
    // A write without its second half.
    let piece = vec![1; PIECE_BYTES_MAX];
    let data_bytes = 2 * PIECE_BYTES_MAX as u32;
    let write = OnHandle::Write { offset_bytes: 0, data_bytes };
    let head = terrace_wire::write_operations(&[Operation::On { handle, what: write }], data_bytes);
    peer.say(Kind::Request, 9, &head, &piece);
    let written = || kept.backend.read_all(&key("object")).expect("read") == piece;
    eventually("the first half is written", written);
    server.end();
    let said: Vec<_> = std::iter::from_fn(|| peer.hear()).collect();
    assert!(said.iter().all(|said| said.head != LAST_WORD), "{said:?}");
}

#[test]
fn what_a_server_did_not_carry_out_before_it_ended_is_asked_of_the_next_one() {
    let listener = Listener::bind(&"127.0.0.1:0".parse().expect("legal")).expect("listen");
    let endpoint = listener.endpoint().clone();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let client = connect(&endpoint, Options { secret: None, ..options() });
            let client = client.expect("connect");
            client.delete(&key("object")).expect("the next server deletes it");
            client.call(b"\"call\"", &[], &mut |_, _| {}).expect("the next server carries it out");
        });
        let last_words = |peer: &Peer| {
            peer.say(Kind::Farewell, 0, b"", b"");
            peer.say(Kind::Farewell, 0, LAST_WORD, b"");
        };
        let mut first = welcome(&listener, 1);
        let unheard = first.hear().expect("the deletion");
        last_words(&first);
        let mut second = welcome(&listener, 2);
        let asked = second.hear().expect("the deletion");
        assert_eq!((asked.header.id, asked.head), (unheard.header.id, unheard.head));
        let head = terrace_wire::write_outcomes(&[Outcome::Done]);
        second.say(Kind::Answer, asked.header.id, &head, b"");
        // A call has a connection of its own.
        let mut third = welcome(&listener, 2);
        let unheard = third.hear().expect("the call");
        last_words(&third);
        let mut fourth = welcome(&listener, 3);
        let asked = fourth.hear().expect("the call");
        assert_eq!((asked.header.id, asked.head), (unheard.header.id, unheard.head));
        fourth.say(Kind::Result, asked.header.id, &0_u32.to_le_bytes(), b"");
        client.join().expect("no panic");
    });
}

#[test]
fn what_a_server_made_durable_before_it_ended_can_be_synced_after_it() {
    let (kept, endpoint) = (store(), free_endpoint());
    let openings = |this, before| {
        *kept.openings.lock().expect("nobody panicked") = Openings { this, before };
    };
    openings(1, 0);
    let server = start(&kept, &endpoint);
    let client = connect(&endpoint, options()).expect("connect");
    let object = client.open(&key("object"), &Open::create_new()).expect("open");
    object.write(0, b"bytes").expect("write");
    drop(server);
    openings(2, 1);
    let server = start(&kept, &endpoint);
    object.sync().expect("it was durable");
    object.write(0, b"other").expect("write");
    drop(server);
    // Somebody else had the store meanwhile, of whom nobody knows how he ended.
    openings(4, 3);
    let server = start(&kept, &endpoint);
    for _ in 0..2 {
        let error = object.sync().expect_err("nobody knows of it");
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    }
    drop(server);
    openings(5, 4);
    let _server = start(&kept, &endpoint);
    let error = object.sync().expect_err("it was lost before");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
}

#[test]
fn what_was_written_is_not_lost_where_the_same_store_goes_on_without_the_session() {
    let (kept, endpoint) = (store(), free_endpoint());
    *kept.openings.lock().expect("nobody panicked") = Openings { this: 2, before: 0 };
    let server = start(&kept, &endpoint);
    let client = connect(&endpoint, options()).expect("connect");
    let object = client.open(&key("object"), &Open::create_new()).expect("open");
    object.write(0, b"bytes").expect("write");
    drop(server);
    let _server = start(&kept, &endpoint);
    object.sync().expect("the process that had it has it still");
    assert_eq!((client.life(), client.whole_since()), (2, 1));
}

#[test]
fn a_ticket_of_a_former_life_is_not_durable() {
    let (kept, endpoint) = (store(), free_endpoint());
    let server = start(&kept, &endpoint);
    let client = connect(&endpoint, options()).expect("connect");
    let pairs = client.kv("pairs");
    let ticket = terrace_core::Kv::transact(&pairs, &mut |txn| txn.put(b"key", b"value"));
    let ticket = ticket.expect("commit");
    drop(server);
    let _server = start(&kept, &endpoint);
    client.namespaces().expect("the new server is used");
    let error = terrace_core::Kv::wait(&pairs, ticket).expect_err("who knows");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    pairs.put(b"key", b"again").expect("commit");
}

#[test]
fn what_runs_is_finished_when_a_server_ends() {
    let held = Arc::new(Held::new(store()));
    let (server, endpoint) = serve(Arc::clone(&held) as _, Limits::default());
    let client = connect(&endpoint, options()).expect("connect");
    std::thread::scope(|scope| {
        let call = scope.spawn(|| client.call(b"\"hold\"", &[], &mut |_, _| {}));
        held.wait_until_held();
        let end = scope.spawn(|| server.end());
        let once = Options { deadline: Duration::from_millis(1), ..options() };
        eventually("nobody is let in", || connect(&endpoint, once.clone()).is_err());
        assert!(!end.is_finished());
        held.release();
        call.join().expect("no panic").expect("it was finished");
        end.join().expect("no panic");
    });
    assert_eq!(server.status().sessions, 0);
}

#[test]
fn nobody_waits_longer_for_a_silent_server_than_the_deadline() {
    // The system accepts connections for it, and nobody reads them.
    let listener = Listener::bind(&"127.0.0.1:0".parse().expect("legal")).expect("listen");
    let (clock, deadline) = (Arc::new(Hasty::default()), Duration::from_secs(10));
    let error = connect_hastily(listener.endpoint(), &clock, deadline).err().expect("silent");
    assert!(is_unreachable(&error, Applied::No), "{}", error.chain());
    assert!(Duration::from_nanos(clock.now_ns()) < deadline.mul_f64(1.5));
}

#[test]
fn nobody_waits_longer_for_an_answer_than_the_deadline() {
    let listener = Listener::bind(&"127.0.0.1:0".parse().expect("legal")).expect("listen");
    let (clock, deadline) = (Arc::new(Hasty::default()), Duration::from_secs(20));
    let endpoint = listener.endpoint().clone();
    let (client, object, peers) = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let client = connect_hastily(&endpoint, &clock, deadline).expect("connect");
            let object = client.open(&key("object"), &Open::create()).expect("open");
            (client, object)
        });
        let mut peer = welcome(&listener, 1);
        let asked = peer.hear().expect("to open");
        let opened = terrace_wire::Opened { handle: 1, ..Default::default() };
        let head = terrace_wire::write_outcomes(&[Outcome::Opened(opened)]);
        peer.say(Kind::Answer, asked.header.id, &head, b"");
        // From now on it says nothing.
        let (client, object) = client.join().expect("no panic");
        (client, object, peer)
    });
    let within = |what: &str, applied: Applied, work: &dyn Fn() -> Result<()>| {
        let start_ns = clock.now_ns();
        let error = work().expect_err(what);
        let took = Duration::from_nanos(clock.now_ns() - start_ns);
        assert!(is_unreachable(&error, applied), "{what}: {}", error.chain());
        assert!(took < deadline.mul_f64(1.5), "{what}: {took:?}");
    };
    within("stat", Applied::No, &|| object.stat().map(drop));
    within("write", Applied::Unknown, &|| object.write(0, b"bytes"));
    within("delete", Applied::Unknown, &|| client.delete(&key("object")));
    within("namespaces", Applied::No, &|| client.namespaces().map(drop));
    // Closing fails without a word; it must not take the time of another request.
    let start_ns = clock.now_ns();
    drop(object);
    let took = Duration::from_nanos(clock.now_ns() - start_ns);
    assert!(took < deadline / 2, "closing took {took:?}");
    drop(peers);
}

pub(crate) fn connect_hastily(
    endpoint: &Endpoint,
    clock: &Arc<Hasty>,
    deadline: Duration,
) -> Result<Remote> {
    let options = Options { secret: None, deadline, connect_timeout: deadline, ..options() };
    let address = Address { endpoint: endpoint.clone(), clock: Arc::clone(clock) as _ };
    Remote::connect(Box::new(address), options, Arc::clone(clock) as _)
}

/// Lets a client in, without a secret.
pub(crate) fn welcome(listener: &Listener, life: u64) -> Peer {
    let mut peer = Peer::new(listener.accept().expect("accept"));
    peer.hear().expect("a hello");
    let challenge = Challenge { version: 1, needs_proof: false, nonce: [0; 32] };
    peer.say(Kind::Challenge, 0, &challenge.to_head(), b"");
    peer.hear().expect("a proof");
    let welcome = Welcome {
        proof: [0; 32],
        store_id: 7,
        life,
        capability: store().backend.capability(),
        target: "silent".into(),
        openings: Default::default(),
    };
    peer.say(Kind::Welcome, 0, &welcome.to_head(), b"");
    peer
}
