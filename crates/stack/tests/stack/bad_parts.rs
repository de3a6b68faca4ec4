// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tiers and catalogs that do not fit: a clear error before anything is changed, the rest stays
//! readable, nothing is lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::common::world::{
    LONG, ROOMY, World, all_keys, assert_sound, eventually, key, migrate, outcome_of, put,
};
use terrace_core::{
    Access, Backend, BackendExt, Error, ErrorKind, Kv, KvExt, ObjectExt, Open, Persistency, Result,
    Ticket, TierIndex,
};
use terrace_stack::{MoveKind, Parts, Stack, Tier};
use terrace_testkit::{Body, KvLayer, Layered, Operation};

const SLOW: TierIndex = TierIndex(1);

/// A closed store with one object on each of two tiers.
fn closed_store() -> World {
    let world = World::two();
    let stack = world.create();
    put(&stack, &key("on-fast"), &[1; 5000]);
    put(&stack, &key("on-slow"), &[2; 6000]);
    migrate(&stack, &key("on-slow"), SLOW, MoveKind::Move);
    stack.kv_put("app", b"pair", b"value", Persistency::Process).expect("puts");
    stack.close().expect("closes");
    world
}

/// Opening with changed parts is refused, says `word`, and changes nothing.
#[track_caller]
fn assert_refused(world: &World, word: &str, change: impl FnOnce(&mut Parts)) {
    let before = world.snapshot();
    let text = match world.try_open_with(change) {
        Ok(_) => panic!("it was opened; expected an error about {word}"),
        Err(error) => error.chain(),
    };
    assert!(text.contains(word), "{text}");
    assert!(world.snapshot() == before, "a refusal changes nothing: {text}");
}

#[track_caller]
fn assert_whole(world: &World) {
    let stack = world.open();
    assert_eq!(stack.read_all(&key("on-fast")).expect("reads"), [1; 5000]);
    assert_eq!(stack.read_all(&key("on-slow")).expect("reads"), [2; 6000]);
    assert_eq!(stack.kv_get("app", b"pair").expect("reads"), Some(b"value".to_vec()));
    assert_sound(world, &stack);
}

#[test]
fn a_tier_of_another_store_is_refused() {
    let (world, other) = (closed_store(), closed_store());
    let theirs = other.snapshot();
    assert_refused(&world, "slow", |parts| {
        parts.tiers[1].backend = other.parts().tiers[1].backend.clone();
    });
    assert!(other.snapshot() == theirs, "the other store is not touched");
    assert_whole(&world);
}

#[test]
fn a_catalog_of_another_store_is_refused() {
    let (world, other) = (closed_store(), closed_store());
    let theirs = other.snapshot();
    assert_refused(&world, "store", |parts| parts.catalog = other.kv().open());
    assert!(other.snapshot() == theirs, "the other store is not touched");
    assert_whole(&world);
}

#[test]
fn swapped_tiers_are_refused() {
    let world = closed_store();
    assert_refused(&world, "fast", |parts| {
        let fast = parts.tiers[0].backend.clone();
        parts.tiers[0].backend = parts.tiers[1].backend.clone();
        parts.tiers[1].backend = fast;
    });
    assert_whole(&world);
}

#[test]
fn one_tier_under_two_names_is_refused() {
    let world = closed_store();
    assert_refused(&world, "slow", |parts| {
        parts.tiers[1].backend = parts.tiers[0].backend.clone();
    });
    assert_refused(&world, "fast", |parts| parts.tiers[1].name = "fast".into());
    assert_whole(&world);
}

#[test]
fn a_tier_that_lost_everything_is_refused() {
    let (world, empty) = (closed_store(), World::two());
    assert_refused(&world, "slow", |parts| {
        parts.tiers[1].backend = empty.parts().tiers[1].backend.clone();
    });
    assert!(empty.disk(1).open().superblock().expect("reads").is_none(), "nothing is written");
    assert_whole(&world);
}

#[test]
fn a_configuration_that_drops_a_tier_with_objects_is_refused() {
    let world = closed_store();
    assert_refused(&world, "slow", |parts| {
        parts.tiers.pop();
    });
    assert_refused(&world, "fast", |parts| {
        parts.tiers.remove(0);
    });
    assert_whole(&world);
}

#[test]
fn a_configuration_that_drops_a_tier_with_a_copy_only_loses_no_bytes() {
    let world = World::two();
    let stack = world.create();
    put(&stack, &key("copied"), &[1; 5000]);
    migrate(&stack, &key("copied"), SLOW, MoveKind::Copy);
    stack.close().expect("closes");
    drop(stack);
    let without = world.try_open_with(|parts| {
        parts.tiers.pop();
    });
    if let Ok(stack) = without {
        assert_eq!(stack.read_all(&key("copied")).expect("reads"), [1; 5000]);
        stack.close().expect("closes");
    }
}

#[test]
fn tiers_may_be_reordered_and_added() {
    let world = closed_store();
    let third = World::with(&[("third", ROOMY, Persistency::Storage)]);
    let reordered = |parts: &mut Parts| {
        parts.tiers.swap(0, 1);
        parts.tiers.push(Tier::new("third", third.disk(0).open()).with_capacity(ROOMY));
    };
    let stack = world.open_with(reordered);
    assert_eq!(stack.read_all(&key("on-fast")).expect("reads"), [1; 5000]);
    assert_eq!(stack.read_all(&key("on-slow")).expect("reads"), [2; 6000]);
    assert_eq!(stack.explain(&key("on-fast")).expect("exists").segments[0].tier, "fast");
    let to = stack.tier("third").expect("known");
    migrate(&stack, &key("on-fast"), to, MoveKind::Move);
    stack.close().expect("closes");
    drop(stack);
    let stack = world.open_with(reordered);
    assert_eq!(stack.read_all(&key("on-fast")).expect("reads"), [1; 5000]);
    assert_eq!(stack.explain(&key("on-fast")).expect("exists").segments[0].tier, "third");
    let check = stack.check(true, &mut |_, _| {}).expect("checks");
    assert_eq!(check.problems, []);
}

#[test]
fn numbers_of_tiers_that_make_no_sense_are_refused() {
    let world = World::two();
    for count in [0, TierIndex::COUNT_MAX + 1] {
        let spare: Vec<_> = (0..count)
            .map(|index| {
                let memory = World::with(&[("spare", ROOMY, Persistency::Storage)]);
                Tier::new(&format!("tier-{index}"), memory.disk(0).open())
            })
            .collect();
        let error = Stack::create(&Parts::new(spare, world.kv().open())).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

#[test]
fn a_new_store_never_takes_what_is_in_use() {
    let (world, fresh) = (closed_store(), World::two());
    let before = world.snapshot();
    let expect_exists = |result: Result<u128>| {
        let error = result.expect_err("it is in use");
        assert_eq!(error.kind(), ErrorKind::Exists, "{}", error.chain());
    };
    expect_exists(Stack::create(&world.parts()));
    let mut parts = fresh.parts();
    parts.tiers[1].backend = world.disk(1).open();
    expect_exists(Stack::create(&parts));
    let mut parts = fresh.parts();
    parts.catalog = world.kv().open();
    expect_exists(Stack::create(&parts));
    assert!(world.snapshot() == before, "what is in use is not touched");
    for tier in 0..2 {
        let superblock = fresh.disk(tier).open().superblock().expect("reads");
        assert!(superblock.is_none(), "a refused creation leaves tier {tier} free");
    }
    let stack = fresh.create();
    assert_eq!(all_keys(&stack), []);
}

#[test]
fn what_was_never_made_is_not_opened() {
    let world = World::two();
    assert_refused(&world, "store", |_| {});
}

#[test]
fn every_damaged_record_is_noticed_and_no_bytes_are_lost() {
    let world = World::two();
    let stack = world.create();
    for (index, name) in ["a", "b", "c"].iter().enumerate() {
        put(&stack, &key(name), &[index as u8 + 1; 3000]);
    }
    migrate(&stack, &key("b"), SLOW, MoveKind::Move);
    migrate(&stack, &key("c"), SLOW, MoveKind::Copy);
    stack.close().expect("closes");
    drop(stack);
    for (name, value) in world.kv().pairs() {
        for at in [0, value.len() / 2, value.len().saturating_sub(1)] {
            if value.is_empty() {
                continue;
            }
            damage(&world, &name, &value, at);
        }
    }
    let stack = world.open();
    assert_sound(&world, &stack);
}

/// Flips a byte of one record, looks at everything, and puts the byte back.
fn damage(world: &World, name: &[u8], value: &[u8], at: usize) {
    let place = format!("byte {at} of the record {}", name.escape_ascii());
    let before: BTreeSet<_> = files(world);
    let mut damaged = value.to_vec();
    damaged[at] ^= 0x40;
    world.kv().open().put(name, &damaged).expect("puts");
    for access in [Access::Read, Access::Write] {
        let opened = world.try_open_with(|parts| parts.settings.access = access);
        let stack = match opened {
            Ok(stack) => stack,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{place}: {}", error.chain());
                continue;
            }
        };
        let mut whole = 0;
        for (index, name) in ["a", "b", "c"].iter().enumerate() {
            match stack.read_all(&key(name)) {
                Ok(data) => {
                    assert_eq!(data, [index as u8 + 1; 3000], "{place}: {name}");
                    whole += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{place}: {}", error.chain());
                }
            }
        }
        assert!(whole >= 2, "{place}: the rest stays readable");
        let _ = stack.close();
    }
    world.kv().open().put(name, value).expect("puts");
    let after: BTreeSet<_> = files(world);
    let lost: Vec<_> = before.difference(&after).collect();
    assert!(lost.is_empty(), "{place}: files were deleted: {lost:?}");
}

/// The tiers' files with their lengths.
fn files(world: &World) -> BTreeSet<(usize, String, u64)> {
    let of = |tier: usize| {
        let files = world.disk(tier).files().into_iter();
        files.map(move |file| (tier, file.key.to_string(), file.length_bytes))
    };
    of(0).chain(of(1)).collect()
}

#[test]
fn a_store_with_an_offline_tier_is_readable_and_unchanged() {
    let world = World::two();
    let stack = world.create();
    put(&stack, &key("on-fast"), &[1; 5000]);
    put(&stack, &key("on-slow"), &[2; 6000]);
    put(&stack, &key("copied"), &[3; 7000]);
    migrate(&stack, &key("on-slow"), SLOW, MoveKind::Move);
    migrate(&stack, &key("copied"), SLOW, MoveKind::Promote);
    stack.close().expect("closes");
    drop(stack);
    let before = world.snapshot();
    let offline = |parts: &mut Parts| {
        parts.settings.access = Access::Read;
        parts.tiers[1].offline = Some("the cable is out".into());
    };
    fail_everything(&world);
    let stack = world.open_with(offline);
    assert_eq!(stack.read_all(&key("on-fast")).expect("reads"), [1; 5000]);
    assert_eq!(stack.read_all(&key("copied")).expect("reads its copy"), [3; 7000]);
    let text = stack.read_all(&key("on-slow")).expect_err("is offline").chain();
    assert!(text.contains("slow"), "{text}");
    assert_eq!(all_keys(&stack).len(), 3);
    assert_eq!(stack.tiers()[1].offline.as_deref(), Some("the cable is out"));
    assert_eq!(stack.explain(&key("on-slow")).expect("is known").segments[0].tier, "slow");
    assert_refuses_changes(&stack);
    stack.close().expect("closes");
    drop(stack);
    world.disk(1).heal();
    assert!(world.snapshot() == before, "reading changes nothing");
    let error = world
        .try_open_with(|parts| parts.tiers[1].offline = Some("the cable is out".into()))
        .map(drop)
        .expect_err("writing needs all tiers");
    assert!(error.chain().contains("slow"), "{}", error.chain());
    let stack = world.open();
    assert_sound(&world, &stack);
}

fn fail_everything(world: &World) {
    use Operation::{
        Delete, Identity, List, Open, Read, Resize, Stat, Superblock, Sync, SyncNames, Write,
    };
    for operation in
        [Delete, Identity, List, Open, Read, Resize, Stat, Superblock, Sync, SyncNames, Write]
    {
        world.disk(1).fail_always(operation, ErrorKind::Io);
    }
}

fn assert_refuses_changes(stack: &Stack) {
    let name = key("on-fast");
    let denied = |what: &str, result: Result<()>| {
        let error = result.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Denied, "{what}: {}", error.chain());
    };
    denied("create", stack.open(&key("new"), &Open::create_new()).map(drop));
    denied("open for writing", stack.open(&name, &Open::write()).map(drop));
    denied("delete", stack.delete(&name));
    denied("migrate", stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").map(drop));
    denied("pin", stack.pin(&name));
    denied("kv_put", stack.kv_put("app", b"x", b"y", Persistency::Process));
    denied("kv_remove", stack.kv_remove("app", b"x", Persistency::Process).map(drop));
    let object = stack.open(&name, &Open::read()).expect("opens for reading");
    denied("write", object.write(0, b"x"));
}

#[test]
fn a_store_opened_for_reading_changes_nothing_even_after_a_crash() {
    let world = World::two();
    let stack = world.create();
    put(&stack, &key("on-fast"), &[1; 5000]);
    world.tier(1).hold_creates();
    stack.migrate(&key("on-fast"), SLOW, MoveKind::Move, 0, "test").expect("queued");
    world.tier(1).wait_until_held();
    world.failpoints().freeze();
    world.tier(1).release();
    drop(stack);
    world.crash(crate::common::crashing::Crash::Process);
    let before = world.snapshot();
    let stack = world.open_with(|parts| parts.settings.access = Access::Read);
    assert_eq!(stack.read_all(&key("on-fast")).expect("reads"), [1; 5000]);
    assert_refuses_changes(&stack);
    stack.close().expect("closes");
    drop(stack);
    assert!(world.snapshot() == before, "recovery waits for somebody who may write");
    let stack = world.open();
    assert_sound(&world, &stack);
}

#[test]
fn a_tier_that_vanishes_while_running_takes_only_its_own_objects() {
    let world = World::two();
    let stack = world.create();
    put(&stack, &key("on-fast"), &[1; 5000]);
    put(&stack, &key("on-slow"), &[2; 6000]);
    migrate(&stack, &key("on-slow"), SLOW, MoveKind::Move);
    fail_everything(&world);
    assert_eq!(stack.read_all(&key("on-fast")).expect("reads"), [1; 5000]);
    let error = stack.read_all(&key("on-slow")).expect_err("its tier is gone");
    assert_eq!(error.kind(), ErrorKind::Io, "never not-found: {}", error.chain());
    put(&stack, &key("new"), &[3; 100]);
    let tickets = stack.migrate(&key("new"), SLOW, MoveKind::Move, 0, "test").expect("queued");
    let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
    assert_eq!(outcome_of(&ended), "io");
    assert_eq!(stack.read_all(&key("new")).expect("reads"), [3; 100]);
    world.disk(1).heal();
    assert_eq!(stack.read_all(&key("on-slow")).expect("is back"), [2; 6000]);
    assert_sound(&world, &stack);
}

#[test]
fn a_catalog_that_fails_once_loses_nothing() {
    let world = World::two();
    // What the stack commits beside the test is left alone.
    let catalog = Arc::new(Layered(FailingAt::on_this_thread(world.kv().open())));
    let stack = world.create_with(|parts| parts.catalog = catalog.clone());
    put(&stack, &key("before"), &[1; 5000]);
    for _ in 0..3 {
        catalog.fail_after(0);
        let created = stack.open(&key("unlucky"), &Open::create_new());
        assert_eq!(created.map(drop).expect_err("fails").kind(), ErrorKind::Io);
        catalog.fail_after(0);
        let deleted = stack.delete(&key("before"));
        assert_eq!(deleted.expect_err("fails").kind(), ErrorKind::Io);
        assert_eq!(stack.read_all(&key("before")).expect("is whole"), [1; 5000]);
    }
    let tickets = stack.migrate(&key("before"), SLOW, MoveKind::Move, 0, "test").expect("queued");
    stack.wait(tickets[0], LONG).expect("known").expect("ends");
    put(&stack, &key("unlucky"), &[2; 100]);
    assert_sound(&world, &stack);
    stack.close().expect("closes");
    drop(stack);
    let stack = world.open();
    assert_eq!(stack.read_all(&key("before")).expect("reads"), [1; 5000]);
    assert_eq!(stack.read_all(&key("unlucky")).expect("reads"), [2; 100]);
    assert_sound(&world, &stack);
}

#[test]
fn a_catalog_that_fails_at_any_commit_of_a_migration_loses_nothing() {
    for failing in 0..6 {
        let world = World::two();
        let stack = {
            let catalog = Arc::new(Layered(FailingAt::new(world.kv().open(), u64::MAX)));
            let stack = world.create_with(|parts| parts.catalog = catalog.clone());
            put(&stack, &key("moved"), &[1; 5000]);
            catalog.fail_after(failing);
            stack
        };
        let tickets = stack.migrate(&key("moved"), SLOW, MoveKind::Move, 0, "test");
        if let Ok(tickets) = tickets {
            let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
            assert!(["io", "done"].contains(&outcome_of(&ended)), "{ended:?}");
        }
        assert_eq!(stack.read_all(&key("moved")).expect("reads"), [1; 5000]);
        assert_sound(&world, &stack);
        stack.close().expect("closes");
        drop(stack);
        let stack = world.open();
        assert_eq!(stack.read_all(&key("moved")).expect("reads"), [1; 5000]);
        assert_sound(&world, &stack);
    }
}

/// A catalog engine whose nth commit fails, once.
struct FailingAt {
    inner: Arc<dyn Kv>,
    left: std::sync::atomic::AtomicU64,
    /// The only one whose commits count.
    thread: Option<std::thread::ThreadId>,
}

impl FailingAt {
    fn new(inner: Arc<dyn Kv>, left: u64) -> Self {
        Self { inner, left: left.into(), thread: None }
    }

    fn on_this_thread(inner: Arc<dyn Kv>) -> Self {
        Self { thread: Some(std::thread::current().id()), ..Self::new(inner, u64::MAX) }
    }

    fn fail_after(&self, commits: u64) {
        self.left.store(commits, std::sync::atomic::Ordering::SeqCst);
    }
}

impl KvLayer for FailingAt {
    fn inner(&self) -> &dyn Kv {
        &*self.inner
    }

    fn transact(&self, body: Body<'_>) -> Result<terrace_core::Ticket> {
        use std::sync::atomic::Ordering;
        let counts = self.thread.is_none_or(|thread| thread == std::thread::current().id());
        if counts && self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            return Err(
                terrace_core::Error::new(ErrorKind::Io, "commit").because("the test said so")
            );
        }
        self.inner.transact(body)
    }
}

/// A catalog of which one commit fails.
struct FailingOnce {
    inner: Arc<dyn Kv>,
    fails: Arc<AtomicBool>,
    commits: Arc<AtomicUsize>,
}

impl KvLayer for FailingOnce {
    fn inner(&self) -> &dyn Kv {
        &*self.inner
    }

    fn transact(&self, body: Body<'_>) -> Result<Ticket> {
        if self.fails.swap(false, Ordering::AcqRel) {
            return Err(Error::new(ErrorKind::Io, "commit"));
        }
        let committed = self.inner.transact(body);
        self.commits.fetch_add(usize::from(committed.is_ok()), Ordering::AcqRel);
        committed
    }
}

#[test]
fn lengths_that_could_not_be_noted_are_noted_later_all_of_them() {
    const OBJECTS: usize = 20;
    let world = World::two();
    let (fails, commits) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let stack = world.create_with(|parts| {
        let inner = Arc::clone(&parts.catalog);
        let (fails, commits) = (Arc::clone(&fails), Arc::clone(&commits));
        parts.catalog = Arc::new(Layered(FailingOnce { inner, fails, commits }));
    });
    let names: Vec<_> = (0..OBJECTS).map(|number| key(&format!("growing-{number}"))).collect();
    names.iter().for_each(|name| put(&stack, name, b"short"));
    let open = |name| stack.open(name, &Open::write()).expect("opens");
    let objects: Vec<_> = names.iter().map(open).collect();
    fails.store(true, Ordering::Release);
    commits.store(0, Ordering::Release);
    objects.iter().for_each(|object| object.write(5, b"longer").expect("writes"));
    eventually("it fails", || !fails.load(Ordering::Acquire));
    eventually("all are noted", || commits.load(Ordering::Acquire) >= OBJECTS);
}
