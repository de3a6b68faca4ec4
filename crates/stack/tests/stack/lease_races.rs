// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many who read by leases while objects are written, moved, cut, deleted and made anew.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::world::{World, assert_sound, key};
use terrace_core::{Backend, FileLease, Key, Object, ObjectExt, Open, Random, TierIndex};
use terrace_stack::{MoveKind, Stack};

const OBJECTS: usize = 4;
const READERS: usize = 4;
/// Leases that must end under their readers before the writers do.
const ENDED_MIN: u64 = 300;
/// Changes of each object at most, and at least.
const ROUNDS_MAX: u64 = 1 << 20;
const ROUNDS_MIN: u64 = 1000;
const WORDS_MAX: usize = 1024;

/// What is known of an object, in versions: each write has one, and each deletion.
#[derive(Default)]
struct Known {
    /// Everything up to this was acknowledged.
    done: AtomicU64,
    /// Nothing behind this was begun.
    begun: AtomicU64,
}

/// Words that say whose they are, where they belong and how old they are.
fn words(object: usize, version: u64, count: usize) -> Vec<u8> {
    let word = |at: usize| version << 24 | (object as u64) << 16 | at as u64;
    (0..count).flat_map(|at| word(at).to_le_bytes()).collect()
}

/// Checks what a good lease gave: every word is this object's, belongs there, and is as old as a
/// write that the read may see.
fn check(object: usize, data: &[u8], done: u64, begun: u64) {
    for (at, word) in data.chunks_exact(8).enumerate() {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        let (version, found, found_at) = (word >> 24, (word >> 16 & 0xff) as usize, word & 0xffff);
        assert_eq!((found, found_at), (object, at as u64), "foreign bytes");
        assert!(version >= done, "old bytes: version {version}, {done} was acknowledged before");
        assert!(version <= begun, "bytes of the future: version {version} of {begun}");
    }
}

struct Scene<'a> {
    stack: &'a Stack,
    names: &'a [Key],
    known: &'a [Known],
    ended: &'a AtomicU64,
    is_over: &'a AtomicBool,
}

impl Scene<'_> {
    /// Writes the object again and again, and deletes it now and then.
    fn write(&self, object: usize) {
        let mut random = Random::new(object as u64);
        let (name, known) = (&self.names[object], &self.known[object]);
        let open = |how: Open| self.stack.open(name, &how).expect("opens");
        let mut handle: Option<Box<dyn Object>> = None;
        for version in 1..=ROUNDS_MAX {
            if version > ROUNDS_MIN && self.ended.load(Ordering::SeqCst) >= ENDED_MIN {
                return;
            }
            known.begun.store(version, Ordering::SeqCst);
            if handle.is_some() && random.chance(0.05) {
                self.stack.delete(name).expect("deletes");
                handle = None;
            } else {
                let count = 1 + random.below(WORDS_MAX as u64) as usize;
                let writer = handle.get_or_insert_with(|| open(Open::create()));
                if random.chance(0.1) {
                    // What is not written with this version must not be found any more.
                    writer.set_len(0).expect("cuts");
                    writer.write(0, &words(object, version, count)).expect("writes");
                } else {
                    writer.write(0, &words(object, version, WORDS_MAX)).expect("writes");
                }
                if random.chance(0.1) {
                    handle = Some(open(Open::write()));
                }
            }
            known.done.store(version, Ordering::SeqCst);
        }
    }

    fn move_about(&self) {
        let mut random = Random::new(77);
        while !self.is_over.load(Ordering::SeqCst) {
            let name = &self.names[random.below(OBJECTS as u64) as usize];
            let to = TierIndex(random.below(3) as u8);
            let kinds = [MoveKind::Move, MoveKind::Promote, MoveKind::Copy];
            // It may be gone, or on its way.
            match random.below(4) {
                kind @ 0..3 => {
                    drop(self.stack.migrate(name, to, kinds[kind as usize], 0, "test"));
                }
                _ => drop(self.stack.drop_copy(name, to)),
            }
            std::thread::yield_now();
        }
    }

    /// Reads by leases; how many reads were good.
    fn read(&self, seed: u64) -> u64 {
        let mut random = Random::new(seed);
        let mut good = 0;
        while !self.is_over.load(Ordering::SeqCst) {
            let object = random.below(OBJECTS as u64) as usize;
            // The handle stays while its leases are used.
            let Ok(handle) = self.stack.open(&self.names[object], &Open::read()) else { continue };
            let Some(lease) = handle.lease_file().expect("no failure") else {
                continue;
            };
            while !self.is_over.load(Ordering::SeqCst) {
                if !self.read_once(object, &lease) {
                    self.ended.fetch_add(1, Ordering::SeqCst);
                    break;
                }
                good += 1;
                if random.chance(0.001) {
                    break;
                }
            }
        }
        good
    }

    fn read_once(&self, object: usize, lease: &FileLease) -> bool {
        let known = &self.known[object];
        let mut data = [0; 8 * WORDS_MAX];
        let done = known.done.load(Ordering::SeqCst);
        let read = lease.read(0, &mut data).expect("reads");
        let begun = known.begun.load(Ordering::SeqCst);
        if let Some(count) = read {
            check(object, &data[..count], done, begun);
        }
        read.is_some()
    }
}

#[test]
fn a_good_lease_never_gives_old_or_foreign_bytes() {
    let world = World::three().lending();
    let stack = world.create();
    let names: Vec<_> = (0..OBJECTS).map(|number| key(&format!("object-{number}"))).collect();
    let known: Vec<_> = (0..OBJECTS).map(|_| Known::default()).collect();
    let (ended, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let scene =
        Scene { stack: &stack, names: &names, known: &known, ended: &ended, is_over: &is_over };
    let good: u64 = std::thread::scope(|scope| {
        let scene = &scene;
        let readers: Vec<_> =
            (0..READERS as u64).map(|seed| scope.spawn(move || scene.read(seed))).collect();
        let mover = scope.spawn(|| scene.move_about());
        let writers: Vec<_> =
            (0..OBJECTS).map(|object| scope.spawn(move || scene.write(object))).collect();
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, Ordering::SeqCst);
        mover.join().expect("the mover does not panic");
        assert!(written.iter().all(Result::is_ok), "a writer panicked");
        let counts = readers.into_iter().map(|reader| reader.join());
        counts.map(|good| good.expect("bytes as they must be")).sum()
    });
    let ended = ended.load(Ordering::SeqCst);
    assert!(good > ended && ended >= ENDED_MIN, "good={good} ended={ended}");
    assert_sound(&world, &stack);
}
