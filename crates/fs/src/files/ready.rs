// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects that are made before their files, many at a time: a file that is created then has an
//! object at once, for the price of a share in a batch.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use terrace_core::{Backend, Clock, ErrorKind, Hint, Op, Reply as Answered, Request as Asked};

use super::background::Background;
use super::sweep::Sweeper;
use super::{FilesOptions, unexpected};
use crate::failure::Result;
use crate::lock;
use crate::metadata::Metadata;
use crate::node::object_key;
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

    /// Ends; returns what was not taken.
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
        let (mut lost, mut others) = (Vec::new(), Vec::new());
        for ((number, look), operation) in numbers.iter().zip(looks).zip(&operations) {
            match look.outcome {
                Some(Ok(Answered::Stat(stat))) if stat.size_bytes == 0 => {
                    made.push(ReadyObject { number: *number, modified_ns: stat.modified_ns });
                }
                // Those of new ones are not there, and have no bytes.
                Some(Ok(Answered::Stat(_))) => others.push(*number),
                _ if was_there(operation) => others.push(*number),
                _ => lost.push(*number),
            }
        }
        for operation in operations {
            if let Some(Err(error)) = operation.outcome {
                tracing::debug!(%error, lost = lost.len(), "cannot make objects ahead of files");
                break;
            }
        }
        if !others.is_empty() {
            tracing::warn!(
                objects = others.len(),
                "objects have the numbers of new files; they are left to `terrace fsck --repair`"
            );
            // They are not taken for garbage.
            self.metadata.call(&Request::Collected { numbers: others })?;
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

/// Whether an object was not made because there is one.
fn was_there(operation: &Op<'_>) -> bool {
    matches!(&operation.outcome, Some(Err(error)) if error.kind() == ErrorKind::Exists)
}

#[cfg(test)]
mod tests {
    use terrace_backends::{kv, object};
    use terrace_core::{Access, BackendExt, Kv, Semantics, SystemClock};

    use super::*;
    use crate::node::ROOT;
    use crate::{FileClock, Session, Tree, TreeOptions, pairs};

    #[test]
    fn an_object_with_bytes_is_that_of_somebody_else_and_stays() {
        let pairs: Arc<dyn Kv> = Arc::new(kv::Memory::default());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        Tree::create(&*pairs, &TreeOptions::default(), &*clock, &[7; 32]).expect("made");
        let tree = Tree::open(Arc::clone(&pairs), FileClock::new(Arc::clone(&clock)));
        let metadata: Arc<dyn Metadata> = Arc::new(Session::new(&tree.expect("opens")));
        let directory = tempfile::tempdir().expect("a temporary directory");
        let settings = object::FileSettings { capacity_bytes: 1 << 30, read_only: false };
        let data = object::File::open(directory.path(), settings).expect("opens");
        let data: Arc<dyn Backend> = Arc::new(data);
        let options = FilesOptions {
            namespace: "files".into(),
            semantics: Semantics::DEFAULT,
            ready_objects: 4,
            access: Access::Write,
            is_alone: true,
            believed_for: Duration::MAX,
            inline_bytes_max: 4096,
            space: None,
        };
        let other = ROOT + 2;
        let key = object_key("files", other).expect("legal");
        data.write_all(&key, b"another's").expect("there is room");
        let sweeper = Sweeper::start(&metadata, &data, &options, &clock).expect("starts");
        let sweeper = Arc::new(sweeper);
        let ready = Ready::start(&metadata, &data, &sweeper, &options, &clock).expect("starts");
        let made = ready.state.make(3).expect("made");
        let numbers: Vec<_> = made.iter().map(|object| object.number).collect();
        assert_eq!(numbers, [ROOT + 1, ROOT + 3]);
        ready.stop();
        sweeper.stop().expect("nothing to do");
        assert_eq!(data.read_all(&key).expect("is there"), b"another's");
        let garbage = |number| pairs.get(&pairs::garbage(number)).expect("read").is_some();
        assert!(garbage(ROOT + 1) && !garbage(other), "nor does the next one delete it");
    }
}
