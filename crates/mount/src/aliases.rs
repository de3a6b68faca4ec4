// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several node ids for one directory, for a kernel that cannot move the dentry of a directory.
//!
//! A directory has one dentry at most. Where a lookup returns a directory whose dentry is below another
//! parent, because another client has moved it, the kernel moves the dentry (`d_splice_alias` in
//! fs/dcache.c). For that it tries to lock the former parent and the renames of the whole mount. It does
//! not get these locks while the lookup is part of a rename between two directories, or beside one: the
//! lookup then fails with `ESTALE`. The kernel repeats a system call with `ESTALE` once, so that one
//! thread looks up the same name twice in a row. The second answer has another node id for the same
//! directory: for the kernel that is another inode, without a dentry to move. A lookup in a directory
//! that the kernel takes to be below the one found fails with `ELOOP`, and is not repeated; it gets
//! another id at once.
//!
//! An id is the number of the directory, and a count of its ids in the upper bits. So the number follows
//! from the id alone, also in a file handle that a program kept. What is noted here only decides which id
//! is in an answer.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bits of an id that are the number of its directory. Numbers count from 1 and are not given twice.
const NUMBER_BITS: u32 = 48;

/// Counts of ids; after the last one comes the first again.
const COUNTS: u64 = 1 << 15;

/// Directories of which is noted where the kernel has them; the kernel's own inode is larger.
const DENTRIES_MAX: usize = 1 << 17;

/// Threads with lookups of which is not known whether they failed, and such lookups of one of them.
const THREADS_MAX: usize = 1 << 10;
const LOOKUPS_MAX: usize = 64;

/// Parents that are looked at to find whether one directory is above another.
const DEPTH_MAX: usize = 1 << 12;

/// The number of the inode that a node id stands for.
pub(crate) fn number_of(id: u64) -> u64 {
    id & ((1 << NUMBER_BITS) - 1)
}

/// The node ids of directories that the kernel knows, and where it has their dentries.
#[derive(Default)]
pub(crate) struct DirectoryAliases {
    state: Mutex<State>,
    /// Threads in `state.lookups`.
    threads: AtomicUsize,
    hasher: RandomState,
}

#[derive(Default)]
struct State {
    /// By node id.
    dentries: HashMap<u64, Dentry>,
    /// The reverse.
    ids: HashMap<Spot, u64>,
    /// The ids of a directory besides its number, by its number; the newest last.
    aliases: HashMap<u64, Vec<u64>>,
    /// Whether dentries of directories were dropped that the kernel may know.
    has_dropped: bool,
    count: u64,
    lookups: HashMap<u32, Lookups>,
}

/// A name in a directory: the node id of that, and a hash of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Spot {
    parent: u64,
    name: u64,
}

/// Where the kernel has a directory.
struct Dentry {
    spot: Spot,
    /// Whether it is nowhere else: not while it may have failed to move it there.
    is_certain: bool,
    /// Answers with the id, less those that the kernel forgot.
    answers: u64,
}

/// Lookups of one thread that may have failed in the kernel.
#[derive(Default)]
struct Lookups {
    answered: VecDeque<(Spot, u64)>,
    /// Whether one was repeated: the kernel does that once.
    is_repeat: bool,
}

impl DirectoryAliases {
    /// The node id with which a lookup of a name by a thread is answered, where it finds a directory.
    pub(crate) fn look_up(&self, thread: u32, parent: u64, name: &[u8], number: u64) -> u64 {
        let spot = self.spot(parent, name);
        let mut state = self.state();
        // Lookups for a file handle: the kernel moves no dentry for them.
        let special = match name {
            b"." => Some(parent),
            b".." => Some(state.newest(number)),
            _ => None,
        };
        if let Some(id) = special {
            state.count_answer(id);
            return id;
        }
        let mut id = state.id_for(number, spot);
        let is_certain = state.is_movable(id, spot);
        if is_certain || thread == 0 {
            state.put(id, spot, is_certain);
            return id;
        }
        let is_loop = state.is_above(id, parent);
        let lookups = state.lookups_of(thread);
        let is_repeat = lookups.is_repeat || lookups.answered.contains(&(spot, id));
        if is_repeat || is_loop {
            lookups.is_repeat = is_repeat;
            id = state.add_alias(number);
        } else {
            if lookups.answered.len() == LOOKUPS_MAX {
                lookups.answered.pop_front();
            }
            lookups.answered.push_back((spot, id));
        }
        state.put(id, spot, is_repeat || is_loop);
        self.threads.store(state.lookups.len(), Ordering::Release);
        id
    }

    /// The node id of a directory in a listing; `None` where the kernel would have to move its dentry.
    pub(crate) fn list(&self, parent: u64, name: &[u8], number: u64) -> Option<u64> {
        let spot = self.spot(parent, name);
        let mut state = self.state();
        let id = state.id_for(number, spot);
        if !state.is_movable(id, spot) {
            return None;
        }
        state.put(id, spot, true);
        Some(id)
    }

    /// Notes that a directory was made.
    pub(crate) fn make(&self, parent: u64, name: &[u8], number: u64) {
        let spot = self.spot(parent, name);
        self.state().put(number, spot, true);
    }

    /// Notes that a name was moved, before the kernel moves its dentry.
    pub(crate) fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), exchanges: bool) {
        let [from, to] = [from, to].map(|(parent, name)| self.spot(parent, name));
        let mut state = self.state();
        let (moved, other) = (state.ids.remove(&from), state.ids.remove(&to));
        if let Some(id) = moved {
            state.move_to(id, to);
        }
        if let Some(id) = other.filter(|_| exchanges) {
            state.move_to(id, from);
        }
    }

    /// Notes a request of a thread. One that concerns what a lookup found shows that the lookup did not
    /// fail; so does one that is no part of a lookup.
    pub(crate) fn note_request(&self, thread: u32, id: u64, is_lookup: bool) {
        if self.threads.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut state = self.state();
        let State { lookups, dentries, .. } = &mut *state;
        let Some(of_thread) = lookups.get(&thread) else { return };
        let found = of_thread.answered.iter().find(|(_, found)| *found == id);
        if let Some((spot, _)) = found
            && let Some(dentry) = dentries.get_mut(&id)
            && dentry.spot == *spot
        {
            dentry.is_certain = true;
        }
        if found.is_some() || !is_lookup {
            lookups.remove(&thread);
            self.threads.store(lookups.len(), Ordering::Release);
        }
    }

    /// Notes that the kernel forgets so many answers with a node id; whether it knows another id of the same
    /// directory.
    pub(crate) fn forget(&self, id: u64, answers: u64) -> bool {
        let mut state = self.state();
        state.forget(id, answers);
        let number = number_of(id);
        let other = |other: &u64| *other != id;
        state.aliases.get(&number).is_some_and(|aliases| aliases.iter().any(other))
            || other(&number) && state.dentries.contains_key(&number)
    }

    fn spot(&self, parent: u64, name: &[u8]) -> Spot {
        Spot { parent, name: self.hasher.hash_one(name) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It decides about ids alone, all of which lead to the same directory.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The id that the kernel has at a spot, or else the newest one.
    fn id_for(&self, number: u64, spot: Spot) -> u64 {
        let is_there = |id: &u64| self.dentries.get(id).is_some_and(|dentry| dentry.spot == spot);
        let aliases = self.aliases.get(&number).into_iter().flatten().rev();
        let there = aliases.copied().chain([number]).find(is_there);
        there.unwrap_or_else(|| self.newest(number))
    }

    fn newest(&self, number: u64) -> u64 {
        self.aliases.get(&number).and_then(|aliases| aliases.last().copied()).unwrap_or(number)
    }

    /// Whether the kernel has a directory at a spot, or moves it there without a lock.
    fn is_movable(&self, id: u64, spot: Spot) -> bool {
        match self.dentries.get(&id) {
            Some(dentry) => dentry.is_certain && dentry.spot.parent == spot.parent,
            None => !self.has_dropped,
        }
    }

    /// Whether the kernel has a directory above another, or takes both for the same.
    fn is_above(&self, id: u64, below: u64) -> bool {
        let parent_of = |id: &u64| self.dentries.get(id).map(|dentry| dentry.spot.parent);
        std::iter::successors(Some(below), parent_of).take(DEPTH_MAX).any(|parent| parent == id)
    }

    fn count_answer(&mut self, id: u64) {
        if let Some(dentry) = self.dentries.get_mut(&id) {
            dentry.answers += 1;
        }
    }

    fn forget(&mut self, id: u64, answers: u64) {
        if let Some(dentry) = self.dentries.get_mut(&id) {
            dentry.answers = dentry.answers.saturating_sub(answers);
            if dentry.answers > 0 {
                return;
            }
            let spot = dentry.spot;
            self.dentries.remove(&id);
            if self.ids.get(&spot) == Some(&id) {
                self.ids.remove(&spot);
            }
        }
        let number = number_of(id);
        if let Some(aliases) = self.aliases.get_mut(&number) {
            aliases.retain(|alias| *alias != id);
            if aliases.is_empty() {
                self.aliases.remove(&number);
            }
        }
    }

    fn lookups_of(&mut self, thread: u32) -> &mut Lookups {
        if self.lookups.len() >= THREADS_MAX && !self.lookups.contains_key(&thread) {
            self.lookups.clear();
        }
        self.lookups.entry(thread).or_default()
    }

    fn add_alias(&mut self, number: u64) -> u64 {
        self.count = self.count % (COUNTS - 1) + 1;
        let id = self.count << NUMBER_BITS | number;
        let aliases = self.aliases.entry(number).or_default();
        aliases.retain(|alias| *alias != id);
        aliases.push(id);
        id
    }

    /// Notes an answer with an id at a spot.
    fn put(&mut self, id: u64, spot: Spot, is_certain: bool) {
        if self.dentries.len() >= DENTRIES_MAX && !self.dentries.contains_key(&id) {
            (self.dentries, self.ids) = Default::default();
            self.has_dropped = true;
        }
        let new = Dentry { spot, is_certain, answers: 0 };
        let dentry = self.dentries.entry(id).or_insert(new);
        let before = dentry.spot;
        (dentry.spot, dentry.is_certain) = (spot, is_certain);
        dentry.answers += 1;
        self.replace(before, id, spot);
    }

    /// Notes that the kernel moves an id to a spot.
    fn move_to(&mut self, id: u64, spot: Spot) {
        let Some(dentry) = self.dentries.get_mut(&id) else { return };
        let before = dentry.spot;
        (dentry.spot, dentry.is_certain) = (spot, true);
        self.replace(before, id, spot);
    }

    fn replace(&mut self, before: Spot, id: u64, spot: Spot) {
        if before != spot && self.ids.get(&before) == Some(&id) {
            self.ids.remove(&before);
        }
        self.ids.insert(spot, id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: u64 = 1;
    const NUMBER: u64 = 7;
    const FROM: u64 = 2;
    const TO: u64 = 3;
    const THIRD: u64 = 4;

    fn known() -> DirectoryAliases {
        let aliases = DirectoryAliases::default();
        for parent in [FROM, TO, THIRD] {
            aliases.make(ROOT, &parent.to_le_bytes(), parent);
        }
        aliases.make(FROM, b"a", NUMBER);
        aliases
    }

    #[test]
    fn a_directory_that_stays_keeps_its_id() {
        let aliases = known();
        for _ in 0..3 {
            assert_eq!(aliases.look_up(9, FROM, b"a", NUMBER), NUMBER);
            assert_eq!(aliases.look_up(9, FROM, b"b", NUMBER), NUMBER, "below the same parent");
            assert_eq!(aliases.list(FROM, b"a", NUMBER), Some(NUMBER));
        }
    }

    #[test]
    fn a_repeated_lookup_of_a_moved_directory_gets_another_id() {
        let aliases = known();
        assert_eq!(aliases.list(TO, b"a", NUMBER), None);
        assert_eq!(aliases.look_up(9, TO, b"a", NUMBER), NUMBER);
        aliases.note_request(9, ROOT, true);
        assert_eq!(aliases.look_up(8, TO, b"a", NUMBER), NUMBER, "another thread");
        let alias = aliases.look_up(9, TO, b"a", NUMBER);
        assert_ne!(alias, NUMBER);
        assert_eq!(number_of(alias), NUMBER);
        for thread in [8, 9] {
            assert_eq!(aliases.look_up(thread, TO, b"a", NUMBER), alias);
        }
        assert_eq!(aliases.list(TO, b"a", NUMBER), Some(alias));
        // Moved back: any id of the directory will do.
        assert_eq!(number_of(aliases.look_up(8, FROM, b"a", NUMBER)), NUMBER);
    }

    #[test]
    fn the_repetition_of_one_lookup_counts_for_the_others_of_its_call() {
        let aliases = known();
        aliases.make(FROM, b"b", 8);
        assert_eq!(aliases.look_up(9, TO, b"a", NUMBER), NUMBER);
        assert_ne!(aliases.look_up(9, TO, b"a", NUMBER), NUMBER);
        assert_ne!(aliases.look_up(9, THIRD, b"b", 8), 8);
        aliases.note_request(9, TO, false);
        aliases.make(FROM, b"c", 10);
        assert_eq!(aliases.look_up(9, THIRD, b"c", 10), 10, "another call");
    }

    #[test]
    fn a_directory_that_is_used_was_moved_by_the_kernel() {
        let aliases = known();
        assert_eq!(aliases.look_up(9, TO, b"a", NUMBER), NUMBER);
        aliases.note_request(9, NUMBER, true);
        assert_eq!(aliases.look_up(9, TO, b"a", NUMBER), NUMBER);
        assert_eq!(aliases.look_up(9, TO, b"a", NUMBER), NUMBER);
    }

    #[test]
    fn what_this_kernel_moved_keeps_its_id() {
        let aliases = known();
        aliases.make(TO, b"b", 8);
        aliases.rename((FROM, b"a"), (TO, b"b"), true);
        for _ in 0..2 {
            assert_eq!(aliases.look_up(9, TO, b"b", NUMBER), NUMBER);
            assert_eq!(aliases.look_up(9, FROM, b"a", 8), 8);
        }
        aliases.rename((TO, b"b"), (THIRD, b"c"), false);
        for _ in 0..2 {
            assert_eq!(aliases.look_up(9, THIRD, b"c", NUMBER), NUMBER);
        }
    }

    #[test]
    fn a_directory_found_below_itself_gets_another_id_at_once() {
        let aliases = known();
        aliases.make(NUMBER, b"below", 8);
        assert_ne!(aliases.look_up(9, 8, b"a", NUMBER), NUMBER);
    }

    #[test]
    fn ids_are_forgotten_with_their_last_answer() {
        let aliases = known();
        aliases.look_up(9, TO, b"a", NUMBER);
        let alias = aliases.look_up(9, TO, b"a", NUMBER);
        assert_eq!(aliases.look_up(8, TO, b"a", NUMBER), alias);
        aliases.forget(alias, 1);
        assert_eq!(aliases.look_up(8, TO, b"a", NUMBER), alias);
        assert!(aliases.forget(alias, 2), "the kernel knows the first id");
        assert!(!aliases.forget(NUMBER, 2));
        assert_eq!(aliases.look_up(8, TO, b"a", NUMBER), NUMBER);
        aliases.forget(NUMBER, 1);
        for parent in [FROM, TO, THIRD] {
            aliases.forget(parent, 1);
        }
        let state = aliases.state();
        assert!(state.dentries.is_empty() && state.ids.is_empty() && state.aliases.is_empty());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let aliases = known();
        for number in 10..10 + DENTRIES_MAX as u64 {
            aliases.make(FROM, &number.to_le_bytes(), number);
        }
        assert!(aliases.state().dentries.len() <= DENTRIES_MAX);
        // The kernel may have it elsewhere.
        assert_eq!(aliases.look_up(9, TO, b"a", NUMBER), NUMBER);
        assert_ne!(aliases.look_up(9, TO, b"a", NUMBER), NUMBER);
        for thread in 0..2 * THREADS_MAX as u32 {
            for number in 20..22 + LOOKUPS_MAX as u64 {
                aliases.look_up(thread + 1, THIRD, &number.to_le_bytes(), 10 * DENTRIES_MAX as u64);
            }
        }
        let state = aliases.state();
        assert!(state.lookups.len() <= THREADS_MAX);
        assert!(state.lookups.values().all(|lookups| lookups.answered.len() <= LOOKUPS_MAX));
    }
}
