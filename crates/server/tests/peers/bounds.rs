// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds on what one client may hold.

use std::sync::Arc;
use std::time::Duration;

use terrace_client::{Address, Options, Remote};
use terrace_core::{
    Access, Backend, BackendExt, ErrorKind, Hint, Key, Kv, KvRange, Op, Open, Persistency, Request,
    Semantics,
};
use terrace_server::{Limits, Server};
use terrace_testkit::ManualClock;
use terrace_wire::{
    Effect, Header, Kind, Look, LookFor, OPERATIONS_MAX, OnHandle, Operation, Outcome,
    PIECE_BYTES_MAX, Seen, pack_semantics, write_operations,
};

use crate::common::peer::{Peer, opening};
use crate::common::{Held, connect, eventually, options, secret, serve, store};

fn key(name: &str) -> Key {
    Key::new("bounds", name).expect("legal")
}

fn create(name: &str, data_bytes: u32) -> Operation {
    Operation::Create { key: key(name), data_bytes, hint: Hint::default() }
}

fn kind_of(outcome: &Outcome) -> Option<ErrorKind> {
    match outcome {
        Outcome::Failed(failure) => Some(failure.clone().into_error().kind()),
        _ => None,
    }
}

#[test]
fn a_client_opens_no_more_than_it_may() {
    let limits = Limits { handles_max: 4, ..Limits::default() };
    let (server, endpoint) = serve(store(), limits);
    let client = connect(&endpoint, options()).expect("connect");
    let open = |name: &str| client.open(&key(name), &Open::create());
    let mut objects: Vec<_> = (0..4).map(|_| open("shared").expect("open")).collect();
    let error = open("shared").err().expect("too many");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert_eq!(client.stat(&key("shared")).expect("others are served").size_bytes, 0);
    let other = connect(&endpoint, options()).expect("connect");
    other.open(&key("shared"), &Open::read()).expect("another client has its own");
    objects.pop();
    objects.push(open("shared").expect("there is room again"));
    drop(objects);
    drop(other);
    eventually("all are closed", || server.status().handles == 0);
}

#[test]
fn there_are_no_more_sessions_than_there_may_be() {
    let clock = Arc::new(ManualClock::new());
    let limits = Limits { sessions_max: 2, ..Limits::default() };
    let server = Server::new(store(), Some(secret()), limits, Arc::clone(&clock) as _);
    let endpoint = server.listen(&"127.0.0.1:0".parse().expect("legal")).expect("listen");
    let first = connect(&endpoint, options()).expect("connect");
    drop(connect(&endpoint, options()).expect("connect"));
    let error = connect(&endpoint, options()).err().expect("too many");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    eventually("its connection ends", || server.status().connections == 1);
    clock.advance(limits.linger + Duration::from_millis(1));
    eventually("the one that was left is forgotten", || server.status().sessions == 1);
    connect(&endpoint, options()).expect("there is room again");
    first.namespaces().expect("who stays is served");
}

#[test]
fn a_client_that_is_gone_leaves_no_handles() {
    let clock = Arc::new(ManualClock::new());
    let limits = Limits::default();
    let server = Server::new(store(), Some(secret()), limits, Arc::clone(&clock) as _);
    let endpoint = server.listen(&"127.0.0.1:0".parse().expect("legal")).expect("listen");
    let mut peer = Peer::connect(&endpoint);
    peer.greet(Some(&secret()), 5).expect("welcome");
    let outcomes = peer.done(&[opening(key("left open"), Access::Write)], b"");
    let [Outcome::Opened(opened)] = &outcomes[..] else { panic!("{outcomes:?}") };
    drop(peer);
    eventually("its connection ends", || server.status().connections == 0);
    assert_eq!(server.status().handles, 1, "it may come back");
    clock.advance(limits.linger - Duration::from_secs(1));
    let mut again = Peer::connect(&endpoint);
    again.greet(Some(&secret()), 5).expect("welcome");
    let stat = Operation::On { handle: opened.handle, what: OnHandle::Stat };
    assert!(matches!(again.done(&[stat], b"")[..], [Outcome::Stat(_)]), "it came back");
    drop(again);
    eventually("its connection ends", || server.status().connections == 0);
    clock.advance(limits.linger + Duration::from_millis(1));
    eventually("nothing is left", || {
        let status = server.status();
        (status.handles, status.sessions) == (0, 0)
    });
}

#[test]
fn a_change_that_comes_twice_is_carried_out_once() {
    let (_server, endpoint) = serve(store(), Limits::default());
    let mut first = Peer::connect(&endpoint);
    first.greet(Some(&secret()), 6).expect("welcome");
    first.ask_as(1, 0, &[create("once", 5)], b"bytes");
    assert_eq!(first.outcomes(1).expect("answered").0, [Outcome::Done]);
    // Over the same connection and over another one of the session.
    let mut second = Peer::connect(&endpoint);
    second.greet(Some(&secret()), 6).expect("welcome");
    for peer in [&mut first, &mut second] {
        peer.ask_as(1, 0, &[create("once", 5)], b"bytes");
        assert_eq!(peer.outcomes(1).expect("known").0, [Outcome::Done]);
    }
    first.ask_as(2, 2, &[create("once", 5)], b"bytes");
    assert_eq!(kind_of(&first.outcomes(2).expect("new").0[0]), Some(ErrorKind::Exists));
    first.ask_as(1, 0, &[create("once", 5)], b"bytes");
    assert_eq!(first.outcomes(1).expect_err("acknowledged").kind(), ErrorKind::Stale);
}

#[test]
fn a_client_that_acknowledges_nothing_takes_no_more_memory() {
    let limits = Limits { replies_max: 8, ..Limits::default() };
    let (_server, endpoint) = serve(store(), limits);
    let mut peer = Peer::greeted(&endpoint);
    let create_next = |id: u64| [create(&id.to_string(), 0)];
    for id in 1..=8 {
        peer.ask_as(id, 0, &create_next(id), b"");
        assert_eq!(peer.outcomes(id).expect("answered").0, [Outcome::Done]);
    }
    peer.ask_as(9, 0, &create_next(9), b"");
    assert_eq!(peer.outcomes(9).expect_err("one too many").kind(), ErrorKind::Busy);
    peer.ask_as(8, 0, &create_next(8), b"");
    assert_eq!(peer.outcomes(8).expect("kept").0, [Outcome::Done]);
    peer.ask_as(10, 9, &create_next(10), b"");
    assert_eq!(peer.outcomes(10).expect("there is room again").0, [Outcome::Done]);
}

#[test]
fn a_payload_that_breaks_off_leaves_its_request_as_if_it_had_not_come() {
    let (server, endpoint) = serve(store(), Limits::default());
    let long = vec![7; 600_000];
    let requests = [
        ("a small one", create("small", 5), b"bytes".to_vec()),
        ("one in parts", create("large", long.len() as u32), long.clone()),
    ];
    for (number, (what, operation, payload)) in (10..).zip(requests) {
        let mut first = Peer::connect(&endpoint);
        first.greet(Some(&secret()), number).expect("welcome");
        let head =
            terrace_wire::write_operations(std::slice::from_ref(&operation), payload.len() as u32);
        let piece = &payload[..payload.len().min(terrace_wire::PIECE_BYTES_MAX)];
        let header = terrace_wire::Header::new(terrace_wire::Kind::Request, 1, &head, piece);
        let mut bytes = Vec::new();
        header.write(&head, &mut bytes);
        bytes.extend(&piece[..piece.len() - 1]);
        first.say_bytes(&bytes);
        drop(first);
        eventually("its connection ends", || server.status().connections == 0);
        let mut second = Peer::connect(&endpoint);
        second.greet(Some(&secret()), number).expect("welcome");
        let id = second.ask_in_parts(&[operation], &payload);
        assert_eq!(second.outcomes(id).expect(what).0, [Outcome::Done], "{what}");
        drop(second);
        eventually("its connection ends", || server.status().connections == 0);
    }
}

/// A client that has no answer in time gives a write up, and goes on over another connection: what of
/// the write is still on its way must not undo what is done since.
#[test]
fn a_change_that_was_given_up_before_it_came_whole_is_not_made_behind_later_ones() {
    let service = store();
    let (server, endpoint) = serve(Arc::clone(&service) as _, Limits::default());
    for (session, pieces_bytes) in [(20, 0), (21, 2 * PIECE_BYTES_MAX)] {
        let [slow, mut other] = [(); 2].map(|()| {
            let mut peer = Peer::connect(&endpoint);
            peer.greet(Some(&secret()), session).expect("welcome");
            peer
        });
        let name = key(&format!("given up {session}"));
        other.ask_as(1, 1, &[opening(name.clone(), Access::Write)], b"");
        let (outcomes, _) = other.outcomes(1).expect("answered");
        let [Outcome::Opened(opened)] = &outcomes[..] else { panic!("{outcomes:?}") };
        let on = |what| [Operation::On { handle: opened.handle, what }];
        let requests = server.status().requests;
        let data = vec![7; pieces_bytes + 100];
        let write = on(OnHandle::Write { offset_bytes: 0, data_bytes: data.len() as u32 });
        let mut frames = frames(2, &write, &data);
        let last = frames.split_off(frames.len() - 1);
        slow.say_bytes(&frames);
        eventually("most of it came", || {
            let size_bytes = service.backend.stat(&name).expect("it is there").size_bytes;
            server.status().requests > requests && size_bytes == pieces_bytes as u64
        });
        other.ask_as(3, 3, &on(OnHandle::SetLen { bytes: 5 }), b"");
        assert_eq!(other.outcomes(3).expect("answered").0, [Outcome::Done]);
        slow.say_bytes(&last);
        drop(slow);
        eventually("its connection ends", || server.status().connections == 1);
        let size_bytes = service.backend.stat(&name).expect("it is there").size_bytes;
        assert_eq!(size_bytes, 5, "behind {pieces_bytes}");
        drop(other);
        eventually("its connection ends", || server.status().connections == 0);
    }
}

/// The bytes of a request, which acknowledges all before it.
fn frames(id: u64, operations: &[Operation], payload: &[u8]) -> Vec<u8> {
    let head = write_operations(operations, payload.len() as u32);
    let mut bytes = Vec::new();
    for (index, piece) in payload.chunks(PIECE_BYTES_MAX).enumerate() {
        if index == 0 {
            let header = Header::new(Kind::Request, id, &head, piece);
            let semantics = pack_semantics(&Semantics::default());
            Header { acknowledged: id, semantics, ..header }.write(&head, &mut bytes);
        } else {
            Header::new(Kind::Part, id, b"", piece).write(b"", &mut bytes);
        }
        bytes.extend(piece);
    }
    bytes
}

#[test]
fn memory_for_payloads_is_bounded_over_all_connections() {
    let limits = Limits {
        buffers_bytes_max: 100_000,
        stall_max: Duration::from_millis(50),
        ..Limits::default()
    };
    let (server, endpoint) = serve(store(), limits);
    let holder = Peer::greeted(&endpoint);
    let payload = vec![1; 80_000];
    let head = terrace_wire::write_operations(&[create("slow", 80_000)], 80_000);
    let header = terrace_wire::Header::new(terrace_wire::Kind::Request, 1, &head, &payload);
    let mut bytes = Vec::new();
    header.write(&head, &mut bytes);
    bytes.extend(&payload);
    let (now, later) = bytes.split_at(bytes.len() - 1);
    holder.say_bytes(now);
    let mut other = Peer::greeted(&endpoint);
    let mut refused = 0;
    // Until the holder's time is over nothing of this length is taken; small ones always are.
    while refused == 0 {
        let id = other.ask(&[create("small", 5)], b"bytes");
        assert!(other.outcomes(id).is_ok());
        let delete = Operation::Delete { key: key("small") };
        assert_eq!(other.done(&[delete], b""), [Outcome::Done]);
        let id = other.ask(&[create("waits", 80_000)], &payload);
        match other.outcomes(id) {
            Err(error) if error.kind() == ErrorKind::Busy => refused += 1,
            Err(error) => panic!("{error}"),
            // The holder was put out before it was asked for.
            Ok(_) => break,
        }
    }
    holder.say_bytes(later);
    drop(holder);
    eventually("the holder is gone", || server.status().connections == 1);
    let id = other.ask(&[create("later", 80_000)], &payload);
    assert_eq!(other.outcomes(id).expect("there is room again").0, [Outcome::Done]);
    let id = other.ask(&[create("never", 200_000)], &vec![1; 200_000]);
    assert_eq!(other.outcomes(id).expect_err("never").kind(), ErrorKind::Invalid);
}

#[test]
fn many_long_messages_of_failures_fit_an_answer() {
    let (_server, endpoint) = serve(store(), Limits::default());
    let client = connect(&endpoint, options()).expect("connect");
    let long = "x".repeat(100);
    let keys: Vec<_> = (0..OPERATIONS_MAX).map(|number| key(&format!("{long}{number}"))).collect();
    let requests = keys.iter().map(|key| Request::Delete { key });
    let mut operations: Vec<_> = requests.map(Op::new).collect();
    client.execute(&mut operations, &Semantics::default());
    for operation in operations {
        let error = operation.outcome.expect("ended").expect_err("missing");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
}

#[test]
fn a_batch_that_is_too_much_is_refused_before_it_harms_others() {
    let (_server, endpoint) = serve(store(), Limits::default());
    let client = connect(&endpoint, options()).expect("connect");
    let object = client.open(&key("open"), &Open::create()).expect("open");
    let names: Vec<_> = (0..5000_u32).map(u32::to_be_bytes).collect();
    let changes: Vec<_> = names.iter().map(|name| (&name[..], Some(&b"value"[..]))).collect();
    let error = client
        .kv("pairs")
        .apply(&changes, terrace_core::Persistency::None)
        .expect_err("too many for a request");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    object.stat().expect("the connection lives");
}

#[test]
fn a_call_may_return_much() {
    let (_server, endpoint) = serve(store(), Limits::default());
    let client = connect(&endpoint, options()).expect("connect");
    let body: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
    let mut heard = Vec::new();
    let answer = client.call(b"\"echo\"", &[&body], &mut |done, total| heard.push((done, total)));
    let answer = answer.expect("echo");
    assert_eq!((&answer.json[..], &answer.body), (&b"\"echo\""[..], &body));
    assert_eq!(heard, [(1, 2), (2, 2)]);
}

#[test]
fn a_bug_that_one_request_meets_ends_no_other() {
    let (_server, endpoint) = serve(store(), Limits::default());
    let client = connect(&endpoint, options()).expect("connect");
    let error = client.call(b"\"panic\"", &[], &mut |_, _| {}).expect_err("a bug");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("bug"), "{error}");
    client.call(b"\"echo\"", &[], &mut |_, _| {}).expect("the next one is served");
}

#[test]
fn one_long_call_does_not_keep_others_from_changing() {
    let limits = Limits { replies_max: 16, ..Limits::default() };
    let held = Arc::new(Held::new(store()));
    let (_server, endpoint) = serve(Arc::clone(&held) as _, limits);
    let client = connect(&endpoint, options()).expect("connect");
    std::thread::scope(|scope| {
        let call = scope.spawn(|| client.call(b"\"hold\"", &[], &mut |_, _| {}));
        held.wait_until_held();
        for number in 0..100 {
            client.write_all(&key(&number.to_string()), b"bytes").expect("others go on");
        }
        held.release();
        call.join().expect("no panic").expect("the call ends, too");
    });
}

#[test]
fn more_namespaces_than_a_message_takes_are_listed() {
    let (_server, endpoint) = serve(store(), Limits::default());
    let client = connect(&endpoint, options()).expect("connect");
    let long = "x".repeat(50);
    let names: Vec<_> = (0..2100).map(|index| format!("{long}-{index:04}")).collect();
    for name in &names {
        client.write_all(&Key::new(name, "o").expect("legal"), b"").expect("write");
    }
    assert_eq!(client.namespaces().expect("listed"), names);
}

#[test]
fn a_transaction_in_vain_ends_with_the_deadline() {
    let (_server, endpoint) = serve(store(), Limits::default());
    let (address, clock) = (endpoint.clone(), Arc::new(ManualClock::new()));
    let dial = Address { endpoint: address, clock: clock.clone() };
    let mine = Remote::connect(Box::new(dial), options(), clock.clone()).expect("connect").kv("n");
    let theirs = connect(&endpoint, options()).expect("connect").kv("n");
    let mut runs = 0_u64;
    let error = mine
        .transact(&mut |txn| {
            runs += 1;
            txn.get(b"key")?;
            theirs.apply(&[(b"key", Some(&runs.to_le_bytes()))], Persistency::None)?;
            txn.put(b"other", b"value")
        })
        .expect_err("somebody else is always faster");
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(runs > 2, "it gave up after {runs} runs");
    assert_eq!(mine.get(b"other").expect("read"), None);
}

#[test]
fn a_range_that_grew_ends_a_transaction_without_reading_all_of_it() {
    let (_server, endpoint) = serve(store(), Limits::default());
    let client = connect(&endpoint, options()).expect("connect");
    let kv = client.kv("n");
    let put = |start: u32, end: u32| {
        let keys: Vec<_> = (start..end).map(u32::to_be_bytes).collect();
        let pairs: Vec<_> = keys.iter().map(|key| (&key[..], Some(&b"value"[..]))).collect();
        kv.apply(&pairs, Persistency::None).expect("put");
    };
    put(0, 10);
    let mut found = Vec::new();
    kv.transact(&mut |txn| {
        let pairs = txn.scan(&KvRange::all(), usize::MAX)?;
        found.push(pairs.len());
        if found.len() == 1 {
            put(10, 2010);
        }
        txn.put(b"sum", &pairs.len().to_le_bytes())
    })
    .expect("the second time nobody disturbs it");
    assert_eq!(found, [10, 2010]);
}

#[test]
fn reading_much_at_once_is_refused_with_the_bound() {
    let (_server, endpoint) = serve(store(), Limits::default());
    let mut peer = Peer::greeted(&endpoint);
    let read = |length_bytes| Operation::Read { key: key("o"), offset_bytes: 0, length_bytes };
    let id = peer.ask(&[read(u32::MAX), read(u32::MAX)], b"");
    let error = peer.outcomes(id).expect_err("8 GiB");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("length_bytes_max"), "{error}");
    let client = connect(&endpoint, Options { access: Access::Read, ..options() });
    client.expect("connect").namespaces().expect("served");
}

/// What these find is known only when they are carried out.
#[test]
fn what_the_scans_of_a_request_read_together_is_bounded() {
    const VALUE_BYTES: usize = 1 << 20;
    let (_server, endpoint) = serve(store(), Limits::default());
    let value = vec![7; VALUE_BYTES];
    let pairs: Vec<_> = [b"a", b"b", b"c", b"d"].map(|key| (&key[..], Some(&value[..]))).into();
    let kv = connect(&endpoint, options()).expect("connect").kv("n");
    kv.apply(&pairs, Persistency::None).expect("put");
    let range = KvRange::all();
    let what = LookFor::Range(range.clone(), 1000);
    let look = Look { namespace: "n".into(), seen: Seen::default(), what };
    let files = Operation::Files { namespace: "n".into(), effect: Effect::Look, data_bytes: 0 };
    for read in [
        Operation::KvScan { namespace: "n".into(), range, max: 1000 },
        Operation::KvLook(Box::new(look)),
    ] {
        let mut peer = Peer::greeted(&endpoint);
        let mut operations = vec![read; 20];
        operations.push(files.clone());
        let id = peer.ask(&operations, b"");
        let (outcomes, payload) = peer.outcomes(id).expect("answered");
        let found = outcomes.iter().filter(|one| matches!(one, Outcome::Pairs { .. })).count();
        assert_eq!((found, payload.len()), (2, 2 * 4 * (1 + VALUE_BYTES)));
        for refused in &outcomes[found..] {
            assert_eq!(kind_of(refused), Some(ErrorKind::Invalid), "{refused:?}");
        }
    }
}

#[test]
fn what_the_listings_of_a_request_find_together_is_bounded() {
    let (_server, endpoint) = serve(store(), Limits::default());
    let client = connect(&endpoint, options()).expect("connect");
    let long = "x".repeat(200);
    let keys: Vec<_> = (0..1000).map(|number| key(&format!("{long}{number:04}"))).collect();
    let make = |key| Request::Create { key, data: b"", hint: Hint::default() };
    let mut operations: Vec<_> = keys.iter().map(make).map(Op::new).collect();
    client.execute(&mut operations, &Semantics::default());
    let list = Operation::List {
        namespace: "bounds".into(),
        prefix: String::new(),
        cursor: Vec::new(),
        max: 1000,
    };
    let mut peer = Peer::greeted(&endpoint);
    let id = peer.ask(&vec![list; 100], b"");
    let (outcomes, _) = peer.outcomes(id).expect("it fits a message");
    let is_whole =
        |one: &&Outcome| matches!(one, Outcome::Page { names, .. } if names.len() == 1000);
    let found = outcomes.iter().take_while(is_whole).count();
    assert_eq!(found, 3, "each has 200 kB");
    for refused in &outcomes[found..] {
        assert_eq!(kind_of(refused), Some(ErrorKind::Invalid), "{refused:?}");
    }
}
