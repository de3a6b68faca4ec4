// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads of one process that begin together and share what there is to do.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, OnceLock};
use std::thread;

use crate::error::{Error, Result};

/// Hands out numbers to threads, each once and in order, until one fails.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    next: AtomicU64,
    is_over: AtomicBool,
}

impl Shares {
    /// The next number, or `None` once it is over.
    #[inline]
    pub(crate) fn take(&self) -> Option<u64> {
        (!self.is_over.load(Relaxed)).then(|| self.next.fetch_add(1, Relaxed))
    }

    /// No thread gets a further number.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }
}

/// Runs `work` on one thread for each of `states`; all are there before `begin` is called, and start
/// with what it returns. Gives that and the states back. The first failure ends the shares.
pub(crate) fn work_together<S: Send, B: Send + Sync>(
    mut states: Vec<S>,
    shares: &Shares,
    begin: impl FnOnce() -> Result<B>,
    work: impl Fn(&mut S, &B) -> Result<()> + Sync,
) -> Result<(B, Vec<S>)> {
    let (gate, begun) = (Barrier::new(states.len() + 1), OnceLock::new());
    let results: Result<Vec<()>> = thread::scope(|scope| {
        let mut crew = Vec::with_capacity(states.len());
        for state in &mut states {
            let (gate, begun, work) = (&gate, &begun, &work);
            let spawned = thread::Builder::new().spawn_scoped(scope, move || {
                gate.wait();
                let Some(begun) = begun.get() else { return Ok(()) };
                work(state, begun).inspect_err(|_| shares.end())
            });
            crew.push(spawned);
        }
        let missing = crew.iter().filter(|one| one.is_err()).count();
        let begin = if missing == 0 {
            begin().map(|value| {
                // No other thread sets it.
                let _ = begun.set(value);
            })
        } else {
            Err(Error::new("start threads", "the system has no more").with("missing", missing))
        };
        // Those that are there must come past the gate in any case.
        for _ in 0..missing {
            scope.spawn(|| gate.wait());
        }
        gate.wait();
        let results = crew.into_iter().filter_map(Result::ok).map(|one| match one.join() {
            Ok(result) => result,
            Err(panic) => resume_unwind(panic),
        });
        let results: Vec<Result<()>> = results.collect();
        begin?;
        results.into_iter().collect()
    });
    results?;
    Ok((begun.into_inner().expect("it was set, or there was an error"), states))
}

#[cfg(test)]
mod tests {
    use super::{Shares, work_together};
    use crate::error::Error;

    #[test]
    fn every_share_is_done_once() {
        let shares = Shares::default();
        let (begun, mut done) = work_together(
            vec![Vec::new(); 4],
            &shares,
            || Ok(1000),
            |mine, limit| {
                while let Some(share) = shares.take().filter(|share| share < limit) {
                    mine.push(share);
                }
                Ok(())
            },
        )
        .unwrap();
        let mut all: Vec<u64> = done.drain(..).flatten().collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..begun));
    }

    #[test]
    fn one_that_fails_ends_the_others() {
        let shares = Shares::default();
        let failed = work_together(
            vec![false, true],
            &shares,
            || Ok(()),
            |is_to_fail, ()| {
                if *is_to_fail {
                    return Err(Error::new("test", "asked to"));
                }
                while shares.take().is_some() {}
                Ok(())
            },
        );
        assert_eq!(failed.unwrap_err().to_string(), "cannot test: asked to");
    }

    #[test]
    fn a_begin_that_fails_lets_nobody_work() {
        let failed = work_together(
            vec![(); 3],
            &Shares::default(),
            || Err::<(), _>(Error::new("begin", "asked to")),
            |(), ()| panic!("worked without a begin"),
        );
        assert_eq!(failed.unwrap_err().to_string(), "cannot begin: asked to");
    }
}
