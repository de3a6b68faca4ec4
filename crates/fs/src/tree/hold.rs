// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which nodes are open, and how often.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard};

use crate::lock;

/// So many locks stand between opening a node and taking its last name away.
const STRIPES: usize = 64;

/// What is open of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hold {
    /// How often it is open.
    pub(super) opens: u64,
    /// How often for writing.
    pub(super) writers: u64,
    /// Whether its object is as the node has it, because no client that has it open for writing, or had
    /// since then, has written to it.
    pub(super) is_untouched: bool,
    /// Whether a client that had it open for writing closed it, since it is open, and did not report how it
    /// left its object: what others report of that may be older.
    pub(super) is_in_doubt: bool,
    /// Whether it has no name, so that it goes with the last close.
    pub(super) is_nameless: bool,
    /// Whether it had a name, and lost its last one while it was open: then it gets none any more. Of one
    /// that was open in an earlier life it is unknown.
    pub(super) was_removed: bool,
    /// Whether its object was deleted: then it goes with the last close, also where others may claim it.
    pub(super) is_collected: bool,
}

/// The open nodes. An open, or a removal of a name, locks the stripe of the node meanwhile: so a
/// node that is found is there until it is closed.
pub(super) struct Holds {
    stripes: [Stripe; STRIPES],
}

type Stripe = Mutex<HashMap<u64, Hold>>;

impl Default for Holds {
    fn default() -> Self {
        Self { stripes: std::array::from_fn(|_| Stripe::default()) }
    }
}

impl Holds {
    /// The open nodes that share a lock with `number`.
    pub(super) fn lock(&self, number: u64) -> MutexGuard<'_, HashMap<u64, Hold>> {
        lock(&self.stripes[stripe_of(number)])
    }

    /// The open nodes that share locks with any of these. A thread with one lock waits for no other, so that
    /// a thread with many is not waited for in a circle.
    pub(super) fn lock_all(&self, numbers: impl Iterator<Item = u64>) -> LockedHolds<'_> {
        let stripes: BTreeSet<_> = numbers.map(stripe_of).collect();
        LockedHolds(stripes.into_iter().map(|index| (index, lock(&self.stripes[index]))).collect())
    }

    /// Waits until no lock is held that was held when this began.
    pub(super) fn wait(&self) {
        self.stripes.iter().for_each(|stripe| drop(lock(stripe)));
    }
}

fn stripe_of(number: u64) -> usize {
    number as usize % STRIPES
}

/// The open nodes that share locks with some.
pub(super) struct LockedHolds<'a>(BTreeMap<usize, MutexGuard<'a, HashMap<u64, Hold>>>);

impl LockedHolds<'_> {
    /// Those that share a lock with `number`, one of those that were to be locked.
    pub(super) fn of(&mut self, number: u64) -> &mut HashMap<u64, Hold> {
        self.0.get_mut(&stripe_of(number)).expect("it was locked with the others")
    }
}
