// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tells the metadata what can wait a little, much of it at once: what was closed, and what was
//! read.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use terrace_core::Clock;

use super::background::Background;
use super::sweep::Sweeper;
use super::unexpected;
use crate::failure::Result;
use crate::lock;
use crate::metadata::Metadata;
use crate::request::{Closed, Reply, Request, WasRead};

/// What happens within this time is told together.
const DELAY: Duration = Duration::from_millis(20);

/// The thread that tells.
pub(super) struct Closing {
    state: Arc<State>,
    thread: Background,
}

struct State {
    queue: Mutex<Queue>,
    changed: Condvar,
    metadata: Arc<dyn Metadata>,
    sweeper: Arc<Sweeper>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct Queue {
    queued: Queued,
    is_stopped: bool,
}

/// What is to be told.
#[derive(Default)]
pub(super) struct Queued {
    pub(super) closed: Vec<Closed>,
    pub(super) read: Vec<WasRead>,
}

impl Closing {
    pub(super) fn start(
        metadata: &Arc<dyn Metadata>,
        sweeper: &Arc<Sweeper>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self> {
        let state = Arc::new(State {
            queue: Mutex::default(),
            changed: Condvar::new(),
            metadata: Arc::clone(metadata),
            sweeper: Arc::clone(sweeper),
            clock: Arc::clone(clock),
        });
        let theirs = Arc::clone(&state);
        let thread = Background::start("fs-closing", move || theirs.run())?;
        Ok(Self { state, thread })
    }

    /// Has the metadata told what is added.
    pub(super) fn push(&self, add: impl FnOnce(&mut Queued)) {
        let mut queue = lock(&self.state.queue);
        let is_first = queue.queued.is_empty();
        add(&mut queue.queued);
        // Else it is awake.
        if is_first {
            self.state.changed.notify_one();
        }
    }

    /// Tells of what is left, and ends.
    pub(super) fn stop(&self) {
        self.thread.stop(|| {
            lock(&self.state.queue).is_stopped = true;
            self.state.changed.notify_one();
        });
    }
}

impl State {
    fn run(&self) {
        while let Some(queued) = self.next() {
            let files = queued.closed.len();
            if let Err(failure) = queued.tell(&*self.metadata, &self.sweeper) {
                // They are closed when the server misses this client.
                tracing::warn!(files, %failure, "cannot tell that files were closed");
            }
        }
    }

    /// What is to be told; `None` at the end.
    fn next(&self) -> Option<Queued> {
        let is_idle = |queue: &mut Queue| queue.queued.is_empty() && !queue.is_stopped;
        let queue = lock(&self.queue);
        let queue = self.changed.wait_while(queue, is_idle).unwrap_or_else(PoisonError::into_inner);
        let is_stopped = queue.is_stopped;
        drop(queue);
        if !is_stopped {
            self.clock.sleep(DELAY);
        }
        let queued = std::mem::take(&mut lock(&self.queue).queued);
        (!queued.is_empty()).then_some(queued)
    }
}

impl Queued {
    fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.read.is_empty()
    }

    /// Tells it, and has the objects deleted that went with the last close.
    pub(super) fn tell(self, metadata: &dyn Metadata, sweeper: &Sweeper) -> Result<()> {
        let Self { closed, read } = self;
        match metadata.call(&Request::Close { closed, read })? {
            Reply::Numbers(garbage) => {
                garbage.into_iter().for_each(|number| sweeper.push(number));
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }
}
