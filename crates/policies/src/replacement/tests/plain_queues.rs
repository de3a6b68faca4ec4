// SPDX-License-Identifier: Apache-2.0 OR MIT
//! S3-FIFO and 2Q in vectors, written down from their definitions.

use std::collections::BTreeMap;

use super::plain::{Plain, Queue};

pub(super) struct S3Fifo {
    capacity: u64,
    is_version_2: bool,
    has_evicted: bool,
    small: Queue,
    main: Queue,
    ghost: Queue,
    freq: BTreeMap<u32, u64>,
}

impl S3Fifo {
    pub(super) fn new(capacity: u64, is_version_2: bool) -> Self {
        Self {
            capacity,
            is_version_2,
            has_evicted: false,
            small: Queue::default(),
            main: Queue::default(),
            ghost: Queue::default(),
            freq: BTreeMap::new(),
        }
    }

    fn small_max(&self) -> u64 {
        (0.1 * self.capacity as f64) as u64
    }

    fn evict(&mut self) {
        self.has_evicted = true;
        let is_main = self.main.bytes() > self.capacity - self.small_max();
        while !is_main && let Some(oldest) = self.small.pop() {
            if self.freq[&oldest.0] < 2 {
                let ghost_max = (0.9 * self.capacity as f64) as u64;
                if oldest.1 <= ghost_max {
                    while self.ghost.bytes() + oldest.1 > ghost_max {
                        self.ghost.pop();
                    }
                    self.ghost.push(oldest);
                }
                return;
            }
            self.freq.insert(oldest.0, 0);
            self.main.push(oldest);
        }
        while let Some(oldest) = self.main.pop() {
            let freq = self.freq[&oldest.0];
            if freq == 0 {
                return;
            }
            self.freq.insert(oldest.0, freq.min(3) - 1);
            self.main.push(oldest);
        }
    }
}

impl Plain for S3Fifo {
    fn request(&mut self, object: u32, bytes: u64) -> bool {
        if self.small.has(object) || self.main.has(object) {
            *self.freq.get_mut(&object).unwrap() += 1;
            return true;
        }
        let is_back = self.ghost.take(object).is_some();
        if bytes > self.capacity || bytes >= self.small_max() {
            return false;
        }
        while self.small.bytes() + self.main.bytes() + bytes > self.capacity {
            self.evict();
        }
        self.freq.insert(object, 0);
        let is_small_full = self.small.bytes() >= self.small_max();
        if is_back {
            self.main.push((object, bytes));
        } else {
            let is_early = self.is_version_2 && !self.has_evicted && is_small_full;
            let queue = if is_early { &mut self.main } else { &mut self.small };
            queue.push((object, bytes));
        }
        false
    }
}

pub(super) struct TwoQ {
    capacity: u64,
    a1_in: Queue,
    a1_out: Queue,
    am: Queue,
}

impl TwoQ {
    pub(super) fn new(capacity: u64) -> Self {
        let [a1_in, a1_out, am] = [Queue::default(), Queue::default(), Queue::default()];
        Self { capacity, a1_in, a1_out, am }
    }
}

impl Plain for TwoQ {
    fn request(&mut self, object: u32, bytes: u64) -> bool {
        if let Some(found) = self.am.take(object) {
            self.am.push(found);
            return true;
        }
        if self.a1_in.has(object) {
            return true;
        }
        let is_back = self.a1_out.take(object).is_some();
        if bytes > self.capacity {
            return false;
        }
        let (in_max, out_max) = (self.capacity / 4, self.capacity / 2);
        while self.a1_in.bytes() + self.am.bytes() + bytes > self.capacity {
            if self.a1_in.bytes() > in_max || self.am.0.is_empty() {
                let oldest = self.a1_in.pop().unwrap();
                if oldest.1 <= out_max {
                    while self.a1_out.bytes() + oldest.1 > out_max {
                        self.a1_out.pop();
                    }
                    self.a1_out.push(oldest);
                }
            } else {
                self.am.pop();
            }
        }
        if is_back {
            self.am.push((object, bytes))
        } else {
            self.a1_in.push((object, bytes))
        }
        false
    }
}
