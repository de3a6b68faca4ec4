// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Dense numbers for segments, so that policies keep arrays instead of maps.

use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use terrace_core::Slot;

use crate::hash::Numbers;

/// Gives every live segment a slot and tells its users apart by incarnation.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    table: Mutex<Table>,
}

/// 16 bytes a slot and, in the index, 5 to 11: a map from names to slots would take twice that.
#[derive(Debug, Default)]
struct Table {
    /// The slots that are in use, by the hash of their users.
    index: HashTable<Slot>,
    users: Vec<User>,
    free: Vec<Slot>,
}

/// The segment that has a slot now, or had it last.
#[derive(Clone, Copy, Debug)]
struct User {
    object_low: u32,
    object_high: u32,
    segment: u32,
    /// How often the slot was given out before.
    incarnation: u32,
}

impl User {
    fn new(object_id: u64, segment: u32, incarnation: u32) -> Self {
        let [object_low, object_high] = [object_id as u32, (object_id >> 32) as u32];
        Self { object_low, object_high, segment, incarnation }
    }

    fn name(&self) -> (u64, u32) {
        (u64::from(self.object_high) << 32 | u64::from(self.object_low), self.segment)
    }
}

fn hash(name: (u64, u32)) -> u64 {
    Numbers::default().hash_one(name)
}

impl Slots {
    /// The slot of a segment and its incarnation; a new one for a segment that has none.
    pub(crate) fn assign(&self, object_id: u64, segment: u32) -> (Slot, u32) {
        let mut guard = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let Table { index, users, free } = &mut *guard;
        let name = (object_id, segment);
        let entry = index.entry(
            hash(name),
            |slot| users[*slot as usize].name() == name,
            |slot| hash(users[*slot as usize].name()),
        );
        let vacant = match entry {
            Entry::Occupied(found) => {
                let slot = *found.get();
                return (slot, users[slot as usize].incarnation);
            }
            Entry::Vacant(vacant) => vacant,
        };
        let slot = match free.pop() {
            Some(slot) => {
                let user = &mut users[slot as usize];
                *user = User::new(object_id, segment, user.incarnation + 1);
                slot
            }
            None => {
                let slot = Slot::try_from(users.len()).expect("below 2^32 segments");
                users.push(User::new(object_id, segment, 0));
                slot
            }
        };
        vacant.insert(slot);
        (slot, users[slot as usize].incarnation)
    }

    /// The slot of a segment and its incarnation, where it has one.
    pub(crate) fn find(&self, object_id: u64, segment: u32) -> Option<(Slot, u32)> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (object_id, segment);
        let is_it = |slot: &Slot| table.users[*slot as usize].name() == name;
        let slot = *table.index.find(hash(name), is_it)?;
        Some((slot, table.users[slot as usize].incarnation))
    }

    /// Forgets a segment; its slot is free once [`Slots::recycle`] says so.
    pub(crate) fn release(&self, object_id: u64, segment: u32) {
        let mut guard = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let Table { index, users, .. } = &mut *guard;
        let name = (object_id, segment);
        if let Ok(found) = index.find_entry(hash(name), |slot| users[*slot as usize].name() == name)
        {
            found.remove();
        }
    }

    /// Lets a slot be used again: the policy has seen that its segment is gone.
    pub(crate) fn recycle(&self, slot: Slot) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.free.push(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_keeps_its_slot_and_the_next_user_is_another_incarnation() {
        let slots = Slots::default();
        let wide = 7 << 32;
        let first: Vec<_> = (0..1000).map(|id| slots.assign(wide + id, 0)).collect();
        assert_eq!(first[999], (999, 0));
        assert_eq!(slots.assign(wide + 5, 1), (1000, 0), "another segment of the same object");
        let again: Vec<_> = (0..1000).map(|id| slots.assign(wide + id, 0)).collect();
        assert_eq!(again, first);
        assert_eq!(slots.find(wide + 5, 1), Some((1000, 0)));
        assert_eq!(slots.find(wide + 5, 2), None, "a search gives out no slot");
        slots.release(wide + 5, 0);
        slots.release(wide + 5, 0);
        assert_eq!(slots.assign(5, 0), (1001, 0), "not free before the policy has seen it");
        slots.recycle(5);
        assert_eq!(slots.assign(wide + 5, 0), (5, 1));
        assert_eq!(slots.assign(wide + 5, 1), (1000, 0));
    }
}
