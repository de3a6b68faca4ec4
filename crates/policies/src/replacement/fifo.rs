// SPDX-License-Identifier: Apache-2.0 OR MIT
//! First in, first out.

use super::lists::Lists;
use super::{Replacement, Victim};

/// What entered first goes first.
#[derive(Debug, Default)]
pub struct Fifo(Lists<1>);

impl Replacement for Fifo {
    fn grow(&mut self, objects: usize) {
        self.0.grow(objects);
    }

    fn contains(&self, object: u32) -> bool {
        self.0.list_of(object).is_some()
    }

    fn hit(&mut self, _: u32) {}

    fn miss(&mut self, _: u32, _: u64) {}

    fn evict(&mut self) -> Option<Victim> {
        self.0.pop(0)
    }

    fn also_left(&mut self) -> Option<Victim> {
        None
    }

    fn insert(&mut self, object: u32, bytes: u64) -> bool {
        self.0.push(0, object, bytes);
        true
    }
}
