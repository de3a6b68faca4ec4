// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ordered log of changes that a client acknowledged before the server had them.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::{Caps, Cover};

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
    /// Bytes of their contents in one message at most, unless one change has more.
    pub batch_bytes_max: usize,
}

impl Default for LogSettings {
    fn default() -> Self {
        // An age of 100 ms is what a killed mount may lose; 256 changes make a round trip of 10 ms cheap for each.
        // A full log is flushed in eight round trips, within a lease where each takes 200 ms.
        Self {
            changes_max: 2048,
            bytes_max: 4 << 20,
            age_ns_max: 100_000_000,
            batch_max: 256,
            batch_bytes_max: 1 << 20,
        }
    }
}

/// A deferred change. The server applies it at most once, by its sequence number in the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged<O> {
    /// Its place in the session's order. What depends on a refused change is not sent, and leaves a gap.
    pub sequence: u64,
    /// The capabilities under which the client acknowledged it.
    pub covers: Vec<Cover>,
    /// An inode that it makes, and what the client holds on that from then on.
    pub born: Option<(u64, Caps)>,
    /// What is to be done.
    pub change: O,
}

/// Inodes of which a deferred change was refused: later ones build on it, and are refused, too.
#[derive(Clone, Debug, Default)]
pub struct Refused(HashSet<u64>);

impl Refused {
    /// Notes that a change was refused.
    pub fn note<O>(&mut self, logged: &Logged<O>) {
        self.0.extend(logged.inodes());
    }

    /// Whether a change builds on one that was refused. Then it is noted, too.
    pub fn concerns<O>(&mut self, logged: &Logged<O>) -> bool {
        let is_concerned = logged.inodes().any(|inode| self.0.contains(&inode));
        if is_concerned {
            self.note(logged);
        }
        is_concerned
    }
}

impl<O> Logged<O> {
    /// The inodes that it changes or makes.
    pub fn inodes(&self) -> impl Iterator<Item = u64> {
        let covered = self.covers.iter().map(|cover| cover.inode);
        covered.chain(self.born.map(|(inode, _)| inode))
    }
}

#[derive(Debug)]
struct Entry<O> {
    logged: Logged<O>,
    bytes: usize,
    since_ns: u64,
    /// It builds on a refused change: no server gets it.
    is_refused: bool,
}

/// Deferred changes in order: those that are sent are at the front until the server has answered.
#[derive(Debug)]
pub(crate) struct Log<O> {
    settings: LogSettings,
    entries: VecDeque<Entry<O>>,
    bytes: usize,
    /// Sequence number of the last change that was added.
    last: u64,
    /// By inode, the last change of it that is here.
    last_of: HashMap<u64, u64>,
    /// What must be flushed even if it is young.
    wanted: u64,
    /// How many are in the message that is not answered yet.
    sent: usize,
}

impl<O: Clone> Log<O> {
    /// An empty log, whose first change comes behind this sequence number.
    pub(crate) fn behind(last: u64, settings: LogSettings) -> Self {
        Self {
            settings,
            entries: VecDeque::new(),
            bytes: 0,
            last,
            last_of: HashMap::new(),
            wanted: 0,
            sent: 0,
        }
    }

    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.entries.len() < self.settings.changes_max
            && bytes <= self.settings.bytes_max.saturating_sub(self.bytes)
    }

    pub(crate) fn add(
        &mut self,
        now_ns: u64,
        covers: Vec<Cover>,
        born: Option<(u64, Caps)>,
        (change, bytes): (O, usize),
    ) {
        self.last += 1;
        self.bytes += bytes;
        let logged = Logged { sequence: self.last, covers, born, change };
        self.last_of.extend(logged.inodes().map(|inode| (inode, self.last)));
        self.entries.push_back(Entry { logged, bytes, since_ns: now_ns, is_refused: false });
    }

    /// The last change of an inode, if it is not sent yet; and by how much its contents may grow.
    pub(crate) fn unsent(&mut self, inode: u64) -> Option<(&mut O, usize)> {
        let index = (self.last_of(inode)?).checked_sub(self.settled() + 1)? as usize;
        let room = self.settings.bytes_max.saturating_sub(self.bytes);
        let is_free = |entry: &&mut Entry<O>| index >= self.sent && !entry.is_refused;
        let entry = self.entries.get_mut(index).filter(is_free)?;
        Some((&mut entry.logged.change, room))
    }

    /// Notes that the contents of the last change of an inode, which is not sent, have so many more bytes.
    pub(crate) fn grow(&mut self, inode: u64, bytes: usize) {
        let Some(last) = self.last_of(inode) else { return };
        let index = (last - self.settled() - 1) as usize;
        self.entries[index].bytes += bytes;
        self.bytes += bytes;
    }

    /// Sequence number of the last change that was added.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Sequence number of the last change of an inode that is here.
    pub(crate) fn last_of(&self, inode: u64) -> Option<u64> {
        self.last_of.get(&inode).copied()
    }

    /// Sequence number of the last change whose fate is known, with all before it.
    pub(crate) fn settled(&self) -> u64 {
        self.last - self.entries.len() as u64
    }

    /// Has everything up to a change sent as soon as possible.
    pub(crate) fn want(&mut self, sequence: u64) {
        self.wanted = self.wanted.max(sequence);
    }

    /// Whether a change of this inode is in the log, behind the first `from` changes.
    pub(crate) fn has_change_of(&self, inode: u64, from: usize) -> bool {
        self.last_of(inode).is_some_and(|last| last > self.settled() + from as u64)
    }

    /// The next changes to send, without those that build on refused ones; none while a message is unanswered, or
    /// nothing is wanted, old, or enough for a message.
    pub(crate) fn next_batch(&mut self, now_ns: u64) -> Option<Vec<Logged<O>>> {
        let first = self.entries.front()?;
        let is_due = first.logged.sequence <= self.wanted
            || now_ns.saturating_sub(first.since_ns) >= self.settings.age_ns_max
            || self.entries.len() >= self.settings.batch_max
            || self.bytes >= self.settings.batch_bytes_max;
        if self.sent > 0 || !is_due {
            return None;
        }
        let mut bytes = 0;
        let fits = |entry: &&Entry<O>| {
            bytes += entry.bytes;
            bytes <= self.settings.batch_bytes_max
        };
        let fitting = self.entries.iter().take(self.settings.batch_max).take_while(fits).count();
        self.sent = fitting.max(1);
        let sent = self.entries.iter().take(self.sent).filter(|entry| !entry.is_refused);
        Some(sent.map(|entry| entry.logged.clone()).collect())
    }

    /// How many changes are sent and not answered.
    pub(crate) fn sent(&self) -> usize {
        self.sent
    }

    /// Removes what was sent: each change with whether the server has applied it. What builds on one that it has not
    /// applied is refused with that.
    pub(crate) fn settle(&mut self, are_applied: &[bool]) -> Vec<(Logged<O>, bool)> {
        let mut are_applied = are_applied.iter();
        let mut refused = Refused::default();
        let mut settled = Vec::with_capacity(self.sent);
        for entry in self.entries.drain(..self.sent) {
            // One without an answer is not known to be applied.
            let is_applied = !entry.is_refused && are_applied.next().is_some_and(|one| *one);
            if !is_applied {
                refused.note(&entry.logged);
            }
            self.bytes -= entry.bytes;
            settled.push((entry.logged, is_applied));
        }
        self.sent = 0;
        for entry in &mut self.entries {
            entry.is_refused |= refused.concerns(&entry.logged);
        }
        for (logged, _) in &settled {
            for inode in logged.inodes() {
                if self.last_of.get(&inode) == Some(&logged.sequence) {
                    self.last_of.remove(&inode);
                }
            }
        }
        settled
    }

    /// What builds on refused changes, and is not removed yet.
    pub(crate) fn refused(&self) -> impl Iterator<Item = &Logged<O>> {
        self.entries.iter().filter(|entry| entry.is_refused).map(|entry| &entry.logged)
    }

    /// Removes everything: no server will apply it.
    pub(crate) fn clear(&mut self) -> Vec<Logged<O>> {
        self.sent = self.entries.len();
        self.settle(&[]).into_iter().map(|(logged, _)| logged).collect()
    }
}
