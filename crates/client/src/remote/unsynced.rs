// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was changed and not synced since: a server that ends may lose it.
//!
//! What was written is known of an object, not of a handle: a sync covers what was written through
//! all handles that are or were open here. A handle that is opened after a loss was reported does
//! not report that one any more; those that were open before do, and so does the next one where it
//! was not reported yet. Of what was not done to an open object it is only known whether there was
//! any: the next sync of the store reports that it may be lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use terrace_core::Key;

use super::life::Life;
use super::lock;

/// So many objects that are not open are remembered; before there are more, all is synced. Of more
/// with losses, any are forgotten.
const LEFT_MAX: usize = 1 << 16;

/// What was changed on a server.
#[derive(Default)]
pub(super) struct Unsynced {
    objects: Mutex<Objects>,
    /// All that was not done to an open object: what was made and deleted, what batches wrote, pairs.
    pub(super) others: Written,
}

struct Objects {
    /// By their keys, and when they were made, which distinguishes them from others of the same
    /// name: those that are open, and those of which something is to be remembered.
    written: HashMap<(Key, u64), Arc<Written>>,
    /// With so many all is synced.
    max: usize,
    /// How often something was remembered of one that was closed.
    left: u64,
    /// Whether something is lost that no sync of all has reported yet.
    is_any_lost: bool,
}

impl Default for Objects {
    fn default() -> Self {
        Self { written: HashMap::new(), max: LEFT_MAX, left: 0, is_any_lost: false }
    }
}

/// What was written to an object, or to all that is not open.
#[derive(Default)]
pub(super) struct Written(Mutex<State>);

#[derive(Default)]
struct State {
    /// The last life of the session that is known here.
    life: Life,
    /// Whether something was written that no sync was asked for since.
    is_unsynced: bool,
    /// Syncs on their way of what was written before.
    syncs: usize,
    /// Whether a sync failed, of what was not synced since: it may be lost, and no server that comes
    /// later knows.
    has_failed: bool,
    /// How often something was lost.
    losses: u64,
    /// How many of these a sync of the object has reported.
    told: u64,
    /// How many of these a sync of all has reported.
    told_of_all: u64,
    /// When it was closed, as its number among all those of which something was remembered then.
    left: u64,
}

/// A sync that is on its way.
pub(super) struct Begun {
    is_needed: bool,
    losses: u64,
    /// How many losses were reported before.
    pub(super) told: u64,
}

impl Unsynced {
    /// Counts an open; returns how many losses of it were reported before.
    pub(super) fn open(&self, key: &Key, created_ns: u64, life: Life) -> (Arc<Written>, u64) {
        let mut objects = lock(&self.objects);
        let new = || Arc::new(Written(Mutex::new(State::new(life))));
        let written = objects.written.entry((key.clone(), created_ns)).or_insert_with(new);
        let written = Arc::clone(written);
        drop(objects);
        let mut state = lock(&written.0);
        state.find(life);
        let told = state.told;
        drop(state);
        (written, told)
    }

    /// Counts a close.
    pub(super) fn close(&self, key: &Key, created_ns: u64, written: &Arc<Written>) {
        let mut objects = lock(&self.objects);
        let mut state = lock(&written.0);
        // Here and with the handle that is closed: no other holder can find it meanwhile.
        if Arc::strong_count(written) > 2 {
            return;
        }
        if state.is_to_be_remembered() {
            objects.left += 1;
            state.left = objects.left;
            return;
        }
        objects.is_any_lost |= state.losses > state.told_of_all;
        objects.written.remove(&(key.clone(), created_ns));
    }

    /// Whether all is to be synced before anything else is opened.
    pub(super) fn is_full(&self) -> bool {
        let objects = lock(&self.objects);
        objects.written.len() >= objects.max
    }

    /// How often something was remembered so far of one that was closed.
    pub(super) fn begin_sync_of_all(&self) -> u64 {
        lock(&self.objects).left
    }

    /// A sync of all that began then has succeeded, in this life or one before; whether something was
    /// lost since the last one.
    pub(super) fn end_sync_of_all(&self, begun: u64, life: Life) -> bool {
        let mut objects = lock(&self.objects);
        let mut is_any_lost = std::mem::take(&mut objects.is_any_lost);
        let mut left = 0;
        objects.written.retain(|_, written| {
            let is_open = Arc::strong_count(written) > 1;
            let mut state = lock(&written.0);
            state.find(life);
            is_any_lost |= state.losses > state.told_of_all;
            state.told_of_all = state.losses;
            if is_open {
                return true;
            }
            state.is_unsynced &= state.left > begun;
            left += usize::from(state.is_to_be_remembered());
            state.is_to_be_remembered() && left <= LEFT_MAX / 2
        });
        // Those that are open are no reason to sync all the time.
        objects.max = LEFT_MAX.max(2 * objects.written.len());
        is_any_lost
    }
}

impl Written {
    /// A life of the session was found.
    pub(super) fn find(&self, life: Life) {
        lock(&self.0).find(life);
    }

    /// Something was written in a life of the session, or may have been.
    pub(super) fn note(&self, life: Life) {
        let mut state = lock(&self.0);
        state.find(life);
        match life.number < state.life.whole_since {
            // Others know already that the server has ended.
            true => state.losses += 1,
            false => state.is_unsynced = true,
        }
    }

    /// A sync begins: what is written from here on is not synced by it.
    pub(super) fn begin_sync(&self) -> Begun {
        let mut state = lock(&self.0);
        state.syncs += usize::from(state.is_unsynced);
        let is_needed = std::mem::take(&mut state.is_unsynced);
        Begun { is_needed, losses: state.losses, told: state.told }
    }

    /// A sync has ended; whether anything is lost for a handle that was opened after so many
    /// losses.
    pub(super) fn end_sync(&self, begun: &Begun, has_succeeded: bool, known: u64) -> bool {
        let mut state = lock(&self.0);
        state.syncs -= usize::from(begun.is_needed);
        if state.losses == begun.losses {
            state.is_unsynced |= begun.is_needed && !has_succeeded;
        }
        state.has_failed = state.is_unsynced && (state.has_failed || !has_succeeded);
        let is_lost = state.losses > known;
        if is_lost {
            state.told = state.losses;
        }
        is_lost
    }
}

impl State {
    fn new(life: Life) -> Self {
        Self { life, ..Self::default() }
    }

    fn is_to_be_remembered(&self) -> bool {
        self.is_unsynced || self.losses > self.told
    }

    fn find(&mut self, life: Life) {
        if life.number <= self.life.number {
            return;
        }
        // A server that ended in an orderly way made durable what it had; not what failed before.
        let is_kept = self.life.number >= life.whole_since && !self.has_failed;
        // Also where a sync runs just now: whether the server that has ended did it is unknown.
        if !is_kept && (self.is_unsynced || self.syncs > 0) {
            self.losses += 1;
            (self.is_unsynced, self.has_failed) = (false, false);
        }
        self.life = life;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Life = Life { number: 1, whole_since: 1 };
    /// The first one was killed.
    const SECOND: Life = Life { number: 2, whole_since: 2 };
    /// The second one ended in an orderly way.
    const THIRD: Life = Life { number: 3, whole_since: 2 };

    fn key() -> Key {
        Key::new("unsynced", "object").expect("legal")
    }

    /// Whether a sync in a life finds a loss, for a handle that was opened after so many.
    fn is_lost(written: &Written, life: Life, known: u64) -> bool {
        let begun = written.begin_sync();
        written.find(life);
        written.end_sync(&begun, true, known)
    }

    #[test]
    fn all_that_had_it_open_before_somebody_was_told_hear_of_a_loss() {
        let unsynced = Unsynced::default();
        let open = |life| unsynced.open(&key(), 7, life);
        let ((written, first), (_, second)) = (open(FIRST), open(FIRST));
        written.note(FIRST);
        assert!(is_lost(&written, SECOND, first));
        assert!(is_lost(&written, SECOND, first), "it fails until it is closed");
        let (_, third) = open(SECOND);
        assert!(!is_lost(&written, SECOND, third), "others were told before");
        assert!(is_lost(&written, SECOND, second));
    }

    #[test]
    fn what_was_left_unsynced_is_heard_of_by_who_opens_it_next() {
        let unsynced = Unsynced::default();
        let close = |written: Arc<Written>| unsynced.close(&key(), 7, &written);
        let (written, _) = unsynced.open(&key(), 7, FIRST);
        written.note(FIRST);
        close(written);
        let (written, known) = unsynced.open(&key(), 7, SECOND);
        close(written);
        assert!(!is_lost(&unsynced.open(&key(), 8, SECOND).0, SECOND, 0), "another object");
        let (written, known_later) = unsynced.open(&key(), 7, THIRD);
        assert_eq!(known, known_later, "nobody was told");
        assert!(is_lost(&written, THIRD, known));
        written.note(THIRD);
        assert!(!is_lost(&written, THIRD, 1));
        close(written);
        let (written, known) = unsynced.open(&key(), 7, THIRD);
        assert!(!is_lost(&written, THIRD, known));
    }

    #[test]
    fn what_was_written_in_a_life_that_others_know_to_have_ended_is_lost() {
        let unsynced = Unsynced::default();
        let (written, known) = unsynced.open(&key(), 7, FIRST);
        written.find(SECOND);
        written.note(FIRST);
        assert!(is_lost(&written, SECOND, known));
    }

    #[test]
    fn what_a_sync_failed_for_is_lost_with_an_orderly_end() {
        for has_succeeded in [false, true] {
            let unsynced = Unsynced::default();
            let (written, known) = unsynced.open(&key(), 7, SECOND);
            written.note(SECOND);
            let begun = written.begin_sync();
            assert!(!written.end_sync(&begun, has_succeeded, known));
            written.note(SECOND);
            assert_eq!(is_lost(&written, THIRD, known), !has_succeeded);
        }
    }

    #[test]
    fn a_sync_of_all_says_once_that_something_is_lost_and_forgets_what_is_durable() {
        let unsynced = Unsynced::default();
        let sync_all = |life| unsynced.end_sync_of_all(unsynced.begin_sync_of_all(), life);
        let leave = |created_ns, life| {
            let (written, _) = unsynced.open(&key(), created_ns, life);
            written.note(life);
            unsynced.close(&key(), created_ns, &written);
        };
        leave(1, FIRST);
        assert!(!sync_all(FIRST));
        assert!(lock(&unsynced.objects).written.is_empty(), "it is durable");
        leave(2, FIRST);
        assert!(sync_all(SECOND));
        assert!(!sync_all(SECOND), "it was told");
        let (written, known) = unsynced.open(&key(), 2, SECOND);
        assert!(is_lost(&written, SECOND, known), "who syncs the object was not told");
        let begun = unsynced.begin_sync_of_all();
        leave(3, SECOND);
        assert!(!unsynced.end_sync_of_all(begun, SECOND));
        let (written, known) = unsynced.open(&key(), 3, Life { number: 4, whole_since: 4 });
        assert!(written.end_sync(&written.begin_sync(), true, known), "it was written meanwhile");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let unsynced = Unsynced::default();
        let leave = |created_ns, life| {
            let (written, _) = unsynced.open(&key(), created_ns, life);
            written.note(life);
            unsynced.close(&key(), created_ns, &written);
        };
        for created_ns in 0..LEFT_MAX as u64 {
            assert!(!unsynced.is_full());
            leave(created_ns, FIRST);
        }
        assert!(unsynced.is_full());
        assert!(unsynced.end_sync_of_all(unsynced.begin_sync_of_all(), SECOND), "all is lost");
        assert!(!unsynced.is_full());
        assert_eq!(lock(&unsynced.objects).written.len(), LEFT_MAX / 2);
    }
}
