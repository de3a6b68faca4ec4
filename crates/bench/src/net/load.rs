// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work that several threads repeat for a while.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use terrace_core::{Clock, Result, SystemClock};
use terrace_measure::cpu_ns;

/// What a thread repeats; returns how many operations it did.
pub(super) type Work<'a> = Box<dyn FnMut() -> Result<u64> + Send + 'a>;

/// What threads did in a while.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub(super) operations: u64,
    pub(super) seconds: f64,
    /// CPU time of this process.
    pub(super) cpu_ns: u64,
}

impl Sample {
    pub(super) fn per_second(&self) -> f64 {
        self.operations as f64 / self.seconds
    }
}

/// Repeats the works, each on a thread of its own, for about so long.
pub(super) fn repeat(works: &mut [Work<'_>], block_ns: u64) -> Result<Sample> {
    let barrier = Barrier::new(works.len() + 1);
    let is_over = AtomicBool::new(false);
    let clock = SystemClock::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = works
            .iter_mut()
            .map(|work| {
                let (barrier, is_over) = (&barrier, &is_over);
                scope.spawn(move || {
                    barrier.wait();
                    let mut operations = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        operations += work()?;
                    }
                    Ok(operations)
                })
            })
            .collect();
        barrier.wait();
        let (started_ns, started_cpu) = (clock.now_ns(), cpu_ns());
        clock.sleep(std::time::Duration::from_nanos(block_ns));
        is_over.store(true, Ordering::Relaxed);
        let mut operations = 0;
        for thread in threads {
            let counted: Result<u64> = thread.join().expect("a thread of the benchmark panicked");
            operations += counted?;
        }
        Ok(Sample {
            operations,
            seconds: (clock.now_ns() - started_ns) as f64 / 1e9,
            cpu_ns: cpu_ns() - started_cpu,
        })
    })
}
