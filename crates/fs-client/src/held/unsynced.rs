// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes that no sync has made durable since: a server that ends may lose them, and nobody knows whether
//! it did.
//!
//! A change is noted with the life of the session that it was acknowledged in, before whoever asked for it
//! hears of that. A sync makes durable what was noted before it began, unless something was lost between
//! the life of the change and its own.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use terrace_fs::{Reply, Request};

/// So many nodes are remembered that were changed; before there are more, all of it is synced.
const CHANGED_MAX: usize = 1 << 16;

/// So many nodes are remembered of which nobody was told that something is lost: of more, those are
/// forgotten that were made first.
const LOST_MAX: usize = 1 << 16;

/// Nodes that were changed, or of which something is lost.
#[derive(Default)]
pub(super) struct Unsynced {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    changed: HashMap<u64, Change>,
    /// How many changes were noted.
    changes: u64,
    /// Nodes of which something is lost, and nobody was told.
    lost: BTreeSet<u64>,
    /// Whether something is lost of any, and nobody was told that asked for all.
    is_any_lost: bool,
}

/// The last change of a node.
struct Change {
    /// The life that it was acknowledged in.
    life: u64,
    /// Its number among all changes.
    number: u64,
}

/// When something was answered.
#[derive(Clone, Copy)]
pub(super) struct Answered {
    /// The life of the session.
    pub(super) life: u64,
    /// The first life of which nothing is lost, as is known now.
    pub(super) whole_since: u64,
}

impl Unsynced {
    /// How many changes were noted so far.
    pub(super) fn changes(&self) -> u64 {
        self.state().changes
    }

    /// Whether all is to be synced before anything else is changed.
    pub(super) fn is_full(&self) -> bool {
        self.state().changed.len() >= CHANGED_MAX
    }

    /// Notes what a request has changed.
    pub(super) fn note_change(&self, request: &Request<'_>, reply: &Reply, answered: Answered) {
        for node in changed(request, reply).into_iter().flatten() {
            self.state().note(node, answered);
        }
    }

    /// A sync that began when so many changes were noted has ended.
    pub(super) fn note_sync(&self, changes: u64, answered: Answered) {
        let Answered { life, whole_since } = answered;
        let mut state = self.state();
        let state = &mut *state;
        let mut lost = Vec::new();
        state.changed.retain(|node, change| {
            let is_later = change.number > changes;
            // Where the sync is of the same life, whatever was lost was lost after it.
            if !is_later && change.life < whole_since && change.life != life {
                lost.push(*node);
            }
            is_later
        });
        lost.into_iter().for_each(|node| state.note_lost(node));
    }

    /// Whether something is lost of a node, or of any: told once.
    pub(super) fn take_loss(&self, of: Option<u64>) -> bool {
        let mut state = self.state();
        match of {
            Some(node) => state.lost.remove(&node),
            None => std::mem::take(&mut state.is_any_lost),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nodes come and go one by one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn note(&mut self, node: u64, answered: Answered) {
        let Answered { life, whole_since } = answered;
        if life < whole_since {
            // Others know already that the server has ended.
            return self.note_lost(node);
        }
        self.changes += 1;
        let change = Change { life, number: self.changes };
        let before = self.changed.insert(node, change);
        if before.is_some_and(|before| before.life < whole_since) {
            self.note_lost(node);
        }
    }

    fn note_lost(&mut self, node: u64) {
        self.is_any_lost = true;
        self.lost.insert(node);
        if self.lost.len() > LOST_MAX {
            self.lost.pop_first();
        }
    }
}

/// The nodes that a request has changed, as a program would have it: not when they were read, nor what
/// their objects say by themselves.
fn changed(request: &Request<'_>, reply: &Reply) -> [Option<u64>; 2] {
    match (request, reply) {
        (_, Reply::NotHere) => [None; 2],
        (
            Request::Make { directory, name, .. } | Request::MakeNumbered { directory, name, .. },
            Reply::Made { node, .. },
        ) => [Some(node.number), (!name.is_empty()).then_some(*directory)],
        (Request::Link { number, directory, .. }, _) => [Some(*number), Some(*directory)],
        (Request::Remove { directory, .. } | Request::RemoveNumbered { directory, .. }, _) => {
            [Some(*directory), None]
        }
        (Request::Rename { from_directory, to_directory, .. }, _) => {
            [Some(*from_directory), Some(*to_directory)]
        }
        (
            Request::Change { number, .. }
            | Request::SetXattr { number, .. }
            | Request::RemoveXattr { number, .. }
            | Request::Mark { number, .. }
            | Request::MarkOne { number, .. }
            | Request::Write { number, .. }
            | Request::MoveOut { number, .. },
            _,
        ) => [Some(*number), None],
        _ => [None; 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(number: u64) -> Request<'static> {
        Request::Write { number, offset: 0, data: b"x", at_end: false, clears_set_id: false }
    }

    fn answered(life: u64, whole_since: u64) -> Answered {
        Answered { life, whole_since }
    }

    impl Unsynced {
        fn change(&self, number: u64, answered: Answered) {
            self.note_change(&write(number), &Reply::Done, answered);
        }

        fn sync(&self, answered: Answered) {
            self.note_sync(self.changes(), answered);
        }
    }

    #[test]
    fn a_loss_is_found_by_the_first_sync_of_a_later_life_and_told_once() {
        let unsynced = Unsynced::default();
        unsynced.change(7, answered(1, 1));
        unsynced.change(8, answered(1, 1));
        assert!(!unsynced.take_loss(Some(7)), "nobody has looked");
        unsynced.sync(answered(2, 2));
        for (of, is_lost) in [(7, true), (7, false), (9, false), (8, true)] {
            assert_eq!(unsynced.take_loss(Some(of)), is_lost, "{of}");
        }
        assert!(unsynced.take_loss(None));
        assert!(!unsynced.take_loss(None));
    }

    #[test]
    fn what_was_synced_before_or_in_a_life_that_was_kept_is_not_lost() {
        let unsynced = Unsynced::default();
        unsynced.change(7, answered(1, 1));
        unsynced.sync(answered(1, 1));
        unsynced.sync(answered(2, 2));
        unsynced.change(8, answered(2, 2));
        unsynced.sync(answered(3, 2));
        unsynced.change(9, answered(3, 2));
        // The sync came before the loss that is known by now.
        unsynced.sync(answered(3, 4));
        assert!(!unsynced.take_loss(None));
    }

    #[test]
    fn a_later_change_does_not_hide_that_an_earlier_one_is_lost() {
        let unsynced = Unsynced::default();
        unsynced.change(7, answered(1, 1));
        unsynced.change(7, answered(2, 2));
        unsynced.sync(answered(2, 2));
        assert!(unsynced.take_loss(Some(7)));
        unsynced.change(7, answered(2, 3));
        assert!(
            unsynced.take_loss(Some(7)),
            "it was answered before the end, and heard of behind it"
        );
    }

    #[test]
    fn a_sync_that_began_before_a_change_says_nothing_of_it() {
        let unsynced = Unsynced::default();
        let changes = unsynced.changes();
        unsynced.change(7, answered(1, 1));
        unsynced.note_sync(changes, answered(1, 1));
        unsynced.sync(answered(2, 2));
        assert!(unsynced.take_loss(Some(7)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let unsynced = Unsynced::default();
        for number in 0..CHANGED_MAX as u64 {
            assert!(!unsynced.is_full());
            unsynced.change(number, answered(1, 1));
        }
        assert!(unsynced.is_full());
        unsynced.sync(answered(2, 2));
        assert!(!unsynced.is_full());
        let last = LOST_MAX as u64;
        unsynced.change(last, answered(1, 2));
        assert!(unsynced.take_loss(Some(last)) && !unsynced.take_loss(Some(0)));
        assert!(unsynced.take_loss(Some(1)));
    }
}
