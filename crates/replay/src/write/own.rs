// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace of our own, as of a store with one tier.
//!
//! An object is created before the first request for it. Its length is set where it is another one
//! than what requests have told. What is not known to be a write becomes a read.

use std::path::{Path, PathBuf};

use terrace_core::{
    Error, ErrorKind, Event, EventKind, Figures, Key, Persistency, Result, Watermarks,
};
use terrace_trace::{About, Origin, Settings, Tier, Waits, Writer};

use super::Sink;
use crate::objects::Objects;
use crate::request::{Operation, Request};

/// Requests after which what was written is waited for: the writer drops what the disk is too slow
/// for, once 16 MiB wait, and a request with its events takes less than 150 bytes.
const FLUSH_REQUESTS: u64 = 50_000;

/// Of the whole trace: no file is deleted to keep a bound.
const MAX_BYTES: u64 = 1 << 62;

/// The namespace of the objects, whose names are their numbers.
const NAMESPACE: &str = "trace";

pub(super) struct Own {
    directory: PathBuf,
    /// From the first request on, which tells when the recording began.
    writer: Option<Writer>,
    objects: Objects,
    /// The size of each object, as a reader takes it to be.
    sizes: Vec<u64>,
    numbers: Vec<u32>,
    count: u64,
}

impl Own {
    pub(super) fn create(directory: &Path) -> Result<Self> {
        if directory.exists() {
            let error = Error::new(ErrorKind::Exists, "write the trace");
            return Err(error.with("directory", directory.display()));
        }
        let own = Self {
            directory: directory.into(),
            writer: None,
            objects: Objects::default(),
            sizes: Vec::new(),
            numbers: Vec::new(),
            count: 0,
        };
        Ok(own)
    }

    fn begin(&self, now_ns: u64) -> Result<Writer> {
        let tier = Tier {
            name: "tier".into(),
            figures: Figures::default(),
            watermarks: Watermarks::default(),
            persistency: Persistency::Storage,
        };
        let settings = Settings {
            directory: self.directory.clone(),
            max_bytes: MAX_BYTES,
            salt: None,
            has_decisions: false,
        };
        let (wall_ns, monotonic_ns) = (now_ns, now_ns);
        Writer::begin(settings, Origin { store_id: 0, wall_ns, monotonic_ns, tiers: vec![tier] })
    }

    /// The events that stand for a request.
    fn events(&mut self, request: &Request, slot: u32) -> Vec<Event> {
        let event = |kind| Event::new(kind, slot, 0, request.time_ns);
        let mut events = Vec::new();
        if slot as usize == self.sizes.len() {
            self.sizes.push(0);
            // What is read first was there before.
            let is_new = request.operation == Operation::Write;
            events.push(event(if is_new { EventKind::Create } else { EventKind::Present }));
        }
        let size = &mut self.sizes[slot as usize];
        let end_bytes = request.offset_bytes.saturating_add(request.length_bytes);
        if request.size_bytes != end_bytes.max(*size) {
            events.push(Event { length_bytes: request.size_bytes, ..event(EventKind::SetLen) });
            *size = request.size_bytes;
        }
        *size = end_bytes.max(*size);
        let kind = match request.operation {
            Operation::Write => EventKind::Write,
            _ => EventKind::Read,
        };
        let Request { offset_bytes, length_bytes, .. } = *request;
        events.push(Event { offset_bytes, length_bytes, ..event(kind) });
        events
    }

    fn failed(&self, why: String) -> Error {
        let error = Error::new(ErrorKind::Io, "write the trace").because(why);
        error.with("directory", self.directory.display())
    }
}

impl Sink for Own {
    fn push(&mut self, request: &Request) -> Result<()> {
        self.numbers.clear();
        self.objects.numbers(std::iter::once(request.object), &mut self.numbers)?;
        let events = self.events(request, self.numbers[0]);
        if self.writer.is_none() {
            self.writer = Some(self.begin(request.time_ns)?);
        }
        let writer = self.writer.as_mut().expect("it was begun above");
        let key =
            Key::new(NAMESPACE, &request.object.to_string()).expect("digits are a legal name");
        let about = About { object_id: request.object, segment: 0, start_bytes: 0, key: &key };
        for event in events {
            writer.access(&event, Waits::default(), || Some(about));
        }
        self.count += 1;
        if self.count.is_multiple_of(FLUSH_REQUESTS) && !writer.flush() {
            return Err(self.failed("its disk is too slow".into()));
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => self.begin(0)?,
        };
        let report = writer.end();
        match report.failure {
            Some(why) => Err(self.failed(why)),
            None if report.lost_records > 0 => Err(self.failed("its disk is too slow".into())),
            None => Ok(()),
        }
    }
}
