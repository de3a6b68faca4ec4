// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One user of the metadata: a mount, or a client of a server.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use terrace_core::Access;

use super::Tree;
use super::content::{Moved, Written};
use super::locks::LockOwner;
use super::make::{Numbered, Spot};
use super::once::Once;
use super::remove::Removed;
use crate::failure::Result;
use crate::lock;
use crate::metadata::Metadata;
use crate::node::{ROOT, Time};
use crate::request::{
    Closed, Delegated, ENTRIES_AHEAD_MAX, LISTED_AHEAD_MAX, Left, ListedAhead, Made, NamedFile,
    OPENED_AHEAD_MAX, Order, REMOVED_MAX, Reply, Request, WasRead,
};
use crate::wire::Effect;

/// So many bytes at most are returned of files that are opened with one request: an answer that gets lost is
/// kept for a repeated request, unless it is much longer.
const BYTES_AHEAD_MAX: usize = 56 << 10;

/// One user of a [`Tree`]. What it has open is closed, and what it has locked given back, when it is
/// dropped.
pub struct Session {
    tree: Arc<Tree>,
    /// Tells it from others.
    id: u64,
    /// A session for reading changes nothing, and cannot delete objects.
    access: Access,
    /// How often each node is open here, and how often for writing.
    open: Mutex<HashMap<u64, (u64, u64)>>,
    closes: Once,
}

impl Session {
    /// Begins to use a file system.
    pub fn new(tree: &Arc<Tree>) -> Self {
        Self::begin(tree, Access::Write)
    }

    /// The same for reading: what changes anything is refused (`ROFS`).
    pub fn reading(tree: &Arc<Tree>) -> Self {
        Self::begin(tree, Access::Read)
    }

    fn begin(tree: &Arc<Tree>, access: Access) -> Self {
        let id = tree.sessions.fetch_add(1, Ordering::Relaxed);
        let (open, closes) = (Mutex::default(), Once::default());
        Self { tree: Arc::clone(tree), id, access, open, closes }
    }

    /// The file system.
    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// Has what is open stay open when this is dropped, until the file system is opened again: what
    /// has no name then is there to be reclaimed.
    pub fn leave_open(&self) {
        lock(&self.open).clear();
    }

    /// The same at the orderly end of a server: what this user unlinked a moment ago, and may hold without
    /// having it open, is stored again for the next one.
    pub fn hand_over(&self) {
        self.leave_open();
        self.tree.hand_over_unlinked(self.id);
    }

    fn note_open(&self, number: u64, is_for_writing: bool) {
        let mut open = lock(&self.open);
        let (opens, writers) = open.entry(number).or_default();
        *opens += 1;
        *writers += u64::from(is_for_writing);
    }

    fn make(
        &self,
        directory: u64,
        name: &[u8],
        made: &Made<'_>,
        numbered: Option<Numbered<'_>>,
    ) -> Result<Reply> {
        let spot = Spot { directory, name };
        let is_open = numbered.as_ref().is_some_and(|numbered| numbered.is_open);
        let (node, parent, is_delegated) = self.tree.make(self.id, spot, made, numbered)?;
        if made.is_opened && !is_open {
            self.note_open(node.number, true);
        }
        let delegated = Delegated { directory: self.renew(directory), node: is_delegated };
        Ok(Reply::Made { node, directory: parent, delegated })
    }

    fn lookup(&self, directory: u64, name: &[u8]) -> Result<Reply> {
        match self.tree.lookup(directory, name) {
            // A client that relies on it from now on, and acknowledges that it has made a file, is not to wait with that
            // for a client that has the directory to list. One that gets that meanwhile looks whether this one relies
            // on it.
            Err(failure)
                if failure.errno() == Errno::NOENT
                    && self.renew(directory)
                    && !self.is_listed_by_others(directory) =>
            {
                Ok(Reply::Nowhere)
            }
            found => found.map(Reply::Node),
        }
    }

    fn remove(&self, directory: u64, name: &[u8], is_directory: bool) -> Result<Reply> {
        let mut reply = self.tree.remove(self.id, directory, name, is_directory)?;
        if let Reply::Gone { is_delegated, .. } = &mut reply {
            *is_delegated = self.renew(directory);
        }
        Ok(reply)
    }

    fn remove_numbered(
        &self,
        directory: u64,
        names: &[NamedFile<'_>],
        changed: Option<Time>,
    ) -> Result<Reply> {
        if names.len() > REMOVED_MAX {
            return Err(Errno::INVAL.into());
        }
        let tree = &*self.tree;
        let Removed { directory: node, gone, garbage, kept, .. } =
            tree.remove_numbered(self.id, directory, names, changed)?;
        // Acknowledged unlinks concern no objects.
        tree.claims.note_discarded(&garbage);
        // A client that gets the answer that a name is gone is not to find others that open the file by it.
        gone.iter().for_each(|number| self.wait_for_readers_of(*number));
        let is_delegated = self.renew(directory);
        // Clients that read files that were delegated to them do not look. One that gets that meanwhile looks whether
        // this was acknowledged. One that has the directory to list gets no other one that is delegated to this user,
        // and is waited for before and behind this.
        let is_read = || tree.read_delegations.has_others(&tree.clock, self.id);
        let may_say_gone = is_delegated
            && !is_read()
            && tree.delegations.may_say_gone(&tree.clock, self.id, directory, changed.is_some())
            && !is_read();
        let count = gone.len() as u32;
        Ok(Reply::Removed { directory: node, count, kept, is_delegated, may_say_gone })
    }

    /// Whether a directory is delegated to this user, again from now on.
    fn renew(&self, directory: u64) -> bool {
        self.tree.delegations.renew(&self.tree.clock, self.id, directory)
    }

    /// Waits until what a request changes is not delegated to others.
    fn wait_for_others(&self, request: &Request<'_>) {
        for directory in changed_by(request).into_iter().flatten() {
            self.tree.delegations.wait(&self.tree.clock, self.id, directory);
        }
        match request {
            Request::Remove { directory, name, is_directory: true } => {
                self.wait_for_makers_in(*directory, name);
            }
            Request::Rename { to_directory, to, how, .. } if !how.exchanges => {
                self.wait_for_makers_in(*to_directory, to);
            }
            _ => {}
        }
    }

    /// Blocks until the acknowledged unlinks of others are applied, for a request that looks there or uses it.
    fn wait_to_look(&self, request: &Request<'_>) {
        if !self.tree.delegations.may_be_said(&self.tree.clock, self.id) {
            return;
        }
        match request {
            Request::List { directory, .. } => self.wait_to_look_into(*directory),
            Request::Lookup { directory, name } => {
                self.wait_to_look_into(*directory);
                // The answer has the directory as it is now.
                if let Ok(node) = self.tree.lookup(*directory, name)
                    && node.kind.is_directory()
                {
                    self.wait_to_look_into(node.number);
                }
            }
            Request::Node { number }
            | Request::Change { number, .. }
            | Request::Link { number, .. }
            | Request::Open { number, .. }
            | Request::Content { number }
            | Request::Target { number }
            | Request::Xattr { number, .. }
            | Request::Xattrs { number }
            | Request::SetXattr { number, .. }
            | Request::RemoveXattr { number, .. } => self.wait_to_look_at(*number),
            Request::OpenAhead { numbers, .. } => {
                numbers.iter().for_each(|number| self.wait_to_look_at(*number));
            }
            _ => {}
        }
    }

    fn wait_to_look_at(&self, number: u64) {
        if let Ok(node) = self.tree.node(number) {
            let is_directory = node.kind.is_directory();
            self.wait_to_look_into(if is_directory { number } else { node.parent });
        }
    }

    fn wait_to_look_into(&self, directory: u64) {
        self.tree.delegations.wait_to_look(&self.tree.clock, self.id, directory);
    }

    /// Whether others may have acknowledged the unlink of any of these files.
    fn may_be_said(&self, numbers: &[u64]) -> bool {
        let delegations = &self.tree.delegations;
        delegations.may_be_said(&self.tree.clock, self.id)
            && numbers
                .iter()
                .filter_map(|number| self.tree.node(*number).ok())
                .any(|node| delegations.is_said_by_others(&self.tree.clock, self.id, node.parent))
    }

    /// Waits until a directory that is to go is not delegated to others, which may be about to make files in it.
    fn wait_for_makers_in(&self, directory: u64, name: &[u8]) {
        if self.tree.delegations.is_unused(&self.tree.clock) {
            return;
        }
        match self.tree.lookup(directory, name) {
            Ok(node) if node.kind.is_directory() && node.number != ROOT => {
                self.tree.delegations.wait(&self.tree.clock, self.id, node.number);
            }
            _ => {}
        }
    }

    /// Waits until no other user relies on what is in the file, or on the names in the directory, that a
    /// request changes. Before it is carried out: a client that sees what it did is not to find others that go on
    /// without. And again behind it, because of those that looked in between.
    fn wait_for_readers(&self, request: &Request<'_>) {
        for directory in changed_by(request).into_iter().flatten() {
            self.tree.list_delegations.wait(&self.tree.clock, self.id, directory);
        }
        match request {
            Request::Change { number, .. }
            | Request::SetXattr { number, .. }
            | Request::RemoveXattr { number, .. }
            | Request::Write { number, .. }
            | Request::MoveOut { number, .. } => self.wait_for_readers_of(*number),
            _ => {}
        }
    }

    /// The same for a request that takes a name from a file or a directory.
    fn wait_for_readers_by_name(&self, request: &Request<'_>) {
        let tree = &*self.tree;
        let (directory, name) = match request {
            _ if tree.read_delegations.is_unused() && tree.list_delegations.is_unused() => return,
            Request::RemoveNumbered { removed, .. } => {
                return removed.iter().for_each(|named| self.wait_for_readers_of(named.number));
            }
            Request::Remove { directory, name, .. } => (*directory, *name),
            Request::Rename { to_directory, to, how, .. } if !how.exchanges => (*to_directory, *to),
            _ => return,
        };
        // Where another one comes between it is found behind the change.
        if let Ok(node) = self.tree.lookup(directory, name) {
            self.wait_for_users_of(node.number);
        }
    }

    fn wait_for_readers_of(&self, number: u64) {
        self.tree.read_delegations.wait(&self.tree.clock, self.id, number);
    }

    /// The same of a file or a directory that loses a name.
    fn wait_for_users_of(&self, number: u64) {
        self.wait_for_readers_of(number);
        self.tree.list_delegations.wait(&self.tree.clock, self.id, number);
    }

    /// Lists directories that are likely to be listed, and delegates them.
    fn list_ahead(
        &self,
        directories: &[u64],
        below: Option<Order>,
        (count, max): (u32, u32),
        grant: u64,
    ) -> Result<Reply> {
        if directories.len() > LISTED_AHEAD_MAX {
            return Err(Errno::INVAL.into());
        }
        let Tree { clock, list_delegations, .. } = &*self.tree;
        let count = LISTED_AHEAD_MAX.min(count as usize);
        let mut left: Vec<u64> = directories.iter().rev().copied().collect();
        let mut room = ENTRIES_AHEAD_MAX.min(max);
        let mut listed: Vec<ListedAhead> = Vec::with_capacity(count);
        let (mut is_first, mut is_refused) = (true, false);
        while listed.len() < count
            && let Some(number) = left.pop()
        {
            // A walk over directories that move meanwhile may find one twice.
            let is_told = |one: &ListedAhead| one.directory.number == number;
            if listed.iter().any(is_told) || self.is_others(number) {
                continue;
            }
            // Before it is looked what is in it: a later change waits.
            if !list_delegations.give(clock, self.id, &[number], (grant, is_first)) {
                // What was given before is so for as long as was granted, also where that has ended.
                is_refused = is_first;
                break;
            }
            is_first = false;
            let found = self.listed_ahead(number, room);
            if !matches!(found, Ok(Some(_))) {
                list_delegations.give_back(self.id, number);
            }
            match found {
                Ok(Some(one)) => {
                    room -= one.entries.len() as u32;
                    let first = left.len();
                    left.extend(below.map_or_else(Vec::new, |order| directories_of(&one, order)));
                    left[first..].reverse();
                    listed.push(one);
                }
                Ok(None) => break,
                // A request for it gets the reason.
                Err(_) => {}
            }
        }
        // Else nothing was given, because others have changed what was before.
        match is_refused {
            true => Ok(Reply::NotHere),
            false => Ok(Reply::ListedAhead(listed)),
        }
    }

    /// Whether other users may list a directory without asking.
    fn is_listed_by_others(&self, directory: u64) -> bool {
        let Tree { clock, list_delegations, .. } = &*self.tree;
        list_delegations.has_others_of(clock, self.id, directory)
    }

    /// Whether another user alone changes names in a directory, and may rely on that, or have acknowledged already
    /// that some are gone: it is not to wait with them until it can rely on it no more.
    fn is_others(&self, directory: u64) -> bool {
        let Tree { clock, delegations, .. } = &*self.tree;
        delegations.is_others(clock, self.id, directory)
    }

    /// A directory and all that is in it; `None` where that is more than so many entries.
    fn listed_ahead(&self, number: u64, max: u32) -> Result<Option<ListedAhead>> {
        let tree = &*self.tree;
        // A client that gets that later waits behind this change for the one that has it to list.
        if self.is_others(number) {
            return Err(Errno::AGAIN.into());
        }
        let directory = tree.node(number)?;
        if !directory.kind.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        if directory.size > u64::from(max) {
            return Ok(None);
        }
        let entries = tree.list(number, 0, max + 1, true)?;
        Ok((entries.len() <= max as usize).then_some(ListedAhead { directory, entries }))
    }

    /// Opens files that are likely to be read, and delegates them.
    fn open_ahead(&self, numbers: &[u64], grant: (u64, bool)) -> Result<Reply> {
        if numbers.len() > OPENED_AHEAD_MAX {
            return Err(Errno::INVAL.into());
        }
        let tree = &*self.tree;
        // Before they are delegated: a close of one that was open before gives nothing back.
        numbers.iter().for_each(|number| self.note_open(*number, false));
        // Before it is looked what is in them: a later change of one waits.
        let (grant, is_first) = grant;
        let is_said = || tree.delegations.may_be_said(&tree.clock, self.id);
        // With more files the others are prolonged, too.
        let goes_on = is_first || tree.read_delegations.renew(&tree.clock, self.id, grant, is_said);
        let mut is_given =
            goes_on && tree.read_delegations.give(&tree.clock, self.id, numbers, (grant, is_first));
        // A client that may acknowledge unlinks of files may do so without those that have them delegated.
        if is_given && self.may_be_said(numbers) {
            numbers.iter().for_each(|number| tree.read_delegations.give_back(self.id, *number));
            is_given = false;
        }
        let mut opened = Vec::with_capacity(numbers.len());
        let mut room = BYTES_AHEAD_MAX;
        for number in numbers {
            let ahead = match is_given {
                // What cannot be opened is opened on its use, and returns the reason.
                true => tree.open_small(*number, room).unwrap_or_default(),
                false => None,
            };
            match ahead {
                Some((ahead, bytes)) => {
                    room = room.saturating_sub(bytes);
                    opened.push(ahead);
                }
                None => drop(self.note_closed(*number, false)?),
            }
        }
        match is_given {
            true => Ok(Reply::OpenedAhead(opened)),
            false => Ok(Reply::NotHere),
        }
    }

    /// Closes all, also where one fails; the first error. That is returned once: a second request
    /// gets the answer that they are closed.
    fn close_all(
        &self,
        closed: &[Closed],
        read: &[WasRead],
        (id, acknowledged): (u64, u64),
    ) -> Result<Reply> {
        if let Some(garbage) = self.closes.begin(id, acknowledged)? {
            return Ok(Reply::Numbers(garbage));
        }
        let mut garbage = Vec::new();
        let mut failure = match self.access {
            Access::Write => self.tree.note_read(read).err(),
            Access::Read => None,
        };
        for one in closed {
            match self.close(one) {
                Ok(true) => garbage.push(one.number),
                Ok(false) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match self.access {
            // A session for reading deletes nothing, and an answer with a failure has nothing else.
            Access::Write if failure.is_none() => {
                // A session for writing may still only want to read, as an export does.
                if closed.iter().any(|one| one.is_for_writing) {
                    garbage.extend(self.tree.claims.take_discarded());
                }
            }
            _ => self.tree.claims.note_discarded(&std::mem::take(&mut garbage)),
        }
        self.closes.end(id, &garbage);
        failure.map_or(Ok(Reply::Numbers(garbage)), Err)
    }

    /// Whether the object of what was closed is to be deleted.
    fn close(&self, closed: &Closed) -> Result<bool> {
        let Closed { number, is_for_writing, left } = *closed;
        let was_for_writing = self.note_closed(number, is_for_writing)?;
        // A client that had it open for reading has nothing to report of its object.
        let left = if was_for_writing { left } else { Left::Unknown };
        self.tree.close_node(Some(self.id), number, 1, was_for_writing.into(), left)
    }

    /// Notes that something is open here once less; whether that was for writing.
    fn note_closed(&self, number: u64, is_for_writing: bool) -> Result<bool> {
        let mut open = lock(&self.open);
        let Some((opens, writers)) = open.get_mut(&number) else {
            return Err(Errno::BADF.into());
        };
        *opens -= 1;
        let was_for_writing = is_for_writing && *writers > 0;
        *writers -= u64::from(was_for_writing);
        if *opens == 0 {
            open.remove(&number);
            self.tree.read_delegations.give_back(self.id, number);
        }
        Ok(was_for_writing)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.tree.locks.leave(self.id);
        self.tree.read_delegations.leave(self.id);
        self.tree.list_delegations.leave(self.id);
        self.tree.claims.note_discarded(&self.closes.unheard());
        for (number, (opens, writers)) in lock(&self.open).drain() {
            match self.tree.close_node(None, number, opens, writers, Left::Unknown) {
                Ok(true) => self.tree.claims.note_discarded(&[number]),
                Ok(false) => {}
                // What cannot be closed now is found without a user later.
                Err(failure) => {
                    tracing::warn!(node = number, %failure, "cannot close what a client had open");
                }
            }
        }
    }
}

impl Metadata for Session {
    fn call(&self, request: &Request<'_>) -> Result<Reply> {
        if self.access == Access::Read && is_change(request) {
            return Err(Errno::ROFS.into());
        }
        self.wait_for_others(request);
        self.wait_to_look(request);
        self.wait_for_readers(request);
        self.wait_for_readers_by_name(request);
        let ended = self.carry_out(request);
        self.wait_for_readers(request);
        // A client that gets the answer that a name is gone is not to find others that open the file by it.
        if let Ok(Reply::Gone { number, .. }) = &ended {
            self.wait_for_users_of(*number);
        }
        ended
    }

    fn forgotten(&self, number: u64) {
        self.tree.unlinked.forget(self.id, number);
    }
}

/// The directories in a directory.
fn directories_of(listed: &ListedAhead, order: Order) -> Vec<u64> {
    let mut entries: Vec<_> =
        listed.entries.iter().filter(|entry| entry.kind.is_directory()).collect();
    if order == Order::Names {
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    }
    entries.into_iter().map(|entry| entry.number).collect()
}

/// The directories in which a request changes names.
fn changed_by(request: &Request<'_>) -> [Option<u64>; 2] {
    match request {
        // Without a name it changes none.
        Request::Make { name: [], .. } => [None; 2],
        Request::Make { directory, .. }
        | Request::MakeNumbered { directory, .. }
        | Request::Link { directory, .. }
        | Request::Remove { directory, .. }
        | Request::RemoveNumbered { directory, .. } => [Some(*directory), None],
        Request::Rename { from_directory, to_directory, .. } => {
            [Some(*from_directory), Some(*to_directory)]
        }
        _ => [None; 2],
    }
}

/// Whether a request is one for writing: by itself, whatever its frame had of it.
fn is_change(request: &Request<'_>) -> bool {
    let opens = matches!(request, Request::Open { is_for_writing: true, .. });
    opens || request.is_claim() || request.effect() == Effect::Change
}

impl Session {
    fn carry_out(&self, request: &Request<'_>) -> Result<Reply> {
        let tree = &*self.tree;
        tree.discard_unclaimed();
        tree.unlinked.expire(|| tree.clock.passed_ns());
        match request {
            Request::Lookup { directory, name } => self.lookup(*directory, name),
            Request::Node { number } => tree.node(*number).map(Reply::Node),
            Request::Change { number, changes } => tree.change_node(*number, changes),
            Request::Make { directory, name, made } => self.make(*directory, name, made, None),
            Request::MakeNumbered { directory, name, made, number, content } => {
                // A client that asks again in one life, because it got no answer, has it open once.
                let is_open = lock(&self.open).contains_key(number);
                let numbered = Numbered { number: *number, content, is_open };
                self.make(*directory, name, made, Some(numbered))
            }
            Request::Numbers { count } => tree.give_numbers(*count).map(Reply::Numbers),
            Request::Link { number, directory, name } => {
                tree.link(*number, *directory, name).map(Reply::Node)
            }
            Request::Remove { directory, name, is_directory } => {
                self.remove(*directory, name, *is_directory)
            }
            Request::RemoveNumbered { directory, removed, changed } => {
                self.remove_numbered(*directory, removed, *changed)
            }
            Request::Rename { from_directory, from, to_directory, to, how, user, group } => {
                let from = Spot { directory: *from_directory, name: from };
                let to = Spot { directory: *to_directory, name: to };
                tree.rename(self.id, from, to, *how, (*user, *group))
            }
            Request::List { directory, after, max, with_nodes } => {
                tree.list(*directory, *after, *max, *with_nodes).map(Reply::Listing)
            }
            Request::Target { number } => tree.target(*number).map(Reply::Bytes),
            Request::Xattr { number, name } => tree.xattr(*number, name).map(Reply::Bytes),
            Request::Xattrs { number } => tree.xattrs(*number).map(Reply::Bytes),
            Request::SetXattr { number, name, value, how, clears_set_group } => {
                tree.set_xattr(*number, name, value, *how, *clears_set_group)
            }
            Request::RemoveXattr { number, name } => tree.remove_xattr(*number, name),
            Request::Mark { number, marks } => {
                tree.mark(*number, &|of_node| of_node.clone_from(marks))
            }
            Request::MarkOne { number, marking } => {
                tree.mark(*number, &|of_node| of_node.set(marking))
            }
            Request::Open { number, is_for_writing } => {
                let reply = tree.open_node(self.id, *number, *is_for_writing)?;
                self.note_open(*number, *is_for_writing);
                Ok(reply)
            }
            Request::OpenAhead { numbers, grant, is_first } => {
                self.open_ahead(numbers, (*grant, *is_first))
            }
            Request::RenewAhead { grant } => {
                let is_said = || tree.delegations.may_be_said(&tree.clock, self.id);
                match tree.read_delegations.renew(&tree.clock, self.id, *grant, is_said) {
                    true => Ok(Reply::Done),
                    false => Ok(Reply::NotHere),
                }
            }
            Request::ListAhead { directories, below, count, max, grant } => {
                self.list_ahead(directories, *below, (*count, *max), *grant)
            }
            Request::Content { number } => tree.content(*number),
            Request::Close { closed, read, id, acknowledged } => {
                self.close_all(closed, read, (*id, *acknowledged))
            }
            Request::Settle { number, settled } => tree.settle(*number, settled),
            Request::Write { number, offset, data, at_end, clears_set_id } => {
                let written = Written {
                    offset: *offset,
                    data,
                    at_end: *at_end,
                    clears_set_id: *clears_set_id,
                };
                tree.write(*number, &written)
            }
            Request::MoveOut { number, size, content, object_modified_ns } => {
                let moved = Moved { size: *size, content, modified_ns: *object_modified_ns };
                tree.move_out(self.id, *number, &moved)
            }
            Request::NoteObject { number } => tree.note_object(self.id, *number),
            Request::Lock { number, owner, is_flock, locked } => {
                let owner = LockOwner { session: self.id, number: *owner };
                tree.set_lock(*number, *is_flock, owner, locked).map(|()| Reply::Done)
            }
            Request::FindLock { number, owner, is_flock, range } => {
                let owner = LockOwner { session: self.id, number: *owner };
                Ok(Reply::InTheWay(tree.locks.find(*number, *is_flock, owner, range)))
            }
            Request::Reserve { count } => tree.reserve(*count).map(Reply::Numbers),
            Request::Garbage { max } => tree.garbage(*max).map(Reply::Numbers),
            Request::Collected { numbers } => tree.collected(numbers).map(|()| Reply::Done),
            Request::Sync => tree.sync().map(|()| Reply::Done),
        }
    }
}
