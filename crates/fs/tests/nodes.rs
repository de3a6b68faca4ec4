// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What nodes say of themselves.

use std::sync::Arc;

use terrace_backends::kv::Memory;
use terrace_core::SystemClock;
use terrace_fs::{
    Changes, FileClock, Kind, Made, Metadata, Node, ROOT, Reply, Request, Session, Tree,
    TreeOptions,
};

fn session() -> Session {
    let kv = Arc::new(Memory::default());
    let clock = SystemClock::default();
    Tree::create(&*kv, &TreeOptions::default(), &clock, &[7; 32]).expect("it is empty");
    Session::new(&Tree::open(kv, FileClock::new(Arc::new(clock))).expect("it was just made"))
}

fn make(session: &Session, name: &[u8], made: Made<'static>) -> Node {
    match session.call(&Request::Make { directory: ROOT, name, made }) {
        Ok(Reply::Made { node, .. }) => node,
        other => panic!("{other:?}"),
    }
}

fn changed(session: &Session, request: &Request<'_>) -> Node {
    match session.call(request) {
        Ok(Reply::Node(node)) => node,
        other => panic!("{other:?}"),
    }
}

#[test]
fn symbolic_links_have_all_permissions() {
    let session = session();
    for (name, permissions) in [(b"a", 0o600), (b"b", 0o7777), (b"c", 0)] {
        let made =
            Made { kind: Kind::Symlink, permissions, umask: 0o77, target: b"x", ..Made::default() };
        assert_eq!(make(&session, name, made).permissions, 0o777, "{permissions:o}");
    }
}

#[test]
fn a_hole_behind_the_bytes_of_a_small_file_takes_no_room() {
    let session = session();
    let made = Made { kind: Kind::File, permissions: 0o644, ..Made::default() };
    let number = make(&session, b"file", made).number;
    let cut = |size| {
        let changes = Changes { size: Some(size), ..Changes::default() };
        changed(&session, &Request::Change { number, changes })
    };
    let write = |data| {
        let (offset, at_end, clears_set_id) = (0, false, false);
        let request = Request::Write { number, offset, data, at_end, clears_set_id };
        changed(&session, &request)
    };
    let told = |node: Node| (node.size, node.allocated_bytes);
    assert_eq!(told(cut(4096)), (4096, 1));
    assert_eq!(told(write(&[7; 1000])), (4096, 1000));
    assert_eq!(told(cut(100)), (100, 100));
    assert_eq!(told(cut(4000)), (4000, 100));
    // Of more the tiers promise the room.
    let changes = Changes { size: Some(4097), ..Changes::default() };
    assert_eq!(session.call(&Request::Change { number, changes }), Ok(Reply::NotHere));
    assert_eq!(told(cut(0)), (0, 1));
}

#[test]
fn what_changes_together_has_one_time() {
    let session = session();
    let directory = || changed(&session, &Request::Node { number: ROOT });
    let made = Made { kind: Kind::File, permissions: 0o644, ..Made::default() };
    let mut last = directory();
    let number = make(&session, b"file", made).number;
    for name in [&b"other"[..], b"file"] {
        let next = directory();
        assert_eq!(next.modified, next.changed);
        assert!(last.changed < next.changed);
        last = next;
        let (directory, is_directory) = (ROOT, false);
        let request = match name {
            b"other" => Request::Link { number, directory, name },
            name => Request::Remove { directory, name, is_directory },
        };
        session.call(&request).expect("it can be");
    }
    let (offset, data, at_end, clears_set_id) = (0, &b"bytes"[..], false, false);
    let written =
        changed(&session, &Request::Write { number, offset, data, at_end, clears_set_id });
    assert_eq!(written.modified, written.changed);
    let changes = Changes { size: Some(1), ..Changes::default() };
    let cut = changed(&session, &Request::Change { number, changes });
    assert_eq!(cut.modified, cut.changed);
    assert!(written.changed < cut.changed);
}
