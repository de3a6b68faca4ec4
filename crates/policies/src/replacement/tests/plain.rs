// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Caches in vectors, the newest last: as slow as they are plain.

/// A cache, order and all.
pub(super) trait Plain {
    /// Asks for an object; whether it is there.
    fn request(&mut self, object: u32, bytes: u64) -> bool;
}

/// Objects with their sizes, the newest last.
#[derive(Default)]
pub(super) struct Queue(pub(super) Vec<(u32, u64)>);

impl Queue {
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, bytes)| bytes).sum()
    }

    pub(super) fn position(&self, object: u32) -> Option<usize> {
        self.0.iter().position(|(other, _)| *other == object)
    }

    pub(super) fn has(&self, object: u32) -> bool {
        self.position(object).is_some()
    }

    pub(super) fn push(&mut self, object: (u32, u64)) {
        self.0.push(object);
    }

    pub(super) fn oldest(&self) -> Option<(u32, u64)> {
        self.0.first().copied()
    }

    pub(super) fn pop(&mut self) -> Option<(u32, u64)> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    pub(super) fn take(&mut self, object: u32) -> Option<(u32, u64)> {
        self.position(object).map(|position| self.0.remove(position))
    }
}

pub(super) struct Fifo {
    capacity: u64,
    queue: Queue,
}

impl Fifo {
    pub(super) fn new(capacity: u64) -> Self {
        Self { capacity, queue: Queue::default() }
    }
}

impl Plain for Fifo {
    fn request(&mut self, object: u32, bytes: u64) -> bool {
        if self.queue.has(object) {
            return true;
        }
        if bytes <= self.capacity {
            while self.queue.bytes() + bytes > self.capacity {
                self.queue.pop();
            }
            self.queue.push((object, bytes));
        }
        false
    }
}

pub(super) struct Lru(Fifo);

impl Lru {
    pub(super) fn new(capacity: u64) -> Self {
        Self(Fifo::new(capacity))
    }
}

impl Plain for Lru {
    fn request(&mut self, object: u32, bytes: u64) -> bool {
        if let Some(found) = self.0.queue.take(object) {
            self.0.queue.push(found);
            return true;
        }
        self.0.request(object, bytes)
    }
}

pub(super) struct Clock {
    capacity: u64,
    queue: Queue,
    hit: Vec<u32>,
}

impl Clock {
    pub(super) fn new(capacity: u64) -> Self {
        Self { capacity, queue: Queue::default(), hit: Vec::new() }
    }
}

impl Plain for Clock {
    fn request(&mut self, object: u32, bytes: u64) -> bool {
        if self.queue.has(object) {
            self.hit.push(object);
            return true;
        }
        if bytes <= self.capacity {
            while self.queue.bytes() + bytes > self.capacity {
                let oldest = self.queue.pop().unwrap();
                if self.hit.contains(&oldest.0) {
                    self.hit.retain(|other| *other != oldest.0);
                    self.queue.push(oldest);
                }
            }
            self.queue.push((object, bytes));
        }
        false
    }
}

pub(super) struct Sieve {
    capacity: u64,
    queue: Queue,
    hit: Vec<u32>,
    /// The object at the hand.
    hand: Option<u32>,
}

impl Sieve {
    pub(super) fn new(capacity: u64) -> Self {
        Self { capacity, queue: Queue::default(), hit: Vec::new(), hand: None }
    }
}

impl Plain for Sieve {
    fn request(&mut self, object: u32, bytes: u64) -> bool {
        if self.queue.has(object) {
            self.hit.push(object);
            return true;
        }
        if bytes <= self.capacity {
            while self.queue.bytes() + bytes > self.capacity {
                let at_hand = self.hand.and_then(|hand| self.queue.position(hand));
                let mut at = at_hand.unwrap_or(0);
                while self.hit.contains(&self.queue.0[at].0) {
                    let passed = self.queue.0[at].0;
                    self.hit.retain(|other| *other != passed);
                    at = (at + 1) % self.queue.0.len();
                }
                self.queue.0.remove(at);
                self.hand = self.queue.0.get(at).map(|(object, _)| *object);
            }
            self.queue.push((object, bytes));
        }
        false
    }
}

/// Whatever has the lowest rank goes; among equals, what got it first.
pub(super) struct Ranked {
    capacity: u64,
    /// In the order in which they got their ranks, with them and with requests.
    objects: Vec<(u32, u64, f64, u64)>,
    /// The rank of what went last.
    clock: f64,
    rank: fn(clock: f64, requests: u64, bytes: u64) -> f64,
}

pub(super) fn by_requests(_: f64, requests: u64, _: u64) -> f64 {
    requests as f64
}

pub(super) fn by_requests_for_size(clock: f64, requests: u64, bytes: u64) -> f64 {
    clock + requests as f64 / bytes.max(1) as f64
}

impl Ranked {
    pub(super) fn new(capacity: u64, rank: fn(f64, u64, u64) -> f64) -> Self {
        Self { capacity, objects: Vec::new(), clock: 0.0, rank }
    }

    fn put(&mut self, object: u32, bytes: u64, requests: u64) {
        let rank = (self.rank)(self.clock, requests, bytes);
        self.objects.push((object, bytes, rank, requests));
    }
}

impl Plain for Ranked {
    fn request(&mut self, object: u32, bytes: u64) -> bool {
        if let Some(at) = self.objects.iter().position(|found| found.0 == object) {
            let (_, bytes, _, requests) = self.objects.remove(at);
            self.put(object, bytes, requests + 1);
            return true;
        }
        if bytes <= self.capacity {
            while self.objects.iter().map(|found| found.1).sum::<u64>() + bytes > self.capacity {
                let ranks = self.objects.iter().map(|found| found.2);
                self.clock = ranks.fold(f64::INFINITY, f64::min);
                let at = self.objects.iter().position(|found| found.2 == self.clock);
                self.objects.remove(at.unwrap());
            }
            self.put(object, bytes, 1);
        }
        false
    }
}
