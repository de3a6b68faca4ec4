// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ARC and W-TinyLFU in vectors, written down from their definitions.

use super::super::sketch::Sketch;
use super::plain::{Plain, Queue};

pub(super) struct Arc {
    capacity: u64,
    p: f64,
    t1: Queue,
    t2: Queue,
    b1: Queue,
    b2: Queue,
}

impl Arc {
    pub(super) fn new(capacity: u64) -> Self {
        let [t1, t2, b1, b2] = std::array::from_fn(|_| Queue::default());
        Self { capacity, p: 0.0, t1, t2, b1, b2 }
    }

    fn replace(&mut self, was_in_b2: bool) {
        let once = self.t1.bytes() as f64;
        let is_t1 = once > self.p || was_in_b2 && once == self.p;
        if once > 0.0 && is_t1 || self.t2.0.is_empty() {
            let oldest = self.t1.pop().unwrap();
            self.b1.push(oldest);
        } else {
            let oldest = self.t2.pop().unwrap();
            self.b2.push(oldest);
        }
    }

    /// Case IV of the paper: nothing is known of what comes.
    fn make_room_for_new(&mut self, bytes: u64) {
        if self.t1.bytes() + self.b1.bytes() + bytes > self.capacity {
            if self.b1.pop().is_some() {
                return self.replace(false);
            }
            if self.t1.pop().is_some() {
                return;
            }
        } else {
            let lists = [&self.t1, &self.t2, &self.b1, &self.b2];
            if lists.into_iter().map(Queue::bytes).sum::<u64>() >= 2 * self.capacity {
                self.b2.pop();
            }
        }
        self.replace(false);
    }
}

impl Plain for Arc {
    fn request(&mut self, object: u32, bytes: u64) -> bool {
        if let Some(found) = self.t1.take(object).or_else(|| self.t2.take(object)) {
            self.t2.push(found);
            return true;
        }
        let (once, often) = (self.b1.bytes() as f64, self.b2.bytes() as f64);
        let was_in_b1 = self.b1.take(object).is_some();
        let was_in_b2 = self.b2.take(object).is_some();
        if was_in_b1 {
            self.p = (self.p + (often / once).max(1.0)).min(self.capacity as f64);
        }
        if was_in_b2 {
            self.p = (self.p - (once / often).max(1.0)).max(0.0);
        }
        let is_back = was_in_b1 || was_in_b2;
        if bytes > self.capacity {
            return false;
        }
        while self.t1.bytes() + self.t2.bytes() + bytes > self.capacity {
            if is_back { self.replace(was_in_b2) } else { self.make_room_for_new(bytes) }
        }
        if is_back {
            self.t2.push((object, bytes))
        } else {
            self.t1.push((object, bytes))
        }
        false
    }
}

pub(super) struct WTinyLfu {
    capacity: u64,
    window_max: u64,
    sketch: Sketch,
    window: Queue,
    probation: Queue,
    protected: Queue,
}

impl WTinyLfu {
    pub(super) fn new(capacity: u64) -> Self {
        let [window, probation, protected] = std::array::from_fn(|_| Queue::default());
        let window_max = (0.01 * capacity as f64) as u64;
        let sketch = Sketch::new(capacity);
        Self { capacity, window_max, sketch, window, probation, protected }
    }

    fn main_max(&self) -> u64 {
        self.capacity - self.window_max
    }

    fn probation_max(&self) -> u64 {
        ((1.0 - 0.8) * self.main_max() as f64) as u64
    }

    fn protected_max(&self) -> u64 {
        (0.8 * self.main_max() as f64) as u64
    }

    fn main_bytes(&self) -> u64 {
        self.probation.bytes() + self.protected.bytes()
    }

    fn loser(&self) -> Option<(u32, u64)> {
        self.probation.oldest().or_else(|| self.protected.oldest())
    }

    fn pop_main(&mut self) {
        self.probation.pop().or_else(|| self.protected.pop());
    }

    fn make_room(&mut self) {
        let Some(candidate) = self.window.pop() else { return self.pop_main() };
        let fits = |this: &Self| this.main_bytes() + candidate.1 <= this.main_max();
        let mut wins = fits(self);
        if !wins && let Some(loser) = self.loser() {
            wins = self.sketch.estimate(candidate.0) > self.sketch.estimate(loser.0);
            while wins && !fits(self) && self.loser().is_some() {
                self.pop_main();
            }
        }
        if wins {
            let is_full = self.probation.bytes() + candidate.1 > self.probation_max();
            let is_up = is_full && self.protected.bytes() + candidate.1 <= self.protected_max();
            if is_up { self.protected.push(candidate) } else { self.probation.push(candidate) }
        }
        self.sketch.add(candidate.0);
    }
}

impl Plain for WTinyLfu {
    fn request(&mut self, object: u32, bytes: u64) -> bool {
        if let Some(found) = self.window.take(object) {
            self.window.push(found);
            return true;
        }
        if let Some(found) = self.probation.take(object).or_else(|| self.protected.take(object)) {
            self.sketch.add(object);
            self.protected.push(found);
            while self.protected.bytes() > self.protected_max() {
                let oldest = self.protected.pop().unwrap();
                self.probation.push(oldest);
                while self.probation.bytes() > self.probation_max() {
                    self.probation.pop();
                }
            }
            return true;
        }
        self.sketch.add(object);
        if bytes > self.capacity {
            return false;
        }
        while self.window.bytes() + self.main_bytes() + bytes > self.capacity {
            self.make_room();
        }
        self.window.push((object, bytes));
        false
    }
}
