// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which inodes changed lately: whether what a reply says of an inode that its request did not name is still so.

use std::collections::{HashMap, VecDeque};

/// Changes that are remembered one by one.
const CHANGES_MAX: usize = 4096;

/// The last changes, counted.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    count: u64,
    /// By inode, the count at its last change.
    last: HashMap<u64, u64>,
    order: VecDeque<(u64, u64)>,
    /// Of changes up to this count it is not known of which inodes they were.
    forgotten: u64,
}

impl Changes {
    /// How many there were: what is read from now on is compared with that.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Notes that a change of an inode begins or ends.
    pub(crate) fn note(&mut self, inode: u64) {
        self.count += 1;
        self.last.insert(inode, self.count);
        self.order.push_back((self.count, inode));
        if self.order.len() > CHANGES_MAX {
            let (count, inode) = self.order.pop_front().expect("it is longer than 0");
            self.forgotten = count;
            if self.last.get(&inode) == Some(&count) {
                self.last.remove(&inode);
            }
        }
    }

    /// Whether an inode did not change since the count was this, for certain.
    pub(crate) fn is_unchanged(&self, inode: u64, since: u64) -> bool {
        since >= self.forgotten && self.last.get(&inode).is_none_or(|count| *count <= since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_since_or_is_forgotten_is_not_certain() {
        let mut changes = Changes::default();
        changes.note(7);
        let since = changes.count();
        assert!(changes.is_unchanged(7, since) && changes.is_unchanged(8, since));
        changes.note(8);
        assert!(changes.is_unchanged(7, since) && !changes.is_unchanged(8, since));
        let since = changes.count();
        (0..CHANGES_MAX as u64).for_each(|inode| changes.note(100 + inode));
        assert!(changes.is_unchanged(8, since));
        changes.note(9);
        assert!(!changes.is_unchanged(8, since), "that may be among those that are forgotten");
        assert!(changes.order.len() == CHANGES_MAX && changes.last.len() == CHANGES_MAX);
    }
}
