// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads everything at a bounded rate, and finds what rots before it is needed.
//!
//! `read` is one file, `damage` what is done about a bad one, `record` how a checksum is computed
//! beside writers, `schedule` when it happens by itself.

mod damage;
mod read;
mod record;
mod schedule;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use terrace_core::{Buffer, Error, ErrorKind, Key, Result};

use crate::catalog::record::{Record, SegmentRecord};
use crate::memory::entry::{Entry, Segment};
use crate::report::{Problem, ScrubReport};
use crate::shared::Shared;
use crate::tiers::parts::SCRUB_BYTES_PER_S;
use read::Found;

pub(crate) use schedule::{status, tick};

/// Objects that are taken from the catalog at a time.
const PAGE_OBJECTS: usize = 64;

/// How often a scrub asks whether it is to go on, and tells how far it is.
const TOLD_NS: u64 = 100_000_000;

/// Findings of one scrub that are kept; more are only counted.
const FINDINGS_MAX: usize = 1000;

/// What a scrub reads, and how fast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScrubOptions {
    /// Most bytes per second; above zero.
    pub bytes_per_s: f64,
    /// Only the objects of this namespace.
    pub namespace: Option<String>,
}

impl Default for ScrubOptions {
    fn default() -> Self {
        Self { bytes_per_s: SCRUB_BYTES_PER_S, namespace: None }
    }
}

/// Reads every file once, compares it with its checksum, and repairs it from a copy.
pub(crate) fn run(
    shared: &Shared,
    options: &ScrubOptions,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<ScrubReport> {
    if options.bytes_per_s.is_nan() || options.bytes_per_s <= 0.0 {
        return Err(Error::invalid("scrub", "the bandwidth must be above zero"));
    }
    if shared.scrubbing.is_asked.swap(true, Ordering::AcqRel) {
        return Err(Error::new(ErrorKind::Busy, "scrub").because("another scrub runs"));
    }
    let result = schedule::run_asked(shared, options, progress);
    shared.scrubbing.is_asked.store(false, Ordering::Release);
    result
}

/// A scrub that runs.
struct Scrub<'a> {
    shared: &'a Shared,
    bytes_per_s: f64,
    /// Gets what was done so far; whether to go on.
    go_on: &'a mut dyn FnMut(&ScrubReport) -> bool,
    /// Earliest time at which the next bytes may be read.
    free_ns: u64,
    told_ns: u64,
    is_stopped: bool,
    buffer: Buffer,
    report: ScrubReport,
}

impl<'a> Scrub<'a> {
    fn new(
        shared: &'a Shared,
        bytes_per_s: f64,
        go_on: &'a mut dyn FnMut(&ScrubReport) -> bool,
    ) -> Self {
        Self {
            shared,
            bytes_per_s,
            go_on,
            free_ns: 0,
            told_ns: 0,
            is_stopped: false,
            buffer: Buffer::new(),
            report: ScrubReport::default(),
        }
    }

    /// Walks over the objects behind `after`; `each` gets every one that is done. Memory is bounded
    /// by a page of records.
    fn walk(
        &mut self,
        namespace: Option<&str>,
        mut after: Option<Key>,
        each: &mut dyn FnMut(&Key, &ScrubReport) -> Result<()>,
    ) -> Result<()> {
        loop {
            let page = self.shared.catalog.page(namespace, after.as_ref(), PAGE_OBJECTS)?;
            for (key, record) in page.objects {
                match record {
                    Ok(record) => self.object(&key, &record)?,
                    Err(error) => self.problem("damaged-record", &key, error.chain()),
                }
                if self.is_stopped() {
                    return Ok(());
                }
                self.report.objects += 1;
                each(&key, &self.report)?;
                after = Some(key);
            }
            if page.is_last {
                self.report.is_complete = true;
                return Ok(());
            }
        }
    }

    fn object(&mut self, key: &Key, record: &Record) -> Result<()> {
        // Lengths in the catalog lag behind those of objects in memory.
        let in_memory = self.shared.entries.peek(key).map(|entry| entry.record_now());
        let record = in_memory.as_ref().unwrap_or(record);
        for segment in &record.segments {
            self.report.segments += 1;
            match segment.checksum {
                Some(_) => self.compare(key, record.object_id, segment)?,
                None => self.record(key, record.object_id, segment)?,
            }
            if self.is_stopped() {
                break;
            }
        }
        Ok(())
    }

    /// Reads the files of a segment whose checksum is known. What looks bad is looked at again,
    /// closer.
    fn compare(&mut self, key: &Key, object_id: u64, segment: &SegmentRecord) -> Result<()> {
        for place in std::iter::once(&segment.primary).chain(&segment.copies) {
            let found = self.file((object_id, segment.number), place, segment.length_bytes)?;
            match found {
                Found::Whole(sum) if Some(sum) == segment.checksum => {}
                Found::Stopped => return Ok(()),
                Found::Offline => self.report.skipped += 1,
                _ => return self.damage(key, object_id, segment.number),
            }
        }
        Ok(())
    }

    /// An object in memory, if it is still the same; a reference keeps it there.
    fn find(
        &self,
        key: &Key,
        object_id: u64,
        number: u32,
    ) -> Result<Option<(Arc<Entry>, Arc<Segment>)>> {
        let entry = self.shared.borrow_entry(key)?;
        let Some(entry) = entry.filter(|entry| entry.object_id == object_id) else {
            return Ok(None);
        };
        let segments = entry.segments.load_full();
        let segment = segments.iter().find(|segment| segment.number == number);
        Ok(segment.map(|segment| (Arc::clone(&entry), Arc::clone(segment))))
    }

    fn problem(&mut self, kind: &str, key: &Key, detail: String) {
        self.report.problem_count += 1;
        self.shared.tell_scrub(key, false, || finding(kind, key, detail.clone()));
        note(&mut self.report.problems, kind, key, detail);
    }

    fn repaired(&mut self, kind: &str, key: &Key, detail: String) {
        self.shared.tell_scrub(key, true, || finding(kind, key, detail.clone()));
        note(&mut self.report.repairs, kind, key, detail);
    }

    /// Whether it is to end: the store closes, or the caller has cancelled it.
    fn is_stopped(&mut self) -> bool {
        if self.is_stopped || self.shared.is_closing.load(Ordering::Acquire) {
            self.is_stopped = true;
            return true;
        }
        let now_ns = self.shared.clock.now_ns();
        if now_ns.saturating_sub(self.told_ns) >= TOLD_NS {
            self.told_ns = now_ns;
            self.is_stopped = !(self.go_on)(&self.report);
        }
        self.is_stopped
    }

    fn can_write(&self) -> bool {
        self.shared.check_writable("scrub").is_ok()
    }
}

fn note(findings: &mut Vec<Problem>, kind: &str, key: &Key, detail: String) {
    if findings.len() < FINDINGS_MAX {
        findings.push(finding(kind, key, detail));
    }
}

fn finding(kind: &str, key: &Key, detail: String) -> Problem {
    Problem { kind: kind.into(), place: key.as_str().into(), detail }
}
