// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Least recently used.

use std::collections::VecDeque;

use super::{Replacement, Victim};

/// What was not asked for for longest goes first.
///
/// No list is linked: whatever is asked for enters a queue once more, and only its last entry counts.
/// A hit so writes in one place and at the end of the queue.
#[derive(Debug, Default)]
pub struct Lru {
    /// Requests, oldest first; at most [`STALE_FACTOR`] times as many as there are objects.
    queue: VecDeque<u32>,
    /// How many requests left the queue: the place of its first.
    first: u64,
    /// The place of the entry of each object that counts, or [`NOWHERE`].
    places: Vec<u64>,
    bytes: Vec<u64>,
    count: usize,
}

const NOWHERE: u64 = u64::MAX;

/// Entries of the queue for each object, and some besides, after which those that do not count are
/// taken out: so often that they take no room to speak of, so seldom that it takes no time.
const STALE_FACTOR: usize = 4;
const STALE_MIN: usize = 1024;

impl Lru {
    fn push(&mut self, object: u32) {
        self.places[object as usize] = self.first + self.queue.len() as u64;
        self.queue.push_back(object);
    }

    fn tidy(&mut self) {
        let (mut place, mut kept) = (self.first, 0);
        self.queue.retain(|object| {
            let known = &mut self.places[*object as usize];
            let counts = *known == place;
            if counts {
                *known = kept;
                kept += 1;
            }
            place += 1;
            counts
        });
        self.first = 0;
    }
}

impl Replacement for Lru {
    fn grow(&mut self, objects: usize) {
        let objects = objects.max(self.places.len());
        self.places.resize(objects, NOWHERE);
        self.bytes.resize(objects, 0);
    }

    fn contains(&self, object: u32) -> bool {
        self.places[object as usize] != NOWHERE
    }

    fn touch(&self, objects: &[u32]) -> u64 {
        // Evictions are going to look at the first entries of the queue, whether they count or not.
        let oldest = self.queue.iter().take(objects.len());
        let places = objects.iter().map(|object| self.places[*object as usize]);
        let victims = oldest.map(|object| {
            let (place, bytes) = (self.places[*object as usize], self.bytes[*object as usize]);
            place.wrapping_add(bytes)
        });
        places.chain(victims).fold(0, u64::wrapping_add)
    }

    fn hit(&mut self, object: u32) {
        self.push(object);
        if self.queue.len() > STALE_FACTOR * self.count + STALE_MIN {
            self.tidy();
        }
    }

    fn miss(&mut self, _: u32, _: u64) -> bool {
        true
    }

    fn evict(&mut self) -> Option<Victim> {
        loop {
            let object = self.queue.pop_front()?;
            let place = &mut self.places[object as usize];
            self.first += 1;
            if *place == self.first - 1 {
                *place = NOWHERE;
                self.count -= 1;
                return Some(Victim { object, bytes: self.bytes[object as usize] });
            }
        }
    }

    fn insert(&mut self, object: u32, bytes: u64) {
        self.bytes[object as usize] = bytes;
        self.count += 1;
        self.push(object);
    }
}
