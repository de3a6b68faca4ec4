// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a segment's bytes are, and the leases on the file that readers use.
//!
//! Nothing but this replaces a location, so that no lease outlives the file's being the object.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use terrace_core::{GenerationWord, Result, TierIndex};

use crate::catalog::record::Place;
use crate::memory::leases::Leases;
use crate::memory::site::{Location, Site};
use crate::memory::swap::Swap;

/// A location, replaced as a whole, with the word of leases on it.
#[derive(Debug)]
pub(crate) struct Located {
    current: Swap<Arc<Location>>,
    /// Held while anything changes that a lease depends on.
    lent: Mutex<Option<Box<Lent>>>,
    /// The latest files on shared tiers: those of the location, or the ones that it had before.
    synced: Mutex<Vec<Place>>,
}

/// What comes of asking for a word.
pub(crate) enum Lending {
    Word(GenerationWord),
    /// Readers use another file by now.
    Moved,
    /// Not now, whichever file it is.
    Refused,
}

/// A word that stands for the file of an object.
#[derive(Debug)]
struct Lent {
    leases: Arc<Leases>,
    index: u32,
    /// What is lent under the word's present value; `None` since that ended.
    file: Option<File>,
    /// Handles that lent it.
    holders: u32,
}

/// A stored file whatever its generation. Not its site: a deleted file waits for the references
/// to that, and for no lease.
type File = (TierIndex, u64);

fn file_of(site: &Site) -> File {
    (site.place.tier, site.place.file)
}

impl Located {
    /// A location, with the files on shared tiers that it had before.
    pub(crate) fn new(location: Location, before: &[Place]) -> Self {
        let now = location.shared_places();
        let synced = if now.is_empty() { before.to_vec() } else { now };
        let current = Swap::new(Arc::new(location));
        Self { current, lent: Mutex::default(), synced: Mutex::new(synced) }
    }

    /// Where it is now, without counting a reference; for reads and writes.
    #[inline]
    pub(crate) fn load(&self) -> arc_swap::Guard<Arc<Location>> {
        self.current.load()
    }

    /// Where it is now; for everything that is done once.
    pub(crate) fn load_full(&self) -> Arc<Location> {
        self.current.load_full()
    }

    /// Replaces the location. Where readers use another file from now on, leases end before anybody
    /// can see it, let alone write there.
    pub(crate) fn publish(&self, next: Arc<Location>) {
        let mut lent = crate::lock(&self.lent);
        if let Some(lent) = lent.as_mut()
            && lent.file.is_some_and(|file| file != file_of(next.read_site()))
        {
            lent.end();
        }
        let now = next.shared_places();
        if !now.is_empty() {
            *crate::lock(&self.synced) = now;
        }
        self.current.store(next);
    }

    /// The files on shared tiers that a record with this location names as those of the last sync. The caller holds
    /// `changes` of the object.
    pub(crate) fn synced(&self, location: &Location) -> Vec<Place> {
        let now = location.shared_places();
        if now.is_empty() { crate::lock(&self.synced).clone() } else { now }
    }

    /// Forgets files that the location has no more: those of an object below level `shared` are deleted.
    pub(crate) fn forget_synced(&self) {
        *crate::lock(&self.synced) = self.load_full().shared_places();
    }

    /// Ends leases, and makes a change that forbids new ones as [`Located::lend`] asks for them.
    pub(crate) fn end_leases<T>(&self, change: impl FnOnce() -> T) -> T {
        let mut lent = crate::lock(&self.lent);
        if let Some(lent) = lent.as_mut() {
            lent.end();
        }
        change()
    }

    /// The word for a descriptor of `site`'s file; none where `is_allowed` says no, or no word is
    /// free. `is_holder` says whether the handle that asks holds the word already, and is set.
    ///
    /// # Errors
    ///
    /// As [`Leases::take`].
    pub(crate) fn lend(
        &self,
        leases: &Arc<Leases>,
        site: &Site,
        is_holder: &AtomicBool,
        is_allowed: impl FnOnce() -> bool,
    ) -> Result<Lending> {
        let file = file_of(site);
        let mut held = crate::lock(&self.lent);
        if !is_allowed() {
            return Ok(Lending::Refused);
        }
        if file_of(self.current.load_full().read_site()) != file {
            return Ok(Lending::Moved);
        }
        let lent = match held.as_mut() {
            Some(lent) => lent,
            None => {
                let Some(index) = leases.take()? else { return Ok(Lending::Refused) };
                let leases = Arc::clone(leases);
                held.insert(Box::new(Lent { leases, index, file: None, holders: 0 }))
            }
        };
        // What was lent before under this value was the same file, or the value is a new one.
        lent.file = Some(file);
        if !is_holder.swap(true, Ordering::AcqRel) {
            lent.holders += 1;
        }
        // None once the stack is closed; the holder gives the word back all the same.
        Ok(leases.word(lent.index).map_or(Lending::Refused, Lending::Word))
    }

    /// A handle that holds the word is gone; with the last one, leases end.
    pub(crate) fn give_back(&self) {
        let mut held = crate::lock(&self.lent);
        let lent = held.as_mut().expect("the handle holds the word");
        lent.holders -= 1;
        if lent.holders == 0 {
            lent.leases.give_back(lent.index);
            *held = None;
        }
    }
}

impl Lent {
    fn end(&mut self) {
        if self.file.take().is_some() {
            self.leases.change(self.index);
        }
    }
}
