// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How large files become that are made in a directory: what the next one is taken for.
//!
//! The mode of a file is chosen when it is made, before anybody knows how much will be written. Where
//! the last files of a directory stayed small the next one begins without an object: it costs less
//! to make, read and remove, and stays where its name is.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Directories that are remembered; a forgotten one is learnt anew.
const DIRECTORIES_MAX: usize = 1 << 14;

/// So many small files, one after the other, and the next one is taken for small, too.
const SMALL_MIN: u8 = 2;

/// How many of the last files of each directory stayed small, one after the other.
#[derive(Default)]
pub(crate) struct Sizes(Mutex<HashMap<u64, u8>>);

impl Sizes {
    /// Whether the next file of a directory probably stays small.
    pub(crate) fn is_small(&self, directory: u64) -> bool {
        let small = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        small.get(&directory).is_some_and(|count| *count >= SMALL_MIN)
    }

    /// A file that was made in a directory was closed.
    pub(crate) fn note(&self, directory: u64, is_small: bool) {
        let mut small = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if small.len() >= DIRECTORIES_MAX {
            small.clear();
        }
        match is_small {
            true => {
                let count = small.entry(directory).or_default();
                *count = count.saturating_add(1);
            }
            // One large file says more than many small ones: it is what takes the time.
            false => drop(small.remove(&directory)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_are_expected_after_small_files() {
        let sizes = Sizes::default();
        assert!(!sizes.is_small(1));
        sizes.note(1, true);
        assert!(!sizes.is_small(1));
        sizes.note(1, true);
        assert!(sizes.is_small(1));
        assert!(!sizes.is_small(2));
        sizes.note(1, false);
        assert!(!sizes.is_small(1));
    }
}
