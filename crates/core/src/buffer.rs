// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory for bytes on their way.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// A line of a processor's cache.
const ALIGNMENT: usize = 64;

/// Bytes in memory that begins with a line of the processor's cache: what files are read into.
///
/// Allocators begin large blocks 16 bytes behind such a line, and into that some processors copy at
/// a third or a sixth of their rate (AMD EPYC with fast `rep movsb`: reads of files in main memory at
/// 1.7 in place of 6 GB/s).
#[derive(Default)]
pub struct Buffer {
    /// What is in front of `start` is there for the alignment alone.
    memory: Vec<u8>,
    start: usize,
}

impl Buffer {
    /// None.
    pub const fn new() -> Self {
        Self { memory: Vec::new(), start: 0 }
    }

    /// So many zeros.
    pub fn zeroed(bytes: usize) -> Self {
        // At once, because zeros that an allocator has cost nothing until they are used.
        let mut memory = vec![0; bytes + ALIGNMENT - 1];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        memory.truncate(start + bytes);
        Self { memory, start }
    }

    /// How much memory it has.
    pub fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    /// Cuts it, or makes it longer with zeros.
    pub fn resize(&mut self, bytes: usize) {
        self.reserve(bytes);
        self.memory.resize(self.start + bytes, 0);
    }

    /// Cuts it to so many bytes, if it is longer.
    pub fn truncate(&mut self, bytes: usize) {
        self.memory.truncate(self.start.saturating_add(bytes));
    }

    /// Appends bytes.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(self.len() + bytes.len());
        self.memory.extend_from_slice(bytes);
    }

    /// Has memory for so many bytes in all.
    fn reserve(&mut self, bytes: usize) {
        if self.start + bytes <= self.memory.capacity() {
            return;
        }
        let capacity = bytes.max(2 * self.len()) + ALIGNMENT - 1;
        let mut memory: Vec<u8> = Vec::with_capacity(capacity);
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        memory.resize(start, 0);
        memory.extend_from_slice(self);
        *self = Self { memory, start };
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("bytes", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_aligned(buffer: &Buffer) -> bool {
        buffer.as_ptr().align_offset(ALIGNMENT) == 0
    }

    #[test]
    fn it_begins_with_a_line_however_it_grows() {
        for bytes in [0, 1, 63, 64, 65, 4096, 200_000, 3 << 20] {
            let mut buffer = Buffer::zeroed(bytes);
            assert!(is_aligned(&buffer) && *buffer == vec![0; bytes][..], "{bytes}");
            buffer.resize(bytes + 1);
            buffer[bytes] = 7;
            buffer.extend_from_slice(&[9; 1000]);
            assert!(is_aligned(&buffer), "{bytes}");
            assert_eq!((buffer.len(), buffer[bytes], buffer[bytes + 1]), (bytes + 1001, 7, 9));
        }
    }

    #[test]
    fn what_is_in_it_stays_when_it_grows_or_is_cut() {
        let mut buffer = Buffer::default();
        let mut expected = Vec::new();
        for number in 0..2000_u32 {
            buffer.extend_from_slice(&number.to_le_bytes());
            expected.extend_from_slice(&number.to_le_bytes());
            if number % 100 == 99 {
                buffer.truncate(buffer.len() - 10);
                expected.truncate(expected.len() - 10);
                buffer.resize(buffer.len() + 3);
                expected.resize(expected.len() + 3, 0);
            }
        }
        assert!(is_aligned(&buffer) && *buffer == expected[..]);
        buffer.truncate(usize::MAX);
        assert_eq!(buffer.len(), expected.len());
    }
}
