// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Inodes that lost their last name through this mount, and that the kernel has not forgotten.
//!
//! A program may hold one without an open file: as a working directory, by a descriptor with
//! `O_PATH`, or while it walks to a file that is being replaced. The kernel sends `FORGET` when no
//! program does, as a rule right after the unlink. Until then the object of the inode is not
//! deleted, and a request for the inode finds it: it is opened then, and in any case [`HELD_AFTER`]
//! the unlink, so that the metadata keep it as they keep an open file, over restarts of a server
//! and until this client ends.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::{Files, is_gone, unexpected};
use crate::failure::Result;
use crate::lock;
use crate::metadata::Metadata;
use crate::node::Node;
use crate::request::{Closed, Left, Reply, Request};

/// How long after the unlink an inode is opened that the kernel has not forgotten. The metadata keep
/// what was unlinked for minutes. A server that is killed within this time has lost the
/// inode.
pub(crate) const HELD_AFTER: Duration = Duration::from_millis(100);

/// Such inodes.
#[derive(Default)]
pub(super) struct Unlinked {
    /// Whether there is a kernel that says what it forgets.
    is_kept: AtomicBool,
    state: Mutex<State>,
    /// An operation that takes a name away has ended.
    removed: Condvar,
}

/// Bounded by what the kernel remembers.
#[derive(Default)]
struct State {
    known: HashMap<u64, Known>,
    /// Those that are to be looked at, each with the moment, in order. May have some that were forgotten.
    due: VecDeque<(u64, u64)>,
    /// The operations under way that take names away, until what lost its last name is noted.
    removals: BTreeSet<u64>,
    /// The number of the next one.
    next_removal: u64,
    /// Files that were closed for the last time during such operations, which may have taken away their
    /// names without having noted it yet.
    undecided: Vec<Undecided>,
}

/// A file whose object is to be deleted, unless the kernel holds the file.
struct Undecided {
    /// All removals with smaller numbers must have ended.
    after: u64,
    number: u64,
    /// The life of the metadata that queued its object for deletion.
    life: u64,
}

#[derive(Default)]
struct Known {
    /// How often it is open for this.
    opens: u64,
    /// The life of the metadata that queued its object for deletion.
    garbage_life: Option<u64>,
}

/// How an attempt to open an inode ended.
pub(super) enum Hold {
    Held,
    /// It cannot be kept any more, or has another name.
    Gone {
        /// The life of the metadata that queued its object for deletion.
        garbage_life: Option<u64>,
    },
    /// It is open, and the kernel forgot it meanwhile.
    Forgotten,
}

/// What is to be done for an inode that the kernel forgot.
pub(super) struct Forgotten {
    /// How often it is to be closed.
    pub(super) opens: u64,
    /// The life of the metadata that queued its object for deletion.
    pub(super) garbage_life: Option<u64>,
}

impl Unlinked {
    /// Notes that an inode lost a name; whether there was nothing to look at before, or `None` where
    /// nothing is kept.
    fn note(&self, number: u64, garbage_life: Option<u64>, now_ns: u64) -> Option<bool> {
        if !self.is_kept.load(Ordering::Acquire) {
            return None;
        }
        let mut state = lock(&self.state);
        let is_first = state.due.is_empty();
        let is_new = !state.known.contains_key(&number);
        let known = state.known.entry(number).or_default();
        known.garbage_life = known.garbage_life.or(garbage_life);
        if is_new {
            state.due.push_back((now_ns.saturating_add(HELD_AFTER.as_nanos() as u64), number));
        }
        Some(is_first)
    }

    /// Waits until what was taken away before is noted.
    fn wait_for_removals(&self) {
        let state = lock(&self.state);
        let next = state.next_removal;
        let is_under_way = |state: &mut State| state.removals.first().is_some_and(|it| *it < next);
        let waited = self.removed.wait_while(state, is_under_way);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn begin_removal(&self) -> u64 {
        let mut state = lock(&self.state);
        let id = state.next_removal;
        state.next_removal += 1;
        state.removals.insert(id);
        id
    }

    /// Ends a removal; the files that no kernel holds of those that were closed meanwhile.
    fn end_removal(&self, id: u64) -> Vec<Undecided> {
        let mut state = lock(&self.state);
        let State { known, removals, next_removal, undecided, .. } = &mut *state;
        removals.remove(&id);
        let first = removals.first().copied().unwrap_or(*next_removal);
        let decided = undecided.extract_if(.., |one| one.after <= first);
        let mut is_held = |one: &Undecided| {
            let Some(known) = known.get_mut(&one.number) else { return false };
            known.garbage_life = known.garbage_life.or(Some(one.life));
            true
        };
        let gone = decided.filter(|one| !is_held(one)).collect();
        drop(state);
        self.removed.notify_all();
        gone
    }

    /// Whether the kernel may hold an inode without a name.
    pub(super) fn contains(&self, number: u64) -> bool {
        lock(&self.state).known.contains_key(&number)
    }

    /// Keeps the object of a file that was closed for the last time while the kernel holds the file, or
    /// while a removal under way may be that of its name; false where it can be deleted at once.
    pub(super) fn keeps_object(&self, number: u64, life: u64) -> bool {
        let mut state = lock(&self.state);
        if let Some(known) = state.known.get_mut(&number) {
            known.garbage_life = Some(life);
            return true;
        }
        let is_undecided = !state.removals.is_empty();
        if is_undecided {
            let after = state.next_removal;
            state.undecided.push(Undecided { after, number, life });
        }
        is_undecided
    }

    /// Notes that the kernel forgot an inode.
    pub(super) fn forget(&self, number: u64) -> Option<Forgotten> {
        let mut state = lock(&self.state);
        let Known { opens, garbage_life } = state.known.remove(&number)?;
        if state.known.is_empty() {
            state.due.clear();
        }
        Some(Forgotten { opens, garbage_life })
    }

    fn forget_all(&self) -> Vec<(u64, Forgotten)> {
        let numbers: Vec<u64> = lock(&self.state).known.keys().copied().collect();
        let forget = |number| self.forget(number).map(|forgotten| (number, forgotten));
        numbers.into_iter().filter_map(forget).collect()
    }

    /// Whether there is nothing to be looked at.
    pub(super) fn is_idle(&self) -> bool {
        lock(&self.state).due.is_empty()
    }

    /// An inode that the kernel did not forget in time, and that is not open.
    pub(super) fn take_due(&self, now_ns: u64) -> Option<u64> {
        let mut state = lock(&self.state);
        while let Some((at_ns, number)) = state.due.front().copied() {
            if now_ns < at_ns {
                return None;
            }
            state.due.pop_front();
            if state.known.get(&number).is_some_and(|known| known.opens == 0) {
                return Some(number);
            }
        }
        None
    }

    /// Has an inode looked at once more.
    pub(super) fn look_later(&self, number: u64, now_ns: u64) {
        let at_ns = now_ns.saturating_add(HELD_AFTER.as_nanos() as u64);
        lock(&self.state).due.push_back((at_ns, number));
    }

    /// Opens an inode that the kernel has not forgotten, so that the metadata keep it.
    ///
    /// # Errors
    ///
    /// What the metadata say.
    pub(super) fn hold(&self, metadata: &dyn Metadata, number: u64) -> Result<Hold> {
        match lock(&self.state).known.get(&number) {
            None => return Ok(Hold::Gone { garbage_life: None }),
            Some(known) if known.opens > 0 => return Ok(Hold::Held),
            Some(_) => {}
        }
        match metadata.call(&Request::Open { number, is_for_writing: false }) {
            Ok(Reply::Opened { .. }) => {}
            Ok(other) => return Err(unexpected(&other)),
            // Also one that has another name, and is no file.
            Err(failure) if !failure.may_pass() => {
                let garbage_life = self.forget(number).and_then(|forgotten| forgotten.garbage_life);
                return Ok(Hold::Gone { garbage_life });
            }
            Err(failure) => return Err(failure),
        }
        let mut state = lock(&self.state);
        let Some(known) = state.known.get_mut(&number) else { return Ok(Hold::Forgotten) };
        known.opens += 1;
        // The last handle to be closed gets that reply anew.
        known.garbage_life = None;
        Ok(Hold::Held)
    }
}

/// An operation that takes names away; it ends when this is dropped.
pub(super) struct Removal<'a> {
    files: &'a Files,
    id: u64,
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        for Undecided { number, life, .. } in self.files.unlinked.end_removal(self.id) {
            self.files.sweeper.push(number, life);
        }
    }
}

impl Files {
    /// Begins to take names away, until what lost its last name is noted.
    pub(super) fn begin_removal(&self) -> Removal<'_> {
        Removal { files: self, id: self.unlinked.begin_removal() }
    }

    /// Has what loses its last name stay until it is [forgotten](Files::forget): for a kernel that says
    /// so.
    pub fn keep_unlinked(&self) {
        self.unlinked.is_kept.store(true, Ordering::Release);
    }

    /// Whether a number leads to an inode without a name that the kernel may hold.
    pub fn is_unlinked(&self, number: u64) -> bool {
        self.unlinked.contains(number)
    }

    /// Carries out an operation on an inode, which may have lost its last name while the kernel holds it.
    ///
    /// # Errors
    ///
    /// Those of the operation; `STALE` where the inode is gone.
    pub fn on_inode<T>(&self, number: u64, operation: impl Fn() -> Result<T>) -> Result<T> {
        let outcome = operation();
        if !outcome.as_ref().is_err_and(is_gone) {
            return outcome;
        }
        self.unlinked.wait_for_removals();
        match self.closing.hold_unlinked(number)? {
            true => operation(),
            false => outcome,
        }
    }

    /// The last attributes of a directory that another client removed.
    ///
    /// # Errors
    ///
    /// `STALE` where the metadata do not know them any more.
    pub fn removed_directory(&self, number: u64) -> Result<Node> {
        match self.metadata.call(&Request::Open { number, is_for_writing: false })? {
            Reply::Opened { node, .. } => {
                self.close_with_metadata(number, false, Left::Unknown)?;
                Ok(node)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Notes that an inode lost a name; the life of the metadata before, where its object is to be deleted.
    pub(super) fn note_unlinked(&self, number: u64, garbage_life: Option<u64>) {
        match self.unlinked.note(number, garbage_life, self.clock.now_ns()) {
            Some(true) => self.closing.wake(),
            Some(false) => {}
            None => garbage_life.into_iter().for_each(|life| self.sweeper.push(number, life)),
        }
    }

    /// Lets go of an inode that the kernel forgot.
    pub(super) fn forget_unlinked(&self, number: u64) -> Result<()> {
        let forgotten = self.unlinked.forget(number);
        forgotten.map_or(Ok(()), |forgotten| self.let_go_unlinked(number, &forgotten))
    }

    /// Lets go of all.
    pub(super) fn forget_all_unlinked(&self) -> Result<()> {
        let all = self.unlinked.forget_all().into_iter();
        all.map(|(number, forgotten)| self.let_go_unlinked(number, &forgotten))
            .fold(Ok(()), Result::and)
    }

    fn let_go_unlinked(&self, number: u64, forgotten: &Forgotten) -> Result<()> {
        if let Some(life) = forgotten.garbage_life {
            self.sweeper.push(number, life);
        }
        if !self.options.is_alone {
            // No caller waits for it.
            let all = (0..forgotten.opens).map(|_| closed(number));
            self.closing.push(|queued| queued.closed.extend(all));
            return Ok(());
        }
        (0..forgotten.opens)
            .try_for_each(|_| self.close_with_metadata(number, false, Left::Unknown))
    }
}

/// A request to close what was opened so that it is kept.
pub(super) fn closed(number: u64) -> Closed {
    Closed { number, is_for_writing: false, left: Left::Unknown }
}
