// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration for a small node, with a bound on memory that the kernel enforces.

use std::process::Command;
use std::time::Duration;

use terrace_core::{Backend, BackendExt, ErrorKind, Hint, Key, Op, Request, Semantics};
use terrace_store::{MoveKind, Store};

use crate::scene::{Held, Scene};

const SETTINGS: &str = include_str!("../../../../examples/small-node/terrace.toml");

/// As many as `TERRACE_OBJECTS` says, or a quick number.
const OBJECTS: usize = 5_000;

/// What one request carries.
const BATCH: usize = 1000;

/// Anonymous memory of the process, stacks of its threads included, as `docs/how-to/small-node.md`
/// promises it for so many objects, of the 4 GiB that such a node has.
const MEMORY_BYTES_MAX: u64 = 128 << 20;
const OBJECT_BYTES_MAX: u64 = 2 << 10;

fn key(number: usize) -> Key {
    Key::new("tiny", &format!("{}/{number}", number % 7)).expect("legal")
}

fn data(number: usize) -> Vec<u8> {
    format!("object {number} ").repeat(1 + number % 9).into_bytes()
}

fn batch(store: &Store, mut operations: Vec<Op<'_>>) {
    store.execute(&mut operations, &Semantics::default());
    for operation in &operations {
        if let Some(Err(error)) = &operation.outcome {
            panic!("{}", error.chain());
        }
    }
}

#[test]
fn a_small_node_keeps_its_bound_on_memory() {
    let count = std::env::var("TERRACE_OBJECTS");
    let count = count.map_or(OBJECTS, |text| text.parse().expect("a number"));
    let scene = Scene::empty();
    // A fast tier that most do not fit, so that they spill; and the policy is called often.
    let settings = SETTINGS
        .replace("\"/mnt/flash/terrace\"", "\"flash\"")
        .replace("\"/mnt/disk/terrace\"", "\"disk\"")
        .replace("\"100GB\"", "\"300kB\"")
        .replace("every = \"1s\"", "every = \"100ms\"");
    scene.file("small.toml", settings);
    scene.ok(["init", "store", "--settings", "small.toml"]);

    // Private writable memory; the kernel refuses more (setrlimit(2), RLIMIT_DATA).
    let limit_bytes = MEMORY_BYTES_MAX + count as u64 * OBJECT_BYTES_MAX;
    let mut limited = Command::new("sh");
    limited
        .args(["-c", r#"ulimit -d "$1"; exec "$0" hold"#, env!("CARGO_BIN_EXE_terrace")])
        .arg((limit_bytes >> 10).to_string())
        .current_dir(scene.path("."))
        .env("TERRACE_STORE", "store");
    let held = Held::start(limited);

    let store = Store::open(&scene.path("store").display().to_string()).expect("it is served");
    assert!(store.is_attached());
    let keys: Vec<_> = (0..count).map(key).collect();
    let contents: Vec<_> = (0..count).map(data).collect();
    for (keys, contents) in keys.chunks(BATCH).zip(contents.chunks(BATCH)) {
        let hint = Hint::default();
        let operations = keys.iter().zip(contents);
        let create = operations.map(|(key, data)| Op::new(Request::Create { key, data, hint }));
        batch(&store, create.collect());
    }
    for number in (0..count).step_by(count / 10) {
        for to in ["disk", "flash"] {
            // The policy moves things meanwhile: what counts is that it ends, before theirs.
            let tickets =
                match store.admin().migrate(&keys[number], to, MoveKind::Move, 1000, "test") {
                    Err(error) if error.kind() == ErrorKind::Busy => continue,
                    tickets => tickets.expect("queued"),
                };
            for ticket in tickets {
                let ended = store.admin().wait(ticket, Duration::from_secs(60)).expect("known");
                assert!(ended.is_some(), "it does not end");
            }
        }
    }
    let listed = store.list_all("tiny", "").expect("it can be listed");
    assert_eq!(listed.len(), count);
    for (keys, contents) in keys.chunks(BATCH).zip(contents.chunks(BATCH)) {
        let mut buffers: Vec<_> = contents.iter().map(|data| vec![0; data.len()]).collect();
        let operations = keys.iter().zip(&mut buffers);
        let read =
            operations.map(|(key, buffer)| Op::new(Request::Read { key, offset_bytes: 0, buffer }));
        batch(&store, read.collect());
        assert!(buffers == contents, "an object has other bytes");
    }
    let problems = store.admin().check(true, &mut |_, _| true).expect("checked").problems;
    assert!(problems.is_empty(), "{problems:?}");
    println!("{count} objects: {}", memory_of(held.process()));
    drop(store);
    held.stop();
}

/// What the kernel says of a process's memory.
fn memory_of(process: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let wanted = ["VmData", "RssAnon", "VmHWM", "Threads"];
    let lines = status.lines().filter(|line| wanted.iter().any(|name| line.starts_with(name)));
    lines.collect::<Vec<_>>().join(", ").replace('\t', " ")
}
