// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stores of the format before this one, and of formats that are not opened.

use crate::common::crashing::{Crash, Crashing};
use crate::common::world::{World, assert_sound, in_parallel, key, put};
use terrace_core::{Access, BackendExt, ErrorKind, KvExt};

const HEADER: &[u8] = b"h";

/// Fields of the header before its list of tiers.
const HEAD_BYTES: usize = 1 + 4 + 16 + 8 + 1 + 8 + 1 + 8 + 8 + 8;

/// Totals of a tier, in every version.
const TOTALS_BYTES: usize = 4 * 8;

/// What version 2 added to each tier.
const ADDED_BYTES: usize = 1 + 8;

/// The header of this version as `format` had it.
fn rewritten(header: &[u8], format: u32) -> Vec<u8> {
    let body = &header[..header.len() - 4];
    let mut out = body[..HEAD_BYTES].to_vec();
    out[1..5].copy_from_slice(&format.to_le_bytes());
    let (count, mut tiers) = body[HEAD_BYTES..].split_at(4);
    out.extend(count);
    while !tiers.is_empty() {
        let name_bytes = u32::from_le_bytes(tiers[1..5].try_into().expect("four")) as usize;
        let (old, rest) = tiers.split_at(1 + 4 + name_bytes + TOTALS_BYTES);
        let (added, rest) = rest.split_at(ADDED_BYTES);
        out.extend(old);
        if format > 1 {
            out.extend(added);
        }
        tiers = rest;
    }
    let checksum = crc32c::crc32c(&out);
    out.extend(checksum.to_le_bytes());
    out
}

/// Makes a closed store look as if `format` had been written.
fn set_format(world: &World, format: u32) {
    let kv = world.kv().open();
    let header = kv.get(HEADER).expect("reads").expect("is there");
    let ticket = kv.put(HEADER, &rewritten(&header, format)).expect("writes");
    kv.wait(ticket).expect("is durable");
    for tier in 0..2 {
        let disk = world.disk(tier).open();
        let mut superblock = disk.superblock().expect("reads").expect("is there");
        superblock.format_version = format;
        disk.set_superblock(&superblock).expect("writes");
    }
}

/// A closed store with an object.
fn closed() -> World {
    let world = World::two();
    let stack = world.create();
    put(&stack, &key("old"), &[7; 5000]);
    stack.close().expect("closes");
    drop(stack);
    world.crash(Crash::Process);
    world
}

#[test]
fn a_store_of_version_1_is_upgraded_by_the_first_opening_for_writing() {
    let world = closed();
    set_format(&world, 1);
    let stack = world.open();
    assert!(stack.opening_notes()[0].contains("upgraded from format 1"));
    assert_eq!(stack.read_all(&key("old")).expect("reads"), [7; 5000]);
    assert_sound(&world, &stack);
    stack.close().expect("closes");
    drop(stack);
    let superblock = world.disk(1).open().superblock().expect("reads").expect("is there");
    assert_eq!(superblock.format_version, 2);
    let stack = world.open();
    assert_eq!(stack.opening_notes(), Vec::<String>::new(), "once is enough");
}

#[test]
fn an_opening_for_reading_leaves_a_store_of_version_1_as_it_is() {
    let world = closed();
    set_format(&world, 1);
    let before = world.snapshot();
    let stack = world.open_with(|parts| parts.settings.access = Access::Read);
    assert_eq!(stack.read_all(&key("old")).expect("reads"), [7; 5000]);
    drop(stack);
    assert_eq!(world.snapshot(), before);
}

#[test]
fn an_upgrade_may_crash_at_every_step() {
    let steps = ["open.superblock", "open.superblocks", "open.header"];
    let visits = [(0, 1), (0, 2), (1, 1), (2, 1)];
    let crashes = (0..5).map(|seed| Crash::Power { seed }).chain([Crash::Process]);
    let cases = crashes.flat_map(|crash| visits.map(|(step, visit)| (crash, step, visit)));
    in_parallel(cases.collect(), |(crash, step, visit)| {
        let world = closed();
        set_format(&world, 1);
        world.failpoints().arm(&Crashing { failpoint: steps[step].into(), visit });
        world.try_open_with(|_| {}).map(drop).expect_err("it stops there");
        world.crash(crash);
        // Who only looks may come in between.
        let stack = world.open_with(|parts| parts.settings.access = Access::Read);
        assert_eq!(stack.read_all(&key("old")).expect("reads"), [7; 5000]);
        drop(stack);
        let stack = world.open();
        assert_eq!(stack.read_all(&key("old")).expect("reads"), [7; 5000]);
        assert_sound(&world, &stack);
    });
}

#[test]
fn other_formats_are_refused_and_left_alone() {
    for (format, word) in [(3, "newer"), (0, "too old")] {
        let world = closed();
        set_format(&world, format);
        let before = world.snapshot();
        let error = world.try_open_with(|_| {}).map(drop).expect_err("another version");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let text = error.chain();
        assert!(text.contains(word) && text.contains("found_format="), "{text}");
        assert_eq!(world.snapshot(), before);
    }
}
