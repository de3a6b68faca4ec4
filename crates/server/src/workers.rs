// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads for requests that wait for storage. They stay for a while: beginning a thread costs more
//! than most devices take.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::crew::Crew;

/// How long a thread stays without work.
const IDLE_MAX: Duration = Duration::from_secs(2);

type Job = Box<dyn FnOnce() + Send>;

/// The threads of a server for requests that wait for storage.
pub(crate) struct Workers {
    crew: Arc<Crew>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Never more than there are threads without work, each of which takes one.
    jobs: VecDeque<Job>,
    idle: usize,
    is_over: bool,
}

fn taken(job: &Mutex<Option<Job>>) -> Option<Job> {
    job.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl Workers {
    pub(crate) fn new(crew: Arc<Crew>) -> Self {
        Self { crew, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Has a thread do it now, however many there are then: this one, where none can be begun.
    pub(crate) fn run(self: &Arc<Self>, job: Job) {
        let mut state = self.state();
        if state.idle > state.jobs.len() {
            state.jobs.push_back(job);
            drop(state);
            self.changed.notify_one();
            return;
        }
        drop(state);
        let kept = Arc::new(Mutex::new(Some(job)));
        let (own, workers) = (Arc::clone(&kept), Arc::clone(self));
        let begun = self.crew.spawn("terrace-waiting", move || {
            let mut next = taken(&own);
            while let Some(job) = next {
                job();
                next = workers.next();
            }
        });
        if let Err(error) = begun {
            tracing::debug!(%error, "a request that waits for storage has no thread of its own");
            if let Some(job) = taken(&kept) {
                job();
            }
        }
    }

    /// Lets threads go that have no work, now and from now on.
    pub(crate) fn end(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state();
        // Those without work may be asleep still.
        if let Some(job) = state.jobs.pop_front() {
            return Some(job);
        }
        if state.is_over {
            return None;
        }
        state.idle += 1;
        let is_idle = |state: &mut State| state.jobs.is_empty() && !state.is_over;
        let waited = self.changed.wait_timeout_while(state, IDLE_MAX, is_idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.idle -= 1;
        state.jobs.pop_front()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
