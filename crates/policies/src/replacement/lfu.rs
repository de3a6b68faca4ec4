// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Least frequently used.

use std::collections::BTreeSet;

use super::{Replacement, Victim};

/// What was asked for least often since it entered goes first; among equals, what has been so for
/// longest.
#[derive(Debug, Default)]
pub struct Lfu {
    order: BTreeSet<(Rank, u32)>,
    objects: Vec<Option<(Rank, u64)>>,
    now: u64,
}

/// Requests, and when the last of them was.
type Rank = (u64, u64);

impl Lfu {
    fn put(&mut self, object: u32, requests: u64, bytes: u64) {
        self.now += 1;
        let rank = (requests, self.now);
        self.objects[object as usize] = Some((rank, bytes));
        self.order.insert((rank, object));
    }
}

impl Replacement for Lfu {
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
        if let Some((rank, bytes)) = self.objects[object as usize] {
            self.order.remove(&(rank, object));
            self.put(object, rank.0 + 1, bytes);
        }
    }

    fn miss(&mut self, _: u32, _: u64) -> bool {
        true
    }

    fn evict(&mut self) -> Option<Victim> {
        let (_, object) = self.order.pop_first()?;
        let (_, bytes) = self.objects[object as usize].take()?;
        Some(Victim { object, bytes })
    }

    fn insert(&mut self, object: u32, bytes: u64) {
        self.put(object, 1, bytes);
    }
}
