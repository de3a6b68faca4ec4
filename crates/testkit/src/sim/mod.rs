// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated machine: disks and key-value engines that forget what was not synced.
//!
//! ```
//! use terrace_core::{BackendExt, Key, Persistency, Random};
//! use terrace_testkit::SimWorld;
//!
//! let world = SimWorld::new();
//! let disk = world.tier("disk", 1 << 20);
//! let key = Key::parse("a/b").expect("legal");
//! disk.open().write_all(&key, b"never synced").expect("room");
//! world.crash_process();
//! assert_eq!(disk.open().read_all(&key).expect("the OS had it"), b"never synced");
//! world.lose_all_unsynced();
//! assert!(disk.open().read_all(&key).is_err());
//! ```

mod backend;
mod file;
mod kv;
mod tier;

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use terrace_core::{Error, ErrorKind, Persistency, Random, Result};

pub use kv::SimKv;
pub use tier::{SimTier, StoredFile};

use kv::KvState;
use tier::TierState;

/// Everything that shares one power supply and one process.
///
/// [`SimWorld::tier`] and [`SimWorld::kv`] give controls that live as long as the test; what they
/// `open` belongs to the process and fails with `Io` for ever once that has crashed. One lock
/// guards everything, so a crash falls between two operations, never into one.
#[derive(Default)]
pub struct SimWorld {
    state: Mutex<State>,
    /// Signalled when an operation begins to hang and when it may go on.
    changed: Condvar,
}

/// What tests can make fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// `Backend::open`.
    Open,
    /// `Object::read_at` and `next_data`.
    Read,
    /// `Object::write_at` and `append`; the first half of the bytes is written.
    Write,
    /// `Object::set_len`, `allocate` and `punch`.
    Resize,
    /// `stat` of both and `Backend::space`.
    Stat,
    /// `Backend::delete`.
    Delete,
    /// `Backend::list` and `namespaces`.
    List,
    /// `TierBackend::identity` and `set_identity`, `Object::set_modified`.
    Identity,
    /// `TierBackend::superblock` and `set_superblock`.
    Superblock,
    /// `Object::sync`; sticky for the handle.
    Sync,
    /// `Backend::sync`.
    SyncNames,
    /// `Kv::get` and `scan`.
    KvRead,
    /// The commit of `Kv::transact`.
    KvCommit,
    /// `Kv::wait`; sticky until the process crashes.
    KvWait,
}

impl SimWorld {
    /// A world without tiers.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Adds a disk: what reached it survives a crash of the process, what was synced also a loss
    /// of power.
    pub fn tier(self: &Arc<Self>, name: &str, capacity_bytes: u64) -> SimTier {
        self.tier_with(name, capacity_bytes, Persistency::Storage)
    }

    /// Adds a tier that gives at most `persistency`: `None` forgets everything in every crash,
    /// `Process` only when power is lost.
    pub fn tier_with(
        self: &Arc<Self>,
        name: &str,
        capacity_bytes: u64,
        persistency: Persistency,
    ) -> SimTier {
        let mut state = self.lock();
        state.tiers.push(TierState::new(name, capacity_bytes, persistency));
        SimTier::new(Arc::clone(self), state.tiers.len() - 1)
    }

    /// Adds a key-value engine whose commits survive a crash of the process, and a loss of power
    /// once they were waited for.
    pub fn kv(self: &Arc<Self>) -> SimKv {
        let mut state = self.lock();
        state.kvs.push(KvState::default());
        SimKv::new(Arc::clone(self), state.kvs.len() - 1)
    }

    /// Makes every operation fail with `Io` until the world is thawed by a crash; those that hang
    /// fail too.
    pub fn freeze(&self) {
        self.lock().is_frozen = true;
        self.changed.notify_all();
    }

    /// Whether [`SimWorld::freeze`] was called since the last crash.
    pub fn is_frozen(&self) -> bool {
        self.lock().is_frozen
    }

    /// Kills the process: everything that was opened fails for ever, faults and hangs are gone,
    /// volatile tiers are empty. What the operating system had stays.
    pub fn crash_process(&self) {
        drop(self.crash(|tier| {
            if tier.persistency == Persistency::None {
                tier.forget_everything();
            }
        }));
    }

    /// Cuts the power: what was not synced survives or not, by chance, as real disks and file
    /// systems do it.
    ///
    /// - Of every file, each page that changed since its last sync and the length are old or new.
    /// - Every name is in one of the states that it had since the last sync of the names.
    /// - Of each key-value engine a prefix of the commits survives, never less than was waited for.
    pub fn lose_power(&self, random: &mut Random) {
        self.cut_power(Some(random));
    }

    /// Cuts the power where nothing unsynced had reached the media.
    pub fn lose_all_unsynced(&self) {
        self.cut_power(None);
    }

    /// Names the present boot, as the kernel's boot id does: changes when power is lost.
    pub fn boot_id(&self) -> String {
        format!("boot-{}", self.lock().boots)
    }

    fn cut_power(&self, mut random: Option<&mut Random>) {
        let mut state = self.crash(|tier| {
            if tier.persistency < Persistency::Storage {
                tier.forget_everything();
            } else {
                tier.lose_unsynced(random.as_deref_mut());
            }
        });
        state.boots += 1;
        for kv in &mut state.kvs {
            kv.lose_unsynced(random.as_deref_mut());
        }
    }

    fn crash(&self, mut lose: impl FnMut(&mut TierState)) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.epoch += 1;
        state.is_frozen = false;
        for tier in &mut state.tiers {
            tier.faults = Faults::default();
            tier.is_hanging = false;
            lose(tier);
        }
        for kv in &mut state.kvs {
            kv.restart();
        }
        self.changed.notify_all();
        state
    }

    /// Takes the lock for an operation of what was opened in `epoch`.
    fn enter(&self, epoch: u64) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        state.check(epoch)?;
        Ok(state)
    }

    /// Takes the lock for an operation on a tier; blocks while the tier hangs.
    fn enter_tier(&self, tier: usize, epoch: u64) -> Result<MutexGuard<'_, State>> {
        let mut state = self.enter(epoch)?;
        if state.tiers[tier].is_hanging {
            state.tiers[tier].hanging += 1;
            self.changed.notify_all();
            state = self
                .changed
                .wait_while(state, |state| {
                    state.check(epoch).is_ok() && state.tiers[tier].is_hanging
                })
                .unwrap_or_else(PoisonError::into_inner);
            state.tiers[tier].hanging -= 1;
            state.check(epoch)?;
        }
        state.operations += 1;
        Ok(state)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic inside an operation is a bug of the simulation, which the test reports anyway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SimWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("SimWorld")
            .field("epoch", &state.epoch)
            .field("is_frozen", &state.is_frozen)
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    /// Crashes so far: what was opened before the last one is dead.
    epoch: u64,
    /// Losses of power so far.
    boots: u64,
    is_frozen: bool,
    /// Operations on tiers so far; gives files their times.
    operations: u64,
    tiers: Vec<TierState>,
    kvs: Vec<KvState>,
}

impl State {
    fn check(&self, epoch: u64) -> Result<()> {
        if self.is_frozen || self.epoch != epoch {
            return Err(Error::new(ErrorKind::Io, "reach the device")
                .because("the simulated machine has crashed"));
        }
        Ok(())
    }

    /// Wall-clock time: one microsecond per operation.
    fn wall_ns(&self) -> u64 {
        crate::ManualClock::WALL_START_NS + self.operations * 1000
    }
}

/// Failures that a test ordered.
#[derive(Debug, Default)]
struct Faults {
    ordered: Vec<Fault>,
}

#[derive(Debug)]
struct Fault {
    operation: Operation,
    kind: ErrorKind,
    is_lasting: bool,
}

impl Faults {
    fn order(&mut self, operation: Operation, kind: ErrorKind, is_lasting: bool) {
        self.ordered.push(Fault { operation, kind, is_lasting });
    }

    /// Fails as ordered for this operation, if at all.
    fn check(&mut self, operation: Operation) -> Result<()> {
        let Some(at) = self.ordered.iter().position(|fault| fault.operation == operation) else {
            return Ok(());
        };
        let kind = self.ordered[at].kind;
        if !self.ordered[at].is_lasting {
            self.ordered.remove(at);
        }
        Err(Error::new(kind, "use the simulated device")
            .with("ordered_fault", format!("{operation:?}")))
    }
}
