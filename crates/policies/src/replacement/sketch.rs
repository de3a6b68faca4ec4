// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often each object was asked for lately, roughly and in little memory.

/// Counters in four rows, of which an object has one in each: a count-min sketch (Cormode and
/// Muthukrishnan 2005). Only the smallest of them grow (Estan and Varghese 2002), to 15 at most,
/// and all are halved after so many additions, so that what was popular is forgotten (Einziger et
/// al., TOS 2017, section 3.3).
#[derive(Debug)]
pub(super) struct Sketch {
    rows: [Vec<u8>; ROWS],
    additions: u64,
    width_max: usize,
}

const ROWS: usize = 4;

/// Counters of four bits, as the paper takes; a byte each here, because a byte is quicker.
const COUNTER_MAX: u8 = 15;

/// Counters a row from the beginning, if there may be so many.
const WIDTH_FIRST: usize = 1 << 17;

/// Counters a row at most: 1 GiB in all.
const WIDTH_MAX: usize = 1 << 28;

/// Additions after which all counters are halved, for each counter of a row: the paper's ratio of
/// sample to cache, as its evaluation chooses it.
const SAMPLE_FACTOR: u64 = 10;

impl Sketch {
    /// For a cache that holds so many objects at most, or as many bytes.
    pub(super) fn new(objects_max: u64) -> Self {
        let width_max = objects_max.clamp(1, WIDTH_MAX as u64).next_power_of_two() as usize;
        let width = width_max.min(WIDTH_FIRST);
        Self { rows: std::array::from_fn(|_| vec![0; width]), additions: 0, width_max }
    }

    /// Counts a request.
    pub(super) fn add(&mut self, object: u32) {
        self.widen(object);
        let places = self.places(object);
        let least = self.least(places);
        if least < COUNTER_MAX {
            for (row, place) in self.rows.iter_mut().zip(places) {
                row[place] += u8::from(row[place] == least);
            }
        }
        self.additions += 1;
        if self.additions >= SAMPLE_FACTOR * self.rows[0].len() as u64 {
            self.additions = 0;
            self.rows.iter_mut().flatten().for_each(|counter| *counter /= 2);
        }
    }

    /// How often an object was asked for; never too low since the counters were last halved.
    pub(super) fn estimate(&self, object: u32) -> u8 {
        self.least(self.places(object))
    }

    /// Takes what is counted of an object from its counters. What shares all of them with it seems
    /// to have been asked for less often; what shares some does not.
    pub(super) fn forget(&mut self, object: u32) {
        let places = self.places(object);
        let least = self.least(places);
        for (row, place) in self.rows.iter_mut().zip(places) {
            row[place] -= least;
        }
    }

    /// Lets an object have been asked for so often at least.
    pub(super) fn raise(&mut self, object: u32, estimate: u8) {
        self.widen(object);
        let places = self.places(object);
        for (row, place) in self.rows.iter_mut().zip(places) {
            row[place] = row[place].max(estimate.min(COUNTER_MAX));
        }
    }

    /// Additions since the counters were last halved.
    pub(super) fn additions(&self) -> u64 {
        self.additions
    }

    /// Goes on after so many additions.
    pub(super) fn resume(&mut self, additions: u64) {
        self.additions = additions.min(SAMPLE_FACTOR * self.rows[0].len() as u64 - 1);
    }

    fn least(&self, places: [usize; ROWS]) -> u8 {
        self.rows.iter().zip(places).map(|(row, place)| row[place]).min().unwrap_or(0)
    }

    fn places(&self, object: u32) -> [usize; ROWS] {
        let mask = self.rows[0].len() - 1;
        let seed = |row: usize| STEP.wrapping_mul(row as u64 + 1);
        let hash = |row: usize| mix(u64::from(object).wrapping_add(seed(row)));
        std::array::from_fn(|row| hash(row) as usize & mask)
    }

    /// As many counters a row as there are objects, while the cache may hold so many: both halves of
    /// a row that doubles have what the row had.
    fn widen(&mut self, object: u32) {
        while self.rows[0].len() <= object as usize && self.rows[0].len() < self.width_max {
            self.rows.iter_mut().for_each(|row| row.extend_from_within(..));
        }
    }
}

/// What sets the rows apart: 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finisher of SplitMix64 (Steele, Lea and Flood 2014).
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_never_too_low() {
        let mut sketch = Sketch::new(64);
        let mut counts = [0u8; 200];
        for step in 0..500u32 {
            let object = (step * step) % 200;
            sketch.add(object);
            counts[object as usize] = (counts[object as usize] + 1).min(COUNTER_MAX);
            assert!(sketch.estimate(object) >= counts[object as usize]);
        }
    }

    #[test]
    fn counts_are_halved_after_a_sample() {
        let mut sketch = Sketch::new(8);
        (0..9).for_each(|_| sketch.add(3));
        assert_eq!(sketch.estimate(3), 9);
        (9..8 * SAMPLE_FACTOR).for_each(|_| sketch.add(3));
        assert_eq!(sketch.estimate(3), COUNTER_MAX / 2);
    }

    #[test]
    fn widening_forgets_nothing() {
        let mut sketch = Sketch::new(u64::MAX);
        (0..5).for_each(|_| sketch.add(7));
        sketch.add(WIDTH_FIRST as u32 * 3);
        assert_eq!(sketch.rows[0].len(), WIDTH_FIRST * 4);
        assert_eq!(sketch.estimate(7), 5);
    }
}
