// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers without gaps for the objects of a trace, in the order in which they come.

use terrace_core::{Error, ErrorKind, Result};

/// Objects at most: one number is left to stand for none.
const OBJECTS_MAX: usize = u32::MAX as usize - 1;

/// No number yet.
const NONE: u32 = u32::MAX;

/// Slots of a new table.
const SLOTS_FIRST: usize = 1 << 12;

/// A hash table with open addressing, which is asked about many objects at a time: what they hash to
/// is fetched for all of them before anything depends on it, so that the memory works on all at once.
#[derive(Debug)]
pub(crate) struct Objects {
    /// As many as a power of two, at most three quarters of them taken.
    slots: Vec<Slot>,
    count: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    object: u64,
    number: u32,
}

const EMPTY: Slot = Slot { object: 0, number: NONE };

impl Default for Objects {
    fn default() -> Self {
        Self { slots: vec![EMPTY; SLOTS_FIRST], count: 0 }
    }
}

impl Objects {
    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Appends the number of each object.
    ///
    /// # Errors
    ///
    /// `Unsupported` for more objects than there are numbers.
    pub(crate) fn numbers(
        &mut self,
        objects: impl Iterator<Item = u64> + Clone,
        numbers: &mut Vec<u32>,
    ) -> Result<()> {
        let start = numbers.len();
        let mask = self.slots.len() - 1;
        numbers.extend(objects.clone().map(|object| {
            let slot = self.slots[hash(object) & mask];
            if slot.object == object { slot.number } else { NONE }
        }));
        for (number, object) in numbers[start..].iter_mut().zip(objects) {
            if *number == NONE {
                *number = self.number(object)?;
            }
        }
        Ok(())
    }

    /// The number of an object that has one.
    pub(crate) fn find(&self, object: u64) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = hash(object) & mask;
        loop {
            let slot = self.slots[at];
            match slot.number {
                NONE => return None,
                number if slot.object == object => return Some(number),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// The number of one object.
    fn number(&mut self, object: u64) -> Result<u32> {
        let mask = self.slots.len() - 1;
        let mut at = hash(object) & mask;
        loop {
            let slot = self.slots[at];
            if slot.number == NONE {
                break;
            }
            if slot.object == object {
                return Ok(slot.number);
            }
            at = (at + 1) & mask;
        }
        let number = self.count;
        if number as usize >= OBJECTS_MAX {
            let error = Error::new(ErrorKind::Unsupported, "replay the trace");
            return Err(error.because("it has too many objects").with("objects_max", OBJECTS_MAX));
        }
        self.slots[at] = Slot { object, number };
        self.count += 1;
        if self.count as usize * 4 > self.slots.len() * 3 {
            self.grow();
        }
        Ok(number)
    }

    fn grow(&mut self) {
        let slots = vec![EMPTY; self.slots.len() * 2];
        let mask = slots.len() - 1;
        for slot in std::mem::replace(&mut self.slots, slots) {
            if slot.number == NONE {
                continue;
            }
            let mut at = hash(slot.object) & mask;
            while self.slots[at].number != NONE {
                at = (at + 1) & mask;
            }
            self.slots[at] = slot;
        }
    }
}

/// Multiplies (Knuth's Fibonacci hashing) and folds the upper half, where the mixing is, onto the
/// lower.
fn hash(object: u64) -> usize {
    let product = u128::from(object) * 0x9e37_79b9_7f4a_7c15;
    ((product >> 64) ^ product) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use terrace_core::Random;

    use super::*;

    #[test]
    fn numbers_are_given_in_order_and_kept() {
        let mut random = Random::new(1);
        let mut objects = Objects::default();
        let mut right: HashMap<u64, u32> = HashMap::new();
        for _ in 0..200 {
            let batch: Vec<u64> =
                (0..500).map(|_| random.below(30_000) << random.below(40)).collect();
            let mut numbers = Vec::new();
            objects.numbers(batch.iter().copied(), &mut numbers).unwrap();
            for (object, number) in batch.iter().zip(numbers) {
                let next = right.len() as u32;
                assert_eq!(number, *right.entry(*object).or_insert(next));
            }
        }
        assert_eq!(objects.count() as usize, right.len());
    }
}
