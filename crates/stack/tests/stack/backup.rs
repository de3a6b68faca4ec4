// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Backups of the catalog: of one moment, whole, and never taken for more than they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::world::{World, assert_sound, key, migrate, put};
use terrace_core::{Backend, BackendExt, ErrorKind, Kv, Persistency, TierIndex};
use terrace_stack::{MoveKind, RebuildOptions, Saved, Stack, read_backup};
use terrace_testkit::SimWorld;

const LEVEL: Persistency = Persistency::Process;

fn back_up(stack: &Stack) -> Vec<u8> {
    let mut bytes = Vec::new();
    let report = stack.backup(&mut bytes, &mut |_| {}).expect("backs up");
    assert_eq!(report.bytes, bytes.len() as u64);
    bytes
}

fn restored(mut bytes: &[u8]) -> Result<Arc<dyn Kv>, terrace_core::Error> {
    let target = SimWorld::new().kv().open();
    read_backup(&mut bytes, &*target, &mut |_| {})?;
    Ok(target)
}

fn number(kv: &dyn Kv, name: &[u8]) -> u64 {
    let key = [b"kcounters\0", name].concat();
    let value = kv.get(&key).expect("reads").unwrap_or_else(|| panic!("{name:?} is missing"));
    u64::from_le_bytes(value.try_into().expect("8 bytes"))
}

/// Each writer counts in two pairs, one after the other, at both ends of everything else: a copy
/// that is not of one moment has the second ahead of the first.
#[test]
fn a_backup_is_of_one_moment_while_the_store_is_written() {
    const WRITERS: usize = 3;
    let world = World::two();
    let stack = world.create();
    for index in 0..4000 {
        let name = format!("m{index}");
        stack.kv_put("counters", name.as_bytes(), &[0; 40], LEVEL).expect("puts");
    }
    let count = |name: String, value: u64| {
        stack.kv_put("counters", name.as_bytes(), &value.to_le_bytes(), LEVEL).expect("puts");
    };
    for writer in 0..WRITERS {
        count(format!("a{writer}"), 0);
        count(format!("z{writer}"), 0);
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (count, is_over) = (&count, &is_over);
            scope.spawn(move || {
                for value in 1.. {
                    if is_over.load(Ordering::Acquire) {
                        return;
                    }
                    count(format!("a{writer}"), value);
                    count(format!("z{writer}"), value);
                }
            });
        }
        for _ in 0..25 {
            let copy = restored(&back_up(&stack)).expect("is whole");
            for writer in 0..WRITERS {
                let first = number(&*copy, format!("a{writer}").as_bytes());
                let second = number(&*copy, format!("z{writer}").as_bytes());
                let is_one_moment = first == second || first == second + 1;
                if !is_one_moment {
                    is_over.store(true, Ordering::Release);
                }
                assert!(is_one_moment, "writer {writer} had counted to {first} and to {second}");
            }
        }
        is_over.store(true, Ordering::Release);
    });
}

#[test]
fn what_is_deleted_meanwhile_is_not_in_it() {
    let world = World::two();
    let stack = world.create();
    put(&stack, &key("kept"), &[1; 100]);
    put(&stack, &key("deleted"), &[1; 100]);
    // Fills the first block, in front of the objects.
    stack.kv_put("pairs", b"large", &[0; 70_000], LEVEL).expect("puts");
    let mut out = AtFirstBlock::new(|| stack.delete(&key("deleted")).expect("deletes"));
    stack.backup(&mut out, &mut |_| {}).expect("backs up");
    let copy = restored(&out.bytes).expect("is whole");
    assert!(copy.get(b"otest\0kept").expect("reads").is_some());
    assert!(copy.get(b"otest\0deleted").expect("reads").is_none());
}

/// So that memory does not grow with what changes while a large catalog is copied.
#[test]
fn what_changes_in_front_of_the_copy_is_read_once() {
    const PAIRS: u32 = 5000;
    let world = World::two();
    let stack = world.create();
    let put = |index: u32, value: u8| {
        stack.kv_put("pairs", &index.to_be_bytes(), &[value; 100], LEVEL).expect("puts");
    };
    (0..PAIRS).for_each(|index| put(index, 1));
    let mut quiet = Vec::new();
    let quiet = stack.backup(&mut quiet, &mut |_| {}).expect("backs up");
    // 600 pairs fill a block: the copy is in the first page of a thousand.
    let (passed, ahead) = (0..100, 3000..PAIRS);
    let mut out = AtFirstBlock::new(|| {
        passed.clone().chain(ahead.clone()).for_each(|index| put(index, 2));
        stack.kv_apply("pairs", &[(&4000_u32.to_be_bytes(), None)], LEVEL).expect("removes");
    });
    let report = stack.backup(&mut out, &mut |_| {}).expect("backs up");
    assert_eq!(report.pairs, quiet.pairs + 100 - 1);
    let copy = restored(&out.bytes).expect("is whole");
    for index in 0..PAIRS {
        let is_changed = passed.contains(&index) || ahead.contains(&index);
        let expected = (index != 4000).then(|| vec![1 + u8::from(is_changed); 100]);
        let found = copy.get(&[b"kpairs\0", &index.to_be_bytes()[..]].concat()).expect("reads");
        assert_eq!(found, expected, "{index}");
    }
}

/// It failed as busy, though the copy as a whole was faster than what was written meanwhile.
#[test]
fn much_that_changes_while_one_page_is_written_is_given_before_the_next_pair() {
    const NAME_BYTES: usize = 480;
    // A page of a thousand pairs fills 62 blocks, and 64 MiB of keys change meanwhile, which is
    // what may wait; about half of them before the page is left.
    const VALUE_BYTES: usize = 4 << 10;
    const BLOCKS: u32 = 61;
    const CHANGES_AT_ONCE: u32 = 2100;
    let world = World::two();
    let stack = world.create();
    let name = |first: char, index: u32| {
        let text = format!("{first}{index:010}");
        [text.as_bytes(), &[b'-'; NAME_BYTES - 11]].concat()
    };
    let change = |first: char, indices: std::ops::Range<u32>, value: Option<&[u8]>| {
        let names: Vec<_> = indices.map(|index| name(first, index)).collect();
        let changes: Vec<_> = names.iter().map(|name| (name.as_slice(), value)).collect();
        stack.kv_apply("pairs", &changes, LEVEL).expect("is changed");
    };
    // All keys of the stack itself, and those of `a`, are in the first page.
    change('a', 0..500, Some(&[1; 10]));
    change('m', 0..4000, Some(&[1; VALUE_BYTES]));
    let mut blocks = 0;
    let then = |bytes: &[u8]| {
        // The first page has 500 pairs of `m`.
        blocks += u32::from(bytes.len() > VALUE_BYTES);
        let Some(block) = blocks.checked_sub(40).filter(|block| *block < BLOCKS) else { return };
        if bytes.len() > VALUE_BYTES {
            let first = 1000 + block * CHANGES_AT_ONCE;
            change('a', first..first + CHANGES_AT_ONCE, Some(&[2; 10]));
            change('a', 5 * block..5 * block + 3, None);
            change('a', 5 * block + 3..5 * block + 4, Some(&[3; 10]));
            change('m', 24 * block..24 * block + 1, None);
            change('m', 24 * block + 1..24 * block + 2, Some(&[3; 10]));
        }
    };
    let mut out = AtEachWrite { bytes: Vec::new(), then };
    stack.backup(&mut out, &mut |_| {}).expect("backs up");
    let bytes = out.bytes;
    assert!(blocks >= 40 + BLOCKS, "everything was changed");
    let copy = restored(&bytes).expect("is whole");
    let of_copy = |first: char, index: u32| {
        copy.get(&[b"kpairs\0", name(first, index).as_slice()].concat()).expect("reads")
    };
    for (first, count) in [('a', 1001 + BLOCKS * CHANGES_AT_ONCE), ('m', 4001)] {
        for index in 0..count {
            let expected = stack.kv_get("pairs", &name(first, index)).expect("reads");
            assert!(of_copy(first, index) == expected, "{first} {index}");
        }
    }
}

/// Does something at each write.
struct AtEachWrite<F> {
    bytes: Vec<u8>,
    then: F,
}

impl<F: FnMut(&[u8])> std::io::Write for AtEachWrite<F> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        (self.then)(bytes);
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Does something when the first block is written.
struct AtFirstBlock<F> {
    bytes: Vec<u8>,
    then: Option<F>,
}

impl<F: FnOnce()> AtFirstBlock<F> {
    fn new(then: F) -> Self {
        Self { bytes: Vec::new(), then: Some(then) }
    }
}

impl<F: FnOnce()> std::io::Write for AtFirstBlock<F> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // The length of a block: the page of pairs with it has been read.
        if bytes.len() == 4
            && let Some(then) = self.then.take()
        {
            then();
        }
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn every_damage_and_every_cut_is_noticed() {
    let world = World::two();
    let stack = world.create();
    for index in 0..5 {
        put(&stack, &key(&format!("o{index}")), &[1; 100]);
    }
    let bytes = back_up(&stack);
    restored(&bytes).expect("is whole");
    for at in 0..bytes.len() {
        let cut = restored(&bytes[..at]).map(drop).expect_err("it was cut");
        assert_eq!(cut.kind(), ErrorKind::Corrupt, "cut at {at}");
        // The id of the store is compared with that of the tiers.
        if (8..24).contains(&at) {
            continue;
        }
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let error = restored(&damaged).map(drop).expect_err("it was damaged");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}");
    }
}

#[test]
fn a_store_comes_back_from_its_tiers_and_a_backup() {
    let mut world = World::two();
    let stack = world.create();
    for index in 0..20 {
        put(&stack, &key(&format!("o{index}")), &[index; 1000]);
    }
    migrate(&stack, &key("o3"), TierIndex(1), MoveKind::Move);
    stack.pin(&key("o4")).expect("pins");
    stack.kv_put("pairs", b"a", b"1", LEVEL).expect("puts");
    let bytes = back_up(&stack);
    put(&stack, &key("later"), &[9; 1000]);
    stack.close().expect("closes");
    drop(stack);
    world.lose_catalog();
    let saved = Some(Saved { catalog: restored(&bytes).expect("is whole"), is_present: false });
    let options = RebuildOptions { saved, ..RebuildOptions::default() };
    let report = Stack::rebuild(&world.parts(), &options, &mut |_, _| {}).expect("rebuilds");
    assert_eq!((report.objects, report.pairs), (21, 1), "{report:?}");
    assert!(report.problems.is_empty(), "{report:?}");
    let stack = world.open();
    assert_sound(&world, &stack);
    assert_eq!(stack.read_all(&key("o3")).expect("reads"), [3; 1000]);
    assert_eq!(stack.read_all(&key("later")).expect("reads"), [9; 1000]);
    assert!(stack.explain(&key("o4")).expect("exists").is_pinned);
    assert_eq!(stack.kv_get("pairs", b"a").expect("reads").as_deref(), Some(&b"1"[..]));
}
