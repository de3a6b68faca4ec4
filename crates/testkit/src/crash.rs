// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stops the simulated machine at a failpoint.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terrace_core::{Error, ErrorKind, Result, Watcher};

use crate::sim::SimWorld;

/// Counts the failpoints that are passed, and freezes the world at the one it is armed with.
///
/// After that every failpoint fails as every operation does, until the world is thawed by a crash
/// ([`SimWorld::crash_process`], [`SimWorld::lose_power`]). Visits of a frozen world do not
/// count: a dead process passes nothing.
#[derive(Debug)]
pub struct CrashAt {
    world: Arc<SimWorld>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    visited: BTreeMap<&'static str, u64>,
    armed: Option<Armed>,
    has_fired: bool,
}

#[derive(Debug)]
struct Armed {
    name: String,
    /// Visits until it fires; at least 1.
    remaining: u64,
}

impl CrashAt {
    /// A watcher that only counts until it is armed.
    pub fn new(world: &Arc<SimWorld>) -> Arc<Self> {
        Arc::new(Self { world: Arc::clone(world), state: Mutex::default() })
    }

    /// Freezes the world at the `nth` visit of `name` from now on, counted from 1.
    pub fn arm(&self, name: &str, nth: u64) {
        let mut state = self.state();
        state.armed = Some(Armed { name: name.into(), remaining: nth.max(1) });
        state.has_fired = false;
    }

    /// Only counts again.
    pub fn disarm(&self) {
        self.state().armed = None;
    }

    /// Whether it froze the world since it was last armed.
    pub fn has_fired(&self) -> bool {
        self.state().has_fired
    }

    /// Every failpoint that was passed, with how often.
    pub fn visited(&self) -> BTreeMap<&'static str, u64> {
        self.state().visited.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No method leaves `State` half changed, so it is sound even after a panic elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher for CrashAt {
    fn hit(&self, name: &'static str) -> Result<()> {
        let crashed = || {
            Error::new(ErrorKind::Io, "go on")
                .because("the simulated machine has crashed")
                .with("failpoint", name)
        };
        let mut state = self.state();
        if self.world.is_frozen() {
            return Err(crashed());
        }
        *state.visited.entry(name).or_default() += 1;
        let Some(armed) = state.armed.as_mut().filter(|armed| armed.name == name) else {
            return Ok(());
        };
        armed.remaining -= 1;
        if armed.remaining > 0 {
            return Ok(());
        }
        state.armed = None;
        state.has_fired = true;
        self.world.freeze();
        Err(crashed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_world_freezes_at_the_nth_visit_and_not_before() {
        let world = SimWorld::new();
        let crash = CrashAt::new(&world);
        crash.hit("a").expect("only counted");
        crash.arm("a", 2);
        crash.hit("a").expect("the first visit");
        crash.hit("b").expect("another failpoint");
        assert!(!crash.has_fired() && !world.is_frozen());
        assert_eq!(crash.hit("a").expect_err("armed").kind(), ErrorKind::Io);
        assert!(crash.has_fired() && world.is_frozen());
        crash.hit("b").expect_err("a dead process goes nowhere");
        world.crash_process();
        crash.hit("b").expect("disarmed by firing");
        assert_eq!(crash.visited(), BTreeMap::from([("a", 3), ("b", 2)]));
    }
}
