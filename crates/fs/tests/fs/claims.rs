// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What users had open with who served a file system before.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use terrace_backends::kv::Memory;
use terrace_fs::{
    Closed, DELEGATED_FOR, FileClock, Kind, Left, Made, Metadata, Node, ROOT, ReadyObject,
    RenameHow, Reply, Request, Session, Tree, TreeOptions,
};
use terrace_testkit::ManualClock;

const TIME: Duration = Duration::from_secs(90);

struct Scene {
    kv: Arc<Memory>,
    clock: Arc<ManualClock>,
}

impl Scene {
    fn new() -> Self {
        let (kv, clock) = (Arc::new(Memory::default()), Arc::new(ManualClock::new()));
        Tree::create(&*kv, &TreeOptions::default(), &*clock, &[7; 32]).expect("it is empty");
        Self { kv, clock }
    }

    /// Serves it as after a restart.
    fn serve(&self) -> Arc<Tree> {
        let clock = FileClock::following(Arc::<ManualClock>::clone(&self.clock));
        let tree = Tree::open(Arc::<Memory>::clone(&self.kv), clock).expect("it was made");
        tree.await_claims(TIME);
        tree
    }

    /// A file with an object, and another one, which were made before the file system is served
    /// again.
    fn with_file() -> (Self, Arc<Tree>, u64) {
        let scene = Self::new();
        let session = Session::new(&scene.serve());
        let number = make(&session, b"file");
        make(&session, b"other");
        drop(session);
        let tree = scene.serve();
        (scene, tree, number)
    }
}

fn make(session: &Session, name: &[u8]) -> u64 {
    let reserved = session.call(&Request::Reserve { count: 1 });
    let Ok(Reply::Numbers(numbers)) = reserved else { panic!("{reserved:?}") };
    let object = Some(ReadyObject { number: numbers[0], modified_ns: 10 });
    let made = Made { kind: Kind::File, permissions: 0o644, object, ..Made::default() };
    match session.call(&Request::Make { directory: ROOT, name, made }) {
        Ok(Reply::Made { node, .. }) => node.number,
        other => panic!("{other:?}"),
    }
}

fn open(session: &Session, number: u64) -> terrace_fs::Result<Node> {
    match session.call(&Request::Open { number, is_for_writing: true })? {
        Reply::Opened { node, .. } => Ok(node),
        other => panic!("{other:?}"),
    }
}

/// Closes; the objects that are to be deleted then.
fn close(session: &Session, id: u64, numbers: &[u64]) -> Vec<u64> {
    let closed =
        |number: &u64| Closed { number: *number, is_for_writing: true, left: Left::Unknown };
    let closed = numbers.iter().map(closed).collect();
    match session.call(&Request::Close { closed, read: Vec::new(), id, acknowledged: id }) {
        Ok(Reply::Numbers(garbage)) => garbage,
        other => panic!("{other:?}"),
    }
}

/// Opens a file and closes it; the objects that are to be deleted then.
fn touch(session: &Session, id: u64, number: u64) -> Vec<u64> {
    open(session, number).expect("it is there");
    close(session, id, &[number])
}

fn garbage(session: &Session) -> Vec<u64> {
    match session.call(&Request::Garbage { max: 100 }) {
        Ok(Reply::Numbers(numbers)) => numbers,
        other => panic!("{other:?}"),
    }
}

fn is_gone(session: &Session, number: u64) -> bool {
    match session.call(&Request::Node { number }) {
        Ok(_) => false,
        Err(failure) => failure.errno() == Errno::STALE,
    }
}

/// Takes the name of the file away; whether its object is to be deleted.
type Way = fn(&Session) -> bool;

fn has_garbage(reply: terrace_fs::Result<Reply>) -> bool {
    match reply {
        Ok(Reply::Gone { has_garbage, .. }) => has_garbage,
        other => panic!("{other:?}"),
    }
}

const WAYS: [Way; 2] = [
    |session| {
        let (directory, name) = (ROOT, b"file");
        has_garbage(session.call(&Request::Remove { directory, name, is_directory: false }))
    },
    |session| {
        has_garbage(session.call(&Request::Rename {
            from_directory: ROOT,
            from: b"other",
            to_directory: ROOT,
            to: b"file",
            how: RenameHow::default(),
            user: 0,
            group: 0,
        }))
    },
];

#[test]
fn what_loses_its_name_before_it_is_claimed_is_there_for_all_who_had_it_open() {
    for way in WAYS {
        let (scene, tree, number) = Scene::with_file();
        let [one, other] = [(); 2].map(|()| Session::new(&tree));
        assert!(!way(&one), "somebody may have it open");
        assert_eq!(open(&one, number).map(|node| node.links), Ok(0));
        assert_eq!(close(&one, 1, &[number]), Vec::<u64>::new(), "others may have it open");
        assert_eq!(open(&other, number).map(|node| node.links), Ok(0));
        scene.clock.advance(TIME);
        assert!(!is_gone(&one, number), "one has");
        assert_eq!(close(&other, 1, &[number]), [number]);
        assert!(is_gone(&one, number));
        assert_eq!(garbage(&one), [number]);
    }
}

#[test]
fn what_is_closed_without_a_name_by_the_death_of_one_user_is_there_for_others() {
    let (_scene, tree, number) = Scene::with_file();
    let [one, other] = [(); 2].map(|()| Session::new(&tree));
    open(&one, number).expect("it is there");
    assert!(!WAYS[0](&one));
    drop(one);
    open(&other, number).expect("it is kept");
}

#[test]
fn what_nobody_claims_goes_when_the_time_is_over_and_one_user_hears_of_it() {
    for way in WAYS {
        let (scene, tree, number) = Scene::with_file();
        let [one, other] = [(); 2].map(|()| Session::new(&tree));
        assert!(!way(&one));
        // The removal waited for names that are delegated.
        scene.clock.advance(TIME - 10 * DELEGATED_FOR);
        assert!(!is_gone(&one, number));
        scene.clock.advance(10 * DELEGATED_FOR);
        assert!(is_gone(&one, number));
        let new = make(&one, b"new");
        let reader = Session::reading(&tree);
        assert_eq!(close(&reader, 1, &[]), Vec::<u64>::new(), "it has no right to delete");
        assert_eq!(touch(&other, 1, new), [number]);
        assert_eq!(touch(&one, 2, new), Vec::<u64>::new(), "the other one deletes it");
        assert_eq!(close(&other, 1, &[new]), [number], "it may not have heard it");
        assert_eq!(garbage(&one), [number]);
    }
}

#[test]
fn more_than_a_page_goes_and_all_of_it_is_told() {
    const FILES: usize = 700;
    let scene = Scene::new();
    let session = Session::new(&scene.serve());
    let names: Vec<_> = (0..FILES).map(|index| index.to_string().into_bytes()).collect();
    let numbers: Vec<_> = names.iter().map(|name| make(&session, name)).collect();
    drop(session);
    let session = Session::new(&scene.serve());
    for name in &names {
        let remove = Request::Remove { directory: ROOT, name, is_directory: false };
        assert!(!has_garbage(session.call(&remove)));
    }
    scene.clock.advance(TIME);
    let new = make(&session, b"new");
    let mut told: Vec<_> = (1..=20).flat_map(|id| touch(&session, id, new)).collect();
    told.sort_unstable();
    assert_eq!(told, numbers);
    assert_eq!(scene.serve().discard_nameless(), Ok(0));
}

#[test]
fn what_was_made_since_goes_at_once_and_all_does_once_the_time_is_over() {
    let (scene, tree, number) = Scene::with_file();
    let session = Session::new(&tree);
    let new = make(&session, b"new");
    let remove = Request::Remove { directory: ROOT, name: b"new", is_directory: false };
    assert!(has_garbage(session.call(&remove)), "nobody had it open before");
    scene.clock.advance(TIME);
    assert!(WAYS[0](&session), "everybody has said what is open");
    assert_eq!(garbage(&session), [number, new]);
}

#[test]
fn what_is_kept_is_kept_by_who_serves_next_and_not_by_who_is_alone() {
    let (scene, tree, number) = Scene::with_file();
    assert!(!WAYS[0](&Session::new(&tree)));
    drop(tree);
    let tree = scene.serve();
    let session = Session::new(&tree);
    assert_eq!(open(&session, number).map(|node| node.links), Ok(0));
    session.leave_open();
    drop((session, tree));
    let tree = scene.serve();
    assert_eq!(tree.discard_nameless(), Ok(1));
    let session = Session::new(&tree);
    assert!(is_gone(&session, number));
    let other = Request::Remove { directory: ROOT, name: b"other", is_directory: false };
    assert!(has_garbage(session.call(&other)), "nobody else is there");
}
