// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of the control plane.

use std::time::Duration;

use terrace_core::{Access, Backend, Key, ObjectExt, Open, Persistency, Semantics};
use terrace_store::fuzzing::Desk;
use terrace_store::{OpenOptions, Store};

/// Calls of one input; more show nothing new.
const CALLS_MAX: usize = 64;

/// A store in memory whose policy is called only when it is asked to be: the same input does the
/// same each time.
const SETTINGS: &str = "[store]\npersistency = \"none\"\nmove_threads = 1\n\
     [[tier]]\nname = \"fast\"\nbackend = \"memory\"\ncapacity = \"1MB\"\n\
     [[tier]]\nname = \"slow\"\nbackend = \"memory\"\ncapacity = \"8MB\"\n\
     [catalog]\nengine = \"memory\"\n\
     [policy]\nname = \"lru\"\nafter_events = 1000000000\nevery = \"1000h\"\n";

/// Calls to a store: it answers, or says why not, and is as it should be afterwards. Each is a line:
/// its JSON, a tab, and the bytes that belong to it.
pub(crate) fn calls(input: &[u8]) -> bool {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Tiers and catalog in memory need no directories, so that nothing is synced for each input.
    std::fs::write(directory.path().join("terrace.toml"), SETTINGS).expect("writable");
    let address = directory.path().display().to_string();
    let options = OpenOptions { attach: false, serve: false, ..OpenOptions::default() };
    let store = Store::open_with(&address, options).expect("it opens");
    for (name, size_bytes) in [("n/a", 6000), ("n/b", 3)] {
        let key = Key::parse(name).expect("legal");
        let how = Open::create().with_semantics(Semantics::at_level(Persistency::None));
        let object = store.open(&key, &how).expect("it can be made");
        object.write(0, &vec![b'x'; size_bytes]).expect("room");
    }
    let desk = Desk::new(&store, Access::Write);
    let reader = Desk::new(&store, Access::Read);
    let mut answers = 0;
    let lines = input.split(|byte| *byte == b'\n').take(CALLS_MAX);
    for (number, line) in lines.enumerate() {
        let mut parts = line.splitn(2, |byte| *byte == b'\t');
        let (json, body) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        // Every fourth request comes from a client that may only read.
        let desk = if number % 4 == 3 { &reader } else { &desk };
        match desk.answer(json, body) {
            Ok((json, _)) => {
                serde_json::from_slice::<serde_json::Value>(&json).expect("an answer is JSON");
                answers += 1;
            }
            Err(error) => assert!(error.to_string().starts_with("cannot "), "{error}"),
        }
    }
    assert!(
        store.admin().wait_idle(Duration::from_secs(30)).expect("ours"),
        "a migration does not end"
    );
    let report = store.admin().check(true, &mut |_, _| true).expect("it can be checked");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    store.close().expect("it closes");
    answers > 0
}
