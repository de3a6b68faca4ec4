// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SIEVE (Zhang et al., NSDI 2024).

use super::lists::Lists;
use super::{Replacement, Resident, Snapshot, Victim};

/// A hand goes from the oldest to the newest and takes the first that was not asked for since it
/// last came by. Nothing changes its place.
#[derive(Debug, Default)]
pub struct Sieve {
    list: Lists<1>,
    /// Where the hand goes on; `None` for the tail.
    hand: Option<u32>,
}

impl Replacement for Sieve {
    fn grow(&mut self, objects: usize) {
        self.list.grow(objects);
    }

    fn contains(&self, object: u32) -> bool {
        self.list.list_of(object).is_some()
    }

    fn touch(&self, objects: &[u32]) -> u64 {
        self.list.touch_states(objects)
    }

    fn hit(&mut self, object: u32) {
        self.list.set_count(object, 1);
    }

    fn miss(&mut self, _: u32, _: u64) -> bool {
        true
    }

    fn evict(&mut self) -> Option<Victim> {
        let mut object = self.hand.or_else(|| self.list.tail(0))?;
        while self.list.count_of(object) > 0 {
            self.list.set_count(object, 0);
            object = self.list.to_head(object).or_else(|| self.list.tail(0))?;
        }
        self.hand = self.list.to_head(object);
        let bytes = self.list.bytes_of(object);
        self.list.take(object);
        Some(Victim { object, bytes })
    }

    fn insert(&mut self, object: u32, bytes: u64) {
        self.list.set_count(object, 0);
        self.list.push(0, object, bytes);
    }
}

impl Resident for Sieve {
    fn remembers(&self, _: u32) -> bool {
        false
    }

    fn bytes_of(&self, object: u32) -> u64 {
        self.list.bytes_of(object)
    }

    fn resize(&mut self, object: u32, bytes: u64) {
        self.list.resize(object, bytes);
    }

    fn forget(&mut self, object: u32) {
        if self.hand == Some(object) {
            self.hand = self.list.to_head(object);
        }
        self.list.forget(object);
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot { lists: self.list.snapshot(), hand: self.hand, numbers: Vec::new() }
    }

    fn resume(&mut self, snapshot: &Snapshot) {
        self.list.resume(&snapshot.lists);
        self.hand = snapshot.hand;
    }
}
