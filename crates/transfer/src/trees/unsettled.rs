// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that were copied and do not have the times of their sources yet.
//!
//! Size and time of modification say that a file was copied. So the time is set only once the bytes are
//! durable: else a loss of power could leave both without the bytes, and the next run would take that for
//! unchanged. Many files are made durable at once, because that takes as long as for one.

/// Files that wait at most: there is a path for each in memory.
const FILES_MAX: usize = 4096;

/// Bytes of these at most: what a run that is killed has copied in vain.
const BYTES_MAX: u64 = 4 << 30;

/// What waits to be settled.
#[derive(Debug)]
pub(super) struct Unsettled<T> {
    files: Vec<T>,
    bytes: u64,
}

impl<T> Unsettled<T> {
    pub(super) fn push(&mut self, file: T, bytes: u64) {
        self.files.push(file);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether no more may wait.
    pub(super) fn is_due(&self) -> bool {
        self.files.len() >= FILES_MAX || self.bytes >= BYTES_MAX
    }

    /// What waits; nothing does any more.
    pub(super) fn take(&mut self) -> Vec<T> {
        std::mem::take(self).files
    }
}

impl<T> Default for Unsettled<T> {
    fn default() -> Self {
        Self { files: Vec::new(), bytes: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_too_many_files_wait_nor_too_many_bytes() {
        let mut unsettled = Unsettled::default();
        for number in 1..=FILES_MAX {
            assert!(!unsettled.is_due(), "{number}");
            unsettled.push(number, 1);
        }
        assert!(unsettled.is_due());
        assert_eq!(unsettled.take().len(), FILES_MAX);
        assert!(!unsettled.is_due());
        unsettled.push(1, BYTES_MAX - 1);
        assert!(!unsettled.is_due());
        unsettled.push(2, 1);
        assert!(unsettled.is_due());
        assert_eq!(unsettled.take(), [1, 2]);
        assert!(!unsettled.is_due());
    }
}
