// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads of a file while it moves from tier to tier, beside the same reads while it stays.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use terrace_core::{Clock, Error, ErrorKind, Result, SystemClock};

use super::{Settings, steps};
use crate::bench::compared::Samples;
use crate::bench::micro::threads::check_stop;
use crate::progress::Progress;

const TIER: &str = "user.terrace.tier";

/// A read that takes longer counts as this long.
const TIME_NS_MAX: u64 = 60_000_000_000;

const PIECE_BYTES: usize = 4 << 10;

/// Length of the file: so long that reads meet the copying, and short enough for many migrations.
pub(super) const FILE_BYTES: u64 = 32 << 20;

/// Between two looks at a migration.
const PAUSE: Duration = Duration::from_millis(1);

/// So many migrations must have ended while it was read.
const MOVES_MIN: u64 = 100;

/// Blocks with and without migrations in turns: the 99th percentile of each, in microseconds.
pub(super) fn run(
    path: &Path,
    file: &File,
    settings: &Settings,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> Result<Samples> {
    let mut samples = Samples::default();
    let mut moves = 0;
    let mut number = 0;
    let mut measure = |is_moving: bool, moves: &mut u64| -> Result<f64> {
        let is_over = AtomicBool::new(!is_moving);
        thread::scope(|scope| {
            let mover = scope.spawn(|| move_about(path, &is_over));
            let p99 = read_block(file, settings.block_ms, &mut number);
            is_over.store(true, Ordering::Release);
            *moves += mover.join().expect("the mover does not panic")?;
            p99
        })
    };
    measure(false, &mut moves)?;
    while samples.values.len() < settings.groups || moves < MOVES_MIN {
        check_stop(stop)?;
        let first = measure(false, &mut moves)?;
        let second = measure(true, &mut moves)?;
        let third = measure(true, &mut moves)?;
        let fourth = measure(false, &mut moves)?;
        samples.yardsticks.push((first + fourth) / 2.0);
        samples.values.push((second + third) / 2.0);
        progress.advance(1);
    }
    Ok(samples)
}

/// Reads all over the file; the 99th percentile of a read, in microseconds.
fn read_block(file: &File, block_ms: u64, number: &mut u64) -> Result<f64> {
    let clock = SystemClock::default();
    let mut times: Histogram<u64> =
        Histogram::new_with_max(TIME_NS_MAX, 3).expect("three digits are allowed");
    let mut buffer = Aligned([0; PIECE_BYTES]);
    while clock.now_ns() < block_ms * 1_000_000 {
        let place = steps::place(*number, PIECE_BYTES, true) % FILE_BYTES;
        *number += 1;
        let before_ns = clock.now_ns();
        file.read_exact_at(&mut buffer.0, place).map_err(steps::failed)?;
        times.saturating_record(clock.now_ns() - before_ns);
    }
    Ok(times.value_at_quantile(0.99) as f64 / 1e3)
}

/// Memory as direct reads want it.
#[repr(align(4096))]
struct Aligned([u8; PIECE_BYTES]);

/// Has the file moved to and fro until it is over; how many migrations came to their end.
fn move_about(path: &Path, is_over: &AtomicBool) -> Result<u64> {
    let mut moves = 0;
    let mut at = tier(path)?;
    while !is_over.load(Ordering::Acquire) {
        let to = if at == "fast" { "slow" } else { "fast" };
        match setxattr(path, TIER, to.as_bytes(), XattrFlags::empty()) {
            Ok(()) => {}
            // It moves still.
            Err(Errno::BUSY) => {
                thread::sleep(PAUSE);
                continue;
            }
            Err(errno) => return Err(Error::from_io("move a file", errno.into())),
        }
        // Bounded by the block: a migration that fails leaves it where it was.
        while at != to && !is_over.load(Ordering::Acquire) {
            thread::sleep(PAUSE);
            at = tier(path)?;
        }
        moves += u64::from(at == to);
    }
    Ok(moves)
}

fn tier(path: &Path) -> Result<String> {
    let mut value = [0; 64];
    let read = getxattr(path, TIER, &mut value[..])
        .map_err(|errno| Error::from_io("look where a file is", errno.into()))?;
    String::from_utf8(value[..read].to_vec())
        .map_err(|_| Error::new(ErrorKind::Corrupt, "look where a file is"))
}
