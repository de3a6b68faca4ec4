// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of a segment, and which of them its readers and writers use.

use std::sync::{Arc, Weak};

use terrace_core::{
    Backend, Error, ErrorKind, Key, Object, Open, Persistency, Result, Semantics, Stat,
};

use crate::catalog::record::Place;
use crate::memory::marks;
use crate::memory::swap::Swap;

/// Where a segment's bytes are; replaced as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    pub(crate) primary: Arc<Site>,
    pub(crate) copies: Vec<Arc<Site>>,
    /// Which of them readers use: 0 is the primary, then the copies.
    pub(crate) best: usize,
    pub(crate) checksum: Option<u32>,
    pub(crate) settling: Option<Pending>,
    /// A scrub computes a checksum: a writer replaces the location first.
    pub(crate) is_watched: bool,
    /// The shared tiers among those of its files, as bits.
    shared_tiers: u32,
}

/// The source of a switch that is not yet certain.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) source: Arc<Site>,
    /// What it takes on its tier.
    pub(crate) bytes: u64,
    pub(crate) boot: u64,
}

/// One stored file. Every possible reader holds a reference, so it is deleted only when its
/// last reference is the one that deletes it.
pub(crate) struct Site {
    pub(crate) place: Place,
    /// The file's key in its tier.
    pub(crate) key: Key,
    object_id: u64,
    segment: u32,
    /// The open file; dropped when the object is not open.
    handle: Swap<Option<Arc<Box<dyn Object>>>>,
    /// The same file as it was before it got another generation, for its users since.
    older: Vec<Weak<Site>>,
}

impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Site").field("place", &self.place).field("key", &self.key).finish()
    }
}

/// Access to a site's open file without counting references.
pub(crate) type Handle = arc_swap::Guard<Option<Arc<Box<dyn Object>>>>;

impl Site {
    pub(crate) fn new(place: Place, object_id: u64, segment: u32) -> Arc<Self> {
        let key = place.key(object_id, segment);
        let handle = Swap::new(None);
        Arc::new(Self { place, key, object_id, segment, handle, older: Vec::new() })
    }

    /// A file that `make` makes and opens.
    pub(crate) fn made(
        place: Place,
        object_id: u64,
        segment: u32,
        make: impl FnOnce(&Key) -> Result<Box<dyn Object>>,
    ) -> Result<Arc<Self>> {
        let key = place.key(object_id, segment);
        let handle = Swap::new(Some(Arc::new(make(&key)?)));
        Ok(Arc::new(Self { place, key, object_id, segment, handle, older: Vec::new() }))
    }

    /// The same file under another generation.
    pub(crate) fn with_generation(self: &Arc<Self>, generation: u64) -> Arc<Self> {
        let place = Place { generation, ..self.place };
        let handle = Swap::new(self.handle.load_full());
        let (object_id, segment) = (self.object_id, self.segment);
        let mut older = self.older.clone();
        older.retain(|site| site.strong_count() > 0);
        older.push(Arc::downgrade(self));
        Arc::new(Self { place, key: self.key.clone(), object_id, segment, handle, older })
    }

    /// Whether the caller's is the only reference to the file: no other one can be made.
    pub(crate) fn is_unused(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1 && self.older.iter().all(|site| site.strong_count() == 0)
    }

    /// The file, opened with its first use.
    #[inline]
    pub(crate) fn open(&self, backend: &dyn Backend) -> Result<Handle> {
        let handle = self.handle.load();
        if handle.is_some() {
            return Ok(handle);
        }
        self.open_now(backend)
    }

    /// The file, for something that is done once.
    pub(crate) fn open_once(&self, backend: &dyn Backend) -> Result<Arc<Box<dyn Object>>> {
        if let Some(open) = self.handle.load_full() {
            return Ok(open);
        }
        let opened = self.open_now(backend)?;
        Ok(arc_swap::Guard::into_inner(opened).expect("it was just opened"))
    }

    #[cold]
    fn open_now(&self, backend: &dyn Backend) -> Result<Handle> {
        // The stack syncs by itself, and volatile tiers promise nothing.
        let semantics = Semantics::at_level(Persistency::None);
        let open = |how: Open| backend.open(&self.key, &how.with_semantics(semantics));
        let object = match open(Open::write()) {
            // A tier of a store that is open for reading only; the stack itself refuses writes.
            Err(error) if error.kind() == ErrorKind::Denied => open(Open::read())?,
            opened => opened?,
        };
        self.check_identity(backend)?;
        self.set_handle(object);
        // Another thread may have dropped the handle again meanwhile; then this opens it once more.
        self.open(backend)
    }

    /// Size and times of the file: through the open one, else by its name.
    pub(crate) fn stat(&self, backend: &dyn Backend) -> Result<Stat> {
        match self.handle.load_full() {
            Some(open) => open.stat(),
            None => backend.stat(&self.key),
        }
    }

    /// Recognises a file that was exchanged for another's, or for an older one of its own.
    fn check_identity(&self, backend: &dyn Backend) -> Result<()> {
        if !backend.capability().identity {
            return Ok(());
        }
        let found = backend.identity(&self.key)?;
        let (object_id, segment) = (self.object_id, self.segment);
        let is_mine = |identity| marks::is_of(identity, object_id, segment, &self.place);
        if found.as_ref().is_some_and(is_mine) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Corrupt, "open a stored file")
            .because("it is not the one that the catalog means; see terrace fsck")
            .with("file", &self.key)
            .with("target", backend.target()))
    }

    /// Takes over a file that was opened elsewhere.
    pub(crate) fn set_handle(&self, object: Box<dyn Object>) {
        self.handle.store(Some(Arc::new(object)));
    }

    /// Replaces the handle on the file, or has it opened anew; returns the one that
    /// was used, which threads that loaded it before still use.
    pub(crate) fn exchange(
        &self,
        object: Option<Arc<Box<dyn Object>>>,
    ) -> Option<Arc<Box<dyn Object>>> {
        self.handle.replace(object)
    }

    /// Closes the file once the operations that use it have ended.
    pub(crate) fn close(&self) {
        self.handle.store(None);
    }
}

/// The bit of the tier that a site is on.
fn bit(site: &Site) -> u32 {
    1 << site.place.tier.index()
}

impl Location {
    /// A location of these sites, with the best for reading chosen by `cost`; `is_shared` is whether the tier of a site
    /// is one that another machine can reach.
    pub(crate) fn new(
        primary: Arc<Site>,
        copies: Vec<Arc<Site>>,
        checksum: Option<u32>,
        settling: Option<Pending>,
        cost: impl Fn(&Site) -> f64,
        is_shared: impl Fn(&Site) -> bool,
    ) -> Self {
        let mut best = 0;
        let mut best_cost = cost(&primary);
        for (index, copy) in copies.iter().enumerate() {
            let copy_cost = cost(copy);
            if copy_cost < best_cost {
                (best, best_cost) = (index + 1, copy_cost);
            }
        }
        let source = settling.as_ref().map(|pending| &pending.source);
        let sites = std::iter::once(&primary).chain(&copies).chain(source);
        let shared_tiers =
            sites.filter(|site| is_shared(site)).fold(0, |bits, site| bits | bit(site));
        Self { primary, copies, best, checksum, settling, is_watched: false, shared_tiers }
    }

    /// The files on shared tiers with all bytes as of the last switch that is certain. The primary of one that is not may
    /// be deleted by a recovery.
    pub(crate) fn shared_places(&self) -> Vec<Place> {
        let first = match &self.settling {
            None => &self.primary,
            Some(pending) => &pending.source,
        };
        let others = self.copies.iter().filter(|copy| copy.place != first.place);
        let sites = std::iter::once(first).chain(others);
        let is_shared = |site: &&Arc<Site>| self.shared_tiers & bit(site) != 0;
        sites.filter(is_shared).map(|site| site.place).collect()
    }

    /// The site that readers use.
    #[inline]
    pub(crate) fn read_site(&self) -> &Arc<Site> {
        if self.best == 0 { &self.primary } else { &self.copies[self.best - 1] }
    }

    /// Whether something would become wrong by a write: copies, a checksum, or one that is being
    /// computed.
    #[inline]
    pub(crate) fn is_clean(&self) -> bool {
        self.checksum.is_some() || !self.copies.is_empty() || self.is_watched
    }

    /// Whether there is nothing but the primary: nothing to take back or to settle first.
    pub(crate) fn is_plain(&self) -> bool {
        !self.is_clean() && self.settling.is_none()
    }

    /// Whether this is what a switch came from that is not yet certain.
    pub(crate) fn comes_from(&self, site: &Site) -> bool {
        self.settling.as_ref().is_some_and(|pending| pending.source.place == site.place)
    }

    /// Whether what such a switch came from stays as a copy.
    pub(crate) fn keeps_source(&self) -> bool {
        self.copies.iter().any(|copy| self.comes_from(copy))
    }

    /// The primary, then the copies.
    pub(crate) fn sites(&self) -> impl Iterator<Item = &Arc<Site>> {
        std::iter::once(&self.primary).chain(&self.copies)
    }
}
