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
//! The kernel does not report whether a lookup failed. So until a request shows that it succeeded, the
//! dentry may be in each of several places, and a directory counts as above another one if it is above
//! any of them. A request that concerns what was found shows it, unless the repeated call may begin at a
//! descriptor of that: the thread used it before, or looks up the same name once more, although the kernel
//! need not ask for it again that soon. The kernel does ask again for the target of a rename: where that is
//! a directory through which the path of the source led, it gets another id without need. Such a rename
//! fails in any case, for a file with `EISDIR` in place of `ENOTEMPTY`.
//!
//! An id is the number of the directory, and a count of its ids in the upper bits. So the number follows
//! from the id alone, also in a file handle that a program kept. What is noted here only decides which id
//! is in an answer.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace_core::Clock;

/// Bits of an id that are the number of its directory. Numbers count from 1 and are not given twice.
const NUMBER_BITS: u32 = 48;

/// Counts of ids; after the last one comes the first again.
const COUNTS: u64 = 1 << 15;

/// Directories of which is noted where the kernel has them; the kernel's own inode is larger.
const DENTRIES_MAX: usize = 1 << 17;

/// Threads with lookups of which is not known whether they failed, and such lookups of one of them.
const THREADS_MAX: usize = 1 << 10;
const LOOKUPS_MAX: usize = 64;

/// Directories that are looked at to find whether one is above another.
const ABOVE_MAX: usize = 1 << 12;

/// Places where a dentry may be; then its directory gets another id.
const SPOTS_MAX: usize = 8;

/// Slots for the threads that use directories, and the last directories that are noted of one.
const SLOTS: usize = 1 << 8;
const USED_MAX: usize = 32;

/// The number of the inode that a node id stands for.
pub(crate) fn number_of(id: u64) -> u64 {
    id & ((1 << NUMBER_BITS) - 1)
}

/// The node ids of directories that the kernel knows, and where it has their dentries.
pub(crate) struct DirectoryAliases {
    state: Mutex<State>,
    /// Threads in `state.lookups`.
    threads: AtomicUsize,
    /// Directories in `state.aliases`.
    aliased: AtomicUsize,
    used: Used,
    hasher: RandomState,
    clock: Arc<dyn Clock>,
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

/// A place of which nothing is known: no directory has this id.
const UNKNOWN: Spot = Spot { parent: 0, name: 0 };

/// Where the kernel has a directory.
struct Dentry {
    spot: Spot,
    /// Where it may be instead, while the kernel may have failed to move it.
    others: Vec<Spot>,
    /// Answers with the id, less those that the kernel forgot.
    answers: u64,
}

impl Dentry {
    fn spots(&self) -> impl Iterator<Item = &Spot> {
        std::iter::once(&self.spot).chain(&self.others)
    }
}

/// Lookups of one thread that may have failed in the kernel.
#[derive(Default)]
struct Lookups {
    answered: VecDeque<Answered>,
    /// Whether one was repeated: the kernel does that once.
    is_repeat: bool,
}

/// A lookup that was answered.
#[derive(Clone, Copy)]
struct Answered {
    spot: Spot,
    id: u64,
    /// Until when the kernel need not repeat it.
    until_ns: u64,
    /// Whether the thread had used what was found before it looked it up.
    was_used: bool,
    /// Whether a request showed that it succeeded.
    is_shown: bool,
}

/// The directories that threads used since they last did anything but look up names. Of two threads in
/// one slot the last one is noted.
struct Used(Box<[Mutex<UsedByThread>]>);

#[derive(Default)]
struct UsedByThread {
    thread: u32,
    /// The last one at the end.
    ids: VecDeque<u64>,
}

impl Default for Used {
    fn default() -> Self {
        Self((0..SLOTS).map(|_| Mutex::default()).collect())
    }
}

impl Used {
    fn note(&self, thread: u32, id: u64, is_lookup: bool) {
        let mut of_slot = self.slot(thread);
        if of_slot.thread != thread || !is_lookup {
            of_slot.thread = thread;
            of_slot.ids.clear();
        }
        if is_lookup && of_slot.ids.back() != Some(&id) {
            if of_slot.ids.len() == USED_MAX {
                of_slot.ids.pop_front();
            }
            of_slot.ids.push_back(id);
        }
    }

    fn contains(&self, thread: u32, id: u64) -> bool {
        let of_slot = self.slot(thread);
        of_slot.thread == thread && of_slot.ids.contains(&id)
    }

    fn slot(&self, thread: u32) -> MutexGuard<'_, UsedByThread> {
        // Each change is of one thread alone.
        self.0[thread as usize % SLOTS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DirectoryAliases {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            state: Mutex::default(),
            threads: AtomicUsize::new(0),
            aliased: AtomicUsize::new(0),
            used: Used::default(),
            hasher: RandomState::new(),
            clock,
        }
    }

    /// The node id with which a lookup of a name by a thread is answered, where it finds a directory. The
    /// kernel need not repeat it for `timeout`.
    pub(crate) fn look_up(
        &self,
        thread: u32,
        (parent, name): (u64, &[u8]),
        number: u64,
        timeout: Duration,
    ) -> u64 {
        let spot = self.spot(parent, name);
        let until_ns = self.clock.now_ns().saturating_add(timeout.as_nanos() as u64);
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
        if state.is_movable(id, spot) {
            state.put(id, spot, true);
            return id;
        }
        let mut fails = state.is_above(id, parent) || state.is_full(id);
        // Threads outside the PID namespace of the mount have no number.
        if thread != 0 {
            let was_used = self.used.contains(thread, id);
            let lookups = state.lookups_of(thread);
            let is_this = |answered: &Answered| answered.spot == spot && answered.id == id;
            lookups.is_repeat |= lookups.answered.iter().any(is_this);
            fails |= lookups.is_repeat;
            if !fails {
                if lookups.answered.len() == LOOKUPS_MAX {
                    lookups.answered.pop_front();
                }
                let answered = Answered { spot, id, until_ns, was_used, is_shown: false };
                lookups.answered.push_back(answered);
            }
            self.threads.store(state.lookups.len(), Ordering::Release);
        }
        if fails {
            id = state.add_alias(number);
            self.aliased.store(state.aliases.len(), Ordering::Release);
        }
        state.put(id, spot, fails);
        id
    }

    /// Whether the kernel may know a directory by several ids. What it caches for one of them stays when a program
    /// changes the directory by another one.
    pub(crate) fn has_several(&self, number: u64) -> bool {
        self.aliased.load(Ordering::Acquire) > 0 && self.state().aliases.contains_key(&number)
    }

    /// The ids by which the kernel may know a directory that has several; else none.
    pub(crate) fn several(&self, number: u64) -> Vec<u64> {
        match self.has_several(number) {
            true => {
                let state = self.state();
                let aliases = state.aliases.get(&number).into_iter().flatten().copied();
                aliases.chain([number]).collect()
            }
            false => Vec::new(),
        }
    }

    /// Notes that the kernel has no directory under a name: a lookup found nothing, or something else.
    pub(crate) fn look_up_other(&self, parent: u64, name: &[u8]) {
        let spot = self.spot(parent, name);
        self.state().ids.remove(&spot);
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
        self.used.note(thread, id, is_lookup);
        if self.threads.load(Ordering::Acquire) == 0 {
            return;
        }
        let now_ns = self.clock.now_ns();
        let mut state = self.state();
        let Some(mut of_thread) = state.lookups.remove(&thread) else { return };
        let found = of_thread.answered.iter_mut().rev().find(|found| found.id == id);
        if let Some(found) = found.filter(|found| !found.was_used) {
            found.is_shown = true;
        }
        // One that is shown ends no other: a call that is repeated has more names to look up, some of which
        // have failed before, or will, if they moved as well.
        of_thread.answered.retain(|answered| {
            let may_fail = is_lookup && !of_thread.is_repeat && now_ns < answered.until_ns;
            if answered.is_shown && !may_fail {
                state.settle(answered.id, answered.spot);
            }
            if answered.is_shown { may_fail } else { is_lookup }
        });
        if is_lookup && (of_thread.is_repeat || !of_thread.answered.is_empty()) {
            state.lookups.insert(thread, of_thread);
        }
        self.threads.store(state.lookups.len(), Ordering::Release);
    }

    /// Notes that the kernel forgets so many answers with a node id; whether it knows another id of the same
    /// directory.
    pub(crate) fn forget(&self, id: u64, answers: u64) -> bool {
        let mut state = self.state();
        state.forget(id, answers);
        self.aliased.store(state.aliases.len(), Ordering::Release);
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
    /// The id that the kernel has at a spot, or may have there, or else the newest one.
    fn id_for(&self, number: u64, spot: Spot) -> u64 {
        if let Some(id) = self.ids.get(&spot).filter(|id| number_of(**id) == number) {
            return *id;
        }
        let may_be_there = |id: &u64| {
            self.dentries.get(id).is_some_and(|dentry| dentry.spots().any(|one| *one == spot))
        };
        let aliases = self.aliases.get(&number).into_iter().flatten().rev();
        let there = aliases.copied().chain([number]).find(may_be_there);
        there.unwrap_or_else(|| self.newest(number))
    }

    fn newest(&self, number: u64) -> u64 {
        self.aliases.get(&number).and_then(|aliases| aliases.last().copied()).unwrap_or(number)
    }

    /// Whether the kernel has a directory at a spot, or moves it there without a lock.
    fn is_movable(&self, id: u64, spot: Spot) -> bool {
        match self.dentries.get(&id) {
            Some(dentry) => dentry.spots().all(|one| one.parent == spot.parent),
            None => !self.has_dropped,
        }
    }

    /// Whether the kernel may have a directory above another, or takes both for the same.
    fn is_above(&self, id: u64, below: u64) -> bool {
        let (mut seen, mut left) = (HashSet::new(), vec![below]);
        while let Some(one) = left.pop() {
            if one == id || seen.len() == ABOVE_MAX {
                return true;
            }
            if seen.insert(one) {
                let spots = self.dentries.get(&one).into_iter().flat_map(Dentry::spots);
                left.extend(spots.map(|spot| spot.parent));
            }
        }
        false
    }

    fn is_full(&self, id: u64) -> bool {
        self.dentries.get(&id).is_some_and(|dentry| dentry.others.len() + 1 >= SPOTS_MAX)
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
            if let Some(dentry) = self.dentries.remove(&id) {
                self.leave(id, dentry.spots());
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

    /// Notes an answer with an id at a spot; `is_certain` where the kernel then has it there.
    fn put(&mut self, id: u64, spot: Spot, is_certain: bool) {
        if self.dentries.len() >= DENTRIES_MAX && !self.dentries.contains_key(&id) {
            (self.dentries, self.ids) = Default::default();
            self.has_dropped = true;
        }
        let new = || Dentry { spot, others: vec![UNKNOWN], answers: 0 };
        let dentry = self.dentries.entry(id).or_insert_with(new);
        dentry.answers += 1;
        if is_certain {
            self.move_to(id, spot);
            return;
        }
        let before = std::mem::replace(&mut dentry.spot, spot);
        if before != spot {
            dentry.others.retain(|other| *other != spot);
            dentry.others.push(before);
        }
        self.ids.insert(spot, id);
    }

    /// Notes that the kernel moves an id to a spot.
    fn move_to(&mut self, id: u64, spot: Spot) {
        let Some(dentry) = self.dentries.get_mut(&id) else { return };
        let mut before = std::mem::take(&mut dentry.others);
        before.push(std::mem::replace(&mut dentry.spot, spot));
        self.leave(id, before.iter());
        self.ids.insert(spot, id);
    }

    /// Notes that the kernel has an id at a spot, if it may be there by the last answer.
    fn settle(&mut self, id: u64, spot: Spot) {
        let dentry = self.dentries.get_mut(&id).filter(|dentry| dentry.spot == spot);
        let others = dentry.map(|dentry| std::mem::take(&mut dentry.others)).unwrap_or_default();
        self.leave(id, others.iter());
    }

    /// Notes that the kernel has an id at none of some spots.
    fn leave<'s>(&mut self, id: u64, spots: impl Iterator<Item = &'s Spot>) {
        for spot in spots {
            if self.ids.get(spot) == Some(&id) {
                self.ids.remove(spot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use terrace_testkit::ManualClock;

    use super::*;

    const ROOT: u64 = 1;
    const NUMBER: u64 = 7;
    const FROM: u64 = 2;
    const TO: u64 = 3;
    const THIRD: u64 = 4;

    /// Longer than a call takes.
    const TIMEOUT: Duration = Duration::from_secs(1);

    impl DirectoryAliases {
        /// A lookup that the kernel repeats for each call.
        fn look(&self, thread: u32, parent: u64, name: &[u8], number: u64) -> u64 {
            self.look_up(thread, (parent, name), number, Duration::ZERO)
        }
    }

    fn known() -> DirectoryAliases {
        known_at(Arc::new(ManualClock::new()))
    }

    fn known_at(clock: Arc<ManualClock>) -> DirectoryAliases {
        let aliases = DirectoryAliases::new(clock);
        for parent in [FROM, TO, THIRD] {
            aliases.make(ROOT, &parent.to_le_bytes(), parent);
        }
        aliases.make(FROM, b"a", NUMBER);
        aliases
    }

    #[test]
    fn a_repeated_call_stays_one_when_a_moved_parent_is_used() {
        const PARENT: u64 = 5;
        const TARGET: u64 = 6;
        let aliases = known();
        aliases.make(FROM, b"parent", PARENT);
        aliases.make(FROM, b"target", TARGET);
        // Another client moved the source, the parent of the target, and the target below that.
        assert_eq!(aliases.look(9, THIRD, b"parent", PARENT), PARENT);
        aliases.note_request(9, TO, true);
        assert_eq!(aliases.look(9, TO, b"a", NUMBER), NUMBER, "this fails");
        aliases.note_request(9, THIRD, true);
        let other = aliases.look(9, THIRD, b"parent", PARENT);
        assert_ne!(other, PARENT);
        // The kernel drops both, and looks it up anew.
        aliases.forget(other, 1);
        aliases.forget(PARENT, 2);
        aliases.note_request(9, THIRD, true);
        assert_eq!(aliases.look(9, THIRD, b"parent", PARENT), PARENT);
        aliases.note_request(9, TO, true);
        assert_ne!(aliases.look(9, TO, b"a", NUMBER), NUMBER);
        aliases.note_request(9, PARENT, true);
        assert_ne!(aliases.look(9, PARENT, b"target", TARGET), TARGET, "not repeated any more");
    }

    #[test]
    fn a_directory_that_stays_keeps_its_id() {
        let aliases = known();
        for _ in 0..3 {
            assert_eq!(aliases.look(9, FROM, b"a", NUMBER), NUMBER);
            assert_eq!(aliases.look(9, FROM, b"b", NUMBER), NUMBER, "below the same parent");
            assert_eq!(aliases.list(FROM, b"a", NUMBER), Some(NUMBER));
        }
    }

    #[test]
    fn a_repeated_lookup_of_a_moved_directory_gets_another_id() {
        let aliases = known();
        assert_eq!(aliases.list(TO, b"a", NUMBER), None);
        assert_eq!(aliases.look(9, TO, b"a", NUMBER), NUMBER);
        aliases.note_request(9, ROOT, true);
        assert_eq!(aliases.look(8, TO, b"a", NUMBER), NUMBER, "another thread");
        let alias = aliases.look(9, TO, b"a", NUMBER);
        assert_ne!(alias, NUMBER);
        assert_eq!(number_of(alias), NUMBER);
        for thread in [8, 9] {
            assert_eq!(aliases.look(thread, TO, b"a", NUMBER), alias);
        }
        assert_eq!(aliases.list(TO, b"a", NUMBER), Some(alias));
        // Moved back: any id of the directory will do.
        assert_eq!(number_of(aliases.look(8, FROM, b"a", NUMBER)), NUMBER);
    }

    #[test]
    fn the_repetition_of_one_lookup_counts_for_the_others_of_its_call() {
        let aliases = known();
        aliases.make(FROM, b"b", 8);
        assert_eq!(aliases.look(9, TO, b"a", NUMBER), NUMBER);
        assert_ne!(aliases.look(9, TO, b"a", NUMBER), NUMBER);
        assert_ne!(aliases.look(9, THIRD, b"b", 8), 8);
        aliases.note_request(9, TO, false);
        aliases.make(FROM, b"c", 10);
        assert_eq!(aliases.look(9, THIRD, b"c", 10), 10, "another call");
    }

    #[test]
    fn a_directory_that_is_used_was_moved_by_the_kernel() {
        let aliases = known();
        assert_eq!(aliases.look(9, TO, b"a", NUMBER), NUMBER);
        aliases.note_request(9, NUMBER, true);
        assert_eq!(aliases.look(9, TO, b"a", NUMBER), NUMBER);
        assert_eq!(aliases.look(9, TO, b"a", NUMBER), NUMBER);
    }

    #[test]
    fn what_this_kernel_moved_keeps_its_id() {
        let aliases = known();
        aliases.make(TO, b"b", 8);
        aliases.rename((FROM, b"a"), (TO, b"b"), true);
        for _ in 0..2 {
            assert_eq!(aliases.look(9, TO, b"b", NUMBER), NUMBER);
            assert_eq!(aliases.look(9, FROM, b"a", 8), 8);
        }
        aliases.rename((TO, b"b"), (THIRD, b"c"), false);
        for _ in 0..2 {
            assert_eq!(aliases.look(9, THIRD, b"c", NUMBER), NUMBER);
        }
    }

    #[test]
    fn a_directory_found_below_itself_gets_another_id_at_once() {
        let aliases = known();
        aliases.make(NUMBER, b"below", 8);
        assert_ne!(aliases.look(9, 8, b"a", NUMBER), NUMBER);
    }

    #[test]
    fn a_directory_counts_as_above_all_places_where_the_kernel_may_have_it() {
        let aliases = known();
        // The kernel may have failed to move it from below `FROM`.
        assert_eq!(aliases.look(9, TO, b"a", NUMBER), NUMBER);
        // Another client moved that one below it.
        assert_ne!(aliases.look(8, NUMBER, b"from", FROM), FROM);
        let aliases = known();
        assert_eq!(aliases.look(9, TO, b"a", NUMBER), NUMBER);
        aliases.note_request(9, NUMBER, true);
        assert_eq!(aliases.look(8, NUMBER, b"from", FROM), FROM, "it was moved");
    }

    #[test]
    fn a_thread_outside_the_namespace_gets_another_id_for_a_loop() {
        let aliases = known();
        assert_ne!(aliases.look(0, NUMBER, b"from", FROM), FROM);
    }

    #[test]
    fn use_of_a_held_directory_does_not_show_that_it_was_moved() {
        let aliases = known();
        for attempt in 0..2 {
            // The path of the source begins at a descriptor.
            aliases.note_request(9, NUMBER, true);
            aliases.note_request(9, TO, true);
            let found = aliases.look(9, TO, b"a", NUMBER);
            assert_eq!(found == NUMBER, attempt == 0);
        }
        let aliases = known();
        aliases.note_request(9, NUMBER, true);
        aliases.note_request(9, NUMBER, false);
        assert_eq!(aliases.look(9, TO, b"a", NUMBER), NUMBER);
        aliases.note_request(9, NUMBER, true);
        assert_eq!(aliases.look(9, TO, b"a", NUMBER), NUMBER, "used by another call");
    }

    #[test]
    fn a_lookup_that_the_kernel_need_not_repeat_has_failed() {
        let clock = Arc::new(ManualClock::new());
        let aliases = known_at(Arc::clone(&clock));
        let look_up = || aliases.look_up(9, (TO, b"a"), NUMBER, TIMEOUT);
        assert_eq!(look_up(), NUMBER);
        // By a descriptor, of which the kernel has all attributes.
        aliases.note_request(9, NUMBER, true);
        assert_ne!(look_up(), NUMBER);
        // It is where it was.
        assert_ne!(aliases.look(8, NUMBER, b"from", FROM), FROM);

        let aliases = known_at(Arc::clone(&clock));
        let look_up = || aliases.look_up(9, (TO, b"a"), NUMBER, TIMEOUT);
        assert_eq!(look_up(), NUMBER);
        aliases.note_request(9, NUMBER, true);
        clock.advance(TIMEOUT);
        aliases.note_request(9, TO, true);
        assert_eq!(look_up(), NUMBER);
        assert_eq!(aliases.look(8, NUMBER, b"from", FROM), FROM);
        assert!(!aliases.state().lookups.contains_key(&9));
    }

    /// The kernel repeats a rename whose last name it could not look up: on the way it finds another directory
    /// that was moved, and uses that one.
    #[test]
    fn a_lookup_that_succeeds_ends_no_other_one() {
        let aliases = known();
        aliases.make(FROM, b"b", 8);
        assert_eq!(aliases.look(9, TO, b"a", NUMBER), NUMBER, "this fails");
        aliases.note_request(9, ROOT, true);
        assert_eq!(aliases.look(9, THIRD, b"b", 8), 8);
        aliases.note_request(9, 8, true);
        aliases.note_request(9, TO, true);
        assert_ne!(aliases.look(9, TO, b"a", NUMBER), NUMBER);
    }

    #[test]
    fn a_file_that_is_moved_leaves_a_directory_of_that_name_where_it_is() {
        let aliases = known();
        aliases.make(NUMBER, b"below", 8);
        // Another client moved the directory, and made a file.
        aliases.look_up_other(FROM, b"a");
        aliases.rename((FROM, b"a"), (TO, b"b"), false);
        assert_ne!(aliases.look(9, 8, b"from", FROM), FROM, "it is above");
    }

    #[test]
    fn a_directory_that_may_be_in_many_places_gets_another_id() {
        let aliases = known();
        let parents: Vec<u64> = (10..12 + SPOTS_MAX as u64).collect();
        for parent in &parents {
            aliases.make(ROOT, &parent.to_le_bytes(), *parent);
        }
        let found = parents.iter().zip(20..);
        let found = found.map(|(parent, thread)| aliases.look(thread, *parent, b"a", NUMBER));
        let found: Vec<_> = found.collect();
        let count = found.iter().filter(|id| **id == NUMBER).count();
        assert_eq!(count, SPOTS_MAX - 1);
        assert!(aliases.state().dentries.values().all(|one| one.others.len() < SPOTS_MAX));
    }

    #[test]
    fn ids_are_forgotten_with_their_last_answer() {
        let aliases = known();
        aliases.look(9, TO, b"a", NUMBER);
        assert!(aliases.several(NUMBER).is_empty());
        let alias = aliases.look(9, TO, b"a", NUMBER);
        assert_eq!(aliases.several(NUMBER), [alias, NUMBER]);
        assert!(aliases.several(FROM).is_empty());
        assert_eq!(aliases.look(8, TO, b"a", NUMBER), alias);
        aliases.forget(alias, 1);
        assert_eq!(aliases.look(8, TO, b"a", NUMBER), alias);
        assert!(aliases.forget(alias, 2), "the kernel knows the first id");
        assert!(!aliases.has_several(NUMBER));
        assert!(!aliases.forget(NUMBER, 2));
        assert_eq!(aliases.look(8, TO, b"a", NUMBER), NUMBER);
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
        assert_eq!(aliases.look(9, TO, b"a", NUMBER), NUMBER);
        assert_ne!(aliases.look(9, TO, b"a", NUMBER), NUMBER);
        for thread in 0..2 * THREADS_MAX as u32 {
            for number in 20..22 + LOOKUPS_MAX as u64 {
                aliases.look(thread + 1, THIRD, &number.to_le_bytes(), 10 * DENTRIES_MAX as u64);
            }
        }
        let state = aliases.state();
        assert!(state.lookups.len() <= THREADS_MAX);
        assert!(state.lookups.values().all(|lookups| lookups.answered.len() <= LOOKUPS_MAX));
    }
}
