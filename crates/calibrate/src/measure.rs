// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The measurements of one tier, each within its share of the time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use terrace_core::{Buffer, Random, Result};

use super::fit::{median, typical};
use super::ground::{BLOCK, Ground};
use super::{Sample, Threads, machine};

/// Sizes of requests, as far as there is room.
const SIZES: [u64; 6] = [BLOCK, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

/// A large request, and what is written to objects that are made.
pub(super) const LARGE_BYTES: u64 = 256 << 10;

/// Threads that ask at once.
const THREADS: [u32; 5] = [1, 2, 4, 8, 16];

/// Requests of one size at most, and at least, however long they take.
const REQUESTS_MAX: usize = 200;
const REQUESTS_MIN: usize = 3;

/// The same of the smallest size, which tells the latency.
const SMALLEST_MIN: usize = 20;

/// As long ago the bytes of a read may have been used, in bytes that were used since.
pub(super) const RECENT_STEP: u64 = 4;
const RECENT_BYTES: [u64; 5] = [256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];

/// Blocks that are read one behind the other.
const IN_ORDER_MAX: u64 = 2000;

/// Small writes that are made durable one by one.
const SYNCS_MAX: usize = 50;

/// Requests of all threads together at most, and of each at least.
const TOGETHER_MAX: u64 = 8000;
const EACH_MIN: u64 = 4;

/// A write cliff is where the rate falls below this share of what it was first.
const CLIFF: f64 = 0.6;

/// Bytes of one step on the way to it.
const CLIFF_STEP_BYTES: u64 = 32 << 20;

/// Measures on the objects of a tier, until it is stopped.
pub(super) struct Measure<'a> {
    pub(super) ground: &'a Ground<'a>,
    pub(super) is_stopped: &'a (dyn Fn() -> bool + Sync),
    /// Whether every write is made durable by itself.
    pub(super) is_durable: bool,
}

impl Measure<'_> {
    /// Reads anywhere: what requests of each size take, and for which part of that a processor works,
    /// where they are not larger than those of migrations.
    pub(super) fn reads(&self, budget_ns: u64) -> Result<(Vec<Sample>, f64)> {
        let mut random = Random::new(1);
        let (mut cpu_s, mut all_s) = (0.0, 0.0);
        let samples = self.of_sizes(budget_ns, |bytes, until_ns| {
            self.ground.drop_pages()?;
            let mut buffer = Buffer::zeroed(bytes as usize);
            let mut unseen = self.unseen(bytes);
            self.repeat_one(until_ns, least(bytes), || {
                self.ground.forget_lines(self.ground.bytes());
                if unseen == 0 {
                    self.ground.drop_pages()?;
                    unseen = self.unseen(bytes);
                }
                unseen -= 1;
                let began_ns = machine::thread_cpu_ns();
                let at = self.ground.anywhere(bytes, &mut random);
                let took_s = self.ground.read(at, &mut buffer)?;
                if bytes <= LARGE_BYTES {
                    cpu_s += (machine::thread_cpu_ns() - began_ns) as f64 * 1e-9;
                    all_s += took_s;
                }
                Ok(took_s)
            })
        })?;
        let share = if all_s > 0.0 { cpu_s / all_s } else { 0.0 };
        Ok((samples, share.min(1.0)))
    }

    /// Reads anywhere of what the machine has in memory since it was read: by requests of the same
    /// size, as a system keeps in larger pieces what came with larger ones, and those are faster.
    pub(super) fn cached_reads(&self, budget_ns: u64) -> Result<Vec<Sample>> {
        let mut random = Random::new(4);
        self.of_sizes(budget_ns, |bytes, until_ns| {
            let mut buffer = Buffer::zeroed(bytes as usize);
            self.repeat(until_ns, least(bytes), |left| {
                self.ground.drop_pages()?;
                let mut places = Vec::new();
                while places.len() < left.min(self.unseen(bytes) as usize)
                    && (places.is_empty() || self.goes_on(until_ns))
                {
                    places.push(self.ground.anywhere(bytes, &mut random));
                    self.ground.read(places[places.len() - 1], &mut buffer)?;
                }
                self.ground.forget_lines(places.len() as u64 * bytes);
                places.iter().map(|at| self.ground.read(*at, &mut buffer)).collect()
            })
        })
    }

    /// Reads in a circle through more and more bytes: how many they are, and what a read took.
    pub(super) fn recent_reads(&self, bytes: u64, budget_ns: u64) -> Result<Vec<(u64, f64)>> {
        let places = self.ground.apart(bytes, &mut Random::new(7));
        let circle = |among_bytes: &u64| (among_bytes / bytes) as usize;
        let able = RECENT_BYTES
            .iter()
            .filter(|among_bytes| (1..=places.len() / 2).contains(&circle(among_bytes)));
        let able: Vec<_> = able.collect();
        self.ground.drop_pages()?;
        let (mut buffer, mut found) = (Buffer::zeroed(bytes as usize), Vec::new());
        for among_bytes in &able {
            let places = &places[..circle(among_bytes)];
            let until_ns = self.until(budget_ns / able.len() as u64);
            // The first time they come from further away.
            for at in places {
                self.ground.read(*at, &mut buffer)?;
                if !self.goes_on(until_ns) {
                    return Ok(found);
                }
            }
            let mut next = places.iter().cycle();
            let mut times = self.repeat_one(until_ns, REQUESTS_MIN, || {
                let at = next.next().expect("a circle has no end");
                self.ground.read(*at, &mut buffer)
            })?;
            found.push((**among_bytes, typical(&mut times)));
        }
        Ok(found)
    }

    /// Writes anywhere, each made durable by itself where the store does so.
    pub(super) fn writes(&self, budget_ns: u64) -> Result<Vec<Sample>> {
        let mut random = Random::new(2);
        self.of_sizes(budget_ns, |bytes, until_ns| {
            let times = self.repeat_one(until_ns, least(bytes), || {
                self.ground.forget_lines(self.ground.bytes());
                let at = self.ground.anywhere(bytes, &mut random);
                let took_s = self.ground.write(at, bytes)?;
                Ok(took_s + if self.is_durable { self.ground.sync(Some(at))? } else { 0.0 })
            });
            // The next size does not wait for this one.
            self.ground.sync(None)?;
            times
        })
    }

    /// What it takes to make an object and write so many bytes to it.
    pub(super) fn creates(&self, bytes: u64, budget_ns: u64) -> Result<f64> {
        // At most as much again as there is for everything else.
        let most = (self.ground.bytes() / bytes).max(REQUESTS_MIN as u64);
        let mut made = 0;
        // Memory of what was deleted just now would be at hand, as it rarely is.
        let mut times = self.repeat_one(self.until(budget_ns), REQUESTS_MIN, || {
            if made as u64 == most {
                self.ground.remove_created(std::mem::take(&mut made))?;
            }
            self.ground.forget_lines(self.ground.bytes());
            made += 1;
            self.ground.create(made - 1, bytes)
        })?;
        self.ground.remove_created(made)?;
        Ok(median(&mut times))
    }

    /// How long it takes to make a file durable that little was written to.
    pub(super) fn syncs(&self, budget_ns: u64) -> Result<f64> {
        let mut random = Random::new(5);
        let (until_ns, mut times) = (self.until(budget_ns), Vec::new());
        while times.len() < SYNCS_MAX && (times.len() < REQUESTS_MIN || self.goes_on(until_ns)) {
            let at = self.ground.anywhere(BLOCK, &mut random);
            self.ground.write(at, BLOCK)?;
            times.push(self.ground.sync(Some(at))?);
        }
        Ok(median(&mut times))
    }

    /// Bytes per second of large writes that are made durable as they go on.
    pub(super) fn durable_rate(&self, budget_ns: u64) -> Result<f64> {
        let bytes = self.ground.request_bytes_max().min(1 << 20);
        let mut random = Random::new(6);
        let step_bytes = (self.ground.bytes() / 8).max(bytes);
        let (until_ns, mut rates) = (self.until(budget_ns), Vec::new());
        while rates.len() < REQUESTS_MIN || rates.len() < REQUESTS_MAX && self.goes_on(until_ns) {
            rates.push(self.step_rate(step_bytes, bytes, &mut random)?);
        }
        Ok(median(&mut rates))
    }

    /// Writes so much and makes it durable; the bytes per second.
    fn step_rate(&self, step_bytes: u64, bytes: u64, random: &mut Random) -> Result<f64> {
        let (mut written_bytes, mut took_s) = (0, 0.0);
        while written_bytes < step_bytes && !(self.is_stopped)() {
            took_s += self.ground.write(self.ground.anywhere(bytes, random), bytes)?;
            written_bytes += bytes;
        }
        took_s += self.ground.sync(None)?;
        Ok(if took_s > 0.0 { written_bytes as f64 / took_s } else { f64::INFINITY })
    }

    /// What a block takes that is read behind the one before, in the mean: what a system reads ahead
    /// comes in lumps.
    pub(super) fn in_order(&self, budget_ns: u64) -> Result<f64> {
        self.ground.drop_pages()?;
        let mut buffer = Buffer::zeroed(BLOCK as usize);
        let blocks = (self.ground.request_bytes_max() / BLOCK).min(IN_ORDER_MAX);
        let (until_ns, mut sum_s) = (self.until(budget_ns), 0.0);
        let mut number = 0;
        while number < blocks && (number < 16 || self.goes_on(until_ns)) {
            sum_s += self.ground.read(self.ground.in_order(number), &mut buffer)?;
            number += 1;
        }
        Ok(sum_s / number.max(1) as f64)
    }

    /// Requests anywhere that several threads have answered in a second.
    pub(super) fn together(&self, bytes: u64, budget_ns: u64) -> Result<Vec<Threads>> {
        let mut all: Vec<Threads> = Vec::new();
        for threads in THREADS {
            if self.unseen(bytes) < u64::from(threads) * EACH_MIN {
                break;
            }
            let budget_ns = budget_ns / THREADS.len() as u64;
            let requests_per_s = self.with_threads(threads, bytes, budget_ns)?;
            all.push(Threads { bytes, threads, requests_per_s });
            if (self.is_stopped)() {
                break;
            }
        }
        Ok(all)
    }

    fn with_threads(&self, threads: u32, bytes: u64, budget_ns: u64) -> Result<f64> {
        self.ground.drop_pages()?;
        let until_ns = self.until(budget_ns);
        let most = self.unseen(bytes).min(TOGETHER_MAX);
        let asked = AtomicU64::new(0);
        let has_failed = AtomicBool::new(false);
        let began_ns = self.ground.clock.now_ns();
        let read = |thread: u32| -> Result<u64> {
            let mut random = Random::new(100 + u64::from(thread));
            let (mut buffer, mut done) = (Buffer::zeroed(bytes as usize), 0);
            while asked.fetch_add(1, Ordering::Relaxed) < most
                && (done == 0 || self.goes_on(until_ns))
                && !has_failed.load(Ordering::Relaxed)
            {
                let at = self.ground.anywhere(bytes, &mut random);
                if let Err(error) = self.ground.read(at, &mut buffer) {
                    has_failed.store(true, Ordering::Relaxed);
                    return Err(error);
                }
                done += 1;
            }
            Ok(done)
        };
        let done: Vec<Result<u64>> = thread::scope(|scope| {
            let running: Vec<_> =
                (0..threads).map(|thread| scope.spawn(move || read(thread))).collect();
            let join = |one: thread::ScopedJoinHandle<'_, Result<u64>>| {
                one.join().expect("reading does not panic")
            };
            running.into_iter().map(join).collect()
        });
        let done = done.into_iter().sum::<Result<u64>>()?;
        let took_s = (self.ground.clock.now_ns() - began_ns) as f64 * 1e-9;
        Ok(if took_s > 0.0 { done as f64 / took_s } else { f64::INFINITY })
    }

    /// Writes until it becomes slow: the bytes until then, and the bytes per second after that.
    pub(super) fn cliff(&self, budget_ns: u64) -> Result<Option<(u64, f64)>> {
        let bytes = self.ground.request_bytes_max().min(1 << 20);
        let mut random = Random::new(3);
        let (until_ns, mut rates) = (self.until(budget_ns), Vec::new());
        while self.goes_on(until_ns) {
            let rate = self.step_rate(CLIFF_STEP_BYTES, bytes, &mut random)?;
            if rate.is_infinite() {
                return Ok(None);
            }
            rates.push(rate);
        }
        Ok(fall(&rates).map(|(steps, rate)| (steps as u64 * CLIFF_STEP_BYTES, rate)))
    }

    /// Requests of a size that can be asked for anywhere before most of them come from memory.
    fn unseen(&self, bytes: u64) -> u64 {
        if self.ground.is_cold() { (self.ground.bytes() / bytes / 8).max(1) } else { u64::MAX }
    }

    fn of_sizes(
        &self,
        budget_ns: u64,
        mut measure: impl FnMut(u64, u64) -> Result<Vec<f64>>,
    ) -> Result<Vec<Sample>> {
        let able = SIZES.into_iter().filter(|bytes| *bytes <= self.ground.request_bytes_max());
        let mut samples = Vec::new();
        for bytes in able {
            if (self.is_stopped)() {
                break;
            }
            let mut times = measure(bytes, self.until(budget_ns / SIZES.len() as u64))?;
            let (count, seconds) = (times.len() as u64, typical(&mut times));
            samples.push(Sample { bytes, seconds, count });
        }
        Ok(samples)
    }

    fn repeat_one(
        &self,
        until_ns: u64,
        least: usize,
        mut once: impl FnMut() -> Result<f64>,
    ) -> Result<Vec<f64>> {
        self.repeat(until_ns, least, |_| Ok(vec![once()?]))
    }

    /// What requests take, some at a time: `some` gets how many may still be asked.
    fn repeat(
        &self,
        until_ns: u64,
        least: usize,
        mut some: impl FnMut(usize) -> Result<Vec<f64>>,
    ) -> Result<Vec<f64>> {
        let mut times = Vec::new();
        while times.len() < REQUESTS_MAX
            && (times.len() < least || self.ground.clock.now_ns() < until_ns)
            && !(self.is_stopped)()
        {
            times.extend(some(REQUESTS_MAX - times.len())?);
        }
        Ok(times)
    }

    fn until(&self, budget_ns: u64) -> u64 {
        self.ground.clock.now_ns().saturating_add(budget_ns)
    }

    fn goes_on(&self, until_ns: u64) -> bool {
        self.ground.clock.now_ns() < until_ns && !(self.is_stopped)()
    }
}

/// Requests of a size at least, however long they take.
fn least(bytes: u64) -> usize {
    if bytes == BLOCK { SMALLEST_MIN } else { REQUESTS_MIN }
}

/// Where rates fall for good: how many were high, and the median of the low ones.
fn fall(rates: &[f64]) -> Option<(usize, f64)> {
    /// Fewer at the end may be a hiccup.
    const LOW_MIN: usize = 4;
    let first = median(&mut rates.get(..3)?.to_vec());
    let low = |rate: &f64| *rate < first * CLIFF;
    let high = rates.iter().rposition(|rate| !low(rate))? + 1;
    let mut after = rates[high..].to_vec();
    (after.len() >= LOW_MIN).then(|| (high, median(&mut after)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fall_is_one_that_stays() {
        assert_eq!(fall(&[9.0, 8.0, 9.0, 2.0, 9.0, 3.0, 2.0, 3.0, 3.0]), Some((5, 3.0)));
        assert_eq!(fall(&[9.0, 8.0, 9.0, 2.0, 9.0, 9.0, 9.0, 3.0]), None);
        assert_eq!(fall(&[9.0]), None);
    }
}
