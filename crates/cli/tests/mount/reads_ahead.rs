// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small files that a mount over the network opens ahead of programs that read one after the other.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ahead::forget_names;
use crate::clients::Pair;
use crate::scene::wait_until;

const FILES: usize = 600;

/// Longer than any other content.
const GROWN: usize = 3000;

fn name(number: usize) -> String {
    format!("file{number}")
}

/// Makes files, of which the other mount has not seen any yet.
fn fill(pair: &Pair) -> [PathBuf; 2] {
    let [one, other] = [pair.one.path().join("many"), pair.other.path().join("many")];
    fs::create_dir(&one).expect("it is new");
    for number in 0..FILES {
        fs::write(one.join(name(number)), number.to_string()).expect("there is room");
    }
    [one, other]
}

/// Reads each of them once, of which none has changed.
fn read_all(directory: &Path) {
    for number in 0..FILES {
        let text = fs::read_to_string(directory.join(name(number))).expect("it is there");
        assert_eq!(text, number.to_string());
    }
}

/// Reads them until hardly any is asked for.
fn read_until_ahead(pair: &Pair, directory: &Path, read: impl Fn(&Path)) {
    wait_until("they are opened ahead", || {
        forget_names(pair.other.path());
        let before = pair.requests();
        read(directory);
        pair.requests() - before < FILES / 2
    });
}

#[test]
fn who_reads_many_small_files_does_not_ask_for_each() {
    for (how, is_ahead) in [(&[][..], true), (&["--strict"], false), (&["--cache", "0s"], false)] {
        let Some(pair) = Pair::new(how) else { return };
        let [_, other] = fill(&pair);
        if is_ahead {
            read_until_ahead(&pair, &other, read_all);
            continue;
        }
        let before = pair.requests();
        read_all(&other);
        let asked = pair.requests() - before;
        assert!(asked >= FILES, "{how:?}: {asked} requests");
    }
}

/// What one does with a file, and what the other one finds then.
type Change = (&'static str, fn(&Path), fn(&Path));

const CHANGES: [Change; 6] = [
    ("write", |path| write(path, b"written"), |path| assert_eq!(read(path), b"written")),
    (
        "cut",
        |path| File::options().write(true).open(path).and_then(|it| it.set_len(1)).expect("cut"),
        |path| assert_eq!(read(path).len(), 1),
    ),
    ("grow", |path| write(path, &[7; GROWN]), |path| assert_eq!(read(path), [7; GROWN])),
    (
        "remove",
        |path| fs::remove_file(path).expect("it is there"),
        |path| {
            let gone = File::open(path).expect_err("it was removed");
            assert_eq!(gone.kind(), ErrorKind::NotFound);
        },
    ),
    (
        "replace",
        |path| {
            let new = path.with_extension("new");
            fs::write(&new, b"replaced").expect("there is room");
            fs::rename(&new, path).expect("both are there");
        },
        |path| assert_eq!(read(path), b"replaced"),
    ),
    (
        "mode",
        |path| fs::set_permissions(path, Permissions::from_mode(0o640)).expect("it is ours"),
        |path| {
            let file = File::open(path).expect("it is there");
            assert_eq!(file.metadata().expect("it is open").mode() & 0o777, 0o640);
        },
    ),
];

fn write(path: &Path, bytes: &[u8]) {
    let mut file = File::options().write(true).truncate(true).open(path).expect("it is there");
    file.write_all(bytes).expect("there is room");
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).expect("it is there")
}

/// Changes one file after the other, in each way at once, while all others are read, and looks
/// through the other mount as soon as that is done.
fn change_in_all_ways(one: &Path, other: &Path, round: usize) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for number in 100..FILES {
                    let text = fs::read_to_string(other.join(name(number))).expect("it is there");
                    assert_eq!(text, number.to_string());
                }
            }
        });
        let changing = CHANGES.iter().enumerate().map(|(turn, (_, change, look))| {
            scope.spawn(move || {
                let name = name(round * CHANGES.len() + turn);
                change(&one.join(&name));
                look(&other.join(&name));
            })
        });
        let changing: Vec<_> = changing.collect();
        let ended: Vec<_> = changing.into_iter().map(|one| one.join().is_ok()).collect();
        is_over.store(true, Ordering::Relaxed);
        for ((what, ..), is_seen) in CHANGES.iter().zip(ended) {
            assert!(is_seen, "{what} in round {round}");
        }
    });
}

#[test]
fn what_another_one_changed_is_seen_by_who_opens_what_was_opened_ahead() {
    let Some(pair) = Pair::new(&[]) else { return };
    let [one, other] = fill(&pair);
    for round in 0..5 {
        // For a while after the last round nothing is opened ahead.
        read_until_ahead(&pair, &other, |directory| {
            let first = round * CHANGES.len();
            for number in (first..first + CHANGES.len()).chain(100..FILES) {
                let text = read(&directory.join(name(number)));
                assert_eq!(text, number.to_string().as_bytes());
            }
        });
        change_in_all_ways(&one, &other, round);
    }
}

#[test]
fn a_server_that_starts_anew_does_not_forget_who_reads() {
    let Some(mut pair) = Pair::new(&[]) else { return };
    let [one, other] = fill(&pair);
    read_until_ahead(&pair, &other, read_all);
    let numbers = 20..30;
    let opened: Vec<_> =
        numbers.map(|number| (number, File::open(other.join(name(number))))).collect();
    pair.served.kill_and_restart(&pair.scene);
    for (turn, (_, change, look)) in CHANGES.iter().enumerate() {
        change(&one.join(name(turn)));
        look(&other.join(name(turn)));
    }
    // What is open stays, also what was removed.
    for (number, file) in opened {
        let mut file = file.expect("it is there");
        fs::remove_file(one.join(name(number))).expect("it is there");
        let mut text = String::new();
        file.read_to_string(&mut text).expect("it is open");
        assert_eq!(text, number.to_string());
        assert_eq!(file.metadata().expect("it is open").len(), text.len() as u64);
    }
}

#[test]
fn what_this_mount_changed_is_seen_by_who_opens_what_was_opened_ahead() {
    let Some(pair) = Pair::new(&[]) else { return };
    let [_, other] = fill(&pair);
    for round in 0..5 {
        let first = round * CHANGES.len();
        read_until_ahead(&pair, &other, |directory| {
            for number in (first..first + CHANGES.len()).chain(100..FILES) {
                let text = read(&directory.join(name(number)));
                assert_eq!(text, number.to_string().as_bytes());
            }
        });
        change_in_all_ways(&other, &other, round);
    }
}
