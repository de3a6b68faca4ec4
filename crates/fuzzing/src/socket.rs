// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes through the control socket.

use std::time::Duration;

use terrace_core::{Access, ErrorKind, Result};
use terrace_store::fuzzing::{
    Desk, Message, receive_reply, receive_request, send_reply, send_request,
};
use terrace_store::{OpenOptions, Store};

/// Messages of one input; more show nothing new.
const MESSAGES_MAX: usize = 64;

/// A store in memory whose policy is called only when it is asked to be: the same input does the
/// same each time.
const SETTINGS: &str = "[store]\npersistency = \"none\"\nmove_threads = 1\n\
     [[tier]]\nname = \"fast\"\nbackend = \"memory\"\ncapacity = \"1MB\"\n\
     [[tier]]\nname = \"slow\"\nbackend = \"memory\"\ncapacity = \"8MB\"\n\
     [catalog]\nengine = \"memory\"\n\
     [policy]\nname = \"lru\"\nafter_events = 1000000000\nevery = \"1000h\"\n";

/// A stream of requests: what is understood is sent and understood again as the same.
pub(crate) fn request(input: &[u8]) -> bool {
    stream(input, receive_request, send_request)
}

/// A stream of replies, the same.
pub(crate) fn reply(input: &[u8]) -> bool {
    stream(input, receive_reply, send_reply)
}

fn stream(
    mut input: &[u8],
    receive: fn(&mut &[u8]) -> Result<Option<Message>>,
    send: fn(&Message) -> Result<Vec<u8>>,
) -> bool {
    for number in 0..MESSAGES_MAX {
        match receive(&mut input) {
            Ok(None) => {
                assert!(input.is_empty());
                return number > 0;
            }
            Ok(Some(message)) => {
                // Only a header at its bound may be longer when it is written in our way.
                let Ok(frames) = send(&message) else {
                    assert!(message.content.len() > 1 << 19, "it was received and cannot be sent");
                    return true;
                };
                let again = receive(&mut &*frames).expect("own frames").expect("one message");
                assert_eq!(again, message);
            }
            Err(error) => {
                let is_cut = matches!(error.kind(), ErrorKind::Io | ErrorKind::Unreachable { .. });
                assert!(is_cut || error.kind() == ErrorKind::Invalid, "{}", error.chain());
                return number > 0;
            }
        }
    }
    true
}

/// Requests to a store: it answers, or says why not, and is as it should be afterwards.
pub(crate) fn session(input: &[u8]) -> bool {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Tiers and catalog in memory need no directories, so that nothing is synced for each input.
    std::fs::write(directory.path().join("terrace.toml"), SETTINGS).expect("writable");
    let address = directory.path().display().to_string();
    let options = OpenOptions { attach: false, serve: false, ..OpenOptions::default() };
    let store = Store::open_with(&address, options).expect("it opens");
    let desk = Desk::new(&store, Access::Write);
    let reader = Desk::new(&store, Access::Read);
    let mut stream = input;
    let mut answers = 0;
    for number in 0..MESSAGES_MAX {
        let Ok(Some(request)) = receive_request(&mut stream) else { break };
        // Every fourth is one of somebody who may only read.
        let desk = if number % 4 == 3 { &reader } else { &desk };
        match desk.answer(&request) {
            Ok((json, _)) => {
                serde_json::from_slice::<serde_json::Value>(&json).expect("an answer is JSON");
                answers += 1;
            }
            Err(error) => assert!(error.to_string().starts_with("cannot "), "{error}"),
        }
    }
    assert!(store.wait_idle(Duration::from_secs(30)).expect("ours"), "a migration does not end");
    let report = store.check(true, &mut |_, _| {}).expect("it can be checked");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    store.close().expect("it closes");
    answers > 0
}
