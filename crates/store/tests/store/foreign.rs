// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes over the control socket may be anything: nobody else notices.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use terrace_core::Random;
use terrace_store::{Backend, BackendExt, ErrorKind, ObjectExt, Open, OpenOptions, Store};

use crate::scene::{Scene, key};

/// Far longer than any answer takes, so that a bug is no endless wait.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

fn connect(scene: &Scene) -> UnixStream {
    let stream = UnixStream::connect(scene.store_directory().join("control.sock")).expect("served");
    stream.set_read_timeout(Some(ANSWER_TIME_MAX)).expect("a valid time");
    stream
}

fn frame(header: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((header.len() as u32).to_le_bytes());
    bytes.extend((payload.len() as u32).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(payload);
    bytes
}

/// The header of the next reply; `None` at the end.
fn reply(stream: &mut UnixStream) -> Option<String> {
    let mut prefix = [0; 8];
    stream.read_exact(&mut prefix).ok()?;
    let length = |at: usize| u32::from_le_bytes(prefix[at..at + 4].try_into().expect("four bytes"));
    let mut header = vec![0; length(0) as usize];
    stream.read_exact(&mut header).expect("a header follows");
    let mut payload = vec![0; length(4) as usize];
    stream.read_exact(&mut payload).expect("a payload follows");
    Some(String::from_utf8(header).expect("JSON is UTF-8"))
}

const HELLO: &str = r#"{"id":1,"verb":"hello","version":2,"session":77,"access":"write"}"#;

#[test]
fn garbage_ends_its_connection_with_an_error_and_no_other() {
    let scene = Scene::new();
    let store = scene.open();
    let attached = scene.open();
    assert!(attached.is_attached());
    let object = attached.open(&key("a/x"), &Open::create()).expect("room");
    for garbage in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 8],
        frame("{}", b""),
        frame("[1]", b""),
        frame("", b""),
        frame(r#"{"id":1}"#, b""),
        frame(r#"{"id":1,"verb":"tiers"} "#, b"more than it says"),
        frame(r#"{"id":1,"body_bytes":99999999999,"verb":"tiers"}"#, b""),
        frame(r#"{"id":1,"verb":"make-coffee"}"#, b""),
        frame(r#"{"id":1,"verb":"stat","key":"no-slash"}"#, b""),
        frame(r#"{"id":1,"verb":"read-at","handle":-1,"offset_bytes":0,"length_bytes":1}"#, b""),
    ] {
        let mut stream = connect(&scene);
        stream.write_all(&frame(HELLO, b"")).expect("it listens");
        assert!(reply(&mut stream).expect("welcome").contains("\"ok\""));
        stream.write_all(&garbage).expect("it listens");
        let answer = reply(&mut stream).expect("it says why");
        assert!(answer.contains(r#""id":0"#) && answer.contains("invalid"), "{answer}");
        assert_eq!(reply(&mut stream), None);
    }
    object.write(0, b"unimpressed").expect("room");
    assert_eq!(store.read_all(&key("a/x")).expect("written"), b"unimpressed");
}

#[test]
fn a_connection_begins_with_hello_in_the_right_version() {
    let scene = Scene::new();
    let _store = scene.open();
    let first = |header: &str| {
        let mut stream = connect(&scene);
        stream.write_all(&frame(header, b"")).expect("it listens");
        let answer = reply(&mut stream).expect("it says why");
        assert_eq!(reply(&mut stream), None);
        answer
    };
    assert!(first(r#"{"id":1,"verb":"tiers"}"#).contains("hello"));
    let answer = first(&HELLO.replace("\"version\":2", "\"version\":1"));
    assert!(answer.contains("unsupported") && answer.contains("another version"), "{answer}");
}

#[test]
fn wrong_requests_are_errors_and_the_connection_goes_on() {
    let scene = Scene::new();
    let _store = scene.open();
    let mut stream = connect(&scene);
    stream.write_all(&frame(HELLO, b"")).expect("it listens");
    reply(&mut stream).expect("welcome");
    for (header, kind) in [
        (HELLO, "invalid"),
        (r#"{"id":1,"verb":"read-at","handle":9,"offset_bytes":0,"length_bytes":1}"#, "stale"),
        (r#"{"id":1,"verb":"close-handle","handle":9}"#, "stale"),
        (
            r#"{"id":1,"verb":"kv-put","namespace":"n","key_bytes":5,"persistency":"none"}"#,
            "invalid",
        ),
        (
            r#"{"id":1,"verb":"execute","semantics":"temporary","operations":[{"operation":"create",
               "key":"a/b","data_bytes":18446744073709551615,"temperature":"hot"}]}"#,
            "invalid",
        ),
        (
            r#"{"id":1,"verb":"execute","semantics":"temporary","operations":[{"operation":"read",
               "key":"a/b","offset_bytes":0,"length_bytes":18446744073709551615}]}"#,
            "invalid",
        ),
        (r#"{"id":1,"verb":"stat","key":"a/none"}"#, "not-found"),
    ] {
        stream.write_all(&frame(header, b"")).expect("it listens");
        let answer = reply(&mut stream).expect("the connection goes on");
        let expected = format!(r#"{{"id":1,"error":{{"kind":"{kind}""#);
        assert!(answer.starts_with(&expected), "{answer}");
    }
}

/// Damaged and random requests against a running owner, which then still is in order.
#[test]
fn ten_thousand_damaged_requests_do_no_harm() {
    let scene = Scene::new();
    let store = scene.open();
    store.write_all(&key("a/x"), b"hello").expect("room");
    let requests = [
        r#"{"id":2,"verb":"open","key":"a/x","create":"never","access":"read","size_hint_bytes":null,"semantics":"default","temperature":"unknown"}"#,
        r#"{"id":3,"verb":"read-at","handle":1,"offset_bytes":0,"length_bytes":5}"#,
        r#"{"id":4,"verb":"list","namespace":"a","prefix":"","max":10}"#,
        r#"{"id":5,"verb":"kv-scan","namespace":"a","prefix_bytes":0,"has_after":false,"max":10}"#,
        r#"{"id":6,"verb":"explain","key":"a/x"}"#,
        r#"{"id":7,"verb":"wait-idle","timeout_ns":5}"#,
    ];
    let mut random = Random::new(20_261_121);
    let greeted = || {
        let mut stream = connect(&scene);
        stream.write_all(&frame(HELLO, b"")).expect("it listens");
        reply(&mut stream).expect("welcome");
        stream
    };
    let mut stream = greeted();
    let mut refused = 0;
    for _ in 0..10_000 {
        let mut bytes = frame(requests[random.below(6) as usize], b"");
        for _ in 0..random.below(3) {
            // The lengths stay, so that the owner never waits for more.
            let at = 8 + random.below(bytes.len() as u64 - 8) as usize;
            bytes[at] = match random.chance(0.5) {
                true => b"0123456789\"{}[],:ax"[random.below(18) as usize],
                false => random.next_u64() as u8,
            };
        }
        stream.write_all(&bytes).expect("it listens");
        let answer = reply(&mut stream).expect("everything is answered");
        if answer.starts_with(r#"{"id":0"#) {
            refused += 1;
            stream = greeted();
        }
    }
    assert!((1000..9000).contains(&refused), "{refused} of 10000 were no requests");
    drop(stream);
    assert_eq!(store.read_all(&key("a/x")).expect("unharmed"), b"hello");
    assert_eq!(store.check(true, &mut |_, _| {}).expect("healthy").problems, []);
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
fn a_handle_of_an_earlier_owner_is_not_one_of_the_next() {
    let scene = Scene::new();
    let store = scene.open();
    let attached = scene.open();
    for name in ["a/x", "a/y"] {
        attached.write_all(&key(name), b"hello").expect("room");
    }
    let old = attached.open(&key("a/x"), &Open::write()).expect("it is there");
    store.close().expect("it closes");
    drop(store);
    let store = scene.open();
    let next = scene.open();
    assert!(!store.is_attached() && next.is_attached());
    let _new = next.open(&key("a/y"), &Open::write()).expect("it is there");
    for error in [old.write(0, b"!!!").expect_err("gone"), attached.sync().expect_err("gone")] {
        assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{}", error.chain());
        assert!(error.chain().contains("open it again"), "{}", error.chain());
    }
    for name in ["a/x", "a/y"] {
        assert_eq!(store.read_all(&key(name)).expect("kept"), b"hello");
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
    assert_eq!(store.check(true, &mut |_, _| {}).expect("healthy").problems, []);
    assert!(scene.open().is_attached(), "it is served anew");
}
