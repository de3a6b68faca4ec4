// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an application requires (semantics), what it advises (hint), and how an object is cut.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::{Error, Result};

/// What an acknowledged operation survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Persistency {
    /// May be lost by a crash of the process.
    None,
    /// Survives a crash of the process, not a loss of power.
    #[default]
    Process,
    /// Survives a loss of power: data, catalog and directories are on stable storage.
    Storage,
}

impl Persistency {
    /// The word used in configuration, commands and benchmark rows.
    pub fn word(self) -> &'static str {
        match self {
            Persistency::None => "none",
            Persistency::Process => "process",
            Persistency::Storage => "storage",
        }
    }
}

impl fmt::Display for Persistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Persistency {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Persistency::None, Persistency::Process, Persistency::Storage]
            .into_iter()
            .find(|level| level.word() == text)
            .ok_or_else(|| {
                Error::invalid("read a persistency", "one of none, process, storage is expected")
                    .with("value", text)
            })
    }
}

/// Requirements: met or refused, never ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Semantics {
    /// What every operation that was acknowledged under these semantics survives.
    pub persistency: Persistency,
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
    fn persistency_orders_by_strength() {
        assert!(Persistency::None < Persistency::Process);
        assert!(Persistency::Process < Persistency::Storage);
        assert_eq!("storage".parse::<Persistency>().expect("known"), Persistency::Storage);
        assert!("disk".parse::<Persistency>().is_err());
    }
}
