// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an order would have in a cache of the tier's size.

use terrace_core::Slot;

use super::Filtering;
use crate::replacement::{Snapshot, Victim};

/// An order with the room that its objects take; slots are its objects.
#[derive(Debug)]
pub(super) struct Residents<R> {
    order: R,
    capacity_bytes: u64,
    used_bytes: u64,
    /// One more than the largest slot that the order knows.
    slots: usize,
    victims: Vec<Slot>,
}

impl<R: Filtering> Residents<R> {
    pub(super) fn new(capacity_bytes: u64) -> Self {
        let order = R::new(capacity_bytes);
        Self { order, capacity_bytes, used_bytes: 0, slots: 0, victims: Vec::new() }
    }

    pub(super) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    pub(super) fn contains(&self, slot: Slot) -> bool {
        (slot as usize) < self.slots && self.order.contains(slot)
    }

    /// Counts a request for a segment; whether the order knew it, and has it now.
    pub(super) fn request(&mut self, slot: Slot, bytes: u64) -> bool {
        self.grow(slot);
        if self.order.contains(slot) {
            self.order.hit(slot);
            self.drain_others();
            return self.order.contains(slot);
        }
        let is_known = self.order.remembers(slot);
        if !self.order.miss(slot, bytes) || bytes > self.capacity_bytes {
            return false;
        }
        self.make_room(bytes);
        self.order.insert(slot, bytes);
        self.used_bytes += bytes;
        is_known
    }

    /// A segment may have another size than the order knows.
    pub(super) fn resize(&mut self, slot: Slot, bytes: u64) {
        if !self.contains(slot) || self.order.bytes_of(slot) == bytes {
            return;
        }
        self.used_bytes = self.used_bytes - self.order.bytes_of(slot) + bytes;
        self.order.resize(slot, bytes);
        self.make_room(0);
    }

    /// A segment is gone.
    pub(super) fn forget(&mut self, slot: Slot) {
        if (slot as usize) < self.slots {
            if self.order.contains(slot) {
                self.used_bytes -= self.order.bytes_of(slot);
            }
            self.order.forget(slot);
        }
    }

    /// Gives up one more; false where there is none.
    pub(super) fn give_up(&mut self) -> bool {
        let victim = self.order.evict();
        if let Some(victim) = victim {
            self.leave(victim);
            self.drain_others();
        }
        victim.is_some()
    }

    /// What was given up since the last call, and has not come back.
    pub(super) fn take_victims(&mut self) -> Vec<Slot> {
        let victims = std::mem::take(&mut self.victims);
        victims.into_iter().filter(|slot| !self.order.contains(*slot)).collect()
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.order.snapshot()
    }

    /// Takes over what another knew of segments below `slots`.
    pub(super) fn resume(&mut self, snapshot: &Snapshot, slots: usize) {
        if let Some(last) = slots.checked_sub(1) {
            self.grow(last as Slot);
        }
        self.order.resume(snapshot);
        self.used_bytes = self.sum_bytes();
        self.make_room(0);
    }

    #[cfg(test)]
    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// The sizes of all that is there.
    pub(super) fn sum_bytes(&self) -> u64 {
        let there = (0..self.slots as Slot).filter(|slot| self.order.contains(*slot));
        there.map(|slot| self.order.bytes_of(slot)).sum()
    }

    fn make_room(&mut self, bytes: u64) {
        while self.used_bytes.saturating_add(bytes) > self.capacity_bytes && self.give_up() {}
    }

    fn drain_others(&mut self) {
        while let Some(victim) = self.order.also_left() {
            self.leave(victim);
        }
    }

    fn leave(&mut self, victim: Victim) {
        self.used_bytes -= victim.bytes;
        self.victims.push(victim.object);
    }

    fn grow(&mut self, slot: Slot) {
        if slot as usize >= self.slots {
            self.slots = slot as usize + 1;
            self.order.grow(self.slots);
        }
    }
}
