// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests of clients to the metadata of a file system, and what says over which servers it lies.

use std::sync::Arc;

use terrace_backends::kv::Memory;
use terrace_core::{Kv, KvExt, SystemClock};
use terrace_fs::{
    FileClock, Metadata, Over, ROOT, Reply, Request, Session, Tree, TreeOptions, answer, belonging,
    mark, read_answer, recorded_stores,
};

use crate::input::Input;
use crate::records::with_checksum;

/// Most requests of one input.
const REQUESTS_MAX: usize = 64;

/// Each request is answered or refused, and the answer is one; the names that are there afterwards
/// lead to what they say.
pub(crate) fn requests(input: &[u8]) -> bool {
    let kv = Arc::new(Memory::default());
    let clock = SystemClock::default();
    Tree::create(&*kv, &TreeOptions::default(), &clock, &[7; 32]).expect("it is empty");
    let tree = Tree::open(kv, FileClock::following(Arc::new(clock))).expect("it was just made");
    let session = Session::new(&tree);
    let mut input = Input::new(input);
    let mut is_taken = false;
    for _ in 0..REQUESTS_MAX {
        let length = input.choice(256);
        let request = input.take(length);
        if request.is_empty() {
            break;
        }
        let Ok(bytes) = answer(&session, request) else { continue };
        match read_answer(&bytes) {
            Ok(_) => is_taken = true,
            Err(failure) => assert_ne!(failure.errno(), rustix::io::Errno::IO, "{failure}"),
        }
    }
    let list = Request::List { directory: ROOT, after: 0, max: u32::MAX, with_nodes: true };
    let Ok(Reply::Listing(entries)) = session.call(&list) else { panic!("the root is there") };
    for entry in entries {
        let lookup = Request::Lookup { directory: ROOT, name: &entry.name };
        let Ok(Reply::Node(node)) = session.call(&lookup) else { panic!("{entry:?}") };
        assert_eq!((node.number, node.kind), (entry.number, entry.kind));
    }
    is_taken
}

/// The record of the servers, or the mark of one of them, as the first byte chooses, is refused, or is
/// written again as the same bytes.
pub(crate) fn servers(input: &[u8]) -> bool {
    let mut input = Input::new(input);
    let is_record = input.choice(2) == 0;
    let bytes = with_checksum(input.rest());
    let (kv, other) = (Memory::default(), Memory::default());
    let key: &[u8] = if is_record { b"v" } else { b"b" };
    kv.put(key, &bytes).expect("memory takes it");
    let refused = match is_record {
        true => recorded_stores(&kv).map(|stores| {
            let stores = stores.expect("it was put there");
            let (options, clock) = (TreeOptions::default(), SystemClock::default());
            let over = Over { stores: &stores, seen: None };
            Tree::create_over(&other, &options, &over, &clock, &[7; 32]).expect("it is empty");
        }),
        false => belonging(&kv).map(|found| {
            let found = found.expect("it was put there");
            assert_eq!(mark(&other, &found, None), Ok(true));
        }),
    };
    match refused {
        Ok(()) => {
            assert_eq!(other.get(key).expect("readable"), Some(bytes), "two ways to write one");
            true
        }
        Err(failure) => {
            assert_eq!(failure.errno(), rustix::io::Errno::IO);
            assert!(failure.text().is_some(), "no reason");
            false
        }
    }
}
