// SPDX-License-Identifier: Apache-2.0 OR MIT
//! First in, first out.

use std::collections::VecDeque;

use super::{Replacement, Victim};

/// What entered first goes first.
#[derive(Debug, Default)]
pub struct Fifo {
    queue: VecDeque<Victim>,
    is_there: Vec<bool>,
}

impl Replacement for Fifo {
    fn grow(&mut self, objects: usize) {
        self.is_there.resize(objects.max(self.is_there.len()), false);
    }

    fn contains(&self, object: u32) -> bool {
        self.is_there[object as usize]
    }

    fn touch(&self, objects: &[u32]) -> u64 {
        objects.iter().map(|object| u64::from(self.is_there[*object as usize])).sum()
    }

    fn hit(&mut self, _: u32) {}

    fn miss(&mut self, _: u32, _: u64) -> bool {
        true
    }

    fn evict(&mut self) -> Option<Victim> {
        let victim = self.queue.pop_front()?;
        self.is_there[victim.object as usize] = false;
        Some(victim)
    }

    fn insert(&mut self, object: u32, bytes: u64) {
        self.is_there[object as usize] = true;
        self.queue.push_back(Victim { object, bytes });
    }
}
