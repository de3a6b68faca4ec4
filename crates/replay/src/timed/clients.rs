// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When each client asks: clients think between an answer and their next request as long as they
//! did when the trace was recorded.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use terrace_core::Result;

use crate::lanes::Lanes;
use crate::read::Trace;
use crate::request::Request;

/// Requests that are read ahead of the slowest client; one that has none among them pauses.
const AHEAD_MAX: usize = 1 << 20;

/// A client that pauses for no longer does not sleep, as waking takes about as long: it computes.
const MOMENT_NS: u64 = 100_000;

/// Clients, each with its requests in order.
pub(super) struct Clients<'a> {
    trace: &'a mut Trace,
    batch: Vec<Request>,
    is_over: bool,
    /// Whether requests come when they came, whatever became of those before.
    is_open: bool,
    lanes: Vec<Lane>,
    of: Lanes,
    /// The time of the first request.
    began_ns: Option<u64>,
    queued: usize,
    /// The next request of each lane whose predecessor is answered: when, and in which order it was
    /// found.
    ready: BinaryHeap<Reverse<(u64, u64, usize)>>,
    found: u64,
    /// Lanes that compute until their next request.
    thinking: usize,
}

/// One thing after another.
#[derive(Default)]
struct Lane {
    queue: VecDeque<Request>,
    /// When its last answer came here, while nothing of it is asked or ready.
    idle_since_ns: Option<u64>,
    /// When that answer came in the trace.
    ended_ns: u64,
    /// Whether it computes until its next request.
    is_thinking: bool,
}

impl<'a> Clients<'a> {
    pub(super) fn new(trace: &'a mut Trace, is_open: bool) -> Self {
        let of = Lanes::new(trace.tells());
        Self {
            trace,
            batch: Vec::new(),
            is_over: false,
            is_open,
            lanes: Vec::new(),
            of,
            began_ns: None,
            queued: 0,
            ready: BinaryHeap::new(),
            found: 0,
            thinking: 0,
        }
    }

    /// How many clients compute just now.
    pub(super) fn thinking(&self) -> usize {
        self.thinking
    }

    /// When the next request comes.
    pub(super) fn next_ns(&mut self) -> Result<Option<u64>> {
        if self.ready.is_empty() {
            self.read_for(None)?;
        }
        Ok(self.ready.peek().map(|Reverse((at_ns, _, _))| *at_ns))
    }

    /// The next request, and its lane, which must be notified of the answer.
    pub(super) fn take(&mut self) -> Result<Option<(usize, Request)>> {
        let Some(Reverse((at_ns, _, lane))) = self.ready.pop() else { return Ok(None) };
        let request = self.lanes[lane].queue.pop_front().expect("what is ready is queued");
        self.queued -= 1;
        self.thinking -= usize::from(std::mem::take(&mut self.lanes[lane].is_thinking));
        self.lanes[lane].ended_ns = request.time_ns.saturating_add(request.latency_ns);
        if self.is_open {
            // The next one does not wait for this.
            self.answered(lane, at_ns)?;
        }
        Ok(Some((lane, request)))
    }

    /// A request was answered: the next one of its lane follows.
    pub(super) fn answered(&mut self, lane: usize, now_ns: u64) -> Result<()> {
        self.lanes[lane].idle_since_ns = Some(now_ns);
        if self.lanes[lane].queue.is_empty() {
            self.read_for(Some(lane))?;
        }
        self.make_ready(lane);
        Ok(())
    }

    /// Reads until a lane has a request, or any has.
    fn read_for(&mut self, lane: Option<usize>) -> Result<()> {
        let has_enough = |clients: &Self| match lane {
            Some(lane) => !clients.lanes[lane].queue.is_empty(),
            None => !clients.ready.is_empty(),
        };
        while !has_enough(self) && !self.is_over && self.queued < AHEAD_MAX {
            let mut batch = std::mem::take(&mut self.batch);
            self.trace.read(&mut batch)?;
            self.is_over = batch.is_empty();
            for request in &batch {
                let began_ns = *self.began_ns.get_or_insert(request.time_ns);
                let lane = self.of.lane_of(request);
                if lane == self.lanes.len() {
                    // It begins with the trace.
                    let lane =
                        Lane { idle_since_ns: Some(0), ended_ns: began_ns, ..Lane::default() };
                    self.lanes.push(lane);
                }
                self.lanes[lane].queue.push_back(*request);
                self.queued += 1;
                self.make_ready(lane);
            }
            self.batch = batch;
        }
        Ok(())
    }

    /// Has the next request of a lane that is idle be ready.
    fn make_ready(&mut self, lane: usize) {
        let began_ns = self.began_ns;
        let one = &mut self.lanes[lane];
        let (Some(idle_since_ns), Some(next)) = (one.idle_since_ns, one.queue.front()) else {
            return;
        };
        let think_ns = next.time_ns.saturating_sub(one.ended_ns);
        let at_ns = match self.is_open {
            true => next.time_ns.saturating_sub(began_ns.unwrap_or(next.time_ns)),
            false => idle_since_ns.saturating_add(think_ns),
        };
        one.idle_since_ns = None;
        one.is_thinking = !self.is_open && think_ns <= MOMENT_NS;
        self.thinking += usize::from(one.is_thinking);
        self.found += 1;
        self.ready.push(Reverse((at_ns, self.found, lane)));
    }
}
