// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is let in.

use std::sync::Arc;
use std::time::Duration;

use terrace_client::Options;
use terrace_core::{Access, Backend, BackendExt, End, Error, ErrorKind, Key, Open};
use terrace_server::{Limits, Server, Status};
use terrace_testkit::ManualClock;
use terrace_transport::{Endpoint, Listener, random_bytes};
use terrace_wire::{
    Challenge, Failure, Hello, Kind, NONCE_BYTES, OnHandle, Opened, Operation, Outcome,
    PROOF_BYTES, Proof, Secret, Side, Transcript, VERSION, VERSION_MIN, Welcome, write_operations,
    write_outcomes,
};

use crate::common::peer::{Peer, namespaces};
use crate::common::{Hasty, clock, connect, eventually, options, secret, serve, store};
use crate::lives::{connect_hastily, welcome};

fn other_secret() -> Secret {
    Secret::new(b"the secret of another store").expect("long enough")
}

#[test]
fn a_client_with_another_secret_or_none_is_refused() {
    let (server, endpoint) = serve(store(), Limits::default());
    for secret in [Some(other_secret()), None] {
        let error = connect(&endpoint, Options { secret, ..options() }).err().expect("refused");
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    }
    // None at all is refused by the client already; a peer that sends zeros by the server.
    let error = Peer::connect(&endpoint).greet(None, 0).expect_err("zeros are no proof");
    assert_eq!(error.kind(), ErrorKind::Denied);
    eventually("they are gone", || server.status().strangers == 0);
    assert_eq!((server.status().sessions, server.status().refused), (0, 2));
}

#[test]
fn a_server_that_does_not_know_the_secret_is_refused() {
    let (_server, endpoint) = serve(store(), Limits::default());
    let without = Server::new(store(), None, Limits::default(), clock());
    let anybody = without.listen(&"127.0.0.1:0".parse().expect("legal")).expect("listen");
    let error = connect(&anybody, options()).err().expect("asks for no secret");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    connect(&endpoint, options()).expect("the right one is used");

    // Says that it knows the secret, and proves another.
    let listener = Listener::bind(&"127.0.0.1:0".parse().expect("legal")).expect("listen");
    let endpoint = listener.endpoint().clone();
    let error = std::thread::scope(|scope| {
        let client = scope.spawn(|| connect(&endpoint, options()));
        let mut peer = Peer::new(listener.accept().expect("accept"));
        let hello = Hello::from_head(&peer.hear().expect("a hello").head).expect("legal");
        let challenge = Challenge { version: 1, needs_proof: true, nonce: [1; NONCE_BYTES] };
        peer.say(Kind::Challenge, 0, &challenge.to_head(), b"");
        let _proof = peer.hear().expect("a proof");
        let transcript = Transcript { hello: &hello, challenge: &challenge, channel: b"" };
        let welcome = Welcome {
            proof: other_secret().prove(Side::Server, transcript),
            store_id: 7,
            life: 1,
            capability: store().backend.capability(),
            target: "false".into(),
            openings: Default::default(),
        };
        peer.say(Kind::Welcome, 0, &welcome.to_head(), b"");
        client.join().expect("no panic").err().expect("refused")
    });
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("does not know the secret"), "{error}");
}

#[test]
fn a_proof_that_was_overheard_opens_nothing() {
    let (_server, endpoint) = serve(store(), Limits::default());
    let mut nonce = [0; NONCE_BYTES];
    random_bytes(&mut nonce).expect("random");
    let hello = Hello { version_min: VERSION_MIN, version_max: VERSION, nonce };
    let mut overheard = None;
    for is_welcome in [true, false] {
        let mut peer = Peer::connect(&endpoint);
        peer.say(Kind::Hello, 0, &hello.to_head(), b"");
        let challenge = Challenge::from_head(&peer.hear().expect("one").head).expect("legal");
        let transcript = Transcript { hello: &hello, challenge: &challenge, channel: b"" };
        let proof = secret().prove(Side::Client, transcript);
        // The second time everything is said again as it was the first time.
        let proof = *overheard.get_or_insert(proof);
        let proof = Proof { proof, session: 9, access: Access::Write };
        peer.say(Kind::Proof, 0, &proof.to_head(), b"");
        let said = peer.hear().expect("an answer");
        let expected = if is_welcome { Kind::Welcome } else { Kind::Failed };
        assert_eq!(said.header.kind, expected);
    }
}

#[test]
fn a_proof_sent_back_opens_nothing() {
    let (_server, endpoint) = serve(store(), Limits::default());
    // Whoever does not know the secret can only say again what it hears from a server.
    let mut peer = Peer::connect(&endpoint);
    let hello = Hello { version_min: 1, version_max: 1, nonce: [7; NONCE_BYTES] };
    peer.say(Kind::Hello, 0, &hello.to_head(), b"");
    let challenge = Challenge::from_head(&peer.hear().expect("one").head).expect("legal");
    let transcript = Transcript { hello: &hello, challenge: &challenge, channel: b"" };
    let proof = secret().prove(Side::Server, transcript);
    assert_eq!(proof.len(), PROOF_BYTES);
    let proof = Proof { proof, session: 9, access: Access::Write };
    peer.say(Kind::Proof, 0, &proof.to_head(), b"");
    let reason = peer.reason_of_end().expect("it says why");
    assert_eq!(reason.kind(), ErrorKind::Denied);
}

#[test]
fn versions_are_settled_in_the_greeting() {
    let (_server, endpoint) = serve(store(), Limits::default());
    let mut later = Peer::connect(&endpoint);
    later.greet_as(VERSION, 9, Some(&secret()), 0).expect("both speak the newest");
    let outcomes = later.done(&[namespaces()], b"");
    assert_eq!(outcomes, [terrace_wire::Outcome::Page { names: Vec::new(), next: None }]);
    let mut old = Peer::connect(&endpoint);
    old.greet_as(VERSION_MIN, VERSION_MIN, Some(&secret()), 0).expect("both speak the oldest");
    assert_eq!(old.done(&[namespaces()], b""), outcomes);
    let greeted = Peer::connect(&endpoint).greet_as(VERSION + 1, 9, Some(&secret()), 0);
    let error = greeted.expect_err("too new");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    for part in [format!("client={}..9", VERSION + 1), format!("server={VERSION_MIN}..{VERSION}")] {
        assert!(error.to_string().contains(&part), "{error}");
    }
    let error = Peer::connect(&endpoint).greet_as(9, 2, Some(&secret()), 0).expect_err("nonsense");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let error = Peer::connect(&endpoint).greet_as(0, 0, Some(&secret()), 0).expect_err("too old");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("client=0..0"), "{error}");
}

/// What a client says of a server that answers its greeting so.
fn refusal(answer: impl FnOnce(&Peer, Hello) + Send) -> Error {
    let listener = Listener::bind(&"127.0.0.1:0".parse().expect("legal")).expect("listen");
    let endpoint = listener.endpoint().clone();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| connect(&endpoint, options()));
        let mut peer = Peer::new(listener.accept().expect("accept"));
        let hello = Hello::from_head(&peer.hear().expect("a hello").head).expect("legal");
        answer(&peer, hello);
        client.join().expect("no panic").err().expect("refused")
    })
}

#[test]
fn a_client_uses_no_server_of_another_version() {
    // One that does not keep to what the client can.
    for version in [VERSION_MIN - 1, VERSION + 1] {
        let error = refusal(|peer, hello| {
            assert_eq!((hello.version_min, hello.version_max), (VERSION_MIN, VERSION));
            let challenge = Challenge { version, needs_proof: true, nonce: [1; NONCE_BYTES] };
            peer.say(Kind::Challenge, 0, &challenge.to_head(), b"");
        });
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(&format!("server={version} client=")), "{error}");
    }
    // One that does, and speaks only later ones.
    let error = refusal(|peer, hello| {
        let unsupported = hello.common_version(VERSION + 1, VERSION + 3).expect_err("none");
        peer.say(Kind::Failed, 0, &Failure::of(&unsupported).to_head(), b"");
    });
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains(&format!("server={}..", VERSION + 1)), "{error}");
}

/// It would end the connection.
#[test]
fn a_client_asks_no_server_of_version_1_for_room_behind_an_end() {
    let listener = Listener::bind(&"127.0.0.1:0".parse().expect("legal")).expect("listen");
    let endpoint = listener.endpoint().clone();
    let (clock, deadline) = (Arc::new(Hasty::default()), Duration::from_secs(20));
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let client = connect_hastily(&endpoint, &clock, deadline).expect("connect");
            let name = Key::new("greetings", "object").expect("legal");
            let object = client.open(&name, &Open::create()).expect("open");
            let refused = object.allocate(0..100, End::Stays).expect_err("it is not known");
            assert_eq!(refused.kind(), ErrorKind::Unsupported, "{}", refused.chain());
            object.allocate(0..100, End::Grows).expect("version 1 knows it");
        });
        let mut peer = welcome(&listener, 1);
        let asked = peer.hear().expect("to open");
        let opened = Opened { handle: 1, ..Default::default() };
        peer.say(Kind::Answer, asked.header.id, &write_outcomes(&[Outcome::Opened(opened)]), b"");
        let asked = peer.hear().expect("to allocate");
        let expected = OnHandle::Allocate { range: 0..100, end: End::Grows };
        let expected = Operation::On { handle: 1, what: expected };
        assert_eq!(asked.head, write_operations(&[expected], 0));
        peer.say(Kind::Answer, asked.header.id, &write_outcomes(&[Outcome::Done]), b"");
        client.join().expect("no panic");
    });
}

#[test]
fn nobody_on_the_way_talks_two_into_an_older_version() {
    let (_server, endpoint) = serve(store(), Limits::default());
    // The client can speak later ones, too; the server is told that it cannot.
    let said = Hello { version_min: 1, version_max: 9, nonce: [7; NONCE_BYTES] };
    let passed_on = Hello { version_max: 1, ..said.clone() };
    for (hello, is_welcome) in [(&said, false), (&passed_on, true)] {
        let mut peer = Peer::connect(&endpoint);
        peer.say(Kind::Hello, 0, &passed_on.to_head(), b"");
        let challenge = Challenge::from_head(&peer.hear().expect("one").head).expect("legal");
        let transcript = Transcript { hello, challenge: &challenge, channel: b"" };
        let proof = secret().prove(Side::Client, transcript);
        let proof = Proof { proof, session: 9, access: Access::Write };
        peer.say(Kind::Proof, 0, &proof.to_head(), b"");
        let expected = if is_welcome { Kind::Welcome } else { Kind::Failed };
        assert_eq!(peer.hear().expect("an answer").header.kind, expected);
    }
}

#[test]
fn a_stranger_that_says_nothing_is_put_out_in_time() {
    let clock = Arc::new(ManualClock::new());
    let server = Server::new(store(), Some(secret()), Limits::default(), Arc::clone(&clock) as _);
    let endpoint = server.listen(&"127.0.0.1:0".parse().expect("legal")).expect("listen");
    let client = connect(&endpoint, options()).expect("connect");
    let mut silent = Peer::connect(&endpoint);
    // Says the beginning of a greeting, and no more.
    let mut slow = Peer::connect(&endpoint);
    slow.say_bytes(b"TRCE\x01");
    eventually("all are in", || {
        let Status { connections, strangers, .. } = server.status();
        (connections, strangers) == (1, 2)
    });
    clock.advance(Limits::default().greeting_time_max + Duration::from_millis(1));
    assert!(silent.hear().is_none());
    assert!(slow.hear().is_none());
    eventually("both are out", || server.status().strangers == 0);
    client.namespaces().expect("who has proved itself stays");
}

#[test]
fn a_session_belongs_to_one_kind_of_access() {
    let (_server, endpoint) = serve(store(), Limits::default());
    let mut first = Peer::connect(&endpoint);
    first.greet(Some(&secret()), 77).expect("welcome");
    let mut second = Peer::connect(&endpoint);
    second.greet(Some(&secret()), 77).expect("the same session");
    let reading = Options { access: Access::Read, ..options() };
    let client = connect(&endpoint, reading).expect("connect");
    let key = Key::new("n", "o").expect("legal");
    let error = client.open(&key, &Open::create_new()).err().expect("for reading only");
    assert_eq!(error.kind(), ErrorKind::Denied);
    let error = client.write_all(&key, b"bytes").expect_err("for reading only");
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert_eq!(client.namespaces().expect("read"), Vec::<String>::new());
}

#[test]
fn a_unix_socket_needs_no_secret() {
    let (server, _) = serve(store(), Limits::default());
    let directory = tempfile::tempdir().expect("directory");
    let endpoint = Endpoint::Unix(directory.path().join("socket"));
    server.listen(&endpoint).expect("listen");
    connect(&endpoint, Options { secret: None, ..options() }).expect("its mode decides");
}
