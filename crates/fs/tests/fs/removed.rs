// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names that are taken from the files that they lead to, many at once.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use terrace_backends::kv::Memory;
use terrace_core::{Clock, Kv};
use terrace_fs::{
    Changes, Closed, Effect, FileClock, Kind, Left, MAY_SAY_GONE_FOR, Made, Metadata, NamedFile,
    Node, REMOVED_MAX, ROOT, Reply, Request, Result, SAID_GONE_FOR, Session, Time, Tree,
    TreeOptions,
};
use terrace_testkit::ManualClock;

/// A file system in memory, and its time.
struct Scene {
    clock: Arc<ManualClock>,
    kv: Arc<dyn Kv>,
}

impl Scene {
    fn new() -> Self {
        let (clock, kv) = (Arc::new(ManualClock::new()), Arc::new(Memory::default()));
        Tree::create(&*kv, &TreeOptions::default(), &*clock, &[7; 32]).expect("it is empty");
        Self { clock, kv }
    }

    fn tree(&self) -> Arc<Tree> {
        let clock = FileClock::following(Arc::<ManualClock>::clone(&self.clock));
        Tree::open(Arc::clone(&self.kv), clock).expect("it was made")
    }
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
struct Removed {
    directory: Node,
    count: u32,
    kept: u32,
    is_delegated: bool,
    may_say_gone: bool,
}

fn make(session: &Session, directory: u64, name: &[u8], made: Made<'_>) -> u64 {
    match session.call(&Request::Make { directory, name, made }) {
        Ok(Reply::Made { node, .. }) => node.number,
        other => panic!("{other:?}"),
    }
}

fn file(session: &Session, directory: u64, name: &[u8]) -> u64 {
    make(session, directory, name, Made { kind: Kind::File, ..Made::default() })
}

fn directory(session: &Session, name: &[u8]) -> u64 {
    make(session, ROOT, name, Made { kind: Kind::Directory, ..Made::default() })
}

/// As they are now.
fn named<'a>(session: &Session, names: &[(&'a [u8], u64)]) -> Vec<NamedFile<'a>> {
    let known = |number| node(session, number).map(|node| node.changed).unwrap_or_default();
    names.iter().map(|&(name, number)| NamedFile { name, number, changed: known(number) }).collect()
}

fn remove(
    session: &Session,
    directory: u64,
    names: &[(&[u8], u64)],
    changed: Option<Time>,
) -> Result<Removed> {
    remove_named(session, directory, named(session, names), changed)
}

fn remove_named(
    session: &Session,
    directory: u64,
    removed: Vec<NamedFile<'_>>,
    changed: Option<Time>,
) -> Result<Removed> {
    match session.call(&Request::RemoveNumbered { directory, removed, changed })? {
        Reply::Removed { directory, count, kept, is_delegated, may_say_gone } => {
            Ok(Removed { directory, count, kept, is_delegated, may_say_gone })
        }
        other => panic!("{other:?}"),
    }
}

fn found(session: &Session, directory: u64, name: &[u8]) -> Option<u64> {
    match session.call(&Request::Lookup { directory, name }) {
        Ok(Reply::Node(node)) => Some(node.number),
        Ok(Reply::Nowhere) => None,
        Err(failure) if failure.errno() == Errno::NOENT => None,
        other => panic!("{other:?}"),
    }
}

fn node(session: &Session, number: u64) -> Result<Node> {
    match session.call(&Request::Node { number })? {
        Reply::Node(node) => Ok(node),
        other => panic!("{other:?}"),
    }
}

fn errno<T>(asked: Result<T>) -> Option<Errno> {
    asked.err().map(|failure| failure.errno())
}

#[test]
fn only_names_that_lead_to_these_files_are_taken_away() {
    let scene = Scene::new();
    let session = Session::new(&scene.tree());
    let home = directory(&session, b"home");
    let names: [&[u8]; 4] = [b"one", b"replaced", b"stays", b"linked"];
    let [one, replaced, stays, linked] = names.map(|name| file(&session, home, name));
    let inner = make(&session, home, b"inner", Made { kind: Kind::Directory, ..Made::default() });
    let link = Request::Link { number: linked, directory: home, name: b"link" };
    session.call(&link).expect("it is new");
    let gone = Request::Remove { directory: home, name: b"replaced", is_directory: false };
    session.call(&gone).expect("it is there");
    let new = file(&session, home, b"replaced");
    let before = node(&session, home).expect("it is there");
    scene.clock.advance(Duration::from_secs(1));
    let asked: [(&[u8], u64); 6] = [
        (b"one", one),
        (b"replaced", replaced),
        (b"never", 99),
        (b"inner", inner),
        (b"linked", linked),
        (b"one", one),
    ];
    let removed = remove(&session, home, &asked, None).expect("it is a directory");
    assert_eq!((removed.count, removed.kept), (2, 0));
    assert_eq!((removed.directory.size, removed.directory.links), (before.size - 2, before.links));
    assert_eq!(removed.directory, node(&session, home).expect("it is there"));
    assert!(removed.directory.modified > before.modified);
    let names: [&[u8]; 6] = [b"one", b"replaced", b"stays", b"linked", b"link", b"inner"];
    let there = names.map(|name| found(&session, home, name));
    assert_eq!(there, [None, Some(new), Some(stays), None, Some(linked), Some(inner)]);
    assert_eq!(node(&session, linked).expect("it has a name").links, 1);
    assert_eq!(errno(node(&session, one)), Some(Errno::STALE));
    // It is asked again because the answer was lost.
    scene.clock.advance(Duration::from_secs(1));
    let again = remove(&session, home, &asked, None).expect("it is a directory");
    assert_eq!((again.count, &again.directory), (0, &removed.directory));
}

#[test]
fn what_is_open_stays_until_it_is_closed_and_objects_are_deleted_by_who_closes() {
    let scene = Scene::new();
    let tree = scene.tree();
    let (session, other) = (Session::new(&tree), Session::new(&tree));
    let home = directory(&session, b"home");
    // Two of them share a lock.
    let [opened, moved, last] = [b"opened", b"moved!", b"last!!"].map(|name| {
        let first = file(&session, home, name);
        for index in 1..64 {
            file(&session, ROOT, format!("{first}-{index}").as_bytes());
        }
        first
    });
    other.call(&Request::Open { number: opened, is_for_writing: true }).expect("it is there");
    let (number, object_modified_ns) = (moved, 7);
    let move_out = Request::MoveOut { number, size: 0, content: b"", object_modified_ns };
    let Ok(Reply::Node(_)) = session.call(&move_out) else { panic!() };
    // Else who has it open for writing is not to lose it.
    let first = file(&session, home, b"first");
    remove(&session, home, &[(b"first", first)], None).expect("it is there");
    let asked: [(&[u8], u64); 3] = [(b"opened", opened), (b"moved!", moved), (b"last!!", last)];
    let removed = remove(&session, home, &asked, None).expect("they are there");
    assert_eq!((removed.count, removed.directory.size), (3, 0));
    assert_eq!(node(&other, opened).expect("it is open").links, 0);
    assert_eq!(errno(node(&other, moved)), Some(Errno::STALE));
    let closed = vec![Closed { number: opened, is_for_writing: true, left: Left::Unknown }];
    let close = Request::Close { closed, read: Vec::new(), id: 1, acknowledged: 0 };
    assert_eq!(other.call(&close), Ok(Reply::Numbers(vec![moved])));
    assert_eq!(errno(node(&other, opened)), Some(Errno::STALE));
}

#[test]
fn a_returned_time_counts_once_it_has_passed() {
    let scene = Scene::new();
    let session = Session::new(&scene.tree());
    let home = directory(&session, b"home");
    let names: [&[u8]; 2] = [b"a", b"b"];
    let [a, b] = names.map(|name| file(&session, home, name));
    scene.clock.advance(Duration::from_secs(1));
    let changed = node(&session, home).expect("it is there").changed;
    let after = |ms: u64| Time::from_ns(changed.to_ns() + ms * 1_000_000);
    let removed = remove(&session, home, &[(b"a", a)], Some(after(500))).expect("it is there");
    assert_eq!(removed.directory.changed, after(500));
    let removed = remove(&session, home, &[(b"b", b)], Some(after(60_000))).expect("it is there");
    assert!((after(500)..after(60_000)).contains(&removed.directory.changed), "it is to come");
}

#[test]
fn a_directory_changed_when_its_user_was_told_so() {
    let scene = Scene::new();
    let session = Session::new(&scene.tree());
    let home = directory(&session, b"home");
    let names: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    let [a, b, c, d] = names.map(|name| file(&session, home, name));
    scene.clock.advance(Duration::from_secs(1));
    let told = node(&session, home).expect("it is there").changed.next();
    let removed = remove(&session, home, &[(b"a", a)], Some(told)).expect("it is there");
    assert_eq!((removed.directory.changed, removed.directory.modified), (told, told));
    let names: [(&[u8], u64); 2] = [(b"b", b), (b"c", c)];
    let removed = remove(&session, home, &names, Some(told.next().next())).expect("they are there");
    assert_eq!(removed.directory.changed, told.next().next(), "each is a change");
    // Not where it changed since, nor where nothing was there.
    let changed = removed.directory.changed;
    let removed = remove(&session, home, &[(b"d", a)], Some(changed.next())).expect("a directory");
    assert_eq!((removed.count, removed.directory.changed), (0, changed));
    assert_eq!(found(&session, home, b"d"), Some(d));
    let removed = remove(&session, home, &[(b"d", d)], Some(told)).expect("it is there");
    let last = removed.directory.changed;
    assert!(last > changed.next() && removed.directory.modified == last);
}

/// How a user looks into a directory, or at a file there.
type Look = (&'static str, fn(u64, u64) -> Request<'static>);

const LOOKS: [Look; 11] = [
    ("for a name", |directory, _| Request::Lookup { directory, name: b"x" }),
    ("for it", |_, _| Request::Lookup { directory: ROOT, name: b"for it" }),
    ("at it", |number, _| Request::Node { number }),
    ("at a file", |_, number| Request::Node { number }),
    ("at all", |directory, _| Request::List { directory, after: 0, max: 9, with_nodes: false }),
    ("to write", |_, number| Request::Open { number, is_for_writing: true }),
    ("to read", |_, number| Request::Content { number }),
    ("at attributes", |_, number| Request::Xattrs { number }),
    ("to link", |_, number| Request::Link { number, directory: ROOT, name: b"link" }),
    ("to follow", |_, number| Request::Target { number }),
    ("to read several", |_, number| Request::OpenAhead {
        numbers: vec![number],
        grant: 1,
        is_first: true,
    }),
];

fn waited(scene: &Scene, session: &Session, request: &Request<'_>) -> Duration {
    let before_ns = scene.clock.now_ns();
    let _ = session.call(request);
    Duration::from_nanos(scene.clock.now_ns() - before_ns)
}

#[test]
fn who_looks_waits_for_what_another_one_may_have_said_is_gone() {
    let scene = Scene::new();
    let tree = scene.tree();
    let mine = Session::new(&tree);
    for (what, look) in LOOKS {
        let other = Session::new(&tree);
        let home = directory(&mine, what.as_bytes());
        let made = Made { kind: Kind::Directory, ..Made::default() };
        let inner = make(&mine, home, b"inner", made);
        let there = file(&mine, home, b"there");
        let look = look(home, there);
        scene.clock.advance(Duration::from_secs(1));
        let remove_one = || {
            let number = file(&mine, home, b"gone");
            remove(&mine, home, &[(b"gone", number)], None).expect("it is there")
        };
        let removed = remove_one();
        assert!(removed.is_delegated && removed.may_say_gone, "{what}");
        let of_inner = Request::List { directory: inner, after: 0, max: 9, with_nodes: false };
        let no_time = Duration::ZERO;
        assert_eq!(waited(&scene, &other, &of_inner), no_time, "nothing was said there");
        if look.effect() != Effect::Change {
            assert_eq!(waited(&scene, &mine, &look), no_time, "it knows what it said");
        }
        assert_eq!(waited(&scene, &other, &look), MAY_SAY_GONE_FOR + SAID_GONE_FOR, "{what}");
        assert_eq!(waited(&scene, &other, &look), no_time, "{what}");
        // For a second each name is waited for.
        assert!(!remove_one().may_say_gone, "{what}");
        assert_eq!(waited(&scene, &other, &look), no_time, "{what}");
        drop(other);
        scene.clock.advance(Duration::from_secs(2));
        assert!(remove_one().may_say_gone, "{what}");
        scene.clock.advance(Duration::from_secs(1));
    }
    let number = file(&mine, ROOT, b"of nobody");
    let removed = remove(&mine, ROOT, &[(b"of nobody", number)], None).expect("it is there");
    assert!(!removed.is_delegated && !removed.may_say_gone);
}

#[test]
fn nothing_is_said_to_be_gone_while_others_read_without_asking() {
    let scene = Scene::new();
    let tree = scene.tree();
    let (mine, other) = (Session::new(&tree), Session::new(&tree));
    let home = directory(&mine, b"home");
    let [read, gone, next, last] =
        [b"read", b"gone", b"next", b"last"].map(|name| file(&mine, home, name));
    let elsewhere = file(&mine, ROOT, b"elsewhere");
    scene.clock.advance(Duration::from_secs(1));
    let ahead = Request::OpenAhead { numbers: vec![read], grant: 1, is_first: true };
    let Ok(Reply::OpenedAhead(opened)) = other.call(&ahead) else { panic!() };
    assert_eq!(opened.len(), 1);
    let removed = remove(&mine, home, &[(b"gone", gone)], None).expect("it is there");
    assert!(removed.is_delegated && !removed.may_say_gone);
    scene.clock.advance(Duration::from_secs(1));
    let removed = remove(&mine, home, &[(b"next", next)], None).expect("it is there");
    assert!(removed.may_say_gone, "they have to ask again");
    assert_eq!(other.call(&Request::RenewAhead { grant: 1 }), Ok(Reply::NotHere), "in vain");
    let more = Request::OpenAhead { numbers: vec![elsewhere], grant: 1, is_first: false };
    assert_eq!(other.call(&more), Ok(Reply::NotHere), "nor with others");
    // Nor does anybody begin to.
    let ahead = Request::OpenAhead { numbers: vec![last], grant: 2, is_first: true };
    let before_ns = scene.clock.now_ns();
    assert!(other.call(&ahead).is_ok());
    assert!(scene.clock.now_ns() > before_ns);
}

#[test]
fn what_comes_too_late_takes_nothing_that_others_have_changed() {
    let scene = Scene::new();
    let tree = scene.tree();
    let (mine, other) = (Session::new(&tree), Session::new(&tree));
    let home = directory(&mine, b"home");
    let names: [&[u8]; 6] = [b"first", b"in time", b"late", b"written", b"opened", b"moded"];
    let files = names.map(|name| file(&mine, home, name));
    scene.clock.advance(Duration::from_secs(1));
    let known = named(&mine, &std::array::from_fn::<_, 6, _>(|index| (names[index], files[index])));
    let ask = |index: usize| {
        let removed = remove_named(&mine, home, vec![known[index]], None).expect("a directory");
        (removed.count, removed.kept)
    };
    assert_eq!(ask(0), (1, 0));
    assert_eq!(ask(1), (1, 0));
    // The other one waits until that is over, and then finds what the first one said is gone.
    for (index, request) in [
        (
            3,
            Request::Write {
                number: files[3],
                offset: 0,
                data: b"new",
                at_end: false,
                clears_set_id: false,
            },
        ),
        (4, Request::Open { number: files[4], is_for_writing: true }),
        (
            5,
            Request::Change {
                number: files[5],
                changes: Changes { permissions: Some(0o600), ..Changes::default() },
            },
        ),
    ] {
        assert_eq!(found(&other, home, names[index]), Some(files[index]));
        other.call(&request).expect("it is there");
    }
    scene.clock.advance(MAY_SAY_GONE_FOR + SAID_GONE_FOR);
    for index in 3..6 {
        assert_eq!(ask(index), (0, 1), "{:?}", names[index]);
        assert_eq!(found(&mine, home, names[index]), Some(files[index]));
    }
    assert_eq!(ask(2), (1, 0), "nobody has changed it");
    let Ok(Reply::Opened { content, .. }) = other.call(&Request::Content { number: files[3] })
    else {
        panic!()
    };
    assert_eq!(content, b"new");
    assert_eq!(node(&mine, home).expect("it is there").size, 3);
}

#[test]
fn what_comes_behind_what_comes_too_late_is_late_too() {
    let scene = Scene::new();
    let tree = scene.tree();
    let (mine, other) = (Session::new(&tree), Session::new(&tree));
    let home = directory(&mine, b"home");
    let names: [&[u8]; 4] = [b"first", b"late", b"behind", b"anew"];
    let files = names.map(|name| file(&mine, home, name));
    let known = named(&mine, &std::array::from_fn::<_, 4, _>(|index| (names[index], files[index])));
    let ask = |index: usize, changed: Option<Time>| {
        remove_named(&mine, home, vec![known[index]], changed).expect("a directory")
    };
    assert!(ask(0, None).may_say_gone);
    scene.clock.advance(MAY_SAY_GONE_FOR + SAID_GONE_FOR);
    let (number, offset, data) = (files[2], 0, &b"new"[..]);
    let write = Request::Write { number, offset, data, at_end: false, clears_set_id: false };
    other.call(&write).expect("it is there");
    // Both were said to be gone before the other one looked.
    let late = ask(1, Some(Time::default()));
    assert_eq!((late.count, late.kept, late.may_say_gone), (1, 0, false));
    let behind = ask(2, Some(Time::default()));
    assert_eq!((behind.count, behind.kept, behind.may_say_gone), (0, 1, false));
    assert_eq!(found(&mine, home, b"behind"), Some(number));
    assert!(ask(3, None).may_say_gone, "of what is said from now on");
}

#[test]
fn what_is_no_such_request_is_refused_as_a_whole() {
    let scene = Scene::new();
    let tree = scene.tree();
    let session = Session::new(&tree);
    let home = directory(&session, b"home");
    let name: &[u8] = b"name";
    let number = file(&session, home, name);
    let with = |other: &'static [u8]| [(name, number), (other, number)];
    for other in [&b""[..], b".", b"..", b"a/b"] {
        assert_eq!(errno(remove(&session, home, &with(other), None)), Some(Errno::INVAL));
    }
    let many = vec![(name, number); REMOVED_MAX + 1];
    assert_eq!(errno(remove(&session, home, &many, None)), Some(Errno::INVAL));
    assert_eq!(errno(remove(&session, number, &[(name, number)], None)), Some(Errno::NOTDIR));
    assert_eq!(errno(remove(&session, 99, &[(name, number)], None)), Some(Errno::STALE));
    let reading = Session::reading(&tree);
    assert_eq!(errno(remove(&reading, home, &[(name, number)], None)), Some(Errno::ROFS));
    assert_eq!(found(&session, home, name), Some(number));
    assert_eq!(remove(&session, home, &many[1..], None).map(|removed| removed.count), Ok(1));
}
