// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small files whose bytes the kernel is given when they are opened.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::clients::Pair;

/// Kept with the metadata: in part of a page, and in all of one.
const LENGTHS: [usize; 3] = [1, 1000, 4096];

/// A read that asks nobody takes nearly no time.
const READ_TIME_MAX: Duration = Duration::from_secs(20);

/// Files that are opened and changed at the same time.
const FILES: usize = 300;

fn path(directory: &Path, at: usize) -> PathBuf {
    directory.join(format!("file{at}"))
}

/// A page, and more that is not there, of an open file; how much there was.
fn first_bytes(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; 5000];
    let length = file.read_at(&mut bytes, 0).expect("readable");
    bytes.truncate(length);
    bytes
}

#[test]
fn what_was_opened_is_read_without_asking() {
    let Some(pair) = Pair::new(&["--cache", "10min"]) else { return };
    for length in LENGTHS {
        fs::write(path(pair.other.path(), length), vec![7; length]).expect("there is room");
        let path = path(pair.one.path(), length);
        let file = File::open(&path).expect("it is there");
        pair.one.set_silent(true);
        let (sender, receiver) = channel();
        let (file, bytes) = thread::scope(|scope| {
            scope.spawn(move || {
                let bytes = first_bytes(&file);
                sender.send((file, bytes)).expect("the test waits");
            });
            let read = receiver.recv_timeout(READ_TIME_MAX);
            pair.one.set_silent(false);
            read.expect("the kernel has all of it")
        });
        assert_eq!(bytes, vec![7; length]);
        drop(file);
        // Again by another open, and after others changed it.
        assert_eq!(fs::read(&path).expect("readable"), vec![7; length]);
        fs::write(self::path(pair.other.path(), length), b"new").expect("there is room");
        assert_eq!(fs::read(&path).expect("readable"), b"new");
    }
}

/// Length of files that are cut.
const CUT_TO: usize = 10;

/// Cuts files by their names: nobody opens them for that, as the standard library would.
struct Cutter {
    process: Child,
    said: BufReader<ChildStdout>,
}

impl Cutter {
    fn start() -> Self {
        let script = format!(
            "import os, sys\nfor line in sys.stdin: os.truncate(line[:-1], {CUT_TO}); print(flush=True)"
        );
        let mut process = Command::new("python3");
        let process = process.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = process.spawn().expect("Python runs");
        let said = BufReader::new(process.stdout.take().expect("it is a pipe"));
        Self { process, said }
    }

    fn cut(&mut self, path: &Path) {
        let mut asked = self.process.stdin.as_ref().expect("it is a pipe");
        writeln!(asked, "{}", path.display()).expect("it listens");
        let mut line = String::new();
        assert_eq!(self.said.read_line(&mut line).expect("it answers"), 1, "it failed");
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        // It ends with what it reads.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// What is done to a file on the mount that opens it at the same time.
#[derive(Clone, Copy, Debug)]
enum Change {
    Cut,
    Write,
    /// By another client.
    Elsewhere,
}

#[test]
fn what_changes_a_file_while_it_is_opened_is_read_afterwards() {
    let Some(pair) = Pair::new(&[]) else { return };
    let before = vec![7; 1000];
    let mut cutter = Cutter::start();
    for change in [Change::Cut, Change::Write, Change::Elsewhere] {
        // Names that were never looked at: the kernel believes what it knows of others.
        let name = |at| format!("{change:?}{at}");
        for at in 0..FILES {
            fs::write(pair.other.path().join(name(at)), &before).expect("there is room");
        }
        for at in 0..FILES {
            let path = pair.one.path().join(name(at));
            let length = fs::metadata(&path).expect("it is there").len();
            assert_eq!(length, before.len() as u64);
            let opened = thread::scope(|scope| {
                let opener = scope.spawn(|| first_bytes(&File::open(&path).expect("it is there")));
                match change {
                    Change::Cut => cutter.cut(&path),
                    Change::Write => fs::write(&path, b"new").expect("there is room"),
                    Change::Elsewhere => {
                        fs::write(pair.other.path().join(name(at)), b"new").expect("there is room");
                    }
                }
                opener.join().expect("it can be read")
            });
            assert!(opened.len() <= before.len(), "{change:?} {at}: {}", opened.len());
            let after = match change {
                Change::Cut => &before[..CUT_TO],
                Change::Write | Change::Elsewhere => b"new",
            };
            let found = fs::read(&path).expect("readable");
            assert!(found == after, "{change:?} {at}: {} bytes, {:?}", found.len(), found.first());
        }
    }
}
