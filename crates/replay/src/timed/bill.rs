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
use super::mover::{Ended, REQUEST_BYTES};
use super::recent::User;
use super::report::Usage;
use super::store::{Recall, Store};

/// An object of a bucket with more bytes goes there in parts: `SINGLE_BYTES_MAX` of the backend.
const SINGLE_BYTES_MAX: u64 = 16 << 20;

/// Shortest part, and most parts of an object.
const PART_BYTES_MIN: u64 = 8 << 20;
const PARTS_MAX: u64 = 9_000;

/// A read of so many bytes is split into ranges of as many.
const RANGE_BYTES: u64 = 4 << 20;

/// Readahead: first and longest window, and the longest from so many streams on; streams, and windows
/// ahead of a reader.
const WINDOW_BYTES_MIN: u64 = 512 << 10;
const WINDOW_BYTES_MAX: u64 = 4 << 20;
const WINDOW_BYTES_MAX_OF_MANY: u64 = 1 << 20;
const MANY: usize = 16;
const STREAMS_MAX: usize = 64;
const AHEAD: usize = 2;

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

    fn is_bucket(&self, tier: TierIndex) -> bool {
        self.accounts[tier.index()].is_bucket
    }

    /// Goes on to a point in time until which the tiers store so much.
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

    /// A request for an object is answered, after which nothing has it open.
    pub(super) fn closed(&mut self, object: u32, slots: &[Slot]) {
        if self.accounts.iter().any(|account| account.is_bucket) {
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

    /// A migration has ended.
    pub(super) fn moved(&mut self, ended: &Ended) {
        // It leaves no file open.
        self.open.close(&[ended.slot]);
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
            // What was uploaded by then, and the request that aborts it.
            _ if ended.copied_bytes > SINGLE_BYTES_MAX => {
                let parts = ended.copied_bytes / PART_BYTES_MIN;
                let usage = self.usage_mut(ended.to);
                usage.write_requests += 1 + parts;
                usage.delete_requests += 1;
            }
            _ => {}
        }
    }

    /// A file on a tier is deleted.
    pub(super) fn deleted(&mut self, slot: Slot, tier: TierIndex) {
        self.open.files.entry(slot).and_modify(|tiers| *tiers = tiers.without(tier));
        let account = &mut self.accounts[tier.index()];
        account.streams.retain(|stream| stream.slot != slot);
        // In a bucket its bytes, and what was changed of its attributes.
        account.usage.delete_requests += if account.is_bucket { 2 } else { 1 };
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
        let most = match self.streams.len() >= MANY {
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
            if end >= size_bytes || end >= range.end && ahead >= AHEAD {
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
            self.close(&slots);
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
    /// Has what is to be changed be on tiers that are written; how many jobs that takes.
    pub(super) fn recall(&mut self, object: u32, range: Range<u64>, job: Job) -> usize {
        self.store.recall(object, range.start, range.end);
        let mut jobs = 0;
        for recall in std::mem::take(&mut self.store.recalled) {
            self.tally.recalled(&recall);
            if recall.bytes > 0 {
                self.ask(recall.from, job, work(&recall, false));
                self.ask(recall.to, job, work(&recall, true));
                jobs += 2;
            }
        }
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
mod tests {
    use std::io::Cursor;

    use terrace_core::{Figures, Persistency, Prices, TierView};

    use crate::format::Format;
    use crate::read::{Options, Trace};
    use crate::timed::{
        Character, Population, Recent, Timed, TimedOptions, TimedReplay, TimedTier, Usage,
    };

    const MB: u64 = 1_000_000;
    const MIB: u64 = 1 << 20;

    const PRICES: Prices = Prices {
        per_1000_write_requests: 5.0,
        per_1000_read_requests: 0.4,
        per_gb_month: 0.02,
        per_gb_read: 0.09,
    };

    /// A directory, and a bucket with prices; 1 MB takes 10 and 100 ms.
    fn tiers() -> Vec<TimedTier> {
        let tier = |name: &str, bytes_per_s, prices| {
            let figures = Figures {
                read_bytes_per_s: bytes_per_s,
                write_bytes_per_s: bytes_per_s,
                prices,
                ..Figures::default()
            };
            let persistency = Persistency::Storage;
            let view = TierView { persistency, ..TierView::empty(name, figures) };
            TimedTier { view, character: Character::default(), recent: Recent::default() }
        };
        let mut tiers = vec![tier("fast", 1e8, Prices::default()), tier("bucket", 1e7, PRICES)];
        tiers[1].character.is_whole = true;
        tiers[1].character.is_bucket = true;
        tiers
    }

    /// What a trace comes to: lines of seconds, object, its size, offset, length and operation.
    fn run(tiers: Vec<TimedTier>, lines: &str, policy: &str, parameters: &[(&str, &str)]) -> Timed {
        let text = format!("time,id,size,offset,length,op\n{lines}");
        let trace = || {
            let has_lives = true;
            let options = Options { format: Some(Format::Csv), has_lives, ..Options::default() };
            let text = Box::new(Cursor::new(text.clone()));
            Trace::from_stream(text, "test", &options).expect("it is a trace")
        };
        let options = TimedOptions::new(tiers);
        let given: Vec<_> =
            parameters.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let policy =
            terrace_policies::create(policy, &options.view(), &given).expect("it is legal");
        let population = Population::read(&mut trace(), &mut |_| {}).expect("readable");
        TimedReplay::new(options).run(population, trace(), policy, &mut |_| {}).expect("readable")
    }

    fn near(value: f64, expected: f64) -> bool {
        (value - expected).abs() <= expected.abs() * 1e-6
    }

    #[test]
    fn a_small_trace_costs_what_is_computed_by_hand() {
        let lines = "0,1,1000000,0,1000000,read\n10,1,1000000,0,1000000,read\n";
        let timed = run(tiers(), lines, "pinned", &[]);
        assert!(near(timed.makespan_s, 10.2), "{timed:?}");
        let [fast, bucket] = &timed.tiers[..] else { panic!("two tiers") };
        assert_eq!((fast.usage, fast.cost), (Usage::default(), 0.0));
        // The first read opens the object, which is a HEAD and a GET; then 1 GET each.
        let expected = Usage {
            read_requests: 4,
            out_bytes: 2 * MB,
            stored_byte_s: bucket.usage.stored_byte_s,
            ..Usage::default()
        };
        assert_eq!(bucket.usage, expected);
        assert!(near(bucket.usage.stored_byte_s, 1e6 * 10.2), "{bucket:?}");
        let storing = 0.001 * 10.2 / (730.0 * 3600.0) * 0.02;
        let cost = 4.0 / 1000.0 * 0.4 + 0.002 * 0.09 + storing;
        assert!(near(bucket.cost, cost) && near(timed.cost, cost), "{} {cost}", bucket.cost);
    }

    #[test]
    fn packed_bytes_cost_what_they_take() {
        let lines = "0,1,1000000,0,1000000,read\n10,1,1000000,0,1000000,read\n";
        let plain = &run(tiers(), lines, "pinned", &[]).tiers[1];
        let mut tiers = tiers();
        tiers[1].character.packed_share = Some(0.25);
        let packed = &run(tiers, lines, "pinned", &[]).tiers[1];
        let of_plain = Usage {
            out_bytes: plain.usage.out_bytes / 4,
            stored_byte_s: plain.usage.stored_byte_s / 4.0,
            ..plain.usage
        };
        assert_eq!(packed.usage, of_plain);
        assert!(near(packed.cost, of_plain.cost(&PRICES)), "{packed:?}");
    }

    #[test]
    fn a_write_recalls_what_is_in_a_bucket() {
        let lines = "0,1,1000000,0,1000,read\n10,1,1000000,5,10,write\n20,1,1000000,0,0,delete\n\
                     30,2,1,0,1,write\n";
        let timed = run(tiers(), lines, "pinned", &[]);
        let [fast, bucket] = &timed.tiers[..] else { panic!("two tiers") };
        // Opened and read; the recall goes from front to back: 256 KiB, then windows of 512 KiB and what
        // is left. The first 1000 bytes are read again.
        let usage = bucket.usage;
        assert_eq!((usage.write_requests, usage.read_requests), (0, 2 + 1 + 3), "{usage:?}");
        assert_eq!((usage.delete_requests, usage.out_bytes), (2, MB + 1000), "{usage:?}");
        assert_eq!((timed.migrations, timed.migrated_bytes), (1, MB));
        assert_eq!((fast.moved_in_bytes, fast.written_bytes, fast.writes), (MB, 11, 2));
        assert_eq!(fast.usage.delete_requests, 1);
        // The writer waits until it is read.
        assert!(timed.writes.mean_s > 0.04, "{timed:?}");
        // The bucket stored it until then, the directory for the 10 s that followed.
        assert!((10.0..10.1).contains(&(usage.stored_byte_s / 1e6)), "{usage:?}");
        assert!((10.0..10.2).contains(&(fast.usage.stored_byte_s / 1e6)), "{fast:?}");
    }

    #[test]
    fn new_objects_go_past_a_bucket_and_are_uploaded_by_migrations() {
        let lines = "0,1,1000000,0,1000000,write\n0,2,20971520,0,20971520,write\n\
                     100,1,1000000,0,1000000,read\n100,3,1,0,1,write\n";
        let parameters = [("timeout", "1s")];
        let timed = run(tiers(), lines, "write-buffer", &parameters);
        let [fast, bucket] = &timed.tiers[..] else { panic!("two tiers") };
        assert_eq!((timed.migrations, fast.writes, bucket.writes), (2, 3, 0), "{timed:?}");
        // 1 PUT; of 20 MiB a beginning, parts of 8 MiB, and the completion. Nothing is read back.
        let usage = bucket.usage;
        assert_eq!((usage.write_requests, usage.read_requests), (1 + 5, 3), "{usage:?}");
        assert_eq!((usage.delete_requests, usage.out_bytes), (0, MB), "{usage:?}");
        assert_eq!(fast.usage.delete_requests, 2);
        // Where everything is in a bucket, which no store can be, each write is an upload.
        let timed = run(tiers().split_off(1), lines, "pinned", &[]);
        assert_eq!(timed.tiers[0].usage.write_requests, 1 + 5 + 1, "{timed:?}");
    }

    #[test]
    fn reads_take_the_documented_requests() {
        let reads = |ranges: &[(u64, u64)]| {
            let line = |(at, (offset, bytes)): (usize, &(u64, u64))| {
                format!("{at},1,{},{offset},{bytes},read\n", 41 * MIB)
            };
            let lines: String = ranges.iter().enumerate().map(line).collect();
            let usage = run(tiers(), &lines, "pinned", &[]).tiers[1].usage;
            // Without those of opening it.
            (usage.read_requests - 2, usage.out_bytes)
        };
        let end = 41 * MIB;
        assert_eq!(reads(&[(5 * MIB, 4096), (end - 10, 10)]), (2, 4106));
        assert_eq!(reads(&[(end - 10, 10), (0, 16 * MIB)]), (1 + 4, 16 * MIB + 10));
        // A look at what is not open.
        let lines = "0,1,1000,0,0,stat\n1,1,1000,0,1000,read\n2,1,1000,0,0,stat\n";
        assert_eq!(run(tiers(), lines, "pinned", &[]).tiers[1].usage.read_requests, 2 + 2 + 1);
        // 128 KiB, windows of 512 KiB, 1 MiB and 2 MiB, then of 4 MiB.
        let pieces: Vec<_> = (0..41 * 8).map(|piece| (piece * (MIB / 8), MIB / 8)).collect();
        assert_eq!(reads(&pieces), (1 + 3 + 10, end));
    }
}
