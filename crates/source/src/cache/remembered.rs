// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of directories and links that are on the disk, and which of them go: those not used for longest.

use std::collections::HashMap;

use super::evict::OVERHEAD_BYTES;
use super::record::CopyKey;
use crate::meta::{Meta, Time};

/// Most records.
const COUNT_MAX: u64 = 100_000;
/// So many are kept in a small cache, too: the directories above its copies.
const COUNT_MIN: u64 = 256;
/// Records take this part of what copies may take.
const PART: u64 = 16;
/// Removing goes on to this part of the bound, so that it happens seldom.
const LOW_PERCENT: usize = 97;

/// The records of directories and links in a cache.
#[derive(Default)]
pub(super) struct Remembered {
    records: HashMap<CopyKey, Kept>,
}

struct Kept {
    /// The state that the record has, and its epoch; `None` where an earlier process made it.
    made: Option<((Time, Time), u64)>,
    used_ns: u64,
}

impl Remembered {
    /// How many records a cache has at most.
    pub(super) fn count_max(bytes_max: u64) -> usize {
        (bytes_max / PART / OVERHEAD_BYTES).clamp(COUNT_MIN, COUNT_MAX) as usize
    }

    /// The epoch of the record, where it is of this state. Notes the use.
    pub(super) fn epoch_of(&mut self, key: CopyKey, meta: &Meta, now_ns: u64) -> Option<u64> {
        let kept = self.records.get_mut(&key)?;
        kept.used_ns = now_ns;
        let (times, epoch) = kept.made?;
        (times == (meta.modified, meta.changed)).then_some(epoch)
    }

    /// A record was made in an epoch. Takes out what has to go for it, and returns it.
    pub(super) fn add(
        &mut self,
        key: CopyKey,
        meta: &Meta,
        epoch: u64,
        now_ns: u64,
        count_max: usize,
    ) -> Vec<CopyKey> {
        let made = Some(((meta.modified, meta.changed), epoch));
        self.records.insert(key, Kept { made, used_ns: now_ns });
        self.take_out(count_max)
    }

    /// A record that an earlier process made.
    pub(super) fn add_found(&mut self, key: CopyKey, used_ns: u64) {
        self.records.entry(key).or_insert(Kept { made: None, used_ns });
    }

    /// A copy has taken the place of a record.
    pub(super) fn remove(&mut self, key: CopyKey) {
        self.records.remove(&key);
    }

    /// Takes out the records that are too many, and returns them.
    pub(super) fn take_out(&mut self, count_max: usize) -> Vec<CopyKey> {
        if self.records.len() <= count_max {
            return Vec::new();
        }
        let mut all: Vec<_> = self.records.iter().map(|(key, kept)| (kept.used_ns, *key)).collect();
        all.sort_unstable();
        let count = all.len() - count_max * LOW_PERCENT / 100;
        let chosen: Vec<_> = all[..count].iter().map(|(_, key)| *key).collect();
        for key in &chosen {
            self.records.remove(key);
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn records_not_used_for_longest_go() {
        let stat = rustix::fs::stat("/").expect("root");
        let (meta, later) = (Meta::of(&stat), Meta { modified: (1, 2), ..Meta::of(&stat) });
        let key = |number: u64| CopyKey::of(Path::new(&number.to_string()));
        let mut remembered = Remembered::default();
        for number in 0..100 {
            remembered.add_found(key(number), number);
        }
        assert_eq!(remembered.epoch_of(key(0), &meta, 200), None, "of an earlier process");
        assert_eq!(remembered.add(key(1), &meta, 7, 201, 100), [], "it was there");
        assert_eq!(remembered.epoch_of(key(1), &meta, 201), Some(7));
        assert_eq!(remembered.epoch_of(key(1), &later, 201), None);
        let gone = remembered.add(key(100), &meta, 7, 202, 100);
        assert_eq!(gone, [key(2), key(3), key(4), key(5)]);
        remembered.remove(key(1));
        assert_eq!(remembered.epoch_of(key(1), &meta, 203), None);
        assert_eq!(remembered.records.len(), 96);
    }
}
