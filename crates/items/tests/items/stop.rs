// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A base that fails at a step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_core::{
    Cursor, Draft, Error, ErrorKind, Key, Object, Open, Page, Pair, Persistency, Result, Stat,
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
    steps: Steps,
}

/// The steps taken so far.
#[derive(Clone)]
struct Steps {
    fault: Fault,
    step: u64,
    taken: Arc<AtomicU64>,
}

/// A draft whose publication is a step, too.
struct StopDraft {
    draft: Box<dyn Draft>,
    steps: Steps,
}

impl Draft for StopDraft {
    fn object(&self) -> Arc<dyn Object> {
        self.draft.object()
    }

    fn publish(&self) -> Result<Option<Arc<[u8]>>> {
        self.steps.take(|| self.draft.publish())
    }
}

impl StopAt {
    pub(crate) fn new(store: &Store, fault: Fault, step: u64) -> Arc<Self> {
        let steps = Steps { fault, step, taken: Arc::default() };
        Arc::new(Self { store: store.clone(), steps })
    }

    pub(crate) fn items(self: &Arc<Self>) -> Items {
        Items::over(Arc::clone(self) as Arc<dyn Base>, Arc::new(SystemClock::default()))
    }

    /// Whether the step was reached.
    pub(crate) fn has_failed(&self) -> bool {
        self.steps.taken.load(Ordering::SeqCst) > self.steps.step
    }

    fn run<T>(&self, call: impl FnOnce(&dyn Base) -> Result<T>) -> Result<T> {
        self.steps.take(|| call(&self.store))
    }
}

impl Steps {
    fn take<T>(&self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        let step = self.taken.fetch_add(1, Ordering::SeqCst);
        let fails = match self.fault {
            Fault::Stops => step >= self.step,
            Fault::Refuses | Fault::LosesAnswer => step == self.step,
        };
        if !fails {
            return call();
        }
        if self.fault == Fault::LosesAnswer {
            let _ = call();
        }
        Err(Error::new(ErrorKind::Io, "take a step").with("step", step))
    }
}

impl Base for StopAt {
    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        self.run(|base| base.open(key, how))
    }

    fn draft(&self, key: &Key, how: &Open) -> Result<Box<dyn Draft>> {
        let draft = self.run(|base| base.draft(key, how))?;
        Ok(Box::new(StopDraft { draft, steps: self.steps.clone() }))
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
