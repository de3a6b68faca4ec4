// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The trace that `terrace trace record` writes: reads and writes of segments.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use terrace_core::{Error, ErrorKind, Event, EventKind, Result};
use terrace_trace::{Access, Damage, Head, Item, Reader, Record, Subject, Waits};

use super::names::{Named, Names};
use super::sorted::Extents;
use super::{BATCH, Source, Tells};
use crate::request::{Operation, Request};

pub(crate) struct Own {
    reader: Reader,
    extents: Extents,
    notes: Vec<String>,
    summed_up: u64,
    accesses: u64,
    has_latencies: bool,
    has_lives: bool,
    names: Names,
}

/// An event of a store.
pub(crate) struct Told {
    pub(crate) event: Event,
    pub(crate) waits: Waits,
    /// The number of the segment that it is about.
    pub(crate) object: u64,
    /// When, in nanoseconds since 1970.
    pub(crate) wall_ns: u64,
    /// How long the segment was before, as far as is known from the trace: a read shows it, too.
    pub(crate) before_bytes: u64,
    /// What was asked for, where that is what it is.
    pub(crate) request: Option<Request>,
}

impl Own {
    pub(crate) fn open(directory: &Path, has_lives: bool) -> Result<Self> {
        Ok(Self::of(Reader::open(directory)?, has_lives))
    }

    /// What came between two points in time, in nanoseconds since 1970, and a little around them.
    pub(super) fn between(directory: &Path, from_wall_ns: u64, until_wall_ns: u64) -> Result<Self> {
        Ok(Self::of(Reader::open(directory)?.between(from_wall_ns, until_wall_ns), true))
    }

    fn of(reader: Reader, has_lives: bool) -> Self {
        let (extents, notes) = (Extents::default(), Vec::new());
        let names = Names::default();
        let (summed_up, accesses, has_latencies) = (0, 0, false);
        Self { reader, extents, notes, summed_up, accesses, has_latencies, has_lives, names }
    }

    /// What the file that is being read says of itself.
    pub(crate) fn head(&self) -> Option<&Head> {
        self.reader.head()
    }

    /// What the event that came last is about, where the trace tells.
    pub(crate) fn subject(&self, event: &Event) -> Option<&Subject> {
        self.reader.subject(event.slot, event.incarnation)
    }

    /// The next event; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Told>> {
        loop {
            match self.reader.next_item()? {
                None => return Ok(None),
                Some(Item::Record(Record::Access(Access { event, waits }))) => {
                    let object = match self.reader.subject(event.slot, event.incarnation) {
                        Some(subject) => {
                            let object = object_of(subject);
                            self.names.note(object, || Some(named_of(subject)));
                            object
                        }
                        None => {
                            u64::MAX ^ (u64::from(event.slot) << 32 | u64::from(event.incarnation))
                        }
                    };
                    let wall = |head: &Head| head.wall_of(event.time_ns);
                    let wall_ns = self.reader.head().map_or(event.time_ns, wall);
                    let known_bytes = self.extents.size_bytes(object);
                    let request = self.request(&event, object, wall_ns);
                    let before_bytes = match event.kind {
                        EventKind::Read => self.extents.size_bytes(object),
                        _ => known_bytes,
                    };
                    return Ok(Some(Told { event, waits, object, wall_ns, before_bytes, request }));
                }
                Some(Item::Problem(problem)) if matches!(problem.what, Damage::Torn { .. }) => {
                    self.notes.push(problem.to_string());
                }
                Some(Item::Problem(problem)) => {
                    let error = Error::new(ErrorKind::Corrupt, "read the trace");
                    return Err(error.because(problem.to_string()));
                }
                Some(Item::Record(_) | Item::File(_)) => {}
            }
        }
    }

    /// The request that an event is, if it is one.
    fn request(&mut self, event: &Event, object: u64, time_ns: u64) -> Option<Request> {
        let operation = match event.kind {
            EventKind::Read => Operation::Read,
            EventKind::Write => Operation::Write,
            EventKind::SetLen => {
                self.extents.set(object, event.length_bytes);
                Operation::SetLength
            }
            EventKind::Create => Operation::Create,
            EventKind::Open => Operation::Open,
            EventKind::Close => Operation::Close,
            EventKind::Stat => Operation::Stat,
            EventKind::Sync => Operation::Sync,
            EventKind::Delete => {
                self.extents.set(object, 0);
                Operation::Delete
            }
            // Only `terrace trace convert` and `cut` write it: it says how long the segment is.
            EventKind::Present => {
                self.extents.set(object, event.length_bytes);
                return None;
            }
            _ => return None,
        };
        let is_access = operation.is_access();
        if !is_access && !self.has_lives {
            return None;
        }
        self.summed_up += u64::from(event.count.saturating_sub(1));
        let mut request = Request {
            time_ns,
            object,
            size_bytes: 0,
            offset_bytes: event.offset_bytes,
            length_bytes: event.length_bytes,
            client: 0,
            latency_ns: event.latency_ns,
            operation,
        };
        if is_access {
            self.accesses += 1;
            self.has_latencies |= event.latency_ns > 0;
            request.size_bytes = self.extents.extend(&request);
        }
        Some(request)
    }
}

/// The number of the object, and of the segment in the upper half, where hardly any object is.
fn object_of(subject: &Subject) -> u64 {
    subject.object_id ^ u64::from(subject.segment).rotate_left(32)
}

/// What it is called.
fn named_of(subject: &Subject) -> Named {
    Named { key: subject.name.key().clone(), segment: subject.segment }
}

/// The objects of each name: the segments of objects with this key, or this number.
pub(super) fn named(directory: &Path, names: &[String]) -> Result<Vec<Vec<u64>>> {
    let mut found = vec![BTreeSet::new(); names.len()];
    let mut looked_at = HashSet::new();
    let mut reader = Reader::open(directory)?;
    while let Some(item) = reader.next_item()? {
        let Item::Record(Record::Access(Access { event, .. })) = item else { continue };
        let Some(subject) = reader.subject(event.slot, event.incarnation) else { continue };
        if !looked_at.insert(object_of(subject)) {
            continue;
        }
        let (key, number) = (subject.name.key().to_string(), subject.object_id.to_string());
        for (name, found) in names.iter().zip(&mut found) {
            if *name == key || *name == number {
                found.insert((subject.segment, object_of(subject)));
            }
        }
    }
    let objects = |found: BTreeSet<(u32, u64)>| found.into_iter().map(|(_, object)| object);
    Ok(found.into_iter().map(|found| objects(found).collect()).collect())
}

impl Source for Own {
    fn fill(&mut self, requests: &mut Vec<Request>) -> Result<()> {
        while requests.len() < BATCH {
            let Some(told) = self.next()? else { return Ok(()) };
            requests.extend(told.request);
        }
        Ok(())
    }

    fn tells(&self) -> Tells {
        Tells { clients: false, latencies: true }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        if self.summed_up > 0 {
            let summed_up = self.summed_up;
            notes
                .push(format!("{summed_up} requests are summed up in others: the rings were full"));
        }
        if self.accesses > 0 && !self.has_latencies {
            let note = "no request has a latency: all are taken for those of one client";
            notes.push(note.to_string());
        }
        notes
    }

    fn want_names(&mut self) {
        self.names.want();
    }

    fn take_names(&mut self) -> Vec<(u64, Named)> {
        self.names.take()
    }
}
