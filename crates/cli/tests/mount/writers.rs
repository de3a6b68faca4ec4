// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several writers of one file on one mount over the network, beside readers there.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use terrace_core::Random;

use crate::clients::Pair;

const WRITERS: usize = 4;
const READERS: usize = 2;
const ROUNDS: u64 = 200;

/// Each writer has one piece of so many bytes after the other, next to those of the others: pages
/// of the kernel's cache have bytes of several.
const PIECE_BYTES: usize = 3000;
const PIECES: usize = 16;
const SIZE_BYTES: usize = WRITERS * PIECES * PIECE_BYTES;

/// Which descriptors there are, and in which order they are opened.
#[derive(Clone, Copy, PartialEq)]
enum Opened {
    WritersFirst,
    ReaderFirst,
    /// Each writer reads through its own.
    Both,
}

#[test]
fn who_opened_it_later_reads_at_once_what_was_written() {
    check_writers(Opened::WritersFirst);
}

#[test]
fn who_had_opened_it_reads_at_once_what_was_written() {
    check_writers(Opened::ReaderFirst);
}

#[test]
fn who_writes_and_reads_it_reads_at_once_what_was_written() {
    check_writers(Opened::Both);
}

/// What is made there is taken for short, and past the cache.
#[test]
fn who_reads_what_is_made_beside_short_files_reads_at_once_what_was_written() {
    let Some(pair) = Pair::new(&[]) else { return };
    let directory = pair.one.path().join("directory");
    fs::create_dir(&directory).expect("there is room");
    for number in 0..5 {
        fs::write(directory.join(format!("short{number}")), b"short").expect("there is room");
    }
    let mut bytes = vec![0; SIZE_BYTES];
    Random::new(1).fill(&mut bytes);
    let path = directory.join("long");
    let mut writer = File::create_new(&path).expect("there is room");
    let reader = File::open(&path).expect("it is there");
    let mut end = 0;
    for piece in bytes.chunks(PIECE_BYTES) {
        writer.write_all(piece).expect("there is room");
        end += piece.len();
        assert_eq!(reader.metadata().expect("it is open").len(), end as u64);
        let mut found = vec![0; end];
        reader.read_exact_at(&mut found, 0).expect("readable");
        assert!(found == bytes[..end], "after {end} bytes");
    }
    drop(writer);
    assert!(fs::read(&path).expect("readable") == bytes);
    assert!(fs::read(pair.other.path().join("directory/long")).expect("readable") == bytes);
}

/// Writers over a file read back each piece, while others read all over it.
fn check_writers(opened: Opened) {
    let Some(pair) = Pair::new(&[]) else { return };
    let path = pair.one.path().join("file");
    fs::write(&path, vec![1; SIZE_BYTES]).expect("there is room");
    let open_reader = || File::open(&path).expect("it is there");
    let early = (opened == Opened::ReaderFirst).then(open_reader);
    let writers: Vec<File> = (0..WRITERS)
        .map(|_| File::options().write(true).read(opened == Opened::Both).open(&path))
        .collect::<Result<_, _>>()
        .expect("it is there");
    let reader = early.unwrap_or_else(open_reader);
    let mut expected = vec![0; SIZE_BYTES];
    let mut parts: Vec<Vec<&mut [u8]>> = (0..WRITERS).map(|_| Vec::new()).collect();
    for (number, piece) in expected.chunks_exact_mut(PIECE_BYTES).enumerate() {
        parts[number % WRITERS].push(piece);
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (reader, is_over) = (&reader, &is_over);
        for seed in 0..READERS as u64 {
            scope.spawn(move || read_all_over(reader, seed, is_over));
        }
        let mut threads = Vec::new();
        for (number, (writer, pieces)) in std::iter::zip(&writers, parts).enumerate() {
            let reader = if opened == Opened::Both { writer } else { reader };
            threads.push(scope.spawn(move || write_and_read_back(writer, reader, number, pieces)));
        }
        let ended: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Release);
        assert!(ended.iter().all(Result::is_ok), "a writer read something else");
    });
    drop((reader, writers));
    assert!(fs::read(&path).expect("readable") == expected);
    assert!(fs::read(pair.other.path().join("file")).expect("readable") == expected);
}

fn read_all_over(file: &File, seed: u64, is_over: &AtomicBool) {
    let mut random = Random::new(seed);
    let mut buffer = [0; 8192];
    while !is_over.load(Ordering::Acquire) {
        let place = random.below((SIZE_BYTES - buffer.len()) as u64);
        file.read_exact_at(&mut buffer, place).expect("readable");
    }
}

fn write_and_read_back(writer: &File, reader: &File, number: usize, mut pieces: Vec<&mut [u8]>) {
    let mut random = Random::new(100 + number as u64);
    let mut found = [0; PIECE_BYTES];
    for round in 0..ROUNDS {
        // All of them at least once, so that nothing is left of the beginning.
        let index = match (round as usize) < PIECES {
            true => round as usize,
            false => random.below(PIECES as u64) as usize,
        };
        let place = ((index * WRITERS + number) * PIECE_BYTES) as u64;
        random.fill(pieces[index]);
        writer.write_all_at(pieces[index], place).expect("there is room");
        reader.read_exact_at(&mut found, place).expect("readable");
        assert!(found == *pieces[index], "writer {number}, round {round}, byte {place}");
    }
}
