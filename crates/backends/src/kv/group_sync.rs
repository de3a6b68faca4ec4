// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads that wait for durable commits share one sync.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use terrace_core::{Error, ErrorKind, Result, Ticket};

/// Lets one of the waiting threads sync for all; the others sleep. Those that come while a sync
/// runs need the next one, because their commits may have missed it.
#[derive(Debug, Default)]
pub(super) struct GroupSync {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Every commit up to this ticket is durable.
    durable: Ticket,
    is_running: bool,
    has_failed: bool,
}

impl GroupSync {
    /// Blocks until the commit of `ticket` and all before it are durable. `sync` makes every
    /// commit durable that there is when it begins, and returns the last one's ticket.
    ///
    /// # Errors
    ///
    /// That of `sync` for the thread that called it; `Io` for all others, then and ever after.
    pub(super) fn wait(&self, ticket: Ticket, sync: impl Fn() -> Result<Ticket>) -> Result<()> {
        let mut state = self.lock();
        loop {
            if state.durable >= ticket {
                return Ok(());
            }
            if state.has_failed {
                return Err(Error::new(ErrorKind::Io, "wait for a commit")
                    .because("an earlier sync failed, so the commit may be lost"));
            }
            if state.is_running {
                state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_running = true;
            drop(state);
            let synced = sync();
            state = self.lock();
            state.is_running = false;
            self.ended.notify_all();
            match synced {
                Ok(durable) => state.durable = state.durable.max(durable),
                Err(error) => {
                    state.has_failed = true;
                    return Err(error);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn waiters_share_a_sync() {
        const WAITERS: u64 = 8;
        let group = GroupSync::default();
        let syncs = AtomicU64::new(0);
        let barrier = Barrier::new(WAITERS as usize);
        thread::scope(|scope| {
            for ticket in 1..=WAITERS {
                let (group, syncs, barrier) = (&group, &syncs, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let sync = || {
                        syncs.fetch_add(1, Ordering::SeqCst);
                        Ok(Ticket(WAITERS))
                    };
                    group.wait(Ticket(ticket), sync).expect("sync");
                });
            }
        });
        assert_eq!(syncs.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_commit_that_a_sync_missed_gets_the_next() {
        let group = GroupSync::default();
        let last = AtomicU64::new(1);
        let sync = || Ok(Ticket(last.load(Ordering::SeqCst)));
        group.wait(Ticket(1), sync).expect("sync");
        last.store(2, Ordering::SeqCst);
        group.wait(Ticket(2), sync).expect("another sync");
        let unused = || -> Result<Ticket> { unreachable!("both are durable") };
        group.wait(Ticket(2), unused).expect("no sync");
        group.wait(Ticket(0), unused).expect("no sync");
    }

    #[test]
    fn a_failure_is_sticky() {
        let group = GroupSync::default();
        group.wait(Ticket(1), || Ok(Ticket(1))).expect("sync");
        let broken = || Err(Error::new(ErrorKind::NoSpace, "sync"));
        assert_eq!(group.wait(Ticket(2), broken).expect_err("broken").kind(), ErrorKind::NoSpace);
        let healed = || Ok(Ticket(9));
        assert_eq!(group.wait(Ticket(2), healed).expect_err("sticky").kind(), ErrorKind::Io);
        group.wait(Ticket(1), healed).expect("what was durable stays durable");
    }
}
