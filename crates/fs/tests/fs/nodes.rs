// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What nodes say of themselves.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use terrace_backends::kv::Memory;
use terrace_core::{Clock, SystemClock};
use terrace_fs::{
    Changes, FileClock, Kind, Made, Metadata, Node, ROOT, RenameHow, Reply, Request, Session, Tree,
    TreeOptions, When,
};
use terrace_testkit::ManualClock;

const HOUR_NS: u64 = 3_600_000_000_000;

/// A clock that is an hour ahead until it is set back.
#[derive(Debug, Default)]
struct SetClock {
    clock: ManualClock,
    is_set_back: AtomicBool,
}

impl Clock for SetClock {
    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn wall_ns(&self) -> u64 {
        let ahead_ns = if self.is_set_back.load(Ordering::SeqCst) { 0 } else { HOUR_NS };
        self.clock.wall_ns() + ahead_ns
    }

    fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration);
    }
}

fn session() -> Session {
    session_by(FileClock::new(Arc::new(SystemClock::default())))
}

fn session_by(clock: FileClock) -> Session {
    let kv = Arc::new(Memory::default());
    let made_by = SystemClock::default();
    Tree::create(&*kv, &TreeOptions::default(), &made_by, &[7; 32]).expect("it is empty");
    Session::new(&Tree::open(kv, clock).expect("it was just made"))
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
    let made = Made { kind: Kind::File, permissions: 0o644, ..Made::default() };
    let last = Cell::new(changed(&session, &Request::Node { number: ROOT }));
    let check = |what| {
        let next = changed(&session, &Request::Node { number: ROOT });
        assert_eq!(next.modified, next.changed, "{what}");
        assert!(last.replace(next.clone()).changed < next.changed, "{what}");
    };
    let number = make(&session, b"file", made).number;
    check("made");
    let directory = ROOT;
    session.call(&Request::Link { number, directory, name: b"link" }).expect("it is new");
    check("linked");
    let how = RenameHow::default();
    let (from_directory, to_directory, user, group) = (ROOT, ROOT, 0, 0);
    let (from, to) = (&b"link"[..], &b"other"[..]);
    let rename = Request::Rename { from_directory, from, to_directory, to, how, user, group };
    session.call(&rename).expect("it is there");
    check("renamed");
    let remove = Request::Remove { directory, name: b"other", is_directory: false };
    session.call(&remove).expect("it is there");
    check("removed");
    let mut last = changed(&session, &Request::Node { number });
    let (offset, data, at_end, clears_set_id) = (0, &b"bytes"[..], false, false);
    let (size, modified) = (Some(1), Some(When::Now));
    let requests = [
        Request::Write { number, offset, data, at_end, clears_set_id },
        Request::Change { number, changes: Changes { size, ..Changes::default() } },
        Request::Change { number, changes: Changes { modified, ..Changes::default() } },
        Request::Change { number, changes: Changes { size, modified, ..Changes::default() } },
    ];
    for request in requests {
        let next = changed(&session, &request);
        assert_eq!(next.modified, next.changed, "{request:?}");
        assert!(last.changed < next.changed, "{request:?}");
        last = next;
    }
}

#[test]
fn times_of_modification_go_with_a_clock_that_was_set_back() {
    let clock = Arc::new(SetClock::default());
    let session = session_by(FileClock::following(Arc::<SetClock>::clone(&clock)));
    let made = Made { kind: Kind::File, permissions: 0o644, ..Made::default() };
    let number = make(&session, b"file", made).number;
    let before = changed(&session, &Request::Node { number });
    clock.is_set_back.store(true, Ordering::SeqCst);
    let (offset, data, at_end, clears_set_id) = (0, &b"bytes"[..], false, false);
    let write = Request::Write { number, offset, data, at_end, clears_set_id };
    let after = changed(&session, &write);
    assert!(after.modified < before.modified && after.changed > before.changed);
}
