// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening and closing files.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use terrace_core::Access;
use terrace_fs::{Changes, File, Kind, Made, Node};
use terrace_fuse::{BackingId, Opened, OpenedFlags, Reply, Request};

use super::names::made;
use super::{Answering, Failure, Front, Result, number_of};
use crate::caching::Use;
use crate::mode::{Chosen, Wish};
use crate::seen::Cached;

/// So often a file is made or found, where others make and remove it.
const CREATES_MAX: usize = 100;

/// A file that a program has open.
pub(super) struct Handle {
    pub(super) file: File,
    pub(super) usage: Use,
    /// Whether the kernel caches what is read and written through it.
    pub(super) is_cached: bool,
    /// The directory that it was made in with this open.
    made_in: Option<u64>,
    /// The file as it was opened, where a read through this is to be noted.
    unread: Option<Node>,
    /// Carried out with the first read.
    first_read: Once,
    /// Whether the times in the kernel's cache are old: a read through this is noted, or the server has yet to
    /// stamp a file that is made later.
    has_old_times: AtomicBool,
    missed: Mutex<Option<Missed>>,
}

/// What an open has done beside opening.
struct Opening {
    /// The directory that the file was made in with it.
    made_in: Option<u64>,
    /// Whether it is noted as a read.
    is_read: bool,
}

/// Why an acknowledged write was not carried out, until the file is synced.
struct Missed {
    failure: Failure,
    /// Whether a write has returned it.
    is_told: bool,
    /// The processes that wrote it, where known.
    owners: HashSet<u64>,
    is_of_unknown: bool,
}

impl Handle {
    /// An acknowledged write was not carried out: each handle of the file returns
    /// the loss when it is synced, and the handle of the write this error.
    pub(super) fn note_missed(&self, failure: Failure, owner: Option<u64>) {
        self.file.note_loss();
        let mut missed = self.missed();
        let (mut owners, mut is_of_unknown) = match missed.take() {
            Some(before) => (before.owners, before.is_of_unknown && !before.is_told),
            None => Default::default(),
        };
        owners.extend(owner);
        is_of_unknown |= owner.is_none();
        *missed = Some(Missed { failure, is_told: false, owners, is_of_unknown });
    }

    /// Tells a write of that, once. What it tells may not reach the program, which may not know either what
    /// is missing: syncing and closing tell of it still.
    ///
    /// # Errors
    ///
    /// That.
    pub(super) fn tell_writer(&self) -> Result<()> {
        let mut missed = self.missed();
        let untold = missed.as_mut().filter(|missed| !missed.is_told);
        untold.map_or(Ok(()), |missed| {
            missed.is_told = true;
            Err(missed.failure.clone())
        })
    }

    /// Returns that error to a process that closes its descriptor, on each close until the file is
    /// synced, because programs ignore errors of close, as where a program is started: a process that wrote
    /// it, or any where the writer is unknown, until a write has returned it.
    ///
    /// # Errors
    ///
    /// That.
    pub(super) fn tell_closer(&self, process: u64) -> Result<()> {
        let missed = self.missed();
        let may_be_of = |missed: &&Missed| {
            missed.owners.contains(&process) || missed.is_of_unknown && !missed.is_told
        };
        let told = missed.as_ref().filter(may_be_of);
        told.map_or(Ok(()), |missed| Err(missed.failure.clone()))
    }

    /// Returns that error to a sync, for the last time.
    ///
    /// # Errors
    ///
    /// That.
    pub(super) fn take_missed(&self) -> Result<()> {
        self.missed().take().map_or(Ok(()), |missed| Err(missed.failure))
    }

    fn missed(&self) -> MutexGuard<'_, Option<Missed>> {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Front {
    pub(super) fn open(&self, number: u64, flags: u32, reply: &mut Answering) -> Result<()> {
        let flags = OFlags::from_bits_retain(flags);
        let (node, file, is_read) = self.open_file(number, flags)?;
        // From here on it is noted what the kernel has open, and keeps.
        if !reply.keep() {
            file.close_unused();
            return Ok(());
        }
        let opening = Opening { made_in: None, is_read };
        let (opened, backing) = self.answer_open(&node, file, flags, opening)?;
        let opened = Opened { backing: backing.as_deref(), ..opened };
        reply.with(|reply| reply.opened(&opened))
    }

    /// Opens a file; whether that is noted as a read.
    fn open_file(&self, number: u64, flags: OFlags) -> Result<(Node, File, bool)> {
        let access = access(flags);
        // The kernel cuts a file itself, once it has seen that it is not being executed.
        let (node, file) = self.files.open(number, access)?;
        // An open for reading alone counts as a read: the kernel does not report reads from its cache.
        let reads = access == Access::Read && !flags.contains(OFlags::NOATIME);
        let is_read = reads && self.note_access(&node);
        Ok((node, file, is_read))
    }

    /// Makes a file and opens it; without a name if that is empty.
    pub(super) fn create(
        &self,
        request: &Request<'_>,
        name: &[u8],
        flags: u32,
        (mode, umask): (u32, u32),
        reply: &mut Answering,
    ) -> Result<()> {
        let flags = OFlags::from_bits_retain(flags);
        let made = made(request, Kind::File, mode & 0o7777, umask);
        let (node, file, opening) = self.create_or_open(request, name, flags, made)?;
        let mut entry = self.entry(&node);
        let (opened, backing) = self.answer_open(&node, file, flags, opening)?;
        // As it is open.
        entry.attributes_timeout = self.attributes_for(&node, entry.entry_timeout);
        let opened = Opened { backing: backing.as_deref(), ..opened };
        reply.with(|reply| reply.created(&entry, &opened))
    }

    /// Makes a file or opens what has its name, where that may be.
    fn create_or_open(
        &self,
        request: &Request<'_>,
        name: &[u8],
        flags: OFlags,
        made: Made<'_>,
    ) -> Result<(Node, File, Opening)> {
        let directory = number_of(request.node);
        let is_passed = self.modes.prefers_passthrough() && !self.sizes.is_small(directory);
        let mut tries = CREATES_MAX;
        loop {
            tries -= 1;
            // The server returns whether this open made it.
            let may_be_later = self.goes_on && !is_passed && !flags.contains(OFlags::EXCL);
            let created = match may_be_later {
                true => self.files.create_later(directory, name, made.clone()),
                false => self.files.create(directory, name, made.clone(), is_passed),
            };
            match created {
                Ok((node, file)) => {
                    self.pin_new(&node);
                    let opening = Opening { made_in: Some(directory), is_read: false };
                    return Ok((node, file, opening));
                }
                // Another client made it since the kernel looked.
                Err(failure)
                    if failure.errno() == Errno::EXIST && !flags.contains(OFlags::EXCL) => {}
                Err(failure) => return Err(failure),
            }
            let found = self.files.lookup(directory, name);
            if found.as_ref().is_ok_and(|node| !may_open(node, request.uid, flags)) {
                // The kernel takes the file for new, and does not check permissions. With this answer
                // it looks again, once, and opens what is there.
                return Err(Errno::STALE.into());
            }
            if let Ok(node) = &found {
                self.behind.settle(node.number);
            }
            match found.and_then(|node| self.open_again(&node, request.uid, flags)) {
                Ok((node, file, is_read)) => {
                    return Ok((node, file, Opening { made_in: None, is_read }));
                }
                // And another client removed it since.
                Err(failure)
                    if matches!(failure.errno(), Errno::NOENT | Errno::STALE) && tries > 0 => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Opens a file of the user's own, and cuts it where that is asked for.
    fn open_again(&self, node: &Node, user: u32, flags: OFlags) -> Result<(Node, File, bool)> {
        let (mut node, file, is_read) = self.open_file(node.number, flags)?;
        if flags.contains(OFlags::TRUNC) {
            // Root keeps what lends rights, as where the kernel cuts it.
            let clears_set_id = user != 0;
            let changes = Changes { size: Some(0), clears_set_id, ..Changes::default() };
            node = self.files.change(node.number, changes)?;
        }
        Ok((node, file, is_read))
    }

    /// Chooses a mode and keeps the file until it is released.
    fn answer_open(
        &self,
        node: &Node,
        file: File,
        flags: OFlags,
        Opening { made_in, is_read }: Opening,
    ) -> Result<(Opened<'static>, Option<Arc<BackingId>>)> {
        let appends = flags.contains(OFlags::APPEND);
        let usage = Use {
            reads: !flags.contains(OFlags::WRONLY),
            writes: flags.intersects(OFlags::WRONLY | OFlags::RDWR),
        };
        let mut is_cached = true;
        let (flags_out, backing) = match self.modes.open(node, &file, Wish { appends }) {
            Chosen::Passed(backing) => (OpenedFlags::PASSTHROUGH, Some(backing)),
            Chosen::Direct(backing) => {
                (OpenedFlags::PASSTHROUGH | OpenedFlags::DIRECT_IO, Some(backing))
            }
            Chosen::Refused => {
                // Programs know this error as that of a file that cannot be written at the moment.
                file.close()?;
                return Err(Errno::TXTBSY.into());
            }
            Chosen::Served { .. } if self.is_strict => (OpenedFlags::DIRECT_IO, None),
            Chosen::Served { .. } if self.is_shared => {
                let may_be_long = made_in.is_some_and(|directory| !self.sizes.is_small(directory));
                let may_cache = self.caching.open(node.number, usage, may_be_long);
                // The cache cuts what is written at borders of pages, and other clients would get
                // between the pieces of a record.
                is_cached = may_cache && !appends && !flags.contains(OFlags::DIRECT);
                let how = match is_cached {
                    true => OpenedFlags::NONE,
                    false => OpenedFlags::DIRECT_IO | OpenedFlags::PARALLEL_DIRECT_WRITES,
                };
                let is_given = is_cached && !usage.writes;
                let given = is_given.then_some(&file);
                (self.kept(node, made_in.is_some(), given) | how, None)
            }
            Chosen::Served { is_stale: true } => (OpenedFlags::NONE, None),
            Chosen::Served { is_stale: false } => (OpenedFlags::KEEP_CACHE, None),
        };
        if backing.is_some() {
            self.note_mappings(node.number, usage, made_in.is_some());
        }
        let is_noted = usage.reads && usage.writes && made_in.is_none();
        let is_noted = is_noted && !flags.contains(OFlags::NOATIME);
        let unread = is_noted.then(|| node.clone());
        let has_old_times = AtomicBool::new(is_read || made_in.is_some() && self.goes_on);
        let (first_read, missed) = (Once::new(), Mutex::default());
        let handle =
            Handle { file, usage, is_cached, made_in, unread, first_read, has_old_times, missed };
        let handle = self.handles.put(handle);
        Ok((Opened { handle, flags: flags_out, backing: None }, backing))
    }

    /// Invalidates the kernel's attributes of a file with the first open that passes it through and allows
    /// stores through mappings: the kernel does not notice these.
    fn note_mappings(&self, number: u64, usage: Use, is_new: bool) {
        let may_store = usage.reads && usage.writes || self.files.may_be_mapped(number);
        // The attributes of a new file go with the reply.
        if may_store && self.modes.note_mappings(number) && !is_new {
            self.forget_attributes(number);
        }
    }

    /// What the kernel may keep of a file that is opened: what another client closed is seen by the
    /// next open. The bytes of a small one it gets with its first open, so that it need not ask
    /// for them.
    fn kept(&self, node: &Node, is_new: bool, given: Option<&File>) -> OpenedFlags {
        let give = || {
            let bytes = given.and_then(|file| file.bytes_as_of(node));
            bytes.is_some_and(|bytes| self.notifier.store(node.number, 0, &bytes).is_ok())
        };
        let ask_anew = || {
            // The attributes of a new file go with the reply.
            if !is_new {
                self.forget_attributes(node.number);
            }
        };
        match self.seen.open(node, give, ask_anew) {
            Cached::Whole => OpenedFlags::KEEP_CACHE,
            Cached::Attributes | Cached::Nothing => OpenedFlags::NONE,
        }
    }

    pub(super) fn release(
        &self,
        number: u64,
        handle: u64,
        flock_owner: Option<u64>,
        reply: &mut Answering,
    ) -> Result<()> {
        let unlocked = self.locks.release(number, handle, flock_owner);
        if let Some(handle) = self.handles.take(handle) {
            self.modes.close(handle.file.number());
            if self.is_shared && !self.is_strict {
                self.caching.close(handle.file.number(), handle.usage);
            }
            if let Some(directory) = handle.made_in {
                let is_small = handle.file.object().is_none()
                    || handle.file.size()? <= self.files.inline_bytes_max();
                self.sizes.note(directory, is_small);
            }
            match Arc::try_unwrap(handle) {
                Ok(handle) => handle.file.close()?,
                // A read is still using it, and then drops it.
                Err(handle) => drop(handle),
            }
        }
        unlocked?;
        reply.with(Reply::empty)
    }

    /// Notes that a file is read that was opened for reading and writing.
    pub(super) fn note_first_read(&self, handle: &Handle) {
        if let Some(node) = &handle.unread {
            handle.first_read.call_once(|| {
                handle.has_old_times.store(self.note_access(node), Ordering::Release);
            });
        }
    }

    /// Invalidates the kernel's attributes of a file that is closed and has old times there: the kernel may have
    /// read from its cache, which leaves the access time valid.
    pub(super) fn show_times(&self, handle: &Handle) {
        if handle.has_old_times.swap(false, Ordering::AcqRel) {
            self.forget_attributes(handle.file.number());
        }
    }

    /// Notes that the kernel invalidates the times of a file by itself, because it is written.
    pub(super) fn note_write(handle: &Handle) {
        if handle.made_in.is_some() && handle.has_old_times.load(Ordering::Relaxed) {
            handle.has_old_times.store(false, Ordering::Relaxed);
        }
    }

    /// An open file.
    pub(super) fn handle(&self, handle: u64) -> Result<Arc<Handle>> {
        Ok(self.handles.get(handle).ok_or(Errno::BADF)?)
    }
}

/// Whether a user certainly may open a file as it is: one of his own.
fn may_open(node: &Node, user: u32, flags: OFlags) -> bool {
    let reads = !flags.contains(OFlags::WRONLY);
    let writes = access(flags) == Access::Write || flags.contains(OFlags::TRUNC);
    let has = Mode::from_raw_mode(node.permissions);
    let is_enough = |needed: bool, mode| !needed || has.contains(mode);
    let is_own = node.kind == Kind::File && node.user == user;
    is_own && is_enough(reads, Mode::RUSR) && is_enough(writes, Mode::WUSR)
}

fn access(flags: OFlags) -> Access {
    match flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
        true => Access::Write,
        false => Access::Read,
    }
}
