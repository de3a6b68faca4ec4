// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames that are none, or not what they say.

use terrace_core::{Backend, BackendExt, ErrorKind, Key, Open, Random};
use terrace_server::{Limits, Server};
use terrace_transport::Endpoint;
use terrace_wire::{
    Failure, HEAD_BYTES_MAX, HEADER_BYTES, Header, Hello, Kind, NONCE_BYTES, OnHandle, Operation,
    Outcome, PAYLOAD_BYTES_MAX, PIECE_BYTES_MAX, write_operations,
};

use crate::common::peer::{Peer, namespaces};
use crate::common::{connect, eventually, options, secret, serve, store};

/// A server, somebody who uses it as it should be, and what it holds when all others are gone.
struct Scene {
    server: Server,
    endpoint: Endpoint,
    client: terrace_client::Remote,
    /// How many connections the client has.
    connections: u64,
}

impl Scene {
    fn new() -> Self {
        let (server, endpoint) = serve(store(), Limits::default());
        let client = connect(&endpoint, options()).expect("connect");
        client.write_all(&key("served"), b"").expect("write");
        client.read_all(&key("served")).expect("read");
        let connections = server.status().connections;
        Self { server, endpoint, client, connections }
    }

    /// Whoever has sent nonsense is gone, and the others are served.
    fn assert_sound(&self, what: &str) {
        self.client.write_all(&key("served"), what.as_bytes()).expect("others write");
        let found = self.client.read_all(&key("served")).expect("others read");
        assert!(found.starts_with(what.as_bytes()));
        let peers = || (self.server.status().connections, self.server.status().strangers);
        eventually(what, || peers() == (self.connections, 0));
    }
}

/// The frame of a request, whose header `change` may make untrue before it is written.
fn request(operations: &[Operation], payload: &[u8], change: impl Fn(&mut Header)) -> Vec<u8> {
    let head = write_operations(operations, payload.len() as u32);
    let mut header = Header::new(Kind::Request, 1, &head, payload);
    change(&mut header);
    let mut bytes = Vec::new();
    header.write(&head, &mut bytes);
    bytes.extend(payload);
    bytes
}

/// A frame whose header is written anew, with its checksum, after `change`.
fn patched(kind: Kind, head: &[u8], change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = Vec::new();
    Header::new(kind, 1, head, b"").write(head, &mut bytes);
    change(&mut bytes[..HEADER_BYTES]);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..40]), head);
    bytes[40..44].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn key(name: &str) -> Key {
    Key::new("frames", name).expect("legal")
}

fn create(payload_bytes: u32) -> Operation {
    Operation::Create {
        key: key("never"),
        data_bytes: payload_bytes,
        hint: terrace_core::Hint::default(),
    }
}

/// Wrong ways to go on after a greeting, each with a name.
fn wrong_requests() -> Vec<(&'static str, Vec<u8>)> {
    let whole = request(&[create(5)], b"bytes", |_| {});
    let mut bad_head = whole.clone();
    bad_head[HEADER_BYTES + 3] ^= 1;
    let mut bad_payload = whole.clone();
    *bad_payload.last_mut().expect("not empty") ^= 1;
    let of = |kind, head: &[u8]| patched(kind, head, |_| {});
    let with_head = |head: &[u8]| of(Kind::Request, head);
    let operation = |code: u8| with_head(&[0, 0, 0, 0, 1, 0, code]);
    let many = vec![namespaces(); 5000];
    let long = write_operations(&[create(PAYLOAD_BYTES_MAX as u32 + 1)], 1 + (64 << 20));
    vec![
        ("a damaged head", bad_head),
        ("a damaged payload", bad_payload),
        ("an unknown kind", patched(Kind::Request, b"", |bytes| bytes[4] = 99)),
        ("a kind of the server", of(Kind::Answer, b"")),
        ("a part of nothing", of(Kind::Part, b"")),
        ("a greeting again", of(Kind::Hello, b"")),
        ("flags of the future", patched(Kind::Request, b"", |bytes| bytes[6] = 1)),
        ("a field that must be 0", patched(Kind::Request, b"", |bytes| bytes[44] = 1)),
        ("another beginning", patched(Kind::Request, b"", |bytes| bytes[0] = b't')),
        (
            "a head that is too long",
            patched(Kind::Request, b"", |bytes| {
                bytes[28..32].copy_from_slice(&(HEAD_BYTES_MAX as u32 + 1).to_le_bytes());
            }),
        ),
        (
            "a payload that is too long for a frame",
            patched(Kind::Request, b"", |bytes| {
                bytes[32..36].copy_from_slice(&(PIECE_BYTES_MAX as u32 + 1).to_le_bytes());
            }),
        ),
        ("a payload that is too long for a request", with_head(&long)),
        ("a payload that nobody spoke of", {
            let head = write_operations(&[namespaces()], 0);
            let mut bytes = Vec::new();
            Header::new(Kind::Request, 1, &head, b"more").write(&head, &mut bytes);
            bytes.extend(b"more");
            bytes
        }),
        ("a payload that its operations do not need", {
            let head = write_operations(&[create(4)], 5);
            let mut bytes = Vec::new();
            Header::new(Kind::Request, 1, &head, b"bytes").write(&head, &mut bytes);
            bytes.extend(b"bytes");
            bytes
        }),
        ("a request inside a request", {
            let head = write_operations(&[create(9)], 9);
            let mut bytes = Vec::new();
            Header::new(Kind::Request, 1, &head, b"only").write(&head, &mut bytes);
            bytes.extend(b"only");
            bytes.extend(request(&[Operation::Space], b"", |_| {}));
            bytes
        }),
        ("more parts than it said", {
            let head = write_operations(&[create(6)], 6);
            let mut bytes = Vec::new();
            Header::new(Kind::Request, 1, &head, b"only").write(&head, &mut bytes);
            bytes.extend(b"only");
            Header::new(Kind::Part, 1, b"", b"and more").write(b"", &mut bytes);
            bytes.extend(b"and more");
            bytes
        }),
        ("no operations at all", with_head(b"")),
        ("the key of the operation before, where there is none", operation(0x84)),
        ("an operation that ends too early", operation(4)),
        ("bytes behind the operations", with_head(&[0, 0, 0, 0, 0, 0, 9])),
        ("too many operations", with_head(&write_operations(&many, 0))),
        ("a key that is none", with_head(&[0, 0, 0, 0, 1, 0, 4, 1, 0, b'.', 0, 0])),
        ("a text that is none", with_head(&[0, 0, 0, 0, 1, 0, 4, 1, 0, 0xff, 1, 0, b'x'])),
        ("a call without a head", of(Kind::Call, b"")),
        ("a call with a body that is too long", {
            of(Kind::Call, &[&u32::MAX.to_le_bytes()[..], b"\"echo\""].concat())
        }),
        ("a call with less body than it said", {
            let mut bytes = of(Kind::Call, &[&5_u32.to_le_bytes()[..], b"\"echo\""].concat());
            bytes.extend(of(Kind::Call, &[&0_u32.to_le_bytes()[..], b"\"echo\""].concat()));
            bytes
        }),
    ]
}

#[test]
fn wrong_frames_end_their_connection_and_no_other() {
    let scene = Scene::new();
    for (what, bytes) in wrong_requests() {
        let mut peer = Peer::greeted(&scene.endpoint);
        peer.say_bytes(&bytes);
        let reason = peer.reason_of_end().unwrap_or_else(|| panic!("no reason: {what}"));
        assert!(
            matches!(reason.kind(), ErrorKind::Invalid | ErrorKind::Corrupt),
            "{what}: {reason}"
        );
        scene.assert_sound(what);
    }
    assert_eq!(
        scene.client.read_all(&key("never")).expect_err("nothing was carried out").kind(),
        ErrorKind::NotFound
    );
}

/// As servers of later versions will have them.
#[test]
fn an_operation_that_is_unknown_is_refused_and_its_connection_goes_on() {
    let scene = Scene::new();
    let mut peer = Peer::greeted(&scene.endpoint);
    let on_handle = [&[1, 0, 32], &[0; 8][..], &[99, 1, 2, 3]].concat();
    let behind_a_known_one = [&[2, 0, 18][..], &[15, 7]].concat();
    for (number, fields) in [(1, vec![1, 0, 99]), (3, on_handle), (5, behind_a_known_one)] {
        // With data in two frames, which belong to it.
        let head = [&9_u32.to_le_bytes()[..], &fields].concat();
        let mut bytes = Vec::new();
        Header::new(Kind::Request, number, &head, b"only").write(&head, &mut bytes);
        bytes.extend(b"only");
        Header::new(Kind::Part, number, b"", b" more").write(b"", &mut bytes);
        bytes.extend(b" more");
        peer.say_bytes(&bytes);
        let answer = peer.hear().expect("an answer");
        assert_eq!((answer.header.kind, answer.header.id), (Kind::Failed, number));
        let error = Failure::from_head(&answer.head).expect("legal").into_error();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let known = write_operations(&[namespaces()], 0);
        peer.say(Kind::Request, number + 1, &known, b"");
        let answer = peer.hear().expect("an answer");
        assert_eq!((answer.header.kind, answer.header.id), (Kind::Answer, number + 1));
    }
    drop(peer);
    scene.assert_sound("unknown operations");
}

#[test]
fn wrong_greetings_end_their_connection_and_no_other() {
    let scene = Scene::new();
    let hello = Hello { version_min: 1, version_max: 1, nonce: [0; NONCE_BYTES] };
    let of = |kind, head: &[u8]| patched(kind, head, |_| {});
    let greetings = [
        ("a request before the greeting", request(&[namespaces()], b"", |_| {})),
        ("a proof before the greeting", of(Kind::Proof, &[0; 41])),
        ("a short greeting", of(Kind::Hello, b"short")),
        ("a long greeting", of(Kind::Hello, &[0; 513])),
        ("a page of the web", b"GET / HTTP/1.1\r\nHost: terrace\r\nAccept: */*\r\n\r\n".to_vec()),
        ("a greeting with a payload", {
            let mut bytes = Vec::new();
            let head = hello.to_head();
            Header::new(Kind::Hello, 0, &head, b"load").write(&head, &mut bytes);
            bytes.extend(b"load");
            bytes
        }),
        ("two greetings", [of(Kind::Hello, &hello.to_head()), of(Kind::Hello, b"")].concat()),
    ];
    for (what, bytes) in greetings {
        let mut peer = Peer::connect(&scene.endpoint);
        peer.say_bytes(&bytes);
        peer.reason_of_end();
        scene.assert_sound(what);
    }
    assert_eq!(scene.server.status().sessions, 1, "none was begun");
}

#[test]
fn random_bytes_end_their_connection_and_no_other() {
    let scene = Scene::new();
    let mut random = Random::new(1);
    for round in 0..200 {
        let mut bytes = vec![0; random.below(3000) as usize];
        random.fill(&mut bytes);
        let mut peer = Peer::connect(&scene.endpoint);
        if round % 2 == 0 {
            peer.greet(Some(&secret()), 0).expect("welcome");
            // Some are close to what is right.
            let right = wrong_requests().swap_remove(random.below(20) as usize).1;
            let at = random.below(right.len() as u64) as usize;
            bytes.splice(0..0, right[..at].iter().copied());
        }
        peer.say_bytes(&bytes);
        peer.finish();
        while peer.hear().is_some() {}
    }
    scene.assert_sound("random bytes");
}

#[test]
fn a_frame_that_ends_early_is_not_carried_out() {
    let scene = Scene::new();
    let whole = request(&[create(5)], b"bytes", |_| {});
    for end in (0..whole.len()).step_by(7) {
        let mut peer = Peer::greeted(&scene.endpoint);
        peer.say_bytes(&whole[..end]);
        peer.finish();
        while peer.hear().is_some() {}
    }
    scene.assert_sound("frames that end early");
    let error = scene.client.read_all(&key("never")).expect_err("none was whole");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn semantics_of_the_future_are_refused_and_not_ignored() {
    let scene = Scene::new();
    let mut peer = Peer::greeted(&scene.endpoint);
    peer.say_bytes(&request(&[create(5)], b"bytes", |header| header.semantics = 0x0f00_0000));
    let error = peer.outcomes(1).expect_err("not understood");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let outcomes = peer.done(&[namespaces()], b"");
    let names = vec!["frames".into()];
    assert_eq!(outcomes, [Outcome::Page { names, next: None }], "the connection goes on");
}

#[test]
fn a_handle_of_nobody_is_stale() {
    let scene = Scene::new();
    let object = scene.client.open(&key("mine"), &Open::create_new()).expect("open");
    let mut peer = Peer::greeted(&scene.endpoint);
    for handle in [0, 1, 2, u64::MAX] {
        for what in [OnHandle::Stat, OnHandle::Close, OnHandle::Append { data_bytes: 1 }] {
            let payload: &[u8] = if matches!(what, OnHandle::Append { .. }) { b"x" } else { b"" };
            let outcomes = peer.done(&[Operation::On { handle, what }], payload);
            let [Outcome::Failed(failure)] = &outcomes[..] else { panic!("{outcomes:?}") };
            assert_eq!(failure.clone().into_error().kind(), ErrorKind::Stale);
        }
    }
    assert_eq!(object.stat().expect("of another session").size_bytes, 0);
}
