// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Dense numbers for segments, so that policies keep arrays instead of maps.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use terrace_core::Slot;

use crate::hash::Numbers;

/// Gives every live segment a slot and tells its users apart by incarnation.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// By object id and segment number.
    slots: HashMap<(u64, u32), (Slot, u32), Numbers>,
    /// How often each slot was given out.
    incarnations: Vec<u32>,
    free: Vec<Slot>,
}

impl Slots {
    /// The slot of a segment and its incarnation; a new one for a segment that has none.
    pub(crate) fn assign(&self, object_id: u64, segment: u32) -> (Slot, u32) {
        let mut guard = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let table = &mut *guard;
        *table.slots.entry((object_id, segment)).or_insert_with(|| match table.free.pop() {
            Some(slot) => {
                table.incarnations[slot as usize] += 1;
                (slot, table.incarnations[slot as usize])
            }
            None => {
                let slot = Slot::try_from(table.incarnations.len()).expect("below 2^32 segments");
                table.incarnations.push(0);
                (slot, 0)
            }
        })
    }

    /// Forgets a segment; its slot is free once [`Slots::recycle`] says so.
    pub(crate) fn release(&self, object_id: u64, segment: u32) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.slots.remove(&(object_id, segment));
    }

    /// Lets a slot be used again: the policy has seen that its segment is gone.
    pub(crate) fn recycle(&self, slot: Slot) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.free.push(slot);
    }
}
