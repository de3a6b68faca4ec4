// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Damaged traces: what is whole is read, what is not is said.

use std::fs;
use std::path::Path;

use terrace_core::Random;
use terrace_trace::{Damage, Reader, Record, Writer};

use crate::world::{self, files, is_torn, origin, read, settings};

/// A trace in one file, and its records.
fn recorded(directory: &Path, count: u64, is_ended: bool) -> Vec<Record> {
    let mut writer = Writer::begin(settings(directory), origin()).expect("begins");
    let written = world::write(&mut writer, &mut Random::new(count), count);
    assert!(writer.flush());
    if is_ended {
        writer.end();
    } else {
        drop(writer);
        // Its thread ends by itself; until then somebody writes here.
        while Reader::open(directory).expect("opens").is_live() {
            std::thread::yield_now();
        }
    }
    written
}

#[test]
fn a_torn_tail_ends_the_trace_and_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let written = recorded(directory.path(), 9000, false);
    let file = &files(directory.path())[0];
    let whole = fs::read(file).expect("reads");
    let mut random = Random::new(4);
    for _ in 0..200 {
        let length = 8 + random.below(whole.len() as u64 - 8) as usize;
        fs::write(file, &whole[..length]).expect("writes");
        let seen = read(directory.path());
        assert!(written.starts_with(&seen.records));
        assert_eq!(seen.problems.len(), 1, "{:?}", seen.problems);
        assert!(is_torn(&seen.problems[0]));
    }
    fs::write(file, &whole).expect("writes");
    let seen = read(directory.path());
    assert_eq!(seen.records, written);
    assert!(is_torn(&seen.problems[0]), "it ends with a block, and was not ended");
}

#[test]
fn a_damaged_block_is_told_and_the_others_are_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let written = recorded(directory.path(), 30_000, true);
    let file = &files(directory.path())[0];
    let whole = fs::read(file).expect("reads");
    let mut random = Random::new(5);
    for _ in 0..200 {
        let mut bytes = whole.clone();
        let at = 8 + random.below(whole.len() as u64 - 8) as usize;
        bytes[at] ^= 1 << random.below(8);
        fs::write(file, &bytes).expect("writes");
        let seen = read(directory.path());
        // Damage in the last bytes of all, behind the index, hurts nobody.
        let is_trailer = at + 16 >= whole.len();
        assert_eq!(seen.problems.len(), usize::from(!is_trailer), "at {at}: {:?}", seen.problems);
        assert!(seen.records.len() >= written.len() * 3 / 5, "one block of several is lost");
        // What is left is what was written, without one part.
        let start = written.iter().zip(&seen.records).take_while(|(a, b)| a == b).count();
        let ends = written.iter().rev().zip(seen.records.iter().rev());
        let end = ends.take_while(|(a, b)| is_same_but_name(a, b)).count();
        assert!(start + end >= seen.records.len(), "at {at}");
    }
}

/// A damaged block of subjects leaves segments without their keys.
fn is_same_but_name(written: &Record, read: &Record) -> bool {
    match (written, read) {
        (Record::State(written), Record::State(read)) => {
            let mut read = read.clone();
            read.view.key = written.view.key.clone();
            *written == read
        }
        _ => written == read,
    }
}

#[test]
fn no_bytes_bring_a_reader_down() {
    let directory = tempfile::tempdir().expect("a directory");
    recorded(directory.path(), 3000, true);
    let file = &files(directory.path())[0];
    let whole = fs::read(file).expect("reads");
    let mut random = Random::new(6);
    for _ in 0..300 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(30) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(3) {
                0 => bytes[at] = random.below(256) as u8,
                1 => drop(bytes.drain(at..(at + random.below(100) as usize).min(bytes.len()))),
                _ => bytes.truncate(at),
            }
            if bytes.is_empty() {
                break;
            }
        }
        fs::write(file, &bytes).expect("writes");
        // Another version is refused as a whole; whatever else is read.
        let Ok(reader) = terrace_trace::Reader::open(directory.path()) else { continue };
        for item in reader {
            if item.is_err() {
                break;
            }
        }
    }
}

#[test]
fn a_foreign_file_and_another_version_are_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let written = recorded(directory.path(), 100, true);
    fs::write(directory.path().join("000002.trace"), b"something else entirely").expect("writes");
    fs::write(directory.path().join("notes.txt"), b"not looked at").expect("writes");
    let seen = read(directory.path());
    assert_eq!(seen.records, written);
    assert!(matches!(seen.problems[..], [ref one] if one.what == Damage::NoTrace));
    let file = &files(directory.path())[0];
    let mut bytes = fs::read(file).expect("reads");
    bytes[7] = 9;
    fs::write(file, &bytes).expect("writes");
    let mut reader = terrace_trace::Reader::open(directory.path()).expect("opens");
    let error = reader.next_item().expect_err("another version");
    assert_eq!(error.kind(), terrace_core::ErrorKind::Unsupported);
    assert!(reader.next_item().expect("goes on with the next file").is_some());
}
