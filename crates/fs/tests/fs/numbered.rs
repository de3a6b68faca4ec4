// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files whose makers name their numbers.

use std::sync::Arc;

use rustix::io::Errno;
use terrace_backends::kv::Memory;
use terrace_core::{Kv, SystemClock};
use terrace_fs::{
    Closed, FileClock, Kind, Left, Made, Metadata, Node, Place, ROOT, RenameHow, Reply, Request,
    Result, Session, Settled, Tree, TreeOptions, file_in,
};

/// A file system in memory, each time as it is opened anew.
struct Scene(Arc<dyn Kv>);

impl Scene {
    fn new() -> Self {
        let kv = Arc::new(Memory::default());
        let clock = SystemClock::default();
        Tree::create(&*kv, &TreeOptions::default(), &clock, &[7; 32]).expect("it is empty");
        Self(kv)
    }

    fn tree(&self) -> Arc<Tree> {
        let clock = FileClock::following(Arc::new(SystemClock::default()));
        Tree::open(Arc::clone(&self.0), clock).expect("it was made")
    }
}

const FILE: Made<'static> = Made {
    kind: Kind::File,
    permissions: 0o664,
    umask: 0o22,
    user: 5,
    group: 6,
    device: 0,
    target: b"",
    is_opened: true,
    object: None,
};

fn numbers(session: &Session, count: u32) -> Vec<u64> {
    match session.call(&Request::Numbers { count }) {
        Ok(Reply::Numbers(numbers)) => numbers,
        other => panic!("{other:?}"),
    }
}

fn ask(session: &Session, name: &[u8], number: u64, content: &[u8]) -> Result<(Node, Node)> {
    let (directory, made) = (ROOT, FILE);
    match session.call(&Request::MakeNumbered { directory, name, made, number, content })? {
        Reply::Made { node, directory, .. } => Ok((node, directory)),
        other => panic!("{other:?}"),
    }
}

fn errno<T>(asked: Result<T>) -> Option<Errno> {
    asked.err().map(|failure| failure.errno())
}

fn content(session: &Session, number: u64) -> Vec<u8> {
    match session.call(&Request::Content { number }) {
        Ok(Reply::Opened { content, .. }) => content,
        other => panic!("{other:?}"),
    }
}

fn close(session: &Session, number: u64, id: u64) -> Result<Reply> {
    let closed = vec![Closed { number, is_for_writing: true, left: Left::Unknown }];
    session.call(&Request::Close { closed, read: Vec::new(), id, acknowledged: id })
}

#[test]
fn a_file_is_made_as_its_maker_was_told_it_would_be_with_its_first_bytes() {
    let scene = Scene::new();
    let session = Session::new(&scene.tree());
    let Ok(Reply::Node(root)) = session.call(&Request::Node { number: ROOT }) else { panic!() };
    let given = numbers(&session, 3);
    assert_eq!(given.len(), 3);
    let told = file_in(&root, given[1], &FILE).expect("nothing has to be looked at");
    let (made, directory) = ask(&session, b"name", given[1], b"bytes").expect("it is new");
    assert_eq!((directory.size, made.size, made.allocated_bytes), (1, 5, 5));
    let untimed = |node: &Node| Node {
        size: 0,
        allocated_bytes: 0,
        accessed: told.accessed,
        modified: told.modified,
        changed: told.changed,
        created: told.created,
        ..node.clone()
    };
    assert_eq!(untimed(&made), told);
    assert!(told.changed <= made.changed, "nothing is told of what is to come");
    assert_eq!(content(&session, given[1]), b"bytes");
    // One that nobody has written, and one that has more than is kept with the metadata.
    let (empty, _) = ask(&session, b"empty", given[0], b"").expect("it is new");
    assert_eq!((empty.size, empty.allocated_bytes), (0, 0));
    let (large, _) = ask(&session, b"large", given[2], &[7; 5000]).expect("it is new");
    assert_eq!(large.size, 0, "who has the rest has all of it");
    for (id, number) in given.into_iter().enumerate() {
        close(&session, number, id as u64 + 1).expect("it is open");
    }
}

#[test]
fn no_other_number_names_a_file() {
    let scene = Scene::new();
    let session = Session::new(&scene.tree());
    let given = numbers(&session, 3);
    ask(&session, b"name", given[0], b"").expect("it is new");
    let invalid = Some(Errno::INVAL);
    let made = Made { kind: Kind::Directory, permissions: 0o755, ..Made::default() };
    let make = Request::Make { directory: ROOT, name: b"directory", made };
    let Ok(Reply::Made { node, .. }) = session.call(&make) else { panic!() };
    assert_eq!(errno(ask(&session, b"other", node.number, b"")), invalid, "it is a directory's");
    assert_eq!(
        errno(ask(&session, b"other", node.number + 1, b"")),
        invalid,
        "nobody was given it"
    );
    assert_eq!(errno(ask(&session, b"other", u64::MAX, b"")), invalid);
    assert_eq!(errno(ask(&session, b"other", ROOT, b"")), invalid);
    assert_eq!(errno(ask(&session, b"", given[1], b"")), invalid, "it has no name");
    assert_eq!(errno(ask(&session, b"name", given[1], b"")), Some(Errno::EXIST));
    let as_made = |made: Made<'static>| {
        let (directory, name, number, content) = (ROOT, &b"other"[..], given[1], &b""[..]);
        errno(session.call(&Request::MakeNumbered { directory, name, made, number, content }))
    };
    assert_eq!(as_made(Made { kind: Kind::Directory, ..FILE }), invalid);
    assert_eq!(as_made(Made { is_opened: false, ..FILE }), invalid);
    // An object that is still to be deleted has its number.
    let Ok(Reply::Numbers(reserved)) = session.call(&Request::Reserve { count: 1 }) else {
        panic!()
    };
    assert_eq!(errno(ask(&session, b"other", reserved[0], b"")), invalid);
    ask(&session, b"other", given[1], b"").expect("it was given");
}

#[test]
fn what_is_asked_of_the_next_server_again_is_made_once() {
    let scene = Scene::new();
    let tree = scene.tree();
    let session = Session::new(&tree);
    let given = numbers(&session, 2);
    let (made, _) = ask(&session, b"name", given[0], b"bytes").expect("it is new");
    session.leave_open();
    drop((session, tree));
    // It ended before anybody heard of it; and before anything was asked of the other number.
    let session = Session::new(&scene.tree());
    let (again, directory) = ask(&session, b"name", given[0], b"bytes").expect("it is the same");
    assert_eq!((&again, directory.size), (&made, 1));
    ask(&session, b"other", given[1], b"").expect("it was given by the one before");
    // It is open, once.
    let remove = Request::Remove { directory: ROOT, name: b"name", is_directory: false };
    session.call(&remove).expect("it is there");
    assert_eq!(content(&session, made.number), b"bytes", "it is still open");
    close(&session, made.number, 1).expect("it is open");
    assert_eq!(errno(session.call(&Request::Node { number: made.number })), Some(Errno::STALE));
    assert_eq!(errno(close(&session, made.number, 2)), Some(Errno::BADF));
}

#[test]
fn who_asks_again_has_it_open_once() {
    let session = Session::new(&Scene::new().tree());
    let number = numbers(&session, 1)[0];
    let (made, _) = ask(&session, b"name", number, b"bytes").expect("it is new");
    assert_eq!(ask(&session, b"name", number, b"other").expect("it is the same").0, made);
    let remove = Request::Remove { directory: ROOT, name: b"name", is_directory: false };
    session.call(&remove).expect("it is there");
    close(&session, number, 1).expect("it is open");
    assert_eq!(errno(session.call(&Request::Node { number })), Some(Errno::STALE));
}

#[test]
fn what_others_did_to_a_file_since_it_was_made_holds_when_that_is_asked_again() {
    let scene = Scene::new();
    let tree = scene.tree();
    let session = Session::new(&tree);
    let given = numbers(&session, 2);
    for (number, name) in [(given[0], b"renamed"), (given[1], b"written")] {
        ask(&session, name, number, b"bytes").expect("it is new");
    }
    session.leave_open();
    drop((session, tree));
    let tree = scene.tree();
    let (one, other) = (Session::new(&tree), Session::new(&tree));
    let rename = Request::Rename {
        from_directory: ROOT,
        from: b"renamed",
        to_directory: ROOT,
        to: b"new",
        how: RenameHow::default(),
        user: 0,
        group: 0,
    };
    other.call(&rename).expect("it is there");
    let (number, content) = (given[1], &b"bytes"[..]);
    let move_out = Request::MoveOut { number, size: 5, content, object_modified_ns: 7 };
    let Ok(Reply::Node(_)) = other.call(&move_out) else { panic!() };
    let settled = Settled { size: 9, allocated_bytes: 9, modified_ns: 8 };
    other.call(&Request::Settle { number, settled }).expect("nobody writes to it");
    let (renamed, directory) = ask(&one, b"renamed", given[0], b"bytes").expect("it is the same");
    assert_eq!((renamed.number, directory.size), (given[0], 2));
    let lookup = Request::Lookup { directory: ROOT, name: b"renamed" };
    assert_eq!(errno(one.call(&lookup)), Some(Errno::NOENT), "it is made once");
    let (written, _) = ask(&one, b"written", given[1], b"bytes").expect("it is the same");
    assert_eq!((written.size, written.place), (9, Place::Object));
    assert!(written.is_written, "its length is that of its object from now on");
    for (id, number) in given.into_iter().enumerate() {
        close(&one, number, id as u64 + 1).expect("it is open");
    }
}

#[test]
fn what_a_directory_hands_down_by_lists_is_not_told_before() {
    let scene = Scene::new();
    let session = Session::new(&scene.tree());
    let Ok(Reply::Node(root)) = session.call(&Request::Node { number: ROOT }) else { panic!() };
    assert!(file_in(&Node { has_default_acl: true, ..root.clone() }, 7, &FILE).is_none());
    assert!(file_in(&Node { links: 0, ..root.clone() }, 7, &FILE).is_none(), "it is gone");
    assert!(file_in(&Node { kind: Kind::File, ..root.clone() }, 7, &FILE).is_none());
    let passes_on = Node { permissions: 0o2775, group: 77, ..root };
    assert_eq!(file_in(&passes_on, 7, &FILE).expect("it is a directory").group, 77);
}
