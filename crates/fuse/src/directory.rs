// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entries of a directory, as many as the kernel has room for.

use crate::answer::Entry;
use crate::record;

/// Names begin at and entries end at multiples of this.
const ALIGNMENT: usize = 8;
/// `struct fuse_dirent` without the name.
const HEAD_BYTES: usize = 24;

/// Entries of a directory, as many as the kernel has room for.
#[derive(Debug)]
pub struct DirectoryBuffer {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl DirectoryBuffer {
    /// Room for what `ReadDir` or `ReadDirPlus` asked for.
    pub fn new(bytes_max: u32) -> Self {
        let bytes_max = bytes_max as usize;
        Self { bytes: Vec::with_capacity(bytes_max), bytes_max }
    }

    /// Empties it for the next use, with room for `bytes_max`.
    pub fn reset(&mut self, bytes_max: u32) {
        self.bytes.clear();
        self.bytes_max = bytes_max as usize;
    }

    /// Adds an entry for `ReadDir` and returns whether it fitted; if not, nothing was added.
    ///
    /// `next_offset` is what a later call is given to go on after this entry; not 0. Of `mode`
    /// only the kind counts.
    pub fn add(&mut self, inode: u64, next_offset: u64, mode: u32, name: &[u8]) -> bool {
        if !self.has_room(HEAD_BYTES + name.len()) {
            return false;
        }
        self.push(inode, next_offset, mode, name);
        true
    }

    /// Whether there is room for one more entry of `ReadDirPlus`: before it is looked up.
    pub fn fits_plus(&self, name: &[u8]) -> bool {
        self.has_room(record::ENTRY_BYTES + HEAD_BYTES + name.len())
    }

    /// Adds an entry for `ReadDirPlus` and returns whether it fitted; if not, nothing was added
    /// and the kernel does not remember the node.
    ///
    /// Entries of node 0, as `.` and `..` must be, have inode and mode only.
    pub fn add_plus(&mut self, entry: &Entry, next_offset: u64, name: &[u8]) -> bool {
        if !self.fits_plus(name) {
            return false;
        }
        self.bytes.extend_from_slice(record::entry(entry).bytes());
        let attributes = &entry.attributes;
        self.push(attributes.inode, next_offset, attributes.mode, name);
        true
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.bytes.len() + bytes.next_multiple_of(ALIGNMENT) <= self.bytes_max
    }

    fn push(&mut self, inode: u64, next_offset: u64, mode: u32, name: &[u8]) {
        // The kinds of `readdir` are those of a mode, shifted.
        let kind = (mode >> 12) & 15;
        self.bytes.extend_from_slice(&inode.to_ne_bytes());
        self.bytes.extend_from_slice(&next_offset.to_ne_bytes());
        self.bytes.extend_from_slice(&(name.len() as u32).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Attributes;

    #[test]
    fn an_entry_that_does_not_fit_changes_nothing() {
        let mut buffer = DirectoryBuffer::new(32 + 31);
        assert!(buffer.is_empty());
        assert!(buffer.add(7, 1, 0o100_644, b"12345678"));
        assert!(!buffer.add(8, 2, 0o100_644, b"x"), "24 bytes, a name and padding are 32");
        assert_eq!(buffer.bytes().len(), 32);
        buffer.reset(64);
        assert!(buffer.add(7, 1, 0o100_644, b"12345678"));
        assert!(buffer.add(8, 2, 0o100_644, b"x"));
        assert_eq!(buffer.bytes().len(), 64);
    }

    #[test]
    fn an_entry_is_laid_out_as_the_kernel_reads_it() {
        let mut buffer = DirectoryBuffer::new(4096);
        assert!(buffer.add(0x0102, 9, 0o040_755, b"dir"));
        let mut expected = vec![0; 32];
        expected[..8].copy_from_slice(&0x0102_u64.to_ne_bytes());
        expected[8..16].copy_from_slice(&9_u64.to_ne_bytes());
        expected[16..20].copy_from_slice(&3_u32.to_ne_bytes());
        expected[20..24].copy_from_slice(&4_u32.to_ne_bytes());
        expected[24..27].copy_from_slice(b"dir");
        assert_eq!(buffer.bytes(), expected);
    }

    #[test]
    fn an_entry_with_attributes_has_the_plain_one_behind_them() {
        let attributes = Attributes { inode: 5, mode: 0o100_600, ..Attributes::default() };
        let entry = Entry { node: 3, attributes, ..Entry::default() };
        let mut plus = DirectoryBuffer::new(4096);
        assert!(plus.add_plus(&entry, 4, b"file"));
        let mut plain = DirectoryBuffer::new(4096);
        assert!(plain.add(5, 4, 0o100_600, b"file"));
        assert_eq!(&plus.bytes()[..128], record::entry(&entry).bytes());
        assert_eq!(&plus.bytes()[128..], plain.bytes());
    }
}
