// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A base that fails at a step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_core::{
    Cursor, Error, ErrorKind, Key, Object, Open, Page, Pair, Persistency, Result, Stat,
};
use terrace_items::{Base, Items};
use terrace_store::{Store, SystemClock};

/// How it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// From this step on nothing is done: the process has died.
    Stops,
    /// This step is not done, all others are.
    Refuses,
    /// This step is done and says that it was not; all others are done.
    LosesAnswer,
}

/// A store whose step `step` (from 0) fails.
pub(crate) struct StopAt {
    store: Store,
    fault: Fault,
    step: u64,
    taken: AtomicU64,
}

impl StopAt {
    pub(crate) fn new(store: &Store, fault: Fault, step: u64) -> Arc<Self> {
        Arc::new(Self { store: store.clone(), fault, step, taken: AtomicU64::new(0) })
    }

    pub(crate) fn items(self: &Arc<Self>) -> Items {
        Items::over(Arc::clone(self) as Arc<dyn Base>, Arc::new(SystemClock::default()))
    }

    /// Whether the step was reached.
    pub(crate) fn has_failed(&self) -> bool {
        self.taken.load(Ordering::SeqCst) > self.step
    }

    fn run<T>(&self, call: impl FnOnce(&dyn Base) -> Result<T>) -> Result<T> {
        let step = self.taken.fetch_add(1, Ordering::SeqCst);
        let fails = match self.fault {
            Fault::Stops => step >= self.step,
            Fault::Refuses | Fault::LosesAnswer => step == self.step,
        };
        if !fails {
            return call(&self.store);
        }
        if self.fault == Fault::LosesAnswer {
            let _ = call(&self.store);
        }
        Err(Error::new(ErrorKind::Io, "take a step").with("step", step))
    }
}

impl Base for StopAt {
    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        self.run(|base| base.open(key, how))
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        self.run(|base| base.stat(key))
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.run(|base| base.delete(key))
    }

    fn list(&self, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        self.run(|base| base.list(prefix, cursor, max))
    }

    fn pair(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.run(|base| base.pair(key))
    }

    fn put_pair(&self, key: &[u8], value: &[u8], persistency: Persistency) -> Result<()> {
        self.run(|base| base.put_pair(key, value, persistency))
    }

    fn remove_pair(&self, key: &[u8]) -> Result<bool> {
        self.run(|base| base.remove_pair(key))
    }

    fn pairs(&self, prefix: &[u8], after: Option<&[u8]>, max: usize) -> Result<Vec<Pair>> {
        self.run(|base| base.pairs(prefix, after, max))
    }
}
