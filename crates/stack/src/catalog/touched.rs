// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys of the catalog that commits write while it is copied.

use std::collections::HashSet;

use terrace_core::{Error, ErrorKind, Result};

/// Most memory for keys that are to be read again.
const TOUCHED_BYTES_MAX: usize = 64 << 20;

/// From so much on a page that is being written ends behind the pair at hand, so that the keys are
/// read again before they are more than is kept.
const PAGE_TOUCHED_BYTES: usize = TOUCHED_BYTES_MAX / 2;

/// What a key takes in memory beside its bytes.
const KEY_BYTES: usize = 48;

/// What was written while a copy is being made, and has to be read again for it.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    keys: HashSet<Vec<u8>>,
    bytes: usize,
    /// Keys behind this one are read by pages to come. None while a page is being read: its end is
    /// not known yet; and when there are no more.
    passed: Option<Vec<u8>>,
    /// More was written than is kept.
    is_over: bool,
}

impl Touched {
    /// Notes the keys of a commit that others can see by now.
    pub(crate) fn note(&mut self, keys: Vec<Vec<u8>>) {
        for key in keys {
            let is_passed = self.passed.as_ref().is_none_or(|passed| key <= *passed);
            let bytes = key.len() + KEY_BYTES;
            if is_passed && !self.is_over && self.keys.insert(key) {
                self.bytes += bytes;
            }
        }
        if self.bytes > TOUCHED_BYTES_MAX {
            *self = Self { is_over: true, ..Self::default() };
        }
    }

    /// Notes how far the copy has come; keys behind that need not be read again.
    pub(crate) fn pass(&mut self, passed: Option<Vec<u8>>) {
        if let Some(passed) = &passed {
            self.keys.retain(|key| key <= passed);
        }
        self.bytes = self.keys.iter().map(|key| key.len() + KEY_BYTES).sum();
        self.passed = passed;
    }

    /// Whether the keys so far are to be read again before more pairs are.
    pub(crate) fn is_much(&self) -> bool {
        self.bytes > PAGE_TOUCHED_BYTES
    }

    /// The keys so far.
    pub(crate) fn take(&mut self) -> Result<HashSet<Vec<u8>>> {
        self.bytes = 0;
        match self.is_over {
            true => Err(too_fast()),
            false => Ok(std::mem::take(&mut self.keys)),
        }
    }
}

pub(crate) fn too_fast() -> Error {
    Error::new(ErrorKind::Busy, "copy the catalog")
        .because("it changes faster than it can be written")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Vec<u8> {
        text.into()
    }

    #[test]
    fn only_what_the_copy_has_passed_is_kept() {
        let mut touched = Touched::default();
        // While a page is read anything may be in it.
        touched.note(vec![key("b"), key("x")]);
        touched.pass(Some(key("m")));
        touched.note(vec![key("a"), key("m"), key("n")]);
        let mut keys: Vec<_> = touched.take().expect("few").into_iter().collect();
        keys.sort();
        assert_eq!(keys, [key("a"), key("b"), key("m")]);
        assert!(touched.take().expect("few").is_empty());
        touched.pass(None);
        touched.note(vec![key("z")]);
        assert_eq!(touched.take().expect("few").len(), 1);
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_lost_is_known() {
        const LONG: usize = 64 << 10;
        let long = |number: u64| vec![[&number.to_be_bytes()[..], &[0; LONG]].concat()];
        let mut touched = Touched::default();
        let count = (TOUCHED_BYTES_MAX / (KEY_BYTES + 8 + LONG)) as u64;
        for number in 0..count {
            touched.note(long(number));
            // The same again takes no more.
            touched.note(long(number));
        }
        assert_eq!(touched.take().expect("just as many").len() as u64, count);
        for number in 0..=count {
            touched.note(long(number));
        }
        assert!(touched.keys.is_empty());
        touched.note(vec![key("one more")]);
        assert!(touched.keys.is_empty());
        assert_eq!(touched.take().expect_err("some are lost").kind(), ErrorKind::Busy);
    }
}
