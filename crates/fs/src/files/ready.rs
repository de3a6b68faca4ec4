// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects that are made before their files, many at a time: a file that is created then has an
//! object at once, for the price of a share in a batch.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use terrace_core::{Backend, Clock, Hint, Op, Reply as Answered, Request as Asked};

use super::background::Background;
use super::sweep::Sweeper;
use super::{FilesOptions, object_key, unexpected};
use crate::failure::Result;
use crate::lock;
use crate::metadata::Metadata;
use crate::request::{ReadyObject, Reply, Request};

/// Pause after objects could not be made.
const PAUSE: Duration = Duration::from_millis(500);

/// The thread that makes objects.
pub(super) struct Ready {
    state: Arc<State>,
    thread: Background,
}

struct State {
    stock: Mutex<Stock>,
    changed: Condvar,
    metadata: Arc<dyn Metadata>,
    data: Arc<dyn Backend>,
    sweeper: Arc<Sweeper>,
    options: FilesOptions,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct Stock {
    objects: Vec<ReadyObject>,
    /// Whether files are created at all: until then nothing is made.
    is_wanted: bool,
    is_stopped: bool,
}

impl Ready {
    pub(super) fn start(
        metadata: &Arc<dyn Metadata>,
        data: &Arc<dyn Backend>,
        sweeper: &Arc<Sweeper>,
        options: &FilesOptions,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self> {
        let state = Arc::new(State {
            stock: Mutex::default(),
            changed: Condvar::new(),
            metadata: Arc::clone(metadata),
            data: Arc::clone(data),
            sweeper: Arc::clone(sweeper),
            options: options.clone(),
            clock: Arc::clone(clock),
        });
        let thread = match options.ready_objects {
            0 => Background::idle(),
            _ => {
                let theirs = Arc::clone(&state);
                Background::start("fs-ready", move || theirs.run())?
            }
        };
        Ok(Self { state, thread })
    }

    /// An object, where one is ready.
    pub(super) fn take(&self) -> Option<ReadyObject> {
        if self.state.options.ready_objects == 0 {
            return None;
        }
        let mut stock = lock(&self.state.stock);
        stock.is_wanted = true;
        let object = stock.objects.pop();
        if stock.objects.len() * 2 <= self.state.options.ready_objects {
            self.state.changed.notify_one();
        }
        object
    }

    /// An object whose file was not made after all.
    pub(super) fn give_back(&self, object: Option<ReadyObject>) {
        lock(&self.state.stock).objects.extend(object);
    }

    /// Ends; what nobody took.
    pub(super) fn stop(&self) -> Vec<ReadyObject> {
        self.thread.stop(|| {
            lock(&self.state.stock).is_stopped = true;
            self.state.changed.notify_all();
        });
        std::mem::take(&mut lock(&self.state.stock).objects)
    }
}

impl State {
    fn run(&self) {
        while let Some(count) = self.wanted() {
            match self.make(count) {
                Ok(objects) => lock(&self.stock).objects.extend(objects),
                Err(failure) => {
                    // Files then get their objects when they need them.
                    tracing::debug!(%failure, "cannot make objects ahead of files");
                    self.clock.sleep(PAUSE);
                }
            }
        }
    }

    /// How many are wanted; `None` at the end.
    fn wanted(&self) -> Option<usize> {
        let stock = lock(&self.stock);
        let full = self.options.ready_objects;
        let stock = self
            .changed
            .wait_while(stock, |stock| {
                let has_enough = !stock.is_wanted || stock.objects.len() * 2 > full;
                has_enough && !stock.is_stopped
            })
            .unwrap_or_else(PoisonError::into_inner);
        (!stock.is_stopped).then(|| full - stock.objects.len())
    }

    fn make(&self, count: usize) -> Result<Vec<ReadyObject>> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let reply = self.metadata.call(&Request::Reserve { count })?;
        let Reply::Numbers(numbers) = reply else { return Err(unexpected(&reply)) };
        let keys: Vec<_> = numbers
            .iter()
            .map(|number| object_key(&self.options.namespace, *number))
            .collect::<terrace_core::Result<_>>()?;
        let create = |key| Asked::Create { key, data: &[], hint: Hint::default() };
        let mut operations: Vec<_> = keys.iter().map(|key| Op::new(create(key))).collect();
        self.data.execute(&mut operations, &self.options.semantics);
        let mut looks: Vec<_> = keys.iter().map(|key| Op::new(Asked::Stat { key })).collect();
        self.data.execute(&mut looks, &self.options.semantics);
        let mut made = Vec::with_capacity(numbers.len());
        let mut lost = Vec::new();
        for (number, look) in numbers.iter().zip(looks) {
            match look.outcome {
                Some(Ok(Answered::Stat(stat))) => {
                    made.push(ReadyObject { number: *number, modified_ns: stat.modified_ns });
                }
                _ => lost.push(*number),
            }
        }
        for operation in operations {
            if let Some(Err(error)) = operation.outcome {
                tracing::debug!(%error, lost = lost.len(), "cannot make objects ahead of files");
                break;
            }
        }
        // A number without an object is of no use; an object that cannot be looked at is garbage.
        let life = self.metadata.life();
        lost.into_iter().for_each(|number| self.sweeper.push(number, life));
        match made.is_empty() && !numbers.is_empty() {
            true => Err(rustix::io::Errno::NOSPC.into()),
            false => Ok(made),
        }
    }
}
