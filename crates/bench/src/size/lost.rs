// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The catalog of a large store is lost, made anew from the tiers, and every object is compared with
//! what was written to it.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use terrace_console::progress::Progress;
use terrace_core::{Backend, Error, ErrorKind, ObjectExt, Open, Random, Result, TierIndex};
use terrace_stack::{MoveKind, RebuildOptions, Stack};

use super::{
    Settings, Steps, anonymous_bytes, check, check_stop, expect_all, list, name, parts, seconds,
};

/// What `terrace fsck --rebuild` does together.
pub(super) const IN_ALL: &str = "in all";

/// The steps here that have a bar of their own, or none.
pub(super) const STEPS: [&str; 4] = ["rebuild", "recover", IN_ALL, "compare all"];

/// A catalog of a million objects is made anew in so much.
pub(super) const SECONDS_MAX: f64 = 300.0;

/// Most bytes of an object.
const BYTES_MAX: u64 = 64;

/// One in so many objects is moved to the other tier.
const MOVED_EVERY: u64 = 1000;

/// Longest that one migration may take.
const MOVE_TIME_MAX: Duration = Duration::from_secs(60);

/// Between two looks at the memory.
const LOOK_TIME: Duration = Duration::from_millis(50);

/// What an object holds: length and bytes tell it from others.
pub(super) fn content(number: u64) -> Vec<u8> {
    let mut random = Random::new(number);
    let length = 1 + random.below(BYTES_MAX);
    (0..length).map(|_| random.below(256) as u8).collect()
}

/// Moves some objects, so that both tiers hold some.
pub(super) fn spread(stack: &Stack, objects: u64) -> Result<()> {
    let to = TierIndex(1);
    let moved = (0..objects).step_by(MOVED_EVERY as usize);
    for key in moved.map(name) {
        let key = key?;
        for ticket in stack.migrate(&key, to, MoveKind::Move, 0, "to hold some on each tier")? {
            let ended = stack.wait(ticket, MOVE_TIME_MAX)?;
            let outcome = ended.and_then(|ended| ended.outcome);
            if outcome.as_deref() != Some("done") {
                return Err(Error::new(ErrorKind::Io, "move an object")
                    .because(outcome.unwrap_or_else(|| "it does not end".into()))
                    .with("key", &key));
            }
        }
    }
    Ok(())
}

/// Loses the catalog and brings it back as `terrace fsck --rebuild` does: made anew, opened,
/// checked.
pub(super) fn measure(place: &Path, settings: &Settings, steps: &mut Steps<'_>) -> Result<()> {
    let objects = settings.objects;
    std::fs::remove_dir_all(place.join("catalog"))
        .map_err(|error| Error::from_io("lose the catalog", error))?;
    let report = take(steps, "rebuild", objects, || {
        let parts = parts(place, settings)?;
        let mut progress = Progress::items("rebuild", Some(0));
        let mut show = |done, total| progress.set(done, total);
        Stack::rebuild(&parts, &RebuildOptions::default(), &mut show)
    })?;
    if let Some(problem) = report.problems.first() {
        return Err(Error::new(ErrorKind::Corrupt, "make a catalog anew")
            .because(problem.detail.clone())
            .with("place", &problem.place));
    }
    expect_all("make a catalog anew", report.objects, objects)?;
    let stack = take(steps, "recover", 1, || Stack::open(parts(place, settings)?))?;
    take(steps, "fsck", objects, || check(&stack, objects))?;
    let seconds = steps.rows.iter().map(|row| row.seconds).sum();
    let peak_bytes = steps.rows.iter().map(|row| row.memory_bytes).max().unwrap_or(0);
    steps.push(IN_ALL, objects, seconds, peak_bytes);
    let stop = steps.stop;
    take(steps, "compare all", objects, || compare(&stack, objects, stop))?;
    take(steps, "close", 1, || stack.close())
}

/// Adds a step with the most memory that was seen in it.
fn take<T>(
    steps: &mut Steps<'_>,
    step: &'static str,
    count: u64,
    body: impl FnOnce() -> Result<T>,
) -> Result<T> {
    check_stop(steps.stop)?;
    let (end, ended) = channel::<()>();
    let (value, peak_bytes) = std::thread::scope(|scope| {
        let watcher = scope.spawn(move || {
            let mut peak_bytes = 0;
            loop {
                peak_bytes = anonymous_bytes()?.max(peak_bytes);
                if ended.recv_timeout(LOOK_TIME) != Err(RecvTimeoutError::Timeout) {
                    return Ok::<_, Error>(peak_bytes);
                }
            }
        });
        let value = seconds(steps.clock, body);
        drop(end);
        (value, watcher.join().expect("reading a file does not panic"))
    });
    let (value, seconds) = value?;
    steps.push(step, count, seconds, peak_bytes?);
    Ok(value)
}

/// Reads every object, and finds no other.
fn compare(stack: &Stack, objects: u64, stop: &AtomicBool) -> Result<()> {
    let mut progress = Progress::items("compare", Some(objects));
    for number in 0..objects {
        check_stop(stop)?;
        let key = name(number)?;
        let expected = content(number);
        // One byte more, so that a longer object is seen.
        let mut found = vec![0; expected.len() + 1];
        let count = stack.open(&key, &Open::read())?.read(0, &mut found)?;
        if found[..count] != expected {
            return Err(Error::new(ErrorKind::Corrupt, "compare a rebuilt object")
                .because("it holds something else than was written to it")
                .with("key", &key)
                .with("found_bytes", count)
                .with("written_bytes", expected.len()));
        }
        progress.set(number + 1, objects);
    }
    list(stack, objects)
}
