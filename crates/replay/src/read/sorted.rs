// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests of traces that are not in the order of time, once they all are.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use terrace_core::{Error, ErrorKind, Result};

use super::names::{Named, Names};
use super::{BATCH, Source, Tells};
use crate::request::Request;

/// Most requests that are kept in memory to bring them into order: 5.6 GB.
const REQUESTS_MAX: usize = 100_000_000;

/// Collects requests, and gives them back in the order of time.
pub(super) struct Sorted {
    requests: Vec<Request>,
    at: usize,
    notes: Vec<String>,
    names: Names,
}

impl Default for Sorted {
    fn default() -> Self {
        let mut names = Names::default();
        // All of it is read before anybody can say so.
        names.want();
        Self { requests: Vec::new(), at: 0, notes: Vec::new(), names }
    }
}

impl Sorted {
    /// Notes the text that the object of a request is called by.
    pub(super) fn name(&mut self, object: u64, text: &[u8]) {
        self.names.note_text(object, text);
    }

    pub(super) fn push(&mut self, request: Request) -> Result<()> {
        if self.requests.len() >= REQUESTS_MAX {
            let reason = "it is not in the order of time, and too long to be sorted in memory";
            let error = Error::new(ErrorKind::Unsupported, "read the trace").because(reason);
            return Err(error.with("requests_max", REQUESTS_MAX));
        }
        self.requests.push(request);
        Ok(())
    }

    /// Ends the collection. Of requests at the same time the one that came first is first.
    pub(super) fn finish(mut self, notes: Vec<String>) -> Self {
        self.requests.sort_by_key(|request| request.time_ns);
        let mut extents = Extents::default();
        for request in &mut self.requests {
            request.size_bytes = extents.extend(request);
        }
        self.notes = notes;
        self
    }
}

impl Source for Sorted {
    fn fill(&mut self, requests: &mut Vec<Request>) -> Result<()> {
        let end = (self.at + BATCH - requests.len()).min(self.requests.len());
        requests.extend_from_slice(&self.requests[self.at..end]);
        self.at = end;
        Ok(())
    }

    fn tells(&self) -> Tells {
        Tells { clients: true, latencies: true }
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn take_names(&mut self) -> Vec<(u64, Named)> {
        self.names.take()
    }
}

/// How large objects are, as far as is known from requests for parts of them.
#[derive(Default)]
pub(super) struct Extents(HashMap<u64, u64>);

impl Extents {
    /// Takes note of a request; the size of its object.
    pub(super) fn extend(&mut self, request: &Request) -> u64 {
        let end_bytes = request.offset_bytes.saturating_add(request.length_bytes);
        match self.0.entry(request.object) {
            Entry::Occupied(mut size) => {
                *size.get_mut() = end_bytes.max(*size.get());
                *size.get()
            }
            Entry::Vacant(size) => *size.insert(end_bytes),
        }
    }

    /// The size of an object; 0 where it is unknown.
    pub(super) fn size_bytes(&self, object: u64) -> u64 {
        self.0.get(&object).copied().unwrap_or(0)
    }

    /// The size of an object was set.
    pub(super) fn set(&mut self, object: u64, bytes: u64) {
        self.0.insert(object, bytes);
    }
}
