// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where and how a simulated machine stops.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use terrace_core::{Error, ErrorKind, Result};
use terrace_testkit::{CrashAt, SimWorld};

/// What ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    Process,
    /// The seed chooses what of the unsynced survives.
    Power {
        seed: u64,
    },
}

/// The step at which it ends.
#[derive(Clone, Debug)]
pub(crate) struct Crashing {
    pub(crate) failpoint: String,
    /// Counted from 1.
    pub(crate) visit: u64,
}

/// How often each failpoint was passed.
pub(crate) type Visits = BTreeMap<String, u64>;

/// Counts failpoints and stops the machine at one.
pub(crate) struct Failpoints {
    world: Arc<SimWorld>,
    watcher: Arc<CrashAt>,
    counted_before: Mutex<BTreeMap<&'static str, u64>>,
}

impl Failpoints {
    pub(crate) fn new(world: &Arc<SimWorld>) -> Self {
        let watcher = CrashAt::new(world);
        Self { world: world.clone(), watcher, counted_before: Mutex::default() }
    }

    pub(crate) fn watch(&self) -> terrace_core::Failpoints {
        terrace_core::Failpoints::watched(self.watcher.clone())
    }

    /// The machine stops there, counted from now.
    pub(crate) fn arm(&self, at: &Crashing) {
        self.watcher.arm(&at.failpoint, at.visit);
    }

    pub(crate) fn disarm(&self) {
        self.watcher.disarm();
    }

    /// The machine stops now.
    pub(crate) fn freeze(&self) {
        self.world.freeze();
    }

    /// Counts from now.
    pub(crate) fn count(&self) {
        *self.counted_before.lock().expect("never poisoned") = self.watcher.visited();
    }

    /// Visits since [`Failpoints::count`].
    pub(crate) fn visits(&self) -> Visits {
        let before = self.counted_before.lock().expect("never poisoned").clone();
        let since = |(name, count): (&'static str, u64)| {
            let count = count - before.get(name).copied().unwrap_or(0);
            (count > 0).then(|| (name.to_string(), count))
        };
        self.watcher.visited().into_iter().filter_map(since).collect()
    }

    /// Fails once the machine has stopped: nobody hears of what was done after that.
    pub(crate) fn is_alive(&self) -> Result<()> {
        if self.world.is_frozen() {
            return Err(Error::new(ErrorKind::Io, "go on").because("the machine has stopped"));
        }
        Ok(())
    }
}
