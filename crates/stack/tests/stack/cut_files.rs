// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file of a tier that has lost its tail is damage: nothing makes content of the zeros behind it.

use crate::common::directories::Directories;
use crate::common::hooked::Call;
use crate::common::world::{
    LONG, ROOMY, World, assert_sound, cutting, eventually, key, migrate, outcome_of, put,
};
use terrace_core::{
    Access, Backend, BackendExt, End, ErrorKind, Key, Object, ObjectExt, Open, Persistency,
    Semantics, TierIndex,
};
use terrace_stack::report::{MoveReport, ScrubReport};
use terrace_stack::{MoveKind, ScrubOptions, Stack};

const FAST: TierIndex = TierIndex(0);
const SLOW: TierIndex = TierIndex(1);

const WHOLE: usize = 20_000;
const LEFT: usize = 9_000;

fn scrub(stack: &Stack) -> ScrubReport {
    let options = ScrubOptions { bytes_per_s: f64::INFINITY, namespace: None };
    stack.scrub(&options, &mut |_, _| true).expect("scrubs")
}

/// Where the last segment of an object is.
fn stored(stack: &Stack, name: &Key) -> Key {
    let segments = stack.explain(name).expect("exists").segments;
    Key::parse(&segments.last().expect("has some").stored_as).expect("legal")
}

fn open_new_durable(stack: &Stack, name: &Key) -> Box<dyn Object> {
    let semantics = Semantics::at_level(Persistency::Storage);
    stack.open(name, &Open::create_new().with_semantics(semantics)).expect("makes it")
}

/// Takes the tail from a file behind the stack's back.
fn cut(world: &World, tier: usize, file: &Key, bytes: usize) {
    let disk = world.disk(tier).open();
    disk.open(file, &Open::write()).expect("opens").set_len(bytes as u64).expect("cuts");
}

fn try_migrate(stack: &Stack, name: &Key, to: TierIndex, kind: MoveKind) -> MoveReport {
    let tickets = stack.migrate(name, to, kind, 0, "test").expect("queued");
    let ended = tickets.iter().map(|ticket| stack.wait(*ticket, LONG).expect("known"));
    let mut reports: Vec<_> = ended.map(|report| report.expect("ends")).collect();
    reports.pop().expect("there is one")
}

fn kinds(stack: &Stack) -> Vec<String> {
    let check = stack.check(false, &mut |_, _| {}).expect("checks");
    check.problems.into_iter().map(|problem| problem.kind).collect()
}

#[track_caller]
fn assert_refused(report: &MoveReport) {
    assert_eq!(outcome_of(report), "io", "{report:?}");
    assert!(report.detail.contains("lost its end"), "{report:?}");
}

#[test]
fn what_lost_its_tail_is_not_migrated() {
    for kind in [MoveKind::Move, MoveKind::Promote, MoveKind::Copy] {
        for has_checksum in [false, true] {
            let world = World::two();
            let stack = world.create();
            let name = key("cut");
            put(&stack, &name, &[7; WHOLE]);
            if has_checksum {
                assert_eq!(scrub(&stack).recorded, 1);
            }
            let file = stored(&stack, &name);
            cut(&world, 0, &file, LEFT);
            let before = stack.tiers();
            for _ in 0..2 {
                assert_refused(&try_migrate(&stack, &name, SLOW, kind));
            }
            let segment = stack.explain(&name).expect("exists").segments.remove(0);
            assert_eq!((segment.tier.as_str(), segment.copies.len()), ("fast", 0));
            assert_eq!(segment.size_bytes, WHOLE as u64);
            assert!(world.stored(0, file.as_str()) == Some(vec![7; LEFT]));
            assert_eq!(world.disk(1).files(), [], "nothing is left of what was tried");
            assert_eq!(kinds(&stack), ["wrong-length"]);
            let used = |tiers: &[terrace_stack::report::TierReport]| -> Vec<_> {
                tiers.iter().map(|tier| (tier.used_bytes, tier.copy_bytes)).collect()
            };
            assert_eq!(used(&stack.tiers()), used(&before));
            assert_eq!(scrub(&stack).problem_count, 1);
            // Who has the tail writes it again, and all is well.
            put_back(&world, 0, &file);
            migrate(&stack, &name, SLOW, kind);
            assert!(stack.read_all(&name).expect("reads") == [7; WHOLE]);
            assert_sound(&world, &stack);
        }
    }
}

fn put_back(world: &World, tier: usize, file: &Key) {
    let disk = world.disk(tier).open();
    disk.open(file, &Open::write()).expect("opens").write(0, &[7; WHOLE]).expect("writes");
}

#[test]
fn a_later_segment_that_lost_its_tail_is_not_migrated() {
    let world = World::two();
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(8192)));
    let name = key("cut");
    put(&stack, &name, &[7; WHOLE]);
    let file = stored(&stack, &name);
    cut(&world, 0, &file, 1);
    assert_refused(&try_migrate(&stack, &name, SLOW, MoveKind::Move));
    let segments = stack.explain(&name).expect("exists").segments;
    let tiers: Vec<_> = segments.iter().map(|segment| segment.tier.as_str()).collect();
    assert_eq!(tiers, ["slow", "slow", "fast"]);
    assert_eq!(kinds(&stack), ["wrong-length"]);
}

#[test]
fn a_drain_leaves_what_lost_its_tail() {
    let world = World::two();
    let stack = world.create();
    put(&stack, &key("cut"), &[7; WHOLE]);
    put(&stack, &key("whole"), &[7; WHOLE]);
    let file = stored(&stack, &key("cut"));
    cut(&world, 0, &file, LEFT);
    stack.drain_tier("fast").expect("drains");
    let stuck = || {
        let tiers = stack.tiers();
        let drain = tiers[0].drain.clone().expect("is drained");
        (drain.segments == 1).then_some(drain.stuck).filter(|stuck| !stuck.is_empty())
    };
    eventually("the other one is gone", || stuck().is_some());
    let stuck = stuck().expect("stays stuck");
    assert_eq!(stuck.len(), 1);
    assert_eq!(stuck[0].key, "test/cut");
    assert!(stuck[0].reason.contains("lost its end"), "{stuck:?}");
    assert!(world.stored(0, file.as_str()) == Some(vec![7; LEFT]));
}

#[test]
fn a_copy_that_lost_its_tail_does_not_become_the_primary() {
    let world = World::two();
    let stack = world.create();
    let name = key("copied");
    put(&stack, &name, &[7; WHOLE]);
    migrate(&stack, &name, SLOW, MoveKind::Promote);
    let copy = world.disk(0).files().remove(0).key;
    cut(&world, 0, &copy, LEFT);
    assert_refused(&try_migrate(&stack, &name, FAST, MoveKind::Move));
    let segment = stack.explain(&name).expect("exists").segments.remove(0);
    assert_eq!((segment.tier.as_str(), segment.copies.as_slice()), ("slow", &["fast".into()][..]));
    // The other one is right, and mends it.
    assert_eq!(scrub(&stack).repairs.len(), 1);
    migrate(&stack, &name, FAST, MoveKind::Move);
    assert!(stack.read_all(&name).expect("reads") == [7; WHOLE]);
    assert_sound(&world, &stack);
}

/// Lengths that change while a migration copies are no damage.
#[test]
fn what_grows_or_is_cut_meanwhile_is_migrated() {
    for is_done in [false, true] {
        for length in [0, 100, LEFT, 3 * WHOLE] {
            let world = World::two();
            let stack = world.create();
            let name = key("changing");
            put(&stack, &name, &[7; WHOLE]);
            let object = stack.open(&name, &Open::write()).expect("opens");
            world
                .tier(0)
                .hold(move |moment| moment.call == Call::Read && moment.is_done == is_done);
            let tickets = stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued");
            world.tier(0).wait_until_held();
            object.set_len(length as u64).expect("changes");
            world.tier(0).release();
            let report = stack.wait(tickets[0], LONG).expect("known").expect("ends");
            assert_eq!(outcome_of(&report), "done", "{report:?}");
            drop(object);
            let mut expected = vec![7; WHOLE];
            expected.resize(length, 0);
            assert!(stack.read_all(&name).expect("reads") == expected);
            assert_sound(&world, &stack);
        }
    }
}

/// Holes are bytes that are there, also at the end, and so is what a crash left.
#[test]
fn holes_and_lengths_found_after_a_crash_are_migrated() {
    let world = World::two();
    let stack = world.create();
    let name = key("sparse");
    let object = stack.open(&name, &Open::create_new()).expect("creates");
    object.write(0, &[7; 100]).expect("writes");
    object.set_len(1 << 20).expect("grows");
    object.sync().expect("syncs");
    object.write(1 << 20, &[7; WHOLE]).expect("writes");
    drop(object);
    drop(stack);
    world.lose_all_unsynced();
    let stack = world.open();
    let expected = stack.read_all(&name).expect("reads");
    assert!(expected.len() >= 1 << 20, "what was synced is there");
    migrate(&stack, &name, SLOW, MoveKind::Move);
    migrate(&stack, &name, FAST, MoveKind::Copy);
    assert!(stack.read_all(&name).expect("reads") == expected);
    assert_sound(&world, &stack);
}

fn worlds() -> [World; 2] {
    [World::two(), World::with(&[("only", ROOMY, Persistency::Storage)])]
}

/// Neither an early end nor zeros come in the place of what is lost, and nothing is accounted for less.
#[test]
fn reading_what_is_lost_fails_and_changes_nothing() {
    for is_reopened in [false, true] {
        for world in worlds() {
            let mut stack = world.create();
            let name = key("cut");
            put(&stack, &name, &[7; WHOLE]);
            if is_reopened {
                stack.close().expect("closes");
                drop(stack);
                stack = world.open();
            }
            let file = stored(&stack, &name);
            cut(&world, 0, &file, LEFT);
            let before = stack.tiers()[0].used_bytes;
            assert_eq!(stack.stat(&name).expect("stats").size_bytes, WHOLE as u64);
            for open in [Open::read(), Open::write()] {
                let object = stack.open(&name, &open).expect("opens");
                assert_eq!(object.stat().expect("stats").size_bytes, WHOLE as u64);
                let mut buffer = [0; LEFT];
                assert_eq!(object.read(0, &mut buffer).expect("is there"), LEFT);
                assert!(buffer == [7; LEFT]);
                for offset in [1, LEFT - 1, LEFT, WHOLE - 1] {
                    let error = object.read(offset as u64, &mut buffer).expect_err("is lost");
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{}", error.chain());
                    assert!(error.chain().contains("lost its end"), "{}", error.chain());
                }
                for offset in [WHOLE, WHOLE + 1] {
                    assert_eq!(object.read(offset as u64, &mut buffer).expect("is behind"), 0);
                }
                assert!(object.next_data(0).expect("is there").is_some());
                let hole = object.next_data(LEFT as u64).expect_err("it is no hole");
                assert_eq!(hole.kind(), ErrorKind::Corrupt);
                drop(object);
            }
            assert_eq!(stack.read_all(&name).expect_err("is lost").kind(), ErrorKind::Corrupt);
            assert_eq!(stack.stat(&name).expect("stats").size_bytes, WHOLE as u64);
            assert_eq!(stack.tiers()[0].used_bytes, before);
            assert_eq!(kinds(&stack), ["wrong-length"]);
            stack.close().expect("closes");
            drop(stack);
            let stack = world.open();
            assert_eq!(kinds(&stack), ["wrong-length"]);
            assert_eq!(stack.stat(&name).expect("stats").size_bytes, WHOLE as u64);
            put_back(&world, 0, &file);
            assert!(stack.read_all(&name).expect("reads") == [7; WHOLE]);
            assert_sound(&world, &stack);
        }
    }
}

/// A loss of power drops copies, because primaries may have lost bytes; a primary that is gone takes none along.
#[test]
fn a_copy_outlives_power_and_its_primary() {
    for world in [World::two(), World::two().whole("slow")] {
        let stack = world.create();
        let name = key("object");
        let object = open_new_durable(&stack, &name);
        object.write(0, &[7; WHOLE]).expect("writes");
        drop(object);
        migrate(&stack, &name, SLOW, MoveKind::Copy);
        stack.sync_all().expect("syncs");
        let file = stored(&stack, &name);
        world.failpoints().freeze();
        drop(stack);
        world.lose_all_unsynced();
        world.disk(0).open().delete(&file).expect("deletes");
        let stack = world.open();
        assert_eq!(kinds(&stack), ["missing-file"]);
        assert_eq!(stack.explain(&name).expect("exists").segments[0].copies, ["slow"]);
        let object = stack.open(&name, &Open::write()).expect("opens");
        let mut bytes = vec![0; WHOLE];
        assert_eq!(object.read(0, &mut bytes).expect("reads the copy"), WHOLE);
        assert!(bytes == [7; WHOLE]);
        object.write(0, b"new").expect_err("the file that is written to is gone");
        drop(object);
        migrate(&stack, &name, SLOW, MoveKind::Move);
        assert_eq!(kinds(&stack), Vec::<String>::new(), "the copy is the primary");
        assert!(stack.read_all(&name).expect("reads") == [7; WHOLE]);
        assert_sound(&world, &stack);
    }
}

#[test]
fn what_a_copy_has_lost_is_read_from_the_primary() {
    let world = World::two();
    let stack = world.create();
    let name = key("copied");
    put(&stack, &name, &[7; WHOLE]);
    migrate(&stack, &name, SLOW, MoveKind::Promote);
    let copy = world.disk(0).files().remove(0).key;
    cut(&world, 0, &copy, LEFT);
    assert!(stack.read_all(&name).expect("reads") == [7; WHOLE]);
}

/// What would lie between the end of the file and the bytes that are written would be zeros.
#[test]
fn nothing_is_written_behind_what_is_lost() {
    for world in worlds() {
        let stack = world.create();
        let name = key("cut");
        put(&stack, &name, &[7; WHOLE]);
        stack.close().expect("closes");
        drop(stack);
        let stack = world.open();
        let file = stored(&stack, &name);
        cut(&world, 0, &file, LEFT);
        let object = stack.open(&name, &Open::write()).expect("opens");
        let refused = [
            object.write(LEFT as u64 + 1, b"x"),
            object.append(&[std::io::IoSlice::new(b"x")]).map(drop),
            object.set_len(LEFT as u64 + 1),
            object.set_len(WHOLE as u64 + 1),
            object.allocate(0..2 * WHOLE as u64, End::Grows),
        ];
        for result in refused {
            let error = result.expect_err("is refused");
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{}", error.chain());
        }
        assert!(world.stored(0, file.as_str()) == Some(vec![7; LEFT]));
        assert_eq!(object.stat().expect("stats").size_bytes, WHOLE as u64);
        object.write(0, b"there").expect("it is there");
        drop(object);
        assert_eq!(kinds(&stack), ["wrong-length"]);
        // Who writes everything again, or does without the rest, has a file that is whole.
        let object = stack.open(&name, &Open::write()).expect("opens");
        for start in (0..WHOLE).step_by(1000) {
            object.write(start as u64, &[8; 1000]).expect("writes");
        }
        drop(object);
        assert!(stack.read_all(&name).expect("reads") == [8; WHOLE]);
        assert_sound(&world, &stack);
        cut(&world, 0, &file, LEFT);
        let object = stack.open(&name, &Open::write()).expect("opens");
        object.set_len(LEFT as u64).expect("cuts");
        object.append(&[std::io::IoSlice::new(b"x")]).expect("appends");
        drop(object);
        assert_eq!(stack.read_all(&name).expect("reads").len(), LEFT + 1);
        assert_sound(&world, &stack);
    }
}

/// A cut beside reads and writes is none that loses anything.
#[test]
fn cuts_beside_reads_and_writes_are_no_damage() {
    for world in worlds() {
        let stack = world.create();
        let name = key("busy");
        put(&stack, &name, &[7; WHOLE]);
        let open = || stack.open(&name, &Open::write()).expect("opens");
        let (reader, writer, cutter) = (open(), open(), open());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..500 {
                    cutter.set_len(LEFT as u64).expect("cuts");
                    cutter.set_len(WHOLE as u64).expect("grows");
                }
            });
            scope.spawn(|| {
                for at in 0..1000 {
                    writer.write(at * 17 % WHOLE as u64, &[7; 3000]).expect("writes");
                }
            });
            let mut buffer = vec![0; 2 * WHOLE];
            for at in 0..2000 {
                reader.read(at * 13 % WHOLE as u64, &mut buffer).expect("reads");
                reader.next_data(at * 11 % WHOLE as u64).expect("looks");
                reader.stat().expect("stats");
            }
        });
        drop((reader, writer, cutter));
        assert_sound(&world, &stack);
    }
}

/// Growing leaves a hole behind a cut, which is found with the last close: after the record was written.
#[test]
fn a_hole_found_after_the_record_was_written_is_in_the_next_one() {
    for world in worlds() {
        let stack = world.create();
        let name = key("cut");
        put(&stack, &name, &[7; WHOLE]);
        let object = stack.open(&name, &Open::write()).expect("opens");
        object.set_len(LEFT as u64).expect("cuts");
        object.set_len(WHOLE as u64).expect("grows");
        assert_eq!(kinds(&stack), [""; 0], "also writes the record");
        drop(object);
        assert_sound(&world, &stack);
    }
}

/// For whoever reads or writes the file of a tier himself, its end is the object's.
#[test]
fn a_file_that_lost_its_tail_is_neither_lent_nor_held() {
    for machine in [Directories::two(), Directories::with(&[("only", ROOMY)])] {
        let stack = machine.create();
        let name = key("cut");
        put(&stack, &name, &[7; WHOLE]);
        let path = stack.explain(&name).expect("exists").segments[0].path.clone();
        let path = machine.file(0, &path.expect("it is in a directory"));
        let cut = std::fs::File::options().write(true).open(path).expect("opens");
        for (bytes, is_whole) in [(WHOLE, true), (LEFT, false)] {
            cut.set_len(bytes as u64).expect("cuts");
            let object = stack.open(&name, &Open::read()).expect("opens");
            assert_eq!(object.lease_file().expect("asks").is_some(), is_whole);
            assert_eq!(object.hold_file(Access::Read).expect("asks").is_some(), is_whole);
        }
        let object = stack.open(&name, &Open::write()).expect("opens");
        assert!(object.hold_file(Access::Write).expect("asks").is_none());
        drop(object);
        assert_eq!(kinds(&stack), ["wrong-length"]);
        stack.close().expect("closes");
    }
}
