// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is done about a file that fails its checksum.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_core::{
    Buffer, Create, Error, ErrorKind, Key, Object, Open, Persistency, Result, Role, Semantics,
    TierIndex,
};

use super::Scrub;
use super::read::{Found, STEP_BYTES, WRONG_IDENTITY};
use super::record::is_same;
use crate::catalog::map::{GarbageRow, Write};
use crate::catalog::record::Place;
use crate::memory::entry::{Entry, Segment};
use crate::memory::holds::HELD;
use crate::memory::site::{Location, Site};
use crate::shared::drops::Drop as Superseded;
use crate::tiers::account::Class;

/// How an attempt to write a primary anew ended.
enum Mended {
    Done,
    /// It was written, moved or deleted meanwhile, or the scrub is to end.
    Changed,
}

impl Scrub<'_> {
    /// Looks closer at a segment of which a file looked bad, and mends what can be mended.
    pub(super) fn damage(&mut self, key: &Key, object_id: u64, number: u32) -> Result<()> {
        let Some((entry, segment)) = self.find(key, object_id, number)? else {
            self.report.skipped += 1;
            return Ok(());
        };
        let _ = self.shared.settle(&entry, &segment);
        let location = segment.location.load_full();
        let (Some(checksum), None) = (location.checksum, &location.settling) else {
            self.report.skipped += 1;
            return Ok(());
        };
        let mut good = None;
        let mut bad = Vec::new();
        for site in location.sites() {
            match self.file((object_id, number), &site.place, segment.length())? {
                Found::Whole(sum) if sum == checksum => good = good.or(Some(Arc::clone(site))),
                Found::Whole(_) => {
                    let tier = &self.shared.tier(site.place.tier).name;
                    let detail = format!("{} on {tier} fails its checksum", site.key);
                    bad.push((site, "damaged-data", detail));
                }
                Found::Bad(kind, detail) => bad.push((site, kind, detail)),
                Found::Offline => self.report.skipped += 1,
                Found::Stopped => return Ok(()),
            }
        }
        // As long as this is its location it has not been written to.
        if !is_same(&entry, &segment, &location) {
            self.report.skipped += 1;
            return Ok(());
        }
        for (site, kind, detail) in bad {
            let is_primary = Arc::ptr_eq(site, &location.primary);
            let mended = match &good {
                // It may be a file of another store, and what replaces it would delete it.
                _ if kind == WRONG_IDENTITY => Err("nothing is changed; see terrace fsck".into()),
                Some(_) if !self.can_write() => Err("nothing may be changed".into()),
                None => Err("no other file of it is right".into()),
                Some(good) if is_primary => self.mend(&entry, &segment, &location, good),
                Some(_) => self.drop_bad(&entry, &segment, site.place.tier),
            };
            match mended {
                Ok((Mended::Done, what)) => {
                    self.repaired(kind, key, format!("{detail}; {what}"));
                }
                Ok((Mended::Changed, _)) => self.report.skipped += 1,
                Err(reason) => self.problem(kind, key, format!("{detail}; {reason}")),
            }
        }
        if !entry.is_open() {
            self.shared.close_files(&entry);
        }
        Ok(())
    }

    /// Drops a copy. An object at level `shared` gets another one at once: a takeover would serve the bad one.
    fn drop_bad(
        &self,
        entry: &Arc<Entry>,
        segment: &Segment,
        tier: TierIndex,
    ) -> Result<(Mended, &'static str), String> {
        let dropped = self.shared.drop_bad_copy(entry, segment, tier);
        if !dropped.map_err(|error| error.chain())? {
            return Ok((Mended::Changed, ""));
        }
        if !self.shared.tier(tier).is_shared() || entry.persistency() < Persistency::Shared {
            return Ok((Mended::Done, "the copy was dropped"));
        }
        match self.shared.share(entry) {
            Ok(()) => Ok((Mended::Done, "the copy was made anew")),
            Err(error) => {
                Err(format!("the copy was dropped, and not made anew: {}", error.chain()))
            }
        }
    }

    fn mend(
        &mut self,
        entry: &Entry,
        segment: &Segment,
        location: &Arc<Location>,
        good: &Arc<Site>,
    ) -> Result<(Mended, &'static str), String> {
        if segment.holds.is_held() {
            return Err(format!("a copy is right, but {HELD}"));
        }
        let tier = location.primary.place.tier;
        let state = self.shared.tier(tier);
        // A file with copies takes what they do.
        let bytes = segment.amount();
        let take = || state.account.take(Class::Reserved, bytes, state.capacity_bytes());
        let taken = self.shared.take_with_garbage(tier, take)
            || self.shared.drop_copies_on(tier, bytes) && take();
        if !taken {
            let reason = "a copy is right, but the tier has no room for a new file";
            return Err(format!("{reason} need_bytes={bytes}"));
        }
        let result = self.mend_reserved(entry, segment, location, good);
        if !matches!(result, Ok(Mended::Done)) {
            state.account.free(Class::Reserved, bytes);
        }
        result
            .map(|mended| (mended, "it was written anew from a copy"))
            .map_err(|error| format!("a copy is right, but {}", error.chain()))
    }

    /// Writes a primary anew on its tier; room for it is reserved.
    fn mend_reserved(
        &mut self,
        entry: &Entry,
        segment: &Segment,
        location: &Arc<Location>,
        good: &Arc<Site>,
    ) -> Result<Mended> {
        let shared = self.shared;
        let (site, object) = self.make_file(entry, segment, location.primary.place.tier)?;
        let length = segment.length();
        // The room of holes is not reserved.
        let begun = if segment.is_sparse() { object.set_len(length) } else { Ok(()) };
        let written = begun.and_then(|()| {
            self.fill(&*object, good, location.primary.place.tier, segment, location.checksum)
        });
        let switched = match written {
            Ok(true) => self.put_in_place(entry, segment, location, &site),
            Ok(false) => Ok(Mended::Changed),
            Err(error) => Err(error),
        };
        drop(object);
        // One that was put in place may have been moved since. What was taken back is gone when that is
        // durable: until then the catalog may name it, and the next recovery deletes it.
        let is_over = !matches!(switched, Ok(Mended::Done));
        let is_free = || !shared.is_broken.load(Ordering::Acquire);
        if is_over && is_free() && shared.catalog.wait_all().is_ok() {
            // Its room is that of the reservation.
            let (object_id, segment) = (entry.object_id, segment.number);
            let row = GarbageRow { object_id, segment, place: site.place, bytes: 0 };
            shared.delete_unnamed(site, row);
        }
        switched
    }

    fn make_file(
        &self,
        entry: &Entry,
        segment: &Segment,
        tier: TierIndex,
    ) -> Result<(Arc<Site>, Box<dyn Object>)> {
        let file = self.shared.catalog.number()?;
        let place = Place { tier, file, generation: file, epoch: self.shared.epoch };
        let site = Site::new(place, entry.object_id, segment.number);
        let how = Open {
            create: Create::New,
            semantics: Semantics::at_level(Persistency::None),
            identity: self.identity(entry, segment, &place, Role::Partial),
            size_hint_bytes: Some(segment.length()),
            ..Open::default()
        };
        let object = self.shared.backend(&site).open(&site.key, &how)?;
        Ok((site, object))
    }

    fn identity(
        &self,
        entry: &Entry,
        segment: &Segment,
        place: &Place,
        role: Role,
    ) -> Option<Arc<terrace_core::Identity>> {
        let (number, start_bytes) = (segment.number, segment.start_bytes);
        self.shared.identity(entry.owner(), number, start_bytes, place, role)
    }

    /// Copies the right bytes, and looks whether the new file returns them; false where the scrub
    /// is to end.
    fn fill(
        &mut self,
        target: &dyn Object,
        good: &Arc<Site>,
        tier: TierIndex,
        segment: &Segment,
        checksum: Option<u32>,
    ) -> Result<bool> {
        let (length, is_sparse) = (segment.length(), segment.is_sparse());
        // One that is whole can be read only once it is there; its service compares checksums.
        let is_whole = self.shared.tier(tier).is_whole();
        let handle = good.open(self.shared.backend(good))?;
        let source = handle.as_ref().expect("it was just opened");
        let mut buffer = Buffer::zeroed(STEP_BYTES);
        let (mut at, mut copied, mut back) = (0, 0, 0);
        while at < length {
            let want = buffer.len().min((length - at) as usize);
            if !self.pace(want as u64) {
                return Ok(false);
            }
            let count = source.read_at(at, &mut [IoSliceMut::new(&mut buffer[..want])])?;
            if count == 0 {
                break;
            }
            copied = crc32c::crc32c_append(copied, &buffer[..count]);
            match is_sparse {
                true => write_data(target, at, &buffer[..count])?,
                false => target.write_at(at, &[IoSlice::new(&buffer[..count])])?,
            }
            let read = match is_whole {
                true => count,
                false => target.read_at(at, &mut [IoSliceMut::new(&mut buffer[..count])])?,
            };
            back = crc32c::crc32c_append(back, &buffer[..read]);
            at += count as u64;
        }
        if at != length || Some(copied) != checksum || copied != back {
            return Err(Error::new(ErrorKind::Corrupt, "write a file anew")
                .because("the bytes that were written fail the checksum")
                .with("copy", &good.key));
        }
        target.set_modified(source.stat()?.modified_ns)?;
        target.sync()?;
        Ok(true)
    }

    /// Makes a finished file the primary. No write happens meanwhile: the location has
    /// a checksum, and taking that back needs the lock.
    fn put_in_place(
        &self,
        entry: &Entry,
        segment: &Segment,
        location: &Arc<Location>,
        site: &Arc<Site>,
    ) -> Result<Mended> {
        let shared = self.shared;
        let _changes = crate::lock(&entry.changes);
        let is_over = segment.holds.is_held() || shared.is_closing.load(Ordering::Acquire);
        if is_over || !is_same(entry, segment, location) {
            return Ok(Mended::Changed);
        }
        if let Some(identity) = self.identity(entry, segment, &site.place, Role::Primary) {
            shared.backend(site).set_identity(&site.key, &identity)?;
        }
        shared.backend(site).sync()?;
        shared.failpoints.hit("scrub.mended")?;
        let next =
            shared.location(Arc::clone(site), location.copies.clone(), location.checksum, None);
        let record = entry.record_with(segment, &next, segment.allocated());
        let row = GarbageRow {
            object_id: entry.object_id,
            segment: segment.number,
            place: location.primary.place,
            bytes: segment.amount(),
        };
        let writes = [Write::Put(&entry.key, &record), Write::Garbage(row.clone())];
        if let Err(error) = shared.catalog.commit(&writes) {
            shared.take_back_changes(entry, &[&row], &error);
            return Err(error);
        }
        segment.location.publish(Arc::new(next));
        // The old file takes up what was reserved for the new one, until it is deleted.
        let account = &shared.tier(site.place.tier).account;
        account.turn(Class::Reserved, Class::Garbage, row.bytes);
        shared.drops.add(vec![Superseded { site: Arc::clone(&location.primary), row }]);
        // It is done whatever comes.
        let _ = shared.failpoints.hit("scrub.in-place");
        Ok(Mended::Done)
    }
}

/// Writes the blocks that are no zeros.
fn write_data(target: &dyn Object, at: u64, data: &[u8]) -> Result<()> {
    const BLOCK_BYTES: usize = 4096;
    let mut done = 0;
    for block in data.chunks(BLOCK_BYTES) {
        if block.iter().any(|byte| *byte != 0) {
            target.write_at(at + done, &[IoSlice::new(block)])?;
        }
        done += block.len() as u64;
    }
    Ok(())
}
