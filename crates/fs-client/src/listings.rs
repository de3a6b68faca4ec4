// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Directories that are listed together, ahead of who walks a tree.
//!
//! Who lists directories one after the other, in the order of a listing or of their names, gets the next
//! ones with the same request. They are delegated: nobody else is told meanwhile that he has changed a name
//! there. What this client changes itself is known to [`crate::recent`].
//!
//! How many come ahead follows from how many of those before were wanted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use terrace_core::Clock;
use terrace_fs::{
    DELEGATED_FOR, ENTRIES_AHEAD_MAX, LISTED_AHEAD_MAX, Listed, Order, Reply, Request, Result,
};

/// Directories that are remembered, and as those of another one.
const DIRECTORIES_MAX: usize = 1 << 14;

/// Levels of directories that are looked through for those that come next.
const LEVELS_MAX: usize = 64;

/// Where more were fetched than were wanted, so many have to be listed in order before others are.
const IN_ORDER_MIN: u32 = 4;

/// So many may be left out of an order, one after the other: programs have their own idea of what is
/// hidden, and of the order of names.
const LEFT_OUT_MAX: usize = 3;

/// So long nothing is fetched after others changed what was.
const REST: Duration = Duration::from_secs(2);

/// So long before others may change it nothing is used any more: it takes a while until it is.
const MARGIN_NS: u64 = DELEGATED_FOR.as_nanos() as u64 / 8;

/// Such directories.
pub(crate) struct ListingsAhead {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct State {
    walk: Walk,
    /// What was fetched ahead, until the next ones are.
    kept: HashMap<u64, Kept>,
    /// When that was asked for, and what the count of changes was before.
    asked_ns: u64,
    count: u64,
    /// Each is delegated to this client with the last one of these alone.
    grant: u64,
    is_fetching: bool,
    /// How many were fetched ahead the last time, and how many are to be.
    fetched: usize,
    due: usize,
    /// How many of them were changed here before they were wanted.
    useless: usize,
    /// How many are to be listed in order before any is fetched again.
    awaited: u32,
    /// Until then nothing is fetched.
    rest_until_ns: u64,
    /// Whether the server does not know of this.
    is_unknown: bool,
}

/// What was fetched of a directory.
struct Kept {
    entries: Vec<Listed>,
    /// Whether somebody has begun to list it.
    is_begun: bool,
}

/// A way through a tree.
#[derive(Default)]
struct Walk {
    /// The directories in each directory that was listed and has any.
    parents: HashMap<u64, Parent>,
    /// Which one each of these is there.
    places: HashMap<u64, Place>,
    /// How many of both there are.
    count: usize,
    /// The last one that was listed.
    last: Option<u64>,
    order: Order,
    /// Whether what is below a directory is listed before the next one.
    goes_below: bool,
}

/// The directories in a directory.
#[derive(Default)]
struct Parent {
    /// In the order of the listing.
    children: Vec<(Box<[u8]>, u64)>,
    /// Which of these they are in the order of names, and where each of them is there; empty until it is
    /// asked for.
    by_name: Vec<usize>,
    ranks: Vec<usize>,
    /// Behind which position the rest of them may come.
    end: u64,
    /// Which of them was listed last.
    last: Option<usize>,
}

#[derive(Clone, Copy)]
struct Place {
    parent: u64,
    index: usize,
}

/// What is to be fetched.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    /// The one that is wanted now, and others from which those come that are wanted next.
    directories: Vec<u64>,
    below: Option<Order>,
    count: u32,
    grant: u64,
}

/// Entries of a directory, as they were fetched.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) entries: Vec<Listed>,
    /// When they were asked for, and how long ago that is.
    pub(crate) asked_ns: u64,
    pub(crate) age: Duration,
    /// What the count of changes was before.
    pub(crate) count: u64,
}

impl Fetch {
    /// The request for it.
    pub(crate) fn request(&self) -> Request<'static> {
        let Self { below, count, grant, .. } = *self;
        let directories = self.directories.clone();
        Request::ListAhead { directories, below, count, max: ENTRIES_AHEAD_MAX, grant }
    }
}

impl ListingsAhead {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Mutex::default(), clock }
    }

    /// Takes note of which directories there are.
    pub(crate) fn note(&self, request: &Request<'_>, reply: Option<&Reply>) {
        match (request, reply) {
            (Request::List { directory, after, max, .. }, Some(Reply::Listing(entries))) => {
                let is_part = entries.len() >= *max as usize;
                self.state().walk.note(*directory, *after, entries, is_part);
            }
            (_, Some(Reply::ListedAhead(listed))) => {
                let mut state = self.state();
                for one in listed {
                    state.walk.note(one.directory.number, 0, &one.entries, false);
                }
            }
            _ => {}
        }
    }

    /// Entries of a directory behind a position, `max` at most, that were fetched less than `age_max` ago, if
    /// nobody else has changed names there since: once.
    pub(crate) fn take(
        &self,
        directory: u64,
        after: u64,
        max: usize,
        age_max: Duration,
    ) -> Option<Found> {
        let now_ns = self.clock.now_ns();
        let mut state = self.state();
        let age_ns = now_ns.saturating_sub(state.asked_ns);
        let is_over = age_ns + MARGIN_NS >= DELEGATED_FOR.as_nanos() as u64;
        if is_over || Duration::from_nanos(age_ns) >= age_max {
            return None;
        }
        let found = state.give(directory, after, max, now_ns)?;
        if after == 0 {
            state.walk.step(directory);
        }
        Some(found)
    }

    /// Nothing that is kept of a directory is of use: this client has changed it. `is_ahead` where it was
    /// fetched before it was wanted, and nothing of it was given.
    pub(crate) fn note_useless(&self, directory: u64, is_ahead: bool) {
        let mut state = self.state();
        state.kept.remove(&directory);
        state.useless += usize::from(is_ahead);
    }

    /// What is to be fetched for who wants to list a directory of which nothing is kept. `count` is how
    /// many changes there were.
    pub(crate) fn wanted(&self, directory: u64, count: u64) -> Option<Fetch> {
        let now_ns = self.clock.now_ns();
        let mut state = self.state();
        let place = state.walk.step(directory);
        state.awaited = match place {
            Some(_) => state.awaited.saturating_sub(1),
            None if state.awaited > 0 => IN_ORDER_MIN,
            None => 0,
        };
        let is_resting = state.is_unknown || now_ns < state.rest_until_ns;
        let place = place.filter(|_| !state.is_fetching && !is_resting)?;
        state.settle_due();
        let ahead = state.walk.next(place, state.due);
        if ahead.is_empty() && !state.walk.goes_below || state.due == 0 {
            return None;
        }
        // Nothing of these is delegated any more.
        state.kept.clear();
        state.grant += 1;
        (state.is_fetching, state.asked_ns, state.count) = (true, now_ns, count);
        let directories = [directory].into_iter().chain(ahead).collect();
        let below = state.walk.goes_below.then_some(state.walk.order);
        Some(Fetch { directories, below, count: 1 + state.due as u32, grant: state.grant })
    }

    /// What came of it: of the directory that was wanted `max` entries at most, and the others are kept.
    pub(crate) fn fetched(
        &self,
        fetch: &Fetch,
        asked: &Result<Reply>,
        max: usize,
    ) -> Option<Found> {
        let now_ns = self.clock.now_ns();
        let wanted = *fetch.directories.first()?;
        let mut state = self.state();
        state.is_fetching = false;
        let listed = match asked {
            Ok(Reply::ListedAhead(listed)) => listed,
            Ok(_) => {
                state.rest_until_ns = now_ns.saturating_add(REST.as_nanos() as u64);
                return None;
            }
            Err(failure) => {
                state.is_unknown |= failure.errno() == Errno::INVAL;
                return None;
            }
        };
        for one in listed {
            let kept = Kept { entries: one.entries.clone(), is_begun: false };
            state.kept.insert(one.directory.number, kept);
        }
        let found = state.give(wanted, 0, max, now_ns);
        state.fetched = state.unwanted();
        if found.is_none() {
            // It is too long, or another client's.
            state.wait_for_order();
        }
        found
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What is missing in one of the maps is asked for.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Entries that are kept of a directory: from its beginning on once, or where somebody who has begun
    /// goes on.
    fn give(&mut self, directory: u64, after: u64, max: usize, now_ns: u64) -> Option<Found> {
        let kept = self.kept.get_mut(&directory)?;
        let first = match after {
            0 if kept.is_begun => None,
            0 => Some(0),
            _ => kept.entries.iter().position(|it| it.position == after).map(|index| index + 1),
        };
        kept.is_begun = true;
        let Some(first) = first else {
            // Who goes back to the beginning wants what is there now.
            self.kept.remove(&directory);
            return None;
        };
        let entries = kept.entries[first..].iter().take(max).cloned().collect();
        let (asked_ns, count) = (self.asked_ns, self.count);
        let age = Duration::from_nanos(now_ns.saturating_sub(asked_ns));
        Some(Found { entries, asked_ns, age, count })
    }

    /// How many of those that were fetched nobody wanted so far.
    fn unwanted(&self) -> usize {
        self.kept.values().filter(|kept| !kept.is_begun).count()
    }

    /// Fetches nothing until some were listed in order.
    fn wait_for_order(&mut self) {
        (self.due, self.awaited) = (0, IN_ORDER_MIN);
    }

    /// Settles how many are to come ahead, after those that did the last time.
    fn settle_due(&mut self) {
        let fetched = std::mem::take(&mut self.fetched);
        let unwanted = self.unwanted() + std::mem::take(&mut self.useless);
        match (fetched, unwanted) {
            (0, _) => {}
            (_, 0) => self.due = (2 * self.due).min(LISTED_AHEAD_MAX - 1),
            _ => self.due = fetched.saturating_sub(unwanted),
        }
        if self.due == 0 && fetched > 0 {
            self.wait_for_order();
        }
        if self.awaited == 0 {
            self.due = self.due.max(1);
        }
    }
}

impl Walk {
    /// Takes note of the directories in one that was listed, from a position on; `is_part` where more may come.
    fn note(&mut self, directory: u64, after: u64, entries: &[Listed], is_part: bool) {
        if after == 0 {
            self.forget(directory);
        }
        let Some(end) = entries.last().map(|entry| entry.position) else { return };
        let children: Vec<_> = entries.iter().filter(|entry| entry.kind.is_directory()).collect();
        if after == 0 && children.is_empty() && !is_part {
            return;
        }
        if self.count + children.len() >= DIRECTORIES_MAX {
            (self.parents, self.places, self.count) = Default::default();
        }
        let parent = match after {
            0 => {
                self.count += 1;
                self.parents.entry(directory).or_default()
            }
            _ => match self.parents.get_mut(&directory) {
                Some(parent) if parent.end == after => parent,
                _ => return,
            },
        };
        self.count += children.len();
        parent.end = end;
        parent.by_name.clear();
        for child in children {
            let place = Place { parent: directory, index: parent.children.len() };
            parent.children.push((child.name.as_slice().into(), child.number));
            self.places.insert(child.number, place);
        }
    }

    /// Forgets what is in a directory, and what is below that.
    fn forget(&mut self, directory: u64) {
        let mut left = vec![directory];
        while let Some(directory) = left.pop() {
            let Some(parent) = self.parents.remove(&directory) else { continue };
            self.count -= 1 + parent.children.len();
            for (_, number) in parent.children {
                // It may be elsewhere by now.
                if self.places.get(&number).is_some_and(|place| place.parent == directory) {
                    self.places.remove(&number);
                    left.push(number);
                }
            }
        }
    }

    /// Takes note that a directory is listed; where it is, if it comes next in the order of the listing or of
    /// names.
    fn step(&mut self, directory: u64) -> Option<Place> {
        let before = self.last.replace(directory);
        let place = self.places.get(&directory).copied();
        let is_below = place.is_some_and(|place| before == Some(place.parent));
        let has_left_out = |before| {
            let before = self.parents.get(&before);
            before.is_some_and(|it| it.last.is_none() && !it.children.is_empty())
        };
        if is_below || before.is_some_and(has_left_out) {
            self.goes_below = is_below;
        }
        let (order, done) = self.order_to(place?)?;
        self.order = order;
        // Who goes below a directory before the next one does not come back.
        if let Some(done) = done.filter(|_| self.goes_below) {
            self.forget(done);
        }
        place
    }

    /// Takes note that the directory in this place is listed; in which order it comes next there, and which
    /// one came before.
    fn order_to(&mut self, place: Place) -> Option<(Order, Option<u64>)> {
        let parent = self.parents.get_mut(&place.parent)?;
        parent.sort();
        let before = parent.last.replace(place.index);
        let left_out = |order: &Order| {
            let next = before.map_or(0, |before| parent.rank(*order, before) + 1);
            parent.rank(*order, place.index).checked_sub(next).filter(|it| *it <= LEFT_OUT_MAX)
        };
        let orders = [self.order, Order::Listed, Order::Names];
        let near = orders.into_iter().filter_map(|order| Some((left_out(&order)?, order)));
        let (_, order) = near.min_by_key(|(left_out, _)| *left_out)?;
        Some((order, before.map(|before| parent.children[before].1)))
    }

    /// The directories that come behind one, as many at most.
    fn next(&self, mut place: Place, max: usize) -> Vec<u64> {
        let mut found = Vec::new();
        for _ in 0..LEVELS_MAX {
            let Some(parent) = self.parents.get(&place.parent) else { break };
            found.extend(parent.behind(self.order, place.index).take(max - found.len()));
            let above = self.places.get(&place.parent).filter(|_| self.goes_below);
            match above {
                Some(above) if found.len() < max => place = *above,
                _ => break,
            }
        }
        found
    }
}

impl Parent {
    fn is_sorted(&self) -> bool {
        self.by_name.len() == self.children.len()
    }

    fn sort(&mut self) {
        if self.is_sorted() {
            return;
        }
        self.by_name = (0..self.children.len()).collect();
        self.by_name.sort_unstable_by(|a, b| self.children[*a].0.cmp(&self.children[*b].0));
        self.ranks = vec![0; self.children.len()];
        for (rank, index) in self.by_name.iter().enumerate() {
            self.ranks[*index] = rank;
        }
    }

    /// The how many-th one it is in an order.
    fn rank(&self, order: Order, index: usize) -> usize {
        match order {
            Order::Listed => index,
            Order::Names => self.ranks[index],
        }
    }

    /// Those behind one in an order; none where that is not known.
    fn behind(&self, order: Order, index: usize) -> impl Iterator<Item = u64> {
        let first = if self.is_sorted() { self.rank(order, index) + 1 } else { usize::MAX };
        (first..self.children.len()).map(move |rank| {
            let index = match order {
                Order::Listed => rank,
                Order::Names => self.by_name[rank],
            };
            self.children[index].1
        })
    }
}

#[cfg(test)]
mod tests;
