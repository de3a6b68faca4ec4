// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which copies there are, how much they take, and which goes next: the one not used for longest.

use std::collections::HashMap;

use super::record::CopyKey;

/// What a copy takes beside its bytes: its inode and the block of its record.
pub(super) const OVERHEAD_BYTES: u64 = 4096;
const BLOCK_BYTES: u64 = 4096;
/// Eviction goes on to this part of the bound, so that it happens seldom.
const LOW_PERCENT: u64 = 97;
/// The part of the free space that a cache takes by default.
const DEFAULT_PERCENT: u64 = 80;

/// The copies of a cache.
pub(super) struct Index {
    copies: HashMap<CopyKey, Resident>,
    used_bytes: u64,
    /// The part of them that is open or being made, and so cannot be evicted.
    pinned_bytes: u64,
    bytes_wanted: Option<u64>,
    /// What was free when the cache was opened.
    free_bytes: u64,
    /// What copies that were there then take, as far as they are counted.
    found_bytes: u64,
    is_counted: bool,
}

struct Resident {
    bytes: u64,
    used_ns: u64,
    /// When the last use was noted on the disk.
    noted_ns: u64,
    pins: u32,
}

impl Index {
    pub(super) fn new(bytes_wanted: Option<u64>, free_bytes: u64) -> Self {
        Self {
            copies: HashMap::new(),
            used_bytes: 0,
            pinned_bytes: 0,
            bytes_wanted,
            free_bytes,
            found_bytes: 0,
            is_counted: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.copies.len()
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(super) fn bytes_max(&self) -> u64 {
        let ours = self.free_bytes.saturating_add(self.found_bytes);
        self.bytes_wanted.unwrap_or(ours / 100 * DEFAULT_PERCENT)
    }

    /// Notes what is free beside the copies.
    pub(super) fn set_free_bytes(&mut self, free_bytes: u64) {
        self.free_bytes = free_bytes;
    }

    pub(super) fn is_counted(&self) -> bool {
        self.is_counted
    }

    pub(super) fn set_counted(&mut self) {
        self.is_counted = true;
    }

    /// Takes room for a copy of so many bytes that is being made. Returns what has to go for it; `None` where there
    /// is no room beside what is open or being made: then nothing goes.
    pub(super) fn reserve(&mut self, size_bytes: u64) -> Option<Vec<CopyKey>> {
        if !self.may_take(size_bytes) {
            return None;
        }
        let chosen = self.choose(size_bytes);
        self.used_bytes += taken(size_bytes);
        self.pinned_bytes += taken(size_bytes);
        Some(chosen)
    }

    /// Gives room back that was taken by [`Index::reserve`].
    pub(super) fn release(&mut self, size_bytes: u64) {
        self.used_bytes -= taken(size_bytes);
        self.pinned_bytes -= taken(size_bytes);
    }

    /// Whether a copy of so many bytes can have room: all that is not open may go for it.
    pub(super) fn may_take(&self, size_bytes: u64) -> bool {
        self.pinned_bytes.saturating_add(taken(size_bytes)) <= self.bytes_max()
    }

    /// A copy that is in use from the beginning, in place of an older one.
    pub(super) fn add_pinned(&mut self, key: CopyKey, size_bytes: u64, now_ns: u64) {
        let pins = self.remove(key).map_or(0, |old| old.pins);
        self.insert(
            key,
            Resident {
                bytes: taken(size_bytes),
                used_ns: now_ns,
                noted_ns: now_ns,
                pins: pins + 1,
            },
        );
    }

    /// One more use of a copy. Returns whether the time of its last use should be noted on the disk.
    pub(super) fn use_pinned(
        &mut self,
        key: CopyKey,
        size_bytes: u64,
        now_ns: u64,
        period_ns: u64,
    ) -> bool {
        if !self.copies.contains_key(&key) {
            self.add_found(key, size_bytes, 0);
        }
        let copy = self.copies.get_mut(&key).expect("it was added");
        if copy.pins == 0 {
            self.pinned_bytes += copy.bytes;
        }
        copy.pins += 1;
        copy.used_ns = now_ns;
        let is_due = now_ns.saturating_sub(copy.noted_ns) >= period_ns;
        if is_due {
            copy.noted_ns = now_ns;
        }
        is_due
    }

    /// Takes room for so many bytes more of an open copy, of a file that has `size_bytes`. Returns what has to go
    /// for them; `None` where there is no room, or the copy was removed by name: then nothing goes.
    ///
    /// A file that is larger than the cache has free room only: all others would go for a part of it.
    pub(super) fn grow(
        &mut self,
        key: CopyKey,
        bytes: u64,
        size_bytes: u64,
    ) -> Option<Vec<CopyKey>> {
        let bytes_max = self.bytes_max();
        let fits = taken(size_bytes) <= bytes_max;
        let lasting_bytes = if fits { self.pinned_bytes } else { self.used_bytes };
        if lasting_bytes.saturating_add(bytes) > bytes_max || !self.copies.contains_key(&key) {
            return None;
        }
        let chosen = if fits { self.choose(bytes) } else { Vec::new() };
        let copy = self.copies.get_mut(&key)?;
        copy.bytes += bytes;
        self.used_bytes += bytes;
        if copy.pins > 0 {
            self.pinned_bytes += bytes;
        }
        Some(chosen)
    }

    /// Gives room back that was taken by [`Index::grow`].
    pub(super) fn shrink(&mut self, key: CopyKey, bytes: u64) {
        // One that was removed by name has given it back.
        let Some(copy) = self.copies.get_mut(&key) else { return };
        let bytes = bytes.min(copy.bytes);
        copy.bytes -= bytes;
        self.used_bytes -= bytes;
        if copy.pins > 0 {
            self.pinned_bytes -= bytes;
        }
    }

    pub(super) fn unpin(&mut self, key: CopyKey) {
        // One that was removed by name is not there any more.
        let Some(copy) = self.copies.get_mut(&key) else { return };
        if copy.pins == 1 {
            self.pinned_bytes -= copy.bytes;
        }
        copy.pins = copy.pins.saturating_sub(1);
    }

    /// A copy that an earlier process made.
    pub(super) fn add_found(&mut self, key: CopyKey, size_bytes: u64, used_ns: u64) {
        if self.copies.contains_key(&key) {
            return;
        }
        self.found_bytes += taken(size_bytes);
        self.insert(
            key,
            Resident { bytes: taken(size_bytes), used_ns, noted_ns: used_ns, pins: 0 },
        );
    }

    pub(super) fn remove(&mut self, key: CopyKey) -> Option<Evicted> {
        let copy = self.copies.remove(&key)?;
        self.used_bytes -= copy.bytes;
        if copy.pins > 0 {
            self.pinned_bytes -= copy.bytes;
        }
        Some(Evicted { pins: copy.pins })
    }

    /// Takes out what has to go for so many bytes more, and returns it. Nothing that is in use goes, so it
    /// may not be enough.
    pub(super) fn choose(&mut self, size_bytes: u64) -> Vec<CopyKey> {
        let bytes_max = self.bytes_max();
        let needed_bytes = if size_bytes == 0 { 0 } else { taken(size_bytes) };
        if self.used_bytes.saturating_add(needed_bytes) <= bytes_max {
            return Vec::new();
        }
        let low_bytes = (bytes_max / 100 * LOW_PERCENT).saturating_sub(needed_bytes);
        self.take_out(low_bytes)
    }

    /// Takes out what has to go so that the disk has so many bytes more, and returns it.
    pub(super) fn choose_to_free(&mut self, bytes: u64) -> Vec<CopyKey> {
        self.take_out(self.used_bytes.saturating_sub(taken(bytes)))
    }

    /// Takes out copies that are not open, those first that were not used for longest, until no more than so many
    /// bytes are used.
    fn take_out(&mut self, low_bytes: u64) -> Vec<CopyKey> {
        let free = self.copies.iter().filter(|(_, copy)| copy.pins == 0);
        let mut candidates: Vec<_> = free.map(|(key, copy)| (copy.used_ns, *key)).collect();
        candidates.sort_unstable();
        let mut chosen = Vec::new();
        for (_, key) in candidates {
            if self.used_bytes <= low_bytes {
                break;
            }
            self.remove(key);
            chosen.push(key);
        }
        chosen
    }

    fn insert(&mut self, key: CopyKey, copy: Resident) {
        self.used_bytes += copy.bytes;
        if copy.pins > 0 {
            self.pinned_bytes += copy.bytes;
        }
        self.copies.insert(key, copy);
    }
}

/// A copy that is gone.
pub(super) struct Evicted {
    pins: u32,
}

/// What a copy takes on the disk.
fn taken(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES).saturating_add(OVERHEAD_BYTES)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn key(name: &str) -> CopyKey {
        CopyKey::of(Path::new(name))
    }

    #[test]
    fn what_was_not_used_for_longest_goes_and_what_is_open_stays() {
        let mut index = Index::new(Some(10 * taken(4096)), 0);
        for (age, name) in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"].iter().enumerate() {
            index.add_found(key(name), 4096, 100 + age as u64);
        }
        assert_eq!(index.choose(0), [], "it fits");
        index.use_pinned(key("a"), 4096, 1000, u64::MAX);
        assert_eq!(
            index.choose(4096),
            [key("b"), key("c")],
            "room for one, and down to the low mark"
        );
        index.unpin(key("a"));
        assert_eq!(index.used_bytes(), 8 * taken(4096));
        assert!(!index.may_take(index.bytes_max()));
    }

    #[test]
    fn a_copy_that_replaces_another_is_counted_once() {
        let mut index = Index::new(None, 1 << 30);
        index.add_pinned(key("a"), 5000, 1);
        index.add_pinned(key("a"), 100, 2);
        assert_eq!((index.used_bytes(), index.len()), (taken(100), 1));
        index.unpin(key("a"));
        assert_eq!(index.choose(1 << 30), [], "one of the two is open");
        index.unpin(key("a"));
        assert_eq!(index.choose(1 << 30), [key("a")]);
    }

    #[test]
    fn a_copy_grows_only_into_room_that_there_is() {
        let mut index = Index::new(Some(10 * BLOCK_BYTES), 0);
        let fits = 4 * BLOCK_BYTES;
        index.add_found(key("idle"), BLOCK_BYTES, 1);
        index.add_pinned(key("a"), 0, 2);
        assert_eq!(index.grow(key("a"), 6 * BLOCK_BYTES, fits), Some(vec![]));
        assert_eq!(index.used_bytes(), 9 * BLOCK_BYTES);
        assert_eq!(index.grow(key("a"), 2 * BLOCK_BYTES, 1 << 30), None, "it is larger than all");
        assert_eq!(
            index.grow(key("a"), 4 * BLOCK_BYTES, fits),
            None,
            "not even without the idle one"
        );
        assert!(!index.may_take(2 * BLOCK_BYTES + 1) && index.may_take(2 * BLOCK_BYTES));
        assert_eq!(index.len(), 2, "nothing goes in vain");
        assert_eq!(index.grow(key("a"), 2 * BLOCK_BYTES, fits), Some(vec![key("idle")]));
        index.shrink(key("a"), 3 * BLOCK_BYTES);
        assert_eq!(index.used_bytes(), 6 * BLOCK_BYTES);
        index.unpin(key("a"));
        assert!(index.may_take(9 * BLOCK_BYTES), "nothing is open");
        index.use_pinned(key("a"), 0, 3, 0);
        assert!(!index.may_take(4 * BLOCK_BYTES));
        index.remove(key("a"));
        assert!(index.may_take(9 * BLOCK_BYTES));
        assert_eq!(index.grow(key("a"), BLOCK_BYTES, fits), None, "it was removed by name");
    }
}
