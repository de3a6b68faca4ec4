// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transfers between memory and files: what IOR does.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::clock::{Stamp, raw_ns};
use crate::content::{Aligned, Content};
use crate::crew::{Shares, work_together};
use crate::error::{Error, Result};
use crate::latency::Latencies;
use crate::layout::{Layout, Place, Sequence};
use crate::phase::{Outcome, Phase};

/// Reading back for a check is not measured, so that it need not use the size of the transfers.
const CHECK_BYTES: u64 = 1 << 20;

/// When a process stops before it has done all of its transfers, or goes on after them.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Limit {
    /// Never: fixed work.
    Work,
    /// After so many nanoseconds, if it is not done before.
    Stonewall(u64),
    /// After so many nanoseconds; a process that is done begins anew.
    Duration(u64),
}

/// All that defines the work of a data phase, the same in every process.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct DataPattern {
    pub(crate) is_write: bool,
    pub(crate) layout: Layout,
    pub(crate) threads: u64,
    /// Process `r` reads or writes what would fall to process `r + reorder`.
    pub(crate) reorder: u64,
    pub(crate) is_direct: bool,
    pub(crate) is_synced_at_end: bool,
    pub(crate) is_synced_each_write: bool,
    /// Read and compared: during a phase that reads, after one that writes.
    pub(crate) is_checked: bool,
    pub(crate) is_kept: bool,
    pub(crate) is_existing_file_used: bool,
    pub(crate) limit: Limit,
}

/// The part of one process.
#[derive(Debug)]
pub(crate) struct Transfers {
    pattern: DataPattern,
    test_file: PathBuf,
    rank: u64,
    processes: u64,
    sequence: Sequence,
}

/// What one thread works with and has done.
struct Hand {
    content: Content,
    read: Aligned,
    latencies: Latencies,
    operations: u64,
}

/// What all threads are given at the begin.
struct Begun {
    file: File,
    begin: Stamp,
    open_ns: u64,
}

impl Transfers {
    pub(crate) fn new(pattern: DataPattern, test_file: &Path, rank: u64, processes: u64) -> Self {
        let sequence = pattern.layout.sequence((rank + pattern.reorder) % processes, processes);
        Self { pattern, test_file: test_file.to_owned(), rank, processes, sequence }
    }

    fn path(&self, file: u64) -> PathBuf {
        if !self.pattern.layout.is_file_per_process {
            return self.test_file.clone();
        }
        let mut name = self.test_file.clone().into_os_string();
        name.push(format!(".{file:08}"));
        name.into()
    }

    /// The file that this process makes and removes, if any.
    fn own(&self) -> Option<PathBuf> {
        let is_own = self.pattern.layout.is_file_per_process || self.rank == 0;
        is_own.then(|| self.path(self.rank))
    }

    fn open(&self) -> Result<File> {
        let path = self.path(self.sequence.place(0).file);
        let mut options = OpenOptions::new();
        options.read(!self.pattern.is_write).write(self.pattern.is_write);
        if self.pattern.is_direct {
            options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        }
        let opened = options.open(&path);
        opened.map_err(|error| Error::system("open", error).with("path", path.display()))
    }

    fn failed(&self, error: io::Error, place: Place) -> Error {
        let operation = if self.pattern.is_write { "write" } else { "read" };
        Error::system(operation, error)
            .with("path", self.path(place.file).display())
            .with("offset_bytes", place.offset_bytes)
    }

    /// The transfers of one thread.
    fn transfer(&self, hand: &mut Hand, begun: &Begun, shares: &Shares) -> Result<()> {
        let pattern = &self.pattern;
        let (count, length) = (pattern.layout.transfers(), pattern.layout.transfer_bytes as usize);
        let (deadline_ns, is_repeated) = match pattern.limit {
            Limit::Work => (u64::MAX, false),
            Limit::Stonewall(ns) => (begun.begin.raw_ns.saturating_add(ns), false),
            Limit::Duration(ns) => (begun.begin.raw_ns.saturating_add(ns), true),
        };
        let mut now_ns = raw_ns();
        // The time first: a transfer that was taken is done.
        while now_ns < deadline_ns
            && let Some(share) = shares.take().filter(|share| is_repeated || *share < count)
        {
            let place = self.sequence.place(share % count);
            let begin_ns;
            if pattern.is_write {
                let piece = hand.content.piece(place.file, place.offset_bytes, length);
                begin_ns = raw_ns();
                let mut done = begun.file.write_all_at(piece, place.offset_bytes);
                if pattern.is_synced_each_write {
                    done = done.and_then(|()| begun.file.sync_all());
                }
                now_ns = raw_ns();
                done.map_err(|error| self.failed(error, place))?;
            } else {
                let buffer = hand.read.bytes_mut();
                begin_ns = raw_ns();
                let done = begun.file.read_exact_at(buffer, place.offset_bytes);
                now_ns = raw_ns();
                done.map_err(|error| self.failed(error, place))?;
                if pattern.is_checked {
                    self.compare(&mut hand.content, place, hand.read.bytes())?;
                }
            }
            hand.latencies.record(now_ns - begin_ns);
            hand.operations += 1;
        }
        Ok(())
    }

    fn compare(&self, content: &mut Content, place: Place, found: &[u8]) -> Result<()> {
        match content.difference(place.file, place.offset_bytes, found) {
            None => Ok(()),
            Some(offset) => Err(Error::new("read", "the bytes are not those that were written")
                .with("path", self.path(place.file).display())
                .with("offset_bytes", offset)),
        }
    }
}

impl Phase for Transfers {
    fn prepare(&mut self) -> Result<()> {
        let Some(path) = self.own().filter(|_| self.pattern.is_write) else { return Ok(()) };
        let failed = |error| Error::system("make", error).with("path", path.display());
        if !self.pattern.is_existing_file_used {
            remove(&path)?;
        }
        // Other processes open it as well, and must not have to check whether it is there.
        let made = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        made.map_err(failed)?;
        Ok(())
    }

    fn measure(&mut self, begin: &mut dyn FnMut() -> Result<()>) -> Result<Outcome> {
        let length = self.pattern.layout.transfer_bytes as usize;
        let hands = (0..self.pattern.threads).map(|_| Hand {
            content: Content::new(self.pattern.layout.seed, length),
            read: Aligned::new(if self.pattern.is_write { 0 } else { length }),
            latencies: Latencies::new(),
            operations: 0,
        });
        let shares = Shares::default();
        let open = || {
            begin()?;
            let begin = Stamp::now();
            let file = self.open()?;
            Ok(Begun { file, begin, open_ns: raw_ns() - begin.raw_ns })
        };
        let work = |hand: &mut Hand, begun: &Begun| self.transfer(hand, begun, &shares);
        let (begun, hands) = work_together(hands.collect(), &shares, open, work)?;
        let transferred_ns = raw_ns();
        if self.pattern.is_synced_at_end {
            begun.file.sync_all().map_err(|error| {
                let path = self.path(self.sequence.place(0).file);
                Error::system("sync", error).with("path", path.display())
            })?;
        }
        let synced_ns = raw_ns();
        drop(begun.file);
        let end = Stamp::now();
        let mut latencies = Latencies::new();
        for hand in &hands {
            latencies.add(&hand.latencies.counts())?;
        }
        let operations = hands.iter().map(|hand| hand.operations).sum();
        Ok(Outcome {
            begin: begun.begin,
            end,
            bytes: operations * self.pattern.layout.transfer_bytes,
            operations,
            files: 0,
            directories: 0,
            open_ns: begun.open_ns,
            sync_ns: synced_ns - transferred_ns,
            close_ns: end.raw_ns - synced_ns,
            is_stonewalled: operations < self.pattern.layout.transfers(),
            latency: latencies.counts(),
        })
    }

    fn check(&mut self) -> Result<()> {
        if !(self.pattern.is_write && self.pattern.is_checked) {
            return Ok(());
        }
        let Some(path) = self.own() else { return Ok(()) };
        let failed = |error| Error::system("read back", error).with("path", path.display());
        let file = File::open(&path).map_err(failed)?;
        let bytes = self.pattern.layout.file_bytes(self.processes);
        let number = if self.pattern.layout.is_file_per_process { self.rank } else { 0 };
        let step = CHECK_BYTES.min(bytes);
        let mut content = Content::new(self.pattern.layout.seed, step as usize);
        let mut buffer = vec![0; step as usize];
        for offset_bytes in (0..bytes).step_by(step as usize) {
            let piece = &mut buffer[..step.min(bytes - offset_bytes) as usize];
            file.read_exact_at(piece, offset_bytes).map_err(failed)?;
            self.compare(&mut content, Place { file: number, offset_bytes }, piece)?;
        }
        Ok(())
    }

    fn clean(&mut self) -> Result<()> {
        match self.own() {
            Some(path) if !self.pattern.is_kept => remove(&path),
            _ => Ok(()),
        }
    }
}

/// Removes a file if it is there.
fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::system("remove", error).with("path", path.display()))
        }
        _ => Ok(()),
    }
}
