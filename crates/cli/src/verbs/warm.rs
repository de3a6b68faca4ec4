// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace warm`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use terrace_core::units::{parse_rate, show_bytes};
use terrace_core::{Clock, Error, SystemClock};

use super::{Group, Verb};
use crate::cached::{cached_bytes, on_mount};
use crate::context::Context;
use crate::failure::{Failures, Result};
use crate::interrupt::Interrupt;
use crate::output::{Output, count};
use crate::progress::Progress;

const OPERATION: &str = "fill a cache";
/// Files are read in pieces of this, a block of the cache.
const PIECE_BYTES: u64 = 1 << 20;
/// Files that are found before they are read.
const FOUND_MAX: usize = 1024;
/// Longest sleep between two checks for a signal.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Fill the cache of a mounted directory or bucket
///
/// Reads what is below the paths through a mount of `terrace mount --source`, so that its cache
/// has it before a program needs it. Links are not followed, but for those that are named. A file
/// of which all is in the cache is not read again, so a run that was interrupted goes on where it
/// ended.
///
/// A file or directory that cannot be read is reported, and the others are read. A file is not
/// kept while it is being written, or where the cache has no room. Where the cache is smaller than
/// what is read, it ends with what was read last.
#[derive(Args, Debug)]
pub(crate) struct Warm {
    /// Files and directories on the mount
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,

    /// Most that is read in a second; counts blocks of large files that are in the cache, too
    #[arg(long, value_name = "RATE")]
    bandwidth: Option<String>,

    /// Files that are read at a time
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
}

impl Verb for Warm {
    const NAME: &'static str = "warm";
    const GROUP: Group = Group::Store;
    const EXAMPLES: &'static str = "
  terrace warm /data/imagenet
  terrace warm --bandwidth 200MB/s --threads 4 /data/train /data/labels.csv
  terrace warm --json /data | jq .copied_bytes";

    fn run(self, context: &Context) -> Result<()> {
        let bytes_per_s = self.bandwidth.as_deref().map(parse_rate).transpose()?;
        let paths = self.paths.iter().map(|path| on_mount(path, OPERATION));
        let paths = paths.collect::<Result<Vec<_>>>()?;
        let work = Work {
            pace: bytes_per_s.map(|bytes_per_s| Pace { bytes_per_s, next_ns: Mutex::new(0) }),
            clock: SystemClock::default(),
            interrupt: Interrupt::watch()?,
            progress: Mutex::new(Progress::bytes("reading", None)),
            failures: Mutex::new(Failures::walking(context.is_json, true)),
            done: Done::default(),
        };
        let (sender, found) = sync_channel(FOUND_MAX);
        let found = Mutex::new(found);
        thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| work.read_all(&found));
            }
            for path in paths {
                work.walk(path, &|file| sender.send(file).is_ok());
            }
            // The threads end when they have taken all.
            drop(sender);
        });
        let Work { interrupt, progress, failures, done, .. } = work;
        drop(progress);
        let mut output = Output::new();
        done.print(context, &mut output)?;
        output.flush()?;
        interrupt.check("files that were copied stay in the cache")?;
        failures.into_inner().unwrap_or_else(PoisonError::into_inner).finish()
    }
}

/// What all threads share.
struct Work {
    pace: Option<Pace>,
    clock: SystemClock,
    interrupt: Interrupt,
    progress: Mutex<Progress>,
    failures: Mutex<Failures>,
    done: Done,
}

/// A bound on the rate of all threads together.
struct Pace {
    bytes_per_s: f64,
    /// When the next piece may be read, by the monotonic clock.
    next_ns: Mutex<u64>,
}

impl Pace {
    /// When so many bytes may be read, of which nothing else is read at that time.
    fn turn_ns(&self, now_ns: u64, bytes: u64) -> u64 {
        let mut next_ns = lock(&self.next_ns);
        let turn_ns = (*next_ns).max(now_ns);
        *next_ns = turn_ns.saturating_add((bytes as f64 / self.bytes_per_s * 1e9) as u64);
        turn_ns
    }
}

#[derive(Default)]
struct Done {
    files: AtomicU64,
    bytes: AtomicU64,
    /// Files that were in the cache.
    cached_files: AtomicU64,
    copied_files: AtomicU64,
    copied_bytes: AtomicU64,
    /// Files that the cache did not keep, or not all of it.
    uncached_files: AtomicU64,
    failed: AtomicU64,
}

impl Done {
    fn print(&self, context: &Context, output: &mut Output) -> Result<()> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (files, bytes, cached) =
            (load(&self.files), load(&self.bytes), load(&self.cached_files));
        let (copied, copied_bytes) = (load(&self.copied_files), load(&self.copied_bytes));
        let (uncached, failed) = (load(&self.uncached_files), load(&self.failed));
        if context.is_json {
            return output.json(&json!({
                "files": files,
                "bytes": bytes,
                "cached_files": cached,
                "copied_files": copied,
                "copied_bytes": copied_bytes,
                "uncached_files": uncached,
                "failed": failed,
            }));
        }
        let mut text = format!(
            "{}, {}: {cached} in the cache already, {copied} copied ({})",
            count(files, "file"),
            show_bytes(bytes),
            show_bytes(copied_bytes)
        );
        if uncached > 0 {
            text.push_str(&format!(
                ", {uncached} not kept (being written, or no room in the cache)"
            ));
        }
        if failed > 0 {
            text.push_str(&format!(", {failed} failed"));
        }
        output.line(text)
    }
}

impl Work {
    /// Finds the files at or below a path; `take` returns false once the readers have ended.
    fn walk(&self, path: PathBuf, take: &dyn Fn(PathBuf) -> bool) {
        let mut left = vec![path];
        while let Some(path) = left.pop().filter(|_| !self.interrupt.is_set()) {
            let looked = self.look(&path, &mut left, take);
            self.note(&path, looked);
        }
    }

    fn look(
        &self,
        path: &Path,
        left: &mut Vec<PathBuf>,
        take: &dyn Fn(PathBuf) -> bool,
    ) -> io::Result<()> {
        let kind = std::fs::symlink_metadata(path)?.file_type();
        if kind.is_file() {
            take(path.to_path_buf());
            return Ok(());
        }
        if !kind.is_dir() {
            return Ok(());
        }
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                left.push(entry.path());
            } else if kind.is_file() && (self.interrupt.is_set() || !take(entry.path())) {
                break;
            }
        }
        Ok(())
    }

    fn read_all(&self, found: &Mutex<Receiver<PathBuf>>) {
        loop {
            let next = lock(found).recv();
            let Ok(path) = next else { return };
            // After a signal the rest is taken and not read, so that the walk does not block.
            if !self.interrupt.is_set() {
                let read = self.read(&path);
                self.note(&path, read);
            }
        }
    }

    /// Reads a file of which not all is in the cache.
    fn read(&self, path: &Path) -> io::Result<()> {
        let size_bytes = std::fs::symlink_metadata(path)?.len();
        let before_bytes = cached_bytes(path)?;
        let add = |counter: &AtomicU64, amount| {
            counter.fetch_add(amount, Ordering::Relaxed);
        };
        // An empty file says 0 in any case.
        if before_bytes >= size_bytes && size_bytes > 0 {
            add(&self.done.files, 1);
            add(&self.done.bytes, size_bytes);
            add(&self.done.cached_files, 1);
            return Ok(());
        }
        let first_bytes = size_bytes.min(PIECE_BYTES);
        self.wait_turn(first_bytes);
        let file = File::open(path)?;
        if cached_bytes(path)? >= size_bytes {
            // The mount copies a small file as a whole when it is opened.
            lock(&self.progress).advance(size_bytes);
            self.wait_turn(size_bytes - first_bytes);
        } else {
            self.read_through(&file, size_bytes)?;
        }
        let after_bytes = cached_bytes(path)?;
        add(&self.done.files, 1);
        add(&self.done.bytes, size_bytes);
        add(&self.done.copied_bytes, after_bytes.saturating_sub(before_bytes));
        match after_bytes >= size_bytes {
            true => add(&self.done.copied_files, 1),
            false => add(&self.done.uncached_files, 1),
        }
        Ok(())
    }

    /// Reads a file piece by piece, of which the first was waited for.
    fn read_through(&self, file: &File, size_bytes: u64) -> io::Result<()> {
        let mut piece = vec![0; PIECE_BYTES as usize];
        let mut done_bytes = 0;
        while done_bytes < size_bytes && !self.interrupt.is_set() {
            if done_bytes > 0 {
                self.wait_turn((size_bytes - done_bytes).min(PIECE_BYTES));
            }
            let read = file.read_at(&mut piece, done_bytes)? as u64;
            if read == 0 {
                break;
            }
            done_bytes += read;
            lock(&self.progress).advance(read);
        }
        Ok(())
    }

    /// Waits until so many bytes may be read, or a signal comes.
    fn wait_turn(&self, bytes: u64) {
        let Some(pace) = &self.pace else { return };
        let turn_ns = pace.turn_ns(self.clock.now_ns(), bytes);
        while !self.interrupt.is_set() {
            let left_ns = turn_ns.saturating_sub(self.clock.now_ns());
            if left_ns == 0 {
                return;
            }
            self.clock.sleep(Duration::from_nanos(left_ns).min(SLEEP_MAX));
        }
    }

    fn note(&self, path: &Path, result: io::Result<()>) {
        let Err(error) = result else { return };
        // What was removed since it was found is no failure.
        if error.kind() != io::ErrorKind::NotFound {
            self.done.failed.fetch_add(1, Ordering::Relaxed);
        }
        let error = Error::from_io(OPERATION, error).with("path", path.display());
        let progress = lock(&self.progress);
        // Only a signal and a reader that is gone end the whole command, and this is neither.
        let _ = progress.aside(|| lock(&self.failures).note(Err::<(), _>(error.into())));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_all_threads_keep_to_one_rate() {
        let pace = Pace { bytes_per_s: 1e6, next_ns: Mutex::new(0) };
        assert_eq!(pace.turn_ns(5_000, 1000), 5_000, "the first one need not wait");
        assert_eq!(pace.turn_ns(5_001, 2000), 1_005_000);
        assert_eq!(pace.turn_ns(5_002, 1), 3_005_000);
        assert_eq!(pace.turn_ns(9_000_000, 1), 9_000_000, "time that was not used is lost");
    }
}
