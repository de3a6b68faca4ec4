// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The life of an object in the catalog: open, create, delete.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_core::{
    Access, Create, Error, ErrorKind, Event, EventKind, Hint, Identity, Key, Layout, Object, Open,
    Persistency, Placement, Result, Role, SegmentView, Semantics, Ticket, TierIndex, TierSet,
};

use crate::catalog::map::{GarbageRow, Write};
use crate::catalog::record::{Owner, Place, Record, SegmentRecord};
use crate::io::object::StackObject;
use crate::memory::entries::{Claim, Found, Opened, load_claimed};
use crate::memory::entry::{Entry, Segment};
use crate::memory::site::{Pending, Site};
use crate::memory::usage::Counted;
use crate::migrate::settle::SINGLE_SYNCS_MAX;
use crate::shared::Shared;
use crate::shared::drops::Drop as Superseded;
use crate::shared::promises;
use crate::tiers::account::Class;
use crate::tiers::list::{TierState, cuts_objects};
use crate::watch::ring::{Change, Created, Took};

/// A new object before its record is committed.
pub(crate) struct Draft {
    pub(crate) record: Record,
    pub(crate) site: Arc<Site>,
    level: Persistency,
    /// The tier that the placer wanted, where that was full.
    spilled_from: Option<TierIndex>,
    pub(crate) counted: Counted,
    size_hint_bytes: Option<u64>,
}

impl Draft {
    /// Why its segment is not where the placer wanted it, where that is so.
    pub(crate) fn history(&self, shared: &Shared) -> Option<Vec<u8>> {
        let tier = self.site.place.tier;
        let spilled = |wanted| crate::migrate::history::spilled(shared, wanted, tier, self.level);
        self.spilled_from.map(spilled)
    }

    fn has_bytes(&self) -> bool {
        self.record.segments[0].length_bytes > 0
    }
}

/// What a new object takes over that is to replace another.
#[derive(Clone, Copy, Default)]
pub(crate) struct Drafted {
    /// The tier of the old one, where that is pinned.
    pub(crate) pinned_to: Option<TierIndex>,
}

/// An object that its key does not name yet.
struct Hidden<'a> {
    shared: &'a Shared,
    entry: Arc<Entry>,
    claim: Option<Claim<'a>>,
}

impl std::ops::Drop for Hidden<'_> {
    /// Where it was not shown.
    fn drop(&mut self) {
        let Some(claim) = self.claim.take() else { return };
        // What cannot be deleted is there, as much of it as was written.
        if self.shared.delete_claimed(&self.entry).is_err() && !self.entry.is_deleted() {
            claim.put_back(Arc::clone(&self.entry));
        }
    }
}

impl Shared {
    /// Opens an object as `how` says; it counts as open until [`Shared::close_entry`].
    pub(crate) fn open_entry(&self, key: &Key, how: &Open) -> Result<Opened> {
        if how.create != Create::Never || how.access == Access::Write {
            self.check_writable("open object")?;
        }
        let level = self.level(&how.semantics);
        let claim = match self.entries.open(key) {
            Found::Entry(entry) => return self.opened_existing(entry, how, level),
            Found::Vacant(claim) => claim,
        };
        // The claim keeps everyone else waiting for this key, so two creates cannot both win.
        if let Some(record) = self.catalog.get(key)? {
            let entry =
                load_claimed(&self.entries, claim, || Ok(Some(self.entry(key.clone(), &record))))?;
            let entry = entry.expect("a record was found");
            return self.opened_existing(entry, how, level);
        }
        if how.create == Create::Never {
            return Err(Error::new(ErrorKind::NotFound, "open object").with("key", key));
        }
        let draft = self.draft(key, how, level, None)?;
        if let Err(error) = self.commit_drafts(&[(key, &draft)]) {
            self.discard(key, &draft);
            return Err(error.with("key", key));
        }
        Ok(self.publish(claim, draft))
    }

    /// An object for looking at it or moving it: it does not count as open.
    pub(crate) fn borrow_entry(&self, key: &Key) -> Result<Option<Arc<Entry>>> {
        self.entries.borrow(key, || {
            let record = self.catalog.get(key)?;
            Ok(record.map(|record| self.entry(key.clone(), &record)))
        })
    }

    /// The level that operations under these semantics get: what was asked for, or the store's if
    /// that is stronger.
    pub(crate) fn level(&self, semantics: &Semantics) -> Persistency {
        semantics.persistency.max(self.settings.persistency)
    }

    fn opened_existing(&self, entry: Arc<Entry>, how: &Open, level: Persistency) -> Result<Opened> {
        let opened = Opened(entry);
        let result = self.check_opened(&opened, how, level);
        match result {
            Ok(()) => {
                self.post_handles(&opened, EventKind::Open);
                Ok(opened)
            }
            Err(error) => {
                self.uncount(&opened);
                Err(error.with("key", &opened.key))
            }
        }
    }

    fn check_opened(&self, entry: &Arc<Entry>, how: &Open, level: Persistency) -> Result<()> {
        if how.create == Create::New {
            return Err(Error::new(ErrorKind::Exists, "create object"));
        }
        if how.access == Access::Write && level > entry.kept() {
            self.raise(entry, level)?;
        }
        Ok(())
    }

    /// Raises what an existing object is promised and makes that good; where it fails, no more is
    /// promised than before.
    fn raise(&self, entry: &Arc<Entry>, level: Persistency) -> Result<()> {
        // Held over the I/O: a caller that asks for as much returns once it is true.
        let _raising = crate::lock(&entry.raising);
        if level <= entry.kept() {
            return Ok(());
        }
        let result = self.promise(entry, level).and_then(|is_there| match level {
            // What was written before is part of what the object holds from now on.
            Persistency::Storage | Persistency::Shared if is_there => self.sync_entry(entry),
            _ => Ok(()),
        });
        match result {
            Ok(()) => entry.keep(level),
            Err(_) => self.lower(entry),
        }
        result
    }

    /// Promises an object no more than what is kept already.
    fn lower(&self, entry: &Entry) {
        let _changes = crate::lock(&entry.changes);
        if entry.promise_only_kept() && !entry.is_deleted() {
            // A record that says more than what was kept would be believed by the next opening.
            let _ = self.catalog.commit(&[Write::Put(&entry.key, &entry.record_now())]);
        }
    }

    /// Raises what an existing object is promised, where its tiers can keep it. False where it was
    /// deleted meanwhile: then it is as if it had been opened before.
    fn promise(&self, entry: &Arc<Entry>, level: Persistency) -> Result<bool> {
        let _changes = crate::lock(&entry.changes);
        if entry.is_deleted() {
            return Ok(false);
        }
        if let Some(weak) = self.weak_tier(entry, level) {
            return Err(Error::new(ErrorKind::Unsupported, "open object")
                .because("the tier it is on cannot keep what is asked for; migrate it first")
                .with("persistency", level)
                .with("tier", &weak.name));
        }
        if entry.promise(level) {
            self.catalog.commit(&[Write::Put(&entry.key, &entry.record_now())])?;
        }
        Ok(true)
    }

    /// A tier that has a primary of the object and cannot keep such a promise; the caller holds `changes`.
    pub(crate) fn weak_tier(&self, entry: &Entry, level: Persistency) -> Option<&TierState> {
        let segments = entry.segments.load();
        let mut tiers = segments
            .iter()
            .map(|segment| self.tier(segment.location.load_full().primary.place.tier));
        tiers.find(|tier| !tier.keeps(level))
    }

    /// Counts a handle as closed.
    pub(crate) fn close_entry(&self, entry: &Opened) {
        self.post_handles(entry, EventKind::Close);
        self.uncount(entry);
    }

    fn uncount(&self, entry: &Opened) {
        self.uncount_entry(entry);
    }

    /// Takes back a count of [`crate::memory::entries::Entries::open`] whose handle was not returned.
    pub(crate) fn uncount_entry(&self, entry: &Arc<Entry>) {
        if entry.opens.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.last_close(entry);
        }
    }

    fn post_handles(&self, entry: &Entry, kind: EventKind) {
        if self.is_bare {
            return;
        }
        let now_ns = self.clock.now_ns();
        for segment in entry.segments.load().iter() {
            let tier = segment.location.load_full().primary.place.tier;
            self.post(kind, segment, tier, now_ns, (0, segment.length()), Took::default());
        }
    }

    /// An object in memory from its record.
    pub(crate) fn entry(&self, key: Key, record: &Record) -> Entry {
        let mut segments = Vec::with_capacity(record.segments.len());
        for (index, segment) in record.segments.iter().enumerate() {
            let limit = match record.segments.get(index + 1) {
                Some(next) => next.start_bytes,
                None => record.layout.next_cut(segment.start_bytes).unwrap_or(u64::MAX),
            };
            let cut = record.layout.next_cut(segment.start_bytes).unwrap_or(u64::MAX);
            let limit = limit.min(cut) - segment.start_bytes;
            segments.push(Arc::new(self.segment(record.object_id, segment, limit)));
        }
        let usage = self.usages.of(key.namespace());
        Entry::new(key, record, segments, usage)
    }

    /// A segment in memory from its record.
    pub(crate) fn segment(&self, object_id: u64, record: &SegmentRecord, limit: u64) -> Segment {
        let site = |place: &Place| Site::new(*place, object_id, record.number);
        let copies: Vec<_> = record.copies.iter().map(site).collect();
        let settling = record.settling.map(|settling| Pending {
            source: copies
                .iter()
                .find(|copy| copy.place.file == settling.source.file)
                .cloned()
                .unwrap_or_else(|| site(&settling.source)),
            bytes: record.length_bytes,
            boot: settling.boot,
        });
        let location = self.location(site(&record.primary), copies, record.checksum, settling);
        Segment::new(record, self.slot(object_id, record.number), limit, location)
    }

    /// A segment whose file was just made.
    pub(crate) fn new_segment(
        &self,
        object_id: u64,
        record: &SegmentRecord,
        limit: u64,
        site: Arc<Site>,
    ) -> Segment {
        let location = self.location(site, Vec::new(), None, None);
        Segment::new(record, self.slot(object_id, record.number), limit, location)
    }

    /// Makes the file of a new object on the tier that the placer chooses, or the next with room;
    /// `drafted` where its key is not to name it yet.
    pub(crate) fn draft(
        &self,
        key: &Key,
        how: &Open,
        level: Persistency,
        drafted: Option<Drafted>,
    ) -> Result<Draft> {
        self.check_room("create object")?;
        let counted = Counted::new(self.usages.of(key.namespace()), key)?;
        let placement = Placement {
            key,
            hint: how.hint,
            size_hint_bytes: how.size_hint_bytes,
            segment: 0,
            start_bytes: 0,
        };
        let mut placed = self.place(&placement);
        let (is_draft, replaced) = (drafted.is_some(), drafted.unwrap_or_default());
        placed.tier = replaced.pinned_to.unwrap_or(placed.tier);
        let object_id = self.catalog.number()?;
        let wished = how.segment_bytes.map(|segment_bytes| Layout::Fixed { segment_bytes });
        let layout = self.sane_layout(wished.unwrap_or(placed.layout));
        let owner = Owner { key, object_id, label: how.label.as_ref(), is_draft };
        let site = self.new_file(owner, 0, 0, placed.tier, level, how.size_hint_bytes)?;
        self.failpoints.hit("create.file")?;
        let segment = SegmentRecord {
            number: 0,
            start_bytes: 0,
            length_bytes: 0,
            allocated_bytes: None,
            checksum: None,
            primary: site.place,
            copies: Vec::new(),
            settling: None,
            synced: Vec::new(),
            is_added: false,
        };
        let record = Record {
            object_id,
            is_pinned: replaced.pinned_to.is_some(),
            persistency: level,
            hint: how.hint,
            created_ns: self.clock.wall_ns(),
            layout,
            segments: vec![segment],
            identity: how.identity.clone(),
            label: how.label.clone(),
            is_draft,
        };
        let spilled_from = (site.place.tier != placed.tier).then_some(placed.tier);
        let size_hint_bytes = how.size_hint_bytes;
        Ok(Draft { record, site, level, spilled_from, counted, size_hint_bytes })
    }

    /// Commits the records of new objects together, as durably as the strongest of them asks.
    pub(crate) fn commit_drafts(&self, drafts: &[(&Key, &Draft)]) -> Result<()> {
        let mut writes: Vec<_> =
            drafts.iter().map(|(key, draft)| Write::Put(key, &draft.record)).collect();
        for (_, draft) in drafts {
            if let Some(history) = draft.history(self) {
                writes.push(Write::History(draft.record.object_id, 0, Some(history)));
            }
        }
        let durable = drafts.iter().filter(|(_, draft)| draft.level >= Persistency::Storage);
        let mut tiers: Vec<_> = durable.map(|(_, draft)| draft.site.place.tier).collect();
        tiers.sort();
        tiers.dedup();
        // Files first: a record that is durable never names one that is not.
        for tier in &tiers {
            let on_tier = |(_, draft): &&(&Key, &Draft)| draft.site.place.tier == *tier;
            let filled = || drafts.iter().filter(on_tier).filter(|(_, draft)| draft.has_bytes());
            let backend = &self.tier(*tier).backend;
            if filled().count() > SINGLE_SYNCS_MAX {
                backend.sync_all()?;
                continue;
            }
            for (_, draft) in filled() {
                draft.site.open_once(&**backend)?.sync()?;
            }
            backend.sync()?;
        }
        self.failpoints.hit("create.files")?;
        let ticket = self.catalog.commit(&writes)?;
        self.failpoints.hit("create.catalog")?;
        if tiers.is_empty() {
            return Ok(());
        }
        let level = drafts.iter().map(|(_, draft)| draft.level).max().unwrap_or(Persistency::None);
        self.wait_for(ticket, level)?;
        self.failpoints.hit("create.durable")
    }

    /// Removes what a create that failed has left.
    pub(crate) fn discard(&self, key: &Key, draft: &Draft) {
        let bytes = draft.record.segments[0].length_bytes;
        let row = GarbageRow {
            object_id: draft.record.object_id,
            segment: 0,
            place: draft.site.place,
            bytes,
        };
        self.tier(draft.site.place.tier).account.turn(Class::Used, Class::Garbage, bytes);
        let writes = [Write::Remove(key, &draft.record), Write::Garbage(row.clone())];
        let is_gone = self.catalog.commit(&writes).is_ok();
        self.tier(row.place.tier).segments.fetch_sub(1, Ordering::SeqCst);
        // Else the catalog may name the file, and the next opening sees to it.
        if is_gone {
            self.drops.add(vec![Superseded { site: Arc::clone(&draft.site), row }]);
        }
    }

    /// Shows a committed object to everyone.
    pub(crate) fn publish(&self, claim: Claim<'_>, draft: Draft) -> Opened {
        let (entry, created) = self.appear(claim.key(), draft);
        self.show(claim, &entry, created);
        Opened(entry)
    }

    /// Writes the bytes of a committed object, then shows it. Where they cannot be written, or that
    /// panics, the object is deleted again, before it was visible.
    pub(crate) fn publish_whole(
        self: &Arc<Self>,
        claim: Claim<'_>,
        draft: Draft,
        level: Persistency,
        data: &[u8],
    ) -> Result<()> {
        let (entry, created) = self.appear(claim.key(), draft);
        let opened = Opened(Arc::clone(&entry));
        // Closed behind everything else.
        let object = StackObject::new(Arc::clone(self), opened, Access::Write, level);
        let mut hidden = Hidden { shared: self, entry, claim: Some(claim) };
        object.write_at(0, &[IoSlice::new(data)])?;
        let claim = hidden.claim.take().expect("it is still held");
        self.show(claim, &hidden.entry, created);
        Ok(())
    }

    fn show(&self, claim: Claim<'_>, entry: &Arc<Entry>, created: Option<(TierIndex, u64)>) {
        self.entries.fulfil(claim, Arc::clone(entry));
        self.post_first_open(entry, created);
    }

    /// Posts that a new object is open, behind [`Shared::appear`].
    pub(crate) fn post_first_open(&self, entry: &Entry, created: Option<(TierIndex, u64)>) {
        if let Some((tier, now_ns)) = created {
            let segment = &entry.segments.load()[0];
            let extent = (0, segment.length());
            self.post(EventKind::Open, segment, tier, now_ns, extent, Took::default());
        }
    }

    /// A committed object in memory, open once, which its key does not name yet.
    pub(crate) fn appear(&self, key: &Key, draft: Draft) -> (Arc<Entry>, Option<(TierIndex, u64)>) {
        let Draft { record, site, counted, size_hint_bytes, .. } = draft;
        let limit = record.layout.next_cut(0).unwrap_or(u64::MAX);
        let segment =
            Arc::new(self.new_segment(record.object_id, &record.segments[0], limit, site));
        let segments = vec![Arc::clone(&segment)];
        let entry = Entry::new(key.clone(), &record, segments, counted.keep());
        entry.opens.fetch_add(1, Ordering::AcqRel);
        let entry = Arc::new(entry);
        let created = self.post_created(&entry, &segment, size_hint_bytes);
        (entry, created)
    }

    /// Reports a new segment to the policy, if there is one; where that is, and when it was reported.
    pub(crate) fn post_created(
        &self,
        entry: &Entry,
        segment: &Segment,
        size_hint_bytes: Option<u64>,
    ) -> Option<(TierIndex, u64)> {
        if self.is_bare {
            return None;
        }
        let now_ns = self.clock.now_ns();
        let view = self.view_of(entry, segment, now_ns);
        let tier = view.tier;
        let event = Event {
            tier,
            ..Event::new(EventKind::Create, segment.slot, segment.incarnation, now_ns)
        };
        let created = Some(Box::new(Created { object_id: entry.object_id, view, size_hint_bytes }));
        self.mailbox.post_change(Change { posted: event.into(), created });
        Some((tier, now_ns))
    }

    /// A segment as policies see it.
    pub(crate) fn view_of(&self, entry: &Entry, segment: &Segment, created_ns: u64) -> SegmentView {
        let location = segment.location.load_full();
        let copies = location.copies.iter().map(|copy| copy.place.tier);
        SegmentView {
            key: entry.key.clone(),
            segment: segment.number,
            incarnation: segment.incarnation,
            is_live: true,
            start_bytes: segment.start_bytes,
            size_bytes: segment.length(),
            tier: location.primary.place.tier,
            copies: copies.fold(TierSet::default(), TierSet::with),
            opens: 0,
            is_moving: false,
            is_pinned: entry.is_pinned.load(Ordering::Acquire),
            persistency: entry.persistency(),
            hint: entry.hint,
            created_ns,
            last_read_ns: 0,
            last_write_ns: 0,
            last_close_ns: 0,
        }
    }

    /// A layout that can be carried out, whatever a policy asked for.
    fn sane_layout(&self, layout: Layout) -> Layout {
        let layout = self.legal_layout(layout);
        if self.is_bare {
            return layout;
        }
        // Every segment can go to every tier.
        let cutting = self.tiers.present().filter(|tier| cuts_objects(&tier.capability));
        match cutting.map(|tier| tier.capability.object_bytes_max).min() {
            Some(most) => layout.cut_to(most),
            None => layout,
        }
    }

    fn legal_layout(&self, layout: Layout) -> Layout {
        // Below this, the cost of a file per segment outweighs any placement.
        const SEGMENT_BYTES_MIN: u64 = 4096;
        match layout {
            Layout::Fixed { segment_bytes } if segment_bytes < SEGMENT_BYTES_MIN => Layout::One,
            Layout::Steps { starts_bytes } => {
                let ascending = starts_bytes.windows(2).all(|pair| pair[0] < pair[1]);
                let positive = starts_bytes.first().is_some_and(|start| *start > 0);
                if ascending && positive { Layout::Steps { starts_bytes } } else { Layout::One }
            }
            other => {
                if self.is_bare {
                    Layout::One
                } else {
                    other
                }
            }
        }
    }

    /// Makes a file for a segment on `wanted` or the next tier with room: first below the critical
    /// fill, then below capacity.
    ///
    /// # Errors
    ///
    /// `Unsupported` where no tier can keep `level`; `NoSpace`; what the tier says.
    pub(crate) fn new_file(
        &self,
        owner: Owner<'_>,
        segment: u32,
        start_bytes: u64,
        wanted: TierIndex,
        level: Persistency,
        size_hint_bytes: Option<u64>,
    ) -> Result<Arc<Site>> {
        let count = self.tiers.len() as u8;
        let able = (wanted.0..count)
            .chain((0..wanted.0).rev())
            .map(TierIndex)
            .filter(|tier| self.tier(*tier).keeps(level) && self.tier(*tier).takes_writes());
        if able.clone().next().is_none() {
            if self.tiers.present().any(|tier| tier.keeps(level) && !tier.is_whole()) {
                return Err(Error::new(ErrorKind::NoSpace, "create object")
                    .because("every tier that could keep it is drained or offline")
                    .with("persistency", level));
            }
            return Err(Error::new(ErrorKind::Unsupported, "create object")
                .because("no tier can keep what is asked for")
                .with("persistency", level));
        }
        let need = size_hint_bytes.unwrap_or(1).max(1);
        let below = |tier: &TierIndex, limit: u64| {
            self.tier(*tier).account.taken().checked_add(need).is_some_and(|sum| sum <= limit)
        };
        // What was deleted a moment ago is not to send it elsewhere.
        let first = self.tier(wanted);
        let critical = first.critical_bytes();
        let garbage = first.account.bytes(Class::Garbage);
        if first.takes_writes()
            && !below(&wanted, critical)
            && below(&wanted, critical.saturating_add(garbage))
        {
            self.free_garbage(wanted);
        }
        let roomy = able.clone().filter(|tier| below(tier, self.tier(*tier).critical_bytes()));
        let tight = able.clone().filter(|tier| below(tier, self.tier(*tier).capacity_bytes()));
        // Where not even the hint fits anywhere, a smaller object may still.
        let any = able
            .clone()
            .filter(|tier| self.tier(*tier).account.taken() < self.tier(*tier).capacity_bytes());
        let mut refused = None;
        let mut is_last = false;
        loop {
            for tier in roomy.clone().chain(tight.clone()).chain(any.clone()) {
                // A segment's first file bears the object's number, which nothing else has.
                let file = if segment == 0 { owner.object_id } else { self.catalog.number()? };
                match self.new_file_on(owner, segment, start_bytes, tier, file) {
                    Err(error) if error.kind() == ErrorKind::NoSpace => refused = Some(error),
                    other => return other,
                }
            }
            if is_last {
                break;
            }
            able.clone().for_each(|tier| self.free_garbage(tier));
            is_last = true;
        }
        Err(refused.unwrap_or_else(|| {
            Error::new(ErrorKind::NoSpace, "create object").with("key", owner.key)
        }))
    }

    /// Makes a segment's file on one tier and counts the segment there; `file` is a number that no
    /// other file has.
    ///
    /// # Errors
    ///
    /// `NoSpace` where the tier takes no new data; what the tier says. Then nothing is counted.
    pub(crate) fn new_file_on(
        &self,
        owner: Owner<'_>,
        segment: u32,
        start_bytes: u64,
        tier: TierIndex,
        file: u64,
    ) -> Result<Arc<Site>> {
        let place = Place { tier, file, generation: file, epoch: self.epoch };
        let role = if owner.is_draft { Role::Partial } else { Role::Primary };
        let how = Open {
            create: Create::New,
            semantics: Semantics::at_level(Persistency::None),
            hint: Hint::default(),
            identity: self.identity(owner, segment, start_bytes, &place, role),
            ..Open::default()
        };
        let state = self.tier(tier);
        // Counted first: a tier that is being removed is closed first, and then counted.
        state.segments.fetch_add(1, Ordering::SeqCst);
        let made = if state.takes_data() {
            Site::made(place, owner.object_id, segment, |file| state.backend.open(file, &how))
        } else {
            Err(Error::new(ErrorKind::NoSpace, "create object")
                .because("the tier takes nothing new")
                .with("tier", &state.name))
        };
        if made.is_err() {
            state.segments.fetch_sub(1, Ordering::SeqCst);
        }
        made
    }

    /// The identity of a stored file, where its tier keeps such things.
    pub(crate) fn identity(
        &self,
        owner: Owner<'_>,
        segment: u32,
        start_bytes: u64,
        place: &Place,
        role: Role,
    ) -> Option<Arc<Identity>> {
        self.tier(place.tier).capability.identity.then(|| {
            Arc::new(Identity {
                store_id: self.store_id,
                object_id: owner.object_id,
                segment,
                start_bytes,
                generation: place.generation,
                epoch: place.epoch,
                role,
                key: owner.key.clone(),
                label: owner.label.cloned(),
            })
        })
    }

    /// Deletes an object: its name is free at once, its files go with their last reader.
    pub(crate) fn delete_object(&self, key: &Key) -> Result<()> {
        self.check_writable("delete object")?;
        let (entry, claim) = self.entries.claim(key);
        let entry = match entry {
            Some(entry) => entry,
            None => match self.catalog.get(key)? {
                Some(record) => Arc::new(self.entry(key.clone(), &record)),
                None => {
                    return Err(Error::new(ErrorKind::NotFound, "delete object").with("key", key));
                }
            },
        };
        match self.delete_claimed(&entry) {
            Ok(()) => Ok(()),
            Err(error) => {
                // It is gone where only that could not be made durable.
                if !entry.is_deleted() {
                    claim.put_back(entry);
                }
                Err(error.with("key", key))
            }
        }
    }

    /// Deletes an object whose key is claimed. One that is [deleted](Entry::is_deleted) after an error
    /// is gone, though a crash may bring it back.
    pub(crate) fn delete_claimed(&self, entry: &Arc<Entry>) -> Result<()> {
        let ticket = self.supersede(entry, Vec::new(), "delete.catalog")?;
        self.wait_for(ticket, entry.persistency())
    }

    /// Deletes an object whose key is claimed, and commits with that what replaces it.
    pub(crate) fn supersede(
        &self,
        entry: &Arc<Entry>,
        replacement: Vec<Write<'_>>,
        failpoint: &'static str,
    ) -> Result<Ticket> {
        let changes = crate::lock(&entry.changes);
        let segments = entry.segments.load_full();
        for segment in segments.iter() {
            // The accounts count what is there; a file that cannot tell is deleted all the same.
            let _ = self.measure(entry, segment);
        }
        let mut superseded = Vec::new();
        let (mut held, mut amounts) = (Vec::new(), Vec::new());
        for segment in segments.iter() {
            // Held until the end: no room is taken for what is being deleted.
            let mut accounted = crate::lock(&segment.accounted);
            self.look(entry, segment, &mut accounted);
            // Read once: a writer that is still inside may make it longer.
            let amount = segment.amount();
            // As many bytes become garbage as its row says.
            self.account_amount(entry, segment, amount, &mut accounted);
            held.push(accounted);
            amounts.push(amount);
            superseded.extend(self.superseded_with(entry, segment, amount));
        }
        let record = entry.record_now();
        let mut writes = vec![Write::Remove(&entry.key, &record)];
        writes.extend(superseded.iter().map(|drop| Write::Garbage(drop.row.clone())));
        writes.extend(promises::write_gone(entry));
        writes.extend(replacement);
        let ticket = self.catalog.commit(&writes).inspect_err(|error| {
            // The rows of a draft stay, and the next opening sees to its files.
            if !entry.is_draft() {
                let rows: Vec<_> = superseded.iter().map(|drop| &drop.row).collect();
                self.take_back_changes(entry, &rows, error);
            }
        })?;
        self.failpoints.hit(failpoint)?;
        entry.mark_deleted();
        self.forget_unflushed(entry);
        self.forget_promises(entry);
        for ((segment, accounted), amount) in segments.iter().zip(&mut held).zip(amounts) {
            self.forget(entry, segment, accounted, amount);
        }
        entry.usage.remove_object();
        drop(held);
        drop(changes);
        for segment in segments.iter() {
            self.post_change(EventKind::Delete, segment, TierIndex(0));
            if !self.is_bare {
                self.slots.release(entry.object_id, segment.number);
            }
        }
        self.mover.cancel_object(self, entry.object_id);
        if !entry.is_open() {
            self.close_files(entry);
        }
        self.drops.add(superseded);
        self.release(entry);
        Ok(ticket)
    }

    /// All files of a segment as garbage, each of which takes `amount`.
    pub(crate) fn superseded_with(
        &self,
        entry: &Entry,
        segment: &Segment,
        amount: u64,
    ) -> Vec<Superseded> {
        let location = segment.location.load_full();
        let row = |site: &Arc<Site>, bytes| Superseded {
            site: Arc::clone(site),
            row: GarbageRow {
                object_id: entry.object_id,
                segment: segment.number,
                place: site.place,
                bytes,
            },
        };
        let mut all: Vec<_> = location.sites().map(|site| row(site, amount)).collect();
        if let Some(pending) = location.settling.as_ref().filter(|_| !location.keeps_source()) {
            all.push(row(&pending.source, pending.bytes));
        }
        all
    }

    /// Accounts a segment's files as garbage. A settling source is garbage already.
    pub(crate) fn forget(
        &self,
        entry: &Entry,
        segment: &Segment,
        accounted: &mut crate::memory::entry::Accounted,
        amount: u64,
    ) {
        let location = segment.location.load_full();
        let account = &self.tier(location.primary.place.tier).account;
        // What was written into reserved room since the last close is on the medium too.
        let from_used = accounted.used_bytes.min(amount);
        let from_reserved = accounted.reserved_bytes.min(amount - from_used);
        account.turn(Class::Used, Class::Garbage, from_used);
        account.turn(Class::Reserved, Class::Garbage, from_reserved);
        account.free(Class::Used, accounted.used_bytes - from_used);
        account.free(Class::Reserved, accounted.reserved_bytes - from_reserved);
        entry.usage.resize(accounted.total(), 0);
        *accounted = crate::memory::entry::Accounted::default();
        segment.room_bytes.store(0, Ordering::Release);
        self.tier(location.primary.place.tier).segments.fetch_sub(1, Ordering::Relaxed);
        for copy in &location.copies {
            self.tier(copy.place.tier).account.turn(Class::Copy, Class::Garbage, amount);
        }
    }
}
