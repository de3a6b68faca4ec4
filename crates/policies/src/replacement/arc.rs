// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ARC, the adaptive replacement cache (Megiddo and Modha, FAST 2003).

use super::lists::Lists;
use super::{Replacement, Resident, Snapshot, Victim};

/// Lists of the paper: asked for once, and more often; and names of those that left them.
const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 2;
const B2: usize = 3;

/// What was asked for once and what was asked for again are kept apart; how much room the first have
/// follows from which of them was given up too early.
///
/// The paper counts pages; here sizes take their place, the step of the adaptation excepted.
#[derive(Debug)]
pub struct Arc {
    lists: Lists<4>,
    capacity_bytes: u64,
    /// Room that T1 is to have: the paper's p.
    target_bytes: f64,
    /// Which list of names the object of the last miss was on, and its size.
    came_from: Option<usize>,
    incoming_bytes: u64,
}

impl Arc {
    /// For a cache of this capacity.
    pub fn new(capacity_bytes: u64) -> Self {
        Self {
            lists: Lists::default(),
            capacity_bytes,
            target_bytes: 0.0,
            came_from: None,
            incoming_bytes: 0,
        }
    }

    /// Gives up an object of T1 or T2 and keeps its name: the paper's REPLACE.
    fn replace(&mut self) -> Option<Victim> {
        let once = self.lists.bytes(T1) as f64;
        let is_at_target = once == self.target_bytes && self.came_from == Some(B2);
        let is_once = once > 0.0 && (once > self.target_bytes || is_at_target);
        let (from, to) = match is_once || self.lists.is_empty(T2) {
            true => (T1, B1),
            false => (T2, B2),
        };
        let victim = self.lists.pop(from)?;
        self.lists.push(to, victim.object, victim.bytes);
        Some(victim)
    }
}

impl Replacement for Arc {
    fn grow(&mut self, objects: usize) {
        self.lists.grow(objects);
    }

    fn contains(&self, object: u32) -> bool {
        matches!(self.lists.list_of(object), Some(T1 | T2))
    }

    fn touch(&self, objects: &[u32]) -> u64 {
        self.lists.touch(objects)
    }

    fn hit(&mut self, object: u32) {
        self.lists.promote(T2, object);
    }

    fn miss(&mut self, object: u32, bytes: u64) -> bool {
        self.incoming_bytes = bytes;
        self.came_from = self.lists.list_of(object);
        let (once, often) = (self.lists.bytes(B1) as f64, self.lists.bytes(B2) as f64);
        // An object of no size may be the only one on its list: the quotient is no number then,
        // and `max` takes the other.
        match self.came_from {
            Some(B1) => {
                let more = (often / once).max(1.0);
                self.target_bytes = (self.target_bytes + more).min(self.capacity_bytes as f64);
            }
            Some(_) => self.target_bytes = (self.target_bytes - (once / often).max(1.0)).max(0.0),
            None => {}
        }
        self.lists.take(object);
        true
    }

    fn evict(&mut self) -> Option<Victim> {
        if self.came_from.is_some() {
            return self.replace();
        }
        let once = self.lists.bytes(T1) + self.lists.bytes(B1);
        if once + self.incoming_bytes > self.capacity_bytes {
            if self.lists.pop(B1).is_none() && !self.lists.is_empty(T1) {
                return self.lists.pop(T1);
            }
        } else if (T1..=B2).map(|list| self.lists.bytes(list)).sum::<u64>()
            >= self.capacity_bytes.saturating_mul(2)
        {
            self.lists.pop(B2);
        }
        self.replace()
    }

    fn insert(&mut self, object: u32, bytes: u64) {
        self.lists.push(if self.came_from.is_some() { T2 } else { T1 }, object, bytes);
    }
}

impl Resident for Arc {
    fn remembers(&self, object: u32) -> bool {
        matches!(self.lists.list_of(object), Some(B1 | B2))
    }

    fn bytes_of(&self, object: u32) -> u64 {
        self.lists.bytes_of(object)
    }

    fn resize(&mut self, object: u32, bytes: u64) {
        self.lists.resize(object, bytes);
    }

    fn forget(&mut self, object: u32) {
        self.lists.forget(object);
    }

    /// Something may have to go without a miss, so what the last one left behind counts.
    fn snapshot(&self) -> Snapshot {
        let came_from = self.came_from.map_or(0, |list| list as u64 + 1);
        let numbers = vec![self.target_bytes.to_bits(), came_from, self.incoming_bytes];
        Snapshot { lists: self.lists.snapshot(), hand: None, numbers }
    }

    fn resume(&mut self, snapshot: &Snapshot) {
        self.lists.resume(&snapshot.lists);
        if let [target_bits, came_from, incoming_bytes] = snapshot.numbers[..] {
            self.target_bytes = f64::from_bits(target_bits).clamp(0.0, self.capacity_bytes as f64);
            self.came_from =
                [None, None, None, Some(B1), Some(B2)].get(came_from as usize).copied().flatten();
            self.incoming_bytes = incoming_bytes;
        }
    }
}
