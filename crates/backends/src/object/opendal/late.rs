// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that the server may still write: it may carry out a request whose answer was not waited for, or was
//! lost, after later ones.

use std::collections::HashSet;

/// Most paths in memory; with more, every file counts as late.
const PATHS_MAX: usize = 4096;

/// Files of which an earlier write may be carried out at any time, as long as this process runs.
#[derive(Default)]
pub(super) struct Late {
    paths: HashSet<String>,
    is_full: bool,
}

impl Late {
    /// Whether a file is late.
    pub(super) fn contains(&self, path: &str) -> bool {
        self.is_full || self.paths.contains(path)
    }

    /// Notes a file; whether it was late before.
    pub(super) fn insert(&mut self, path: &str) -> bool {
        let was_late = self.contains(path);
        if !was_late {
            self.is_full = self.paths.len() >= PATHS_MAX;
            if self.is_full {
                tracing::warn!(
                    "more than {PATHS_MAX} writes of attributes had no answer: from now on each is made twice"
                );
                self.paths = HashSet::new();
            } else {
                self.paths.insert(path.into());
            }
        }
        was_late
    }

    /// Forgets a file: all writes of it have ended, or no other write follows.
    pub(super) fn remove(&mut self, path: &str) {
        self.paths.remove(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_late_until_it_is_forgotten() {
        let mut late = Late::default();
        assert!(!late.insert("one") && late.insert("one") && late.contains("one"));
        late.remove("one");
        assert!(!late.contains("one"));
    }

    #[test]
    fn every_file_is_late_where_there_are_too_many() {
        let mut late = Late::default();
        for number in 0..PATHS_MAX {
            assert!(!late.insert(&number.to_string()));
        }
        assert!(!late.contains("other"));
        late.insert("one more");
        late.remove("one more");
        assert!(late.contains("other") && late.contains("one more") && late.paths.is_empty());
    }
}
