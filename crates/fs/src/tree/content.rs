// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bytes of small files, and what is known of those of all others.

use rustix::io::Errno;

use super::{LockOwner, Tree, discard, find_node, get_node, put_node, touch};
use crate::failure::Result;
use crate::node::{Kind, Node, Place};
use crate::pairs;
use crate::record::encode;
use crate::request::{CLAIMED, Left, LockKind, Locked, OpenedAhead, Reply, Settled, claim};

/// How a small file is written.
pub(super) struct Written<'a> {
    /// Where, unless it is at the end.
    pub(super) offset: u64,
    pub(super) data: &'a [u8],
    pub(super) at_end: bool,
    pub(super) clears_set_id: bool,
}

/// What of a small file was copied to its object.
pub(super) struct Moved<'a> {
    /// How long the file was then.
    pub(super) size: u64,
    pub(super) content: &'a [u8],
    /// When the object was last changed, nanoseconds since 1970.
    pub(super) modified_ns: u64,
}

impl Tree {
    /// Opens a file for the session, counted as often as it holds it (see `Session`); for reading
    /// also any other inode without a name, so that it stays until it is closed.
    pub(super) fn open_node(
        &self,
        session: u64,
        number: u64,
        is_for_writing: bool,
    ) -> Result<Reply> {
        let mut holds = self.holds.lock(number);
        let found = find_node(self, number)?;
        let (mut node, was_removed) = match found {
            Some(node) => {
                let was_removed = node.kind != Kind::File;
                (node, was_removed)
            }
            None => self.restore_unlinked(session, number)?,
        };
        match node.kind {
            Kind::File => {}
            _ if node.links == 0 && !is_for_writing => {}
            Kind::Directory => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        }
        let was_settled = node.place == Place::Object && !node.is_written;
        if is_for_writing && was_settled {
            node = self.change(|txn| {
                let mut node = get_node(&mut *txn, number)?;
                node.is_written = node.place == Place::Object;
                put_node(txn, &node)?;
                Ok(node)
            })?;
        }
        let hold = holds.entry(number).or_default();
        if is_for_writing && hold.writers == 0 {
            hold.is_untouched = was_settled;
        }
        hold.opens += 1;
        hold.writers += u64::from(is_for_writing);
        hold.is_nameless = node.links == 0;
        // Nothing but a file is ever made without a name.
        hold.was_removed |= was_removed;
        drop(holds);
        self.opened(node)
    }

    /// Opens a file for reading where its bytes are with the metadata, it has a name, and its answer
    /// it has room; how much of that it takes.
    pub(super) fn open_small(
        &self,
        number: u64,
        room: usize,
    ) -> Result<Option<(OpenedAhead, usize)>> {
        let mut holds = self.holds.lock(number);
        let node = get_node(self, number)?;
        if node.kind != Kind::File || node.place != Place::Inline || node.links == 0 {
            return Ok(None);
        }
        let Reply::Opened { node, content } = self.opened(node)? else { return Ok(None) };
        // Beside the bytes: about what is kept of a node.
        let bytes = encode(&node).len() + content.len();
        if bytes > room {
            return Ok(None);
        }
        holds.entry(number).or_default().opens += 1;
        Ok(Some((OpenedAhead { node, content }, bytes)))
    }

    /// A file and its bytes, where those are with the metadata.
    pub(super) fn content(&self, number: u64) -> Result<Reply> {
        self.opened(get_node(self, number)?)
    }

    fn opened(&self, mut node: Node) -> Result<Reply> {
        loop {
            let mut content = Vec::new();
            if node.place == Place::Inline && node.size > 0 {
                content = self.kv.get(&pairs::content(node.number))?.unwrap_or_default();
                // Both must be of one moment: a write may have come between.
                let now = get_node(self, node.number)?;
                if now != node {
                    node = now;
                    continue;
                }
            }
            return Ok(Reply::Opened { node, content });
        }
    }

    /// Closes a file `opens` times; one without a name goes with the last time, and is kept a little
    /// longer for a session that goes on. Whether its object is now to be deleted.
    pub(super) fn close_node(
        &self,
        session: Option<u64>,
        number: u64,
        opens: u64,
        writers: u64,
        left: Left,
    ) -> Result<bool> {
        let mut holds = self.holds.lock(number);
        let Some(hold) = holds.get_mut(&number) else { return Err(Errno::BADF.into()) };
        hold.opens = hold.opens.saturating_sub(opens);
        hold.writers = hold.writers.saturating_sub(writers);
        hold.is_untouched &= writers == 0 || left == Left::Untouched;
        // Of a small file there is nothing to be noted.
        if writers > 0 && left == Left::Unknown && hold.opens > 0 && !hold.is_in_doubt {
            let node = find_node(self, number)?;
            hold.is_in_doubt = node.is_some_and(|node| node.place == Place::Object);
        }
        let hold = *hold;
        if hold.opens == 0 {
            holds.remove(&number);
        }
        let mut has_garbage = false;
        // It goes at the end of the time in which it may be claimed.
        let may_go = || hold.is_collected || !self.claims.may_come_for(number);
        if hold.opens == 0 && hold.is_nameless && may_go() {
            let orphan = self.change(|txn| match find_node(&mut *txn, number)? {
                Some(node) if node.links == 0 => {
                    txn.delete(&pairs::nameless(number))?;
                    let had_name = hold.was_removed || node.kind != Kind::File;
                    let mut orphan = discard(txn, &node)?;
                    orphan.had_name = had_name;
                    Ok(Some(orphan))
                }
                _ => Ok(None),
            })?;
            has_garbage = match session {
                Some(session) => self.keep_unlinked(session, orphan),
                None => orphan.is_some_and(|orphan| orphan.has_object),
            };
        } else if let Left::Settled(settled) = left {
            let may_be_written = hold.writers > 0 || hold.is_in_doubt;
            self.settle_node(number, &settled, may_be_written, hold.opens > 0)?;
        } else if left == Left::Untouched && hold.is_untouched && hold.writers == 0 {
            self.change(|txn| match find_node(&mut *txn, number)? {
                Some(node) if node.place == Place::Object => {
                    put_node(txn, &Node { is_written: false, ..node })
                }
                _ => Ok(()),
            })?;
        }
        drop(holds);
        Ok(has_garbage)
    }

    /// Takes account of what the object of an open file says.
    pub(super) fn settle(&self, number: u64, settled: &Settled) -> Result<Reply> {
        let holds = self.holds.lock(number);
        let has_writers = holds.get(&number).is_some_and(|hold| hold.writers > 0);
        self.settle_node(number, settled, has_writers, false)?;
        drop(holds);
        Ok(Reply::Done)
    }

    fn settle_node(
        &self,
        number: u64,
        settled: &Settled,
        has_writers: bool,
        may_be_late: bool,
    ) -> Result<()> {
        self.clock.see(settled.modified_ns);
        let settle_into = |node| settle_into(node, settled, has_writers, may_be_late);
        let Some(before) = find_node(self, number)? else { return Ok(()) };
        if before.place != Place::Object || settle_into(before.clone()) == before {
            return Ok(());
        }
        self.change(|txn| {
            let Some(node) = find_node(&mut *txn, number)? else { return Ok(()) };
            if node.place != Place::Object {
                return Ok(());
            }
            put_node(txn, &settle_into(node))
        })
    }

    /// Writes into a small file.
    pub(super) fn write(&self, number: u64, written: &Written<'_>) -> Result<Reply> {
        let now = self.now();
        let bytes_max = self.inline_bytes_max();
        self.change(|txn| {
            let mut node = get_node(&mut *txn, number)?;
            let offset = if written.at_end { node.size } else { written.offset };
            let end = offset.checked_add(written.data.len() as u64);
            let end = end.filter(|end| *end <= bytes_max);
            let (Place::Inline, Some(end)) = (node.place, end) else { return Ok(Reply::NotHere) };
            let key = pairs::content(number);
            let mut content = txn.get(&key)?.unwrap_or_default();
            if content.len() < end as usize {
                content.resize(end as usize, 0);
            }
            content[offset as usize..end as usize].copy_from_slice(written.data);
            txn.put(&key, &content)?;
            node.allocated_bytes = room(&content);
            node.size = node.size.max(end);
            touch(&mut node, now);
            if written.clears_set_id {
                node.clear_set_id();
            }
            put_node(txn, &node)?;
            Ok(Reply::Node(node))
        })
    }

    /// Notes that a small file may have an object from now on, which goes with it; not for a client that has
    /// lost the claim to that to another user.
    pub(super) fn note_object(&self, session: u64, number: u64) -> Result<Reply> {
        self.change(|txn| {
            let mut node = get_node(&mut *txn, number)?;
            if node.place == Place::Inline && self.is_claimed(session, number) {
                return Ok(Reply::NotHere);
            }
            if node.kind == Kind::File && node.place == Place::Inline {
                node.may_have_object = true;
                // Also where it is noted already: a move of before is then before or after this.
                put_node(txn, &node)?;
            }
            Ok(Reply::Node(node))
        })
    }

    /// The bytes of a small file are in its object from now on, if they still are those, and no other
    /// user has the claim to the object: that one may be writing there.
    pub(super) fn move_out(&self, session: u64, number: u64, moved: &Moved<'_>) -> Result<Reply> {
        self.change(|txn| {
            let mut node = get_node(&mut *txn, number)?;
            let key = pairs::content(number);
            let there = txn.get(&key)?.unwrap_or_default();
            let is_same = node.size == moved.size && there == moved.content;
            if node.place != Place::Inline || !is_same || self.is_claimed(session, number) {
                return Ok(Reply::NotHere);
            }
            txn.delete(&key)?;
            node.place = Place::Object;
            node.may_have_object = false;
            node.is_written = true;
            node.settled_ns = moved.modified_ns;
            self.clock.see(moved.modified_ns);
            put_node(txn, &node)?;
            Ok(Reply::Node(node))
        })
    }
}

impl Tree {
    /// Locks a part of a file, or what stands for the making of its object.
    pub(super) fn set_lock(
        &self,
        number: u64,
        is_flock: bool,
        owner: LockOwner,
        locked: &Locked,
    ) -> Result<()> {
        let is_claim = number & CLAIMED != 0 && locked.range.kind != LockKind::Unlock;
        if is_claim && self.may_be_moving(number & !CLAIMED)? {
            return Err(Errno::AGAIN.into());
        }
        self.locks.set(number, is_flock, owner, locked)
    }

    /// Whether another user has the claim to the object of a small file.
    fn is_claimed(&self, session: u64, number: u64) -> bool {
        let owner = LockOwner { session, number: 0 };
        let range = claim(LockKind::Write).range;
        self.locks.find(number | CLAIMED, false, owner, &range).is_some()
    }
}

/// Room that bytes take beside the metadata. Never 0: that have nodes that were written when this was
/// not kept, whatever there is of them.
pub(super) fn room(content: &[u8]) -> u64 {
    (content.len() as u64).max(1)
}

/// A node that takes account of what its object returned. The client may have looked before another
/// one wrote, and come later: unless it is newer than all that is known, or the same, the object
/// is asked again with the next question. Of what may be late nothing else is taken: the next that
/// is late would pass for newer. Else an object with an older time has it: it was cut where a
/// segment ends, or a clock was set back.
fn settle_into(node: Node, settled: &Settled, has_writers: bool, may_be_late: bool) -> Node {
    if may_be_late && settled.modified_ns < node.settled_ns {
        return Node { is_written: true, ..node };
    }
    let is_newer = settled.modified_ns > node.settled_ns;
    let is_same = settled.modified_ns == node.settled_ns && settled.size == node.size;
    let is_certain = is_newer || is_same;
    let object = terrace_core::Stat {
        size_bytes: settled.size,
        allocated_bytes: settled.allocated_bytes,
        modified_ns: settled.modified_ns,
        ..terrace_core::Stat::default()
    };
    let node = node.with_object(&object);
    Node { settled_ns: settled.modified_ns, is_written: has_writers || !is_certain, ..node }
}
