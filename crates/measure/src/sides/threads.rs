// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads of this process that repeat a case, all at once.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;

use terrace_core::{Clock, Result, SystemClock};

use super::Runner;
use super::block::{Block, latencies};
use crate::{check_stop, cpu_ns, shared_now_ns};

/// What a thread repeats; it gets a number that counts up from 0 in every block.
pub type Call<'a> = Box<dyn FnMut(u64) -> Result<()> + Send + 'a>;

/// A case on one side: the stack, what lies below it, or a client of a server.
pub trait Subject: Sync {
    /// Calls that each thread may make in a block, so that nothing is filled up.
    fn calls_max(&self) -> u64;

    /// Makes what this many calls of each thread need. Not measured.
    fn prepare(&mut self, calls: u64) -> Result<()>;

    /// What thread `thread` repeats, at most as often as was prepared.
    fn call(&self, thread: usize) -> Result<Call<'_>>;

    /// Checks what so many calls of each thread have made and takes it away. Not measured.
    fn clean(&mut self, calls: &[u64]) -> Result<()>;
}

/// Threads of this process: as many for each of several subjects.
pub struct Threads<'a> {
    /// What is repeated, each by threads of its own.
    pub subjects: Vec<Box<dyn Subject + 'a>>,
    /// Of each subject.
    pub threads: usize,
    /// Set by an interrupt.
    pub stop: &'a AtomicBool,
}

impl Threads<'_> {
    /// Makes what this many calls of each thread need. Not measured.
    pub fn prepare(&mut self, calls: u64) -> Result<()> {
        self.subjects.iter_mut().try_for_each(|subject| subject.prepare(calls))
    }

    /// Repeats the calls of all threads until the time is over or each has made `calls_max`. They
    /// begin when `begin` returns, which is called when all are ready.
    pub fn run(
        &self,
        calls_max: u64,
        block_ns: u64,
        begin: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Block> {
        let mut calls = Vec::new();
        for subject in &self.subjects {
            for thread in 0..self.threads {
                calls.push(subject.call(thread)?);
            }
        }
        let start = Barrier::new(calls.len() + 1);
        let is_begun = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let work = |call| {
                start.wait();
                if !is_begun.load(Ordering::Acquire) {
                    return Ok(Block::new());
                }
                repeat(call, calls_max, block_ns, self.stop)
            };
            let workers: Vec<_> =
                calls.into_iter().map(|call| scope.spawn(move || work(call))).collect();
            let begun = begin();
            is_begun.store(begun.is_ok(), Ordering::Release);
            let before_ns = cpu_ns();
            start.wait();
            let join = |worker: ScopedJoinHandle<'_, _>| {
                worker.join().expect("a benchmark thread does not panic")
            };
            let results: Result<Vec<_>> = workers.into_iter().map(join).collect();
            let cpu_ns = cpu_ns() - before_ns;
            begun?;
            let mut block = Block::new();
            results?.iter().for_each(|one| block.join(one));
            Ok(Block { cpu_ns, ..block })
        })
    }

    /// Checks what so many calls of each thread have made and takes it away. Not measured.
    pub fn clean(&mut self, calls: &[u64]) -> Result<()> {
        let mut of_subjects = self.subjects.iter_mut().zip(calls.chunks(self.threads));
        of_subjects.try_for_each(|(subject, calls)| subject.clean(calls))
    }
}

impl Runner for Threads<'_> {
    fn calls_max(&self) -> u64 {
        self.subjects.iter().map(|subject| subject.calls_max()).min().unwrap_or(0)
    }

    fn block(&mut self, calls_max: u64, block_ns: u64) -> Result<Block> {
        self.prepare(calls_max)?;
        let block = self.run(calls_max, block_ns, &mut || Ok(()))?;
        self.clean(&block.calls)?;
        check_stop(self.stop)?;
        Ok(block)
    }
}

fn repeat(mut call: Call<'_>, calls_max: u64, block_ns: u64, stop: &AtomicBool) -> Result<Block> {
    let mut latencies_ns = latencies();
    let started_ns = shared_now_ns();
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
    let passed_ns = passed_ns.max(1);
    Ok(Block { calls: vec![calls], started_ns, passed_ns, latencies_ns, ..Block::new() })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use terrace_console::progress::Progress;
    use terrace_core::{Error, ErrorKind};

    use super::*;
    use crate::sides::{Effort, measure};

    fn threads<'a>(counted: &'a mut Counted, stop: &'a AtomicBool) -> Threads<'a> {
        Threads { subjects: vec![Box::new(counted)], threads: 2, stop }
    }

    /// Counts what it is asked for.
    #[derive(Default)]
    struct Counted {
        bound: u64,
        prepared: u64,
        made: AtomicU64,
        cleaned: u64,
    }

    impl Subject for &mut Counted {
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
        let effort = Effort { threads: 2, batch: 10, repetitions: 4, seconds: 3600.0 };
        let mut progress = Progress::items("test", None);
        let (mut low, mut high) = (threads(&mut raw, &stop), threads(&mut stack, &stop));
        let [below, above] =
            measure([&mut low, &mut high], &effort, &mut progress).expect("nothing fails");
        drop((low, high));
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
        let effort = Effort { threads: 2, batch: 1, repetitions: 4, seconds: 3600.0 };
        let mut progress = Progress::items("test", None);
        let (mut low, mut high) = (threads(&mut raw, &stop), threads(&mut stack, &stop));
        assert!(measure([&mut low, &mut high], &effort, &mut progress).is_err());
        drop((low, high));
        assert_eq!(*raw.made.get_mut(), 0);
    }

    #[test]
    fn nothing_begins_where_it_is_not_let() {
        let mut counted = Counted { bound: 3, ..Counted::default() };
        let stop = AtomicBool::new(false);
        let mut both = threads(&mut counted, &stop);
        both.prepare(3).expect("nothing fails");
        let mut refuse = || Err(Error::new(ErrorKind::Busy, "begin"));
        assert!(both.run(3, u64::MAX, &mut refuse).is_err());
        drop(both);
        assert_eq!(*counted.made.get_mut(), 0);
    }
}
