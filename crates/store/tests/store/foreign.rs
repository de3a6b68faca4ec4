// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes over the control socket may be anything: nobody else notices.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use terrace_core::Random;
use terrace_store::{Access, Backend, BackendExt, ErrorKind, ObjectExt, Open, OpenOptions, Store};
use terrace_wire::{
    Failure, FrameReader, HEAD_BYTES_MAX, Hello, Kind, NONCE_BYTES, Next, PROOF_BYTES, Proof,
    VERSION, VERSION_MIN, small_frame,
};

use crate::scene::{Scene, key};

/// Far longer than any answer takes, so that a bug is no endless wait.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// Somebody who connects to the control socket and says what a test wants.
struct Peer {
    stream: UnixStream,
    reader: FrameReader<UnixStream>,
}

impl Peer {
    fn connect(scene: &Scene) -> Self {
        let socket = scene.store_directory().join("control.sock");
        let stream = UnixStream::connect(socket).expect("served");
        stream.set_read_timeout(Some(ANSWER_TIME_MAX)).expect("a valid time");
        let reader = FrameReader::new(stream.try_clone().expect("descriptors"));
        Self { stream, reader }
    }

    fn greeted(scene: &Scene) -> Self {
        let mut peer = Self::connect(scene);
        peer.say(Kind::Hello, 0, &hello(VERSION_MIN, VERSION));
        assert_eq!(peer.hear().expect("a challenge").0, Kind::Challenge);
        let proof = Proof { proof: [0; PROOF_BYTES], session: 77, access: Access::Write };
        peer.say(Kind::Proof, 0, &proof.to_head());
        assert_eq!(peer.hear().expect("a welcome").0, Kind::Welcome);
        peer
    }

    fn say(&mut self, kind: Kind, id: u64, head: &[u8]) {
        self.stream.write_all(&small_frame(kind, id, head)).expect("it listens");
    }

    fn call(&mut self, id: u64, json: &[u8]) {
        self.say(Kind::Call, id, &[&[0; 4], json].concat());
    }

    /// The next frame: what it is, of which request, and its head; `None` at the end.
    fn hear(&mut self) -> Option<(Kind, u64, Vec<u8>)> {
        match self.reader.next(HEAD_BYTES_MAX).expect("whole frames") {
            Next::Frame(start) => {
                let mut payload = Vec::new();
                self.reader.payload_behind(&start.header, &mut payload).expect("it follows");
                Some((start.header.kind, start.header.id, start.head))
            }
            Next::Idle => panic!("it does not answer"),
            Next::End => None,
        }
    }

    /// Why the request of this number failed; of the connection where it is 0.
    #[track_caller]
    fn refusal(&mut self, expected: u64) -> terrace_store::Error {
        let (kind, id, head) = self.hear().expect("it says why");
        assert_eq!((kind, id), (Kind::Failed, expected));
        Failure::from_head(&head).expect("legal").into_error()
    }
}

fn hello(version_min: u16, version_max: u16) -> Vec<u8> {
    Hello { version_min, version_max, nonce: [7; NONCE_BYTES] }.to_head()
}

#[test]
fn garbage_ends_its_connection_with_an_error_and_no_other() {
    let scene = Scene::new();
    let store = scene.open();
    let attached = scene.open();
    assert!(attached.is_attached());
    let object = attached.open(&key("a/x"), &Open::create()).expect("room");
    for garbage in [
        format!("{:<60}", "GET / HTTP/1.1\r\n\r\n").into_bytes(),
        vec![0xff; 64],
        [&b"\x26\0\0\0\0\0\0\0"[..], br#"{"id":1,"verb":"hello","version":2,"session":77}"#]
            .concat(),
        small_frame(Kind::Answer, 1, b""),
        small_frame(Kind::Call, 1, b"\0"),
        small_frame(Kind::Request, 1, b"none"),
    ] {
        let mut peer = Peer::greeted(&scene);
        peer.stream.write_all(&garbage).expect("it listens");
        let kind = peer.refusal(0).kind();
        assert!(matches!(kind, ErrorKind::Invalid | ErrorKind::Corrupt), "{kind:?}");
        assert_eq!(peer.hear(), None);
    }
    object.write(0, b"unimpressed").expect("room");
    assert_eq!(store.read_all(&key("a/x")).expect("written"), b"unimpressed");
}

#[test]
fn a_connection_begins_with_hello_in_the_right_version() {
    let scene = Scene::new();
    let _store = scene.open();
    let mut peer = Peer::connect(&scene);
    peer.call(1, br#"{"verb":"tiers"}"#);
    assert_eq!(peer.refusal(0).kind(), ErrorKind::Invalid);
    assert_eq!(peer.hear(), None);
    let mut peer = Peer::connect(&scene);
    peer.say(Kind::Hello, 0, &hello(VERSION + 1, VERSION + 2));
    let refused = peer.refusal(0);
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains("version"), "{refused}");
    assert_eq!(peer.hear(), None);
}

/// What owners say that speak another protocol: an older one, and a later one.
#[test]
fn an_owner_of_another_version_is_named_as_such() {
    let older = [
        &b"\x38\0\0\0\0\0\0\0"[..],
        br#"{"id":0,"error":{"kind":"invalid","message":"cannot .."}}"#,
    ];
    let later = Failure::of(&terrace_store::Error::new(ErrorKind::Unsupported, "use the server"));
    for answer in [older.concat(), small_frame(Kind::Failed, 0, &later.to_head())] {
        let scene = Scene::new();
        let options = OpenOptions { serve: false, ..OpenOptions::default() };
        let _owner = Store::open_with(&scene.address(), options).expect("healthy");
        let listener = UnixListener::bind(scene.store_directory().join("control.sock"));
        let listener = listener.expect("nobody listens");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("somebody comes");
                stream.read_exact(&mut [0; 48]).expect("a frame begins");
                stream.write_all(&answer).expect("it listens");
                // Until it has heard.
                let _ = stream.read_to_end(&mut Vec::new());
            });
            let refused = Store::open(&scene.address()).err().expect("not understood");
            assert_eq!(refused.kind(), ErrorKind::Unsupported, "{}", refused.chain());
            assert!(refused.to_string().contains("another version"), "{refused}");
        });
    }
}

#[test]
fn wrong_calls_are_errors_and_the_connection_goes_on() {
    let scene = Scene::new();
    let _store = scene.open();
    let mut peer = Peer::greeted(&scene);
    for (number, (json, kind)) in [
        ("", ErrorKind::Invalid),
        ("{}", ErrorKind::Invalid),
        ("[1]", ErrorKind::Invalid),
        (r#"{"verb":"make-coffee"}"#, ErrorKind::Invalid),
        (r#"{"verb":"explain","key":"no-slash"}"#, ErrorKind::Invalid),
        (r#"{"verb":"wait-briefly","ticket":-1,"timeout_ns":1}"#, ErrorKind::Invalid),
        (r#"{"verb":"explain","key":"a/none"}"#, ErrorKind::NotFound),
        (r#"{"verb":"migrate","key":"a/none","to":"tape","kind":"move","priority":0,"reason":""}"#,
            ErrorKind::NotFound),
    ].into_iter().enumerate() {
        let id = number as u64 + 1;
        peer.call(id, json.as_bytes());
        assert_eq!(peer.refusal(id).kind(), kind, "{json}");
    }
}

/// Damaged and random calls to a running owner, which then still is in order.
#[test]
fn ten_thousand_damaged_calls_do_no_harm() {
    let scene = Scene::new();
    let store = scene.open();
    store.write_all(&key("a/x"), b"hello").expect("room");
    let calls = [
        r#"{"verb":"tiers"}"#,
        r#"{"verb":"policy"}"#,
        r#"{"verb":"migrate","key":"a/x","to":"slow","kind":"copy","priority":1,"reason":"r"}"#,
        r#"{"verb":"set-calls","after_events":1000000,"every_ns":null}"#,
        r#"{"verb":"explain","key":"a/x"}"#,
        r#"{"verb":"wait-idle-briefly","timeout_ns":5}"#,
    ];
    let mut random = Random::new(20_261_121);
    let mut peer = Peer::greeted(&scene);
    let mut refused = 0;
    for id in 1..=10_000 {
        let mut bytes = calls[random.below(6) as usize].as_bytes().to_vec();
        for _ in 0..random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = match random.chance(0.5) {
                true => b"0123456789\"{}[],:ax"[random.below(18) as usize],
                false => random.next_u64() as u8,
            };
        }
        peer.call(id, &bytes);
        let (kind, of, _) = peer.hear().expect("everything is answered");
        assert_eq!(of, id);
        refused += u32::from(kind == Kind::Failed);
    }
    assert!((1000..9000).contains(&refused), "{refused} of 10000 were no calls");
    drop(peer);
    assert!(store.admin().wait_idle(ANSWER_TIME_MAX).expect("ours"));
    assert_eq!(store.read_all(&key("a/x")).expect("unharmed"), b"hello");
    assert_eq!(store.admin().check(true, &mut |_, _| true).expect("healthy").problems, []);
}

#[test]
fn an_old_handle_never_reaches_the_new_object_of_its_name() {
    let scene = Scene::new();
    let store = scene.open();
    let attached = scene.open();
    attached.write_all(&key("a/x"), b"old").expect("room");
    let old = attached.open(&key("a/x"), &Open::write()).expect("it is there");
    attached.delete(&key("a/x")).expect("it is there");
    attached.write_all(&key("a/x"), b"new").expect("room");
    let written = old.write(0, b"!!!");
    if let Err(error) = &written {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{}", error.chain());
    }
    drop(old);
    assert_eq!(store.read_all(&key("a/x")).expect("it is there"), b"new");
}

#[test]
fn handles_follow_the_store_to_its_next_owner_and_stay_the_same_objects() {
    let scene = Scene::new();
    let store = scene.open();
    let attached = scene.open();
    for name in ["a/x", "a/y", "a/z"] {
        attached.write_all(&key(name), b"hello").expect("room");
    }
    let open = |name| attached.open(&key(name), &Open::write()).expect("it is there");
    let (kept, replaced) = (open("a/x"), open("a/y"));
    store.close().expect("it closes");
    drop(store);
    let error = kept.write(0, b"!!!").expect_err("nobody owns it");
    assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{}", error.chain());

    let store = scene.open();
    let next = scene.open();
    assert!(!store.is_attached() && next.is_attached());
    // Handles of the next owner begin with other objects.
    let _new = next.open(&key("a/z"), &Open::write()).expect("it is there");
    next.delete(&key("a/y")).expect("it is there");
    next.write_all(&key("a/y"), b"other").expect("room");
    kept.write(0, b"!!!").expect("it is the same object");
    let error = replaced.write(0, b"!!!").expect_err("another object has its name");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{}", error.chain());
    attached.sync().expect("as any other");
    for (name, content) in [("a/x", b"!!!lo"), ("a/y", b"other"), ("a/z", b"hello")] {
        assert_eq!(store.read_all(&key(name)).expect("kept"), content, "{name}");
    }
}

#[test]
fn an_owner_that_serves_nobody_lets_the_next_one_in_when_it_ends() {
    let scene = Scene::new();
    let options = OpenOptions { serve: false, ..OpenOptions::default() };
    let store = Store::open_with(&scene.address(), options).expect("healthy");
    assert!(!scene.store_directory().join("control.sock").exists());
    let address = scene.address();
    std::thread::scope(|scope| {
        let next = scope.spawn(|| Store::open(&address).map(|store| store.is_attached()));
        store.write_all(&key("a/x"), b"hello").expect("room");
        drop(store);
        let is_attached = next.join().expect("it does not panic").expect("it waits");
        assert!(!is_attached);
    });
}

/// Set for the process that the next test starts.
const CHILD_STORE: &str = "TERRACE_TEST_CHILD_STORE";

/// The other process of the next test; nothing without it.
#[test]
fn child_owns_a_store_until_it_is_killed() {
    let Ok(address) = std::env::var(CHILD_STORE) else { return };
    let store = Store::open(&address).expect("healthy");
    store.write_all(&key("a/x"), b"of the child").expect("room");
    println!("ready");
    // Ends with the pipe at the latest, should the parent die.
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn another_process_is_attached_to_and_followed_when_it_is_killed() {
    let scene = Scene::new();
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "foreign::child_owns_a_store_until_it_is_killed", "--nocapture"])
        .env(CHILD_STORE, scene.address())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut output = child.stdout.take().expect("piped");
    let mut printed = Vec::new();
    while !printed.ends_with(b"ready\n") {
        let mut byte = [0];
        output.read_exact(&mut byte).expect("it gets ready");
        printed.push(byte[0]);
    }
    let attached = scene.open();
    assert!(attached.is_attached());
    assert_eq!(attached.read_all(&key("a/x")).expect("written"), b"of the child");
    attached.write_all(&key("a/y"), b"of the parent").expect("room");
    let own = OpenOptions { attach: false, ..OpenOptions::default() };
    let busy = Store::open_with(&scene.address(), own).err().expect("owned");
    assert_eq!(busy.kind(), ErrorKind::Busy);
    assert!(busy.to_string().contains(&format!("process={}", child.id())), "{busy}");

    child.kill().expect("it runs");
    child.wait().expect("it is ours");
    let error = attached.stat(&key("a/x")).expect_err("gone");
    assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{}", error.chain());
    // The socket that it left is no hindrance.
    assert!(scene.store_directory().join("control.sock").exists());
    let store = scene.open();
    assert!(!store.is_attached());
    assert_eq!(store.read_all(&key("a/x")).expect("kept"), b"of the child");
    assert_eq!(store.read_all(&key("a/y")).expect("kept"), b"of the parent");
    assert_eq!(store.admin().check(true, &mut |_, _| true).expect("healthy").problems, []);
    assert!(scene.open().is_attached(), "it is served anew");
}
