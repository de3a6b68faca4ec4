// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory with very many files: how long a mount takes, and what listing it takes of memory.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use terrace_core::{Access, Clock, Error, ErrorKind, Result, SystemClock};
use terrace_fs::{Files, Kind, Made, ROOT, TreeOptions};
use terrace_mount::{NAME_DEFAULT, Opening};
use terrace_store::Store;

use super::daemon::Daemon;
use super::ground::Ground;
use super::{About, Groups, Row, steps};
use crate::bench::compared::{Bar, Comparison, Samples};
use crate::bench::micro::threads::check_stop;
use crate::progress::Progress;

/// Mounts that are timed.
const MOUNTS: usize = 5;

/// More memory than that is not bounded: the names alone take tens of bytes each.
const LISTING_MB_MAX: f64 = 32.0;

const MOUNT_S_MAX: f64 = 3.0;

/// The store that has them.
const STORE: &str = "million";

/// So often it is told how many files there are, while they are made.
const FILES_TOLD: u64 = 10_000;

pub(super) fn run(
    ground: &Ground,
    row: &'static str,
    files: u64,
    progress: &mut Progress,
    stop: &AtomicBool,
) -> Result<Row> {
    // Of all rows: the files take minutes.
    let store = ground.store_of(STORE);
    if !store.exists() {
        ground.store(STORE)?;
        fill(&store, files, progress, stop)?;
    }
    let place = ground.path().join(row);
    match row {
        "million-mount" => mount(&store, &place, row),
        _ => list(&store, &place, row, files),
    }
}

/// Makes files, without a mount: what is measured is not how they came to be.
fn fill(store: &Path, files: u64, progress: &mut Progress, stop: &AtomicBool) -> Result<()> {
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
    for number in 0..files {
        check_stop(stop)?;
        make(&opened, number)?;
        if (number + 1) % FILES_TOLD == 0 {
            progress.say(format!("{} of {files} files made", number + 1));
            progress.advance(0);
        }
    }
    opened.close().map_err(|failure| failure.into_error("close a file system"))?;
    drop(opened);
    store.close()
}

fn make(files: &Files, number: u64) -> Result<()> {
    let made = Made { kind: Kind::File, permissions: 0o644, ..Made::default() };
    let name = format!("file-{number}");
    let made = files.make(ROOT, name.as_bytes(), made);
    made.map(drop).map_err(|failure| failure.into_error("make a file"))
}

fn start(store: &Path, place: &Path) -> Result<Daemon> {
    Daemon::start(["mount", "--foreground", &store.display().to_string()], place)
}

fn mount(store: &Path, place: &Path, row: &'static str) -> Result<Row> {
    let mut samples = Samples::default();
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

fn list(store: &Path, place: &Path, row: &'static str, files: u64) -> Result<Row> {
    let daemon = start(store, place)?;
    let mut samples = Samples::default();
    let before = anonymous_mb(daemon.process())?;
    for _ in 0..MOUNTS {
        let count = std::fs::read_dir(place).map_err(steps::failed)?.count() as u64;
        if count != files {
            return Err(Error::new(ErrorKind::Corrupt, "list a directory")
                .because("it has another number of entries")
                .with("found", count)
                .with("expected", files));
        }
        samples.values.push((anonymous_mb(daemon.process())? - before).max(0.0));
    }
    Ok(bounded(row, "MB", LISTING_MB_MAX, samples))
}

fn bounded(row: &'static str, unit: &'static str, most: f64, samples: Samples) -> Row {
    let comparison = Comparison { row, unit, yardstick_is: "-", bar: Bar::AtMost(most) };
    Groups { samples, ..Groups::default() }.row(&About { comparison, mode: "auto" })
}

/// Anonymous memory of a process.
fn anonymous_mb(process: u32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup"))
        .map_err(|error| Error::from_io("look at a mount", error))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.unwrap_or(0) as f64 * 1024.0 / 1e6)
}
