// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What changes over time, in bounded memory: spans that become longer when there are too many.

use std::collections::BTreeMap;

/// Spans of a course at most.
pub(super) const SPANS_MAX: usize = 1 << 13;

/// Values over time, joined in spans whose length is a power of two of nanoseconds.
#[derive(Debug)]
pub(super) struct Course<V> {
    pub(super) spans: BTreeMap<u64, V>,
    pub(super) shift: u32,
}

/// What the spans of a course join.
pub(super) trait Join: Copy {
    /// Joins what comes later.
    fn join(&mut self, later: &Self);
}

/// A level over a span of time: the least, the most, the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filled {
    pub(super) least: u64,
    pub(super) most: u64,
    pub(super) last: u64,
}

/// Latencies of a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waited {
    /// Requests.
    pub(super) count: u64,
    /// The sum of their latencies, and the longest.
    pub(super) sum_ns: u64,
    pub(super) most_ns: u64,
    /// Of the sum: waiting while a migration kept writers out, and in the stack itself.
    pub(super) guard_ns: u64,
    pub(super) stack_ns: u64,
    /// The longest wait at the guard.
    pub(super) guard_most_ns: u64,
}

impl<V> Default for Course<V> {
    fn default() -> Self {
        Self { spans: BTreeMap::new(), shift: 0 }
    }
}

impl<V: Join> Course<V> {
    /// Notes a value at a time.
    pub(super) fn note(&mut self, time_ns: u64, value: V) {
        join(&mut self.spans, time_ns >> self.shift, &value);
        while self.spans.len() > SPANS_MAX {
            self.shift += 1;
            let mut spans = BTreeMap::new();
            for (span, value) in std::mem::take(&mut self.spans) {
                join(&mut spans, span >> 1, &value);
            }
            self.spans = spans;
        }
    }
}

fn join<V: Join>(spans: &mut BTreeMap<u64, V>, span: u64, value: &V) {
    spans.entry(span).and_modify(|known| known.join(value)).or_insert(*value);
}

impl Filled {
    pub(super) fn at(bytes: u64) -> Self {
        Self { least: bytes, most: bytes, last: bytes }
    }
}

impl Join for Filled {
    fn join(&mut self, later: &Self) {
        self.least = self.least.min(later.least);
        self.most = self.most.max(later.most);
        self.last = later.last;
    }
}

impl Join for Waited {
    fn join(&mut self, later: &Self) {
        self.count += later.count;
        self.sum_ns = self.sum_ns.saturating_add(later.sum_ns);
        self.most_ns = self.most_ns.max(later.most_ns);
        self.guard_ns = self.guard_ns.saturating_add(later.guard_ns);
        self.stack_ns = self.stack_ns.saturating_add(later.stack_ns);
        self.guard_most_ns = self.guard_most_ns.max(later.guard_most_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_course_keeps_extremes_and_the_last() {
        let mut course = Course::default();
        for at in 0..100_000u64 {
            let bytes = if at == 50_001 { 1 << 40 } else { at };
            course.note(at * 1000, Filled::at(bytes));
            assert!(course.spans.len() <= SPANS_MAX);
        }
        let most = course.spans.values().map(|filled| filled.most).max();
        assert_eq!(most, Some(1 << 40));
        assert_eq!(course.spans.first_key_value().map(|(_, filled)| filled.least), Some(0));
        assert_eq!(course.spans.last_key_value().map(|(_, filled)| filled.last), Some(99_999));
    }
}
