// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads of a file while it moves from tier to tier, beside the same reads while it stays.
//!
//! Not with `fio --verify`: blocks with and without migrations take turns, a tenth of a second each, on
//! one descriptor, whose mode is that of its opening. A run of fio opens the file anew, takes longer to
//! start than such a block lasts, and would compare no more than is compared here.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use terrace_console::progress::Progress;
use terrace_core::{Clock, Error, ErrorKind, Result, SystemClock};
use terrace_measure::check_stop;
use terrace_measure::compared::Samples;

use super::receipts::Mover;
use super::{Settings, steps};

/// A read that takes longer counts as this long.
const TIME_NS_MAX: u64 = 60_000_000_000;

const PIECE_BYTES: usize = 4 << 10;

/// Length of the file: so long that reads meet the copying, and short enough for many migrations.
const FILE_BYTES: u64 = 32 << 20;

/// So many migrations must have ended while it was read.
const MOVES_MIN: u64 = 100;

/// How long groups are added for that.
const MORE_TIME_MAX: Duration = Duration::from_secs(10 * 60);

/// What was measured.
pub(super) struct Moved {
    /// The 99th percentile of each block, in microseconds.
    pub(super) samples: Samples,
    /// Migrations that ended while the file was read.
    pub(super) moves: u64,
    /// Reads whose bytes were compared.
    pub(super) reads: u64,
}

/// Makes the file, every word of it with its place, and closes it, so that its mode can be chosen.
pub(super) fn make(directory: &Path) -> Result<PathBuf> {
    let path = directory.join("moving");
    let file = File::create(&path).map_err(steps::failed)?;
    let mut piece = Aligned([0; PIECE_BYTES]);
    for place in (0..FILE_BYTES).step_by(PIECE_BYTES) {
        piece.stamp(place);
        file.write_all_at(&piece.0, place).map_err(steps::failed)?;
    }
    Ok(path)
}

/// Blocks with and without migrations in turns. Other bytes than were written are an error.
pub(super) fn run(
    path: &Path,
    file: &File,
    mover: &mut Mover,
    settings: &Settings,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> Result<Moved> {
    let mut moved = Moved { samples: Samples::default(), moves: 0, reads: 0 };
    let mut measure = |is_moving: bool, moved: &mut Moved| -> Result<f64> {
        let (is_over, is_settled) = (AtomicBool::new(!is_moving), AtomicBool::new(!is_moving));
        thread::scope(|scope| {
            let moves = scope.spawn(|| {
                let moves = mover.move_about(path, &is_over);
                is_settled.store(true, Ordering::Release);
                moves
            });
            let p99 = read_block(file, settings.block_ms, &mut moved.reads, &mut || {
                is_over.store(true, Ordering::Release);
                is_settled.load(Ordering::Acquire)
            });
            // Also where a read failed.
            is_over.store(true, Ordering::Release);
            let moves = moves.join().expect("the mover does not panic")?;
            moved.moves += moves.meanwhile + moves.late;
            p99
        })
    };
    measure(false, &mut moved)?;
    let clock = SystemClock::default();
    let mut enough_ns = 0;
    while moved.samples.values.len() < settings.groups || moved.moves < MOVES_MIN {
        check_stop(stop)?;
        if moved.samples.values.len() <= settings.groups {
            enough_ns = clock.now_ns();
        } else if Duration::from_nanos(clock.now_ns() - enough_ns) > MORE_TIME_MAX {
            return Err(Error::new(ErrorKind::Busy, "read a file that moves")
                .because("it moves too seldom")
                .with("moves", moved.moves)
                .with("expected", MOVES_MIN));
        }
        let first = measure(false, &mut moved)?;
        let second = measure(true, &mut moved)?;
        let third = measure(true, &mut moved)?;
        let fourth = measure(false, &mut moved)?;
        moved.samples.yardsticks.push((first + fourth) / 2.0);
        moved.samples.values.push((second + third) / 2.0);
        progress.advance(1);
    }
    Ok(moved)
}

/// Reads all over the file until the time is over and then `is_settled`: what moves has come where it goes.
/// Returns the 99th percentile of a read, in microseconds.
fn read_block(
    file: &File,
    block_ms: u64,
    number: &mut u64,
    is_settled: &mut dyn FnMut() -> bool,
) -> Result<f64> {
    let clock = SystemClock::default();
    let mut times: Histogram<u64> =
        Histogram::new_with_max(TIME_NS_MAX, 3).expect("three digits are allowed");
    let (mut piece, mut expected) = (Aligned([0; PIECE_BYTES]), Aligned([0; PIECE_BYTES]));
    while clock.now_ns() < block_ms * 1_000_000 || !is_settled() {
        let place = steps::place(*number, PIECE_BYTES, true) % FILE_BYTES;
        *number += 1;
        let before_ns = clock.now_ns();
        file.read_exact_at(&mut piece.0, place).map_err(steps::failed)?;
        times.saturating_record(clock.now_ns() - before_ns);
        expected.stamp(place);
        if piece.0 != expected.0 {
            return Err(Error::new(ErrorKind::Corrupt, "read a file that moves")
                .because("other bytes are there")
                .with("offset_bytes", place));
        }
    }
    Ok(times.value_at_quantile(0.99) as f64 / 1e3)
}

/// Memory as direct reads want it.
#[repr(align(4096))]
struct Aligned([u8; PIECE_BYTES]);

impl Aligned {
    /// Writes into every word its place in the file.
    fn stamp(&mut self, place: u64) {
        const WORD_BYTES: usize = 8;
        for (index, word) in self.0.chunks_exact_mut(WORD_BYTES).enumerate() {
            word.copy_from_slice(&(place + (index * WORD_BYTES) as u64).to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_are_an_error() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = make(directory.path()).expect("there is room");
        let file = File::options().read(true).write(true).open(path).expect("it is there");
        let mut reads = 0;
        read_block(&file, 10, &mut reads, &mut || true).expect("it is as it was made");
        assert!(reads > 0);
        // The first word of every piece is that of the piece behind it.
        for place in (0..FILE_BYTES).step_by(PIECE_BYTES) {
            let word = (place + PIECE_BYTES as u64).to_le_bytes();
            file.write_all_at(&word, place).expect("there is room");
        }
        let failed =
            read_block(&file, 10, &mut reads, &mut || true).expect_err("other bytes are there");
        assert_eq!(failed.kind(), ErrorKind::Corrupt);
    }
}
