// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests that were read before and are kept in memory, to be replayed many times.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use terrace_core::Result;

use super::{BATCH, Source, Tells};
use crate::request::Request;

pub(super) struct Memory {
    requests: Arc<[Request]>,
    next: usize,
    /// Ends it early, once the consumer needs no more.
    stop: Arc<AtomicBool>,
}

impl Memory {
    pub(super) fn new(requests: Arc<[Request]>, stop: Arc<AtomicBool>) -> Self {
        Self { requests, next: 0, stop }
    }
}

impl Source for Memory {
    fn fill(&mut self, requests: &mut Vec<Request>) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let end = (self.next + BATCH - requests.len()).min(self.requests.len());
        requests.extend_from_slice(&self.requests[self.next..end]);
        self.next = end;
        Ok(())
    }

    fn tells(&self) -> Tells {
        Tells { clients: false, latencies: true }
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}
