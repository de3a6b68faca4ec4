// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What objects are called where a trace tells, for policies that look at keys.

use std::collections::HashSet;

use terrace_core::Key;

/// The namespace of objects of which a trace tells no key.
pub(crate) const NAMESPACE: &str = "trace";

/// What a policy is shown of an object of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) key: Key,
    /// Which of the segments of that key it is, or begins with.
    pub(crate) segment: u32,
}

/// Collects the names of objects, each once.
#[derive(Debug, Default)]
pub(super) struct Names {
    is_wanted: bool,
    seen: HashSet<u64>,
    found: Vec<(u64, Named)>,
}

impl Names {
    pub(super) fn want(&mut self) {
        self.is_wanted = true;
    }

    /// What was found since this was called before.
    pub(super) fn take(&mut self) -> Vec<(u64, Named)> {
        std::mem::take(&mut self.found)
    }

    /// Notes what `named` says of an object that was not there before.
    pub(super) fn note(&mut self, object: u64, named: impl FnOnce() -> Option<Named>) {
        if self.is_wanted && self.seen.insert(object) {
            self.found.extend(named().map(|named| (object, named)));
        }
    }

    /// Notes the text that an object is called by, unless that is its number.
    pub(super) fn note_text(&mut self, object: u64, text: &[u8]) {
        if self.is_wanted && number_of(text).is_none() {
            self.note(object, || key_of(text).map(|key| Named { key, segment: 0 }));
        }
    }
}

/// The key that a text is, or one in the namespace of traces; `None` for what no key can be.
fn key_of(text: &[u8]) -> Option<Key> {
    let text = String::from_utf8_lossy(text);
    Key::parse(&text).or_else(|_| Key::new(NAMESPACE, &text)).ok()
}

/// The number that a name is, as numbers are written.
pub(super) fn number_of(name: &[u8]) -> Option<u64> {
    let is_number = name == b"0" || matches!(name.first(), Some(b'1'..=b'9'));
    let number = std::str::from_utf8(name).ok().filter(|_| is_number);
    number.and_then(|number| number.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_keys_once_and_numbers_none() {
        let mut names = Names::default();
        names.note_text(1, b"raw/1");
        assert_eq!(names.take(), [], "nobody wants them");
        names.want();
        for (object, text) in
            [(1, "raw/1"), (2, "model.pt"), (3, "/scratch/a"), (4, "4"), (1, "raw/1")]
        {
            names.note_text(object, text.as_bytes());
        }
        names.note_text(5, "x".repeat(100_000).as_bytes());
        let found: Vec<_> = names.take().iter().map(|(_, named)| named.key.to_string()).collect();
        assert_eq!(found, ["raw/1", "trace/model.pt", "trace//scratch/a"]);
        assert_eq!(names.take(), []);
    }
}
