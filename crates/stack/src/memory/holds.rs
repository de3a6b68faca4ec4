// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The holders of a segment's file, which use it past the stack: as long as there is one, the segment stays
//! where it is.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use terrace_core::Access;

/// Why a segment that is held is not moved.
pub(crate) const HELD: &str = "it is held: its file is open past the store";

/// The holds on one segment. They change under the `changes` of its object, so that with that lock
/// no holder comes or leaves.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// Handles that hold it for reading.
    readers: AtomicU32,
    /// Handles that hold it for writing.
    writers: AtomicU32,
    /// Odd from the first of those on until the file can no longer be written to. It only grows:
    /// the same even number twice means that all writes in between passed the guard.
    writings: AtomicU32,
}

/// What a handle holds.
#[derive(Debug, Default)]
pub(crate) struct Holder {
    reads: AtomicBool,
    writes: AtomicBool,
}

impl Holds {
    /// Whether the segment has to stay where it is.
    pub(crate) fn is_held(&self) -> bool {
        self.is_written() || self.readers.load(Ordering::Acquire) > 0
    }

    /// Whether bytes may change behind the stack's back.
    #[inline]
    pub(crate) fn is_written(&self) -> bool {
        self.writings() % 2 == 1
    }

    /// A number that is another one after each time that bytes may have changed.
    pub(crate) fn writings(&self) -> u32 {
        self.writings.load(Ordering::Acquire)
    }

    /// Whether every handle that held it for writing is gone, and the file can be written to all the same.
    pub(crate) fn is_left(&self) -> bool {
        self.is_written() && self.writers.load(Ordering::Acquire) == 0
    }

    /// Adds a handle, unless it holds the segment so already.
    pub(crate) fn add(&self, holder: &Holder, access: Access) {
        let (is_counted, count) = match access {
            Access::Read => (&holder.reads, &self.readers),
            Access::Write => (&holder.writes, &self.writers),
        };
        if !is_counted.swap(true, Ordering::AcqRel) {
            count.fetch_add(1, Ordering::AcqRel);
        }
        if access == Access::Write && !self.is_written() {
            self.writings.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Takes a handle away that is closed.
    pub(crate) fn remove(&self, holder: &Holder) {
        let both = [(&holder.reads, &self.readers), (&holder.writes, &self.writers)];
        for (is_counted, count) in both {
            if is_counted.swap(false, Ordering::AcqRel) {
                count.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    /// A process that has ended held it for writing.
    pub(crate) fn leave(&self) {
        assert!(!self.is_written(), "nobody holds it yet");
        self.writings.fetch_add(1, Ordering::AcqRel);
    }

    /// It can no longer be written to past the stack.
    pub(crate) fn end_writing(&self) {
        assert!(self.is_left(), "the last holder is gone");
        self.writings.fetch_add(1, Ordering::AcqRel);
    }

    /// For people: how it is held.
    pub(crate) fn word(&self) -> Option<&'static str> {
        match (self.is_left(), self.is_written(), self.is_held()) {
            (true, ..) => Some("left"),
            (_, true, _) => Some("writing"),
            (.., true) => Some("reading"),
            _ => None,
        }
    }
}

impl Holder {
    /// Whether it holds anything.
    pub(crate) fn is_any(&self) -> bool {
        self.reads.load(Ordering::Acquire) || self.is_writing()
    }

    /// Whether it holds a segment for writing.
    pub(crate) fn is_writing(&self) -> bool {
        self.writes.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_held_until_nobody_can_write() {
        let (holds, one, other) = (Holds::default(), Holder::default(), Holder::default());
        assert!(!holds.is_held() && holds.word().is_none());
        holds.add(&one, Access::Read);
        holds.add(&one, Access::Read);
        assert!(holds.is_held() && !holds.is_written());
        assert_eq!(holds.word(), Some("reading"));
        let before = holds.writings();
        holds.add(&one, Access::Write);
        holds.add(&other, Access::Write);
        holds.remove(&one);
        assert!(!one.is_any() && holds.is_written() && !holds.is_left());
        assert_eq!(holds.word(), Some("writing"));
        holds.remove(&other);
        assert!(holds.is_left() && holds.is_held());
        assert_eq!(holds.word(), Some("left"));
        // A new holder makes it one time longer.
        holds.add(&other, Access::Write);
        assert!(!holds.is_left());
        holds.remove(&other);
        holds.end_writing();
        assert!(!holds.is_held());
        assert_ne!(holds.writings(), before, "what was between is not forgotten");
    }
}
