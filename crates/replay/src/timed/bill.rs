// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What providers of tiers charge for: requests, bytes that are read, and bytes that are stored.
//!
//! Requests to a bucket are counted as `terrace_backends` makes them, `object/service` there, and files
//! are open there as long as the stack has them open. A test of the command (`s3.rs`) compares both.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

use terrace_core::{Outcome, Slot, TierIndex, TierSet};

use super::Run;
use super::device::{Character, Job, Work};
use super::mover::{Effects, Ended, REQUEST_BYTES};
use super::recent::User;
use super::report::Usage;
use super::store::{Recall, Store};

/// An object of a bucket with more bytes goes there in parts: `SINGLE_BYTES_MAX` of the backend.
const SINGLE_BYTES_MAX: u64 = 16 << 20;

/// Shortest part, and most parts of an object.
const PART_BYTES_MIN: u64 = 8 << 20;
const PARTS_MAX: u64 = 9_000;

/// Requests that delete an object of a bucket: its bytes, and what was changed of its attributes.
const DELETES_OF_BUCKET: u64 = 2;

/// A read of so many bytes is split into ranges of as many.
const RANGE_BYTES: u64 = 4 << 20;

/// Readahead: the first and the longest window, and the longest beside `SHORT_WINDOWS_STREAMS` other
/// streams or more.
const WINDOW_BYTES_MIN: u64 = 512 << 10;
const WINDOW_BYTES_MAX: u64 = 4 << 20;
const WINDOW_BYTES_MAX_OF_MANY: u64 = 1 << 20;
const SHORT_WINDOWS_STREAMS: usize = 16;

/// Streams of a bucket, and windows that are fetched ahead of each.
const STREAMS_MAX: usize = 64;
const WINDOWS_AHEAD: usize = 2;

/// Objects whose files a stack leaves open after their last handle was closed.
const IDLE_FILES_MAX: usize = 1024;

/// Counts what all tiers are used for.
#[derive(Debug)]
pub(super) struct Bill {
    accounts: Vec<Account>,
    open: OpenFiles,
    now_ns: u64,
}

#[derive(Debug, Default)]
struct Account {
    is_bucket: bool,
    packed_share: Option<f64>,
    /// With lengths for bytes.
    usage: Usage,
    /// Readers of files of a bucket, the one used last at the end.
    streams: Vec<Stream>,
}

/// A reader that goes on where it ended.
#[derive(Debug)]
struct Stream {
    slot: Slot,
    next: u64,
    window_bytes: u64,
    windows: VecDeque<Range<u64>>,
}

/// Files of buckets that are open.
#[derive(Debug, Default)]
struct OpenFiles {
    files: HashMap<Slot, TierSet>,
    /// Of objects that have any.
    handles: HashMap<u32, u32>,
    /// Objects that are not in use and whose files may be open, in the order in which they were closed.
    idle: VecDeque<u32>,
    is_listed: HashSet<u32>,
    was_closed: HashSet<u32>,
    /// The segments of those with open files.
    slots: HashMap<u32, Vec<Slot>>,
}

impl Bill {
    /// Accounts of tiers with these characters, all at nothing.
    pub(super) fn new<'a>(characters: impl Iterator<Item = &'a Character>) -> Self {
        let account = |character: &Character| Account {
            is_bucket: character.is_bucket,
            packed_share: character.packed_share,
            ..Account::default()
        };
        let accounts = characters.map(account).collect();
        Self { accounts, open: OpenFiles::default(), now_ns: 0 }
    }

    fn has_buckets(&self) -> bool {
        self.accounts.iter().any(|account| account.is_bucket)
    }

    fn is_bucket(&self, tier: TierIndex) -> bool {
        self.accounts[tier.index()].is_bucket
    }

    /// Adds the bytes that each tier stores times the seconds since the last call.
    pub(super) fn pass(&mut self, now_ns: u64, stored_bytes: impl Iterator<Item = u64>) {
        let passed_s = (now_ns - self.now_ns) as f64 * 1e-9;
        self.now_ns = now_ns;
        if passed_s > 0.0 {
            for (account, bytes) in self.accounts.iter_mut().zip(stored_bytes) {
                account.usage.stored_byte_s += bytes as f64 * passed_s;
            }
        }
    }

    /// A tier is asked for a part of a segment that has `size_bytes`.
    pub(super) fn work(&mut self, tier: TierIndex, work: &Work, size_bytes: u64) {
        let (slot, at) = work.at;
        let account = &mut self.accounts[tier.index()];
        match (account.is_bucket, work.is_write) {
            (false, true) => account.usage.write_requests += u64::from(work.requests),
            (false, false) => {
                account.usage.read_requests += u64::from(work.requests);
                account.usage.out_bytes += work.bytes;
            }
            // A migration, which is one upload, counts at its end.
            (true, true) if !work.is_foreground => {}
            (true, true) => account.usage.write_requests += uploads(work.bytes),
            (true, false) => {
                self.open(slot, tier);
                let step_bytes = if work.is_foreground { work.bytes } else { REQUEST_BYTES };
                let (mut at, end) = (at, at.saturating_add(work.bytes).min(size_bytes));
                let account = &mut self.accounts[tier.index()];
                while at < end {
                    let next = at.saturating_add(step_bytes.max(1)).min(end);
                    account.fetch(slot, at..next, size_bytes);
                    at = next;
                }
            }
        }
    }

    /// An object has one more handle; a request for one that has none is a handle while it lasts.
    pub(super) fn opened(&mut self, object: u32) {
        if self.has_buckets() {
            *self.open.handles.entry(object).or_default() += 1;
        }
    }

    /// A handle of an object is closed.
    pub(super) fn closed(&mut self, object: u32, slots: &[Slot]) {
        if let Some(handles) = self.open.handles.get_mut(&object)
            && *handles > 1
        {
            *handles -= 1;
            return;
        }
        // A recording may begin with the end of one.
        self.open.handles.remove(&object);
        if self.has_buckets() {
            self.open.closed(object, slots);
        }
    }

    /// A caller asks for size and times of an object.
    pub(super) fn stat(&mut self, store: &Store, object: u32) {
        for slot in store.slots(object) {
            let tier = store.segment(*slot).tier;
            if self.is_bucket(tier) && !self.open.has(*slot, tier) {
                self.look(tier);
            }
        }
    }

    /// A migration of a segment of an object has ended.
    pub(super) fn moved(&mut self, ended: &Ended, object: u32) {
        // It leaves no file open that no handle has open.
        if !self.open.handles.contains_key(&object) {
            self.open.close(&[ended.slot]);
        }
        if !self.is_bucket(ended.to) {
            return;
        }
        match (ended.outcome, ended.is_flip) {
            (Outcome::Done, false) => {
                self.usage_mut(ended.to).write_requests += uploads(ended.copied_bytes);
            }
            (Outcome::Done, true) => {
                self.look(ended.to);
                self.usage_mut(ended.to).write_requests += 1;
            }
            _ if ended.copied_bytes > 0 => {
                let usage = self.usage_mut(ended.to);
                if ended.was_completed {
                    usage.write_requests += uploads(ended.copied_bytes);
                } else if ended.copied_bytes > SINGLE_BYTES_MAX {
                    // What was uploaded by then, and the request that aborts it.
                    usage.write_requests += 1 + ended.copied_bytes / PART_BYTES_MIN;
                    usage.delete_requests += 1;
                }
                usage.delete_requests += DELETES_OF_BUCKET;
            }
            _ => {}
        }
    }

    /// A file on a tier is deleted.
    pub(super) fn deleted(&mut self, slot: Slot, tier: TierIndex) {
        self.open.files.entry(slot).and_modify(|tiers| *tiers = tiers.without(tier));
        let account = &mut self.accounts[tier.index()];
        account.streams.retain(|stream| stream.slot != slot);
        account.usage.delete_requests += if account.is_bucket { DELETES_OF_BUCKET } else { 1 };
    }

    /// Takes the files that were deleted.
    pub(super) fn take(&mut self, store: &mut Store) {
        for (slot, tier) in std::mem::take(&mut store.deleted) {
            self.deleted(slot, tier);
        }
    }

    /// What each tier was used for.
    pub(super) fn usages(&self) -> impl Iterator<Item = Usage> {
        self.accounts.iter().map(Account::charged)
    }

    fn usage_mut(&mut self, tier: TierIndex) -> &mut Usage {
        &mut self.accounts[tier.index()].usage
    }

    fn open(&mut self, slot: Slot, tier: TierIndex) {
        if !self.open.has(slot, tier) {
            let tiers = self.open.files.entry(slot).or_default();
            *tiers = tiers.with(tier);
            self.look(tier);
        }
    }

    /// A look at what an object of a bucket is like: a HEAD, and a GET of its changed attributes.
    fn look(&mut self, tier: TierIndex) {
        self.usage_mut(tier).read_requests += 2;
    }
}

impl Account {
    /// Its usage, with what bytes take.
    fn charged(&self) -> Usage {
        let (usage, share) = (self.usage, self.packed_share.unwrap_or(1.0));
        Usage {
            out_bytes: (usage.out_bytes as f64 * share) as u64,
            stored_byte_s: usage.stored_byte_s * share,
            ..usage
        }
    }

    /// Reads a range inside an object of a bucket.
    fn fetch(&mut self, slot: Slot, range: Range<u64>, size_bytes: u64) {
        let bytes = range.end - range.start;
        if bytes >= RANGE_BYTES {
            return self.fetched(bytes.div_ceil(RANGE_BYTES), bytes);
        }
        let is_it = |stream: &Stream| stream.slot == slot && stream.follows(range.start);
        let Some(at) = self.streams.iter().position(is_it) else {
            if self.streams.len() >= STREAMS_MAX {
                self.streams.remove(0);
            }
            let windows = VecDeque::new();
            let next = range.end;
            self.streams.push(Stream { slot, next, window_bytes: WINDOW_BYTES_MIN, windows });
            return self.fetched(1, bytes);
        };
        let mut stream = self.streams.remove(at);
        let most = match self.streams.len() >= SHORT_WINDOWS_STREAMS {
            true => WINDOW_BYTES_MAX_OF_MANY,
            false => WINDOW_BYTES_MAX,
        };
        let (requests, bytes) = stream.advance(&range, size_bytes, most);
        if range.end < size_bytes {
            self.streams.push(stream);
        }
        self.fetched(requests, bytes);
    }

    fn fetched(&mut self, requests: u64, bytes: u64) {
        self.usage.read_requests += requests;
        self.usage.out_bytes += bytes;
    }
}

impl Stream {
    fn follows(&self, offset_bytes: u64) -> bool {
        let is_inside = self.windows.iter().any(|window| window.contains(&offset_bytes));
        offset_bytes == self.next || is_inside
    }

    /// Fetches windows up to those ahead of a range; how many, and their bytes.
    fn advance(&mut self, range: &Range<u64>, size_bytes: u64, most: u64) -> (u64, u64) {
        while self.windows.len() > 1 && self.windows[1].end <= range.start {
            self.windows.pop_front();
        }
        if self.windows.front().is_none_or(|first| first.start > range.start) {
            self.windows.clear();
        }
        let (mut requests, mut bytes) = (0, 0);
        loop {
            let end = self.windows.back().map_or(range.start, |last| last.end);
            let ahead = self.windows.iter().filter(|window| window.start >= range.end).count();
            if end >= size_bytes || end >= range.end && ahead >= WINDOWS_AHEAD {
                break;
            }
            let window = end..(end + self.window_bytes).min(size_bytes);
            self.window_bytes = (self.window_bytes * 2).min(most);
            requests += 1;
            bytes += window.end - window.start;
            self.windows.push_back(window);
        }
        self.next = self.next.max(range.end);
        (requests, bytes)
    }
}

impl OpenFiles {
    fn closed(&mut self, object: u32, slots: &[Slot]) {
        if self.is_listed.contains(&object) {
            if self.slots.get(&object).is_none_or(|known| known != slots) {
                self.slots.insert(object, slots.into());
            }
            return;
        }
        let is_used_again = !self.was_closed.insert(object);
        let is_full = self.idle.len() >= IDLE_FILES_MAX;
        if is_full && !is_used_again {
            return self.close(slots);
        }
        self.idle.push_back(object);
        self.is_listed.insert(object);
        self.slots.insert(object, slots.into());
        if is_full && let Some(oldest) = self.idle.pop_front() {
            self.is_listed.remove(&oldest);
            let slots = self.slots.remove(&oldest).unwrap_or_default();
            // What is open now is listed again when it is closed.
            if !self.handles.contains_key(&oldest) {
                self.close(&slots);
            }
        }
    }

    fn has(&self, slot: Slot, tier: TierIndex) -> bool {
        self.files.get(&slot).is_some_and(|tiers| tiers.contains(tier))
    }

    fn close(&mut self, slots: &[Slot]) {
        for slot in slots {
            self.files.remove(slot);
        }
    }
}

impl Run<'_> {
    /// Recalls a range; returns the number of jobs to wait for.
    pub(super) fn recall(&mut self, object: u32, range: Range<u64>, job: Job) -> usize {
        let (range, mut effects) = ((range.start, range.end), Effects::default());
        let mover = &mut self.mover;
        self.store.recall(object, range, &mut |store, slot| {
            mover.take_over(store, slot, job, &mut effects)
        });
        let mut jobs = 0;
        for recall in std::mem::take(&mut self.store.recalled) {
            if recall.waits {
                // The migration counts when it ends.
                jobs += 1;
                continue;
            }
            self.tally.recalled(&recall);
            if recall.bytes > 0 {
                self.ask(recall.from, job, work(&recall, false));
                self.ask(recall.to, job, work(&recall, true));
                jobs += 2;
            }
        }
        self.carry_out(effects);
        jobs
    }
}

/// What a recall asks of the tier that the segment comes from, or goes to.
fn work(recall: &Recall, is_write: bool) -> Work {
    Work {
        is_write,
        requests: recall.bytes.div_ceil(REQUEST_BYTES).max(1) as u32,
        bytes: recall.bytes,
        at: (recall.slot, 0),
        is_foreground: false,
        is_first: is_write,
        is_synced: is_write,
        is_switch: false,
        user: User::MAX,
        share: 1.0,
    }
}

/// Requests that write an object of a bucket.
fn uploads(bytes: u64) -> u64 {
    if bytes <= SINGLE_BYTES_MAX {
        return 1;
    }
    let least = bytes.div_ceil(PARTS_MAX).next_multiple_of(1 << 20);
    // One begins it, and one completes it.
    2 + bytes.div_ceil(least.max(PART_BYTES_MIN))
}

#[cfg(test)]
mod tests;
