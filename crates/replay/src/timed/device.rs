// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device in virtual time: its servers share their time among all jobs that it has.
//!
//! A job is its latency and its bytes. Where large requests slow each other more than small ones do,
//! the bytes come after the latency, and share what there is for bytes.

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
    /// The rate at which it goes on writing.
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
    /// Who uses its bytes.
    pub(super) user: User,
    /// The part of its time that it takes, because a processor has its bytes.
    pub(super) share: f64,
}

/// Who hears that a job is over.
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
    /// What its bytes take after this, where they come after it.
    bytes_s: f64,
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
        let write_bytes_per_s =
            character.burst.map_or(figures.write_bytes_per_s, |burst| burst.sustained_bytes_per_s);
        let figures = Figures { write_bytes_per_s, ..figures };
        let character = Character { burst: None, write_latency_ns: Some(0), ..character };
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
            now_ns: 0,
            end_at: (u32::MAX, 0),
            tokens: (character.burst.map_or(0.0, |burst| burst.bytes as f64), 0),
            busy_s: 0.0,
            foreground_s: 0.0,
        }
    }

    /// Begins a job now, which is [`Device::advance`]d to.
    pub(super) fn begin(&mut self, number: Job, work: Work) {
        let (latency_s, bytes_s) = self.cost_s(work);
        let is_foreground = work.is_foreground;
        let running = Running { over_s: 0.0, number, is_foreground, bytes_s };
        let at_once_s = if self.streams.is_some() { 0.0 } else { bytes_s };
        self.asking.begin(latency_s + at_once_s, running);
    }

    /// When the next job is over, or its latency, if nothing else comes.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let (asking, streaming) = self.rates(0);
        let streaming_s = self.streaming.next_s(streaming);
        let next_s = self.asking.next_s(asking).into_iter().chain(streaming_s);
        let next_s = next_s.min_by(f64::total_cmp)?;
        Some(self.now_ns.saturating_add((next_s * SECOND_NS).ceil() as u64))
    }

    /// Goes on to a point in time that is not behind the next end.
    pub(super) fn advance(&mut self, now_ns: u64) {
        let passed_s = (now_ns - self.now_ns) as f64 / SECOND_NS;
        self.now_ns = now_ns;
        let (asking, streaming) = self.rates(0);
        self.busy_s += passed_s * self.load(self.asking.count() + self.streaming.count());
        self.foreground_s +=
            passed_s * self.load(self.asking.foreground + self.streaming.foreground);
        self.asking.given_s += passed_s * asking;
        self.streaming.given_s += passed_s * streaming;
    }

    /// A job that is over. To be called again until there is none.
    pub(super) fn end(&mut self) -> Option<Job> {
        if self.streams.is_none() {
            return self.asking.end().map(|ended| ended.number);
        }
        while let Some(ended) = self.asking.end() {
            self.streaming.begin(ended.bytes_s, ended);
        }
        self.streaming.end().map(|ended| ended.number)
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
        let (asking, streaming) = self.shares(0);
        let jobs = |jobs: &Jobs, rate: f64| jobs.count() as f64 * rate;
        self.character.cpu_share * (jobs(&self.asking, asking) + jobs(&self.streaming, streaming))
    }

    /// From now on, which it is [`Device::advance`]d to, what processors do takes so many times as
    /// long.
    pub(super) fn slow(&mut self, times: f64) {
        let share = self.character.cpu_share;
        self.pace = 1.0 / (1.0 - share + share * times);
    }

    /// What a job gets of a server, and what it gets while its bytes are on their way, if there are
    /// so many more of those.
    fn rates(&self, more: usize) -> (f64, f64) {
        let (asking, streaming) = self.shares(more);
        (asking * self.pace, streaming * self.pace)
    }

    /// The same if there are enough processors.
    fn shares(&self, more: usize) -> (f64, f64) {
        let of = |shared: f64, jobs: usize| (shared / jobs.max(1) as f64).min(1.0);
        let streaming = self.streaming.count() + more;
        let asking = of(self.servers, self.asking.count() + streaming);
        (asking, self.streams.map_or(asking, |streams| of(streams, streaming).min(asking)))
    }

    /// Share of the servers that so many jobs use.
    fn load(&self, jobs: usize) -> f64 {
        (jobs as f64 / self.servers).min(1.0)
    }

    /// How long a job would take that began now, if nothing came after it.
    pub(super) fn would_take_s(&self, work: Work) -> f64 {
        let (bytes_s, _) = self.bytes_s(work);
        let (asking, streaming) = self.rates(1);
        work.share * (self.latency_s(work) / asking + bytes_s / streaming)
    }

    /// What a job takes of a server's time: for its latency, and for its bytes.
    fn cost_s(&mut self, work: Work) -> (f64, f64) {
        let latency_s = self.latency_s(work);
        self.end_at = (work.at.0, work.at.1 + work.bytes);
        let (bytes_s, slow_s) = self.bytes_s(work);
        if let (true, Some(_)) = (work.is_write, self.character.burst) {
            let left = (self.tokens() - work.bytes as f64).max(0.0);
            let slow_ns = (slow_s * SECOND_NS) as u64;
            self.tokens = (left, self.tokens.1.max(self.now_ns).saturating_add(slow_ns));
        }
        (work.share * latency_s, work.share * bytes_s)
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

    /// What the bytes of a job cost, and the part of that for writes beyond the burst, which are slower.
    fn bytes_s(&self, work: Work) -> (f64, f64) {
        let bytes = work.bytes as f64;
        match (work.is_write, self.character.burst) {
            (false, _) => (bytes / self.figures.read_bytes_per_s, 0.0),
            (true, None) => (bytes / self.figures.write_bytes_per_s, 0.0),
            (true, Some(burst)) => {
                let fast = bytes.min(self.tokens());
                let slow_s = (bytes - fast) / burst.sustained_bytes_per_s;
                (fast / self.figures.write_bytes_per_s + slow_s, slow_s)
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
        for (parallelism, at_once) in [(1, 1), (1, 4), (2, 1)] {
            let burst = Burst { bytes: 1500, sustained_bytes_per_s: 1e5 };
            let character =
                Character { burst: Some(burst), write_latency_ns: Some(0), ..Character::default() };
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
        // What becomes durable goes at the rate of the device.
        device.begin(1, write);
        assert_eq!(ends(&mut device), [(1, 10_000)]);
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
