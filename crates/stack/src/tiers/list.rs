// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tiers of an open stack: some may be added, none is ever taken out of the list.
//!
//! A tier that was removed keeps its place, retired, until the store is opened again, so that an
//! index means the same tier for as long as anybody may hold it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use terrace_core::{
    Access, Backend, Capability, Figures, Key, Persistency, Stat, TierIndex, Watermarks, Writes,
};

use crate::memory::entry::Segment;
use crate::tiers::account::{Account, Class};
use crate::tiers::parts::{PathOf, Tier};
use crate::tiers::retry::Retry;
use crate::watch::ledger::Ledger;

/// Whether objects are cut into segments because of the largest object of a tier. A bound above 1 TiB is none in
/// practice, and an object without a cut can be held as one file.
pub(crate) fn cuts_objects(capability: &Capability) -> bool {
    capability.object_bytes_max <= 1 << 40
}

/// A tier of an open stack.
pub(crate) struct TierState {
    pub(crate) name: String,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) figures: Figures,
    pub(crate) watermarks: Watermarks,
    /// How long it keeps what is superseded or deleted, in nanoseconds.
    pub(crate) keep_deleted_ns: Option<u64>,
    pub(crate) offline: Option<String>,
    pub(crate) path_of: Option<PathOf>,
    pub(crate) capability: Capability,
    pub(crate) account: Account,
    /// Primaries, and new segments whose files are being made.
    pub(crate) segments: AtomicU64,
    pub(crate) ledger: Ledger,
    /// Share of the last interval in which applications kept it busy, in 1/1000.
    pub(crate) utilisation_permille: AtomicU64,
    /// What can be held, once it was asked for.
    pub(crate) holding: OnceLock<Holding>,
    /// Held by the thread that deletes superseded files there; when a service that did not answer is asked again.
    pub(crate) deleting: Mutex<Retry>,
    is_draining: AtomicBool,
    is_retired: AtomicBool,
}

/// What a tier's files can be held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holding {
    Nothing,
    /// It is unknown when the last writer is gone.
    Reading,
    Writing,
}

impl Holding {
    pub(crate) fn allows(self, access: Access) -> bool {
        match self {
            Holding::Nothing => false,
            Holding::Reading => access == Access::Read,
            Holding::Writing => true,
        }
    }
}

impl TierState {
    /// A tier that holds nothing.
    pub(crate) fn new(tier: &Tier, is_draining: bool) -> Self {
        Self {
            name: tier.name.clone(),
            backend: Arc::clone(&tier.backend),
            figures: tier.figures,
            watermarks: tier.watermarks,
            keep_deleted_ns: tier
                .keep_deleted
                .map(|time| time.as_nanos().min(u64::MAX.into()) as u64),
            offline: tier.offline.clone(),
            path_of: tier.path_of,
            capability: tier.backend.capability(),
            account: Account::default(),
            segments: AtomicU64::new(0),
            ledger: Ledger::default(),
            utilisation_permille: AtomicU64::new(0),
            holding: OnceLock::new(),
            deleting: Mutex::default(),
            is_draining: AtomicBool::new(is_draining),
            is_retired: AtomicBool::new(false),
        }
    }

    /// What people know the file with a key by: its path, where the tier is a directory.
    pub(crate) fn name_of(&self, file: &Key) -> String {
        self.path_of.map_or_else(|| file.to_string(), |path_of| path_of(file))
    }

    /// Most bytes that existing data may grow to.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.figures.capacity_bytes
    }

    /// Most bytes up to which new data and clean copies are put here.
    pub(crate) fn critical_bytes(&self) -> u64 {
        self.share_bytes(self.watermarks.critical)
    }

    /// Most bytes up to which data may be written that the stack does not see.
    pub(crate) fn high_bytes(&self) -> u64 {
        self.share_bytes(self.watermarks.high)
    }

    /// The same of a tier that could hold so much.
    pub(crate) fn high_of(&self, capacity_bytes: u64) -> u64 {
        (capacity_bytes as f64 * self.watermarks.high) as u64
    }

    fn share_bytes(&self, share: f64) -> u64 {
        let capacity = self.figures.capacity_bytes;
        if capacity == u64::MAX { capacity } else { (capacity as f64 * share) as u64 }
    }

    /// Whether it can keep what was promised.
    pub(crate) fn keeps(&self, level: Persistency) -> bool {
        // The level `shared` is that of a copy on another tier, and of the log.
        self.capability.persistency >= level.min(Persistency::Storage)
    }

    /// What a file takes of it: its length, or where it keeps holes or packs what is allocated of that.
    pub(crate) fn media_bytes(&self, stat: &Stat) -> u64 {
        match self.takes_less() {
            true => stat.allocated_bytes.min(stat.size_bytes),
            false => stat.size_bytes,
        }
    }

    /// Whether files may take less of it than their length.
    pub(crate) fn takes_less(&self) -> bool {
        self.capability.sparse || self.capability.packed
    }

    /// What a segment that comes from another tier may take of it: its length, or where both keep holes what
    /// is allocated of that. What it is packed into is known only behind that.
    pub(crate) fn amount_of(&self, segment: &Segment, from: &TierState) -> u64 {
        match self.capability.sparse && !from.capability.packed {
            true => segment.amount(),
            false => segment.length(),
        }
    }

    /// Whether what it holds is gone after the process ends.
    pub(crate) fn is_volatile(&self) -> bool {
        self.capability.persistency == Persistency::None
    }

    /// Whether new data may be put here.
    pub(crate) fn takes_data(&self) -> bool {
        // Sequentially consistent: a thread that counts a new file first and looks here then is seen by
        // one that closes the tier first and counts then.
        self.offline.is_none() && !self.is_draining.load(Ordering::SeqCst)
    }

    /// Whether its files are written once, as a whole.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.capability.writes == Writes::Whole
    }

    /// Whether new data may be put here that goes on being written: not by migrations alone.
    pub(crate) fn takes_writes(&self) -> bool {
        self.takes_data() && !self.is_whole()
    }

    /// Whether what it holds is to move away.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::SeqCst)
    }

    /// Closes it to new data, or opens it again.
    pub(crate) fn set_draining(&self, is_draining: bool) {
        self.is_draining.store(is_draining, Ordering::SeqCst);
    }

    /// Whether it was removed from the store: it holds nothing and takes nothing.
    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::SeqCst)
    }

    /// Makes it one that was removed, for good.
    pub(crate) fn retire(&self) {
        self.set_draining(true);
        self.is_retired.store(true, Ordering::SeqCst);
    }

    /// Whether its device can be used.
    pub(crate) fn is_online(&self) -> bool {
        self.offline.is_none() && !self.is_retired()
    }

    /// Whether what leaves it from now on is kept there for a time.
    pub(crate) fn keeps_deleted(&self) -> bool {
        self.keep_deleted_ns.is_some() && !self.is_draining()
    }

    /// Segments and bytes of all classes but those of versions, which go with the tier.
    pub(crate) fn holds_anything(&self) -> bool {
        let is_kept = |taken: u64| taken <= self.account.bytes(Class::Kept);
        self.segments.load(Ordering::SeqCst) > 0 || !is_kept(self.account.taken())
    }
}

/// All tiers, by index. Looking one up costs what it costs in a list that never changes.
pub(crate) struct Tiers {
    slots: Box<[OnceLock<TierState>]>,
    /// Held while a tier is added, drained or removed: one at a time.
    pub(crate) changing: Mutex<()>,
}

impl Tiers {
    pub(crate) fn new(tiers: impl IntoIterator<Item = TierState>) -> Self {
        let slots = (0..TierIndex::COUNT_MAX).map(|_| OnceLock::new()).collect();
        let all = Self { slots, changing: Mutex::default() };
        for tier in tiers {
            all.push(tier);
        }
        all
    }

    /// Adds a tier behind the others; the caller holds `changing`.
    ///
    /// # Panics
    ///
    /// Where there are as many as there may be.
    pub(crate) fn push(&self, tier: TierState) {
        let slot = &self.slots[self.len()];
        assert!(slot.set(tier).is_ok(), "the slot behind the last tier is empty");
    }

    /// How many there are, retired ones included.
    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    #[inline]
    pub(crate) fn get(&self, tier: TierIndex) -> Option<&TierState> {
        self.slots.get(tier.index())?.get()
    }

    /// All, by index, retired ones included.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &TierState> + Clone {
        self.slots.iter().map_while(OnceLock::get)
    }

    /// All with their indices.
    pub(crate) fn indexed(&self) -> impl Iterator<Item = (TierIndex, &TierState)> + Clone {
        self.iter().enumerate().map(|(index, tier)| (TierIndex(index as u8), tier))
    }

    /// Those that belong to the store.
    pub(crate) fn present(&self) -> impl Iterator<Item = &TierState> + Clone {
        self.iter().filter(|tier| !tier.is_retired())
    }

    /// The tier of this name, if the store has it.
    pub(crate) fn find(&self, name: &str) -> Option<(TierIndex, &TierState)> {
        self.indexed().find(|(_, tier)| tier.name == name && !tier.is_retired())
    }
}
