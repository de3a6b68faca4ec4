// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory and a tree with very many files: how long a mount takes, how soon a listing begins, and what
//! listing and walking take of memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use terrace_console::progress::Progress;
use terrace_core::{Access, Clock, Error, ErrorKind, Result, SystemClock};
use terrace_fs::{Files, Kind, Made, ROOT, TreeOptions};
use terrace_measure::check_stop;
use terrace_measure::compared::{Bar, Comparison, Samples};
use terrace_mount::{NAME_DEFAULT, Opening};
use terrace_store::Store;

use super::daemon::Daemon;
use super::ground::Ground;
use super::{About, Groups, Row, steps};

/// Mounts that are timed.
const MOUNTS: usize = 5;

/// More memory than that is not bounded: the names alone take tens of bytes each.
const LISTING_MB_MAX: f64 = 32.0;

const MOUNT_S_MAX: f64 = 3.0;

/// What a waiting person takes for at once (Miller, Response time in man-computer conversational
/// transactions, 1968); a listing of a million that begins when it is complete takes longer.
const FIRST_MS_MAX: f64 = 100.0;

/// The store with all files in one directory.
const STORE: &str = "million";

/// Files of a directory of the tree, and directories of one above.
const TOGETHER: u64 = 100;

/// Interval of the progress lines while the files are made.
const FILES_TOLD: u64 = 10_000;

/// Between two looks at the memory of a process.
const LOOK: Duration = Duration::from_millis(1);

/// What the rows share.
pub(super) struct Million<'a> {
    pub(super) ground: &'a Ground,
    pub(super) files: u64,
    pub(super) progress: &'a mut Progress,
    pub(super) stop: &'a AtomicBool,
}

impl Million<'_> {
    pub(super) fn run(&mut self, row: &'static str) -> Result<Row> {
        let place = self.ground.path().join(row);
        if row == "million-tree" {
            return self.tree(&place, row);
        }
        // Of all rows: the files take a while.
        let store = self.ground.store_of(STORE);
        if !store.exists() {
            self.ground.store(STORE)?;
            self.fill(&store, &mut |files, number| make(files, ROOT, number))?;
        }
        match row {
            "million-mount" => mount(&store, &place, row),
            "million-ls-first" => first(&store, &place, row, self.files),
            _ => list(&store, &place, row, self.files),
        }
    }

    /// Makes files, without a mount: what is measured is not how they came to be.
    fn fill(
        &mut self,
        store: &Path,
        make: &mut dyn FnMut(&Arc<Files>, u64) -> Result<()>,
    ) -> Result<()> {
        let store = Store::open(&store.display().to_string())?;
        let opening = Opening {
            name: NAME_DEFAULT.into(),
            create: Some(TreeOptions::default()),
            ready_objects: 0,
            access: Access::Write,
            degraded: false,
            believed_for: Duration::MAX,
        };
        let opened = terrace_mount::open(&store, &opening)?;
        for number in 0..self.files {
            check_stop(self.stop)?;
            make(&opened, number)?;
            if (number + 1) % FILES_TOLD == 0 {
                self.progress.say(format!("{} of {} files made", number + 1, self.files));
                self.progress.advance(0);
            }
        }
        opened.close().map_err(|failure| failure.into_error("close a file system"))?;
        drop(opened);
        store.close()
    }

    fn tree(&mut self, place: &Path, row: &'static str) -> Result<Row> {
        let store = self.ground.store(row)?;
        let clock = SystemClock::default();
        let mut above = [ROOT; 2];
        self.fill(&store, &mut |files, number| {
            for (depth, together) in [TOGETHER * TOGETHER, TOGETHER].into_iter().enumerate() {
                if number % together == 0 {
                    let parent = if depth == 0 { ROOT } else { above[0] };
                    above[depth] = make_directory(files, parent, number / together)?;
                }
            }
            write(files, above[1], number)
        })?;
        let made_s = clock.now_ns() as f64 / 1e9;
        let clock = SystemClock::default();
        let daemon = start(&store, place)?;
        let mounted_s = clock.now_ns() as f64 / 1e9;
        let mut samples = Samples::fixed();
        let before = anonymous_mb(daemon.process())?;
        let mut walks_s = Vec::new();
        for walks in [false, true] {
            let clock = SystemClock::default();
            let (found, most) = peak_mb(daemon.process(), || walk(place, walks, self.stop))?;
            expect(found, self.files)?;
            walks_s.push(clock.now_ns() as f64 / 1e9);
            samples.values.push((most - before).max(0.0));
        }
        let row = bounded(row, "MB", LISTING_MB_MAX, samples);
        Ok(row.with_note(format!(
            "{made_s:.1} s to make, {mounted_s:.2} s to mount, {:.1} s to walk, {:.1} s to walk and look",
            walks_s[0], walks_s[1],
        )))
    }
}

/// Files below a directory, each looked at or not.
fn walk(root: &Path, looks: bool, stop: &AtomicBool) -> Result<u64> {
    let mut found = 0;
    let mut ahead = vec![PathBuf::from(root)];
    while let Some(directory) = ahead.pop() {
        check_stop(stop)?;
        for entry in std::fs::read_dir(&directory).map_err(steps::failed)? {
            let entry = entry.map_err(steps::failed)?;
            if entry.file_type().map_err(steps::failed)?.is_dir() {
                ahead.push(entry.path());
                continue;
            }
            found += 1;
            if looks {
                rustix::fs::lstat(entry.path()).map_err(|errno| steps::failed(errno.into()))?;
            }
        }
    }
    Ok(found)
}

fn expect(found: u64, expected: u64) -> Result<()> {
    match found == expected {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Corrupt, "list a directory")
            .because("it has another number of entries")
            .with("found", found)
            .with("expected", expected)),
    }
}

fn make(files: &Files, directory: u64, number: u64) -> Result<()> {
    let made = Made { kind: Kind::File, permissions: 0o644, ..Made::default() };
    let name = format!("file-{number}");
    let made = files.make(directory, name.as_bytes(), made);
    made.map(drop).map_err(|failure| failure.into_error("make a file"))
}

fn make_directory(files: &Files, parent: u64, number: u64) -> Result<u64> {
    let made = Made { kind: Kind::Directory, permissions: 0o755, ..Made::default() };
    let name = format!("d{number}");
    let made = files.make(parent, name.as_bytes(), made);
    made.map(|node| node.number).map_err(|failure| failure.into_error("make a directory"))
}

/// Makes a file with its number in it.
fn write(files: &Arc<Files>, directory: u64, number: u64) -> Result<()> {
    let made = Made { kind: Kind::File, permissions: 0o644, ..Made::default() };
    let name = format!("file-{number}");
    let written = files.create(directory, name.as_bytes(), made, false).and_then(|(_, file)| {
        file.write(0, number.to_string().as_bytes(), false)?;
        file.close()
    });
    written.map_err(|failure| failure.into_error("make a file"))
}

fn start(store: &Path, place: &Path) -> Result<Daemon> {
    Daemon::start(["mount", "--foreground", &store.display().to_string()], place)
}

fn mount(store: &Path, place: &Path, row: &'static str) -> Result<Row> {
    let mut samples = Samples::fixed();
    for _ in 0..MOUNTS {
        let clock = SystemClock::default();
        let daemon = start(store, place)?;
        // Something was found there.
        std::fs::symlink_metadata(place.join("file-0")).map_err(steps::failed)?;
        samples.values.push(clock.now_ns() as f64 / 1e9);
        drop(daemon);
    }
    Ok(bounded(row, "s", MOUNT_S_MAX, samples))
}

/// How soon the first entries of a listing come, each time from a mount that was asked nothing before.
fn first(store: &Path, place: &Path, row: &'static str, files: u64) -> Result<Row> {
    let mut samples = Samples::fixed();
    for _ in 0..MOUNTS {
        let daemon = start(store, place)?;
        let clock = SystemClock::default();
        let mut entries = std::fs::read_dir(place).map_err(steps::failed)?;
        // An entry holds the directory open, and that the mount.
        let first = entries.next().transpose().map_err(steps::failed)?.is_some();
        samples.values.push(clock.now_ns() as f64 / 1e6);
        expect(u64::from(first) + entries.count() as u64, files)?;
        samples.yardsticks.push(clock.now_ns() as f64 / 1e6);
        drop(daemon);
    }
    let bar = Bar::AtMost(FIRST_MS_MAX);
    let comparison = Comparison { row, unit: "ms", yardstick_is: "the whole listing", bar };
    Ok(Groups { samples, ..Groups::default() }.row(&About { comparison, mode: "auto" }))
}

fn list(store: &Path, place: &Path, row: &'static str, files: u64) -> Result<Row> {
    let daemon = start(store, place)?;
    let mut samples = Samples::fixed();
    let before = anonymous_mb(daemon.process())?;
    for _ in 0..MOUNTS {
        let count = || Ok(std::fs::read_dir(place).map_err(steps::failed)?.count() as u64);
        let (found, most) = peak_mb(daemon.process(), count)?;
        expect(found, files)?;
        samples.values.push((most - before).max(0.0));
    }
    Ok(bounded(row, "MB", LISTING_MB_MAX, samples))
}

fn bounded(row: &'static str, unit: &'static str, most: f64, samples: Samples) -> Row {
    let comparison = Comparison { row, unit, yardstick_is: "-", bar: Bar::AtMost(most) };
    Groups { samples, ..Groups::default() }.row(&About { comparison, mode: "auto" })
}

/// The most anonymous memory that a process has while something is done, which it has still afterwards
/// or not: it is looked at all the time.
fn peak_mb<T>(process: u32, work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let looker = scope.spawn(|| -> Result<f64> {
            let (clock, mut most) = (SystemClock::default(), 0.0_f64);
            while !is_over.load(Ordering::Acquire) {
                most = most.max(anonymous_mb(process)?);
                clock.sleep(LOOK);
            }
            Ok(most.max(anonymous_mb(process)?))
        });
        let done = work();
        is_over.store(true, Ordering::Release);
        let most = looker.join().expect("the looker does not panic");
        Ok((done?, most?))
    })
}

/// Anonymous memory of a process. The kernel counts it, and need not walk its pages for that.
fn anonymous_mb(process: u32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status"))
        .map_err(|error| Error::from_io("look at a mount", error))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    let kib = kib.ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "look at a mount").because("no memory is told of it")
    })?;
    Ok(kib as f64 * 1024.0 / 1e6)
}
