// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What many objects cost: what opening, listing and looking read, counted in rows and calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::hooked::{Call, Verdict};
use crate::common::world::{World, key, put};
use terrace_core::{
    Backend, BackendExt, Cursor, ErrorKind, Figures, Hint, Key, Kv, KvRange, Op, Pair, Persistency,
    Request, Result, Semantics, TierIndex, TierView, View,
};
use terrace_stack::{MoveKind, Stack, Tactics};
use terrace_testkit::{KvLayer, Layered, Operation};

const OBJECTS: usize = 20_000;

/// What was read of a catalog.
#[derive(Debug, Default)]
struct Counts {
    gets: AtomicUsize,
    rows: AtomicUsize,
}

impl Counts {
    fn take(&self) -> (usize, usize) {
        (self.gets.swap(0, Ordering::AcqRel), self.rows.swap(0, Ordering::AcqRel))
    }
}

/// An engine that counts.
struct Counting {
    inner: Arc<dyn Kv>,
    counts: Arc<Counts>,
}

impl KvLayer for Counting {
    fn inner(&self) -> &dyn Kv {
        &*self.inner
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.counts.gets.fetch_add(1, Ordering::AcqRel);
        self.inner.get(key)
    }

    fn scan(&self, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        let pairs = self.inner.scan(range, max)?;
        self.counts.rows.fetch_add(pairs.len(), Ordering::AcqRel);
        Ok(pairs)
    }
}

fn name(number: usize) -> Key {
    key(&format!("one-of-many-{number:06}"))
}

/// A closed store with many objects, each of which holds its number.
fn filled() -> World {
    let world = World::two();
    let stack = world.create();
    let names: Vec<_> = (0..OBJECTS).map(name).collect();
    let bytes: Vec<_> = (0..OBJECTS).map(|number| number.to_le_bytes()).collect();
    for (names, bytes) in names.chunks(1000).zip(bytes.chunks(1000)) {
        let request = |(key, data)| Request::Create { key, data, hint: Hint::default() };
        let pairs = names.iter().zip(bytes).map(|(name, bytes)| (name, bytes.as_slice()));
        let mut operations: Vec<_> = pairs.map(|pair| Op::new(request(pair))).collect();
        stack.execute(&mut operations, &Semantics::at_level(Persistency::Process));
        for operation in operations {
            operation.outcome.expect("every outcome is filled").expect("there is room");
        }
    }
    stack.close().expect("closes");
    drop(stack);
    world
}

/// Opens with the policy `lru` and few objects in memory; counts what is read of the catalog.
fn open(world: &World) -> (Stack, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let stack = world.open_with(|parts| {
        let inner = Arc::clone(&parts.catalog);
        parts.catalog = Arc::new(Layered(Counting { inner, counts: Arc::clone(&counts) }));
        parts.settings.entries_max = 64;
        let tier = |name| TierView::empty(name, Figures::default());
        let view = View::new(["fast", "slow"].map(tier).into(), 0);
        let policy = terrace_policies::create("lru", &view, &[]).expect("is built in");
        parts.tactics = Some(Tactics::new("lru", policy));
    });
    (stack, counts)
}

#[test]
fn opening_after_a_close_reads_each_record_once_and_no_tier() {
    let world = filled();
    let untouched = [Operation::List, Operation::Open, Operation::Stat, Operation::Identity];
    for tier in 0..2 {
        for operation in untouched {
            world.disk(tier).fail_always(operation, ErrorKind::Io);
        }
    }
    let (stack, counts) = open(&world);
    let (gets, rows) = counts.take();
    assert!(rows <= OBJECTS + 10, "{rows} rows");
    assert!(gets <= 10, "{gets} values");
    for tier in 0..2 {
        world.disk(tier).heal();
    }
    assert_eq!(stack.read_all(&name(77)).expect("reads"), 77_usize.to_le_bytes());
}

#[test]
fn a_page_of_a_listing_reads_that_page() {
    let world = filled();
    let (stack, counts) = open(&world);
    counts.take();
    let mut cursor = Cursor::start();
    for page_number in 0..5 {
        let page = stack.list("test", "one-of-many-01", &cursor, 100).expect("lists");
        assert_eq!(page.keys[0], name(10_000 + 100 * page_number));
        assert_eq!(counts.take(), (0, 100));
        cursor = page.next.expect("there are more");
    }
    assert_eq!(stack.namespaces().expect("lists"), ["test"]);
    assert!(counts.take().1 <= 2, "a namespace is skipped, not walked");
}

#[test]
fn a_stat_reads_one_record_and_opens_no_file() {
    let world = filled();
    let (stack, counts) = open(&world);
    counts.take();
    for tier in 0..2 {
        for operation in [Operation::Open, Operation::Identity, Operation::List] {
            world.disk(tier).fail_always(operation, ErrorKind::Io);
        }
    }
    for number in (0..OBJECTS).step_by(100) {
        let stat = stack.stat(&name(number)).expect("is there");
        assert_eq!((stat.size_bytes, stat.allocated_bytes), (8, 8));
        assert!(stat.created_ns > 0 && stat.modified_ns > 0, "{stat:?}");
    }
    assert_eq!(counts.take(), (OBJECTS / 100, 0));
    let missing = stack.stat(&key("none")).expect_err("is missing");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

#[test]
fn a_stat_of_what_moved_or_grew_is_that_of_now() {
    let world = World::two();
    let stack = world.create();
    let moved = key("moved");
    put(&stack, &moved, &[1; 5000]);
    let before = stack.stat(&moved).expect("is there");
    crate::common::world::migrate(&stack, &moved, TierIndex(1), MoveKind::Move);
    let after = stack.stat(&moved).expect("is there");
    assert_eq!((after.size_bytes, after.modified_ns), (5000, before.modified_ns));
    stack.delete(&moved).expect("is there");
    assert_eq!(stack.stat(&moved).expect_err("is gone").kind(), ErrorKind::NotFound);
}

/// A cache of open files that counts every close would be full after the first thousand.
#[test]
fn objects_that_are_used_again_and_again_keep_their_files_open() {
    let world = World::two();
    let stack = world.create();
    let names: Vec<_> = (0..10).map(name).collect();
    names.iter().for_each(|name| put(&stack, name, b"data"));
    let opens = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&opens);
    world.tier(0).on(move |moment| {
        let is_open = moment.call == Call::Open && !moment.is_done;
        counted.fetch_add(usize::from(is_open), Ordering::AcqRel);
        Verdict::Go
    });
    for _ in 0..300 {
        for name in &names {
            assert_eq!(stack.read_all(name).expect("reads"), b"data");
        }
    }
    let opens = opens.load(Ordering::Acquire);
    assert!(opens <= names.len(), "{opens} files were opened for {} objects", names.len());
}
