// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Directories below directories, and which item lies in which; as in mdtest.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Most directories of one tree: their names are kept in memory.
const DIRECTORIES_MAX: u64 = 1_000_000;

/// The form of a tree; its root alone is of depth 0.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Tree {
    pub(crate) depth: u32,
    pub(crate) branches: u64,
    /// Items lie in the directories without further ones alone.
    pub(crate) is_leaf_only: bool,
}

impl Tree {
    /// Refuses a tree without branches or with too many directories.
    pub(crate) fn check(&self) -> Result<()> {
        let refused = |reason| {
            Err(Error::new("make a tree", reason)
                .with("depth", self.depth)
                .with("branch", self.branches))
        };
        if self.branches == 0 {
            return refused("a directory has at least 1 branch");
        }
        let mut level = 1_u64;
        let mut total = 1_u64;
        for _ in 0..self.depth {
            level = level.saturating_mul(self.branches);
            total = total.saturating_add(level);
            if total > DIRECTORIES_MAX {
                return refused("it has more than 1000000 directories");
            }
        }
        Ok(())
    }

    /// Directories on the lowest level.
    fn leaves(&self) -> u64 {
        self.branches.pow(self.depth)
    }

    /// All directories, the root included.
    pub(crate) fn directories(&self) -> u64 {
        (0..=self.depth).map(|level| self.branches.pow(level)).sum()
    }

    /// Paths of all directories, parents first.
    pub(crate) fn paths(&self, root: &Path) -> Vec<PathBuf> {
        let mut paths = vec![root.to_owned()];
        for number in 1..self.directories() {
            // Directories are numbered level by level, so that a parent comes before its children.
            let parent = (number - 1) / self.branches;
            paths.push(paths[parent as usize].join(format!("branch.{number}")));
        }
        paths
    }

    /// The number of the directory of each of `items` items: evenly spread, in order.
    pub(crate) fn directory_of(&self, item: u64, items: u64) -> u64 {
        let first = if self.is_leaf_only { self.directories() - self.leaves() } else { 0 };
        let usable = self.directories() - first;
        first + (u128::from(item) * u128::from(usable) / u128::from(items)) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::Tree;

    fn tree(depth: u32, branches: u64, is_leaf_only: bool) -> Tree {
        Tree { depth, branches, is_leaf_only }
    }

    #[test]
    fn a_binary_tree_of_depth_four_has_31_directories() {
        let tree = tree(4, 2, false);
        let paths = tree.paths(Path::new("/t"));
        assert_eq!(paths.len(), 31);
        assert_eq!(tree.directories(), 31);
        let deepest = paths.iter().map(|path| path.components().count()).max().unwrap();
        assert_eq!(deepest, Path::new("/t").components().count() + 4);
    }

    #[test]
    fn parents_come_first_and_no_path_twice() {
        let paths = tree(3, 3, false).paths(Path::new("/t"));
        for (index, path) in paths.iter().enumerate().skip(1) {
            let parent: PathBuf = path.parent().unwrap().into();
            assert!(paths[..index].contains(&parent), "{}", path.display());
            assert!(!paths[..index].contains(path));
        }
    }

    #[test]
    fn items_are_spread_evenly_and_all_have_a_place() {
        for (tree, usable) in [(tree(2, 2, false), 0..7), (tree(2, 2, true), 3..7)] {
            let count = usable.end - usable.start;
            let mut per_directory = [0_u64; 7];
            for item in 0..30 {
                per_directory[tree.directory_of(item, 30) as usize] += 1;
            }
            assert!(per_directory[..usable.start].iter().all(|items| *items == 0));
            let used = &per_directory[usable];
            assert!(used.iter().all(|items| items.abs_diff(30 / count as u64) <= 1), "{used:?}");
        }
    }

    #[test]
    fn refuses_what_no_memory_can_hold() {
        assert!(tree(64, 2, false).check().is_err());
        assert!(tree(1, 0, false).check().is_err());
        tree(18, 2, false).check().unwrap();
    }
}
