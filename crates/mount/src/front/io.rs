// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading and writing what the kernel does not read and write itself.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::thread;

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use terrace_core::{Begun, Buffer, End};
use terrace_fs::{Changes, File, When};
use terrace_fuse::{CopyFileRange, Reply, Request};

use super::handle::Handle;
use super::{Answering, Failure, Front, Result};
use crate::refresher::Stale;

thread_local! {
    /// What is read by this thread: as long as the longest request so far.
    static BUFFER: RefCell<Buffer> = const { RefCell::new(Buffer::new()) };
}

/// `SEEK_DATA` and `SEEK_HOLE` of `lseek(2)`.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// Most that one request copies: no signal ends it.
const COPY_BYTES_MAX: u64 = 16 << 20;

/// What a program, or the kernel from its cache, writes.
pub(super) struct Writing<'a> {
    pub(super) offset: u64,
    pub(super) data: &'a [u8],
    /// Those of the open file at this moment.
    pub(super) flags: OFlags,
    pub(super) is_from_cache: bool,
    /// A caller without the right to keep set-user-ID and set-group-ID bits, where that is so.
    pub(super) stranger: Option<Asker>,
    /// Which thread writes, and of which process, as the kernel names that where it does.
    pub(super) thread: u32,
    pub(super) owner: Option<u64>,
}

impl Writing<'_> {
    /// Whether it is direct I/O. The kernel names the owner of locks for direct writes alone; the flags do not
    /// tell: a direct write that the kernel gives up goes through its cache, with locked pages, and a loop
    /// device writes directly to a file without `O_DIRECT`.
    pub(super) fn is_direct(&self) -> bool {
        self.owner.is_some() && !self.is_from_cache
    }

    /// Where.
    pub(super) fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.data.len() as u64)
    }
}

/// The caller of an operation.
#[derive(Clone, Copy)]
pub(super) struct Asker {
    group: u32,
    thread: u32,
}

impl Asker {
    pub(super) fn of(request: &Request<'_>) -> Self {
        Self { group: request.gid, thread: request.pid }
    }

    /// Whether it is in a group. The kernel sends one of its groups alone; where the others are unknown
    /// it is in none.
    pub(super) fn is_in(self, group: u32) -> bool {
        let in_others = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", self.thread)).ok()?;
            let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
            Some(groups.split_whitespace().any(|one| one.parse() == Ok(group)))
        };
        self.group == group || in_others().unwrap_or(false)
    }
}

/// Takes a set-group-ID bit that lends nothing from a file whose bytes a stranger has changed. They are
/// changed, also where that fails: the next write tries again.
fn take_idle_set_group(file: &File, stranger: Option<Asker>) {
    let taken = stranger.map(|asker| file.take_idle_set_group(|group| asker.is_in(group)));
    if let Some(Err(failure)) = taken {
        tracing::debug!(file = file.number(), %failure, "a set-group-ID bit stays for now");
    }
}

/// Has a read answered by the thread that gets its result; no thread of this mount waits for it then.
fn read_later(
    handle: &Arc<Handle>,
    offset: u64,
    bytes: u32,
    reply: &mut Answering,
) -> Option<Begun> {
    if reply.holds_thread() {
        return None;
    }
    handle.file.read_later(offset, bytes as usize, &mut || {
        let mut reply = std::mem::take(reply);
        let node = handle.file.number();
        // The answering thread must not be the one to close it.
        let handle = Arc::downgrade(handle);
        Box::new(move |read: Option<terrace_core::Result<&[u8]>>| {
            let ended = match read {
                Some(Ok(read)) => reply.with(|reply| reply.data(read)),
                Some(Err(error)) => Err(error.into()),
                None => return read_again(node, handle, offset, bytes, reply),
            };
            reply.end(node, ended);
        })
    })
}

/// Reads in a thread of its own, because others wait for the one that came to know of it. Where
/// there is none to be had the reply is dropped, which is an answer.
fn read_again(node: u64, handle: Weak<Handle>, offset: u64, bytes: u32, mut reply: Answering) {
    let read = move || {
        terrace_affinity::roam();
        let handle = handle.upgrade().ok_or(Errno::BADF);
        let read = handle.map_err(Failure::from);
        let read = read.and_then(|handle| read_now(&handle, offset, bytes, &mut reply));
        reply.end(node, read);
    };
    if let Err(error) = thread::Builder::new().name("read-again".into()).spawn(read) {
        tracing::warn!(%error, "cannot read again what a server did not answer");
    }
}

/// Answers requests of other callers where this one was the first and has to.
fn go_on(handle: Arc<Handle>, begun: Begun) {
    // The file may be closed meanwhile.
    drop(handle);
    match begun {
        Begun::Sent => {}
        Begun::Answering(answer) => answer(),
    }
}

/// Reads, and waits for it.
fn read_now(handle: &Handle, offset: u64, bytes: u32, reply: &mut Answering) -> Result<()> {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < bytes as usize {
            buffer.resize(bytes as usize);
        }
        let count = handle.file.read(offset, &mut buffer[..bytes as usize])?;
        reply.with(|reply| reply.data(&buffer[..count]))
    })
}

impl Front {
    pub(super) fn read(
        &self,
        handle: u64,
        offset: u64,
        bytes: u32,
        reply: &mut Answering,
    ) -> Result<()> {
        let handle = self.handle(handle)?;
        self.note_first_read(&handle);
        // What is here is not waited for.
        let begun = self.is_shared.then(|| read_later(&handle, offset, bytes, reply)).flatten();
        match begun {
            Some(begun) => {
                go_on(handle, begun);
                Ok(())
            }
            None => read_now(&handle, offset, bytes, reply),
        }
    }

    pub(super) fn write(
        &self,
        handle: u64,
        writing: &Writing<'_>,
        reply: &mut Answering,
    ) -> Result<()> {
        let handle = self.handle(handle)?;
        let number = handle.file.number();
        let Writing { offset, data, flags, is_from_cache, .. } = *writing;
        let holds_thread = reply.holds_thread();
        let written = self.write_bytes(&handle, writing, holds_thread);
        let (count, start, begun) = match written {
            Ok(written) => written,
            Err(failure) => return self.fail_write(&handle, writing, failure, reply),
        };
        let bytes = count as u32;
        // What comes from the cache is there, and the kernel holds on to it until it is answered.
        let is_read = || !handle.is_cached && !is_from_cache && self.caching.is_read(number);
        let is_stale = self.may_be_hidden(writing) || is_read();
        let is_misplaced = handle.is_cached && start != offset;
        let appends = self.appends(flags, is_from_cache);
        let answered = reply.with(|reply| match &self.refresher {
            Some(refresher) if is_stale => {
                // The end was there when the kernel looked, and others may have moved it.
                let length = if appends { 0 } else { data.len() as u64 };
                refresher.answer(Stale { node: number, offset, length }, bytes, reply);
            }
            Some(refresher) if is_misplaced => {
                reply.written(bytes);
                let offset = offset.min(start);
                refresher.refresh(Stale { node: number, offset, length: 0 });
            }
            _ => reply.written(bytes),
        });
        if let Some(begun) = begun {
            go_on(handle, begun);
        }
        answered
    }

    /// Writes. Returns how many bytes and where, and a write that was begun and need not be waited for.
    fn write_bytes(
        &self,
        handle: &Arc<Handle>,
        writing: &Writing<'_>,
        holds_thread: bool,
    ) -> Result<(usize, u64, Option<Begun>)> {
        let number = handle.file.number();
        let Writing { offset, data, flags, is_from_cache, stranger, .. } = *writing;
        if !is_from_cache {
            // The kernel would take it for what became of the bytes that it writes back.
            handle.tell_writer()?;
        }
        Self::note_write(handle);
        let clears_set_id = stranger.is_some();
        // The kernel takes what lends rights away by itself, but for what goes past its cache.
        let lent_rights = clears_set_id && !is_from_cache && handle.file.lends_rights();
        let mut begun = None;
        let (count, start) = if self.appends(flags, is_from_cache) {
            self.behind.settle(number);
            handle.file.append_some(offset, data, clears_set_id)?
        } else if is_from_cache {
            // The kernel forgets these bytes, all of them.
            self.behind.settle_range(number, &writing.range());
            handle.file.write(offset, data, clears_set_id)?;
            (data.len(), offset)
        } else if holds_thread {
            // The thread cannot go on to answer others. As in `write_soon`, all of them come first.
            self.behind.settle(number);
            (handle.file.write_some(offset, data, clears_set_id)?, offset)
        } else {
            let count;
            (count, begun) = self.write_soon(handle, writing, clears_set_id)?;
            (count, offset)
        };
        if begun.is_none() {
            take_idle_set_group(&handle.file, stranger);
            let is_direct = !handle.is_cached || self.is_strict;
            if flags.contains(OFlags::DSYNC) && is_direct && !is_from_cache {
                // The kernel asks for that itself only of what it caches.
                handle.file.sync()?;
            }
        }
        if lent_rights {
            self.forget_attributes(number);
        }
        Ok((count, start, begun))
    }

    /// Whether a write goes to the end, wherever that is: as the flags are now, because a program may have
    /// changed them (fcntl(2), F_SETFL). What the kernel had mapped knows its place, and so does the kernel
    /// where no other client moves the end.
    fn appends(&self, flags: OFlags, is_from_cache: bool) -> bool {
        self.is_shared && flags.contains(OFlags::APPEND) && !is_from_cache
    }

    /// Whether the kernel may have cached the range of a write as it was before. It drops the pages of a direct
    /// write before it sends the request, and not again when an asynchronous one completes
    /// (`fuse_aio_complete` in fs/fuse/file.c, Linux 6.18): reads fill them in between.
    fn may_be_hidden(&self, writing: &Writing<'_>) -> bool {
        !self.is_shared && writing.is_direct()
    }

    /// Answers a write that failed, and may have changed some of its range.
    fn fail_write(
        &self,
        handle: &Handle,
        writing: &Writing<'_>,
        failure: Failure,
        reply: &mut Answering,
    ) -> Result<()> {
        let refresher = self.refresher.as_ref().filter(|_| self.may_be_hidden(writing));
        let Some(refresher) = refresher else { return Err(failure) };
        let (node, offset) = (handle.file.number(), writing.offset);
        let length = writing.data.len() as u64;
        super::log(node, &failure);
        let range = Stale { node, offset, length };
        reply.with(|reply| refresher.refuse(range, failure.errno(), reply))
    }

    pub(super) fn sync_file(&self, handle: u64, reply: &mut Answering) -> Result<()> {
        let handle = self.handle(handle)?;
        let missed = handle.take_missed();
        let synced = handle.file.sync();
        missed.and(synced)?;
        reply.with(Reply::empty)
    }

    pub(super) fn allocate(
        &self,
        handle: u64,
        offset: u64,
        length: u64,
        mode: u32,
        stranger: Option<Asker>,
        reply: &mut Answering,
    ) -> Result<()> {
        let handle = self.handle(handle)?;
        let clears_set_id = stranger.is_some();
        let mode = FallocateFlags::from_bits_retain(mode);
        let end = offset.checked_add(length).filter(|end| i64::try_from(*end).is_ok());
        let range = offset..end.ok_or(Errno::FBIG)?;
        let keeps_size = mode.contains(FallocateFlags::KEEP_SIZE);
        let keeping = if keeps_size { End::Stays } else { End::Grows };
        let what = mode.difference(FallocateFlags::KEEP_SIZE);
        if what.is_empty() {
            handle.file.allocate(range, keeping, clears_set_id)?;
        } else if what == FallocateFlags::PUNCH_HOLE && keeps_size {
            let is_behind = range.start >= handle.file.size()?;
            handle.file.punch(range, clears_set_id)?;
            if is_behind {
                // There is nothing to punch, but Linux changes the times (`file_modified`).
                let changes = Changes { modified: Some(When::Now), ..Changes::default() };
                self.files.change(handle.file.number(), changes)?;
            }
        } else if what == FallocateFlags::ZERO_RANGE {
            handle.file.zero(range, keeping, clears_set_id)?;
        } else {
            return Err(Errno::OPNOTSUPP.into());
        }
        take_idle_set_group(&handle.file, stranger);
        reply.with(Reply::empty)
    }

    pub(super) fn seek(
        &self,
        handle: u64,
        offset: u64,
        whence: u32,
        reply: &mut Answering,
    ) -> Result<()> {
        let handle = self.handle(handle)?;
        let size = handle.file.size()?;
        if offset >= size {
            return Err(Errno::NXIO.into());
        }
        let data = handle.file.next_data(offset)?.filter(|data| data.start < size);
        let found = match whence {
            SEEK_DATA => data.ok_or(Errno::NXIO)?.start.max(offset),
            SEEK_HOLE => {
                let mut hole = offset;
                let mut data = data;
                // Ranges of data may touch each other.
                while let Some(range) = data.filter(|range| range.start <= hole) {
                    hole = range.end.max(hole).min(size);
                    if hole == size {
                        break;
                    }
                    data = handle.file.next_data(hole)?;
                }
                hole
            }
            _ => return Err(Errno::INVAL.into()),
        };
        reply.with(|reply| reply.offset(found))
    }

    pub(super) fn copy(
        &self,
        copy: &CopyFileRange,
        stranger: Option<Asker>,
        reply: &mut Answering,
    ) -> Result<()> {
        if copy.flags != 0 {
            return Err(Errno::INVAL.into());
        }
        let (from, to) = (self.handle(copy.handle)?, self.handle(copy.target_handle)?);
        self.note_first_read(&from);
        // The caller asks for the rest, and may be interrupted in between.
        let (at, bytes) = ((copy.offset, copy.target_offset), copy.length.min(COPY_BYTES_MAX));
        let copied = to.file.copy_from(&from.file, at, bytes, stranger.is_some())?;
        take_idle_set_group(&to.file, stranger);
        reply.with(|reply| reply.copied(copied))
    }
}
