// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks of programs on files: those of `fcntl` on ranges, and those of `flock`.

use std::collections::HashMap;
use std::sync::Mutex;

use rustix::io::Errno;

use crate::failure::Result;
use crate::lock;
use crate::request::{LockKind, LockRange, Locked};

/// Most locks of all files together: what a program can make a server keep is bounded.
const LOCKS_MAX: usize = 1 << 20;

/// The owner of a lock: a user of the metadata, and that user's name for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockOwner {
    /// Which user of the metadata.
    pub session: u64,
    /// Which of its owners.
    pub number: u64,
}

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    owner: LockOwner,
    locked: Locked,
}

impl Held {
    fn is_in_the_way(&self, owner: LockOwner, wanted: &LockRange) -> bool {
        let range = &self.locked.range;
        let overlaps = range.start <= wanted.end && wanted.start <= range.end;
        let excludes = range.kind == LockKind::Write || wanted.kind == LockKind::Write;
        self.owner != owner && overlaps && excludes
    }
}

/// Locks and their owners.
pub struct LockTable {
    locks_max: usize,
    state: Mutex<State>,
}

impl Default for LockTable {
    fn default() -> Self {
        Self { locks_max: LOCKS_MAX, state: Mutex::default() }
    }
}

#[derive(Default)]
struct State {
    /// By node, and whether they are those of `flock`; each owner's beside each other.
    held: HashMap<(u64, bool), Vec<Held>>,
    count: usize,
    /// The same of each user of the metadata that has any.
    counts: HashMap<u64, usize>,
}

impl LockTable {
    /// Takes, changes or gives back a lock.
    ///
    /// # Errors
    ///
    /// `AGAIN` where another is in the way, `NOLCK` where there are too many, or where one user of the
    /// metadata has half of what there may be.
    pub fn set(
        &self,
        number: u64,
        is_flock: bool,
        owner: LockOwner,
        wanted: &Locked,
    ) -> Result<()> {
        let range = &wanted.range;
        if range.start > range.end {
            return Err(Errno::INVAL.into());
        }
        let mut state = lock(&self.state);
        let state = &mut *state;
        let own = state.counts.get(&owner.session).copied().unwrap_or(0);
        if range.kind != LockKind::Unlock {
            let mut held = state.held.get(&(number, is_flock)).into_iter().flatten();
            if held.any(|held| held.is_in_the_way(owner, range)) {
                return Err(Errno::AGAIN.into());
            }
            // Taking one out of the middle of another makes two of it.
            if state.count + 2 > self.locks_max || own + 2 > self.locks_max / 2 {
                return Err(Errno::NOLCK.into());
            }
        }
        let held = state.held.entry((number, is_flock)).or_default();
        let before = held.len();
        take(held, owner, wanted);
        state.count = state.count + held.len() - before;
        match own + held.len() - before {
            0 => drop(state.counts.remove(&owner.session)),
            own => drop(state.counts.insert(owner.session, own)),
        }
        if held.is_empty() {
            state.held.remove(&(number, is_flock));
        }
        Ok(())
    }

    /// The first lock that is in the way of another.
    pub(super) fn find(
        &self,
        number: u64,
        is_flock: bool,
        owner: LockOwner,
        wanted: &LockRange,
    ) -> Option<Locked> {
        let state = lock(&self.state);
        let held = state.held.get(&(number, is_flock))?;
        held.iter().find(|held| held.is_in_the_way(owner, wanted)).map(|held| held.locked)
    }

    /// All whose locks are in the way of another.
    pub fn owners_in_the_way(
        &self,
        number: u64,
        is_flock: bool,
        owner: LockOwner,
        wanted: &LockRange,
    ) -> Vec<LockOwner> {
        let state = lock(&self.state);
        let held = state.held.get(&(number, is_flock)).into_iter().flatten();
        let in_the_way = held.filter(|held| held.is_in_the_way(owner, wanted));
        in_the_way.map(|held| held.owner).collect()
    }

    /// What an owner holds of a range.
    pub fn held_by(
        &self,
        number: u64,
        is_flock: bool,
        owner: LockOwner,
        wanted: &LockRange,
    ) -> Vec<Locked> {
        let state = lock(&self.state);
        let held = state.held.get(&(number, is_flock)).into_iter().flatten();
        let meets = |has: &LockRange| has.start <= wanted.end && wanted.start <= has.end;
        let own = held.filter(|held| held.owner == owner && meets(&held.locked.range));
        own.map(|held| {
            let has = held.locked.range;
            part(held, has.start.max(wanted.start), has.end.min(wanted.end)).locked
        })
        .collect()
    }

    /// Gives everything back that a user of the metadata holds.
    pub(super) fn leave(&self, session: u64) {
        let mut state = lock(&self.state);
        let state = &mut *state;
        state.counts.remove(&session);
        state.held.retain(|_, held| {
            let before = held.len();
            held.retain(|held| held.owner.session != session);
            state.count -= before - held.len();
            !held.is_empty()
        });
    }
}

/// What one owner holds of a file, where another client has returned that it may.
#[derive(Default)]
pub struct OwnLocks(Vec<Held>);

impl OwnLocks {
    const OWNER: LockOwner = LockOwner { session: 0, number: 0 };

    /// Takes note of a lock that was taken, changed or given back.
    pub fn set(&mut self, locked: &Locked) {
        take(&mut self.0, Self::OWNER, locked);
    }

    /// What it holds: ranges that do not meet.
    pub fn iter(&self) -> impl Iterator<Item = Locked> {
        self.0.iter().map(|held| held.locked)
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Takes, changes or gives back what nothing is in the way of.
///
/// What is held is in the order in which Linux keeps it, so that a question for what is in the way of a
/// lock returns the same one as on a native file system: owners in the order in which they took the
/// first lock of those that they hold, and what one of them holds by where it begins.
fn take(held: &mut Vec<Held>, owner: LockOwner, wanted: &Locked) {
    let place = held.iter().position(|held| held.owner == owner).unwrap_or(held.len());
    let count = held[place..].iter().take_while(|held| held.owner == owner).count();
    let mut own = cut_out(&held[place..place + count], &wanted.range);
    if wanted.range.kind != LockKind::Unlock {
        own.push(Held { owner, locked: *wanted });
        own.sort_by_key(|held| held.locked.range.start);
        join(&mut own);
    }
    held.splice(place..place + count, own);
}

/// What is left of what an owner holds without a range.
fn cut_out(held: &[Held], range: &LockRange) -> Vec<Held> {
    let mut left = Vec::with_capacity(held.len() + 2);
    for one in held {
        let has = one.locked.range;
        if has.end < range.start || range.end < has.start {
            left.push(*one);
            continue;
        }
        if has.start < range.start {
            left.push(part(one, has.start, range.start - 1));
        }
        if has.end > range.end {
            left.push(part(one, range.end + 1, has.end));
        }
    }
    left
}

fn part(held: &Held, start: u64, end: u64) -> Held {
    let range = LockRange { start, end, ..held.locked.range };
    Held { locked: Locked { range, ..held.locked }, ..*held }
}

/// Makes one of neighbours of the same kind, so that a program that locks byte after byte holds one.
fn join(own: &mut Vec<Held>) {
    own.dedup_by(|next, last| {
        let (one, two) = (last.locked.range, next.locked.range);
        let touch = one.end.checked_add(1) == Some(two.start);
        let is_joined = one.kind == two.kind && touch;
        if is_joined {
            last.locked.range.end = two.end;
        }
        is_joined
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: LockOwner = LockOwner { session: 1, number: 7 };
    const B: LockOwner = LockOwner { session: 2, number: 7 };

    fn locked(kind: LockKind, start: u64, end: u64) -> Locked {
        Locked { range: LockRange { start, end, kind }, process: 1 }
    }

    fn set(
        locks: &LockTable,
        owner: LockOwner,
        kind: LockKind,
        start: u64,
        end: u64,
    ) -> Option<Errno> {
        locks.set(5, false, owner, &locked(kind, start, end)).err().map(|failure| failure.errno())
    }

    #[test]
    fn readers_share_and_writers_do_not() {
        let locks = LockTable::default();
        assert_eq!(set(&locks, A, LockKind::Read, 0, 9), None);
        assert_eq!(set(&locks, B, LockKind::Read, 5, 20), None);
        assert_eq!(set(&locks, B, LockKind::Write, 5, 20), Some(Errno::AGAIN));
        let found = locks.find(5, false, B, &locked(LockKind::Write, 0, 0).range);
        assert_eq!(found.map(|found| found.range.end), Some(9));
        assert_eq!(set(&locks, A, LockKind::Unlock, 0, 9), None);
        assert_eq!(set(&locks, B, LockKind::Write, 5, 20), None);
    }

    #[test]
    fn a_range_is_taken_out_of_the_middle() {
        let locks = LockTable::default();
        assert_eq!(set(&locks, A, LockKind::Write, 0, 99), None);
        assert_eq!(set(&locks, A, LockKind::Unlock, 40, 59), None);
        assert_eq!(set(&locks, B, LockKind::Write, 40, 59), None);
        assert_eq!(set(&locks, B, LockKind::Write, 39, 39), Some(Errno::AGAIN));
        assert_eq!(set(&locks, B, LockKind::Write, 60, 60), Some(Errno::AGAIN));
        assert_eq!(lock(&locks.state).count, 3);
    }

    #[test]
    fn neighbours_become_one() {
        let locks = LockTable::default();
        for byte in (0..100).rev() {
            assert_eq!(set(&locks, A, LockKind::Write, byte, byte), None);
        }
        assert_eq!(lock(&locks.state).count, 1);
        assert_eq!(set(&locks, A, LockKind::Read, 50, 50), None);
        assert_eq!(lock(&locks.state).count, 3);
    }

    #[test]
    fn the_first_that_is_in_the_way_is_that_of_who_came_first() {
        let locks = LockTable::default();
        let first = || {
            let third = LockOwner { session: 1, number: 1 };
            let range = locked(LockKind::Write, 0, u64::MAX).range;
            locks.find(5, false, third, &range).map(|found| found.range.start)
        };
        assert_eq!(set(&locks, B, LockKind::Write, 50, 59), None);
        assert_eq!(set(&locks, A, LockKind::Write, 100, 109), None);
        assert_eq!(set(&locks, A, LockKind::Write, 10, 19), None);
        assert_eq!(first(), Some(50));
        assert_eq!(set(&locks, B, LockKind::Unlock, 0, 55), None);
        assert_eq!(first(), Some(56));
        assert_eq!(set(&locks, B, LockKind::Unlock, 0, 99), None);
        assert_eq!(first(), Some(10));
        assert_eq!(set(&locks, A, LockKind::Unlock, 12, 15), None);
        assert_eq!(set(&locks, A, LockKind::Unlock, 10, 11), None);
        assert_eq!(first(), Some(16), "what is left behind is not last");
        assert_eq!(set(&locks, B, LockKind::Write, 0, 9), None);
        assert_eq!(first(), Some(16), "who comes again comes last");
    }

    #[test]
    fn who_leaves_holds_nothing() {
        let locks = LockTable::default();
        assert_eq!(set(&locks, A, LockKind::Write, 0, u64::MAX), None);
        assert_eq!(set(&locks, B, LockKind::Write, 0, 0), Some(Errno::AGAIN));
        locks.leave(A.session);
        assert_eq!(set(&locks, B, LockKind::Write, 0, 0), None);
        locks.leave(B.session);
        assert_eq!(lock(&locks.state).count, 0);
        assert!(lock(&locks.state).held.is_empty());
    }

    #[test]
    fn what_is_refused_for_want_of_room_leaves_nothing() {
        let locks = LockTable { locks_max: 8, ..LockTable::default() };
        let mut refused = 0;
        for number in 0..8 {
            let wanted = locked(LockKind::Write, 0, 0);
            let set = locks.set(number, false, A, &wanted).map_err(|failure| failure.errno());
            refused += usize::from(set == Err(Errno::NOLCK));
        }
        assert!(refused > 0);
        assert_eq!(lock(&locks.state).held.len(), 8 - refused);
    }

    #[test]
    fn one_user_leaves_room_to_others() {
        let locks = LockTable { locks_max: 8, ..LockTable::default() };
        for byte in [0, 2, 4] {
            assert_eq!(set(&locks, A, LockKind::Write, byte, byte), None);
        }
        assert_eq!(set(&locks, A, LockKind::Write, 6, 6), Some(Errno::NOLCK), "half of all");
        assert_eq!(set(&locks, B, LockKind::Write, 6, 6), None);
        assert_eq!(set(&locks, A, LockKind::Unlock, 0, 0), None);
        assert_eq!(set(&locks, A, LockKind::Write, 8, 8), None, "it has room again");
        locks.leave(A.session);
        for byte in [0, 2] {
            assert_eq!(set(&locks, A, LockKind::Write, byte, byte), None, "it begins anew");
        }
        let counts: usize = lock(&locks.state).counts.values().sum();
        assert_eq!(counts, lock(&locks.state).count);
    }

    #[test]
    fn kinds_of_locks_do_not_see_each_other() {
        let locks = LockTable::default();
        let whole = locked(LockKind::Write, 0, u64::MAX);
        assert_eq!(locks.set(5, true, A, &whole), Ok(()));
        assert_eq!(locks.set(5, false, B, &whole), Ok(()));
        assert!(locks.set(5, true, B, &whole).is_err());
    }
}
