// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is there before a trace begins: everything that it reads before it writes it, and what the
//! user puts there.

use std::collections::HashMap;

use terrace_core::{Error, Result, TierIndex};

use super::trace_key;
use crate::objects::Objects;
use crate::read::{Named, Trace};
use crate::request::{Operation, Request};

/// The largest request, and the longest trace, that a replay takes for meant.
const REQUEST_BYTES_MAX: u64 = 1 << 50;
const SPAN_NS_MAX: u64 = 10 * 366 * 24 * 3600 * SECOND_NS;
const SECOND_NS: u64 = 1_000_000_000;

/// The objects of a trace.
#[derive(Debug, Default)]
pub struct Population {
    objects: Objects,
    /// By number: the id, and the size of what is there from the beginning.
    known: Vec<Known>,
    /// The names of objects, by id, where they are known.
    names: HashMap<u64, Named>,
    requests: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) id: u64,
    /// `None` for what is made while the trace runs.
    pub(super) present_bytes: Option<u64>,
    /// Where that is, if it is known.
    pub(super) present_on: Option<TierIndex>,
    was_written: bool,
}

/// Of the requests so far.
struct Times {
    first_ns: u64,
    last_ns: u64,
    count: u64,
}

impl Population {
    /// Reads a trace to its end; `progress` is called with the number of requests read since the
    /// call before.
    ///
    /// # Errors
    ///
    /// Those of [`Trace::read`]; `Unsupported` for more objects than 32 bits count; `Invalid` for a
    /// request of more than 1 PiB, and for more than ten years of time.
    pub fn read(trace: &mut Trace, progress: &mut dyn FnMut(u64)) -> Result<Self> {
        let mut population = Self::default();
        population.add(trace, progress)?;
        Ok(population)
    }

    /// Adds the objects of a trace, read to its end, behind those that there are.
    ///
    /// # Errors
    ///
    /// As [`Population::read`].
    pub fn add(&mut self, trace: &mut Trace, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let (mut batch, mut numbers) = (Vec::new(), Vec::new());
        let mut times = Times { first_ns: u64::MAX, last_ns: 0, count: 0 };
        trace.want_names();
        loop {
            trace.read(&mut batch)?;
            if batch.is_empty() {
                return Ok(());
            }
            numbers.clear();
            let ids = batch.iter().map(|request| request.object);
            self.objects.numbers(ids, &mut numbers)?;
            for (request, number) in batch.iter().zip(&numbers) {
                check(request, &mut times)?;
                self.note(request, *number);
            }
            self.names.extend(trace.take_names());
            let accesses = batch.iter().filter(|request| request.operation.is_access());
            self.requests += accesses.count() as u64;
            progress(batch.len() as u64);
        }
    }

    /// Has policies be shown what objects are called.
    pub(crate) fn name(&mut self, names: &[(u64, Named)]) {
        self.names.extend(names.iter().cloned());
    }

    /// Has an object lie on a tier from the beginning, whatever the trace does to it. Policies are
    /// shown what is there in the order in which objects were added.
    ///
    /// # Errors
    ///
    /// `Unsupported` for more objects than 32 bits count.
    pub fn put(&mut self, id: u64, tier: TierIndex, bytes: u64) -> Result<()> {
        let mut numbers = Vec::with_capacity(1);
        self.objects.numbers(std::iter::once(id), &mut numbers)?;
        let known = self.known(id, numbers[0]);
        (known.present_bytes, known.present_on) = (Some(bytes), Some(tier));
        Ok(())
    }

    fn known(&mut self, id: u64, number: u32) -> &mut Known {
        if self.known.len() == number as usize {
            let known = Known { id, present_bytes: None, present_on: None, was_written: false };
            self.known.push(known);
        }
        &mut self.known[number as usize]
    }

    fn note(&mut self, request: &Request, number: u32) {
        let known = self.known(request.object, number);
        match request.operation {
            Operation::Write | Operation::Create => known.was_written = true,
            Operation::Read | Operation::Unknown if !known.was_written => {
                let end_bytes = request.offset_bytes.saturating_add(request.length_bytes);
                let bytes = end_bytes.max(request.size_bytes);
                known.present_bytes = Some(known.present_bytes.map_or(bytes, |old| old.max(bytes)));
            }
            _ => {}
        }
    }

    /// What is there from the beginning: numbers of objects, and their bytes.
    pub fn present(&self) -> impl Iterator<Item = (u64, u64)> {
        self.known.iter().filter_map(|known| Some((known.id, known.present_bytes?)))
    }

    /// What a policy is shown as the key of an object, and the segment of it.
    pub(super) fn named(&self, number: u32) -> Result<Named> {
        let id = self.known[number as usize].id;
        match self.names.get(&id) {
            Some(named) => Ok(named.clone()),
            None => Ok(Named { key: trace_key(id)?, segment: 0 }),
        }
    }

    /// How many requests there are.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// How many objects they are for.
    pub fn objects(&self) -> usize {
        self.known.len()
    }

    /// Whether there is an object with this number of the trace's.
    pub fn has(&self, id: u64) -> bool {
        self.number(id).is_some()
    }

    /// The number of an object; `None` for one that the trace did not have when it was read.
    pub(super) fn number(&self, id: u64) -> Option<u32> {
        self.objects.find(id)
    }

    pub(super) fn all(&self) -> &[Known] {
        &self.known
    }
}

/// Refuses what a policy that is asked every second would be asked about for days: most likely a
/// column is another one, or of another unit.
fn check(request: &Request, times: &mut Times) -> Result<()> {
    const OPERATION: &str = "replay the trace";
    if request.operation.is_access() && request.length_bytes > REQUEST_BYTES_MAX {
        let reason = "a request is for more than 1 PiB: is that its size?";
        return Err(Error::invalid(OPERATION, reason)
            .with("object", request.object)
            .with("bytes", request.length_bytes));
    }
    times.count += 1;
    times.first_ns = times.first_ns.min(request.time_ns);
    times.last_ns = times.last_ns.max(request.time_ns);
    let span_ns = times.last_ns - times.first_ns;
    // Of formats without times each request comes a second after the one before.
    if span_ns > SPAN_NS_MAX && span_ns / SECOND_NS > times.count {
        let reason = "its requests are more than ten years apart: are these seconds? In CSV the end \
                      of the name of a column tells another unit (time_ms), or --columns (time_ms=1)";
        return Err(Error::invalid(OPERATION, reason));
    }
    Ok(())
}
