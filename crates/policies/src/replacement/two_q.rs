// SPDX-License-Identifier: Apache-2.0 OR MIT
//! 2Q (Johnson and Shasha, VLDB 1994), the full version.

use super::lists::Lists;
use super::{Replacement, Resident, Snapshot, Victim};

/// Lists of the paper: new objects, names of those that left it, and those that came back.
const A1_IN: usize = 0;
const A1_OUT: usize = 1;
const AM: usize = 2;

/// Shares of the capacity, as the paper recommends (section 3.2: Kin 25 %, Kout 50 %).
const IN_SHARE: f64 = 0.25;
const OUT_SHARE: f64 = 0.5;

/// New objects leave in the order in which they came; what is asked for again after that is kept as
/// LRU keeps it.
#[derive(Debug)]
pub struct TwoQ {
    lists: Lists<3>,
    in_max_bytes: u64,
    out_max_bytes: u64,
    /// Whether the object of the last miss had left the first queue not long ago.
    is_back: bool,
}

impl TwoQ {
    /// For a cache of this capacity.
    pub fn new(capacity_bytes: u64) -> Self {
        let share = |share: f64| (share * capacity_bytes as f64) as u64;
        Self {
            lists: Lists::default(),
            in_max_bytes: share(IN_SHARE),
            out_max_bytes: share(OUT_SHARE),
            is_back: false,
        }
    }
}

impl Replacement for TwoQ {
    fn grow(&mut self, objects: usize) {
        self.lists.grow(objects);
    }

    fn contains(&self, object: u32) -> bool {
        matches!(self.lists.list_of(object), Some(A1_IN | AM))
    }

    fn touch(&self, objects: &[u32]) -> u64 {
        self.lists.touch(objects)
    }

    fn hit(&mut self, object: u32) {
        if self.lists.list_of(object) == Some(AM) {
            self.lists.promote(AM, object);
        }
    }

    fn miss(&mut self, object: u32, _: u64) -> bool {
        self.is_back = self.lists.list_of(object).is_some();
        self.lists.take(object);
        true
    }

    fn evict(&mut self) -> Option<Victim> {
        if self.lists.bytes(A1_IN) <= self.in_max_bytes && !self.lists.is_empty(AM) {
            return self.lists.pop(AM);
        }
        let victim = self.lists.pop(A1_IN)?;
        self.lists.remember(A1_OUT, victim, self.out_max_bytes);
        Some(victim)
    }

    fn insert(&mut self, object: u32, bytes: u64) {
        self.lists.push(if self.is_back { AM } else { A1_IN }, object, bytes);
    }
}

impl Resident for TwoQ {
    fn remembers(&self, object: u32) -> bool {
        self.lists.list_of(object) == Some(A1_OUT)
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

    fn snapshot(&self) -> Snapshot {
        Snapshot { lists: self.lists.snapshot(), ..Snapshot::default() }
    }

    fn resume(&mut self, snapshot: &Snapshot) {
        self.lists.resume(&snapshot.lists);
    }
}
