// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One case on both sides, in blocks that take turns: what changes on the machine meets both.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;

use hdrhistogram::Histogram;
use terrace_core::{Clock, Error, ErrorKind, Result, SystemClock};

use crate::bench::cpu_ns;
use crate::progress::Progress;

/// What a thread repeats; it gets a number that counts up from 0 in every block.
pub(super) type Call<'a> = Box<dyn FnMut(u64) -> Result<()> + Send + 'a>;

/// A case on one side: the stack, or what lies below it.
pub(super) trait Subject: Sync {
    /// Calls that each thread may make in a block, so that nothing is filled up.
    fn calls_max(&self) -> u64;

    /// Makes what this many calls of each thread need. Not measured.
    fn prepare(&mut self, calls: u64) -> Result<()>;

    /// What thread `thread` repeats, at most as often as was prepared.
    fn call(&self, thread: usize) -> Result<Call<'_>>;

    /// Checks what so many calls of each thread have made and takes it away. Not measured.
    fn clean(&mut self, calls: &[u64]) -> Result<()>;
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort<'a> {
    pub(super) threads: usize,
    /// Operations of one call.
    pub(super) batch: usize,
    pub(super) repetitions: usize,
    /// Time for all blocks of both sides together.
    pub(super) seconds: f64,
    /// Set when somebody wants it to end.
    pub(super) stop: &'a AtomicBool,
}

/// What the blocks of one side gave.
pub(in crate::bench) struct Side {
    /// A value for each repetition.
    pub(super) ops_per_s: Vec<f64>,
    /// CPU time of the whole process, threads in the background included; one for each repetition.
    pub(super) cpu_us_per_op: Vec<f64>,
    /// Nanoseconds of every call.
    pub(super) latencies_ns: Histogram<u64>,
    pub(in crate::bench) operations: u64,
    /// Repetitions that a bound ended before their time was over.
    pub(super) ended_early: usize,
    /// Calls of a thread in a second, the most seen.
    calls_per_s: f64,
}

impl Side {
    /// Nothing yet.
    pub(in crate::bench) fn new() -> Self {
        Self {
            ops_per_s: Vec::new(),
            cpu_us_per_op: Vec::new(),
            latencies_ns: latencies(),
            operations: 0,
            ended_early: 0,
            calls_per_s: 0.0,
        }
    }

    /// Counts a repetition.
    pub(in crate::bench) fn add(
        &mut self,
        operations: u64,
        passed_ns: u64,
        cpu_ns: u64,
        latencies_ns: &Histogram<u64>,
    ) {
        self.ops_per_s.push(operations as f64 / (passed_ns as f64 / 1e9));
        self.cpu_us_per_op.push(cpu_ns as f64 / 1e3 / operations as f64);
        self.latencies_ns.add(latencies_ns).expect("all histograms have the same range");
        self.operations += operations;
    }

    fn note_rate(&mut self, block: &Block) {
        let most = block.calls.iter().copied().max().unwrap_or(0);
        let rate = most as f64 / (block.passed_ns as f64 / 1e9);
        self.calls_per_s = self.calls_per_s.max(rate);
    }
}

/// An empty histogram of nanoseconds with three digits.
pub(in crate::bench) fn latencies() -> Histogram<u64> {
    const LONGEST_NS: u64 = 3_600_000_000_000;
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("the bounds are legal")
}

/// Measures the raw side and the stack, in this order; every repetition has a block of each, and
/// which comes first changes.
pub(super) fn measure(
    mut subjects: [&mut dyn Subject; 2],
    effort: &Effort<'_>,
    progress: &mut Progress,
) -> Result<[Side; 2]> {
    /// Operations of the blocks before the first, which tell how fast a side is.
    const WARM_UP_OPERATIONS: usize = 512;
    let block_ns = effort.seconds * 1e9 / (2 * effort.repetitions) as f64;
    let mut sides = [Side::new(), Side::new()];
    for (subject, side) in subjects.iter_mut().zip(&mut sides) {
        let calls = (WARM_UP_OPERATIONS / effort.batch / effort.threads).max(1) as u64;
        let calls = calls.min(subject.calls_max());
        side.note_rate(&block(*subject, effort, calls, block_ns)?);
    }
    for repetition in 0..effort.repetitions {
        for turn in 0..2 {
            let index = (repetition + turn) % 2;
            let (subject, side) = (&mut *subjects[index], &mut sides[index]);
            // Twice what was ever seen, so that the time ends a block and not what was prepared.
            let wanted = (side.calls_per_s * block_ns / 1e9 * 2.0) as u64 + 1;
            let bound = subject.calls_max();
            let block = block(subject, effort, wanted.min(bound), block_ns)?;
            let is_early = bound <= wanted && block.calls.contains(&bound);
            let is_early = is_early && (block.passed_ns as f64) < block_ns;
            let operations = block.calls.iter().sum::<u64>() * effort.batch as u64;
            side.add(operations, block.passed_ns, block.cpu_ns, &block.latencies_ns);
            side.ended_early += usize::from(is_early);
            side.note_rate(&block);
        }
        progress.advance(1);
    }
    Ok(sides)
}

/// What one block took.
struct Block {
    calls: Vec<u64>,
    /// Until the last thread ended.
    passed_ns: u64,
    cpu_ns: u64,
    latencies_ns: Histogram<u64>,
}

/// Repeats the calls of all threads until the time is over or each has made `calls_max`.
fn block(
    subject: &mut dyn Subject,
    effort: &Effort<'_>,
    calls_max: u64,
    block_ns: f64,
) -> Result<Block> {
    let Effort { threads, stop, .. } = *effort;
    subject.prepare(calls_max)?;
    let calls = (0..threads).map(|thread| subject.call(thread)).collect::<Result<Vec<_>>>()?;
    let start = Barrier::new(threads + 1);
    let (results, cpu_ns) = std::thread::scope(|scope| {
        let work = |call| repeat(call, &start, calls_max, block_ns as u64, stop);
        let workers: Vec<_> =
            calls.into_iter().map(|call| scope.spawn(move || work(call))).collect();
        start.wait();
        let before_ns = cpu_ns();
        let join = |worker: ScopedJoinHandle<'_, _>| {
            worker.join().expect("a benchmark thread does not panic")
        };
        let results: Result<Vec<_>> = workers.into_iter().map(join).collect();
        (results, cpu_ns() - before_ns)
    });
    let mut block = Block { calls: Vec::new(), passed_ns: 1, cpu_ns, latencies_ns: latencies() };
    for (calls, passed_ns, latencies_ns) in results? {
        block.calls.push(calls);
        block.passed_ns = block.passed_ns.max(passed_ns);
        block.latencies_ns.add(&latencies_ns).expect("all histograms have the same range");
    }
    subject.clean(&block.calls)?;
    check_stop(stop)?;
    Ok(block)
}

/// Fails once somebody wants the benchmark to end.
pub(in crate::bench) fn check_stop(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) {
        return Err(Error::new(ErrorKind::Busy, "run the benchmark").because("it was interrupted"));
    }
    Ok(())
}

fn repeat(
    mut call: Call<'_>,
    start: &Barrier,
    calls_max: u64,
    block_ns: u64,
    stop: &AtomicBool,
) -> Result<(u64, u64, Histogram<u64>)> {
    let mut latencies_ns = latencies();
    start.wait();
    let clock = SystemClock::default();
    let (mut calls, mut passed_ns) = (0, 0);
    while calls < calls_max && passed_ns < block_ns && !stop.load(Ordering::Relaxed) {
        call(calls)?;
        calls += 1;
        // One look at the clock for each call: where one ends, the next begins.
        let now_ns = clock.now_ns();
        latencies_ns.saturating_record(now_ns - passed_ns);
        passed_ns = now_ns;
    }
    Ok((calls, passed_ns, latencies_ns))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Counts what it is asked for.
    #[derive(Default)]
    struct Counted {
        bound: u64,
        prepared: u64,
        made: AtomicU64,
        cleaned: u64,
    }

    impl Subject for Counted {
        fn calls_max(&self) -> u64 {
            self.bound
        }

        fn prepare(&mut self, calls: u64) -> Result<()> {
            self.prepared = calls;
            Ok(())
        }

        fn call(&self, _: usize) -> Result<Call<'_>> {
            Ok(Box::new(|number| {
                assert!(number < self.prepared);
                self.made.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }))
        }

        fn clean(&mut self, calls: &[u64]) -> Result<()> {
            self.cleaned += calls.iter().sum::<u64>();
            Ok(())
        }
    }

    #[test]
    fn a_bound_ends_blocks_early_and_every_call_counts() {
        let (mut raw, mut stack) = (Counted::default(), Counted::default());
        (raw.bound, stack.bound) = (3, 5);
        let stop = AtomicBool::new(false);
        let effort = Effort { threads: 2, batch: 10, repetitions: 4, seconds: 3600.0, stop: &stop };
        let mut progress = Progress::items("test", None);
        let [below, above] =
            measure([&mut raw, &mut stack], &effort, &mut progress).expect("nothing fails");
        for (side, bound) in [(below, 3), (above, 5)] {
            assert_eq!(side.ops_per_s.len(), 4);
            assert_eq!(side.operations, 4 * 2 * bound * 10);
            assert_eq!(side.ended_early, 4);
            assert_eq!(side.latencies_ns.len(), 4 * 2 * bound);
        }
        assert_eq!(stack.cleaned, *stack.made.get_mut());
        assert_eq!(stack.cleaned, 5 * 2 * 5);
    }

    #[test]
    fn it_ends_when_it_is_told_to() {
        let (mut raw, mut stack) = (Counted::default(), Counted::default());
        (raw.bound, stack.bound) = (u64::MAX, u64::MAX);
        let stop = AtomicBool::new(true);
        let effort = Effort { threads: 2, batch: 1, repetitions: 4, seconds: 3600.0, stop: &stop };
        let mut progress = Progress::items("test", None);
        assert!(measure([&mut raw, &mut stack], &effort, &mut progress).is_err());
        assert_eq!(*raw.made.get_mut(), 0);
    }
}
