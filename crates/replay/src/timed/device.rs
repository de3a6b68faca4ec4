// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device in virtual time: its servers share their time among all jobs that it has.
//!
//! A job is its latency and its bytes. Where large requests slow each other more than small ones do,
//! the bytes come after the latency, and share what there is for bytes. What is written beyond a burst
//! comes last, and shares the one rate at which the device goes on writing.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use terrace_core::Figures;

use super::recent::User;

const SECOND_NS: f64 = 1e9;

/// A job is over when no more than this is left of it: half of the clock's unit.
const REST_S: f64 = 0.5e-9;

/// What a device has beside what every tier is described by.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Character {
    /// The part of the latency that a request does not have that goes on where the one before ended.
    pub seek_ns: u64,
    /// The latency of writes, where it is not that of reads.
    pub write_latency_ns: Option<u64>,
    /// What it takes of writes before it becomes slow, if it does.
    pub burst: Option<Burst>,
    /// What a write takes longer that makes a file.
    pub create_ns: u64,
    /// How long it takes to make a file durable whose bytes are there.
    pub sync_ns: u64,
    /// As many large requests as it serves at once without one slowing another, if that is less
    /// than [`Figures::parallelism`], which is of small ones.
    pub streams: Option<f64>,
    /// What the page cache of the machine gives for it, if it is in front of this device.
    pub cached: Option<Cached>,
    /// The part of the time of its requests for which a processor of the machine works, 0 to 1.
    pub cpu_share: f64,
    /// What a migration to it takes beside its bytes, where that is known: then its file is not made
    /// and made durable besides.
    pub switch: Option<Switch>,
    /// Whether it takes whole objects only, so that a segment is moved to another tier before it is
    /// changed.
    pub is_whole: bool,
    /// Whether it is a bucket, for the number of requests.
    pub is_bucket: bool,
    /// The part of their lengths that objects take there and as which they are read, for what its provider
    /// charges; `None` for all of them.
    pub packed_share: Option<f64>,
}

/// Everything of a migration but reading and writing its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Switch {
    /// How long it takes.
    pub latency_ns: u64,
    /// Time of processors in it, of all threads together.
    pub cpu_ns: u64,
}

/// Files whose bytes the machine has in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cached {
    /// Time of a read until its first byte.
    pub latency_ns: u64,
    /// Bytes per second of one large read.
    pub bytes_per_s: f64,
    /// Whether writes return when the machine has them. Then [`Character::burst`] is what it takes
    /// before writers wait for the device.
    pub takes_writes: bool,
}

/// A device that writes fast for a while: a token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// Bytes that it takes at full rate; they come back while it rests.
    pub bytes: u64,
    /// The rate at which it goes on writing, all writes together.
    pub sustained_bytes_per_s: f64,
}

/// What is asked of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) is_write: bool,
    /// Requests that it comes as, each with its latency.
    pub(super) requests: u32,
    pub(super) bytes: u64,
    /// Of which file of the device, and where in it: what follows on it needs no seek.
    pub(super) at: (u32, u64),
    /// Whether an application waits for it.
    pub(super) is_foreground: bool,
    /// Whether it makes the file.
    pub(super) is_first: bool,
    /// Whether it is over when everything that was written is durable.
    pub(super) is_synced: bool,
    /// Whether it is what a migration takes beside its bytes.
    pub(super) is_switch: bool,
    /// What uses its bytes.
    pub(super) user: User,
    /// The part of its time that it takes, because a processor has its bytes.
    pub(super) share: f64,
}

/// What is notified once a job is over.
pub(super) type Job = u64;

#[derive(Debug)]
pub(super) struct Device {
    figures: Figures,
    character: Character,
    /// How many jobs can have a server each, and of how many the bytes, where those are fewer.
    servers: f64,
    streams: Option<f64>,
    /// How fast everything goes while others use the processors, too: 1 where there are enough.
    pace: f64,
    /// Jobs whose bytes are on their way, where those come after the latency, and all others.
    streaming: Jobs,
    asking: Jobs,
    /// Jobs of which nothing is left but what they write beyond the burst.
    draining: Jobs,
    /// Until when everything is computed.
    now_ns: u64,
    end_at: (u32, u64),
    /// Bytes that can be written at full rate, and since when or from when on more come back: what
    /// is written beyond them uses what would.
    tokens: (f64, u64),
    /// Time for which all servers together worked, divided by how many they are; and the same for
    /// applications alone.
    busy_s: f64,
    foreground_s: f64,
}

/// What a job takes of a server's time: for its latency, for its bytes, and for those beyond the
/// burst.
struct Cost {
    latency_s: f64,
    bytes_s: f64,
    slow_s: f64,
}

/// What a job gets of a server: with its latency, while its bytes are on their way, and while it
/// writes beyond the burst.
struct Rates {
    asking: f64,
    streaming: f64,
    draining: f64,
}

/// Jobs of which all get the same share of what there is.
#[derive(Debug, Default)]
struct Jobs {
    /// By when they are over, in what every one of them has got by then.
    running: BinaryHeap<Reverse<Running>>,
    foreground: usize,
    /// What every job that was there all the time has got.
    given_s: f64,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    over_s: f64,
    number: Job,
    is_foreground: bool,
    /// What its bytes take after this, where they come after it, and those beyond the burst.
    bytes_s: f64,
    slow_s: f64,
}

impl Ord for Running {
    fn cmp(&self, other: &Self) -> Ordering {
        self.over_s.total_cmp(&other.over_s).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Running {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Running {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Running {}

impl Jobs {
    /// Begins a job that takes so much of a server's time.
    fn begin(&mut self, cost_s: f64, running: Running) {
        self.foreground += usize::from(running.is_foreground);
        self.running.push(Reverse(Running { over_s: self.given_s + cost_s, ..running }));
    }

    /// How long it takes until a job is over that gets so much of a server, if nothing else comes.
    fn next_s(&self, rate: f64) -> Option<f64> {
        let Reverse(first) = self.running.peek()?;
        Some((first.over_s - self.given_s).max(0.0) / rate)
    }

    /// A job that is over.
    fn end(&mut self) -> Option<Running> {
        let first = self.running.peek().map(|Reverse(first)| *first)?;
        if first.over_s > self.given_s + REST_S {
            return None;
        }
        self.running.pop();
        self.foreground -= usize::from(first.is_foreground);
        if self.running.is_empty() {
            // Small numbers are exact for longer.
            self.given_s = 0.0;
        }
        Some(first)
    }

    fn count(&self) -> usize {
        self.running.len()
    }
}

impl Device {
    /// What a tier has, and the memory of the machine in front of it, where the machine keeps what
    /// was read and written.
    pub(super) fn of_tier(
        figures: Figures,
        character: Character,
        keeps: bool,
    ) -> (Self, Option<Self>) {
        let Some(cached) = character.cached.filter(|_| keeps) else {
            return (Self::new(figures, character), None);
        };
        let write_latency_ns = character.write_latency_ns.or(Some(figures.latency_ns));
        let in_memory = Character {
            write_latency_ns,
            burst: character.burst,
            create_ns: character.create_ns,
            cpu_share: 1.0,
            ..Character::default()
        };
        let memory = Figures {
            latency_ns: cached.latency_ns,
            read_bytes_per_s: cached.bytes_per_s,
            ..figures
        };
        let memory = Self::new(memory, in_memory);
        if !cached.takes_writes {
            return (Self::new(figures, character), Some(memory));
        }
        // What is written past the memory is what migrations make durable.
        let burst = character.burst.map(|burst| Burst { bytes: 0, ..burst });
        let character = Character { burst, write_latency_ns: Some(0), ..character };
        (Self::new(figures, character), Some(memory))
    }

    /// What serves the switches of migrations to a tier.
    pub(super) fn of_switches(switch: Switch) -> Self {
        let latency_ns = switch.latency_ns.max(switch.cpu_ns).max(1);
        let figures = Figures { latency_ns, parallelism: u32::MAX, ..Figures::default() };
        let cpu_share = switch.cpu_ns as f64 / latency_ns as f64;
        Self::new(figures, Character { cpu_share, ..Character::default() })
    }

    pub(super) fn new(figures: Figures, character: Character) -> Self {
        let servers = f64::from(figures.parallelism.max(1));
        Self {
            figures,
            character,
            servers,
            streams: character.streams.filter(|streams| *streams < servers),
            pace: 1.0,
            streaming: Jobs::default(),
            asking: Jobs::default(),
            draining: Jobs::default(),
            now_ns: 0,
            end_at: (u32::MAX, 0),
            tokens: (character.burst.map_or(0.0, |burst| burst.bytes as f64), 0),
            busy_s: 0.0,
            foreground_s: 0.0,
        }
    }

    /// Begins a job now, which is [`Device::advance`]d to.
    pub(super) fn begin(&mut self, number: Job, work: Work) {
        let Cost { latency_s, bytes_s, slow_s } = self.cost(work);
        let is_foreground = work.is_foreground;
        let running = Running { over_s: 0.0, number, is_foreground, bytes_s, slow_s };
        let at_once_s = if self.streams.is_some() { 0.0 } else { bytes_s };
        self.asking.begin(latency_s + at_once_s, running);
    }

    /// When the next job goes on to another of its parts or is over, if nothing else comes.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let rates = self.rates(0);
        let parts = [
            self.asking.next_s(rates.asking),
            self.streaming.next_s(rates.streaming),
            self.draining.next_s(rates.draining),
        ];
        let next_s = parts.into_iter().flatten().min_by(f64::total_cmp)?;
        Some(self.now_ns.saturating_add((next_s * SECOND_NS).ceil() as u64))
    }

    /// Goes on to a point in time that is not behind the next end.
    pub(super) fn advance(&mut self, now_ns: u64) {
        let passed_s = (now_ns - self.now_ns) as f64 / SECOND_NS;
        self.now_ns = now_ns;
        let rates = self.rates(0);
        let parts = [&self.asking, &self.streaming, &self.draining];
        let foreground = parts.iter().map(|jobs| jobs.foreground).sum();
        self.busy_s += passed_s * self.load(self.count());
        self.foreground_s += passed_s * self.load(foreground);
        self.asking.given_s += passed_s * rates.asking;
        self.streaming.given_s += passed_s * rates.streaming;
        self.draining.given_s += passed_s * rates.draining;
    }

    /// A job that is over. To be called again until there is none.
    pub(super) fn end(&mut self) -> Option<Job> {
        while let Some(ended) = self.asking.end() {
            if self.streams.is_some() {
                self.streaming.begin(ended.bytes_s, ended);
            } else if let Some(over) = self.drain(ended) {
                return Some(over);
            }
        }
        while let Some(ended) = self.streaming.end() {
            if let Some(over) = self.drain(ended) {
                return Some(over);
            }
        }
        self.draining.end().map(|ended| ended.number)
    }

    /// Has a job go on with what it writes beyond the burst; the job where that is nothing.
    fn drain(&mut self, ended: Running) -> Option<Job> {
        if ended.slow_s == 0.0 {
            return Some(ended.number);
        }
        self.draining.begin(ended.slow_s, ended);
        None
    }

    fn count(&self) -> usize {
        self.asking.count() + self.streaming.count() + self.draining.count()
    }

    /// Time that all servers worked, divided by how many they are.
    pub(super) fn busy_s(&self) -> f64 {
        self.busy_s
    }

    /// The same for applications alone.
    pub(super) fn foreground_s(&self) -> f64 {
        self.foreground_s
    }

    /// As many processors as its jobs use, if there are enough.
    pub(super) fn processors(&self) -> f64 {
        if self.character.cpu_share == 0.0 {
            return 0.0;
        }
        let shares = self.shares(0);
        let jobs = |jobs: &Jobs, rate: f64| jobs.count() as f64 * rate;
        let all = jobs(&self.asking, shares.asking)
            + jobs(&self.streaming, shares.streaming)
            + jobs(&self.draining, shares.draining);
        self.character.cpu_share * all
    }

    /// From now on, which it is [`Device::advance`]d to, what processors do takes so many times as
    /// long.
    pub(super) fn slow(&mut self, times: f64) {
        let share = self.character.cpu_share;
        self.pace = 1.0 / (1.0 - share + share * times);
    }

    /// What a job gets of a server, if there are so many more whose bytes are on their way.
    fn rates(&self, more: usize) -> Rates {
        let Rates { asking, streaming, draining } = self.shares(more);
        let pace = self.pace;
        Rates { asking: asking * pace, streaming: streaming * pace, draining: draining * pace }
    }

    /// The same if there are enough processors.
    fn shares(&self, more: usize) -> Rates {
        let of = |shared: f64, jobs: usize| (shared / jobs.max(1) as f64).min(1.0);
        let asking = of(self.servers, self.count() + more);
        let streaming = self.streaming.count() + more;
        Rates {
            asking,
            streaming: self.streams.map_or(asking, |streams| of(streams, streaming).min(asking)),
            draining: of(1.0, self.draining.count() + more).min(self.one_drains()).min(asking),
        }
    }

    /// The part of what it goes on writing at that one writer gets, which is no faster than before.
    fn one_drains(&self) -> f64 {
        self.character
            .burst
            .map_or(1.0, |burst| self.figures.write_bytes_per_s / burst.sustained_bytes_per_s)
    }

    /// Share of the servers that so many jobs use.
    fn load(&self, jobs: usize) -> f64 {
        (jobs as f64 / self.servers).min(1.0)
    }

    /// How long a job would take that began now, if nothing came after it.
    pub(super) fn would_take_s(&self, work: Work) -> f64 {
        let (bytes_s, slow_s) = self.bytes_s(work);
        let rates = self.rates(1);
        let latency_s = self.latency_s(work) / rates.asking;
        work.share * (latency_s + bytes_s / rates.streaming + slow_s / rates.draining)
    }

    /// What a job takes of a server's time.
    fn cost(&mut self, work: Work) -> Cost {
        let latency_s = self.latency_s(work);
        self.end_at = (work.at.0, work.at.1 + work.bytes);
        let (bytes_s, slow_s) = self.bytes_s(work);
        if let (true, Some(_)) = (work.is_write, self.character.burst) {
            let left = (self.tokens() - work.bytes as f64).max(0.0);
            let slow_ns = (slow_s * SECOND_NS) as u64;
            self.tokens = (left, self.tokens.1.max(self.now_ns).saturating_add(slow_ns));
        }
        let share = work.share;
        Cost { latency_s: share * latency_s, bytes_s: share * bytes_s, slow_s: share * slow_s }
    }

    fn latency_s(&self, work: Work) -> f64 {
        let of_writes = self.character.write_latency_ns.filter(|_| work.is_write);
        let latency_ns = of_writes.unwrap_or(self.figures.latency_ns);
        let going_on_ns = latency_ns.saturating_sub(self.character.seek_ns);
        let goes_on = u32::from(self.end_at == work.at);
        // The requests of one job go on behind each other.
        let seeking = work.requests.min(1) - goes_on.min(work.requests);
        let all_ns = u64::from(seeking) * latency_ns
            + going_on_ns.saturating_mul(u64::from(work.requests - seeking))
            + if work.is_first { self.character.create_ns } else { 0 }
            + if work.is_synced { self.character.sync_ns } else { 0 };
        all_ns as f64 / SECOND_NS
    }

    /// What the bytes of a job cost, and what those cost that are written beyond the burst.
    fn bytes_s(&self, work: Work) -> (f64, f64) {
        let bytes = work.bytes as f64;
        match (work.is_write, self.character.burst) {
            (false, _) => (bytes / self.figures.read_bytes_per_s, 0.0),
            (true, None) => (bytes / self.figures.write_bytes_per_s, 0.0),
            (true, Some(burst)) => {
                let fast = bytes.min(self.tokens());
                let slow_s = (bytes - fast) / burst.sustained_bytes_per_s;
                (fast / self.figures.write_bytes_per_s, slow_s)
            }
        }
    }

    fn tokens(&self) -> f64 {
        let Some(burst) = self.character.burst else { return 0.0 };
        let rested_s = self.now_ns.saturating_sub(self.tokens.1) as f64 / SECOND_NS;
        (self.tokens.0 + rested_s * burst.sustained_bytes_per_s).min(burst.bytes as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Work = Work {
        is_write: false,
        requests: 1,
        bytes: 1000,
        at: (1, 0),
        is_foreground: true,
        is_first: false,
        is_synced: false,
        is_switch: false,
        user: 0,
        share: 1.0,
    };

    /// 1 ms latency, 1 MB/s.
    fn figures(parallelism: u32) -> Figures {
        Figures {
            latency_ns: 1_000_000,
            read_bytes_per_s: 1e6,
            write_bytes_per_s: 1e6,
            parallelism,
            ..Figures::default()
        }
    }

    fn device(parallelism: u32) -> Device {
        Device::new(figures(parallelism), Character::default())
    }

    fn microseconds(ns: u64) -> u64 {
        (ns + 500) / 1000
    }

    /// Goes on until nothing is left; when each job was over, in microseconds.
    fn ends(device: &mut Device) -> Vec<(Job, u64)> {
        let mut ends = Vec::new();
        while let Some(now_ns) = device.next_ns() {
            device.advance(now_ns);
            while let Some(job) = device.end() {
                ends.push((job, microseconds(now_ns)));
            }
        }
        ends
    }

    #[test]
    fn a_job_alone_takes_its_latency_and_its_bytes() {
        let mut device = device(4);
        device.begin(1, READ);
        assert_eq!(ends(&mut device), [(1, 2000)]);
        assert!((device.busy_s() - 0.0005).abs() < 1e-9, "one server of four for 2 ms");
    }

    #[test]
    fn as_many_as_there_are_servers_do_not_slow_each_other() {
        let mut device = device(2);
        device.begin(1, READ);
        device.begin(2, READ);
        assert_eq!(ends(&mut device), [(1, 2000), (2, 2000)]);
    }

    #[test]
    fn more_share_the_servers() {
        let mut device = device(1);
        device.begin(1, READ);
        device.advance(1_000_000);
        assert_eq!(device.end(), None);
        // Half of the first is left. Each gets half of the server.
        device.begin(2, READ);
        assert_eq!(ends(&mut device), [(1, 3000), (2, 4000)]);
    }

    #[test]
    fn large_requests_may_share_less_than_small_ones() {
        let character = Character { streams: Some(1.0), ..Character::default() };
        let mut device = Device::new(figures(4), character);
        device.begin(1, READ);
        device.begin(2, READ);
        device.begin(3, Work { bytes: 0, ..READ });
        // The latencies at once, then the bytes of both, each with half of the one server.
        assert_eq!(ends(&mut device), [(3, 1000), (1, 3000), (2, 3000)]);
        // One that comes when the bytes of another one are on their way.
        device.begin(4, READ);
        assert_eq!(device.next_ns(), Some(4_000_000));
        for now_ns in [4_000_000, 4_500_000] {
            device.advance(now_ns);
            assert_eq!(device.end(), None);
        }
        device.begin(5, READ);
        assert_eq!(ends(&mut device), [(4, 5000), (5, 6500)]);
        // Three, two and one of four servers, each as long as so many jobs were there.
        let busy_ms = (3.0 + 2.0 * 2.0 + 1.5 + 2.0 * 0.5 + 1.5) / 4.0;
        assert!((device.busy_s() - busy_ms * 1e-3).abs() < 1e-9, "{}", device.busy_s());
        // No more have a place than there are servers, whatever they are at.
        let character = Character { streams: Some(1.5), ..Character::default() };
        let mut device = Device::new(figures(2), character);
        let one = Work { bytes: 0, ..READ };
        [1, 2, 3, 4].into_iter().for_each(|job| device.begin(job, one));
        assert_eq!(ends(&mut device), [(1, 2000), (2, 2000), (3, 2000), (4, 2000)]);
        assert!((device.would_take_s(READ) - 0.002).abs() < 1e-9);
        // As many as there are servers are none of its own.
        let character = Character { streams: Some(4.0), ..Character::default() };
        assert!(Device::new(figures(4), character).streams.is_none());
    }

    #[test]
    fn what_does_not_go_on_seeks() {
        let character = Character { seek_ns: 800_000, ..Character::default() };
        let mut device = Device::new(figures(1), character);
        for (at, took_us) in
            [((1, 0), 2000), ((1, 1000), 1200), ((1, 1000), 2000), ((2, 2000), 2000)]
        {
            let begun_us = microseconds(device.now_ns);
            device.begin(1, Work { at, ..READ });
            assert_eq!(ends(&mut device), [(1, begun_us + took_us)], "{at:?}");
        }
        // Of three requests of one job only the first seeks.
        let begun_us = microseconds(device.now_ns);
        device.begin(1, Work { requests: 3, ..READ });
        assert_eq!(ends(&mut device), [(1, begun_us + 1000 + 2 * 200 + 1000)]);
    }

    #[test]
    fn writes_may_have_a_latency_of_their_own() {
        let character = Character { write_latency_ns: Some(30_000), ..Character::default() };
        let mut device = Device::new(figures(1), character);
        device.begin(1, Work { is_write: true, ..READ });
        assert_eq!(ends(&mut device), [(1, 1030)]);
        device.begin(1, READ);
        assert_eq!(ends(&mut device), [(1, 1030 + 2000)]);
    }

    #[test]
    fn writes_beyond_a_burst_are_slow_until_it_has_rested() {
        let burst = Burst { bytes: 1500, sustained_bytes_per_s: 1e5 };
        let character = Character { burst: Some(burst), ..Character::default() };
        let mut device = Device::new(figures(1), character);
        let write = Work { is_write: true, ..READ };
        device.begin(1, write);
        device.begin(2, write);
        // 1500 bytes at 1 MB/s, 500 at a tenth of it, and two latencies.
        assert_eq!(ends(&mut device).last(), Some(&(2, 2000 + 1500 + 5000)));
        device.advance(device.now_ns + 1_000_000_000);
        let begun_us = microseconds(device.now_ns);
        device.begin(3, write);
        assert_eq!(ends(&mut device), [(3, begun_us + 2000)]);
    }

    /// What comes back of a burst is what goes on at that rate, and does not come back besides.
    #[test]
    fn a_device_goes_on_writing_at_its_rate_and_no_faster() {
        let streams = Some(1.5);
        for (parallelism, at_once, streams) in [
            (1, 1, None),
            (1, 4, None),
            (2, 1, None),
            // However many servers there are: the rate is that of the device.
            (4, 4, None),
            (2, 10, None),
            (16, 10, None),
            (4, 4, streams),
            (16, 10, streams),
        ] {
            let burst = Burst { bytes: 1500, sustained_bytes_per_s: 1e5 };
            let character = Character {
                burst: Some(burst),
                write_latency_ns: Some(0),
                streams,
                ..Character::default()
            };
            let mut device = Device::new(figures(parallelism), character);
            for _ in 0..100 / at_once {
                (0..at_once).for_each(|job| device.begin(job, Work { is_write: true, ..READ }));
                assert_eq!(ends(&mut device).len(), at_once as usize);
            }
            // 100 kB but for the burst; what came back meanwhile was written at once.
            let took_s = device.now_ns as f64 / SECOND_NS;
            assert!((0.98..1.0).contains(&took_s), "{parallelism} {at_once}: {took_s} s");
        }
    }

    #[test]
    fn one_writer_is_no_faster_beyond_the_burst_than_within_it() {
        // 1 MB/s each, 4 MB/s together.
        let burst = Burst { bytes: 0, sustained_bytes_per_s: 4e6 };
        let character = Character { burst: Some(burst), ..Character::default() };
        let write = Work { is_write: true, bytes: 1_000_000, ..READ };
        for (at_once, expected_s) in [(1_u64, 1.0), (4, 1.0), (8, 2.0)] {
            let mut device = Device::new(figures(8), character);
            assert!((device.would_take_s(write) - 1.001).abs() < 1e-9);
            (0..at_once).for_each(|number| device.begin(number, write));
            let took_s = ends(&mut device).last().expect("they end").1 as f64 / 1e6;
            assert!((took_s - expected_s).abs() < 0.002, "{at_once}: {took_s} s");
        }
    }

    #[test]
    fn reads_go_on_beside_writes_beyond_a_burst() {
        let burst = Burst { bytes: 0, sustained_bytes_per_s: 1e5 };
        let character = Character { burst: Some(burst), ..Character::default() };
        let mut device = Device::new(figures(4), character);
        let write = Work { is_write: true, ..READ };
        device.begin(1, write);
        device.begin(2, write);
        device.begin(3, READ);
        assert_eq!(ends(&mut device), [(3, 2000), (1, 21_000), (2, 21_000)]);
        // Both hold a server each as long as they are not over.
        assert!((device.busy_s() - (2.0 * 0.021 + 0.002) / 4.0).abs() < 1e-9);
        device.begin(1, write);
        assert!((device.would_take_s(write) - 0.011).abs() < 1e-9, "nobody drains yet");
        device.advance(device.now_ns + 1_000_000);
        assert_eq!(device.end(), None);
        assert!((device.would_take_s(write) - 0.021).abs() < 1e-9, "one does");
    }

    #[test]
    fn what_is_made_and_what_becomes_durable_takes_longer() {
        let character =
            Character { sync_ns: 5_000_000, create_ns: 300_000, ..Character::default() };
        let mut device = Device::new(figures(1), character);
        device.begin(1, Work { is_write: true, is_synced: true, ..READ });
        assert_eq!(ends(&mut device), [(1, 2000 + 5000)]);
        device.begin(1, Work { is_write: true, is_first: true, ..READ });
        assert_eq!(ends(&mut device), [(1, 7000 + 2000 + 300)]);
    }

    #[test]
    fn memory_in_front_of_a_device_takes_writes_until_they_are_too_many() {
        let cached = Cached { latency_ns: 1000, bytes_per_s: 1e9, takes_writes: true };
        let burst = Burst { bytes: 1_000_000, sustained_bytes_per_s: 1e5 };
        let character = Character {
            write_latency_ns: Some(2000),
            burst: Some(burst),
            cached: Some(cached),
            ..Character::default()
        };
        let fast = Figures { write_bytes_per_s: 1e9, ..figures(1) };
        let (device, none) = Device::of_tier(fast, character, false);
        assert!(none.is_none(), "the machine keeps nothing");
        assert_eq!(device.figures, fast);
        let (mut device, memory) = Device::of_tier(fast, character, true);
        let mut memory = memory.expect("the machine keeps something");
        memory.begin(1, READ);
        assert_eq!(ends(&mut memory), [(1, 2)]);
        let write = Work { is_write: true, ..READ };
        memory.begin(1, write);
        assert_eq!(ends(&mut memory), [(1, 2 + 3)]);
        // What becomes durable goes at the rate of the device, however many ask at once.
        device.begin(1, write);
        assert_eq!(ends(&mut device), [(1, 10_000)]);
        let (mut device, _) = Device::of_tier(figures(4), character, true);
        device.begin(1, write);
        device.begin(2, write);
        assert_eq!(ends(&mut device), [(1, 20_000), (2, 20_000)]);
        // Where writes do not return before that, memory is for reads alone.
        let cached = Cached { takes_writes: false, ..cached };
        let character = Character { cached: Some(cached), burst: None, ..character };
        let (device, _) = Device::of_tier(fast, character, true);
        assert_eq!(device.figures, fast);
    }

    #[test]
    fn processors_slow_the_part_that_is_theirs() {
        let character = Character { cpu_share: 0.25, ..Character::default() };
        let mut device = Device::new(figures(2), character);
        device.begin(1, READ);
        assert!((device.processors() - 0.25).abs() < 1e-9);
        device.slow(3.0);
        // 2 ms, of which a quarter takes three times as long.
        assert_eq!(ends(&mut device), [(1, 3000)]);
        assert_eq!(device.processors(), 0.0);
        // Three jobs on two servers use no more than these.
        [1, 2, 3].into_iter().for_each(|job| device.begin(job, READ));
        assert!((device.processors() - 0.5).abs() < 1e-9);
        device.slow(1.0);
        assert_eq!(ends(&mut device).last(), Some(&(3, 3000 + 3000)));
        // A switch of which threads do more at once than it takes.
        let mut device = Device::of_switches(Switch { latency_ns: 1000, cpu_ns: 2000 });
        device.begin(1, READ);
        assert!((device.processors() - 1.0).abs() < 1e-9);
        assert_eq!(ends(&mut device), [(1, 2)]);
    }

    #[test]
    fn an_unbounded_device_takes_no_time() {
        let mut device = Device::new(Figures::default(), Character::default());
        device.begin(1, READ);
        assert_eq!(ends(&mut device), [(1, 0)]);
    }
}
