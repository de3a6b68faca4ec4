// SPDX-License-Identifier: Apache-2.0 OR MIT
//! W-TinyLFU (Einziger, Friedman and Manes, ACM Transactions on Storage 2017).

use super::lists::Lists;
use super::sketch::Sketch;
use super::{Known, Replacement, Resident, Snapshot, Victim};

/// Lists: the window, and the two segments of the main cache, of which the upper is protected.
const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// Shares: of the window in the capacity, and of the protected segment in the main cache.
const WINDOW_SHARE: f64 = 0.01;
const PROTECTED_SHARE: f64 = 0.8;

/// New objects enter a small window, which is kept as LRU keeps it; what leaves the window enters
/// the main cache only if it was asked for more often than what would have to go for it.
///
/// The main cache is a segmented LRU: a hit brings an object up to the protected segment, and what is
/// too much there goes down again. Where the paper leaves it open: a request counts unless it hits
/// in the window, so that a burst counts as one, and leaving the window counts once more; of equals
/// the older stays; a winner that needs the room of several objects competes with the first only; one
/// that finds probation full enters the protected segment if that has room.
#[derive(Debug)]
pub struct WTinyLfu {
    lists: Lists<3>,
    sketch: Sketch,
    main_max_bytes: u64,
    probation_max_bytes: u64,
    protected_max_bytes: u64,
    /// What left beside the victim of an eviction, or with a hit.
    also_left: Vec<Victim>,
}

impl WTinyLfu {
    /// For a cache of this capacity.
    pub fn new(capacity_bytes: u64) -> Self {
        let window_bytes = (WINDOW_SHARE * capacity_bytes as f64) as u64;
        let main_max_bytes = capacity_bytes - window_bytes;
        let share = |share: f64| (share * main_max_bytes as f64) as u64;
        Self {
            lists: Lists::default(),
            sketch: Sketch::new(capacity_bytes),
            main_max_bytes,
            probation_max_bytes: share(1.0 - PROTECTED_SHARE),
            protected_max_bytes: share(PROTECTED_SHARE),
            also_left: Vec::new(),
        }
    }

    fn main_bytes(&self) -> u64 {
        self.lists.bytes(PROBATION) + self.lists.bytes(PROTECTED)
    }

    /// What would have to go from the main cache.
    fn main_tail(&self) -> Option<u32> {
        self.lists.tail(PROBATION).or_else(|| self.lists.tail(PROTECTED))
    }

    /// Moves an object from the window to the main cache.
    fn admit(&mut self, object: u32) {
        let bytes = self.lists.bytes_of(object);
        let fits = |list, max_bytes| self.lists.bytes(list) + bytes <= max_bytes;
        let is_up =
            !fits(PROBATION, self.probation_max_bytes) && fits(PROTECTED, self.protected_max_bytes);
        self.lists.promote(if is_up { PROTECTED } else { PROBATION }, object);
        self.sketch.add(object);
    }

    /// Takes an object out.
    fn remove(&mut self, object: u32) -> Victim {
        let bytes = self.lists.bytes_of(object);
        self.lists.take(object);
        Victim { object, bytes }
    }
}

impl Replacement for WTinyLfu {
    fn grow(&mut self, objects: usize) {
        self.lists.grow(objects);
    }

    fn contains(&self, object: u32) -> bool {
        self.lists.list_of(object).is_some()
    }

    fn touch(&self, objects: &[u32]) -> u64 {
        self.lists.touch(objects)
    }

    fn hit(&mut self, object: u32) {
        if self.lists.list_of(object) == Some(WINDOW) {
            return self.lists.promote(WINDOW, object);
        }
        self.sketch.add(object);
        self.lists.promote(PROTECTED, object);
        while self.lists.bytes(PROTECTED) > self.protected_max_bytes {
            let Some(tail) = self.lists.tail(PROTECTED) else { return };
            self.lists.promote(PROBATION, tail);
            while self.lists.bytes(PROBATION) > self.probation_max_bytes {
                self.also_left.extend(self.lists.pop(PROBATION));
            }
        }
    }

    fn miss(&mut self, object: u32, _: u64) -> bool {
        self.sketch.add(object);
        true
    }

    fn evict(&mut self) -> Option<Victim> {
        loop {
            let Some(candidate) = self.lists.tail(WINDOW) else {
                return self.main_tail().map(|tail| self.remove(tail));
            };
            let bytes = self.lists.bytes_of(candidate);
            if self.main_bytes() + bytes <= self.main_max_bytes {
                self.admit(candidate);
                continue;
            }
            let estimate = self.sketch.estimate(candidate);
            let Some(loser) =
                self.main_tail().filter(|tail| estimate > self.sketch.estimate(*tail))
            else {
                self.sketch.add(candidate);
                return Some(self.remove(candidate));
            };
            let victim = self.remove(loser);
            while self.main_bytes() + bytes > self.main_max_bytes {
                let Some(tail) = self.main_tail() else { break };
                let other = self.remove(tail);
                self.also_left.push(other);
            }
            self.admit(candidate);
            return Some(victim);
        }
    }

    fn also_left(&mut self) -> Option<Victim> {
        self.also_left.pop()
    }

    fn insert(&mut self, object: u32, bytes: u64) {
        self.lists.push(WINDOW, object, bytes);
    }
}

impl Resident for WTinyLfu {
    fn remembers(&self, _: u32) -> bool {
        false
    }

    fn bytes_of(&self, object: u32) -> u64 {
        self.lists.bytes_of(object)
    }

    fn resize(&mut self, object: u32, bytes: u64) {
        self.lists.resize(object, bytes);
    }

    fn forget(&mut self, object: u32) {
        self.lists.forget(object);
        self.sketch.forget(object);
    }

    /// The last list is what the sketch says of each object.
    fn snapshot(&self) -> Snapshot {
        let mut lists = self.lists.snapshot();
        let objects = (0..self.lists.objects() as u32).map(|object| Known {
            object,
            bytes: 0,
            count: self.sketch.estimate(object).into(),
            priority: 0,
        });
        lists.push(objects.filter(|known| known.count > 0).collect());
        Snapshot { lists, hand: None, numbers: vec![self.sketch.additions()] }
    }

    fn resume(&mut self, snapshot: &Snapshot) {
        let Some((estimates, lists)) = snapshot.lists.split_last() else { return };
        self.lists.resume(lists);
        for known in estimates {
            self.sketch.raise(known.object, known.count.min(u8::MAX.into()) as u8);
        }
        self.sketch.resume(snapshot.numbers.first().copied().unwrap_or(0));
    }
}
