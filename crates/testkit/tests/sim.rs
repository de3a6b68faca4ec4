// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the simulated machine promises: it forgets what was not synced, and nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use terrace_core::{
    Backend, BackendExt, Create, ErrorKind, Identity, Key, KvExt, KvRange, ObjectExt, Open,
    Persistency, Random, Role, Semantics, Superblock,
};
use terrace_testkit::{Operation, SimTier, SimWorld, assert_pattern, pattern_bytes};

const CAPACITY_BYTES: u64 = 1 << 20;

fn key(text: &str) -> Key {
    Key::parse(text).expect("legal")
}

fn identity(role: Role) -> Identity {
    Identity {
        store_id: 1,
        object_id: 2,
        segment: 0,
        start_bytes: 0,
        generation: 3,
        epoch: 4,
        role,
        key: key("app/a"),
        label: None,
    }
}

fn synced(disk: &dyn Backend, name: &str, data: &[u8]) {
    disk.write_all(&key(name), data).expect("room");
    disk.open(&key(name), &Open::write()).expect("made").sync().expect("sync");
    disk.sync().expect("sync");
}

/// Bytes in use by files, from the files themselves.
fn stored_bytes(tier: &SimTier) -> u64 {
    tier.files().iter().map(|file| file.allocated_bytes).sum()
}

#[test]
fn a_crash_of_the_process_keeps_what_was_written() {
    let world = SimWorld::new();
    let tier = world.tier("disk", CAPACITY_BYTES);
    let before = tier.open();
    before.write_all(&key("app/a"), b"data").expect("room");
    let handle = before.open(&key("app/a"), &Open::read()).expect("there");
    world.crash_process();
    assert_eq!(handle.stat().expect_err("a dead handle").kind(), ErrorKind::Io);
    assert_eq!(before.space().expect_err("a dead backend").kind(), ErrorKind::Io);
    assert_eq!(tier.open().read_all(&key("app/a")).expect("kept"), b"data");
}

#[test]
fn a_volatile_tier_is_empty_after_every_crash() {
    let world = SimWorld::new();
    let none = world.tier_with("memory", CAPACITY_BYTES, Persistency::None);
    let process = world.tier_with("tmpfs", CAPACITY_BYTES, Persistency::Process);
    let weak = Semantics::at_level(Persistency::None);
    for tier in [&none, &process] {
        let open = Open::create().with_semantics(weak);
        tier.open().open(&key("app/a"), &open).expect("room").write(0, b"x").expect("room");
        tier.open().sync().expect("does what it can");
    }
    world.crash_process();
    assert_eq!((none.files().len(), process.files().len()), (0, 1));
    assert_eq!(none.space().used_bytes, 0);
    world.lose_power(&mut Random::new(1));
    assert_eq!(process.files().len(), 0);
}

#[test]
fn a_loss_of_power_takes_unsynced_names() {
    let world = SimWorld::new();
    let tier = world.tier("disk", CAPACITY_BYTES);
    let disk = tier.open();
    synced(&*disk, "app/kept", b"1");
    synced(&*disk, "app/deleted", b"22");
    disk.delete(&key("app/deleted")).expect("there");
    disk.write_all(&key("app/created"), b"333").expect("room");
    disk.open(&key("app/created"), &Open::write()).expect("made").sync().expect("only bytes");
    world.lose_all_unsynced();
    let disk = tier.open();
    assert_eq!(disk.list_all("app", "").expect("list"), [key("app/deleted"), key("app/kept")]);
    assert_eq!(disk.read_all(&key("app/deleted")).expect("back"), b"22");
    assert_eq!(disk.space().expect("space").used_bytes, 3);
}

#[test]
fn a_loss_of_power_takes_unsynced_bytes_by_the_page() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let world = SimWorld::new();
        let tier = world.tier("disk", CAPACITY_BYTES);
        let disk = tier.open();
        synced(&*disk, "app/a", &pattern_bytes(1, 1, 0, 8192));
        let object = disk.open(&key("app/a"), &Open::write()).expect("there");
        object.write(0, &pattern_bytes(1, 2, 0, 12_288)).expect("room");
        world.lose_power(&mut Random::new(seed));
        let bytes = tier.open().read_all(&key("app/a")).expect("there");
        let version =
            |page: usize| 1 + u64::from(bytes[page] != pattern_bytes(1, 1, 0, 8192)[page]);
        assert_pattern(1, version(0), 0, &bytes[..4096]);
        assert_pattern(1, version(4096), 4096, &bytes[4096..8192]);
        seen.insert((version(0), version(4096), bytes.len()));
        assert_eq!(stored_bytes(&tier), tier.space().used_bytes);
    }
    assert_eq!(seen.len(), 8, "each page and the length survive on their own");
}

#[test]
fn an_identity_is_in_one_of_its_states_since_the_last_sync() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let world = SimWorld::new();
        let tier = world.tier("disk", CAPACITY_BYTES);
        let disk = tier.open();
        let open = Open {
            create: Create::New,
            identity: Some(Arc::new(identity(Role::Partial))),
            ..Open::default()
        };
        disk.open(&key("seg/1"), &open).expect("room");
        disk.set_identity(&key("seg/1"), &identity(Role::Primary)).expect("there");
        world.lose_power(&mut Random::new(seed));
        let role = |file: &terrace_testkit::StoredFile| {
            format!("{:?}", file.identity.as_ref().expect("given").role)
        };
        seen.insert(tier.files().first().map(role));
    }
    assert_eq!(seen, [None, Some("Partial".into()), Some("Primary".into())].into());
}

#[test]
fn a_frozen_world_answers_nothing_until_it_crashes() {
    let world = SimWorld::new();
    let (tier, sim) = (world.tier("disk", CAPACITY_BYTES), world.kv());
    let (disk, kv) = (tier.open(), sim.open());
    synced(&*disk, "app/a", b"1");
    world.freeze();
    for error in [
        disk.stat(&key("app/a")).expect_err("frozen"),
        disk.sync().expect_err("frozen"),
        kv.get(b"a").expect_err("frozen"),
        kv.put(b"a", b"b").expect_err("frozen"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Io);
    }
    assert_eq!(tier.files().len(), 1, "inspection still works");
    world.crash_process();
    tier.open().stat(&key("app/a")).expect("thawed");
    sim.open().put(b"a", b"b").expect("thawed");
}

#[test]
fn commits_survive_as_a_prefix_that_holds_what_was_waited_for() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let world = SimWorld::new();
        let sim = world.kv();
        let kv = sim.open();
        let tickets: Vec<_> =
            (0..5u8).map(|number| kv.put(&[number + 1], b"x").expect("commit")).collect();
        kv.wait(tickets[1]).expect("sync");
        world.crash_process();
        assert_eq!(sim.pairs().len(), 5, "the operating system has them all");
        world.lose_power(&mut Random::new(seed));
        let keys: Vec<u8> = sim.pairs().iter().map(|(key, _)| key[0]).collect();
        assert_eq!(keys, (1..=keys.len() as u8).collect::<Vec<_>>());
        seen.insert(keys.len());
        let kv = sim.open();
        assert!(kv.put(b"new", b"x").expect("commit") > tickets[4], "tickets never go back");
        assert_eq!(kv.scan(&KvRange::all(), 10).expect("scan").len(), keys.len() + 1);
    }
    assert_eq!(seen, (2..=5).collect());
}

#[test]
fn storage_semantics_need_no_sync() {
    let world = SimWorld::new();
    let tier = world.tier("disk", CAPACITY_BYTES);
    let open = Open::create().with_semantics(Semantics::at_level(Persistency::Storage));
    tier.open().open(&key("app/a"), &open).expect("room").write(0, b"data").expect("room");
    world.lose_all_unsynced();
    assert_eq!(tier.open().read_all(&key("app/a")).expect("kept"), b"data");
}

#[test]
fn syncing_everything_keeps_names_and_bytes_of_all_objects() {
    let world = SimWorld::new();
    let tier = world.tier("disk", CAPACITY_BYTES);
    let disk = tier.open();
    for name in ["app/a", "app/b"] {
        disk.write_all(&key(name), b"data").expect("room");
    }
    tier.fail_next(Operation::Sync, ErrorKind::Io);
    disk.sync_all().expect_err("ordered");
    disk.sync_all().expect("only once");
    disk.write_all(&key("app/b"), b"late").expect("room");
    world.lose_all_unsynced();
    for name in ["app/a", "app/b"] {
        assert_eq!(tier.open().read_all(&key(name)).expect("kept"), b"data");
    }
}

#[test]
fn a_failed_write_is_half_done_and_a_failed_sync_is_sticky() {
    let world = SimWorld::new();
    let tier = world.tier("disk", CAPACITY_BYTES);
    let disk = tier.open();
    let object = disk.open(&key("app/a"), &Open::create()).expect("room");
    tier.fail_next(Operation::Write, ErrorKind::Io);
    assert_eq!(object.write(0, b"abcd").expect_err("ordered").kind(), ErrorKind::Io);
    assert_eq!(object.read_to_end().expect("read"), b"ab");
    tier.fail_next(Operation::Sync, ErrorKind::Io);
    object.sync().expect_err("ordered");
    object.sync().expect_err("sticky");
    disk.open(&key("app/a"), &Open::write()).expect("there").sync().expect("another handle");
    tier.fail_always(Operation::Read, ErrorKind::Io);
    object.read_to_end().expect_err("ordered");
    object.read_to_end().expect_err("lasting");
    tier.heal();
    object.read_to_end().expect("healed");
}

#[test]
fn room_that_somebody_else_takes_is_gone_until_given_back() {
    let world = SimWorld::new();
    let tier = world.tier("disk", CAPACITY_BYTES);
    let disk = tier.open();
    synced(&*disk, "app/a", &[1; 1000]);
    tier.fill(500);
    assert_eq!(disk.space().expect("space").used_bytes, CAPACITY_BYTES - 500);
    let error = disk.write_all(&key("app/b"), &[1; 501]).expect_err("full");
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    disk.write_all(&key("app/b"), &[1; 500]).expect("exactly full");
    tier.fill(u64::MAX);
    assert_eq!(disk.space().expect("space").used_bytes, 1500);
    assert_eq!(stored_bytes(&tier), 1500);
}

#[test]
fn a_hanging_tier_blocks_until_it_is_released_or_crashes() {
    let world = SimWorld::new();
    let tier = world.tier("disk", CAPACITY_BYTES);
    synced(&*tier.open(), "app/a", b"1");
    thread::scope(|scope| {
        tier.hang();
        let disk = tier.open();
        let reader = scope.spawn(move || disk.read_all(&key("app/a")));
        tier.wait_until_hanging(1);
        tier.release();
        assert_eq!(reader.join().expect("no panic").expect("released"), b"1");

        tier.hang();
        let disk = tier.open();
        let reader = scope.spawn(move || disk.read_all(&key("app/a")));
        tier.wait_until_hanging(1);
        world.freeze();
        let error = reader.join().expect("no panic").expect_err("frozen");
        assert_eq!(error.kind(), ErrorKind::Io);
    });
    world.crash_process();
    assert_eq!(tier.open().read_all(&key("app/a")).expect("thawed"), b"1");
}

#[test]
fn a_superblock_is_durable_at_once() {
    let world = SimWorld::new();
    let tier = world.tier("disk", CAPACITY_BYTES);
    let superblock = Superblock {
        store_id: 1,
        tier: "disk".into(),
        format_version: 1,
        feature_bits: 0,
        epoch: 7,
        frames: None,
    };
    tier.open().set_superblock(&superblock).expect("set");
    let boot_id = world.boot_id();
    world.lose_all_unsynced();
    assert_ne!(world.boot_id(), boot_id);
    assert_eq!(tier.open().superblock().expect("read"), Some(superblock));
}

terrace_testkit::kv_suite!(sim_kv, (SimWorld::new().kv().open(), ()));

terrace_testkit::kv_reopen_suite!(sim_kv_reopened, {
    let world = SimWorld::new();
    let sim = world.kv();
    let open = move || {
        world.crash_process();
        sim.open()
    };
    (open, ())
});
