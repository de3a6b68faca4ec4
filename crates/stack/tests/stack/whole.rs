// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tiers that take whole objects only: nothing is written there but by migrations, and what is written
//! to an object there is recalled first.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::crashing::Crash;
use crate::common::hooked::{Call, Verdict};
use crate::common::scripted::Shared;
use crate::common::world::{
    LONG, ROOMY, World, assert_sound, bounded, cutting, eventually, key, migrate, outcome_of,
    promise_nothing, put,
};
use tempfile::NamedTempFile;
use terrace_backends::object::{S3, S3Settings};
use terrace_core::{
    Backend, BackendExt, End, ErrorKind, Hint, Identity, Key, Object, ObjectExt, Open, Persistency,
    Placed, Placement, Placer, Role, Semantics, TierIndex,
};
use terrace_stack::{MoveKind, Parts, Stack, Tier};
use terrace_testkit::s3::{BUCKET, KEY_ID, REGION, S3Fault, S3FaultPoint, S3Server, SECRET};
use terrace_testkit::{SimWorld, pattern_bytes};

const FAST: TierIndex = TierIndex(0);
const SLOW: TierIndex = TierIndex(1);

fn world() -> World {
    World::two().whole("slow")
}

fn tier_of(stack: &Stack, name: &Key) -> String {
    stack.explain(name).expect("exists").segments.remove(0).tier
}

/// An object on the slow tier, and what it holds.
fn slow(stack: &Stack, name: &str) -> (Key, Vec<u8>) {
    let (name, data) = (key(name), pattern_bytes(name.len() as u64, 0, 0, 50_000));
    put(stack, &name, &data);
    migrate(stack, &name, SLOW, MoveKind::Move);
    assert_eq!(tier_of(stack, &name), "slow");
    (name, data)
}

#[test]
fn every_change_recalls_and_keeps_all_other_bytes() {
    type Change = fn(&dyn Object, &mut Vec<u8>);
    let changes: [(&str, Change); 8] = [
        ("write", |object, data| {
            object.write(1000, b"new").expect("written");
            data[1000..1003].copy_from_slice(b"new");
        }),
        ("write behind the end", |object, data| {
            object.write(60_000, b"new").expect("written");
            data.resize(60_000, 0);
            data.extend_from_slice(b"new");
        }),
        ("append", |object, data| {
            assert_eq!(object.append(&[IoSlice::new(b"new")]).expect("written"), 50_000);
            data.extend_from_slice(b"new");
        }),
        ("cut", |object, data| {
            object.set_len(100).expect("cut");
            data.truncate(100);
        }),
        ("empty", |object, data| {
            object.set_len(0).expect("cut");
            data.clear();
        }),
        ("grow", |object, data| {
            object.set_len(70_000).expect("grown");
            data.resize(70_000, 0);
        }),
        ("punch", |object, data| {
            object.punch(4096..8192).expect("punched");
            data[4096..8192].fill(0);
        }),
        ("allocate", |object, data| {
            object.allocate(0..80_000, End::Grows).expect("allocated");
            data.resize(80_000, 0);
        }),
    ];
    let world = world();
    let stack = world.create();
    for (what, change) in changes {
        let (name, mut data) = slow(&stack, what);
        let object = stack.open(&name, &Open::write()).expect("opens");
        change(&*object, &mut data);
        assert_eq!(tier_of(&stack, &name), "fast", "{what}");
        assert!(object.read_to_end().expect("reads") == data, "{what}");
        let explanation = stack.explain(&name).expect("exists");
        let last = explanation.segments[0].history.last().expect("it moved").clone();
        assert!(last.reason.contains("whole objects"), "{what}: {last:?}");
        // And back again, as it is now.
        object.sync().expect("synced");
        drop(object);
        migrate(&stack, &name, SLOW, MoveKind::Move);
        assert!(stack.read_all(&name).expect("reads") == data, "{what}");
    }
    assert_sound(&world, &stack);
}

/// Bytes that compression makes less of.
fn text(bytes: usize) -> Vec<u8> {
    b"all work and no play ".iter().copied().cycle().take(bytes).collect()
}

#[test]
fn what_a_framed_tier_takes_is_accounted() {
    for world in [World::two().framed("slow"), World::two().whole("slow").framed("slow")] {
        let stack = world.create();
        let (name, data) = (key("text"), text(3_000_000));
        put(&stack, &name, &data);
        let used = |tier: TierIndex| stack.tiers()[tier.index()].used_bytes;
        assert_eq!((used(FAST), used(SLOW)), (3_000_000, 0));
        migrate(&stack, &name, SLOW, MoveKind::Move);
        let packed = used(SLOW);
        assert!((1..100_000).contains(&packed), "{packed} of 3000000");
        let explanation = stack.explain(&name).expect("exists");
        assert_eq!(explanation.segments[0].allocated_bytes, packed);
        assert_eq!(stack.stat(&name).expect("there").size_bytes, 3_000_000);
        assert!(stack.read_all(&name).expect("reads") == data);
        assert_sound(&world, &stack);
        // The way back, and a copy, take all of it.
        migrate(&stack, &name, FAST, MoveKind::Copy);
        assert_eq!(used(SLOW), 3_000_000, "copies are accounted with their primary");
        assert_eq!(stack.tiers()[0].copy_bytes, 3_000_000);
        assert_sound(&world, &stack);
        stack.drop_copy(&name, FAST).expect("dropped");
        assert_eq!(used(SLOW), packed);
        assert_sound(&world, &stack);
        migrate(&stack, &name, FAST, MoveKind::Promote);
        assert_eq!((used(FAST), used(SLOW)), (3_000_000, 0));
        migrate(&stack, &name, SLOW, MoveKind::Move);
        assert_eq!((used(FAST), used(SLOW)), (0, packed), "the copy became the primary");
        assert_sound(&world, &stack);
        drop(stack);
        let stack = world.open();
        assert_eq!(stack.tiers()[1].used_bytes, packed);
        stack.open(&name, &Open::write()).expect("opens").write(7, b"new").expect("recalled");
        assert_eq!((stack.tiers()[0].used_bytes, stack.tiers()[1].used_bytes), (3_000_000, 0));
        stack.delete(&name).expect("deleted");
        assert_sound(&world, &stack);
        eventually("the files are gone", || world.disk_of("slow").files().is_empty());
    }
}

#[test]
fn reads_attributes_and_syncs_recall_nothing() {
    let world = world();
    let stack = world.create();
    let (name, data) = slow(&stack, "read");
    let object = stack.open(&name, &Open::write()).expect("opens");
    assert!(object.read_to_end().expect("reads") == data);
    assert_eq!(object.next_data(100).expect("asked"), Some(100..50_000));
    object.set_modified(1_234_567_890).expect("set");
    assert_eq!(object.stat().expect("there").modified_ns, 1_234_567_890);
    object.set_len(50_000).expect("it is that long");
    object.sync().expect("synced");
    assert!(object.lease_file().expect("asked").is_none());
    assert!(object.hold_file(terrace_core::Access::Write).expect("asked").is_none());
    drop(object);
    let how = Open::write().with_semantics(Semantics::at_level(Persistency::Storage));
    drop(stack.open(&name, &how).expect("it is durable"));
    assert_eq!(tier_of(&stack, &name), "slow");
    assert_eq!(stack.stat(&name).expect("there").modified_ns, 1_234_567_890);
    stack.delete(&name).expect("deleted");
    assert_sound(&world, &stack);
    eventually("the file is gone", || world.disk_of("slow").files().is_empty());
}

#[test]
fn new_data_never_goes_to_such_a_tier() {
    /// Wants everything on the slow tier.
    #[derive(Debug)]
    struct Down;
    impl Placer for Down {
        fn place(&self, _: &Placement<'_>) -> Placed {
            Placed::on(SLOW)
        }
    }
    let world = world();
    let stack = world.create_with(|parts| {
        parts.tactics = Some(Shared::with_placer(Arc::new(Down)).tactics("down"));
    });
    let cold = Open { hint: Hint::default(), ..Open::create_new() };
    for name in ["new", "draft"].map(key) {
        match name.name() {
            "new" => drop(stack.open(&name, &cold).expect("made")),
            _ => stack.put(&name, &[7; 10_000], &cold).expect("put"),
        }
        let segment = stack.explain(&name).expect("exists").segments.remove(0);
        assert_eq!(segment.tier, "fast");
        let spilled = segment.history.iter().any(|item| item.what == "spilled");
        assert!(!spilled, "it is where it should be: {:?}", segment.history);
    }
    // A put over what is there makes no use of it.
    let (name, _) = slow(&stack, "replaced");
    stack.put(&name, b"next", &Open::create()).expect("put");
    assert_eq!(
        (tier_of(&stack, &name).as_str(), stack.read_all(&name).expect("reads")),
        ("fast", b"next".to_vec())
    );
    assert_sound(&world, &stack);
}

#[test]
fn a_full_tier_spills_to_none_that_takes_whole_objects() {
    let tiers = [
        ("fast", 64 << 10, Persistency::Storage),
        ("slow", ROOMY, Persistency::Storage),
        ("third", 64 << 10, Persistency::Storage),
    ];
    let world = World::with(&tiers).whole("slow");
    let stack = world.create();
    let object = stack.open(&key("large"), &Open::create_new()).expect("made");
    object.write(0, &[7; 100 << 10]).expect("both have room");
    let full = object.write(100 << 10, &[7; 40 << 10]).expect_err("all are full");
    assert_eq!(full.kind(), ErrorKind::NoSpace);
    let segments = stack.explain(&key("large")).expect("exists").segments;
    assert!(segments.iter().all(|segment| segment.tier != "slow"), "{segments:?}");
    // What is recalled needs room as well, and stays as it is without.
    drop(object);
    migrate(&stack, &key("large"), SLOW, MoveKind::Move);
    put(&stack, &key("first"), &[1; 60 << 10]);
    put(&stack, &key("second"), &[1; 60 << 10]);
    let object = stack.open(&key("large"), &Open::write()).expect("opens");
    let full = object.write(0, b"new").expect_err("there is no room to recall it");
    assert_eq!(full.kind(), ErrorKind::NoSpace, "{}", full.chain());
    assert!(full.chain().contains("in place"), "{}", full.chain());
    assert!(object.read_to_end().expect("reads")[..100 << 10].iter().all(|byte| *byte == 7));
    stack.delete(&key("first")).expect("deleted");
    stack.delete(&key("second")).expect("deleted");
    object.write(0, b"new").expect("now there is");
    drop(object);
    assert_sound(&world, &stack);
}

#[test]
fn the_policy_says_where_recalled_objects_go() {
    #[derive(Debug)]
    struct Third;
    impl Placer for Third {
        fn place(&self, new: &Placement<'_>) -> Placed {
            Placed::on(TierIndex(if new.size_hint_bytes == Some(50_000) { 2 } else { 0 }))
        }
    }
    let world = World::three().whole("slow");
    let stack = world.create_with(|parts| {
        parts.tactics = Some(Shared::with_placer(Arc::new(Third)).tactics("third"));
    });
    let (name, _) = slow(&stack, "recalled");
    stack.open(&name, &Open::write()).expect("opens").write(5, b"new").expect("written");
    assert_eq!(tier_of(&stack, &name), "third");
    // A clean copy comes first: no byte is copied.
    let (name, _) = slow(&stack, "copied");
    migrate(&stack, &name, FAST, MoveKind::Copy);
    let before = stack.tiers()[0].ledger.moved_in_bytes;
    stack.open(&name, &Open::write()).expect("opens").write(5, b"new").expect("written");
    assert_eq!(tier_of(&stack, &name), "fast");
    assert_eq!(stack.tiers()[0].ledger.moved_in_bytes, before);
    assert_sound(&world, &stack);
}

#[test]
fn a_pinned_object_is_not_recalled() {
    let world = world();
    let stack = world.create();
    let (name, data) = slow(&stack, "pinned");
    stack.pin(&name).expect("pinned");
    let object = stack.open(&name, &Open::write()).expect("opens");
    let denied = object.write(0, b"new").expect_err("it is pinned");
    assert_eq!(denied.kind(), ErrorKind::Denied);
    assert!(denied.chain().contains("unpin"), "{}", denied.chain());
    assert!(object.read_to_end().expect("reads") == data);
    stack.unpin(&name).expect("unpinned");
    object.write(0, b"new").expect("written");
    drop(object);
    assert_sound(&world, &stack);
}

#[test]
fn a_write_ends_the_making_of_a_whole_object() {
    let world = world();
    let stack = world.create();
    let name = key("hot");
    put(&stack, &name, &[1; 50_000]);
    let object: Arc<dyn Object> = stack.open(&name, &Open::write()).expect("opens").into();
    // Between the copying and the switch: while the new file is synced.
    let (writer, has_written) = (Arc::clone(&object), AtomicBool::new(false));
    world.tier(1).on(move |moment| {
        let is_sync = moment.call == Call::Sync && !moment.is_done;
        if is_sync && !has_written.swap(true, Ordering::SeqCst) {
            writer.write(7, b"while it moves").expect("written");
        }
        Verdict::Go
    });
    let tickets = stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued");
    let report = stack.wait(tickets[0], LONG).expect("known").expect("ends");
    assert_eq!(outcome_of(&report), "hot-write", "{report:?}");
    world.tier(1).heal();
    drop(object);
    let mut data = [1; 50_000];
    data[7..21].copy_from_slice(b"while it moves");
    assert_eq!(stack.read_all(&name).expect("reads"), data);
    assert_sound(&world, &stack);
    eventually("nothing is left", || world.disk_of("slow").files().is_empty());
    migrate(&stack, &name, SLOW, MoveKind::Move);
    assert_eq!(stack.read_all(&name).expect("reads"), data);
}

#[test]
fn writers_of_one_object_at_once_recall_it_once() {
    const WRITERS: usize = 8;
    let world = Arc::new(world());
    let stack = Arc::new(world.create());
    let (name, mut data) = slow(&stack, "many");
    let moves = stack.tiers()[0].ledger.moves_in;
    let threads: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (stack, name) = (Arc::clone(&stack), name.clone());
            std::thread::spawn(move || {
                let object = stack.open(&name, &Open::write()).expect("opens");
                object.write(writer as u64 * 1000, &[writer as u8; 500]).expect("written");
            })
        })
        .collect();
    for (writer, thread) in threads.into_iter().enumerate() {
        thread.join().expect("it ends well");
        data[writer * 1000..writer * 1000 + 500].fill(writer as u8);
    }
    assert!(stack.read_all(&name).expect("reads") == data);
    assert_eq!(stack.tiers()[0].ledger.moves_in, moves + 1);
    assert_sound(&world, &stack);
}

/// A policy that moves everything down at once cannot keep writers from getting on.
#[test]
fn writers_and_a_policy_that_demotes_get_on() {
    let world = Arc::new(world());
    let stack = Arc::new(world.create());
    let (name, mut data) = slow(&stack, "contested");
    let is_over = Arc::new(AtomicBool::new(false));
    let (demoting, over, contested) = (Arc::clone(&stack), Arc::clone(&is_over), name.clone());
    let demoter = std::thread::spawn(move || {
        while !over.load(Ordering::SeqCst) {
            let queued = demoting.migrate(&contested, SLOW, MoveKind::Move, 0, "down");
            for ticket in queued.into_iter().flatten() {
                let _ = demoting.wait(ticket, LONG);
            }
        }
    });
    let (writing, written) = (Arc::clone(&stack), name.clone());
    bounded(LONG, "writing", move || {
        let object = writing.open(&written, &Open::write()).expect("opens");
        for round in 0..100_u64 {
            object.write(round * 100, &round.to_le_bytes()).expect("written");
        }
    });
    for round in 0..100_usize {
        data[round * 100..round * 100 + 8].copy_from_slice(&(round as u64).to_le_bytes());
    }
    is_over.store(true, Ordering::SeqCst);
    demoter.join().expect("it ends well");
    assert!(stack.read_all(&name).expect("reads") == data);
    assert_sound(&world, &stack);
}

#[test]
fn a_store_of_such_tiers_alone_is_refused() {
    let world = world();
    let refused = world.try_open_with(|parts| parts.tiers.retain(|tier| tier.name == "slow"));
    let error = refused.err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.chain().contains("whole objects only"), "{}", error.chain());
    let stack = world.create();
    put(&stack, &key("one"), b"bytes");
    let error = stack.drain_tier("fast").expect_err("where should new data go?");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.chain());
    migrate(&stack, &key("one"), SLOW, MoveKind::Move);
    let error = stack.remove_tier("fast").expect_err("it is the only one to write to");
    assert!(error.chain().contains("whole objects only"), "{}", error.chain());
    stack.drain_tier("slow").expect("begun");
    eventually("it is empty", || tier_of(&stack, &key("one")) == "fast");
    assert_eq!(stack.read_all(&key("one")).expect("reads"), b"bytes");
}

#[test]
fn without_a_shared_log_the_level_shared_is_refused() {
    let world = world();
    let stack = world.create();
    let tiers = stack.tiers();
    let told = |tier: usize| (tiers[tier].persistency.as_str(), tiers[tier].writes.as_str());
    assert_eq!((told(0), told(1)), (("storage", "in-place"), ("shared", "whole")));
    assert_eq!(stack.capability().persistency, Persistency::Storage);
    let how = Open::create_new().with_semantics(Semantics::at_level(Persistency::Shared));
    let error = stack.open(&key("shared"), &how).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{}", error.chain());
}

#[test]
fn what_was_promised_behind_the_end_stays_where_it_is() {
    let world = world();
    let stack = world.create();
    let name = key("promised");
    put(&stack, &name, &[1; 10_000]);
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.allocate(0..40_000, End::Stays).expect("promised");
    let tickets = stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued");
    let report = stack.wait(tickets[0], LONG).expect("known").expect("ends");
    assert_eq!(outcome_of(&report), "no-space", "{report:?}");
    assert!(report.detail.contains("promised"), "{report:?}");
    object.set_len(10_000).expect("given back");
    drop(object);
    migrate(&stack, &name, SLOW, MoveKind::Move);
    // And a promise to what is there recalls it.
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.allocate(0..40_000, End::Stays).expect("promised");
    assert_eq!(tier_of(&stack, &name), "fast");
    drop(object);
    assert_sound(&world, &stack);
}

#[test]
fn scrubs_and_copies_know_such_tiers() {
    let world = world();
    let stack = world.create();
    let (name, data) = slow(&stack, "promoted");
    // The primary comes up, and what it came from stays as a copy.
    migrate(&stack, &name, FAST, MoveKind::Promote);
    let segment = stack.explain(&name).expect("exists").segments.remove(0);
    assert_eq!((segment.tier.as_str(), segment.copies), ("fast", vec!["slow".to_string()]));
    assert_sound(&world, &stack);
    // It goes down again without a byte being copied.
    let before = stack.tiers()[1].ledger.moved_in_bytes;
    migrate(&stack, &name, SLOW, MoveKind::Move);
    assert_eq!(stack.tiers()[1].ledger.moved_in_bytes, before);
    assert!(stack.read_all(&name).expect("reads") == data);
    assert_sound(&world, &stack);
    // A write drops the copy there.
    migrate(&stack, &name, FAST, MoveKind::Promote);
    stack.open(&name, &Open::write()).expect("opens").write(0, b"new").expect("written");
    eventually("the copy is gone", || world.disk_of("slow").files().is_empty());
    assert_sound(&world, &stack);
}

/// A store over a bucket of a real service.
pub(crate) struct Bucket {
    pub(crate) sim: Arc<SimWorld>,
    tier: terrace_testkit::SimTier,
    kv: terrace_testkit::SimKv,
    settings: S3Settings,
    pub(crate) server: S3Server,
    _credentials: NamedTempFile,
}

impl Bucket {
    pub(crate) fn new(deadline: Duration) -> Self {
        let server = S3Server::start();
        let file = NamedTempFile::new().expect("a temporary file");
        let text =
            format!("[default]\naws_access_key_id={KEY_ID}\naws_secret_access_key={SECRET}\n");
        std::fs::write(file.path(), text).expect("written");
        let settings = S3Settings {
            endpoint: Some(server.endpoint()),
            region: Some(REGION.into()),
            prefix: "store".into(),
            credentials: Some(file.path().into()),
            deadline,
            ..S3Settings::new(BUCKET)
        };
        let sim = SimWorld::new();
        let (tier, kv) = (sim.tier("fast", ROOMY), sim.kv());
        Self { sim, tier, kv, settings, server, _credentials: file }
    }

    pub(crate) fn parts(&self) -> Parts {
        let slow = S3::open(&self.settings, u64::MAX, false).expect("opened");
        let fast = Tier::new("fast", self.tier.open()).with_capacity(ROOMY);
        let tiers = vec![fast, Tier::new("slow", Arc::new(slow))];
        let mut parts = Parts::new(tiers, self.kv.open());
        parts.settings.boot_id = self.sim.boot_id();
        parts
    }

    fn create(&self) -> Stack {
        Stack::create(&self.parts()).unwrap_or_else(|error| panic!("{}", error.chain()));
        self.open()
    }

    fn open(&self) -> Stack {
        Stack::open(self.parts()).unwrap_or_else(|error| panic!("{}", error.chain()))
    }

    fn fault(&self, kind: &'static str, times: u64, fault: S3Fault) {
        self.server.inject(S3FaultPoint { kind, name: String::new(), times, fault });
    }

    /// Checks everything, and that the bucket has just these objects of segments.
    pub(crate) fn assert_sound(&self, stack: &Stack, objects: usize) {
        assert!(stack.wait_idle(LONG), "migrations end");
        let is_tidy = || {
            let names = self.server.names();
            names.iter().filter(|name| name.starts_with("store/o/seg/")).count() == objects
        };
        eventually("the bucket has what it should have", is_tidy);
        let check = stack.check(true, &mut |_, _| {}).expect("checked");
        assert!(check.problems.is_empty(), "{:?}", check.problems);
    }
}

fn outcome(stack: &Stack, name: &Key, to: TierIndex) -> terrace_stack::report::MoveReport {
    let tickets = stack.migrate(name, to, MoveKind::Move, 0, "test").expect("queued");
    stack.wait(tickets[0], LONG).expect("known").expect("ends")
}

#[test]
fn objects_go_to_a_bucket_and_come_back() {
    let bucket = Bucket::new(Duration::from_secs(20));
    let stack = bucket.create();
    let sizes = [0_usize, 1, 100_000, 20 << 20];
    let names = sizes.map(|bytes| key(&format!("object{bytes}")));
    let mut contents = sizes.map(|bytes| pattern_bytes(bytes as u64, 0, 0, bytes));
    for (name, data) in names.iter().zip(&contents) {
        put(&stack, name, data);
        migrate(&stack, name, SLOW, MoveKind::Move);
    }
    bucket.assert_sound(&stack, 4);
    for (name, data) in names.iter().zip(&contents) {
        assert!(stack.read_all(name).expect("reads") == *data);
        assert_eq!(tier_of(&stack, name), "slow");
    }
    stack.close().expect("closes");
    let stack = bucket.open();
    for (name, data) in names.iter().zip(&mut contents) {
        let object = stack.open(name, &Open::write()).expect("opens");
        object.append(&[IoSlice::new(b"more")]).expect("written");
        data.extend_from_slice(b"more");
        assert!(object.read_to_end().expect("reads") == *data);
    }
    bucket.assert_sound(&stack, 0);
    for name in &names[..3] {
        migrate(&stack, name, SLOW, MoveKind::Move);
    }
    // A crash: recovery lists the bucket and finds what it should have.
    bucket.sim.freeze();
    drop(stack);
    bucket.sim.crash_process();
    bucket.server.plant_upload("store/o/seg/0000000000000001.0.99");
    bucket.server.counts();
    let stack = bucket.open();
    let counts: Vec<_> = bucket.server.counts().into_iter().collect();
    assert_eq!(
        counts,
        [("ABORT", 1), ("GET", 1), ("LIST", 2), ("LIST-UPLOADS", 1), ("PUT", 2)],
        "recovery does not ask for each object"
    );
    assert_eq!(bucket.server.uploads(), 0, "uploads of the crashed process are aborted");
    for (name, data) in names.iter().zip(&contents) {
        assert!(stack.read_all(name).expect("reads") == *data);
    }
    for name in &names {
        stack.delete(name).expect("deleted");
    }
    bucket.assert_sound(&stack, 0);
}

/// Neither of its copies, nor of what is to be deleted there.
#[test]
fn a_recovery_asks_a_bucket_for_no_single_file() {
    let bucket = Bucket::new(Duration::from_secs(20));
    let stack = bucket.create();
    let names: Vec<_> = (0..5).map(|index| key(&format!("copied{index}"))).collect();
    for name in &names {
        put(&stack, name, &[7; 10_000]);
        migrate(&stack, name, SLOW, MoveKind::Copy);
    }
    // Room behind an end, which a recovery takes anew.
    let object = stack.open(&names[0], &Open::write()).expect("opens");
    object.allocate(0..20_000, End::Stays).expect("there is room");
    drop(object);
    stack.sync_all().expect("synced");
    bucket.sim.freeze();
    drop(stack);
    bucket.sim.crash_process();
    bucket.server.counts();
    let stack = bucket.open();
    let listed = [("GET", 1), ("LIST", 2), ("LIST-UPLOADS", 1), ("PUT", 2)];
    assert_eq!(bucket.server.counts().into_iter().collect::<Vec<_>>(), listed, "copies stay");
    for name in &names {
        assert_eq!(stack.explain(name).expect("there").segments[0].copies, ["slow"]);
    }
    bucket.assert_sound(&stack, 5);
    stack.sync_all().expect("synced");
    bucket.sim.freeze();
    drop(stack);
    bucket.sim.lose_all_unsynced();
    bucket.server.counts();
    let stack = bucket.open();
    // They are deleted in the background.
    eventually("the copies are gone", || stack.tiers()[1].garbage_bytes == 0);
    let mut counts = bucket.server.counts();
    assert!(counts.remove("DELETE").is_some(), "after a loss of power they go");
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), listed);
    bucket.assert_sound(&stack, 0);
}

/// A copy is marked as the coming primary before the catalog says so.
#[test]
fn a_mark_of_a_switch_that_a_crash_ended_is_put_right() {
    let bucket = Bucket::new(Duration::from_secs(20));
    let stack = bucket.create();
    for index in 0..5 {
        let name = key(&format!("copied{index}"));
        put(&stack, &name, &[7; 10_000]);
        migrate(&stack, &name, SLOW, MoveKind::Copy);
    }
    stack.sync_all().expect("synced");
    bucket.sim.freeze();
    drop(stack);
    bucket.sim.crash_process();
    let slow = S3::open(&bucket.settings, u64::MAX, false).expect("opened");
    let file = slow.list_all("seg", "").expect("listed").remove(2);
    let backend: &dyn Backend = &slow;
    let copy = backend.identity(&file).expect("read").expect("it has one");
    assert_eq!(copy.role, Role::Copy);
    let announced = Identity { generation: 1000, role: Role::Primary, ..copy.clone() };
    backend.set_identity(&file, &announced).expect("marked");
    bucket.server.counts();
    let stack = bucket.open();
    let counts = bucket.server.counts();
    let (asked, marked) = (counts.get("HEAD"), counts.get("PUT"));
    assert_eq!((asked, marked), (Some(&2), Some(&3)), "one copy is asked, and marked: {counts:?}");
    assert_eq!(backend.identity(&file).expect("read"), Some(copy));
    bucket.assert_sound(&stack, 5);
}

#[test]
fn requests_of_each_step_are_as_documented() {
    let bucket = Bucket::new(Duration::from_secs(20));
    let stack = bucket.create();
    let counts = || drop(bucket.server.counts());
    // Some are made in the background.
    let assert_counts = |expected: &[(&str, u64)], what: &str| {
        let mut all = BTreeMap::new();
        eventually(what, || {
            for (kind, count) in bucket.server.counts() {
                *all.entry(kind).or_default() += count;
            }
            all.iter().map(|(kind, count)| (*kind, *count)).eq(expected.iter().copied())
        });
    };
    let name = key("counted");
    put(&stack, &name, &pattern_bytes(1, 0, 0, 100_000));
    counts();
    migrate(&stack, &name, SLOW, MoveKind::Move);
    assert_counts(&[("PUT", 1)], "a migration");
    assert!(stack.read_all(&name).expect("reads").len() == 100_000);
    assert_counts(&[("GET", 2), ("HEAD", 1)], "opening it, and one read");
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.write(0, b"recalled").expect("written");
    drop(object);
    assert_counts(&[("DELETE", 2), ("GET", 1)], "a recall of what was open");
    migrate(&stack, &name, SLOW, MoveKind::Copy);
    assert_counts(&[("PUT", 1)], "a copy");
    migrate(&stack, &name, SLOW, MoveKind::Move);
    assert_counts(&[("GET", 1), ("HEAD", 1), ("PUT", 1)], "the copy becomes the primary");
    stack.delete(&name).expect("deleted");
    assert_counts(&[("DELETE", 2)], "deleting");
    eventually("its row is gone", || stack.tiers()[1].garbage_bytes == 0);
    stack.close().expect("closes");
    counts();
    let stack = bucket.open();
    let opening: Vec<_> = bucket.server.counts().into_iter().collect();
    assert_eq!(opening, [("GET", 1), ("PUT", 2)]);
    drop(stack);
}

#[test]
fn faults_of_the_service_lose_nothing_and_migrations_go_on() {
    let bucket = Bucket::new(Duration::from_secs(2));
    let stack = bucket.create();
    let (name, data) = (key("kept"), pattern_bytes(1, 0, 0, 300_000));
    put(&stack, &name, &data);
    let faults = [
        ("PUT", S3Fault::Refuse(503, "SlowDown")),
        ("PUT", S3Fault::Refuse(500, "InternalError")),
        ("PUT", S3Fault::Refuse(403, "AccessDenied")),
        ("PUT", S3Fault::Refuse(404, "NoSuchBucket")),
        ("PUT", S3Fault::LoseAnswer),
        ("", S3Fault::Stall(Duration::from_secs(4))),
    ];
    for (kind, fault) in faults {
        bucket.fault(kind, 1_000_000, fault);
        let report = outcome(&stack, &name, SLOW);
        assert_eq!(outcome_of(&report), "io", "{fault:?}: {report:?}");
        assert!(!report.detail.is_empty(), "{fault:?} is explained");
        assert_eq!(tier_of(&stack, &name), "fast");
        assert!(stack.read_all(&name).expect("reads") == data);
        bucket.server.heal();
        let report = outcome(&stack, &name, SLOW);
        assert_eq!(outcome_of(&report), "done", "after {fault:?}: {report:?}");
        assert!(stack.read_all(&name).expect("reads") == data);
        // And back, against what goes wrong with reads.
        bucket.fault("GET", 1_000_000, S3Fault::Truncate(1000));
        let object = stack.open(&name, &Open::write()).expect("opens");
        let failed = object.write(0, b"new").expect_err("it cannot be recalled");
        assert_eq!(failed.kind(), ErrorKind::Io, "{}", failed.chain());
        bucket.server.heal();
        assert_eq!(tier_of(&stack, &name), "slow");
        object.write(0, &data[..3]).expect("recalled");
        assert_eq!(tier_of(&stack, &name), "fast");
        drop(object);
        bucket.assert_sound(&stack, 0);
    }
}

#[test]
fn a_vanished_bucket_fails_clearly_and_comes_back_whole() {
    let bucket = Bucket::new(Duration::from_secs(2));
    let stack = bucket.create();
    let (down, up) = (key("down"), key("up"));
    let data = pattern_bytes(1, 0, 0, 100_000);
    put(&stack, &down, &data);
    put(&stack, &up, &data);
    migrate(&stack, &down, SLOW, MoveKind::Move);
    let taken = bucket.server.take_bucket();
    let failed = stack.read_all(&down).expect_err("there is no bucket");
    assert_eq!(failed.kind(), ErrorKind::Io);
    assert!(failed.chain().contains("no such bucket"), "{}", failed.chain());
    assert_eq!(outcome_of(&outcome(&stack, &up, SLOW)), "io");
    assert_eq!(outcome_of(&outcome(&stack, &down, FAST)), "io");
    // What needs no bucket goes on.
    put(&stack, &key("new"), &data);
    assert!(stack.read_all(&up).expect("reads") == data);
    bucket.server.put_back(taken);
    assert_eq!(outcome_of(&outcome(&stack, &up, SLOW)), "done");
    assert_eq!(outcome_of(&outcome(&stack, &down, FAST)), "done");
    for name in [&down, &up, &key("new")] {
        assert!(stack.read_all(name).expect("reads") == data);
    }
    bucket.assert_sound(&stack, 1);
}

/// What a damaged object of the bucket returns is noticed when it is verified.
#[test]
fn a_damaged_object_of_a_bucket_is_found() {
    let bucket = Bucket::new(Duration::from_secs(20));
    let stack = bucket.create();
    let (name, data) = (key("damaged"), pattern_bytes(1, 0, 0, 100_000));
    put(&stack, &name, &data);
    migrate(&stack, &name, SLOW, MoveKind::Move);
    bucket.assert_sound(&stack, 1);
    let stored = bucket.server.names().into_iter().find(|name| name.contains("/o/seg/"));
    bucket.server.damage(&stored.expect("it is there"), 5000);
    let check = stack.check(true, &mut |_, _| {}).expect("checked");
    assert_eq!(check.problems.len(), 1, "{:?}", check.problems);
    let report = outcome(&stack, &name, FAST);
    assert_eq!(outcome_of(&report), "io", "{report:?}");
    assert!(report.detail.contains("checksum"), "{report:?}");
}

/// What is in a bucket is not changed by a loss of power.
#[test]
fn a_loss_of_power_leaves_the_checksums_of_a_bucket() {
    let world = world();
    let stack = world.create();
    let (name, data) = slow(&stack, "kept");
    stack.sync_all().expect("synced");
    world.failpoints().freeze();
    drop(stack);
    world.crash(Crash::Power { seed: 1 });
    let disk = world.disk(1);
    let stored = disk.files().into_iter().find(|file| file.length_bytes == data.len() as u64);
    let stored = disk.open().open(&stored.expect("it is there").key, &Open::write());
    stored.expect("opens").write(5000, b"damage").expect("written");
    let stack = world.open();
    let tickets = stack.migrate(&name, FAST, MoveKind::Move, 0, "test").expect("queued");
    let report = stack.wait(tickets[0], LONG).expect("known").expect("ends");
    assert_eq!(outcome_of(&report), "io", "{report:?}");
    assert!(report.detail.contains("checksum"), "{report:?}");
}

/// A file in the bucket that no record names is reported.
#[test]
fn orphans_in_a_bucket_are_found_by_listing() {
    let bucket = Bucket::new(Duration::from_secs(20));
    let stack = bucket.create();
    bucket.server.plant("store/o/seg/00000000000000ff.0.ff", b"whose is this?");
    let check = stack.check(false, &mut |_, _| {}).expect("checked");
    let said: Vec<_> = check.problems.iter().chain(&check.notes).cloned().collect();
    assert!(
        said.iter().any(|one| format!("{one:?}").contains("00000000000000ff.0.ff")),
        "{said:?}"
    );
}

/// Reads from several places of one object at once, while it is recalled.
#[test]
fn readers_go_on_while_an_object_is_recalled() {
    let bucket = Bucket::new(Duration::from_secs(20));
    let stack = Arc::new(bucket.create());
    let (name, data) = (key("read"), pattern_bytes(1, 0, 0, 6 << 20));
    put(&stack, &name, &data);
    migrate(&stack, &name, SLOW, MoveKind::Move);
    let is_over = Arc::new(AtomicBool::new(false));
    let reads = Arc::new(AtomicUsize::new(0));
    let failure = Arc::new(Mutex::new(None));
    let readers: Vec<_> = (0..3)
        .map(|reader| {
            let (stack, name, data) = (Arc::clone(&stack), name.clone(), data.clone());
            let (is_over, reads) = (Arc::clone(&is_over), Arc::clone(&reads));
            let failure = Arc::clone(&failure);
            std::thread::spawn(move || {
                let object = stack.open(&name, &Open::read()).expect("opens");
                let mut at = reader * (2 << 20);
                let mut piece = vec![0; 100_000];
                while !is_over.load(Ordering::SeqCst) {
                    let count = object.read(at as u64, &mut piece).expect("reads");
                    if piece[..count] != data[at..at + count] {
                        *failure.lock().expect("never poisoned") = Some(at);
                    }
                    reads.fetch_add(1, Ordering::SeqCst);
                    at = if count == 0 { 0 } else { at + count };
                }
            })
        })
        .collect();
    eventually("they read", || reads.load(Ordering::SeqCst) > 10);
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.write(3, &data[3..9]).expect("recalled");
    let before = reads.load(Ordering::SeqCst);
    eventually("they go on", || reads.load(Ordering::SeqCst) > before + 100);
    is_over.store(true, Ordering::SeqCst);
    readers.into_iter().for_each(|reader| reader.join().expect("it ends well"));
    assert_eq!(*failure.lock().expect("never poisoned"), None);
    drop(object);
    bucket.assert_sound(&stack, 0);
}

/// The segment that stays is recalled before the others are gone.
#[test]
fn a_cut_that_cannot_recall_its_last_segment_changes_nothing() {
    let world = world();
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(4096)));
    let (name, data) = (key("cut"), pattern_bytes(1, 0, 0, 12_000));
    put(&stack, &name, &data);
    migrate(&stack, &name, SLOW, MoveKind::Move);
    stack.pin(&name).expect("pins");
    let object = stack.open(&name, &Open::write()).expect("opens");
    for bytes in [100, 5000] {
        let error = object.set_len(bytes).expect_err("it is not recalled");
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(stack.read_all(&name).expect("reads") == data);
    }
    stack.unpin(&name).expect("unpins");
    object.set_len(5000).expect("cut");
    drop(object);
    assert!(stack.read_all(&name).expect("reads") == data[..5000]);
    assert_sound(&world, &stack);
}

/// A target in a bucket is complete and durable before the switch, and nothing is written there: it is
/// better than a source that was never synced.
#[test]
fn a_loss_of_power_goes_back_behind_no_finished_move() {
    for seed in 0..20 {
        let world = world();
        let stack = world.create_with(promise_nothing);
        let (name, data) = (key("moved"), pattern_bytes(1, 0, 0, 50_000));
        let how = Open::create_new().with_semantics(Semantics::at_level(Persistency::Process));
        stack.open(&name, &how).expect("creates").write(0, &data).expect("writes");
        migrate(&stack, &name, SLOW, MoveKind::Move);
        world.failpoints().freeze();
        drop(stack);
        world.crash(Crash::Power { seed });
        let stack = world.open();
        assert!(stack.read_all(&name).expect("reads") == data, "seed {seed}");
        assert_eq!(tier_of(&stack, &name), "slow");
        assert_sound(&world, &stack);
    }
}
