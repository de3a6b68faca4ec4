// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Least recently used.

use super::lists::Lists;
use super::{Replacement, Victim};

/// What was not asked for for longest goes first.
#[derive(Debug, Default)]
pub struct Lru(Lists<1>);

impl Replacement for Lru {
    fn grow(&mut self, objects: usize) {
        self.0.grow(objects);
    }

    fn contains(&self, object: u32) -> bool {
        self.0.list_of(object).is_some()
    }

    fn hit(&mut self, object: u32) {
        self.0.promote(0, object);
    }

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
