// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests by client, in lanes: in each lane one waits for the one before.

use std::collections::{BTreeSet, HashMap};

use terrace_core::Result;

use crate::read::{Tells, Trace};
use crate::request::Request;

/// Finds the lane of each request, one after another.
pub(crate) struct Lanes {
    by_client: HashMap<u32, usize>,
    /// Whether the trace has how long answers took, but not the client: then overlapping requests
    /// come from several clients.
    has_overlaps: bool,
    /// Whether an answer took time so far: where none does, nothing is known to overlap.
    has_latencies: bool,
    /// Then: when what was recorded last in each lane ended, …
    until_ns: Vec<u64>,
    /// … lanes by that, …
    free: BTreeSet<(u64, usize)>,
    /// … and the last one that each object was in: the client that uses an object goes on with it.
    by_object: HashMap<u64, usize>,
}

impl Lanes {
    pub(crate) fn new(tells: Tells) -> Self {
        Self {
            by_client: HashMap::new(),
            has_overlaps: tells.latencies && !tells.clients,
            has_latencies: false,
            until_ns: Vec::new(),
            free: BTreeSet::new(),
            by_object: HashMap::new(),
        }
    }

    /// The number of the lane of the next request; that of a new one is how many there were.
    pub(crate) fn lane_of(&mut self, request: &Request) -> usize {
        if !self.has_overlaps {
            let next = self.by_client.len();
            return *self.by_client.entry(request.client).or_insert(next);
        }
        self.has_latencies |= request.latency_ns > 0;
        let is_free = |lane: &usize| self.until_ns[*lane] <= request.time_ns;
        let of_object = self.by_object.get(&request.object).copied();
        // Else of those that were free the one that was busy last.
        let free = || self.free.range(..=(request.time_ns, usize::MAX)).next_back();
        // What takes no time waits for whatever was asked of the object before.
        let found = of_object
            .filter(|lane| request.latency_ns == 0 || is_free(lane))
            .or_else(|| free().map(|(_, lane)| *lane))
            .or_else(|| (!self.has_latencies && !self.until_ns.is_empty()).then_some(0));
        let lane = found.unwrap_or_else(|| {
            self.until_ns.push(0);
            self.until_ns.len() - 1
        });
        let end_ns = request.time_ns.saturating_add(request.latency_ns);
        let until_ns = &mut self.until_ns[lane];
        self.free.remove(&(*until_ns, lane));
        *until_ns = end_ns.max(*until_ns);
        self.free.insert((*until_ns, lane));
        self.by_object.insert(request.object, lane);
        lane
    }
}

/// All requests of a trace, read to its end, by client: the same lanes that a replay in virtual
/// time has.
///
/// # Errors
///
/// Those of [`Trace::read`].
pub fn read_lanes(trace: &mut Trace) -> Result<Vec<Vec<Request>>> {
    let mut of = Lanes::new(trace.tells());
    let (mut lanes, mut batch) = (Vec::<Vec<Request>>::new(), Vec::new());
    loop {
        trace.read(&mut batch)?;
        if batch.is_empty() {
            return Ok(lanes);
        }
        for request in &batch {
            let lane = of.lane_of(request);
            if lane == lanes.len() {
                lanes.push(Vec::new());
            }
            lanes[lane].push(*request);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::read::Options;
    use crate::request::Operation;

    #[test]
    fn every_client_has_a_lane_with_its_requests_in_order() {
        let text = "time,id,size,op,client\n1,1,10,read,7\n2,2,10,read,9\n3,3,10,write,7\n";
        let stream = Box::new(Cursor::new(text));
        let mut trace = Trace::from_stream(stream, "test", &Options::default()).expect("a trace");
        let lanes = read_lanes(&mut trace).expect("readable");
        let objects = |lane: &Vec<Request>| lane.iter().map(|request| request.object).collect();
        let objects: Vec<Vec<u64>> = lanes.iter().map(objects).collect();
        assert_eq!(objects, [vec![1, 3], vec![2]]);
    }

    #[test]
    fn a_trace_whose_latencies_are_all_zero_is_of_one_client() {
        let lanes = |latency_ns| {
            let mut lanes = Lanes::new(Tells { clients: false, latencies: true });
            // Events of several threads are not quite in order.
            let requests = [(20, 1), (10, 2), (15, 3), (30, 4)].map(|(time_ns, object)| Request {
                latency_ns,
                ..Request::whole(time_ns, object, 10, Operation::Read)
            });
            requests.map(|request| lanes.lane_of(&request))
        };
        assert_eq!(lanes(0), [0; 4]);
        assert!(lanes(100).contains(&1), "what overlaps is of several");
    }
}
