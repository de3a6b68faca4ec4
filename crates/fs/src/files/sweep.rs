// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Deletes, in the background, the objects of files that are gone.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use terrace_core::{Access, Backend, Clock, ErrorKind, Op, Request as Asked, Semantics};

use super::FilesOptions;
use super::background::Background;
use crate::failure::{Failure, Result};
use crate::lock;
use crate::metadata::Metadata;
use crate::node::object_key;
use crate::request::{Reply, Request};

/// Deleted with one batch.
const BATCH: usize = 256;

/// Pause after deletions failed.
const PAUSE: Duration = Duration::from_millis(500);

/// The thread that deletes.
pub(super) struct Sweeper {
    state: Arc<State>,
    thread: Background,
}

struct State {
    queue: Mutex<Queue>,
    changed: Condvar,
    metadata: Arc<dyn Metadata>,
    data: Arc<dyn Backend>,
    namespace: String,
    access: Access,
    clock: Arc<dyn Clock>,
}

/// The object of a file that is gone.
#[derive(Clone, Copy)]
struct Gone {
    number: u64,
    /// The life of the metadata before it answered so.
    life: u64,
}

#[derive(Default)]
struct Queue {
    objects: VecDeque<Gone>,
    /// How many are being deleted.
    in_work: usize,
    /// The result of the last batch.
    failure: Option<Failure>,
    is_stopped: bool,
}

impl Sweeper {
    /// Begins with what was left behind, unless nothing may be changed.
    pub(super) fn start(
        metadata: &Arc<dyn Metadata>,
        data: &Arc<dyn Backend>,
        options: &FilesOptions,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self> {
        let life = metadata.life();
        let left = match options.access {
            Access::Read => Vec::new(),
            Access::Write => match metadata.call(&Request::Garbage { max: u32::MAX })? {
                Reply::Numbers(numbers) => numbers,
                other => return Err(super::unexpected(&other)),
            },
        };
        let objects = left.into_iter().map(|number| Gone { number, life }).collect();
        let queue = Queue { objects, ..Queue::default() };
        let state = Arc::new(State {
            queue: Mutex::new(queue),
            changed: Condvar::new(),
            metadata: Arc::clone(metadata),
            data: Arc::clone(data),
            namespace: options.namespace.clone(),
            access: options.access,
            clock: Arc::clone(clock),
        });
        let theirs = Arc::clone(&state);
        let thread = Background::start("fs-sweeper", move || theirs.run())?;
        Ok(Self { state, thread })
    }

    /// Has the object of a file deleted that is gone, as the metadata answered in this life or a later one.
    pub(super) fn push(&self, number: u64, life: u64) {
        lock(&self.state.queue).objects.push_back(Gone { number, life });
        self.state.changed.notify_all();
    }

    /// Whether there are objects that take room and soon will not.
    pub(super) fn is_busy(&self) -> bool {
        let queue = lock(&self.state.queue);
        queue.in_work > 0 || !queue.objects.is_empty()
    }

    /// Waits until everything is deleted that was pushed; the result of the last try.
    pub(super) fn wait(&self) -> Result<()> {
        let queue = lock(&self.state.queue);
        let queue = self
            .state
            .changed
            .wait_while(queue, |queue| {
                let is_done = queue.objects.is_empty() && queue.in_work == 0;
                !is_done && queue.failure.is_none() && !queue.is_stopped
            })
            .unwrap_or_else(PoisonError::into_inner);
        queue.failure.clone().map_or(Ok(()), Err)
    }

    /// Deletes what is left, and ends.
    pub(super) fn stop(&self) -> Result<()> {
        let ends = self.thread.stop(|| {
            lock(&self.state.queue).is_stopped = true;
            self.state.changed.notify_all();
        });
        // An error is logged once.
        if !ends {
            return Ok(());
        }
        lock(&self.state.queue).failure.clone().map_or(Ok(()), Err)
    }
}

impl State {
    fn run(&self) {
        while let Some(gone) = self.next() {
            let outcome = self.delete(&gone);
            let mut queue = lock(&self.queue);
            queue.in_work = 0;
            let has_failed = queue.failure.is_some();
            queue.failure = outcome.as_ref().err().cloned();
            if let Err(failure) = outcome {
                let objects = gone.len();
                if self.access == Access::Read {
                    tracing::debug!(%failure, objects, "others are to delete objects of files");
                    queue.failure = None;
                    drop(queue);
                    self.changed.notify_all();
                    continue;
                }
                // It is tried until it works.
                if !has_failed {
                    tracing::warn!(%failure, objects, "cannot delete objects of files yet");
                }
                queue.objects.extend(&gone);
                self.changed.notify_all();
                if queue.is_stopped {
                    return;
                }
                drop(queue);
                self.clock.sleep(PAUSE);
                continue;
            }
            drop(queue);
            self.changed.notify_all();
        }
    }

    /// The next batch; `None` at the end.
    fn next(&self) -> Option<Vec<Gone>> {
        let queue = lock(&self.queue);
        let mut queue = self
            .changed
            .wait_while(queue, |queue| queue.objects.is_empty() && !queue.is_stopped)
            .unwrap_or_else(PoisonError::into_inner);
        let count = queue.objects.len().min(BATCH);
        queue.in_work = count;
        let gone: Vec<_> = queue.objects.drain(..count).collect();
        (!gone.is_empty()).then_some(gone)
    }

    fn delete(&self, gone: &[Gone]) -> Result<()> {
        // A name that came back with the power would lead to a file whose bytes are gone.
        self.metadata.call(&Request::Sync)?;
        let numbers = self.without_names(gone)?;
        let keys: Vec<_> = numbers
            .iter()
            .map(|number| object_key(&self.namespace, *number))
            .collect::<terrace_core::Result<_>>()?;
        let mut operations: Vec<_> =
            keys.iter().map(|key| Op::new(Asked::Delete { key })).collect();
        self.data.execute(&mut operations, &Semantics::DEFAULT);
        for operation in operations {
            match operation.outcome {
                // A client for reading may have left out the server that has it.
                Some(Err(error))
                    if error.kind() != ErrorKind::NotFound || self.access == Access::Read =>
                {
                    return Err(error.into());
                }
                _ => {}
            }
        }
        self.metadata.call(&Request::Collected { numbers }).map(drop)
    }

    /// Those that are gone still: an answer of an earlier life may be undone.
    fn without_names(&self, gone: &[Gone]) -> Result<Vec<u64>> {
        let whole_since = self.metadata.whole_since();
        let mut numbers = Vec::with_capacity(gone.len());
        for Gone { number, life } in gone.iter().copied() {
            if life < whole_since {
                match self.metadata.call(&Request::Node { number }) {
                    Err(failure) if failure.errno() == Errno::STALE => {}
                    other => {
                        other?;
                        continue;
                    }
                }
            }
            numbers.push(number);
        }
        Ok(numbers)
    }
}
