// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several users of the metadata of one file system.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use terrace_backends::kv::Memory;
use terrace_core::SystemClock;
use terrace_fs::{
    Changes, Closed, FileClock, Kind, Left, Made, Metadata, Node, ROOT, ReadyObject, Reply,
    Request, Session, Settled, Tree, TreeOptions,
};
use terrace_testkit::SimWorld;

/// Requests to close that were made.
static CLOSES: AtomicU64 = AtomicU64::new(0);

fn tree() -> Arc<Tree> {
    serve(&kv())
}

/// A file system without files.
fn kv() -> Arc<Memory> {
    let kv = Arc::new(Memory::default());
    let clock = SystemClock::default();
    Tree::create(&*kv, &TreeOptions::default(), &clock, &[7; 32]).expect("it is empty");
    kv
}

fn serve(kv: &Arc<Memory>) -> Arc<Tree> {
    let clock = Arc::new(SystemClock::default());
    Tree::open(Arc::<Memory>::clone(kv), FileClock::following(clock)).expect("it was just made")
}

fn made(object: Option<ReadyObject>) -> Made<'static> {
    Made { kind: Kind::File, permissions: 0o644, is_opened: true, object, ..Made::default() }
}

fn reserve(session: &Session) -> ReadyObject {
    match session.call(&Request::Reserve { count: 1 }) {
        Ok(Reply::Numbers(numbers)) => ReadyObject { number: numbers[0], modified_ns: 10 },
        other => panic!("{other:?}"),
    }
}

fn make(session: &Session, name: &[u8], object: Option<ReadyObject>) -> terrace_fs::Result<Node> {
    let made = made(object);
    match session.call(&Request::Make { directory: ROOT, name, made })? {
        Reply::Made { node, .. } => Ok(node),
        other => panic!("{other:?}"),
    }
}

fn node(session: &Session, number: u64) -> Node {
    match session.call(&Request::Node { number }) {
        Ok(Reply::Node(node)) => node,
        other => panic!("{other:?}"),
    }
}

fn close(session: &Session, number: u64, size: u64, modified_ns: u64) {
    let left = Left::Settled(Settled { size, allocated_bytes: size, modified_ns });
    tell_closed(session, Closed { number, is_for_writing: true, left });
}

/// Tells that something was closed; whose objects are to be deleted then.
fn tell_closed(session: &Session, closed: Closed) -> Vec<u64> {
    let closed = vec![closed];
    let id = CLOSES.fetch_add(1, Ordering::Relaxed);
    match session.call(&Request::Close { closed, read: Vec::new(), id, acknowledged: id }) {
        Ok(Reply::Numbers(garbage)) => garbage,
        other => panic!("{other:?}"),
    }
}

/// A file with an object that both users have open for writing.
fn shared(a: &Session, b: &Session) -> u64 {
    let number = make(a, b"file", Some(reserve(a))).expect("it is new").number;
    b.call(&Request::Open { number, is_for_writing: true }).expect("it is there");
    number
}

#[test]
fn what_the_last_one_saw_earlier_is_not_believed() {
    let tree = tree();
    let (a, b) = (Session::new(&tree), Session::new(&tree));
    // In the same step of the tier's clock, and in a later one.
    for (later_ns, name) in [(20, "same"), (21, "later")] {
        let number = shared(&a, &b);
        // a looked at the object, then b wrote to it and was closed first.
        close(&b, number, 2000, later_ns);
        close(&a, number, 1000, 20);
        assert!(node(&a, number).is_written, "{name}: the object is asked from now on");
        // Whoever looks tells what it says; once twice the same is said it is believed.
        let settled = Settled { size: 2000, allocated_bytes: 2000, modified_ns: later_ns };
        for _ in 0..2 {
            a.call(&Request::Settle { number, settled }).expect("it is there");
        }
        let node = node(&a, number);
        assert_eq!((node.size, node.is_written), (2000, false), "{name}");
        a.call(&Request::Remove { directory: ROOT, name: b"file", is_directory: false })
            .expect("it is there");
    }
}

#[test]
fn who_comes_late_makes_nobody_else_believed_who_does() {
    // As a, b and c saw it, one after the other; what c wrote is there.
    let seen = [(100, 20), (200, 30), (300, 40)];
    for order in [[2, 0, 1], [2, 1, 0], [1, 0, 2], [0, 2, 1]] {
        let tree = tree();
        let users = [Session::new(&tree), Session::new(&tree), Session::new(&tree)];
        let number = shared(&users[0], &users[1]);
        let open = Request::Open { number, is_for_writing: true };
        users[2].call(&open).expect("it is there");
        let looks = Session::new(&tree);
        let settle = |(size, modified_ns)| {
            let settled = Settled { size, allocated_bytes: size, modified_ns };
            looks.call(&Request::Settle { number, settled }).expect("it is there");
        };
        for which in order {
            let (size, modified_ns) = seen[which];
            close(&users[which], number, size, modified_ns);
        }
        let noted = node(&looks, number);
        let what = format!("{order:?}: {noted:?}");
        assert!(noted.is_written || noted.size == 300, "{what}");
        (0..2).for_each(|_| settle(seen[2]));
        let noted = node(&looks, number);
        assert_eq!((noted.size, noted.is_written), (300, false), "{what}");
        // A clock that was set back makes nobody ask for ever.
        (0..2).for_each(|_| settle((400, 15)));
        let noted = node(&looks, number);
        assert_eq!((noted.size, noted.is_written), (400, false), "{what}");
    }
}

#[test]
fn who_is_alone_is_believed_at_once() {
    let tree = tree();
    let a = Session::new(&tree);
    let number = make(&a, b"file", Some(reserve(&a))).expect("it is new").number;
    close(&a, number, 5, 11);
    let node = node(&a, number);
    assert_eq!((node.size, node.is_written), (5, false));
}

fn close_as(session: &Session, number: u64, left: Left) {
    tell_closed(session, Closed { number, is_for_writing: true, left });
}

#[test]
fn a_file_is_untouched_only_where_nobody_may_have_written_to_it() {
    let tree = tree();
    let (a, b) = (Session::new(&tree), Session::new(&tree));
    let number = make(&a, b"file", Some(reserve(&a))).expect("it is new").number;
    // It was made, and written, with this use.
    close_as(&a, number, Left::Untouched);
    assert!(node(&a, number).is_written, "made");
    let open = |session: &Session| {
        session.call(&Request::Open { number, is_for_writing: true }).expect("it is there");
    };
    let settle = || {
        open(&a);
        let now = node(&a, number);
        close(&a, number, now.size, now.settled_ns);
        assert!(!node(&a, number).is_written);
    };
    settle();
    open(&a);
    open(&b);
    close_as(&a, number, Left::Untouched);
    assert!(node(&a, number).is_written, "the other one may write to it");
    close_as(&b, number, Left::Untouched);
    assert!(!node(&a, number).is_written, "nobody did");
    for is_last in [false, true] {
        open(&a);
        open(&b);
        if is_last {
            close_as(&a, number, Left::Untouched);
        }
        close_as(&b, number, Left::Unknown);
        if !is_last {
            close_as(&a, number, Left::Untouched);
        }
        assert!(node(&a, number).is_written, "one may have: {is_last}");
        // It stays so for who opens it later.
        open(&a);
        close_as(&a, number, Left::Untouched);
        assert!(node(&a, number).is_written, "later: {is_last}");
        settle();
    }
    // A client that dies may have written.
    open(&a);
    open(&b);
    drop(b);
    close_as(&a, number, Left::Untouched);
    assert!(node(&a, number).is_written, "one died");
}

#[test]
fn a_number_that_was_not_reserved_makes_no_file() {
    let tree = tree();
    let a = Session::new(&tree);
    let first = make(&a, b"first", None).expect("it is new");
    for number in [ROOT, first.number, first.number + 1_000_000] {
        let object = Some(ReadyObject { number, modified_ns: 1 });
        let failure = make(&a, b"second", object).expect_err("nobody reserved it");
        assert_eq!(failure.errno(), Errno::INVAL, "{number}");
    }
    assert_eq!(node(&a, first.number).size, 0);
    let object = reserve(&a);
    make(&a, b"first", Some(object)).expect_err("the name is taken");
    make(&a, b"second", Some(object)).expect("it is reserved still");
    make(&a, b"third", Some(object)).expect_err("it is used");
}

fn reading(number: u64) -> Closed {
    Closed { number, is_for_writing: false, left: Left::Unknown }
}

/// A file that another one has open while the first one removes it, and one more.
fn removed_while_open(writer: &Session, other: &Session) -> (u64, u64) {
    let [number, next] = [&b"file"[..], b"next"]
        .map(|name| make(writer, name, Some(reserve(writer))).expect("it is new").number);
    other.call(&Request::Open { number, is_for_writing: false }).expect("it is there");
    close(writer, number, 5, 11);
    let (directory, name, is_directory) = (ROOT, b"file", false);
    match writer.call(&Request::Remove { directory, name, is_directory }) {
        Ok(Reply::Gone { has_garbage, .. }) => assert!(!has_garbage, "it is open"),
        other => panic!("{other:?}"),
    }
    (number, next)
}

/// What is told of objects to delete with the close of a file that was opened for writing.
fn told_by_a_close(session: &Session, number: u64) -> Vec<u64> {
    session.call(&Request::Open { number, is_for_writing: true }).expect("it is there");
    tell_closed(session, Closed { number, is_for_writing: true, left: Left::Unknown })
}

/// What becomes of a file that another one has open.
type End = fn(Session, u64);

#[test]
fn an_object_that_its_last_user_does_not_delete_is_deleted_by_another_one() {
    let closes: End = |reader, number| {
        assert_eq!(tell_closed(&reader, reading(number)), [0; 0], "who only reads cannot");
    };
    let goes: End = |other, _| drop(other);
    let hears_nothing: End = |other, number| {
        assert_eq!(tell_closed(&other, reading(number)), [number], "on the way");
    };
    let fails: End = |other, number| {
        let closed = vec![reading(number), reading(1 << 40)];
        let close = Request::Close { closed, read: Vec::new(), id: 0, acknowledged: 0 };
        let failure = other.call(&close).expect_err("the second is not open");
        assert_eq!(failure.errno(), Errno::BADF);
        assert_eq!(other.call(&close), Ok(Reply::Numbers(Vec::new())), "asked again");
    };
    for (how, begin, end) in [
        ("only reads", Session::reading as fn(&Arc<Tree>) -> Session, closes),
        ("only reads and goes", Session::reading, goes),
        ("goes", Session::new, goes),
        ("goes and may not have heard of it", Session::new, hears_nothing),
        ("is told of a failure", Session::new, fails),
    ] {
        let tree = tree();
        let (writer, other) = (Session::new(&tree), begin(&tree));
        let (number, next) = removed_while_open(&writer, &other);
        end(other, number);
        assert_eq!(told_by_a_close(&writer, next), [number], "{how}");
        assert_eq!(told_by_a_close(&writer, next), [0; 0], "{how}: once");
    }
}

#[test]
fn what_was_left_to_delete_is_told_by_who_serves_next() {
    let kv = kv();
    let number = {
        let tree = serve(&kv);
        let (writer, other) = (Session::new(&tree), Session::new(&tree));
        let (number, _) = removed_while_open(&writer, &other);
        assert_eq!(tell_closed(&other, reading(number)), [number], "it ends before it does that");
        number
    };
    let tree = serve(&kv);
    let writer = Session::new(&tree);
    let next = match writer.call(&Request::Lookup { directory: ROOT, name: b"next" }) {
        Ok(Reply::Node(node)) => node.number,
        other => panic!("{other:?}"),
    };
    assert_eq!(told_by_a_close(&writer, next), [0; 0], "nobody asked for it");
    tree.hand_on_garbage().expect("it can be read");
    assert_eq!(told_by_a_close(&writer, next), [number]);
}

/// A user may still have to delete the object of a file that nobody else knows of any more.
#[test]
fn a_number_that_was_given_is_not_given_again_after_a_loss_of_power() {
    let world = SimWorld::new();
    let sim = world.kv();
    let clock = || Arc::new(SystemClock::default());
    let serve = || Tree::open(sim.open(), FileClock::following(clock())).expect("it is there");
    let kv = sim.open();
    Tree::create(&*kv, &TreeOptions::default(), &*clock(), &[7; 32]).expect("it is empty");
    let session = Session::new(&serve());
    make(&session, b"first", None).expect("it is new");
    session.call(&Request::Sync).expect("it can be made durable");
    let session = Session::new(&serve());
    let lost = make(&session, b"lost", None).expect("it is new").number;
    world.lose_all_unsynced();
    let session = Session::new(&serve());
    let found = session.call(&Request::Lookup { directory: ROOT, name: b"lost" });
    let found = found.map(drop).expect_err("it was not made durable");
    assert_eq!(found.errno(), Errno::NOENT);
    let next = make(&session, b"next", None).expect("it is new").number;
    assert!(next > lost, "{next} after {lost}");
}

#[test]
fn who_may_only_read_changes_nothing() {
    let tree = tree();
    let (writer, reader) = (Session::new(&tree), Session::reading(&tree));
    let number = make(&writer, b"file", Some(reserve(&writer))).expect("it is new").number;
    close(&writer, number, 5, 11);
    let before = node(&writer, number);
    let settled = Settled { size: 0, allocated_bytes: 0, modified_ns: 99 };
    for request in [
        Request::Change { number, changes: Changes { user: Some(7), ..Changes::default() } },
        Request::Make { directory: ROOT, name: b"new", made: made(None) },
        Request::Link { number, directory: ROOT, name: b"other" },
        Request::Remove { directory: ROOT, name: b"file", is_directory: false },
        Request::Settle { number, settled },
        Request::Reserve { count: 1 },
        Request::Open { number, is_for_writing: true },
    ] {
        let failure = reader.call(&request).map(drop).expect_err("it may only read");
        assert_eq!(failure.errno(), Errno::ROFS, "{request:?}");
    }
    for is_for_writing in [false, true] {
        for left in [Left::Settled(settled), Left::Untouched, Left::Unknown] {
            let open = Request::Open { number, is_for_writing: false };
            reader.call(&open).expect("it can be read");
            tell_closed(&reader, Closed { number, is_for_writing, left });
            assert_eq!(node(&writer, number), before, "{left:?}");
        }
    }
    make(&writer, b"other", None).expect("the name is free");
}

#[test]
fn who_had_a_file_open_for_reading_knows_nothing_of_its_object() {
    let tree = tree();
    let (a, b) = (Session::new(&tree), Session::new(&tree));
    let number = make(&a, b"file", Some(reserve(&a))).expect("it is new").number;
    let settled = Settled { size: 0, allocated_bytes: 0, modified_ns: 99 };
    let before = node(&a, number);
    for is_for_writing in [false, true] {
        for left in [Left::Settled(settled), Left::Untouched] {
            b.call(&Request::Open { number, is_for_writing: false }).expect("it is there");
            tell_closed(&b, Closed { number, is_for_writing, left });
            assert_eq!(node(&a, number), before, "{left:?}, a has it open for writing");
        }
    }
    close(&a, number, 5, 11);
    let node = node(&a, number);
    assert_eq!((node.size, node.is_written), (5, false), "a is the last who writes to it");
}

#[test]
fn a_file_that_lost_its_last_name_gets_no_other_one() {
    let kv = kv();
    let tree = serve(&kv);
    let (a, b) = (Session::new(&tree), Session::new(&tree));
    let link = |session: &Session, number, name| {
        session.call(&Request::Link { number, directory: ROOT, name }).map(drop)
    };
    let remove = |session: &Session, name| {
        let request = Request::Remove { directory: ROOT, name, is_directory: false };
        session.call(&request).expect("it is there");
    };
    let gone = Err(Errno::NOENT.into());
    let number = make(&a, b"a", None).expect("it is new").number;
    remove(&b, b"a");
    assert_eq!(link(&a, number, b"b"), gone, "removed");
    let number = make(&a, b"a", None).expect("it is new").number;
    make(&b, b"c", None).expect("it is new");
    let (from_directory, to_directory) = (ROOT, ROOT);
    let (from, to, how, user, group) = (&b"c"[..], &b"a"[..], Default::default(), 0, 0);
    b.call(&Request::Rename { from_directory, from, to_directory, to, how, user, group })
        .expect("both are there");
    assert_eq!(link(&a, number, b"b"), gone, "replaced");
    // One that had none so far gets one, but only once.
    let number = make(&a, b"", None).expect("it is made").number;
    link(&a, number, b"b").expect("it is new");
    link(&b, number, b"c").expect("it has one");
    remove(&b, b"c");
    link(&b, number, b"c").expect("it has one still");
    remove(&b, b"c");
    remove(&b, b"b");
    assert_eq!(link(&a, number, b"b"), gone, "removed again");
    // Of which sort it was nobody knows in a later life.
    a.leave_open();
    drop((a, b));
    let tree = serve(&kv);
    tree.await_claims(Duration::from_secs(60));
    let a = Session::new(&tree);
    a.call(&Request::Open { number, is_for_writing: true }).expect("it is there");
    link(&a, number, b"b").expect("it may have had none from the beginning");
}
