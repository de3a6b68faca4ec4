// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order that knows the future (Belady, IBM Systems Journal 1966).

use std::collections::BTreeSet;

use terrace_policies::replacement::{Replacement, Victim};

/// The next request of an object without further requests.
pub(crate) const NEVER: u64 = u64::MAX;

/// What is needed again last goes first. Every object enters: an optimum for objects of one size
/// among the orders that keep none out.
#[derive(Debug, Default)]
pub(crate) struct Belady {
    order: BTreeSet<(u64, u32)>,
    objects: Vec<Option<Known>>,
    /// When the object that is asked for now is asked for again.
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    next: u64,
    bytes: u64,
}

impl Belady {
    /// Tells when the object of the coming request is asked for again.
    pub(crate) fn set_next(&mut self, next: u64) {
        self.next = next;
    }

    fn put(&mut self, object: u32, bytes: u64) {
        self.objects[object as usize] = Some(Known { next: self.next, bytes });
        self.order.insert((self.next, object));
    }
}

impl Replacement for Belady {
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
        if let Some(Known { next, bytes }) = self.objects[object as usize] {
            self.order.remove(&(next, object));
            self.put(object, bytes);
        }
    }

    fn miss(&mut self, _: u32, _: u64) -> bool {
        true
    }

    fn evict(&mut self) -> Option<Victim> {
        let (_, object) = self.order.pop_last()?;
        let known = self.objects[object as usize].take()?;
        Some(Victim { object, bytes: known.bytes })
    }

    fn insert(&mut self, object: u32, bytes: u64) {
        self.put(object, bytes);
    }
}
