// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cache of bounded size that gives up objects in some order.

use std::hint::black_box;

use super::Replacement;

/// Follows requests: a request for what is not there makes room for it, and it enters.
///
/// An object larger than the cache passes it by. One that is there keeps the size with which it
/// entered.
#[derive(Debug)]
pub struct Cache<R> {
    order: R,
    capacity_bytes: u64,
    used_bytes: u64,
}

impl<R: Replacement> Cache<R> {
    /// An empty cache. An order that depends on the capacity is to be made with the same one.
    pub fn new(order: R, capacity_bytes: u64) -> Self {
        Self { order, capacity_bytes, used_bytes: 0 }
    }

    /// From now on there are objects with all numbers below this.
    pub fn grow(&mut self, objects: usize) {
        self.order.grow(objects);
    }

    /// Prepares for requests for these objects ([`Replacement::touch`]).
    pub fn touch(&self, objects: &[u32]) {
        black_box(self.order.touch(objects));
    }

    /// Asks for an object; whether it is there. If not, it is from now on, unless it is too large
    /// or the order keeps it out.
    #[inline]
    pub fn request(&mut self, object: u32, bytes: u64) -> bool {
        if self.order.contains(object) {
            self.order.hit(object);
            self.settle();
            return true;
        }
        if !self.order.miss(object, bytes) || bytes > self.capacity_bytes {
            return false;
        }
        while self.used_bytes > self.capacity_bytes - bytes {
            let Some(victim) = self.order.evict() else { break };
            self.used_bytes -= victim.bytes;
            self.settle();
        }
        self.order.insert(object, bytes);
        self.used_bytes += bytes;
        false
    }

    /// The sizes of all that is there.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// The order.
    pub fn order(&self) -> &R {
        &self.order
    }

    /// The order, to tell it more than requests.
    pub fn order_mut(&mut self) -> &mut R {
        &mut self.order
    }

    fn settle(&mut self) {
        while let Some(victim) = self.order.also_left() {
            self.used_bytes -= victim.bytes;
        }
    }
}
