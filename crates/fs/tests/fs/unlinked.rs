// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Inodes that lost their last name while a kernel holds them.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use terrace_backends::kv;
use terrace_backends::object::Memory;
use terrace_core::{Access, Backend, Clock, SystemClock};
use terrace_fs::{
    Changes, Closed, FileClock, Files, Kind, Left, Made, Metadata, Node, ROOT, ReadyObject,
    RenameHow, Reply, Request, Result, Session, SetHow, Tree, TreeOptions,
};
use terrace_testkit::ManualClock;

/// Longer than the metadata keep what was unlinked and not opened.
const EXPIRED: Duration = Duration::from_secs(301);

/// Nothing that is waited for takes nearly as long.
const WAIT_TIME_MAX: Duration = Duration::from_secs(30);

struct Scene {
    kv: Arc<kv::Memory>,
    clock: Arc<ManualClock>,
}

impl Scene {
    fn new() -> Self {
        let (kv, clock) = (Arc::new(kv::Memory::default()), Arc::new(ManualClock::new()));
        Tree::create(&*kv, &TreeOptions::default(), &*clock, &[7; 32]).expect("it is empty");
        Self { kv, clock }
    }

    fn tree(&self) -> Arc<Tree> {
        let clock = FileClock::following(Arc::<ManualClock>::clone(&self.clock));
        Tree::open(Arc::<kv::Memory>::clone(&self.kv), clock).expect("it was made")
    }
}

fn make(session: &Session, name: &[u8], made: Made<'_>) -> u64 {
    match session.call(&Request::Make { directory: ROOT, name, made }) {
        Ok(Reply::Made { node, .. }) => node.number,
        other => panic!("{other:?}"),
    }
}

fn made<'a>(kind: Kind) -> Made<'a> {
    let target: &[u8] = if kind == Kind::Symlink { b"aim" } else { b"" };
    Made { kind, permissions: 0o755, target, ..Made::default() }
}

/// Removes a name; whether there is an object to be deleted.
fn remove(session: &Session, name: &[u8], is_directory: bool) -> bool {
    match session.call(&Request::Remove { directory: ROOT, name, is_directory }) {
        Ok(Reply::Gone { has_garbage, .. }) => has_garbage,
        other => panic!("{other:?}"),
    }
}

fn open(session: &Session, number: u64) -> Result<Node> {
    match session.call(&Request::Open { number, is_for_writing: false })? {
        Reply::Opened { node, .. } => Ok(node),
        other => panic!("{other:?}"),
    }
}

/// Closes; the objects that are to be deleted then.
fn close(session: &Session, id: u64, number: u64) -> Vec<u64> {
    let closed = vec![Closed { number, is_for_writing: false, left: Left::Unknown }];
    match session.call(&Request::Close { closed, read: Vec::new(), id, acknowledged: id }) {
        Ok(Reply::Numbers(garbage)) => garbage,
        other => panic!("{other:?}"),
    }
}

fn node(session: &Session, number: u64) -> Result<Node> {
    match session.call(&Request::Node { number })? {
        Reply::Node(node) => Ok(node),
        other => panic!("{other:?}"),
    }
}

fn errno<T>(outcome: Result<T>) -> Option<Errno> {
    outcome.err().map(|failure| failure.errno())
}

fn garbage(session: &Session) -> Vec<u64> {
    match session.call(&Request::Garbage { max: 100 }) {
        Ok(Reply::Numbers(numbers)) => numbers,
        other => panic!("{other:?}"),
    }
}

const KINDS: [Kind; 5] = [Kind::File, Kind::Directory, Kind::Symlink, Kind::Fifo, Kind::Socket];

#[test]
fn a_session_opens_what_it_unlinked_and_keeps_it_until_it_closes() {
    for kind in KINDS {
        let scene = Scene::new();
        let tree = scene.tree();
        let (session, other) = (Session::new(&tree), Session::new(&tree));
        let number = make(&session, b"name", made(kind));
        let name = b"user.x";
        let set = Request::SetXattr {
            number,
            name,
            value: b"value",
            how: SetHow::Any,
            clears_set_group: false,
        };
        session.call(&set).expect("there is room");
        assert!(!remove(&session, b"name", kind.is_directory()));
        assert_eq!(
            errno(node(&session, number)),
            Some(Errno::STALE),
            "{kind:?}: nothing is stored"
        );
        // Another client finds out what a directory was that it has open.
        let expected = (!kind.is_directory()).then_some(Errno::STALE);
        assert_eq!(errno(open(&other, number)), expected, "{kind:?}");
        if kind.is_directory() {
            close(&other, 1, number);
        }
        assert_eq!(open(&session, number).expect("it just did").links, 0);
        let found = node(&other, number).expect("it is open");
        assert_eq!((found.kind, found.links), (kind, 0));
        let value = session.call(&Request::Xattr { number, name });
        assert_eq!(value, Ok(Reply::Bytes(b"value".to_vec())), "{kind:?}");
        if kind == Kind::Symlink {
            let target = session.call(&Request::Target { number });
            assert_eq!(target, Ok(Reply::Bytes(b"aim".to_vec())));
        }
        let changes = Changes { permissions: Some(0o700), ..Changes::default() };
        session.call(&Request::Change { number, changes }).expect("it is open");
        let link = Request::Link { number, directory: ROOT, name: b"again" };
        let refused = if kind.is_directory() { Errno::PERM } else { Errno::NOENT };
        assert_eq!(errno(session.call(&link)), Some(refused), "{kind:?}");
        scene.clock.advance(EXPIRED);
        assert_eq!(node(&session, number).expect("it is open").permissions, 0o700);
        close(&session, 1, number);
        assert_eq!(errno(node(&session, number)), Some(Errno::STALE), "{kind:?}");
        // A descriptor with a path may outlive the one that was closed.
        assert_eq!(open(&session, number).expect("it just closed it").permissions, 0o700);
        close(&session, 2, number);
        session.forgotten(number);
        assert_eq!(errno(open(&session, number)), Some(Errno::STALE), "{kind:?}");
    }
}

#[test]
fn what_was_unlinked_and_not_opened_expires() {
    let scene = Scene::new();
    let session = Session::new(&scene.tree());
    let number = make(&session, b"name", made(Kind::Directory));
    remove(&session, b"name", true);
    scene.clock.advance(EXPIRED);
    node(&session, ROOT).expect("it is there");
    assert_eq!(errno(open(&session, number)), Some(Errno::STALE));
}

#[test]
fn of_too_much_that_was_unlinked_the_oldest_goes() {
    let scene = Scene::new();
    let session = Session::new(&scene.tree());
    let value = vec![7; 60_000];
    // 45 MB altogether, of which 32 MiB are kept.
    let numbers: Vec<u64> = (0..750)
        .map(|_| {
            let number = make(&session, b"name", made(Kind::File));
            let (name, value, how) = (&b"user.x"[..], &value[..], SetHow::Any);
            let set = Request::SetXattr { number, name, value, how, clears_set_group: false };
            session.call(&set).expect("there is room");
            remove(&session, b"name", false);
            number
        })
        .collect();
    let is_kept = |number: &u64| open(&session, *number).is_ok();
    assert!(!is_kept(&numbers[0]) && !is_kept(&numbers[100]));
    assert!(is_kept(&numbers[300]) && is_kept(numbers.last().expect("there are some")));
    // More than is kept of one.
    let number = make(&session, b"name", made(Kind::File));
    for attribute in 0..20 {
        let name = format!("user.{attribute}").into_bytes();
        let (name, value, how) = (&name[..], &value[..], SetHow::Any);
        let set = Request::SetXattr { number, name, value, how, clears_set_group: false };
        session.call(&set).expect("there is room");
    }
    remove(&session, b"name", false);
    assert_eq!(errno(open(&session, number)), Some(Errno::STALE));
}

/// Makes a file with an object.
fn with_object(session: &Session, name: &[u8]) -> u64 {
    let reserved = session.call(&Request::Reserve { count: 1 });
    let Ok(Reply::Numbers(numbers)) = reserved else { panic!("{reserved:?}") };
    let object = Some(ReadyObject { number: numbers[0], modified_ns: 10 });
    make(session, name, Made { object, ..made(Kind::File) })
}

#[test]
fn an_object_goes_with_the_file_unless_that_is_opened_before() {
    let scene = Scene::new();
    let session = Session::new(&scene.tree());
    let number = with_object(&session, b"name");
    assert!(remove(&session, b"name", false));
    assert_eq!(garbage(&session), [number]);
    open(&session, number).expect("its object is there");
    assert!(garbage(&session).is_empty());
    assert_eq!(close(&session, 1, number), [number]);
    assert_eq!(garbage(&session), [number]);
    session.call(&Request::Collected { numbers: vec![number] }).expect("it was deleted");
    assert_eq!(errno(open(&session, number)), Some(Errno::STALE), "its object is gone");
}

#[test]
fn what_is_held_without_a_name_survives_a_restart_and_goes_with_its_user() {
    for kind in KINDS {
        let scene = Scene::new();
        let tree = scene.tree();
        let session = Session::new(&tree);
        let number = make(&session, b"name", made(kind));
        make(&session, b"later", made(kind));
        remove(&session, b"name", kind.is_directory());
        open(&session, number).expect("it just did");
        session.leave_open();
        drop(session);
        let tree = scene.tree();
        tree.await_claims(EXPIRED);
        let session = Session::new(&tree);
        assert_eq!(open(&session, number).expect("it is claimed").links, 0, "{kind:?}");
        drop(session);
        scene.clock.advance(EXPIRED);
        let session = Session::new(&tree);
        node(&session, ROOT).expect("it is there");
        assert_eq!(errno(node(&session, number)), Some(Errno::STALE), "{kind:?}");
    }
}

#[test]
fn unlinked_inodes_are_handed_over_to_the_next_server() {
    for kind in KINDS {
        let scene = Scene::new();
        let tree = scene.tree();
        let session = Session::new(&tree);
        let expired = make(&session, b"name", made(kind));
        remove(&session, b"name", kind.is_directory());
        scene.clock.advance(EXPIRED / 2);
        let number = make(&session, b"name", made(kind));
        make(&session, b"later", made(kind));
        let changes = Changes { permissions: Some(0o700), ..Changes::default() };
        session.call(&Request::Change { number, changes }).expect("it is there");
        remove(&session, b"name", kind.is_directory());
        session.hand_over();
        drop(session);
        let tree = scene.tree();
        tree.await_claims(EXPIRED);
        let session = Session::new(&tree);
        assert_eq!(errno(open(&session, expired)), Some(Errno::STALE), "it was not held");
        let found = open(&session, number).expect("it was handed over");
        assert_eq!((found.links, found.permissions), (0, 0o700), "{kind:?}");
        scene.clock.advance(EXPIRED);
        assert_eq!(node(&session, number).map(|node| node.links), Ok(0), "{kind:?}: it is held");
        close(&session, 1, number);
        session.forgotten(number);
        assert_eq!(errno(node(&session, number)), Some(Errno::STALE), "{kind:?}");
    }
}

/// What becomes of the object of an inode that was handed over.
#[derive(Clone, Copy, PartialEq)]
enum Object {
    Kept,
    /// Its client deletes it, because its kernel forgot the inode.
    Deleted,
    /// It does so before it says that it closed the inode.
    DeletedOpen,
}

#[test]
fn handed_over_inodes_that_no_session_opens_are_discarded() {
    for object in [Object::Kept, Object::Deleted, Object::DeletedOpen] {
        let scene = Scene::new();
        let session = Session::new(&scene.tree());
        let [number, fifo] =
            [with_object(&session, b"name"), make(&session, b"p", made(Kind::Fifo))];
        make(&session, b"later", made(Kind::File));
        assert!(remove(&session, b"name", false));
        remove(&session, b"p", false);
        session.hand_over();
        drop(session);
        let tree = scene.tree();
        tree.await_claims(EXPIRED);
        let session = Session::new(&tree);
        if object == Object::DeletedOpen {
            open(&session, number).expect("it was handed over");
        }
        if object != Object::Kept {
            session.call(&Request::Collected { numbers: vec![number] }).expect("it was deleted");
        }
        if object == Object::DeletedOpen {
            assert_eq!(close(&session, 1, number), [number]);
            session.call(&Request::Collected { numbers: vec![number] }).expect("it was deleted");
        }
        if object != Object::Kept {
            assert_eq!(errno(node(&session, number)), Some(Errno::STALE), "nothing is left of it");
        }
        scene.clock.advance(EXPIRED);
        for _ in 0..2 {
            node(&session, ROOT).expect("it is there");
        }
        for number in [number, fifo] {
            assert_eq!(errno(node(&session, number)), Some(Errno::STALE));
        }
        let left: &[u64] = if object == Object::Kept { &[number] } else { &[] };
        assert_eq!(garbage(&session), left);
    }
}

#[test]
fn what_a_killed_user_held_is_cleared_up_by_the_next() {
    for kind in KINDS {
        let scene = Scene::new();
        let tree = scene.tree();
        let session = Session::new(&tree);
        let number = make(&session, b"name", made(kind));
        remove(&session, b"name", kind.is_directory());
        open(&session, number).expect("it just did");
        session.leave_open();
        drop(session);
        let tree = scene.tree();
        assert_eq!(tree.discard_nameless(), Ok(1), "{kind:?}");
        assert_eq!(errno(node(&Session::new(&tree), number)), Some(Errno::STALE));
    }
}

/// Two users of a file system, of which the first is a mount, and the objects.
fn users(is_alone: bool) -> (Arc<Files>, Session, Arc<Memory>) {
    let tree = crate::common::tree(Arc::new(SystemClock::default()));
    let data = Arc::new(Memory::new(1 << 20));
    let objects: Arc<dyn Backend> = data.clone();
    let files = crate::common::files(Arc::new(Session::new(&tree)), &objects, is_alone);
    files.keep_unlinked();
    (files, Session::new(&tree), data)
}

fn write(files: &Arc<Files>, name: &[u8], length: usize) -> u64 {
    let (node, file) = files.create(ROOT, name, made(Kind::File), false).expect("it is new");
    file.write(0, &vec![7; length], false).expect("there is room");
    file.close().expect("it is open");
    node.number
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let clock = SystemClock::default();
    let start_ns = clock.now_ns();
    while !holds() {
        let waited = Duration::from_nanos(clock.now_ns() - start_ns);
        assert!(waited < WAIT_TIME_MAX, "{what}: not so within {WAIT_TIME_MAX:?}");
        clock.sleep(Duration::from_millis(2));
    }
}

fn used_bytes(data: &Memory) -> u64 {
    data.space().expect("it knows").used_bytes
}

const LENGTHS: [usize; 2] = [100, 10_000];

#[test]
fn a_file_is_there_until_the_kernel_forgets_it() {
    for (is_alone, length) in [true, false].into_iter().flat_map(|it| LENGTHS.map(|to| (it, to))) {
        let (files, _, data) = users(is_alone);
        let number = write(&files, b"name", length);
        files.remove(ROOT, b"name", false).expect("it is there");
        files.sweep().expect("nothing is to be deleted");
        let found = files.node(number).expect("the kernel may hold it");
        assert_eq!((found.links, found.size), (0, length as u64));
        let (_, file) = files.open(number, Access::Read).expect("the kernel may hold it");
        let mut bytes = vec![0; length];
        assert_eq!(file.read(0, &mut bytes).expect("it is open"), length);
        assert_eq!(bytes, vec![7; length]);
        file.close().expect("it is open");
        files.node(number).expect("the kernel may hold it");
        files.forget(number).expect("it can be closed");
        wait_until("it is gone", || errno(files.node(number)) == Some(Errno::STALE));
        assert_eq!(errno(files.open(number, Access::Read)), Some(Errno::STALE));
        wait_until("its object is gone", || used_bytes(&data) == 0);
    }
}

#[test]
fn an_object_goes_as_soon_as_the_kernel_forgets_the_file() {
    for is_alone in [true, false] {
        let (files, _, data) = users(is_alone);
        let number = write(&files, b"name", 10_000);
        files.remove(ROOT, b"name", false).expect("it is there");
        files.sweep().expect("nothing is to be deleted");
        assert_eq!(used_bytes(&data), 10_000);
        files.forget(number).expect("nothing is open");
        files.sweep().expect("it can be deleted");
        assert_eq!(used_bytes(&data), 0);
    }
}

#[test]
fn what_the_kernel_does_not_forget_is_opened_by_itself() {
    for is_alone in [true, false] {
        let (files, other, data) = users(is_alone);
        let long = write(&files, b"long", 10_000);
        let link = files.make(ROOT, b"link", made(Kind::Symlink)).expect("it is new").number;
        let old = write(&files, b"old", 10);
        write(&files, b"new", 10);
        files.remove(ROOT, b"long", false).expect("it is there");
        files.remove(ROOT, b"link", false).expect("it is there");
        files.rename((ROOT, b"new"), (ROOT, b"old"), RenameHow::default(), (0, 0)).expect("moved");
        for number in [long, link, old] {
            wait_until("it is open", || node(&other, number).is_ok());
            assert_eq!(node(&other, number).expect("it is open").links, 0);
        }
        assert_eq!(files.target(link).expect("the kernel may hold it"), b"aim");
        files.close().expect("closes");
        drop(files);
        for number in [long, link, old] {
            assert_eq!(errno(node(&other, number)), Some(Errno::STALE));
        }
        assert_eq!(used_bytes(&data), 0);
    }
}

#[test]
fn what_has_another_name_is_not_opened() {
    let (files, other, _) = users(false);
    let number = write(&files, b"one", 10);
    files.link(number, ROOT, b"other").expect("it is new");
    files.remove(ROOT, b"one", false).expect("it is there");
    let last = files.make(ROOT, b"last", made(Kind::Fifo)).expect("it is new").number;
    files.remove(ROOT, b"last", false).expect("it is there");
    wait_until("the later one is open", || node(&other, last).is_ok());
    let removed =
        other.call(&Request::Remove { directory: ROOT, name: b"other", is_directory: false });
    removed.expect("it is there");
    assert_eq!(errno(files.node(number)), Some(Errno::STALE), "nobody has it open");
}
