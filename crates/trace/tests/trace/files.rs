// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files: rotated, bounded, continued, and readable while they are written.

use terrace_core::{ErrorKind, Random};
use terrace_trace::{MAX_BYTES_MIN, Origin, Reader, Record, Settings, Writer};

use crate::world::{self, files, origin, read, settings};

fn small(directory: &std::path::Path) -> Settings {
    Settings { max_bytes: MAX_BYTES_MIN, ..settings(directory) }
}

fn bytes(directory: &std::path::Path) -> u64 {
    files(directory).iter().map(|file| file.metadata().expect("is there").len()).sum()
}

/// Writes accesses without getting ahead of the disk.
fn fill(writer: &mut Writer, random: &mut Random, count: u64) -> Vec<Record> {
    let mut all = Vec::new();
    for _ in 0..count / 10_000 {
        all.extend(world::write(writer, random, 10_000));
        assert!(writer.flush(), "the disk keeps up");
    }
    all
}

#[test]
fn the_oldest_files_go_and_the_next_say_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut writer = Writer::begin(small(directory.path()), origin()).expect("begins");
    let mut random = Random::new(1);
    let mut written = Vec::new();
    for _ in 0..20 {
        written.extend(fill(&mut writer, &mut random, 20_000));
        assert!(bytes(directory.path()) <= MAX_BYTES_MIN);
    }
    let report = writer.end();
    assert!(bytes(directory.path()) <= MAX_BYTES_MIN);
    assert_eq!(report.lost_records, 0);
    assert_eq!(report.bytes, bytes(directory.path()));
    let seen = read(directory.path());
    assert_eq!((seen.problems, seen.nameless), (vec![], 0));
    let last = seen.heads.last().expect("there are files");
    assert!(last.deleted_files > 0 && last.deleted_files == report.deleted_files);
    assert_eq!(seen.heads[0].number, last.deleted_files + 1);
    let rest = &written[written.len() - seen.records.len()..];
    assert!(rest == seen.records, "what is left is the end of what was written");
    let deleted = report.records - last.deleted_records;
    assert!(seen.records.len() as u64 <= deleted, "long ones are in parts");
}

#[test]
fn any_file_can_be_read_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut writer = Writer::begin(small(directory.path()), origin()).expect("begins");
    fill(&mut writer, &mut Random::new(2), 60_000);
    writer.end();
    let alone = tempfile::tempdir().expect("a directory");
    let all = files(directory.path());
    assert!(all.len() > 2);
    std::fs::copy(&all[1], alone.path().join("000002.trace")).expect("copies");
    let seen = read(alone.path());
    assert_eq!((seen.problems, seen.nameless), (vec![], 0));
    assert_eq!(seen.heads.len(), 1);
    assert!(seen.records.len() > 1000);
}

#[test]
fn a_trace_is_readable_while_it_is_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut writer = Writer::begin(settings(directory.path()), origin()).expect("begins");
    let mut written = world::write(&mut writer, &mut Random::new(3), 9000);
    let early = read(directory.path());
    assert!(written.starts_with(&early.records), "a beginning, block by block");
    assert_eq!(early.problems, []);
    assert!(writer.flush());
    assert_eq!(read(directory.path()).records, written);
    written.extend(world::write(&mut writer, &mut Random::new(4), 10));
    writer.tick(origin().monotonic_ns + 10_000_000_000);
    assert!(writer.flush());
    assert_eq!(read(directory.path()).records, written);
    writer.end();
    assert_eq!(read(directory.path()).records, written);
}

#[test]
fn a_directory_has_one_writer_and_is_continued_by_the_next() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut writer = Writer::begin(settings(directory.path()), origin()).expect("begins");
    let refused = Writer::begin(settings(directory.path()), origin()).err().expect("taken");
    assert_eq!(refused.kind(), ErrorKind::Busy);
    let mut written = world::write(&mut writer, &mut Random::new(5), 100);
    writer.end();
    let foreign = Origin { store_id: 5, ..origin() };
    let refused = Writer::begin(settings(directory.path()), foreign).err().expect("foreign");
    assert_eq!(refused.kind(), ErrorKind::Exists);
    let again = Origin { wall_ns: origin().wall_ns + 1, ..origin() };
    let mut writer = Writer::begin(settings(directory.path()), again).expect("continues");
    written.extend(world::write(&mut writer, &mut Random::new(6), 100));
    writer.end();
    let seen = read(directory.path());
    assert_eq!(seen.records, written);
    let started: Vec<_> = seen.heads.iter().map(|head| head.started_wall_ns).collect();
    assert_eq!(started, [origin().wall_ns, origin().wall_ns + 1]);
}

#[test]
fn lost_events_are_told_by_the_next_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut writer = Writer::begin(settings(directory.path()), origin()).expect("begins");
    let mut written = world::write(&mut writer, &mut Random::new(7), 100);
    writer.lose(42);
    written.extend(world::write(&mut writer, &mut Random::new(8), 100));
    assert_eq!(writer.end().lost_records, 42);
    let seen = read(directory.path());
    assert_eq!(seen.records, written);
    assert_eq!(seen.heads.iter().map(|head| head.lost_records).collect::<Vec<_>>(), [0, 42]);
    assert_eq!(seen.nameless, 0, "the file after a loss names its segments again");
}

#[test]
fn a_directory_that_cannot_be_written_is_said_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    std::fs::write(&file, b"").expect("writes");
    assert!(Writer::begin(settings(&file), origin()).is_err());
    let bound = Settings { max_bytes: 1 << 20, ..settings(directory.path()) };
    let refused = Writer::begin(bound, origin()).err().expect("too small");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

#[test]
fn a_failing_disk_ends_the_recording_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let trace = directory.path().join("trace");
    let mut writer = Writer::begin(small(&trace), origin()).expect("begins");
    world::write(&mut writer, &mut Random::new(9), 100);
    assert!(writer.flush());
    // The next file cannot be made.
    std::fs::remove_dir_all(&trace).expect("removes");
    let mut random = Random::new(10);
    for _ in 0..20 {
        world::write(&mut writer, &mut random, 5000);
        writer.flush();
    }
    let failure = writer.report().failure.expect("it failed");
    assert!(failure.contains("cannot begin a file of the trace"), "{failure}");
    assert!(writer.end().lost_records > 0);
}

#[test]
fn a_directory_of_something_else_is_no_trace() {
    let directory = tempfile::tempdir().expect("a directory");
    assert_eq!(Reader::open(directory.path()).expect("nothing happened").count(), 0);
    std::fs::write(directory.path().join("terrace.toml"), "").expect("writable");
    let error = Reader::open(directory.path()).expect_err("it is none");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("000001.trace"), "{error}");
    let below = directory.path().join("trace");
    std::fs::create_dir(&below).expect("writable");
    std::fs::write(below.join("000001.trace"), "").expect("writable");
    let error = Reader::open(directory.path()).expect_err("it is none");
    assert!(error.to_string().contains("`trace` below it"), "{error}");
}

#[test]
fn a_recording_that_was_ended_makes_room_for_the_next_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    for _ in 0..200 {
        Writer::begin(settings(directory.path()), origin()).expect("begins").end();
        assert!(!Reader::open(directory.path()).expect("opens").is_live());
    }
}
