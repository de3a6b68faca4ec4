// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Choices from the first bytes of an input.

/// What is left of an input.
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// A number below `count`, which is at most 256; 0 at the end.
    pub(crate) fn choice(&mut self, count: usize) -> usize {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        usize::from(*first) % count
    }

    /// The next so many bytes, or all that are left.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Everything that is left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }
}
