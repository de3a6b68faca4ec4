// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an application requires (semantics), what it advises (hint), and how an object is cut.

mod axes;
mod text;

use std::sync::Arc;

pub use self::axes::{Atomicity, BatchOrdering, Concurrency, Consistency, Persistency};

/// Most bytes that one operation under [`Atomicity::Operation`] reads or writes. 32 MiB: what a
/// write overwrites is kept in memory until it has succeeded, and one message can carry it.
pub const ATOMIC_BYTES_MAX: usize = 32 << 20;

/// Requirements: met or refused, never ignored. `docs/reference/semantics.md` defines each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Semantics {
    /// What others see of an operation while it is carried out.
    pub atomicity: Atomicity,
    /// What the application promises about accesses at the same time.
    pub concurrency: Concurrency,
    /// When others see what was acknowledged.
    pub consistency: Consistency,
    /// In which order the operations of a batch take effect.
    pub ordering: BatchOrdering,
    /// What every operation that was acknowledged under these semantics survives.
    pub persistency: Persistency,
}

impl Semantics {
    /// The semantics of a caller that asks for nothing; the same as [`Semantics::default`].
    pub const DEFAULT: Self = Self {
        atomicity: Atomicity::None,
        concurrency: Concurrency::Overlapping,
        consistency: Consistency::Immediate,
        ordering: BatchOrdering::Relaxed,
        persistency: Persistency::Process,
    };

    /// What programs expect that were written for a local file system.
    pub const POSIX: Self =
        Self { atomicity: Atomicity::Operation, ordering: BatchOrdering::Strict, ..Self::DEFAULT };

    /// For data that one process makes, reads again and throws away.
    pub const TEMPORARY: Self = Self {
        concurrency: Concurrency::None,
        consistency: Consistency::Session,
        persistency: Persistency::None,
        ..Self::DEFAULT
    };

    /// All templates with their names.
    pub const TEMPLATES: [(&'static str, Self); 3] =
        [("default", Self::DEFAULT), ("posix", Self::POSIX), ("temporary", Self::TEMPORARY)];

    /// The default with another persistency.
    pub const fn at_level(persistency: Persistency) -> Self {
        Self { persistency, ..Self::DEFAULT }
    }
}

/// How soon an application expects to touch an object again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Temperature {
    /// Nothing is known.
    #[default]
    Unknown,
    /// Soon.
    Hot,
    /// Not soon.
    Cold,
}

/// Advice from an application; a policy may follow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hint {
    /// How soon the object will be touched again.
    pub temperature: Temperature,
}

/// How an object is cut into segments; chosen at create and stored with the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// One segment, whatever the size.
    #[default]
    One,
    /// Segments of this many bytes, at least 1.
    Fixed {
        /// Length of every segment but the last.
        segment_bytes: u64,
    },
    /// Segments that start at 0 and at each of these ascending, non-zero offsets; the last takes
    /// the rest. One step is the small head with the rest behind it.
    Steps {
        /// Where the second, third, … segment starts.
        starts_bytes: Arc<[u64]>,
    },
}

impl Layout {
    /// The first segment start above `offset_bytes`, if the layout cuts there.
    pub fn next_cut(&self, offset_bytes: u64) -> Option<u64> {
        match self {
            Layout::One => None,
            Layout::Fixed { segment_bytes } => {
                (offset_bytes / segment_bytes + 1).checked_mul(*segment_bytes)
            }
            Layout::Steps { starts_bytes } => {
                starts_bytes.iter().copied().find(|start| *start > offset_bytes)
            }
        }
    }

    /// The same, or equal segments where one of its own would be longer than `most_bytes`.
    pub fn cut_to(self, most_bytes: u64) -> Self {
        match self {
            Layout::Fixed { segment_bytes } if segment_bytes <= most_bytes => self,
            Layout::One | Layout::Fixed { .. } | Layout::Steps { .. } => {
                Layout::Fixed { segment_bytes: most_bytes }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_says_where_it_cuts() {
        let steps = Layout::Steps { starts_bytes: vec![64, 1000].into() };
        assert_eq!(Layout::One.next_cut(5), None);
        assert_eq!(Layout::Fixed { segment_bytes: 10 }.next_cut(10), Some(20));
        assert_eq!(
            [0, 63, 64, 1000].map(|at| steps.next_cut(at)),
            [Some(64), Some(64), Some(1000), None]
        );
    }

    #[test]
    fn no_segment_of_a_cut_layout_is_too_long() {
        let fixed = |segment_bytes| Layout::Fixed { segment_bytes };
        let steps = Layout::Steps { starts_bytes: vec![64].into() };
        assert_eq!(Layout::One.cut_to(100), fixed(100));
        assert_eq!((fixed(10).cut_to(100), fixed(1000).cut_to(100)), (fixed(10), fixed(100)));
        // Its last segment takes the rest.
        assert_eq!(steps.cut_to(100), fixed(100));
    }

    #[test]
    fn who_asks_for_nothing_gets_the_default_template() {
        assert_eq!(Semantics::default(), Semantics::DEFAULT);
        assert_eq!(Semantics::at_level(Persistency::Process), Semantics::DEFAULT);
    }
}
