// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Power is lost in the middle of a migration, and the catalog with it: which of two files is right
//! stood in the catalog alone, so no byte that was synced may go with either.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::crashing::{Crash, Crashing};
use crate::common::hooked::{Call, Verdict};
use crate::common::world::{LONG, ROOMY, World, assert_sound, key, migrate, put};
use terrace_core::{
    Backend, BackendExt, ErrorKind, Key, ObjectExt, Open, Persistency, Role, TierIndex,
};
use terrace_stack::report::{Problem, RebuildReport};
use terrace_stack::{MoveKind, RebuildOptions, Saved, Stack};
use terrace_testkit::{Operation, SimKv};

const FAST: usize = 0;
const SLOW: usize = 1;

/// What survives a loss of power is chosen by chance; some of so many leave each mixture.
const SEEDS: u64 = 30;
/// Most seeds, where none of the first ones has come to what is looked for.
const SEEDS_MAX: u64 = 1000;

fn rebuild(world: &World, options: &RebuildOptions) -> RebuildReport {
    Stack::rebuild(&world.parts(), options, &mut |_, _| {})
        .unwrap_or_else(|error| panic!("{error:?}"))
}

fn rebuild_alone(world: &World) -> RebuildReport {
    rebuild(world, &RebuildOptions::default())
}

fn rebuild_beside(world: &World, present: &SimKv) -> RebuildReport {
    let saved = Some(Saved { catalog: present.open(), is_present: true });
    rebuild(world, &RebuildOptions { saved, ..RebuildOptions::default() })
}

/// A store whose machine stops right after a switch. While the object moved it was written and
/// synced, and these bytes came to the target after it was made durable. Returns what was synced.
fn stopped_in_a_switch(world: &World, failpoint: &str) -> Vec<u8> {
    let stack = world.create();
    let mut data = vec![1; 20_000];
    put(&stack, &key("moved"), &data);
    let object = stack.open(&key("moved"), &Open::write()).expect("opens");
    object.sync().expect("syncs");
    let object = Arc::new(object);
    let is_written = AtomicBool::new(false);
    let late = Arc::clone(&object);
    world.tier(SLOW).on(move |moment| {
        let is_durable = moment.call == Call::Sync && moment.is_done;
        if is_durable && !is_written.swap(true, Ordering::SeqCst) {
            late.write(8192, &[2; 4096]).expect("writes");
            late.sync().expect("syncs");
        }
        Verdict::Go
    });
    data[8192..12_288].fill(2);
    world.failpoints().arm(&Crashing { failpoint: failpoint.into(), visit: 1 });
    let tickets = stack.migrate(&key("moved"), TierIndex(1), MoveKind::Move, 0, "test");
    for ticket in tickets.expect("is queued") {
        stack.wait(ticket, LONG).expect("known").expect("ends");
    }
    assert!(world.failpoints().is_alive().is_err(), "it stopped");
    world.tier(SLOW).heal();
    drop((object, stack));
    data
}

/// Opens, deletes what is superseded, and closes.
fn open_and_close(world: &World) {
    let stack = world.open();
    stack.check(false, &mut |_, _| {}).expect("checks");
    stack.close().expect("closes");
}

fn doubtful(problems: &[Problem]) -> Vec<&Problem> {
    let found: Vec<_> = problems.iter().filter(|one| one.kind == "doubtful-file").collect();
    assert_eq!(found.len(), problems.len(), "nothing else is wrong: {problems:?}");
    found
}

/// The only file of a tier.
fn only_file(world: &World, tier: usize) -> Key {
    let files = world.disk(tier).files();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].key.clone()
}

fn remove_by_hand(world: &World, tier: usize, file: &Key) {
    let disk = world.disk(tier).open();
    disk.delete(file).expect("deletes");
    disk.sync().expect("syncs");
}

#[track_caller]
fn assert_reads(world: &World, data: &[u8]) {
    let stack = world.open();
    assert!(stack.read_all(&key("moved")).expect("reads") == data, "it has other bytes");
    assert_sound(world, &stack);
    stack.close().expect("closes");
}

#[test]
fn bytes_that_were_synced_stay_whichever_file_has_them() {
    let (mut in_doubt, mut certain) = (0, 0);
    for (failpoint, seed) in
        ["move.committed", "move.switched"].iter().flat_map(|at| (0..SEEDS).map(move |s| (at, s)))
    {
        let mut world = World::two();
        let data = stopped_in_a_switch(&world, failpoint);
        world.crash(Crash::Power { seed });
        world.lose_catalog();
        let report = rebuild_alone(&world);
        let doubtful = doubtful(&report.problems).len();
        open_and_close(&world);
        if doubtful == 0 {
            certain += 1;
            assert_reads(&world, &data);
            continue;
        }
        in_doubt += 1;
        let (older, newer) = (only_file(&world, FAST), only_file(&world, SLOW));
        assert!(world.disk(FAST).open().read_all(&older).expect("reads") == data);
        // A person takes the older one.
        remove_by_hand(&world, SLOW, &newer);
        let present = world.lose_catalog();
        rebuild_beside(&world, &present);
        assert_reads(&world, &data);
    }
    assert!(in_doubt > 0 && certain > 0, "{in_doubt} in doubt, {certain} certain");
}

/// A store with one file in doubt, and its bytes.
fn in_doubt() -> (World, Vec<u8>) {
    for seed in 0..SEEDS {
        let mut world = World::two();
        let data = stopped_in_a_switch(&world, "move.switched");
        world.crash(Crash::Power { seed });
        world.lose_catalog();
        if !rebuild_alone(&world).problems.is_empty() {
            return (world, data);
        }
    }
    panic!("some seed loses the last bytes of the target and keeps its mark")
}

/// The names of what `fsck` finds, and the garbage of the fast tier.
fn look(stack: &Stack) -> (Vec<String>, u64) {
    let report = stack.check(true, &mut |_, _| {}).expect("checks");
    let found = report.problems.iter().map(|one| format!("{} {}", one.kind, one.place));
    (found.collect(), stack.tiers()[FAST].garbage_bytes)
}

/// A person who is to look at files has to find them.
#[test]
fn files_in_doubt_are_named_by_their_paths() {
    let (world, _) = in_doubt();
    let stack = world.open_with(|parts| {
        parts
            .tiers
            .iter_mut()
            .for_each(|tier| tier.path_of = Some(|file| format!("at/{}", file.name())));
    });
    let report = stack.check(true, &mut |_, _| {}).expect("checks");
    let detail = &doubtful(&report.problems)[0].detail;
    for tier in [FAST, SLOW] {
        let path = format!("at/{} on ", only_file(&world, tier).name());
        assert!(detail.contains(&path), "{detail}");
    }
    stack.close().expect("closes");
}

#[test]
fn a_file_in_doubt_is_named_and_accounted_until_it_is_removed() {
    let (world, data) = in_doubt();
    let named = vec!["doubtful-file test/moved".to_string()];
    let bytes = data.len() as u64;
    for crash in [None, Some(Crash::Process), Some(Crash::Power { seed: 1 }), None] {
        let stack = world.open();
        assert_eq!(look(&stack), (named.clone(), bytes));
        migrate(&stack, &key("moved"), TierIndex(0), MoveKind::Copy);
        assert_eq!(look(&stack), (named.clone(), bytes));
        stack.drop_copy(&key("moved"), TierIndex(0)).expect("drops");
        match crash {
            None => stack.close().expect("closes"),
            Some(crash) => {
                world.failpoints().freeze();
                drop(stack);
                world.crash(crash);
            }
        }
    }
    let older = only_file(&world, FAST);
    remove_by_hand(&world, FAST, &older);
    let stack = world.open();
    assert_eq!(look(&stack), (vec![], 0));
    assert_sound(&world, &stack);
    stack.close().expect("closes");
}

#[test]
fn a_file_in_doubt_stays_when_the_catalog_is_made_anew_again() {
    let (mut world, data) = in_doubt();
    open_and_close(&world);
    let older = only_file(&world, FAST);
    for is_present in [true, false, true] {
        let catalog = world.lose_catalog();
        let report =
            if is_present { rebuild_beside(&world, &catalog) } else { rebuild_alone(&world) };
        assert_eq!((doubtful(&report.problems).len(), report.superseded), (1, 0));
        open_and_close(&world);
    }
    assert!(world.disk(FAST).open().read_all(&older).expect("reads") == data);
}

#[test]
fn a_file_in_doubt_does_not_bring_back_an_object_that_was_deleted() {
    let (mut world, _) = in_doubt();
    let stack = world.open();
    stack.delete(&key("moved")).expect("deletes");
    stack.close().expect("closes");
    for is_made_again in [false, true] {
        if is_made_again {
            let stack = world.open();
            put(&stack, &key("moved"), &[4; 100]);
            stack.close().expect("closes");
        }
        let catalog = world.lose_catalog();
        assert_eq!(doubtful(&rebuild_beside(&world, &catalog).problems).len(), 1);
        let stack = world.open();
        assert_eq!(stack.stat(&key("moved")).is_ok(), is_made_again);
        assert_eq!(look(&stack).0, ["doubtful-file test/moved"]);
        stack.close().expect("closes");
    }
}

#[test]
fn a_tier_with_a_file_in_doubt_is_not_removed() {
    let (world, data) = in_doubt();
    let stack = world.open();
    let error = stack.remove_tier("fast").expect_err("it holds one");
    assert!(error.to_string().contains("doubtful_files=1"), "{error}");
    stack.close().expect("closes");
    assert_eq!(world.disk(FAST).files()[0].length_bytes, data.len() as u64);
}

#[test]
fn a_tier_that_keeps_a_file_in_doubt_counts_it_as_taken() {
    let (world, data) = in_doubt();
    let bytes = data.len() as u64;
    let stack = world.open_with(|parts| {
        let tier = parts.tiers.remove(0);
        parts.tiers.insert(0, tier.with_capacity(bytes + 100));
    });
    let object = stack.open(&key("new"), &Open::create_new()).expect("creates");
    object.write(0, &[5; 101]).expect("there is another tier");
    assert_eq!(
        stack.explain(&key("new")).expect("exists").segments.last().expect("one").tier,
        "slow"
    );
    drop(object);
    stack.close().expect("closes");
}

#[test]
fn an_older_file_goes_only_once_the_newer_is_durable() {
    for seed in 0..SEEDS {
        let mut world = World::two();
        let data = stopped_in_a_switch(&world, "move.switched");
        // The kernel still has every byte of both.
        world.crash(Crash::Process);
        world.lose_catalog();
        let report = rebuild_alone(&world);
        assert_eq!((report.superseded, report.problems.len()), (1, 0), "{report:?}");
        let stack = world.open();
        stack.check(false, &mut |_, _| {}).expect("checks");
        assert!(world.disk(FAST).files().is_empty(), "the older one is gone");
        world.failpoints().freeze();
        drop(stack);
        world.crash(Crash::Power { seed });
        assert_reads(&world, &data);
    }
}

#[test]
fn a_switch_that_was_undone_stays_undone_without_the_catalog() {
    let mut undone = 0;
    for seed in 0..SEEDS {
        let mut world = World::two();
        let mut data = stopped_in_a_switch(&world, "move.switched");
        world.crash(Crash::Power { seed });
        // What it supersedes cannot be deleted yet.
        world.disk(SLOW).fail_always(Operation::Delete, ErrorKind::Io);
        let Ok(stack) = world.try_open_with(|_| {}) else {
            // The target was never switched to, and cannot be deleted.
            continue;
        };
        undone +=
            u64::from(stack.explain(&key("moved")).expect("exists").segments[0].tier == "fast");
        let object = stack.open(&key("moved"), &Open::write()).expect("opens");
        object.write(0, &[3; 4096]).expect("writes");
        object.sync().expect("syncs");
        drop(object);
        data[..4096].fill(3);
        world.failpoints().freeze();
        drop(stack);
        world.crash(Crash::Process);
        world.lose_catalog();
        let report = rebuild_alone(&world);
        assert!(report.problems.is_empty(), "{report:?}");
        assert_reads(&world, &data);
    }
    assert!(undone > 0);
}

#[test]
fn the_present_catalog_decides_even_where_the_store_was_not_recovered() {
    for seed in 0..SEEDS {
        let mut world = World::two();
        let data = stopped_in_a_switch(&world, "move.switched");
        world.crash(Crash::Power { seed });
        let present = world.lose_catalog();
        let report = rebuild_beside(&world, &present);
        assert!(report.problems.is_empty(), "{report:?}");
        assert_reads(&world, &data);
    }
}

/// At random: every byte that was synced is in the object, or in a file that was left for it.
#[test]
fn no_synced_byte_is_lost_with_power_and_catalog() {
    let mut in_doubt = 0;
    // Whether migrations are in a switch at the end of a seed depends on how busy the machine is.
    for seed in 0..SEEDS_MAX {
        if seed >= SEEDS && in_doubt > 0 {
            break;
        }
        let mut random = terrace_core::Random::new(seed);
        let mut world = World::with(&[
            ("fast", 300_000, Persistency::Storage),
            ("slow", ROOMY, Persistency::Storage),
        ]);
        let stack = world.create_with(|parts| parts.settings.persistency = Persistency::Storage);
        let names: Vec<_> = (0..6).map(|index| key(&format!("o{index}"))).collect();
        let mut model: Vec<Vec<u8>> = Vec::new();
        for name in &names {
            let data = vec![random.below(256) as u8; 1 + random.below(30_000) as usize];
            put(&stack, name, &data);
            model.push(data);
        }
        for _ in 0..80 {
            let index = random.below(names.len() as u64) as usize;
            if random.chance(0.4) {
                let kind = [MoveKind::Move, MoveKind::Promote][random.below(2) as usize];
                let to = TierIndex(random.below(2) as u8);
                let _ = stack.migrate(&names[index], to, kind, 0, "test");
                continue;
            }
            let bytes = vec![random.below(256) as u8; 1 + random.below(9000) as usize];
            let at = random.below(model[index].len() as u64) as usize;
            let object = stack.open(&names[index], &Open::write()).expect("opens");
            object.write(at as u64, &bytes).expect("writes");
            let length = model[index].len().max(at + bytes.len());
            model[index].resize(length, 0);
            model[index][at..at + bytes.len()].copy_from_slice(&bytes);
        }
        world.failpoints().freeze();
        drop(stack);
        world.crash(Crash::Power { seed });
        world.lose_catalog();
        let report = rebuild_alone(&world);
        in_doubt += doubtful(&report.problems).len();
        open_and_close(&world);
        let stack = world.open();
        for (name, data) in names.iter().zip(&model) {
            let is_right = stack.read_all(name).expect("reads") == *data;
            let is_kept = || {
                (0..2).any(|tier| {
                    let files = world.disk(tier).files().into_iter();
                    let of_it = files.filter(|file| {
                        file.identity.as_ref().is_some_and(|identity| {
                            identity.key == *name && identity.role == Role::Primary
                        })
                    });
                    let disk = world.disk(tier).open();
                    of_it.into_iter().any(|file| disk.read_all(&file.key).expect("reads") == *data)
                })
            };
            assert!(is_right || is_kept(), "seed {seed}: {name} has lost bytes; {report:?}");
        }
        stack.close().expect("closes");
    }
    assert!(in_doubt > 0, "no seed stopped in a switch");
}

#[test]
fn a_store_whose_sync_failed_does_not_end_as_if_nothing_were_lost() {
    for has_failed in [false, true] {
        let world = World::two();
        let stack = world.create();
        let name = key("unsynced");
        put(&stack, &name, &[7; 5000]);
        let object = stack.open(&name, &Open::write()).expect("opens");
        if has_failed {
            world.disk(0).fail_next(Operation::Sync, ErrorKind::Io);
        }
        assert_eq!(object.sync().is_err(), has_failed);
        drop(object);
        let opening = stack.opening();
        stack.close().expect("closes");
        drop(stack);
        let stack = world.open();
        assert_eq!(stack.previous_opening() != opening, has_failed);
        assert_eq!(stack.read_all(&name).expect("reads"), [7; 5000]);
        assert_sound(&world, &stack);
    }
}
