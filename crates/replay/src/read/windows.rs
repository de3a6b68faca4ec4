// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parts of a trace, one behind the other as if there had been nothing between them.

use std::ops::Range;

use terrace_core::Result;

use super::names::Named;
use super::{BATCH, Source, Tells};
use crate::request::Request;

/// The requests of another source whose numbers are in some ranges.
pub(super) struct Windows {
    inner: Box<dyn Source>,
    /// Ascending, and apart from each other.
    ranges: Vec<Range<u64>>,
    /// The range that is read.
    now: usize,
    /// The number of the next request of the other source.
    next: u64,
    batch: Vec<Request>,
    /// What is taken off times, so that ranges follow on each other; and the last time that was given.
    cut_ns: u64,
    last_ns: u64,
}

impl Windows {
    pub(super) fn new(inner: Box<dyn Source>, ranges: Vec<Range<u64>>) -> Self {
        Self { inner, ranges, now: 0, next: 0, batch: Vec::new(), cut_ns: 0, last_ns: 0 }
    }

    fn take(&mut self, request: &Request, requests: &mut Vec<Request>) {
        let number = self.next;
        self.next += 1;
        while self.ranges.get(self.now).is_some_and(|range| range.end <= number) {
            self.now += 1;
        }
        let Some(range) = self.ranges.get(self.now) else { return };
        if !range.contains(&number) {
            return;
        }
        if number == range.start && self.now > 0 {
            self.cut_ns = request.time_ns.saturating_sub(self.last_ns);
        }
        let time_ns = request.time_ns.saturating_sub(self.cut_ns);
        self.last_ns = self.last_ns.max(time_ns);
        requests.push(Request { time_ns, ..*request });
    }
}

impl Source for Windows {
    fn fill(&mut self, requests: &mut Vec<Request>) -> Result<()> {
        let is_over =
            |windows: &Self| windows.ranges.last().is_none_or(|range| range.end <= windows.next);
        while requests.len() < BATCH && !is_over(self) {
            let mut batch = std::mem::take(&mut self.batch);
            batch.clear();
            self.inner.fill(&mut batch)?;
            if batch.is_empty() {
                return Ok(());
            }
            batch.iter().for_each(|request| self.take(request, requests));
            self.batch = batch;
        }
        Ok(())
    }

    fn tells(&self) -> Tells {
        self.inner.tells()
    }

    fn notes(&self) -> Vec<String> {
        self.inner.notes()
    }

    fn want_names(&mut self) {
        self.inner.want_names();
    }

    fn take_names(&mut self) -> Vec<(u64, Named)> {
        self.inner.take_names()
    }
}
