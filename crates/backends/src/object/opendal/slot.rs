// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small objects that are replaced: two files, of which the older one is overwritten. One that was written
//! in part fails its checksum, and the other one counts.

use bytes::Bytes;

/// What the name of the second file ends in; no escaped name does.
pub(super) const SECOND: &str = "=2";

/// Bytes beside the content: a number in front of it and a checksum behind it.
const NUMBER_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 4;

/// A file that was written completely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// Counts the replacements, from 1.
    pub(super) number: u64,
    pub(super) content: Bytes,
}

impl Slot {
    /// `None` for one that was not written completely.
    pub(super) fn decode(bytes: &Bytes) -> Option<Self> {
        let (body, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let (number, _) = body.split_first_chunk::<NUMBER_BYTES>()?;
        let content = bytes.slice(NUMBER_BYTES..body.len());
        Some(Self { number: u64::from_le_bytes(*number), content })
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut bytes = self.number.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.content);
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes.into()
    }

    /// What a conditional write compares.
    pub(super) fn tag(&self) -> String {
        format!("{}-{:08x}", self.number, crc32c::crc32c(&self.content))
    }
}

/// Both files of an object, as they were read; `None` where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pair(pub(super) [Option<Bytes>; 2]);

impl Pair {
    /// Whether there is but the first file, and that is a part of the first one that was written, whose content begins
    /// with `start`.
    pub(super) fn is_first_torn(&self, start: &[u8]) -> bool {
        let [Some(first), None] = &self.0 else { return false };
        let begun = [&1_u64.to_le_bytes()[..], start].concat();
        let length = first.len().min(begun.len());
        first[..length] == begun[..length] && Slot::decode(first).is_none()
    }

    /// The one that counts, and its place.
    pub(super) fn current(&self) -> Option<(usize, Slot)> {
        let whole =
            |(at, bytes): (usize, &Option<Bytes>)| Some((at, Slot::decode(bytes.as_ref()?)?));
        self.0.iter().enumerate().filter_map(whole).max_by_key(|(_, slot)| slot.number)
    }

    /// What a reader gets: the content that counts, else what there is, which is damaged.
    pub(super) fn content(&self) -> Option<Bytes> {
        let damaged = || self.0.iter().flatten().next().cloned();
        self.current().map(|(_, slot)| slot.content).or_else(damaged)
    }

    /// The next content, and the file that it is written to.
    pub(super) fn next(&self, content: Bytes) -> (usize, Slot) {
        match self.current() {
            Some((at, slot)) => (1 - at, Slot { number: slot.number + 1, content }),
            None => (0, Slot { number: 1, content }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pair: &mut Pair, content: &'static [u8]) {
        let (at, slot) = pair.next(Bytes::from_static(content));
        pair.0[at] = Some(slot.encode());
    }

    #[test]
    fn the_last_whole_content_counts() {
        let mut pair = Pair::default();
        assert_eq!(pair.content(), None);
        for content in [&b"one"[..], b"", b"three", b"four"] {
            written(&mut pair, content);
            assert_eq!(pair.content().as_deref(), Some(content));
        }
    }

    #[test]
    fn an_interrupted_replacement_leaves_the_content_before() {
        let mut pair = Pair::default();
        written(&mut pair, b"one");
        written(&mut pair, b"two");
        let (at, slot) = pair.next(Bytes::from_static(b"three"));
        let whole = slot.encode();
        for bytes in 0..whole.len() {
            let mut torn = pair.clone();
            torn.0[at] = Some(whole.slice(..bytes));
            assert_eq!(torn.content().as_deref(), Some(&b"two"[..]), "{bytes} bytes");
            // The next one overwrites what is torn, and not what counts.
            written(&mut torn, b"four");
            assert_eq!(torn.content().as_deref(), Some(&b"four"[..]));
        }
    }

    #[test]
    fn a_first_content_that_is_torn_is_there_and_damaged() {
        let whole = Slot { number: 1, content: Bytes::from_static(b"one") }.encode();
        let pair = Pair([Some(whole.slice(..5)), None]);
        assert_eq!(pair.current(), None);
        assert_eq!(pair.content(), Some(whole.slice(..5)));
    }

    #[test]
    fn a_part_of_the_first_content_is_told_from_other_files() {
        let whole = Slot { number: 1, content: Bytes::from_static(b"title and more") }.encode();
        let is_torn = |first: Bytes, second| Pair([Some(first), second]).is_first_torn(b"title");
        for length in 0..whole.len() {
            assert!(is_torn(whole.slice(..length), None), "{length}");
        }
        assert!(!is_torn(whole.clone(), None), "it is whole");
        assert!(!is_torn(whole.slice(..9), Some(whole.clone())), "there was a second one");
        assert!(!is_torn(Bytes::from_static(b"minutes of a meeting"), None));
        let later = Slot { number: 3, content: Bytes::from_static(b"title and more") }.encode();
        assert!(!is_torn(later.slice(..12), None), "another one was there before");
        assert!(!Pair::default().is_first_torn(b"title"));
    }

    #[test]
    fn tags_differ_by_number_and_content() {
        let tag = |number, content: &'static [u8]| {
            Slot { number, content: Bytes::from_static(content) }.tag()
        };
        assert_ne!(tag(1, b"a"), tag(2, b"a"));
        assert_ne!(tag(1, b"a"), tag(1, b"b"));
    }
}
