// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated disk as a backend.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use terrace_core::{
    Access, Backend, BatchOrdering, Capability, Create, Cursor, End, Error, ErrorKind, FileLease,
    HeldGrowth, Identity, Key, Object, ObjectFile, Op, Open, Page, Persistency, ReadSummary,
    Request, Result, Semantics, Space, Stat, Superblock, TierBackend, execute_each,
    execute_strictly,
};

use super::file::SimFile;
use super::tier::{Entry, FileId, SimTier, TierState};
use super::{Operation, SimWorld, State};

/// One process's view of a simulated disk.
pub(super) struct SimBackend {
    place: Place,
    target: String,
    capability: Capability,
}

/// A tier in one life of the process.
#[derive(Clone)]
struct Place {
    world: Arc<SimWorld>,
    tier: usize,
    epoch: u64,
}

struct SimObject {
    place: Place,
    key: Key,
    file: FileId,
    access: Access,
    /// Everything acknowledged must survive a loss of power.
    is_durable: bool,
    has_sync_failed: AtomicBool,
}

impl SimTier {
    /// The disk as the present process sees it; fails with `Io` for ever after the next crash.
    pub fn open(&self) -> Arc<dyn Backend> {
        let state = self.world.lock();
        let tier = &state.tiers[self.tier];
        let (target, persistency) = (format!("sim:{}", tier.name), tier.persistency);
        let lends_files = tier.lends_files;
        let backend = SimBackend::new(&self.world, self.tier, state.epoch, target, persistency);
        Arc::new(backend.lending(lends_files))
    }
}

impl SimBackend {
    pub(super) fn new(
        world: &Arc<SimWorld>,
        tier: usize,
        epoch: u64,
        target: String,
        persistency: Persistency,
    ) -> Self {
        let capability = Capability {
            persistency,
            sparse: true,
            ordered_listing: true,
            identity: true,
            ..Capability::LEAST
        };
        Self { place: Place { world: Arc::clone(world), tier, epoch }, target, capability }
    }

    /// The same with or without leases.
    pub(super) fn lending(mut self, leases: bool) -> Self {
        self.capability.leases = leases;
        self
    }

    fn not_found(&self, operation: &'static str, key: &Key) -> Error {
        Error::new(ErrorKind::NotFound, operation).with("key", key).with("target", &self.target)
    }
}

impl Backend for SimBackend {
    fn target(&self) -> &str {
        &self.target
    }

    fn capability(&self) -> Capability {
        self.capability
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        self.capability
            .check_open("open an object", how)
            .map_err(|error| error.with("key", key).with("target", &self.target))?;
        let mut state = self.place.enter(Operation::Open)?;
        let now_ns = state.wall_ns();
        let tier = &mut state.tiers[self.place.tier];
        let is_durable = how.semantics.persistency >= Persistency::Storage;
        let file = match (tier.entries.get(key), how.create) {
            (Some(_), Create::New) => {
                return Err(Error::new(ErrorKind::Exists, "create an object")
                    .with("key", key)
                    .with("target", &self.target));
            }
            (Some(entry), _) => entry.file,
            (None, Create::Never) => return Err(self.not_found("open an object", key)),
            (None, Create::IfMissing | Create::New) => {
                let file = tier.create(key, how.identity.as_deref().cloned(), now_ns);
                if is_durable {
                    tier.sync_names();
                }
                file
            }
        };
        Ok(Box::new(SimObject {
            place: self.place.clone(),
            key: key.clone(),
            file,
            access: how.access,
            is_durable,
            has_sync_failed: AtomicBool::new(false),
        }))
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        let state = self.place.enter(Operation::Stat)?;
        let tier = &state.tiers[self.place.tier];
        let entry = tier.entries.get(key).ok_or_else(|| self.not_found("stat an object", key))?;
        tier.file(key, entry.file).map(stat)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        let mut state = self.place.enter(Operation::Delete)?;
        let tier = &mut state.tiers[self.place.tier];
        if !tier.entries.contains_key(key) {
            return Err(self.not_found("delete an object", key));
        }
        tier.set_entry(key, None);
        Ok(())
    }

    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        let after = match cursor.0.split_first() {
            None => None,
            Some((&CURSOR_TAG, name)) => Some(std::str::from_utf8(name).map_err(bad_cursor)?),
            Some(_) => return Err(bad_cursor("the tag is wrong")),
        };
        let state = self.place.enter(Operation::List)?;
        let tier = &state.tiers[self.place.tier];
        // A walk over all names: tests have few, and it is plainly right.
        let mut names = tier.entries.keys().filter(|key| {
            let name = key.name();
            key.namespace() == namespace
                && name.starts_with(prefix)
                && after.is_none_or(|after| name > after)
        });
        let keys: Vec<Key> = names.by_ref().take(max).cloned().collect();
        let next = match (names.next(), keys.last()) {
            (None, _) => None,
            (Some(_), None) => Some(cursor.clone()),
            (Some(_), Some(last)) => Some(Cursor([&[CURSOR_TAG], last.name().as_bytes()].concat())),
        };
        Ok(Page { keys, next })
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        let state = self.place.enter(Operation::List)?;
        let keys = state.tiers[self.place.tier].entries.keys();
        let namespaces: BTreeSet<&str> = keys.map(Key::namespace).collect();
        Ok(namespaces.into_iter().map(String::from).collect())
    }

    fn space(&self) -> Result<Space> {
        Ok(self.place.enter(Operation::Stat)?.tiers[self.place.tier].space())
    }

    fn execute(&self, operations: &mut [Op<'_>], semantics: &Semantics) {
        if semantics.ordering == BatchOrdering::Strict {
            return execute_strictly(self, operations, semantics);
        }
        execute_each(self, operations, semantics);
        if semantics.persistency < Persistency::Storage {
            return;
        }
        // Everything but a deletion was made durable by its own handle.
        let deleted = operations.iter_mut().filter(|operation| {
            matches!(operation.request, Request::Delete { .. })
                && matches!(operation.outcome, Some(Ok(_)))
        });
        for operation in deleted {
            if let Err(error) = self.sync() {
                operation.outcome = Some(Err(error));
            }
        }
    }

    fn sync(&self) -> Result<()> {
        self.place.enter(Operation::SyncNames)?.tiers[self.place.tier].sync_names();
        Ok(())
    }

    fn sync_all(&self) -> Result<()> {
        drop(self.place.enter(Operation::SyncNames)?);
        let mut state = self.place.enter(Operation::Sync)?;
        let tier = &mut state.tiers[self.place.tier];
        tier.sync_names();
        tier.sync_files();
        Ok(())
    }

    fn tier(&self) -> Option<&dyn TierBackend> {
        Some(self)
    }
}

impl TierBackend for SimBackend {
    fn identity(&self, key: &Key) -> Result<Option<Identity>> {
        let state = self.place.enter(Operation::Identity)?;
        match state.tiers[self.place.tier].entries.get(key) {
            Some(entry) => Ok(entry.identity.clone()),
            None => Err(self.not_found("read an identity", key)),
        }
    }

    fn set_identity(&self, key: &Key, identity: &Identity) -> Result<()> {
        let mut state = self.place.enter(Operation::Identity)?;
        let tier = &mut state.tiers[self.place.tier];
        let entry = tier.entries.get(key).ok_or_else(|| self.not_found("set an identity", key))?;
        let entry = Entry { file: entry.file, identity: Some(identity.clone()) };
        tier.set_entry(key, Some(entry));
        Ok(())
    }

    fn superblock(&self) -> Result<Option<Superblock>> {
        let state = self.place.enter(Operation::Superblock)?;
        Ok(state.tiers[self.place.tier].superblock.clone())
    }

    fn set_superblock(&self, superblock: &Superblock) -> Result<()> {
        let mut state = self.place.enter(Operation::Superblock)?;
        state.tiers[self.place.tier].superblock = Some(superblock.clone());
        Ok(())
    }
}

/// First byte of every cursor.
const CURSOR_TAG: u8 = b'>';

fn bad_cursor(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::invalid("list objects", "the cursor was not made by this backend").caused_by(source)
}

fn stat(file: &SimFile) -> Stat {
    Stat {
        size_bytes: file.length_bytes(),
        allocated_bytes: file.allocated_bytes(),
        created_ns: file.created_ns,
        modified_ns: file.modified_ns,
        is_labelled: false,
        is_held: false,
    }
}

impl Place {
    /// Takes the world's lock for an operation, unless it is to fail.
    fn enter(&self, operation: Operation) -> Result<MutexGuard<'_, State>> {
        let mut state = self.world.enter_tier(self.tier, self.epoch)?;
        state.tiers[self.tier].faults.check(operation)?;
        Ok(state)
    }
}

impl SimObject {
    fn check_access(&self) -> Result<()> {
        self.access.check_change(&self.key)
    }

    /// Runs `change` with the range that it fills, then notes the time and keeps the promise of
    /// the handle's semantics.
    fn change(
        &self,
        operation: Operation,
        filled: Range<u64>,
        change: impl FnOnce(&mut SimFile),
    ) -> Result<()> {
        self.check_access()?;
        let mut state = self.place.enter(operation)?;
        let now_ns = state.wall_ns();
        self.change_entered(&mut state.tiers[self.place.tier], now_ns, filled, change)
    }

    fn change_entered(
        &self,
        tier: &mut TierState,
        now_ns: u64,
        filled: Range<u64>,
        change: impl FnOnce(&mut SimFile),
    ) -> Result<()> {
        tier.change(&self.key, self.file, &filled, |file| {
            change(file);
            file.modified_ns = now_ns;
            if self.is_durable {
                file.sync();
            }
        })
    }

    /// Writes at a place that is known once the file's length is; returns the place.
    fn write(&self, data: &[IoSlice<'_>], place: impl FnOnce(u64) -> u64) -> Result<u64> {
        self.check_access()?;
        let mut state = self.place.world.enter_tier(self.place.tier, self.place.epoch)?;
        let now_ns = state.wall_ns();
        let tier = &mut state.tiers[self.place.tier];
        let offset_bytes = place(tier.file(&self.key, self.file)?.length_bytes());
        let mut data: Vec<u8> = data.iter().flat_map(|part| part.iter().copied()).collect();
        extent(offset_bytes, data.len() as u64)?;
        let fault = tier.faults.check(Operation::Write);
        if fault.is_err() {
            data.truncate(data.len() / 2);
        }
        if !data.is_empty() {
            let filled = extent(offset_bytes, data.len() as u64)?;
            let write = |file: &mut SimFile| file.write(offset_bytes, &data);
            self.change_entered(tier, now_ns, filled, write)?;
        }
        fault.map(|()| offset_bytes)
    }
}

impl Object for SimObject {
    fn read_at(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let want_bytes: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        extent(offset_bytes, want_bytes as u64)?;
        let state = self.place.enter(Operation::Read)?;
        let file = state.tiers[self.place.tier].file(&self.key, self.file)?;
        let mut done = 0;
        for buffer in buffers {
            done += file.read(offset_bytes + done as u64, buffer);
        }
        Ok(done)
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        self.write(data, |_| offset_bytes).map(|_| ())
    }

    fn append(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        self.write(data, |length_bytes| length_bytes)
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        extent(bytes, 0)?;
        // Growth fills nothing, but the room of what was the last page.
        self.change(Operation::Resize, bytes..bytes, |file| file.set_length(bytes))
    }

    fn allocate(&self, range: Range<u64>, end: End) -> Result<()> {
        check_range(&range)?;
        self.change(Operation::Resize, range.clone(), |file| file.allocate(range, end))
    }

    fn punch(&self, range: Range<u64>) -> Result<()> {
        check_range(&range)?;
        self.change(Operation::Resize, 0..0, |file| {
            file.punch(range.start..range.end.min(file.length_bytes()).max(range.start));
        })
    }

    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        extent(offset_bytes, 0)?;
        let state = self.place.enter(Operation::Read)?;
        Ok(state.tiers[self.place.tier].file(&self.key, self.file)?.next_data(offset_bytes))
    }

    fn stat(&self) -> Result<Stat> {
        let state = self.place.enter(Operation::Stat)?;
        state.tiers[self.place.tier].file(&self.key, self.file).map(stat)
    }

    fn set_modified(&self, wall_ns: u64) -> Result<()> {
        self.check_access()?;
        let mut state = self.place.enter(Operation::Identity)?;
        let tier = &mut state.tiers[self.place.tier];
        tier.change_freely(&self.key, self.file, |file| file.modified_ns = wall_ns)
    }

    fn sync(&self) -> Result<()> {
        let fail = |error| {
            self.has_sync_failed.store(true, Ordering::SeqCst);
            error
        };
        if self.has_sync_failed.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Io, "sync an object")
                .because("an earlier sync failed")
                .with("key", &self.key));
        }
        let mut state = self.place.enter(Operation::Sync).map_err(fail)?;
        let tier = &mut state.tiers[self.place.tier];
        tier.change_freely(&self.key, self.file, SimFile::sync)
    }

    fn file(&self) -> Option<&dyn ObjectFile> {
        Some(self)
    }
}

impl ObjectFile for SimObject {
    fn lease_file(&self) -> Result<Option<FileLease>> {
        Ok(self.hold_file(Access::Read)?.map(|file| FileLease { file, word: None }))
    }

    /// What is lent is a twin, whose bytes are no longer this file's once it is written to.
    fn hold_file(&self, access: Access) -> Result<Option<File>> {
        if access == Access::Write {
            self.check_access()?;
            return Ok(None);
        }
        let mut state = self.place.enter(Operation::Read)?;
        let tier = &mut state.tiers[self.place.tier];
        if !tier.lends_files {
            return Ok(None);
        }
        tier.lend(&self.key, self.file).map(Some)
    }

    fn held_growth(&self) -> Result<HeldGrowth> {
        Ok(HeldGrowth::Unbounded)
    }

    fn note_reads(&self, _reads: &ReadSummary) {}
}

/// The range of an operation, which must fit in 63 bits.
fn extent(offset_bytes: u64, length_bytes: u64) -> Result<Range<u64>> {
    match offset_bytes.checked_add(length_bytes) {
        Some(end_bytes) if end_bytes <= i64::MAX as u64 => Ok(offset_bytes..end_bytes),
        _ => Err(Error::invalid("use a range", "offset and length do not fit in 63 bits")
            .with("offset_bytes", offset_bytes)
            .with("length_bytes", length_bytes)),
    }
}

fn check_range(range: &Range<u64>) -> Result<()> {
    if range.start > range.end {
        return Err(Error::invalid("use a range", "it ends before it begins")
            .with("start_bytes", range.start)
            .with("end_bytes", range.end));
    }
    extent(range.end, 0).map(|_| ())
}
