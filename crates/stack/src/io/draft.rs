// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drafts: new values of objects, which replace the old ones in one commit.
//!
//! A draft is an object that no key names. Its files are marked as unfinished, and the catalog has a
//! row of garbage for each, so that an opening after a crash deletes them. To publish it, the bytes are
//! synced first; then the marks are written, that of the first file last; then one commit removes the
//! old record with its files, puts the new one, and removes the rows of garbage.
//!
//! Locks: the claim of the key, then `changes` of the draft, then `changes` of the old object; the list
//! of drafts last.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_core::{
    Access, Atomicity, Create, Draft, Error, ErrorKind, Key, Object, Open, Persistency, Result,
    Role, Ticket,
};

use crate::catalog::map::{GarbageRow, Write};
use crate::catalog::record::Record;
use crate::io::atomic::WholeObject;
use crate::io::create::Drafted;
use crate::io::object::StackObject;
use crate::memory::entries::{Claim, Opened};
use crate::memory::entry::{Entry, Segment};
use crate::shared::Shared;
use crate::shared::drafts::Unpublished;

/// A draft of a stack; discarded when it is dropped unpublished.
pub(crate) struct StackDraft {
    shared: Arc<Shared>,
    entry: Arc<Entry>,
    create: Create,
    object: Arc<dyn Object>,
}

impl Draft for StackDraft {
    fn object(&self) -> Arc<dyn Object> {
        Arc::clone(&self.object)
    }

    fn publish(&self) -> Result<Option<Arc<[u8]>>> {
        self.shared
            .publish_draft(&self.entry, self.create)
            .map_err(|error| error.with("key", &self.entry.key))
    }
}

impl Drop for StackDraft {
    fn drop(&mut self) {
        self.shared.discard_draft(&self.entry);
    }
}

impl Shared {
    /// Makes a draft of an object. It keeps the pin of the object that it is to replace, and at least
    /// what that is promised.
    pub(crate) fn begin_draft(self: &Arc<Self>, key: &Key, how: &Open) -> Result<StackDraft> {
        self.check_writable("replace an object")?;
        let old = self.borrow_entry(key)?;
        check_create(how.create, old.is_some()).map_err(|error| error.with("key", key))?;
        let promised = old.as_ref().map_or(Persistency::None, |old| old.persistency());
        let level = self.level(&how.semantics).max(promised);
        let pinned = old.filter(|old| old.is_pinned.load(Ordering::Acquire));
        let pinned_to =
            pinned.map(|old| old.segments.load()[0].location.load_full().primary.place.tier);
        let draft = self.draft(key, how, level, Some(Drafted { pinned_to }))?;
        let committed = self
            .catalog
            .commit(&[Write::Put(key, &draft.record)])
            .and_then(|_| self.failpoints.hit("draft.catalog"));
        if let Err(error) = committed {
            self.discard(key, &draft);
            return Err(error.with("key", key));
        }
        let histories = draft.history(self).map(|history| (0, history)).into_iter().collect();
        let (entry, created) = self.appear(key, draft);
        self.post_first_open(&entry, created);
        let unpublished = Unpublished { entry: Arc::clone(&entry), histories };
        crate::lock(&self.drafts).insert(entry.object_id, unpublished);
        let opened = Opened(Arc::clone(&entry));
        // The publication makes durable what is to be: no write need do that by itself.
        let level = level.min(Persistency::Process);
        let object = StackObject::new(Arc::clone(self), opened, Access::Write, level);
        let object: Arc<dyn Object> = match how.semantics.atomicity {
            Atomicity::None => Arc::new(object),
            Atomicity::Operation | Atomicity::Batch => Arc::new(WholeObject(object)),
        };
        Ok(StackDraft { shared: Arc::clone(self), entry, create: how.create, object })
    }

    /// Deletes the files of a draft that was not published; does nothing where it was, or where that
    /// was done.
    pub(crate) fn discard_draft(&self, entry: &Arc<Entry>) {
        let known = crate::lock(&self.drafts).remove(&entry.object_id);
        if known.is_some_and(|draft| draft.entry.is_draft())
            && let Err(error) = self.supersede(entry, Vec::new(), "delete.catalog")
        {
            tracing::debug!(key = %entry.key, %error, "the next opening deletes a draft");
        }
    }

    /// Discards all drafts, because the store closes.
    pub(crate) fn discard_drafts(&self) {
        let entry = |draft: &Unpublished| Arc::clone(&draft.entry);
        let all: Vec<_> = crate::lock(&self.drafts).values().map(entry).collect();
        all.iter().for_each(|entry| self.discard_draft(entry));
    }

    /// The history of a segment, also of a draft's; the caller holds `entry.changes`.
    pub(crate) fn history_of(&self, entry: &Entry, segment: u32) -> Result<Option<Vec<u8>>> {
        if !entry.is_draft() {
            return self.catalog.history(entry.object_id, segment);
        }
        let drafts = crate::lock(&self.drafts);
        let draft = drafts.get(&entry.object_id);
        Ok(draft.and_then(|draft| draft.histories.get(&segment)).cloned())
    }

    /// Keeps the history of a segment of a draft until the draft is published; the caller holds
    /// `entry.changes`.
    pub(crate) fn keep_history(&self, entry: &Entry, segment: u32, history: Vec<u8>) {
        if let Some(draft) = crate::lock(&self.drafts).get_mut(&entry.object_id) {
            draft.histories.insert(segment, history);
        }
    }

    /// The histories of all segments of a draft; the caller holds `entry.changes`.
    fn histories_of(&self, entry: &Entry) -> Vec<(u32, Vec<u8>)> {
        let drafts = crate::lock(&self.drafts);
        let histories = drafts.get(&entry.object_id).map(|draft| draft.histories.clone());
        // What was cut off meanwhile has none.
        let segments = entry.segments.load();
        let is_there = |number| segments.iter().any(|one| one.number == number);
        histories.into_iter().flatten().filter(|(number, _)| is_there(*number)).collect()
    }

    /// Makes the key of a draft name it; returns the label of what it replaced.
    fn publish_draft(&self, entry: &Arc<Entry>, create: Create) -> Result<Option<Arc<[u8]>>> {
        self.check_writable("publish a draft")?;
        check_draft(entry)?;
        // Where nothing is replaced, a crash may lose the bytes as it may those of any new object.
        let is_synced = needs_sync(entry, self.borrow_entry(&entry.key)?.is_some());
        self.prepare(entry, is_synced)?;
        let (old, claim) = self.entries.claim(&entry.key);
        let old = match old {
            Some(old) => Some(old),
            None => {
                let record = self.catalog.get(&entry.key)?;
                record.map(|record| Arc::new(self.entry(entry.key.clone(), &record)))
            }
        };
        match self.switch_when_prepared(entry, old.as_ref(), create, is_synced) {
            Ok(ticket) => {
                let replaced = old.as_ref().and_then(|old| old.label.clone());
                self.end_publication(entry, claim, old, ticket).map(|()| replaced)
            }
            Err(error) => {
                if let Some(old) = old.filter(|old| !old.is_deleted()) {
                    claim.put_back(old);
                }
                Err(error)
            }
        }
    }

    /// Switches a claimed key to a draft, which is prepared once more where the key names more by now than it
    /// was prepared for: an object that appeared since then, or that is promised more, is rare, and only
    /// then readers wait for a device.
    fn switch_when_prepared(
        &self,
        entry: &Arc<Entry>,
        old: Option<&Arc<Entry>>,
        create: Create,
        mut is_synced: bool,
    ) -> Result<Ticket> {
        loop {
            let promised = old.map_or(Persistency::None, |old| old.persistency());
            let is_raised = promised > entry.persistency();
            if is_raised {
                self.raise_draft(entry, promised)?;
            }
            let is_to_sync = !is_synced && needs_sync(entry, old.is_some());
            if is_to_sync || is_raised && promised >= Persistency::Shared {
                self.prepare(entry, true)?;
                is_synced = true;
            }
            if let Some(ticket) = self.switch_to_draft(entry, old, create)? {
                return Ok(ticket);
            }
        }
    }

    /// Promises a draft what the object is promised that it replaces.
    fn raise_draft(&self, entry: &Entry, level: Persistency) -> Result<()> {
        let _changes = crate::lock(&entry.changes);
        if let Some(weak) = self.weak_tier(entry, level) {
            return Err(Error::new(ErrorKind::Unsupported, "publish a draft")
                .because(
                    "the tier it is on cannot keep what the object is promised that it replaces; \
                     begin it again",
                )
                .with("persistency", level)
                .with("tier", &weak.name));
        }
        entry.promise(level);
        Ok(())
    }

    /// Marks the files of a draft as those of an object. With `is_synced` the bytes are durable before
    /// the marks, and the marks before this returns: a lost catalog is made anew from the marks.
    fn prepare(&self, entry: &Arc<Entry>, is_synced: bool) -> Result<()> {
        if is_synced {
            self.sync_draft(entry)?;
        }
        if entry.persistency() >= Persistency::Shared {
            // Before the switch: the log must not name a value that only this machine has.
            self.share_segments(entry)?;
        }
        self.mark_primary(entry)?;
        self.failpoints.hit("publish.identity")?;
        if is_synced {
            let segments = entry.segments.load_full();
            let place = |segment: &Arc<Segment>| segment.location.load_full().primary.place;
            let tiers: BTreeSet<_> = segments.iter().map(|one| place(one).tier).collect();
            tiers.into_iter().try_for_each(|tier| self.tier(tier).backend.sync())?;
        }
        Ok(())
    }

    /// Marks the files of a draft as those of an object, the first one last: an object without its
    /// first file is none where the catalog is lost.
    fn mark_primary(&self, entry: &Entry) -> Result<()> {
        for segment in entry.segments.load_full().iter().rev() {
            let site = Arc::clone(&segment.location.load_full().primary);
            let owner = entry.owner();
            let (number, start) = (segment.number, segment.start_bytes);
            let identity = self.identity(owner, number, start, &site.place, Role::Primary);
            if let Some(identity) = identity {
                self.backend(&site).set_identity(&site.key, &identity)?;
            }
        }
        Ok(())
    }

    fn sync_draft(&self, entry: &Arc<Entry>) -> Result<()> {
        // Before the sync, so that what is written meanwhile counts as not synced.
        entry.is_unsynced.store(false, Ordering::Release);
        for segment in entry.segments.load_full().iter() {
            let site = Arc::clone(&segment.location.load_full().primary);
            let file = site.open_once(self.backend(&site))?;
            if let Err(error) = file.sync() {
                self.has_failed_sync.store(true, Ordering::Release);
                // The kernel reports a lost page once: another sync would succeed without it.
                self.discard_draft(entry);
                return Err(error);
            }
        }
        Ok(())
    }

    /// The commit that switches a claimed key from the old object, if there is one, to a draft; `None` where
    /// that is promised more by now.
    fn switch_to_draft(
        &self,
        entry: &Arc<Entry>,
        old: Option<&Arc<Entry>>,
        create: Create,
    ) -> Result<Option<Ticket>> {
        let _changes = crate::lock(&entry.changes);
        // Another thread may have published or discarded it until the key was claimed.
        check_draft(entry)?;
        check_create(create, old.is_some())?;
        if old.is_some_and(|old| old.persistency() > entry.persistency()) {
            return Ok(None);
        }
        if let Some(old) = old {
            entry.is_pinned.store(old.is_pinned.load(Ordering::Acquire), Ordering::Release);
        }
        let draft = entry.record_now();
        let record = Record { is_draft: false, ..draft.clone() };
        let rows: Vec<GarbageRow> = draft.garbage().collect();
        let mut writes = vec![Write::Put(&entry.key, &record)];
        writes.extend(rows.iter().map(Write::GarbageGone));
        let histories = self.histories_of(entry);
        let id = entry.object_id;
        let added =
            |(number, history): &(u32, Vec<u8>)| Write::History(id, *number, Some(history.clone()));
        writes.extend(histories.iter().map(added));
        let switched = match old {
            Some(old) => self.supersede(old, writes, "publish.catalog"),
            None => {
                let committed = self.catalog.commit(&writes);
                committed.and_then(|it| self.failpoints.hit("publish.catalog").map(|()| it))
            }
        };
        switched.inspect(|_| entry.mark_published()).map(Some).inspect_err(|_| {
            // It may have been written all the same. What replaced the old object was taken back.
            let mut back = vec![Write::Put(&entry.key, &draft)];
            back.extend(histories.iter().map(|(number, _)| Write::History(id, *number, None)));
            if old.is_none() {
                back.insert(0, Write::Remove(&entry.key, &record));
            }
            if self.catalog.commit(&back).is_err() {
                self.is_broken.store(true, Ordering::Release);
            }
        })
    }

    /// Shows a published draft under its key, and waits until it is durable where that was promised.
    fn end_publication(
        &self,
        entry: &Arc<Entry>,
        claim: Claim<'_>,
        old: Option<Arc<Entry>>,
        ticket: Ticket,
    ) -> Result<()> {
        let level = entry.persistency();
        // Held until the level is kept: a raise that fails takes back what is not.
        let raising = (level > entry.kept()).then(|| crate::lock(&entry.raising));
        self.entries.fulfil(claim, Arc::clone(entry));
        crate::lock(&self.drafts).remove(&entry.object_id);
        if let Some(old) = old.filter(|old| old.object_id > entry.object_id) {
            self.mark_dead(&old);
        }
        self.wait_for(ticket, level)?;
        if raising.is_some() {
            entry.keep(level);
        }
        Ok(())
    }

    /// Marks the files of an old object whose number is higher than that of the new one: where the
    /// catalog is lost before they are deleted, the higher number would be taken for the newer.
    fn mark_dead(&self, old: &Entry) {
        for segment in old.segments.load_full().iter() {
            let site = Arc::clone(&segment.location.load_full().primary);
            let (number, start) = (segment.number, segment.start_bytes);
            let identity = self.identity(old.owner(), number, start, &site.place, Role::Dead);
            if let Some(identity) = identity {
                // It is gone already, or a lost catalog brings back a value that was complete.
                let _ = self.backend(&site).set_identity(&site.key, &identity);
            }
        }
    }
}

/// Whether the bytes of a draft must be durable before its key names it.
fn needs_sync(entry: &Entry, has_old: bool) -> bool {
    match entry.persistency() {
        Persistency::None => false,
        Persistency::Process => has_old,
        Persistency::Storage | Persistency::Shared => true,
    }
}

/// Refuses what was published or discarded.
fn check_draft(entry: &Entry) -> Result<()> {
    if entry.is_draft() {
        return entry.check_exists("publish a draft");
    }
    Err(Error::invalid("publish a draft", "it was published before"))
}

fn check_create(create: Create, has_old: bool) -> Result<()> {
    match (create, has_old) {
        (Create::New, true) => Err(Error::new(ErrorKind::Exists, "create object")),
        (Create::Never, false) => Err(Error::new(ErrorKind::NotFound, "replace an object")),
        _ => Ok(()),
    }
}
