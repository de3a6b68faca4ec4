// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Taking names away.

use std::collections::HashMap;

use rustix::io::Errno;
use terrace_core::Txn;

use super::hold::Hold;
use super::{
    Orphan, Tree, check_name, discard, get_bucket, get_directory, get_node, put_bucket, put_node,
    touch,
};
use crate::clock::Moment;
use crate::entries::Entry;
use crate::failure::{Failure, Result};
use crate::node::{Node, Time};
use crate::pairs;
use crate::request::{NamedFile, Reply};

impl Tree {
    /// Takes a name away. What is open stays until it is closed.
    pub(super) fn remove(
        &self,
        session: u64,
        directory: u64,
        name: &[u8],
        is_directory: bool,
    ) -> Result<Reply> {
        if name == b"." || name == b".." {
            let errno = if name == b".." { Errno::NOTEMPTY } else { Errno::INVAL };
            return Err(errno.into());
        }
        check_name(name)?;
        let hash = self.hash(name);
        loop {
            let number = match get_bucket(self, directory, hash)?.find(name) {
                Some(entry) => entry.number,
                None => return Err(Errno::NOENT.into()),
            };
            let mut holds = self.holds.lock(number);
            let is_open = self.is_held(&holds, number);
            let now = self.now();
            let outcome = self.change(|txn| {
                let mut parent = get_directory(&mut *txn, directory)?;
                let mut bucket = get_bucket(&mut *txn, directory, hash)?;
                let entry = bucket.find(name).ok_or(Failure::of(Errno::NOENT))?;
                if entry.number != number {
                    return Ok(None);
                }
                let mut node = get_node(&mut *txn, number)?;
                check_removal(txn, &node, is_directory)?;
                bucket.remove(name);
                put_bucket(txn, directory, hash, &bucket)?;
                parent.size = parent.size.saturating_sub(1);
                parent.links -= u32::from(is_directory);
                touch(&mut parent, now);
                put_node(txn, &parent)?;
                let orphan = unlink(txn, &mut node, is_open, now)?;
                Ok(Some((orphan, node.links == 0, parent)))
            })?;
            // The name was given to another node meanwhile: the lock is that of the wrong one.
            let Some((orphan, is_nameless, parent)) = outcome else { continue };
            note_nameless(holds.get_mut(&number), is_nameless);
            let has_garbage = self.keep_unlinked(session, orphan);
            if is_directory {
                self.delegations.forget(number);
            }
            let directory = Some(parent);
            return Ok(Reply::Gone { number, has_garbage, directory, is_delegated: false });
        }
    }
}

/// What became of names that were to be taken from files.
pub(super) struct Removed {
    /// The directory.
    pub(super) directory: Node,
    /// The files that lost them.
    pub(super) gone: Vec<u64>,
    /// Those of them that have no other name.
    nameless: Vec<u64>,
    /// Those that were discarded.
    orphans: Vec<Orphan>,
    /// Those whose objects are to be deleted.
    pub(super) garbage: Vec<u64>,
    /// How many names stay, because others may have changed their files.
    pub(super) kept: u32,
}

impl Tree {
    /// Takes names from files, all at once, for a user that may have acknowledged their unlinks; those that lead
    /// elsewhere by now stay. A client that got the time of the directory's change finds the same time.
    pub(super) fn remove_numbered(
        &self,
        session: u64,
        directory: u64,
        names: &[NamedFile<'_>],
        changed: Option<Time>,
    ) -> Result<Removed> {
        names.iter().try_for_each(|named| check_name(named.name))?;
        let mut holds = self.holds.lock_all(names.iter().map(|named| named.number));
        let mut is_open = Vec::new();
        let mut is_written = Vec::new();
        for number in names.iter().map(|named| named.number) {
            let holds = holds.of(number);
            is_open.push(self.is_held(holds, number));
            is_written.push(holds.get(&number).is_some_and(|hold| hold.writers > 0));
        }
        let now = self.now();
        let mut removed = self.change(|txn| {
            // A later open of one of them finds what becomes of it.
            let is_in_time = self.delegations.is_in_time(&self.clock, session, directory);
            let directory = get_directory(&mut *txn, directory)?;
            let (gone, nameless, orphans) = (Vec::new(), Vec::new(), Vec::new());
            let garbage = Vec::new();
            let mut removed = Removed { directory, gone, nameless, orphans, garbage, kept: 0 };
            for (index, NamedFile { name, number, changed }) in names.iter().enumerate() {
                let hash = self.hash(name);
                let mut bucket = get_bucket(&mut *txn, removed.directory.number, hash)?;
                let is_meant =
                    |entry: &Entry| entry.number == *number && !entry.kind.is_directory();
                if !bucket.find(name).is_some_and(is_meant) {
                    continue;
                }
                let mut node = get_node(&mut *txn, *number)?;
                if !is_in_time && (node.changed != *changed || is_written[index]) {
                    removed.kept += 1;
                    continue;
                }
                bucket.remove(name);
                put_bucket(txn, removed.directory.number, hash, &bucket)?;
                removed.orphans.extend(unlink(txn, &mut node, is_open[index], now)?);
                if node.links == 0 {
                    removed.nameless.push(*number);
                }
                removed.gone.push(*number);
            }
            if !removed.gone.is_empty() {
                let directory = &mut removed.directory;
                directory.size = directory.size.saturating_sub(removed.gone.len() as u64);
                touch_directory_as_told(directory, changed, names.len(), now);
                put_node(txn, directory)?;
            }
            Ok(removed)
        })?;
        for number in &removed.nameless {
            note_nameless(holds.of(*number).get_mut(number), true);
        }
        for orphan in std::mem::take(&mut removed.orphans) {
            let number = orphan.number();
            if self.keep_unlinked(session, Some(orphan)) {
                removed.garbage.push(number);
            }
        }
        Ok(removed)
    }

    /// Keeps what an unlink discarded, if it did; whether there is an object to be deleted. The caller
    /// holds the lock of its hold.
    pub(super) fn keep_unlinked(&self, session: u64, orphan: Option<Orphan>) -> bool {
        let has_object = orphan.as_ref().is_some_and(|orphan| orphan.has_object);
        if let Some(orphan) = orphan {
            self.unlinked.keep(session, orphan, self.clock.passed_ns());
        }
        has_object
    }

    /// Whether a node is open, or may be and was not reclaimed.
    pub(super) fn is_held(&self, holds: &HashMap<u64, Hold>, number: u64) -> bool {
        let is_open = holds.get(&number).is_some_and(|hold| hold.opens > 0);
        is_open || self.claims.may_come_for(number)
    }
}

/// Notes that the entries of a directory changed at the times that a client has returned: each of so many times
/// by the least, or at a later time that has passed, unless there was another change since.
fn touch_directory_as_told(
    directory: &mut Node,
    told: Option<Time>,
    times: usize,
    now: Moment<'_>,
) {
    let last = (0..times).fold(directory.changed, |changed, _| changed.next());
    let is_last = |told: &Time| *told == last || (last < *told && *told <= now.time());
    match told.filter(is_last) {
        Some(told) if directory.modified <= directory.changed => {
            (directory.modified, directory.changed) = (told, told);
        }
        _ => touch(directory, now),
    }
}

/// What is open without a name goes with the last close.
pub(super) fn note_nameless(hold: Option<&mut Hold>, is_nameless: bool) {
    if let Some(hold) = hold {
        hold.is_nameless |= is_nameless;
        hold.was_removed |= is_nameless;
    }
}

/// Whether a node may lose its name by removal, or because another one gets it.
pub(super) fn check_removal(txn: &mut dyn Txn, node: &Node, is_directory: bool) -> Result<()> {
    match (node.kind.is_directory(), is_directory) {
        (true, false) => Err(Errno::ISDIR.into()),
        (false, true) => Err(Errno::NOTDIR.into()),
        (false, false) => Ok(()),
        (true, true) if txn.scan(&pairs::entries(node.number), 1)?.is_empty() => Ok(()),
        (true, true) => Err(Errno::NOTEMPTY.into()),
    }
}

/// Takes one name off a node's count; the node where it was discarded with that.
pub(super) fn unlink(
    txn: &mut dyn Txn,
    node: &mut Node,
    is_open: bool,
    now: Moment<'_>,
) -> Result<Option<Orphan>> {
    // A directory has one name, and none left for `.` without it.
    node.links = if node.kind.is_directory() { 0 } else { node.links.saturating_sub(1) };
    node.changed = now.after(node.changed);
    if node.links == 0 && !is_open {
        return discard(txn, node).map(Some);
    }
    if node.links == 0 {
        txn.put(&pairs::nameless(node.number), b"")?;
    }
    put_node(txn, node)?;
    Ok(None)
}
