// SPDX-License-Identifier: Apache-2.0 OR MIT
//! First in, first out, with a second chance (Corbató 1968).

use super::lists::Lists;
use super::{Replacement, Victim};

/// What entered first goes first; if it was asked for meanwhile it enters anew instead.
#[derive(Debug, Default)]
pub struct Clock(Lists<1>);

impl Replacement for Clock {
    fn grow(&mut self, objects: usize) {
        self.0.grow(objects);
    }

    fn contains(&self, object: u32) -> bool {
        self.0.list_of(object).is_some()
    }

    fn touch(&self, objects: &[u32]) -> u64 {
        self.0.touch_states(objects)
    }

    fn hit(&mut self, object: u32) {
        self.0.set_count(object, 1);
    }

    fn miss(&mut self, _: u32, _: u64) -> bool {
        true
    }

    fn evict(&mut self) -> Option<Victim> {
        loop {
            let oldest = self.0.tail(0)?;
            if self.0.count_of(oldest) == 0 {
                return self.0.pop(0);
            }
            self.0.set_count(oldest, 0);
            self.0.promote(0, oldest);
        }
    }

    fn insert(&mut self, object: u32, bytes: u64) {
        self.0.set_count(object, 0);
        self.0.push(0, object, bytes);
    }
}
