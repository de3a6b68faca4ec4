// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ordered log of changes that a client acknowledged before the server had them.

use std::collections::VecDeque;

use crate::Cover;

/// Bounds of a client's log.
#[derive(Clone, Copy, Debug)]
pub struct LogSettings {
    /// Changes at most.
    pub changes_max: usize,
    /// Bytes of their contents at most.
    pub bytes_max: usize,
    /// After this time a change is sent even if nothing waits for it.
    pub age_ns_max: u64,
    /// Changes in one message at most.
    pub batch_max: usize,
}

impl Default for LogSettings {
    fn default() -> Self {
        // An age of 100 ms is what a killed mount may lose; 64 changes make a round trip of 10 ms cheap for each.
        Self { changes_max: 4096, bytes_max: 4 << 20, age_ns_max: 100_000_000, batch_max: 64 }
    }
}

/// A deferred change. The server applies it at most once, by its sequence number in the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged<O> {
    /// Its place in the session's order, from 1 without gaps.
    pub sequence: u64,
    /// The capability under which the client acknowledged it.
    pub cover: Cover,
    /// What is to be done.
    pub change: O,
}

#[derive(Debug)]
struct Entry<O> {
    logged: Logged<O>,
    bytes: usize,
    since_ns: u64,
}

/// Deferred changes in order: those that are sent are at the front until the server has answered.
#[derive(Debug)]
pub(crate) struct Log<O> {
    settings: LogSettings,
    entries: VecDeque<Entry<O>>,
    bytes: usize,
    /// Sequence number of the last change that was added.
    last: u64,
    /// What must be flushed even if it is young.
    wanted: u64,
    /// How many are in the message that is not answered yet.
    sent: usize,
}

impl<O: Clone> Log<O> {
    pub(crate) fn new(settings: LogSettings) -> Self {
        Self { settings, entries: VecDeque::new(), bytes: 0, last: 0, wanted: 0, sent: 0 }
    }

    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.entries.len() < self.settings.changes_max
            && bytes <= self.settings.bytes_max.saturating_sub(self.bytes)
    }

    pub(crate) fn add(&mut self, now_ns: u64, cover: Cover, change: O, bytes: usize) {
        self.last += 1;
        self.bytes += bytes;
        let logged = Logged { sequence: self.last, cover, change };
        self.entries.push_back(Entry { logged, bytes, since_ns: now_ns });
    }

    /// Sequence number of the last change that was added.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Sequence number of the last change whose fate is known, with all before it.
    pub(crate) fn settled(&self) -> u64 {
        self.last - self.entries.len() as u64
    }

    /// Has everything up to a change sent as soon as possible.
    pub(crate) fn want(&mut self, sequence: u64) {
        self.wanted = self.wanted.max(sequence);
    }

    /// Whether a change under a capability of this inode is in the log, behind the first `from` changes.
    pub(crate) fn covers(&self, inode: u64, from: usize) -> bool {
        self.entries.iter().skip(from).any(|entry| entry.logged.cover.inode == inode)
    }

    /// The next changes to send; none while a message is unanswered, or nothing is wanted or old.
    pub(crate) fn next_batch(&mut self, now_ns: u64) -> Option<Vec<Logged<O>>> {
        let first = self.entries.front()?;
        let is_old = now_ns.saturating_sub(first.since_ns) >= self.settings.age_ns_max;
        if self.sent > 0 || !(is_old || first.logged.sequence <= self.wanted) {
            return None;
        }
        self.sent = self.entries.len().min(self.settings.batch_max);
        Some(self.entries.iter().take(self.sent).map(|entry| entry.logged.clone()).collect())
    }

    /// How many changes are sent and not answered.
    pub(crate) fn sent(&self) -> usize {
        self.sent
    }

    /// Removes what was sent, which the server has answered.
    pub(crate) fn settle(&mut self) -> Vec<Logged<O>> {
        let settled: Vec<_> = self.entries.drain(..self.sent).collect();
        self.sent = 0;
        self.bytes -= settled.iter().map(|entry| entry.bytes).sum::<usize>();
        settled.into_iter().map(|entry| entry.logged).collect()
    }

    /// Removes everything: no server will apply it.
    pub(crate) fn clear(&mut self) -> Vec<Logged<O>> {
        self.sent = self.entries.len();
        self.settle()
    }
}
