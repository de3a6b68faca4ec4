// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small traces of five kinds of programs, each as long as a few seconds on a disk.

use std::fmt::Write;

use terrace_core::Random;

use crate::micro::Keys;
use crate::micro::picks::Picks;

/// Bytes of an object.
const OBJECT_BYTES: u64 = 256 << 10;

/// Objects of each; the fast tier has room for a quarter of them.
const OBJECTS: u64 = 256;

/// What the fast tier may hold.
pub(super) const FAST_BYTES: u64 = OBJECTS / 4 * OBJECT_BYTES;

const REQUESTS: u64 = 20_000;

/// Of the one that pauses.
const STAGED: u64 = 6000;

/// Between an answer and the next request, in the mean.
const THINK_NS: u64 = 20_000;

/// A program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    requests: fn(&mut Lines),
}

/// All of them.
pub(super) const WORKLOADS: [Workload; 5] = [
    Workload { name: "popular", requests: popular },
    Workload { name: "shifting", requests: shifting },
    Workload { name: "scan", requests: scan },
    Workload { name: "mixed", requests: mixed },
    Workload { name: "staging", requests: staging },
];

impl Workload {
    /// Its trace, as text in columns.
    pub(super) fn trace(&self) -> String {
        let mut lines = Lines { text: HEADING.into(), random: Random::new(7), now_ns: [0; 2] };
        (self.requests)(&mut lines);
        lines.text
    }
}

const HEADING: &str = "time_ns,id,size,op,offset,length,client\n";

/// A trace that is being written.
struct Lines {
    text: String,
    random: Random,
    /// Of each client.
    now_ns: [u64; 2],
}

impl Lines {
    /// The next request of a client, for a part of an object, some time after the one before.
    fn part(&mut self, client: usize, op: &str, object: u64, (offset, length): (u64, u64)) {
        let think_ns = self.random.below(2 * THINK_NS);
        self.pause(client, think_ns);
        let at_ns = self.now_ns[client];
        let size = OBJECT_BYTES;
        writeln!(self.text, "{at_ns},{object},{size},{op},{offset},{length},{client}")
            .expect("text takes everything");
    }

    /// The same for all of an object.
    fn whole(&mut self, client: usize, op: &str, object: u64) {
        self.part(client, op, object, (0, OBJECT_BYTES));
    }

    fn pause(&mut self, client: usize, ns: u64) {
        self.now_ns[client] += ns;
    }
}

/// One reads, popular objects more often.
fn popular(lines: &mut Lines) {
    let picks = Picks::new(Keys::Zipf, OBJECTS as usize, 1);
    for request in 0..REQUESTS {
        lines.whole(0, "read", picks.at(request) as u64);
    }
}

/// Two read, and what is popular is so for a third of the time.
fn shifting(lines: &mut Lines) {
    let picks = Picks::new(Keys::Zipf, OBJECTS as usize / 2, 2);
    for request in 0..REQUESTS {
        let phase = request * 3 / REQUESTS;
        let object = (picks.at(request) as u64 + phase * OBJECTS / 3) % OBJECTS;
        lines.whole(request as usize % 2, "read", object);
    }
}

/// One reads everything in order, again and again.
fn scan(lines: &mut Lines) {
    for request in 0..REQUESTS {
        lines.whole(0, "read", request % OBJECTS);
    }
}

/// Two read and write parts, three reads for a write.
fn mixed(lines: &mut Lines) {
    const PART_BYTES: u64 = 64 << 10;
    let picks = Picks::new(Keys::Zipf, OBJECTS as usize, 3);
    for request in 0..REQUESTS {
        let op = if lines.random.below(4) == 0 { "write" } else { "read" };
        let offset = lines.random.below(OBJECT_BYTES / PART_BYTES) * PART_BYTES;
        let object = picks.at(request) as u64;
        lines.part(request as usize % 2, op, object, (offset, PART_BYTES));
    }
}

/// One writes new objects in bursts and reads each burst once, after the next one.
fn staging(lines: &mut Lines) {
    const BURST: u64 = 32;
    const BETWEEN_NS: u64 = 50_000_000;
    for burst in 0..STAGED / (2 * BURST) {
        for object in 0..BURST {
            lines.whole(0, "write", burst * BURST + object);
        }
        lines.pause(0, BETWEEN_NS);
        if let Some(before) = burst.checked_sub(1) {
            for object in 0..BURST {
                lines.whole(0, "read", before * BURST + object);
            }
        }
    }
}
