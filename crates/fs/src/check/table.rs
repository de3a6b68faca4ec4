// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is remembered of each node during a check: 16 bytes of a file, 48 of a directory.

/// A node that is no directory.
#[derive(Debug)]
pub(super) struct FileRow {
    pub(super) number: u64,
    /// Names that lead to it.
    pub(super) names: u32,
    /// The bits of its kind in a mode, without the twelve zeros below them.
    pub(super) kind: u8,
    /// Whether it may be without a name: it was open when its user died.
    pub(super) is_nameless: bool,
    /// Whether it is marked as one without a name.
    pub(super) has_mark: bool,
    /// Whether its record is missing or was, which was reported.
    pub(super) is_remade: bool,
}

/// A directory.
#[derive(Debug, Default)]
pub(super) struct DirectoryRow {
    pub(super) number: u64,
    /// Where it says that it is.
    pub(super) parent: u64,
    /// The directory with the entry that leads to it; 0 for none.
    pub(super) found_in: u64,
    /// The hash of its name in that entry.
    pub(super) found_hash: u64,
    pub(super) is_remade: bool,
    /// Whether it may be without a name: it was removed, and used when its user died.
    pub(super) is_nameless: bool,
    /// Whether the root is above it: known once it was looked for.
    pub(super) is_reached: bool,
    /// Directories in it.
    pub(super) directories: u32,
    /// Entries in it.
    pub(super) entries: u64,
}

/// All nodes, in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) files: Vec<FileRow>,
    pub(super) directories: Vec<DirectoryRow>,
}

impl Table {
    pub(super) fn file(&mut self, number: u64) -> Option<&mut FileRow> {
        let found = self.files.binary_search_by_key(&number, |row| row.number).ok()?;
        Some(&mut self.files[found])
    }

    pub(super) fn directory(&mut self, number: u64) -> Option<&mut DirectoryRow> {
        let found = self.directories.binary_search_by_key(&number, |row| row.number).ok()?;
        Some(&mut self.directories[found])
    }

    /// Adds a directory that was made since: mostly behind all others.
    pub(super) fn add_directory(&mut self, row: DirectoryRow) {
        let at = self.directories.partition_point(|other| other.number < row.number);
        self.directories.insert(at, row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_as_small_as_it_is_said_to_be() {
        assert_eq!(size_of::<FileRow>(), 16);
        assert_eq!(size_of::<DirectoryRow>(), 48);
    }
}
