// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns what happens into blocks, and blocks into files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use terrace_core::{Action, Error, Event, Key, Result, Slot};

use crate::access::{ACCESS_BYTES_MAX, Before};
use crate::block::{CONTENT_BYTES_MAX, Kind, NO_TIME, PREFIX_BYTES, seal};
use crate::codec::Encoder;
use crate::directory::Directory;
use crate::disk::{Disk, Order};
use crate::entry;
use crate::index::BLOCKS_MAX;
use crate::names::Names;
use crate::record::{Access, Head, PolicyChange, Round, Snapshot, State, Subject, Tier, Waits};

/// Least that a trace may be bounded to.
pub const MAX_BYTES_MIN: u64 = 4 << 20;

/// The default bound of a trace.
pub const MAX_BYTES_DEFAULT: u64 = 1_000_000_000;

/// Most bytes of one file.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Files that a bound is divided into: the oldest sixteenth goes at a time, or eighth of a small
/// one.
const FILES_MIN: u64 = 16;
const FILE_BYTES_MIN: u64 = 512 << 10;

/// Of a file, room for its head, its index and the blocks that go over its bound together.
const SPARE_BYTES: u64 = 256 << 10;

/// Longest that records stay out of the file when few come.
const FLUSH_NS: u64 = 1_000_000_000;

/// Longest part of an entry that is longer than a block.
const PART_BYTES: usize = 32 << 10;

/// Longest that the records of a snapshot wait for the disk, and an end for what was recorded.
const PATIENCE: Duration = Duration::from_secs(10);

/// What to record, and where.
#[derive(Clone)]
pub struct Settings {
    /// The directory; made where it is missing, continued where it has files of the same store.
    pub directory: PathBuf,
    /// Most bytes of all its files; at least [`MAX_BYTES_MIN`].
    pub max_bytes: u64,
    /// Hash names with this: an unguessable number that is kept nowhere.
    pub salt: Option<u128>,
    /// Record the policy's inputs and decisions, too.
    pub has_decisions: bool,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("directory", &self.directory)
            .field("max_bytes", &self.max_bytes)
            .field("has_hashed_names", &self.salt.is_some())
            .field("has_decisions", &self.has_decisions)
            .finish()
    }
}

/// Whose trace it is, and from when.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The store.
    pub store_id: u128,
    /// Now, in nanoseconds since 1970.
    pub wall_ns: u64,
    /// Now, as the times of events.
    pub monotonic_ns: u64,
    /// The tiers, by index.
    pub tiers: Vec<Tier>,
}

/// What a writer asks about a segment that it mentions for the first time in a file.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The number of the object in its store.
    pub object_id: u64,
    /// The index of the segment in its object.
    pub segment: u32,
    /// Where the segment begins in its object.
    pub start_bytes: u64,
    /// The object.
    pub key: &'a Key,
}

/// How far a recording is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Files in the directory.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records of this recording.
    pub records: u64,
    /// Events that full rings had summed up before they came here.
    pub summed_up_events: u64,
    /// Records that the disk was too slow for.
    pub lost_records: u64,
    /// Files of the directory that were deleted so far to keep the bound.
    pub deleted_files: u64,
    /// Why nothing is recorded any more: the error of the disk.
    pub failure: Option<String>,
}

/// A block that is being filled.
struct Filling {
    bytes: Vec<u8>,
    end: usize,
    records: u32,
    times: (u64, u64),
}

impl Filling {
    fn new() -> Self {
        let bytes = vec![0; PREFIX_BYTES + CONTENT_BYTES_MAX];
        Self { bytes, end: PREFIX_BYTES, records: 0, times: NO_TIME }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.end + bytes <= self.bytes.len()
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.bytes[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    #[inline]
    fn count(&mut self, time_ns: u64) {
        self.records += 1;
        self.times = (self.times.0.min(time_ns), self.times.1.max(time_ns));
    }

    fn is_empty(&self) -> bool {
        self.end == PREFIX_BYTES
    }

    /// The block, sealed; leaves an empty one.
    fn take(&mut self, kind: Kind) -> Option<Vec<u8>> {
        if self.is_empty() {
            return None;
        }
        let Filling { mut bytes, end, records, times } = std::mem::replace(self, Filling::new());
        bytes.truncate(end);
        seal(&mut bytes, kind, records, times);
        Some(bytes)
    }
}

/// Writes a trace. Nothing here waits for a disk but [`Writer::begin`], the records of a snapshot,
/// and the end.
pub struct Writer {
    settings: Settings,
    names: Names,
    disk: Disk,
    head: Head,
    file_bytes_max: u64,
    /// Whether a file is begun, what it has, and of how many blocks.
    is_begun: bool,
    file_bytes: u64,
    file_blocks: usize,
    /// By slot: the incarnation that this file knows, plus one.
    known: Vec<u32>,
    subjects: Filling,
    records: Filling,
    before: Before,
    scratch: Encoder,
    /// Blocks wait for the disk: a snapshot is longer than what may wait.
    is_patient: bool,
    /// A long entry is being written, which must end in the file where it begins.
    is_in_parts: bool,
    flushed_ns: u64,
    written_records: u64,
    summed_up_events: u64,
}

impl Writer {
    /// Begins a recording.
    ///
    /// # Errors
    ///
    /// `Invalid` for a bound that is too small, or for decisions with hashed names, which would
    /// tell them; `Busy`, `Exists` for the directory of another recording or store; `Denied`,
    /// `NoSpace`, `Io`.
    pub fn begin(settings: Settings, origin: Origin) -> Result<Self> {
        let wrong = |reason: &str| Err(Error::invalid("record a trace", reason));
        if settings.max_bytes < MAX_BYTES_MIN {
            return wrong("the bound of its size is too small: at least 4 MiB are needed");
        }
        if settings.has_decisions && settings.salt.is_some() {
            return wrong("decisions tell names in reasons, messages and states: hash no names");
        }
        let directory = Directory::take(&settings.directory, origin.store_id)?;
        let file_bytes = (settings.max_bytes / FILES_MIN).clamp(FILE_BYTES_MIN, FILE_BYTES_MAX);
        let disk = Disk::start(directory, settings.max_bytes, file_bytes)?;
        let head = Head {
            store_id: origin.store_id,
            started_wall_ns: origin.wall_ns,
            number: 0,
            wall_ns: origin.wall_ns,
            monotonic_ns: origin.monotonic_ns,
            has_hashed_names: settings.salt.is_some(),
            has_decisions: settings.has_decisions,
            deleted_files: 0,
            deleted_records: 0,
            lost_records: 0,
            tiers: origin.tiers,
        };
        let mut writer = Self {
            names: Names::new(settings.salt),
            settings,
            disk,
            head,
            file_bytes_max: file_bytes - SPARE_BYTES,
            is_begun: false,
            file_bytes: 0,
            file_blocks: 0,
            known: Vec::new(),
            subjects: Filling::new(),
            records: Filling::new(),
            before: Before::default(),
            scratch: Encoder::default(),
            is_patient: false,
            is_in_parts: false,
            flushed_ns: origin.monotonic_ns,
            written_records: 0,
            summed_up_events: 0,
        };
        writer.begin_file();
        // An error of a disk that cannot be written to is returned now, while the caller listens.
        writer.disk.wait(PATIENCE);
        match writer.disk.progress().failure {
            Some(failure) => {
                Err(Error::new(terrace_core::ErrorKind::Io, "record a trace").because(failure))
            }
            None => Ok(writer),
        }
    }

    /// Where it is written.
    pub fn directory(&self) -> &Path {
        &self.settings.directory
    }

    /// What is recorded.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Records an event; `about` is asked where its segment is new in this file.
    #[inline]
    pub fn access<'a>(
        &mut self,
        event: &Event,
        waits: Waits,
        about: impl FnOnce() -> Option<About<'a>>,
    ) {
        self.make_room(ACCESS_BYTES_MAX);
        if !self.knows(event.slot, event.incarnation) {
            self.introduce(event.slot, event.incarnation, about());
        }
        if event.count > 1 {
            self.summed_up_events += u64::from(event.count);
        }
        let access = Access { event: *event, waits };
        self.records.end = self.before.put(&mut self.records.bytes, self.records.end, &access);
        self.records.count(event.time_ns);
    }

    /// Records that all live segments follow.
    pub fn snapshot(&mut self, snapshot: &Snapshot) {
        self.is_patient = true;
        self.entry(entry::SNAPSHOT, snapshot.time_ns, |encoder| {
            encoder.snapshot(snapshot);
        });
    }

    /// Records a segment as it is in the view from here on.
    pub fn state(&mut self, state: &State, now_ns: u64, object_id: u64) {
        let view = &state.view;
        self.make_room(STATE_BYTES_MAX);
        if !self.knows(state.slot, view.incarnation) {
            let about = About {
                object_id,
                segment: view.segment,
                start_bytes: view.start_bytes,
                key: &view.key,
            };
            self.introduce(state.slot, view.incarnation, Some(about));
        }
        self.entry(entry::STATE, now_ns, |encoder| {
            encoder.state(state);
        });
    }

    /// Records a call of the policy; as many decisions as it says follow.
    pub fn round(&mut self, round: &Round) {
        self.entry(entry::ROUND, round.now_ns, |encoder| {
            encoder.round(round);
        });
    }

    /// Records what the policy asked for in the round before.
    pub fn decision(&mut self, action: &Action, now_ns: u64) {
        self.entry(entry::DECISION, now_ns, |encoder| {
            encoder.decision(action);
        });
    }

    /// Records that the policy is another one, or of another mind.
    pub fn policy(&mut self, change: &PolicyChange) {
        self.entry(entry::POLICY, change.now_ns, |encoder| {
            encoder.policy(change);
        });
        self.is_patient = false;
    }

    /// Tells which tiers there are from here on: in a file of its own, where they are others.
    pub fn set_tiers(&mut self, tiers: Vec<Tier>) {
        if self.head.tiers != tiers {
            self.seal();
            self.end_file();
            self.head.tiers = tiers;
        }
    }

    /// Counts events that happened and never came here.
    pub fn lose(&mut self, events: u64) {
        self.seal();
        self.head.lost_records += events;
        self.end_file();
    }

    /// Passes on what was recorded if that was long ago. Called now and then.
    pub fn tick(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.flushed_ns) >= FLUSH_NS {
            self.flushed_ns = now_ns;
            self.seal();
        }
    }

    /// Passes on everything, and waits until it is in the file; false where that takes too long.
    pub fn flush(&mut self) -> bool {
        self.seal();
        self.disk.wait(PATIENCE)
    }

    /// How far it is.
    pub fn report(&self) -> Report {
        let progress = self.disk.progress();
        Report {
            files: progress.files,
            bytes: progress.bytes,
            records: self.written_records + u64::from(self.records.records),
            summed_up_events: self.summed_up_events,
            lost_records: self.head.lost_records,
            deleted_files: progress.deleted_files,
            failure: progress.failure,
        }
    }

    /// Ends the recording; waits a while for the disk.
    pub fn end(mut self) -> Report {
        self.seal();
        self.end_file();
        self.disk.end(PATIENCE);
        self.report()
    }

    #[inline]
    fn knows(&self, slot: Slot, incarnation: u32) -> bool {
        let known = self.known.get(slot as usize);
        known.is_some_and(|known| *known == incarnation.wrapping_add(1))
            || slot == terrace_core::SLOT_NONE
    }

    /// Makes room for an entry and for the segment that it may have to introduce: both are in the
    /// same file then.
    #[inline]
    fn make_room(&mut self, bytes: usize) {
        if !self.records.has_room(bytes) || !self.subjects.has_room(SUBJECT_BYTES_MAX) {
            self.seal();
        }
    }

    #[cold]
    fn introduce(&mut self, slot: Slot, incarnation: u32, about: Option<About<'_>>) {
        let Some(about) = about else { return };
        let subject = Subject {
            object_id: about.object_id,
            segment: about.segment,
            start_bytes: about.start_bytes,
            name: self.names.of(about.key),
        };
        self.scratch.bytes.clear();
        self.scratch.subject((slot, incarnation), &subject);
        self.subjects.raw(&self.scratch.bytes);
        self.subjects.records += 1;
        let index = slot as usize;
        if self.known.len() <= index {
            self.known.resize(index + 1, 0);
        }
        self.known[index] = incarnation.wrapping_add(1);
    }

    fn entry(&mut self, head: u8, time_ns: u64, write: impl FnOnce(&mut Encoder)) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.bytes.clear();
        write(&mut scratch);
        let content = &scratch.bytes;
        if content.len() <= PART_BYTES {
            self.part(head, &[], content, time_ns);
        } else {
            let mut parts = content.chunks(PART_BYTES).peekable();
            // The first part begins with what the whole is.
            let mut what = vec![head];
            let lost_records = self.head.lost_records;
            self.is_in_parts = true;
            while let Some(part) = parts.next() {
                let head = match parts.peek() {
                    _ if !what.is_empty() => entry::FIRST_PART,
                    Some(_) => entry::PART,
                    None => entry::LAST_PART,
                };
                self.part(head, &std::mem::take(&mut what), part, time_ns);
                if self.head.lost_records > lost_records {
                    // What is left of it would be in another file, and tell nothing.
                    break;
                }
            }
            self.is_in_parts = false;
        }
        self.scratch = scratch;
    }

    fn part(&mut self, head: u8, first: &[u8], rest: &[u8], time_ns: u64) {
        let bytes = 1 + crate::codec::NUMBER_BYTES_MAX + first.len() + rest.len();
        if !self.records.has_room(bytes) {
            self.seal();
        }
        let at = self.records.end;
        self.records.bytes[at] = head;
        let length = (first.len() + rest.len()) as u64;
        self.records.end = crate::codec::put_number(&mut self.records.bytes, at + 1, length);
        self.records.raw(first);
        self.records.raw(rest);
        self.records.count(time_ns);
    }

    /// Hands over what is filled; begins another file where this one is full.
    fn seal(&mut self) {
        self.before = Before::default();
        let records = self.records.records;
        let subjects = self.subjects.take(Kind::Subjects);
        // Subjects come before the records that mention them.
        let blocks: Vec<_> = subjects.into_iter().chain(self.records.take(Kind::Records)).collect();
        if blocks.is_empty() {
            return;
        }
        if !self.is_begun {
            self.begin_file();
        }
        let bytes: usize = blocks.iter().map(Vec::len).sum();
        let count = blocks.len();
        let longest = if self.is_patient { PATIENCE } else { Duration::ZERO };
        if !self.disk.blocks(blocks, longest) {
            // The segments that these records would have described are described again, in a file
            // that states how much is missing.
            self.head.lost_records += u64::from(records);
            self.is_patient = false;
            self.end_file();
            return;
        }
        self.written_records += u64::from(records);
        self.file_bytes += bytes as u64;
        self.file_blocks += count;
        let is_out_of_rows = self.file_blocks + 3 > BLOCKS_MAX;
        if self.is_in_parts && is_out_of_rows {
            // Nearly 50 MB in one entry: it is not written to its end.
            self.head.lost_records += 1;
        }
        if is_out_of_rows || self.file_bytes > self.file_bytes_max && !self.is_in_parts {
            self.end_file();
        }
    }

    fn begin_file(&mut self) {
        self.disk.order(Order::Begin(Box::new(self.head.clone())));
        (self.is_begun, self.file_bytes, self.file_blocks) = (true, 0, 0);
    }

    fn end_file(&mut self) {
        if self.is_begun {
            self.disk.order(Order::End);
        }
        self.is_begun = false;
        self.known.fill(0);
    }
}

/// More than the bytes of the longest state: seventeen fields, most of them numbers.
const STATE_BYTES_MAX: usize = 20 * crate::codec::NUMBER_BYTES_MAX;

/// Bytes of the longest subject: five numbers, a kind, and a key or a hash.
const SUBJECT_BYTES_MAX: usize = 6 * crate::codec::NUMBER_BYTES_MAX
    + 1
    + terrace_core::NAMESPACE_BYTES_MAX
    + 1
    + terrace_core::NAME_BYTES_MAX;
