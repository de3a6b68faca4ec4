// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The places that appends to an object took last, each with the token of its append: an append
//! that does not know whether a place was taken finds it again, or gives it back.
//!
//! Specified, with a test vector, in `docs/formats/layout.md`.

use std::ops::Range;

use terrace_core::{Result, check_extent};

/// First bytes of the pair: what it is, and its version.
const TAG: [u8; 2] = [b'T', 1];

/// So many places are known. Where more appends come between a lost answer and the question for it,
/// a place is not found again, and a gap stays.
const PLACES_MAX: usize = 16;

/// The token of an append, and what it took.
type Taken = (u128, Range<u64>);

/// An append that may have taken a place, and has not written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) token: u128,
    /// How long the object was when it asked first.
    pub(super) size_bytes: u64,
}

/// Where the next append goes, and which places were taken last, the latest at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    end_bytes: u64,
    taken: Vec<Taken>,
}

impl Places {
    /// From the two pairs of an object. What is no number names no end. Places that do not belong to
    /// the end are none: a client that knows only of the end has changed it.
    pub(super) fn read(end: Option<&[u8]>, taken: Option<&[u8]>) -> Self {
        let end_bytes = end.and_then(|end| end.try_into().ok()).map(u64::from_le_bytes);
        let taken = taken.and_then(decode).filter(|(end, _)| Some(*end) == end_bytes);
        let taken = taken.map(|(_, taken)| taken).unwrap_or_default();
        Self { end_bytes: end_bytes.unwrap_or(0), taken }
    }

    /// Forgets the places where the object, which is so long, shows that they no longer count: such a
    /// client has cut it, and appended to it up to the same end as before.
    ///
    /// - It is shorter than when an append asked for a place.
    /// - It reaches into the last place, and `asked` has that and has not written anything.
    pub(super) fn check(&mut self, asked: &Asked, others: &[Asked], size_bytes: u64) {
        let is_cut =
            |asked: &Asked| self.find(asked.token).is_some() && size_bytes < asked.size_bytes;
        let last = self.taken.last().filter(|(_, range)| range.end == self.end_bytes);
        let is_last = |(token, range): &Taken| *token == asked.token && range.start < size_bytes;
        if last.is_some_and(is_last) || is_cut(asked) || others.iter().any(is_cut) {
            self.taken.clear();
        }
    }

    /// Where the next append begins, unless the object is longer.
    pub(super) fn end(&self) -> [u8; 8] {
        self.end_bytes.to_le_bytes()
    }

    /// What the pair beside that of the end holds.
    pub(super) fn taken(&self) -> Vec<u8> {
        let mut bytes = [&TAG[..], &self.end()].concat();
        for (token, range) in &self.taken {
            bytes.extend(token.to_le_bytes());
            bytes.extend(range.start.to_le_bytes());
            bytes.extend(range.end.to_le_bytes());
        }
        bytes
    }

    /// Where what was taken with this token begins, wherever others went since.
    pub(super) fn find(&self, token: u128) -> Option<u64> {
        let mut taken = self.taken.iter();
        taken.find(|(other, _)| *other == token).map(|(_, range)| range.start)
    }

    /// Takes the next bytes of an object that is so long, and returns where they begin.
    ///
    /// # Errors
    ///
    /// `Invalid` where the object would be too long.
    pub(super) fn take(&mut self, token: u128, size_bytes: u64, length_bytes: u64) -> Result<u64> {
        // Where the pair is behind, because others wrote or power was lost, the length counts.
        let start = self.end_bytes.max(size_bytes);
        check_extent(start, length_bytes)?;
        self.end_bytes = start + length_bytes;
        self.taken.push((token, start..self.end_bytes));
        if self.taken.len() > PLACES_MAX {
            self.taken.remove(0);
        }
        Ok(start)
    }

    /// Gives back the last place, where one of these tokens took it, and those before it that these
    /// took as well; whether there was any.
    pub(super) fn give_back(&mut self, tokens: &[u128]) -> bool {
        let mut is_any = false;
        // Between two places another client may have written.
        while let Some((_, range)) = self
            .taken
            .pop_if(|(token, range)| range.end == self.end_bytes && tokens.contains(token))
        {
            self.end_bytes = range.start;
            is_any = true;
        }
        is_any
    }
}

fn decode(bytes: &[u8]) -> Option<(u64, Vec<Taken>)> {
    let rest = bytes.strip_prefix(&TAG)?;
    let (end_bytes, rest) = rest.split_first_chunk()?;
    let (places, rest) = rest.as_chunks::<32>();
    if !rest.is_empty() || places.len() > PLACES_MAX {
        return None;
    }
    let number = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
    let place = |place: &[u8; 32]| {
        let (token, range) = place.split_first_chunk()?;
        let (start, end) = range.split_at(8);
        Some((u128::from_le_bytes(*token), number(start)?..number(end)?))
    };
    let places: Option<Vec<Taken>> = places.iter().map(place).collect();
    let (places, end_bytes) = (places?, u64::from_le_bytes(*end_bytes));
    // They follow each other, up to the end.
    let starts = places.iter().skip(1).map(|(_, range)| range.start).chain([end_bytes]);
    let is_before =
        |((_, range), next): (&Taken, u64)| range.start < range.end && range.end <= next;
    places.iter().zip(starts).all(is_before).then_some((end_bytes, places))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../../docs/formats/layout.md");

    fn again(places: &Places) -> Places {
        Places::read(Some(&places.end()), Some(&places.taken()))
    }

    #[test]
    fn the_example_of_the_documentation_is_written_and_read() {
        let mut places = Places::default();
        places.take(0xfedc_ba98_7654_3210_0123_4567_89ab_cdef, 0, 4096).expect("fits");
        places.take(1, 5000, 96).expect("fits");
        let bytes = places.taken();
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let (_, example) = DOCUMENT.split_once("The places of two appends").expect("it is there");
        let (_, example) = example.split_once("```vector\n").expect("a vector follows");
        let (example, _) = example.split_once("```").expect("it ends");
        assert_eq!(example.split_whitespace().collect::<String>(), digits);
        assert_eq!(again(&places), places);
    }

    #[test]
    fn a_place_is_found_until_many_others_were_taken() {
        let mut places = Places::default();
        assert_eq!(places.take(7, 10, 5).expect("fits"), 10);
        for token in 100..100 + PLACES_MAX as u128 {
            assert_eq!(again(&places).find(7), Some(10));
            places.take(token, 0, 1).expect("fits");
        }
        assert_eq!(again(&places).find(7), None);
    }

    #[test]
    fn only_what_is_last_is_given_back() {
        let mut places = Places::default();
        for token in 1..=3 {
            places.take(token, 0, 10).expect("fits");
        }
        assert!(!places.give_back(&[2]));
        assert!(places.give_back(&[3, 2]));
        assert_eq!((places.find(1), places.find(2)), (Some(0), None));
        assert_eq!(u64::from_le_bytes(places.end()), 10);
        // Another client wrote up to 30: what was taken before that stays.
        places.take(4, 30, 5).expect("fits");
        assert!(places.give_back(&[1, 4]));
        assert_eq!((places.find(1), u64::from_le_bytes(places.end())), (Some(0), 30));
    }

    #[test]
    fn places_of_an_object_that_was_cut_since_do_not_count() {
        let asked = |token, size_bytes| Asked { token, size_bytes };
        let mut places = Places::default();
        places.take(1, 10, 10).expect("fits");
        places.take(2, 10, 10).expect("fits");
        let counts = |token, asked: &Asked, others: &[Asked], size_bytes| {
            let mut places = places.clone();
            places.check(asked, others, size_bytes);
            places.find(token).is_some()
        };
        for size_bytes in [10, 20] {
            assert!(counts(2, &asked(2, 10), &[asked(1, 10)], size_bytes));
        }
        assert!(!counts(2, &asked(2, 10), &[], 9), "it was cut");
        assert!(!counts(1, &asked(2, 10), &[], 9), "for all of them");
        assert!(!counts(2, &asked(3, 0), &[asked(1, 10)], 9));
        assert!(counts(2, &asked(3, 10), &[asked(4, 10)], 9), "none of these has a place");
        assert!(!counts(2, &asked(2, 10), &[], 21), "somebody has written there");
        assert!(counts(1, &asked(1, 10), &[], 40), "there, or behind it");
    }

    #[test]
    fn places_that_do_not_follow_each_other_up_to_the_end_do_not_count() {
        let counts = |end_bytes, ranges: &[(u64, u64)]| {
            let taken = ranges.iter().map(|(start, end)| (1, *start..*end)).collect();
            let places = Places { end_bytes, taken };
            again(&places) == places
        };
        for ranges in [&[(0, 10), (10, 20), (25, 30)][..], &[(0, 10)], &[]] {
            assert!(counts(30, ranges), "{ranges:?}");
        }
        for ranges in [[(0, 10), (9, 20)], [(10, 20), (0, 10)], [(0, 5), (5, 5)], [(0, 6), (6, 5)]]
        {
            assert!(!counts(30, &ranges), "{ranges:?}");
        }
        assert!(!counts(29, &[(0, 30)]));
    }

    #[test]
    fn places_do_not_count_after_the_end_was_changed_without_them() {
        let mut places = Places::default();
        places.take(1, 0, 10).expect("fits");
        let taken = places.taken();
        assert_eq!(Places::read(Some(&20_u64.to_le_bytes()), Some(&taken)).find(1), None);
        assert_eq!(Places::read(None, Some(&taken)), Places::default());
        for index in 0..taken.len() {
            assert_eq!(Places::read(Some(&places.end()), Some(&taken[..index])).find(1), None);
        }
    }
}
