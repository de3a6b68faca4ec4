// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applications at work on objects that bounce between tiers.

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::pattern::{STAMP_BYTES, stamped, versions};
use crate::common::world::{LONG, World, assert_sound, bounded, cutting, key, put};
use terrace_core::{
    Backend, BackendExt, ErrorKind, Failpoints, Key, Object, ObjectExt, Open, Persistency, Random,
    TierIndex,
};
use terrace_stack::{MoveKind, Stack};

const KINDS: [MoveKind; 3] = [MoveKind::Move, MoveKind::Promote, MoveKind::Copy];

/// One object of the bounce test with what is known about its bytes.
struct Bouncing {
    key: Key,
    number: u64,
    /// Highest version whose write began.
    started: AtomicU64,
    /// By stamp: the version of the last write that was acknowledged.
    acknowledged: Vec<AtomicU64>,
}

const BOUNCING_BYTES: usize = 64 << 10;

impl Bouncing {
    fn create(stack: &Stack, number: u64) -> Self {
        let key = key(&format!("bouncing-{number}"));
        put(stack, &key, &stamped(number, 1, 0, BOUNCING_BYTES));
        let acknowledged = (0..BOUNCING_BYTES / STAMP_BYTES).map(|_| AtomicU64::new(1)).collect();
        Self { key, number, started: AtomicU64::new(1), acknowledged }
    }

    /// A range of whole stamps.
    fn range(random: &mut Random) -> (usize, usize) {
        let stamps = (BOUNCING_BYTES / STAMP_BYTES) as u64;
        let first = random.below(stamps);
        let count = 1 + random.below((stamps - first).min(256));
        (first as usize, count as usize)
    }

    fn write(&self, object: &dyn Object, random: &mut Random) {
        let (first, count) = Self::range(random);
        let version = self.started.fetch_add(1, Ordering::SeqCst) + 1;
        let offset_bytes = (first * STAMP_BYTES) as u64;
        let data = stamped(self.number, version, offset_bytes, count * STAMP_BYTES);
        object.write(offset_bytes, &data).expect("writes");
        for stamp in &self.acknowledged[first..first + count] {
            stamp.store(version, Ordering::SeqCst);
        }
    }

    fn read(&self, object: &dyn Object, random: &mut Random) {
        let (first, count) = Self::range(random);
        let acknowledged = &self.acknowledged[first..first + count];
        let least: Vec<_> = acknowledged.iter().map(|v| v.load(Ordering::SeqCst)).collect();
        let mut buffer = vec![0; count * STAMP_BYTES];
        let offset_bytes = (first * STAMP_BYTES) as u64;
        object.read_exact(offset_bytes, &mut buffer).expect("reads");
        let found = versions(self.number, offset_bytes, &buffer).expect("own, whole bytes");
        let most = self.started.load(Ordering::SeqCst);
        for (index, (found, least)) in found.iter().zip(least).enumerate() {
            let at = first + index;
            assert!(*found >= least, "{}: stamp {at} is {found}, {least} was known", self.key);
            assert!(*found <= most, "{}: stamp {at} is {found} of {most}", self.key);
        }
    }
}

#[test]
fn readers_and_writers_never_notice_that_objects_bounce() {
    bounded(Duration::from_secs(60), "objects that bounce", || {
        let world = World::three();
        let stack = world.create();
        let objects: Vec<_> = (1..=6).map(|number| Bouncing::create(&stack, number)).collect();
        let is_over = AtomicBool::new(false);
        let moved = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let (stack, objects, is_over, moved) = (&stack, &objects, &is_over, &moved);
            let mover = scope.spawn(move || bounce(stack, objects, is_over, moved));
            let users: Vec<_> = (0..4u64)
                .map(|user| scope.spawn(move || work_on(stack, objects, user, moved)))
                .collect();
            let ends: Vec<_> = users.into_iter().map(|user| user.join()).collect();
            is_over.store(true, Ordering::SeqCst);
            for end in ends {
                end.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
            mover.join().expect("the mover does not panic");
        });
        assert!(stack.wait_idle(LONG));
        assert_sound(&world, &stack);
        for object in &objects {
            let handle = stack.open(&object.key, &Open::read()).expect("opens");
            let mut random = Random::new(99);
            (0..50).for_each(|_| object.read(&*handle, &mut random));
        }
    });
}

/// Moves random objects to random tiers, and counts the migrations that were done.
fn bounce(stack: &Stack, objects: &[Bouncing], is_over: &AtomicBool, moved: &AtomicU64) {
    let mut random = Random::new(1);
    while !is_over.load(Ordering::SeqCst) {
        let object = &objects[random.below(objects.len() as u64) as usize];
        let to = TierIndex(random.below(3) as u8);
        let kind = KINDS[random.below(3) as usize];
        let Ok(tickets) = stack.migrate(&object.key, to, kind, 0, "bounce") else { continue };
        for ticket in tickets {
            let ended = stack.wait(ticket, LONG).expect("known").expect("ends");
            moved.fetch_add(u64::from(ended.outcome.as_deref() == Some("done")), Ordering::SeqCst);
        }
    }
}

/// Writers own their objects; readers read all of them. They go on until enough was moved.
fn work_on(stack: &Stack, objects: &[Bouncing], user: u64, moved: &AtomicU64) {
    const ROUNDS: usize = 1500;
    const MOVED_MIN: u64 = 20;
    let mut random = Random::new(user + 10);
    let is_writer = user < 2;
    let mine = |object: &&Bouncing| !is_writer || object.number % 2 == user;
    let objects: Vec<_> = objects.iter().filter(mine).collect();
    let how = if is_writer { Open::write() } else { Open::read() };
    let open = |object: &Bouncing| stack.open(&object.key, &how).expect("opens");
    let mut handles: Vec<_> = objects.iter().map(|object| open(object)).collect();
    let mut round = 0;
    while round < ROUNDS || moved.load(Ordering::SeqCst) < MOVED_MIN {
        round += 1;
        let index = random.below(objects.len() as u64) as usize;
        match (random.below(20), is_writer) {
            (0, _) => handles[index] = open(objects[index]),
            (1, _) => {
                let stat = stack.stat(&objects[index].key).expect("is there");
                assert_eq!(stat.size_bytes, BOUNCING_BYTES as u64);
            }
            (_, true) => objects[index].write(&*handles[index], &mut random),
            (_, false) => objects[index].read(&*handles[index], &mut random),
        }
    }
}

#[test]
fn appends_of_many_threads_never_overlap_while_the_object_moves() {
    const APPENDS: u64 = 250;
    bounded(Duration::from_secs(60), "appends to an object that moves", || {
        let world = World::three();
        let stack = world.create();
        let name = key("log");
        put(&stack, &name, b"");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (stack, name, is_over) = (&stack, &name, &is_over);
            let mover = scope.spawn(move || {
                let mut to = 0;
                while !is_over.load(Ordering::SeqCst) {
                    to = (to + 1) % 3;
                    let Ok(tickets) = stack.migrate(name, TierIndex(to), MoveKind::Move, 0, "test")
                    else {
                        continue;
                    };
                    for ticket in tickets {
                        stack.wait(ticket, LONG).expect("known").expect("ends");
                    }
                }
            });
            let writers: Vec<_> = (1..=2u64)
                .map(|writer| {
                    scope.spawn(move || {
                        let object = stack.open(name, &Open::write()).expect("opens");
                        for index in 0..APPENDS {
                            let line = (writer * 1000 + index).to_le_bytes();
                            let data = [std::io::IoSlice::new(&line)];
                            let at = object.append(&data).expect("appends");
                            let mut found = [0; 8];
                            object.read_exact(at, &mut found).expect("reads");
                            assert_eq!(found, line, "what was appended at {at}");
                        }
                    })
                })
                .collect();
            let ends: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            is_over.store(true, Ordering::SeqCst);
            mover.join().expect("no panic");
            ends.into_iter().for_each(|end| end.expect("no panic"));
        });
        let data = stack.read_all(&name).expect("reads");
        let lines = data.chunks(8).map(|line| u64::from_le_bytes(line.try_into().expect("eight")));
        let lines: BTreeSet<_> = lines.collect();
        let expected = (1..=2).flat_map(|writer| (0..APPENDS).map(move |i| writer * 1000 + i));
        assert_eq!(lines, expected.collect());
        assert_eq!(data.len() as u64, 2 * APPENDS * 8);
        assert!(stack.wait_idle(LONG));
        assert_sound(&world, &stack);
    });
}

#[test]
fn a_listing_during_migrations_has_every_object_once() {
    bounded(Duration::from_secs(60), "listings beside migrations", || {
        let world = World::two();
        let stack = world.create();
        let names: Vec<_> = (0..60).map(|index| key(&format!("listed-{index:02}"))).collect();
        names.iter().for_each(|name| put(&stack, name, &[1; 100]));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (stack, names, is_over) = (&stack, &names, &is_over);
            let mover = scope.spawn(move || {
                let mut to = 0;
                while !is_over.load(Ordering::SeqCst) {
                    to = 1 - to;
                    for name in names {
                        let _ = stack.migrate(name, TierIndex(to), MoveKind::Move, 0, "test");
                    }
                    assert!(stack.wait_idle(LONG));
                }
            });
            let mut listings = Vec::new();
            for round in 0..40 {
                let mut found = Vec::new();
                let mut cursor = terrace_core::Cursor::start();
                loop {
                    let page =
                        stack.list("test", "listed-", &cursor, 1 + round % 13).expect("lists");
                    found.extend(page.keys);
                    let Some(next) = page.next else { break };
                    cursor = next;
                }
                listings.push(found);
            }
            is_over.store(true, Ordering::SeqCst);
            mover.join().expect("no panic");
            for mut found in listings {
                found.sort();
                assert_eq!(&found, names);
            }
        });
        assert_sound(&world, &stack);
    });
}

#[test]
fn opening_creating_and_deleting_race_on_one_name() {
    bounded(Duration::from_secs(60), "a name that comes and goes", || {
        let world = World::two();
        let stack = world.create();
        let name = key("contested");
        let created = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for user in 0..4u64 {
                let (stack, name, created) = (&stack, &name, &created);
                scope.spawn(move || {
                    let mut random = Random::new(user);
                    for _ in 0..150 {
                        contest(stack, name, created, user, &mut random);
                    }
                });
            }
        });
        assert!(created.load(Ordering::SeqCst) > 0);
        assert!(stack.wait_idle(LONG));
        assert_sound(&world, &stack);
        let _ = stack.delete(&name);
        put(&stack, &name, b"at last");
        assert_eq!(stack.read_all(&name).expect("reads"), b"at last");
        assert_sound(&world, &stack);
    });
}

fn contest(stack: &Stack, name: &Key, created: &AtomicU64, user: u64, random: &mut Random) {
    let allowed = |kind: ErrorKind, kinds: &[ErrorKind]| assert!(kinds.contains(&kind), "{kind:?}");
    match random.below(4) {
        0 => match stack.open(name, &Open::create_new()) {
            Ok(object) => {
                created.fetch_add(1, Ordering::SeqCst);
                // The object may be deleted at once.
                let _ = object.write(0, &stamped(user, 1, 0, 1024));
            }
            Err(error) => allowed(error.kind(), &[ErrorKind::Exists]),
        },
        1 => {
            if let Err(error) = stack.delete(name) {
                allowed(error.kind(), &[ErrorKind::NotFound]);
            }
        }
        2 => match stack.migrate(name, TierIndex(random.below(2) as u8), MoveKind::Move, 0, "test")
        {
            Ok(_) => {}
            Err(error) => allowed(error.kind(), &[ErrorKind::NotFound, ErrorKind::Busy]),
        },
        _ => match stack.read_all(name) {
            Ok(data) => {
                let owner = data.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
                versions(owner, 0, &data).expect("bytes of one object");
            }
            Err(error) => allowed(error.kind(), &[ErrorKind::NotFound]),
        },
    }
}

#[test]
fn handles_that_come_and_go_never_lose_room() {
    bounded(Duration::from_secs(60), "opening, appending and closing", || {
        let world = World::with(&[
            ("fast", 4 << 20, Persistency::Storage),
            ("slow", 4 << 20, Persistency::Storage),
        ]);
        let stack = world.create();
        let name = key("revolving-door");
        put(&stack, &name, b"");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (stack, name, is_over) = (&stack, &name, &is_over);
            let mover = scope.spawn(move || {
                let mut to = 0;
                while !is_over.load(Ordering::SeqCst) {
                    to = 1 - to;
                    let _ = stack.migrate(name, TierIndex(to), MoveKind::Move, 0, "test");
                    assert!(stack.wait_idle(LONG));
                }
            });
            let writers: Vec<_> = (0..3u8)
                .map(|writer| {
                    scope.spawn(move || {
                        for _ in 0..400 {
                            let object = stack.open(name, &Open::write()).expect("opens");
                            let data = [writer + 1; 100];
                            object.append(&[std::io::IoSlice::new(&data)]).expect("appends");
                        }
                    })
                })
                .collect();
            let ends: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            is_over.store(true, Ordering::SeqCst);
            mover.join().expect("no panic");
            ends.into_iter().for_each(|end| end.expect("no panic"));
        });
        let data = stack.read_all(&name).expect("reads");
        assert_eq!(data.len(), 3 * 400 * 100);
        assert!(data.chunks(100).all(|part| part[0] > 0 && part.iter().all(|b| *b == part[0])));
        assert_sound(&world, &stack);
    });
}

#[test]
fn lengths_agree_on_a_store_of_one_tier() {
    let world = World::with(&[("only", 1 << 30, Persistency::Storage)]);
    let stack = world.create();
    let name = key("breathing");
    put(&stack, &name, b"");
    for round in 0..200u64 {
        std::thread::scope(|scope| {
            let (stack, name) = (&stack, &name);
            scope.spawn(move || {
                let object = stack.open(name, &Open::write()).expect("opens");
                for index in 0..5 {
                    object.write(index * 700, &[7; 700]).expect("writes");
                }
            });
            scope.spawn(move || {
                let object = stack.open(name, &Open::write()).expect("opens");
                for index in 0..5 {
                    object.set_len((round + index) % 3 * 500).expect("sets");
                }
            });
        });
        let data = stack.read_all(&name).expect("reads");
        assert_eq!(stack.stat(&name).expect("is there").size_bytes, data.len() as u64);
    }
    assert_sound(&world, &stack);
}

#[test]
fn what_a_policy_cut_is_whole_without_one() {
    let world = World::with(&[("only", 1 << 30, Persistency::Storage)]);
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(1000)));
    let name = key("cut");
    put(&stack, &name, &[1; 2500]);
    stack.close().expect("closes");
    drop(stack);
    let stack = world.open();
    assert_eq!(stack.stat(&name).expect("is there").size_bytes, 2500);
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.write(900, &[2; 2000]).expect("writes");
    object.append(&[IoSlice::new(&[3; 600])]).expect("appends");
    let whole = [vec![1; 900], vec![2; 2000], vec![3; 600]].concat();
    assert_eq!(stack.read_all(&name).expect("reads"), whole);
    object.set_len(1700).expect("cuts");
    assert_eq!(stack.read_all(&name).expect("reads"), whole[..1700]);
    drop(object);
    assert_sound(&world, &stack);
}

#[test]
fn nothing_is_written_through_a_handle_of_a_closed_stack() {
    let world = World::with(&[("only", 1 << 30, Persistency::Storage)]);
    let stack = world.create_with(|parts| parts.failpoints = Failpoints::default());
    let name = key("open");
    put(&stack, &name, &[1; 100]);
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.write(0, &[2; 50]).expect("writes");
    stack.close().expect("closes");
    let error = object.write(0, &[3; 10]).expect_err("is closed");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    let stack = world.open();
    assert_eq!(stack.read_all(&name).expect("reads"), [vec![2; 50], vec![1; 50]].concat());
}

#[test]
fn nothing_is_written_to_a_deleted_object_of_one_tier() {
    let world = World::with(&[("only", 1 << 30, Persistency::Storage)]);
    let stack = world.create_with(|parts| parts.failpoints = Failpoints::default());
    let name = key("deleted");
    put(&stack, &name, &[1; 100]);
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.write(0, &[2; 50]).expect("writes");
    stack.delete(&name).expect("deletes");
    let error = object.write(0, &[3; 10]).expect_err("is gone");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    drop(object);
    assert_sound(&world, &stack);
}
