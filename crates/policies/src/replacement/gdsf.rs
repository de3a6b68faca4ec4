// SPDX-License-Identifier: Apache-2.0 OR MIT
//! GDSF, greedy dual size frequency (Cherkasova, HP Labs 1998).

use std::collections::BTreeSet;

use super::{Replacement, Resident, Snapshot, Victim};

/// What was asked for least often for its size goes first, and what is there ages as others go:
/// priority = clock + requests / size, where the clock is the priority of what went last. The cost
/// of the paper is the same for all objects.
#[derive(Debug, Default)]
pub struct Gdsf {
    order: BTreeSet<(Priority, u32)>,
    objects: Vec<Option<Known>>,
    clock: f64,
    now: u64,
}

/// The bits of a number that is not negative, which are in its order, and when it was given.
type Priority = (u64, u64);

#[derive(Clone, Copy, Debug)]
struct Known {
    priority: Priority,
    requests: u64,
    bytes: u64,
}

impl Gdsf {
    fn put(&mut self, object: u32, requests: u64, bytes: u64) {
        self.now += 1;
        let priority = self.clock + requests as f64 / bytes.max(1) as f64;
        let priority = (priority.to_bits(), self.now);
        self.objects[object as usize] = Some(Known { priority, requests, bytes });
        self.order.insert((priority, object));
    }
}

impl Replacement for Gdsf {
    fn grow(&mut self, objects: usize) {
        self.objects.resize(objects.max(self.objects.len()), None);
    }

    fn contains(&self, object: u32) -> bool {
        self.objects[object as usize].is_some()
    }

    fn touch(&self, objects: &[u32]) -> u64 {
        objects.iter().map(|object| u64::from(self.contains(*object))).sum()
    }

    fn hit(&mut self, object: u32) {
        if let Some(Known { priority, requests, bytes }) = self.objects[object as usize] {
            self.order.remove(&(priority, object));
            self.put(object, requests + 1, bytes);
        }
    }

    fn miss(&mut self, _: u32, _: u64) -> bool {
        true
    }

    fn evict(&mut self) -> Option<Victim> {
        let ((priority, _), object) = self.order.pop_first()?;
        self.clock = f64::from_bits(priority);
        let known = self.objects[object as usize].take()?;
        Some(Victim { object, bytes: known.bytes })
    }

    fn insert(&mut self, object: u32, bytes: u64) {
        self.put(object, 1, bytes);
    }
}

impl Resident for Gdsf {
    fn remembers(&self, _: u32) -> bool {
        false
    }

    fn bytes_of(&self, object: u32) -> u64 {
        self.objects[object as usize].map_or(0, |known| known.bytes)
    }

    fn resize(&mut self, object: u32, bytes: u64) {
        if let Some(Known { priority, requests, .. }) = self.objects[object as usize] {
            self.order.remove(&(priority, object));
            self.put(object, requests, bytes);
        }
    }

    fn forget(&mut self, object: u32) {
        if let Some(known) = self.objects[object as usize].take() {
            self.order.remove(&(known.priority, object));
        }
    }

    fn snapshot(&self) -> Snapshot {
        let known = self.order.iter().filter_map(|((priority, _), object)| {
            let Known { requests, bytes, .. } = self.objects[*object as usize]?;
            let (object, priority) = (*object, *priority);
            Some(super::Known { object, bytes, count: requests, priority })
        });
        let numbers = vec![self.clock.to_bits()];
        Snapshot { lists: vec![known.collect()], hand: None, numbers }
    }

    /// Of equal priorities those that came first stay first.
    fn resume(&mut self, snapshot: &Snapshot) {
        self.clock = snapshot.numbers.first().map_or(0.0, |clock| f64::from_bits(*clock));
        for known in snapshot.lists.iter().flatten() {
            self.forget(known.object);
            self.now += 1;
            let priority = (known.priority, self.now);
            let object = &mut self.objects[known.object as usize];
            *object = Some(Known { priority, requests: known.count, bytes: known.bytes });
            self.order.insert((priority, known.object));
        }
    }
}
