// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scrubs: what rots is found and mended, and no writer is ever taken for rot.

use std::time::Duration;

use crate::common::hooked::Call;
use crate::common::world::{
    LONG, ROOMY, World, assert_sound, bounded, eventually, key, migrate, outcome_of, put,
};
use terrace_core::{
    Backend, BackendExt, ErrorKind, Identity, Key, ObjectExt, Open, Persistency, TierIndex,
};
use terrace_stack::report::ScrubReport;
use terrace_stack::{MoveKind, ScrubOptions, Stack};

const SLOW: TierIndex = TierIndex(1);

fn unbounded() -> ScrubOptions {
    ScrubOptions { bytes_per_s: f64::INFINITY, namespace: None }
}

#[track_caller]
fn scrub(stack: &Stack) -> ScrubReport {
    let report = stack.scrub(&unbounded(), &mut |_, _| true);
    let report = report.unwrap_or_else(|error| panic!("{}", error.chain()));
    assert!(report.is_complete);
    report
}

fn one_tier() -> World {
    World::with(&[("only", ROOMY, Persistency::Storage)])
}

fn stored(stack: &Stack, name: &Key) -> Key {
    let file = stack.explain(name).expect("exists").segments[0].stored_as.clone();
    Key::parse(&file).expect("legal")
}

fn flip(world: &World, tier: usize, file: &Key) {
    let disk = world.disk(tier).open();
    let mut data = disk.read_all(file).expect("reads");
    let middle = data.len() / 2;
    data[middle] ^= 1;
    disk.open(file, &Open::write()).expect("opens").write(0, &data).expect("writes");
}

/// A wrong checksum would be one of bytes that the write has replaced.
#[test]
fn a_write_beside_a_scrub_leaves_no_wrong_checksum() {
    for (is_open_before, is_done) in [(false, false), (false, true), (true, false), (true, true)] {
        for world in [World::two(), one_tier()] {
            let stack = world.create();
            let name = key("written");
            put(&stack, &name, &[1; 9000]);
            let before = is_open_before.then(|| stack.open(&name, &Open::write()).expect("opens"));
            if let Some(object) = &before {
                // A store of one tier goes straight to the file from now on.
                object.write(0, &[1; 10]).expect("writes");
            }
            world
                .tier(0)
                .hold(move |moment| moment.call == Call::Read && moment.is_done == is_done);
            std::thread::scope(|scope| {
                let scrubber = scope.spawn(|| scrub(&stack));
                let is_skipped = || scrubber.is_finished();
                eventually("the scrub reads, or leaves it alone", || {
                    world.tier(0).is_holding() || is_skipped()
                });
                let object =
                    before.unwrap_or_else(|| stack.open(&name, &Open::write()).expect("opens"));
                object.write(100, &[2; 300]).expect("a scrub stops no writer");
                world.tier(0).release();
                let report = scrubber.join().expect("no panic");
                assert_eq!((report.recorded, report.skipped), (0, 1), "{report:?}");
                assert_eq!(report.problems, []);
            });
            let again = scrub(&stack);
            assert_eq!((again.recorded, again.problems), (1, vec![]));
            assert_eq!(scrub(&stack).problems, []);
            assert_sound(&world, &stack);
            let check = stack.check(true, &mut |_, _| {}).expect("checks");
            assert_eq!(check.problems, []);
        }
    }
}

#[test]
fn a_write_in_flight_when_a_scrub_comes_is_left_alone() {
    let world = World::two();
    let stack = world.create();
    let name = key("in-flight");
    put(&stack, &name, &[1; 9000]);
    let object = stack.open(&name, &Open::write()).expect("opens");
    world.tier(0).hold(|moment| moment.call == Call::Write && !moment.is_done);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| object.write(4000, &[2; 100]));
        world.tier(0).wait_until_held();
        let report = scrub(&stack);
        assert_eq!((report.recorded, report.skipped, report.problem_count), (0, 1, 0));
        world.tier(0).release();
        writer.join().expect("no panic").expect("writes");
    });
    drop(object);
    assert_eq!(scrub(&stack).recorded, 1);
    assert_sound(&world, &stack);
}

#[test]
fn a_checksum_is_recorded_once_and_taken_back_by_a_write() {
    for world in [World::two(), one_tier()] {
        let stack = world.create();
        put(&stack, &key("one"), &[1; 9000]);
        put(&stack, &key("empty"), b"");
        let sparse = stack.open(&key("sparse"), &Open::create_new()).expect("creates");
        sparse.set_len(1 << 20).expect("grows");
        sparse.write(500_000, &[3; 5000]).expect("writes");
        drop(sparse);
        let first = scrub(&stack);
        assert_eq!((first.objects, first.recorded, first.problem_count), (3, 2, 0));
        assert!(first.read_bytes >= 14_000, "{first:?}");
        assert_eq!(scrub(&stack).recorded, 0);
        let object = stack.open(&key("one"), &Open::write()).expect("opens");
        object.write(0, &[2; 5]).expect("writes");
        drop(object);
        assert_eq!(scrub(&stack).recorded, 1);
        stack.close().expect("closes");
        drop(stack);
        let stack = world.open();
        let last = scrub(&stack);
        assert_eq!((last.recorded, last.problem_count), (0, 0));
        assert_eq!(stack.check(true, &mut |_, _| {}).expect("checks").problems, []);
        assert_sound(&world, &stack);
    }
}

#[test]
fn rot_of_what_was_never_moved_is_found_and_nothing_is_deleted() {
    let world = World::two();
    let stack = world.create();
    for name in ["rots", "stays"] {
        put(&stack, &key(name), &[1; 9000]);
    }
    scrub(&stack);
    let file = stored(&stack, &key("rots"));
    flip(&world, 0, &file);
    for _ in 0..2 {
        let report = scrub(&stack);
        assert_eq!(report.problem_count, 1);
        let problem = &report.problems[0];
        assert_eq!((problem.kind.as_str(), problem.place.as_str()), ("damaged-data", "test/rots"));
        assert_eq!(report.repairs, []);
    }
    assert_eq!(stack.scrub_status().expect("reads").ended.expect("one ended").problems, 1);
    let mut other = [0; 9000];
    stack.open(&key("rots"), &Open::read()).expect("opens").read(0, &mut other).expect("reads");
    let tickets = stack.migrate(&key("rots"), SLOW, MoveKind::Move, 0, "test").expect("queued");
    let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
    assert_ne!(outcome_of(&ended), "done", "a migration must not give rot a new checksum");
    assert!(ended.detail.contains("checksum"), "{ended:?}");
    assert_eq!(scrub(&stack).problem_count, 1);
}

/// What nobody is given to read is no object that is right, and what may be somebody's is not deleted.
#[test]
fn a_file_that_is_not_the_one_that_is_meant_is_a_problem() {
    for (has_checksum, has_copy) in [(false, false), (true, false), (true, true)] {
        let world = World::two();
        let stack = world.create();
        let name = key("strange");
        put(&stack, &name, &[1; 9000]);
        if has_copy {
            migrate(&stack, &name, SLOW, MoveKind::Promote);
        } else if has_checksum {
            scrub(&stack);
        }
        let tier = usize::from(has_copy);
        let file = stored(&stack, &name);
        let disk = world.disk(tier).open();
        let right = disk.identity(&file).expect("reads").expect("has one");
        let other = Identity { object_id: right.object_id + 1, ..right.clone() };
        for wrong in [Some(&other), None] {
            match wrong {
                Some(other) => disk.set_identity(&file, other).expect("sets"),
                None => {
                    let data = disk.read_all(&file).expect("reads");
                    disk.delete(&file).expect("deletes");
                    disk.write_all(&file, &data).expect("writes");
                }
            }
            let report = scrub(&stack);
            assert_eq!((report.problem_count, report.skipped), (1, 0), "{report:?}");
            assert_eq!(report.problems[0].kind, "wrong-identity");
            assert_eq!((report.recorded, report.repairs.as_slice()), (0, &[][..]));
            assert!(!report.problems[0].detail.contains("Identity {"), "{report:?}");
            let check = stack.check(false, &mut |_, _| {}).expect("checks");
            assert!(check.problems.iter().all(|found| !found.detail.contains("Identity {")));
            assert_eq!(world.stored(tier, file.as_str()), Some(vec![1; 9000]));
        }
        disk.set_identity(&file, &right).expect("sets");
        assert_eq!(scrub(&stack).problem_count, 0);
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_primary_that_rots_is_written_anew_from_its_copy() {
    for is_missing in [false, true] {
        let world = World::two();
        let stack = world.create();
        let name = key("mended");
        put(&stack, &name, &[1; 700_000]);
        migrate(&stack, &name, SLOW, MoveKind::Promote);
        stack.pin(&name).expect("pins");
        let before = stack.stat(&name).expect("exists").modified_ns;
        let file = stored(&stack, &name);
        let object = stack.open(&name, &Open::write()).expect("opens");
        if is_missing {
            world.disk(1).open().delete(&file).expect("deletes");
        } else {
            flip(&world, 1, &file);
            let disk = world.disk(1).open();
            disk.open(&file, &Open::write()).expect("opens").set_modified(before).expect("sets");
        }
        let report = scrub(&stack);
        assert_eq!((report.problem_count, report.repairs.len()), (0, 1), "{report:?}");
        assert!(report.repairs[0].detail.contains("anew"), "{report:?}");
        let explanation = stack.explain(&name).expect("exists");
        assert_eq!(explanation.segments[0].tier, "slow");
        assert_eq!(explanation.segments[0].copies, ["fast"]);
        assert_eq!(world.stored(1, &explanation.segments[0].stored_as), Some(vec![1; 700_000]));
        if !is_missing {
            assert_eq!(stack.stat(&name).expect("exists").modified_ns, before);
        }
        assert_eq!(scrub(&stack).repairs, []);
        object.write(5, &[2]).expect("writes");
        drop(object);
        let mut expected = vec![1; 700_000];
        expected[5] = 2;
        assert_eq!(stack.read_all(&name).expect("reads"), expected);
        assert_sound(&world, &stack);
        stack.close().expect("closes");
        drop(stack);
        let stack = world.open();
        assert_eq!(stack.read_all(&name).expect("reads"), expected);
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_copy_that_rots_is_dropped() {
    let world = World::two();
    let stack = world.create();
    let name = key("copied");
    put(&stack, &name, &[1; 9000]);
    migrate(&stack, &name, SLOW, MoveKind::Promote);
    let copy = world.disk(0).files().remove(0).key;
    flip(&world, 0, &copy);
    let report = scrub(&stack);
    assert_eq!((report.problem_count, report.repairs.len()), (0, 1), "{report:?}");
    assert!(stack.explain(&name).expect("exists").segments[0].copies.is_empty());
    assert_eq!(stack.read_all(&name).expect("reads"), [1; 9000]);
    assert_sound(&world, &stack);
}

#[test]
fn an_object_that_is_deleted_while_it_is_mended_stays_deleted() {
    let world = World::two();
    let stack = world.create();
    let name = key("contended");
    put(&stack, &name, &[1; 9000]);
    migrate(&stack, &name, SLOW, MoveKind::Promote);
    let file = stored(&stack, &name);
    flip(&world, 1, &file);
    world.tier(1).hold(|moment| moment.call == Call::Write && !moment.is_done);
    std::thread::scope(|scope| {
        let scrubber = scope.spawn(|| scrub(&stack));
        world.tier(1).wait_until_held();
        // The new file is being written; the object is deleted under it.
        stack.delete(&name).expect("deletes");
        put(&stack, &name, &[2; 100]);
        world.tier(1).release();
        let report = scrubber.join().expect("no panic");
        assert_eq!((report.problem_count, report.repairs.len()), (0, 0), "{report:?}");
    });
    assert_eq!(stack.read_all(&name).expect("reads"), [2; 100]);
    assert_sound(&world, &stack);
}

#[test]
fn a_scrub_of_one_namespace_reads_nothing_else() {
    let world = World::two();
    let stack = world.create();
    put(&stack, &key("here"), &[1; 3000]);
    put(&stack, &Key::new("tes", "t").expect("legal"), &[1; 3000]);
    put(&stack, &Key::new("test2", "t").expect("legal"), &[1; 3000]);
    let options = ScrubOptions { namespace: Some("test".into()), ..unbounded() };
    let mut told = (0, 0);
    let report = stack
        .scrub(&options, &mut |done, total| {
            told = (done, total);
            true
        })
        .expect("scrubs");
    assert_eq!((report.objects, report.read_bytes), (1, 3000));
    assert_eq!(told, (3000, 3000));
    assert_eq!(stack.scrub_status().expect("reads").ended, None, "not of the whole store");
}

#[test]
fn a_scrub_ends_when_nobody_wants_it_any_more() {
    let world = World::two();
    let stack = world.create();
    put(&stack, &key("one"), &[1; 3000]);
    put(&stack, &key("two"), &[1; 3000]);
    let crawl = ScrubOptions { bytes_per_s: 1.0, namespace: None };
    let mut asked = 0;
    let report = stack
        .scrub(&crawl, &mut |_, _| {
            asked += 1;
            asked < 3
        })
        .expect("scrubs");
    assert!(!report.is_complete && report.objects < 2, "{report:?}");
    let error = stack
        .scrub(&ScrubOptions { bytes_per_s: 0.0, namespace: None }, &mut |_, _| true)
        .expect_err("never ends");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    std::thread::scope(|scope| {
        let crawling = scope.spawn(|| stack.scrub(&crawl, &mut |_, _| true));
        eventually("it begins", || world.tier(0).is_holding() || !crawling.is_finished());
        let closing = stack.clone();
        bounded(LONG, "closing beside a scrub", move || closing.close()).expect("closes");
        let ended = crawling.join().expect("no panic");
        assert!(ended.is_ok_and(|report| !report.is_complete));
    });
}

#[test]
fn a_scrub_in_the_background_goes_on_after_a_restart() {
    const OBJECTS: u64 = 200;
    let world = World::two();
    let stack = world.create();
    for number in 0..OBJECTS {
        put(&stack, &key(&format!("{number:03}")), &[1; 3000]);
    }
    stack.close().expect("closes");
    drop(stack);
    let day = Some(Duration::from_secs(86_400));
    let stack = world.open_with(|parts| {
        parts.settings.scrub_every = day;
        // The first bytes are read at once, the next never.
        parts.settings.scrub_bytes_per_s = 1e-3;
    });
    eventually("it begins", || stack.scrub_status().expect("reads").is_running);
    stack.close().expect("closes");
    let begun = stack.scrub_status().expect("reads");
    drop(stack);
    assert!(begun.ended.is_none() && begun.begun.is_some(), "{begun:?}");
    let stack = world.open_with(|parts| {
        parts.settings.scrub_every = day;
        parts.settings.scrub_bytes_per_s = f64::INFINITY;
    });
    eventually("it ends", || stack.scrub_status().expect("reads").ended.is_some());
    let ended = stack.scrub_status().expect("reads");
    let summary = ended.ended.expect("it ended");
    assert_eq!((summary.objects, summary.problems), (OBJECTS, 0), "{ended:?}");
    assert_eq!((ended.begun, ended.position), (None, None));
    eventually("it rests", || !stack.scrub_status().expect("reads").is_running);
    assert_eq!(scrub(&stack).recorded, 0, "it recorded every checksum");
    assert_sound(&world, &stack);
}
