// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which accesses become events, and when: by the interest of the policy and its setting `post_events`.

use std::sync::atomic::{AtomicU32, Ordering};

use terrace_core::{EventKind, Interest, PostEvents};

const BEFORE: u32 = 1;
const STAT: u32 = 2;
const SYNC: u32 = 4;

/// One word that every access reads, and that changes with the policy.
#[derive(Debug, Default)]
pub(crate) struct Posting(AtomicU32);

impl Posting {
    /// Whether accesses are posted before their I/O. An access asks once.
    #[inline]
    pub(crate) fn is_ahead(&self) -> bool {
        self.0.load(Ordering::Relaxed) & BEFORE != 0
    }

    /// Whether events of an optional kind are posted.
    #[inline]
    pub(crate) fn takes(&self, kind: EventKind) -> bool {
        let bit = match kind {
            EventKind::Stat => STAT,
            EventKind::Sync => SYNC,
            _ => return true,
        };
        self.0.load(Ordering::Relaxed) & bit != 0
    }

    /// Changes both.
    pub(crate) fn set(&self, interest: Interest, post_events: PostEvents) {
        let mut bits = 0;
        for (is_set, bit) in [
            (post_events == PostEvents::Before, BEFORE),
            (interest.stat, STAT),
            (interest.sync, SYNC),
        ] {
            bits |= if is_set { bit } else { 0 };
        }
        // Every access reads this: it is written only where it changes.
        if self.0.load(Ordering::Relaxed) != bits {
            self.0.store(bits, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_is_set_alone() {
        let posting = Posting::default();
        let is = |posting: &Posting| {
            let takes = [EventKind::Stat, EventKind::Sync].map(|kind| posting.takes(kind));
            (posting.is_ahead(), takes)
        };
        assert_eq!(is(&posting), (false, [false, false]));
        posting.set(Interest { stat: true, sync: false }, PostEvents::After);
        assert_eq!(is(&posting), (false, [true, false]));
        posting.set(Interest { stat: false, sync: true }, PostEvents::Before);
        assert_eq!(is(&posting), (true, [false, true]));
        posting.set(Interest::NONE, PostEvents::Before);
        assert_eq!(is(&posting), (true, [false, false]));
        assert!(posting.takes(EventKind::Read), "what is not optional is always posted");
    }
}
