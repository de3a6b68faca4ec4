// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading and writing.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;
use terrace_core::{Access, Begun, Buffer, End, Error, ErrorKind, Object, ReadDone};

use super::open::Content;
use super::{File, settled, unexpected, without_idle_set_group};
use crate::failure::{Failure, Result};
use crate::node::{CAPABILITY, Node};
use crate::request::{Changes, Reply, Request};
use crate::superblock::INLINE_BYTES_LIMIT;

/// Copied so much at a time.
const COPY_BYTES: usize = 256 << 10;

/// Fewer bytes are not tried for where there is no room: one page.
const LEAST_BYTES: usize = 4096;

/// Each time another client changed a small file between two looks at it.
const TRIES_MAX: usize = 100;

/// What came of a write that was begun with [`File::write_later`].
pub enum Written {
    /// It is done.
    Done,
    /// It is done, but this user was forgotten meanwhile: [`File::check`] says what that means for the file,
    /// and may wait for servers, which the thread that completes this must not.
    Forgotten,
    /// It is unknown whether it is done.
    Unknown(Error),
    /// It is not done, and nothing of it is on its way any more: [`File::write`] does it, or says why not.
    Not,
}

impl File {
    /// Reads at an offset; fewer bytes than asked for only at the end.
    ///
    /// # Errors
    ///
    /// What the tiers say; as [`File::check`].
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.check()?;
        self.shared().freshen(self.files())?;
        let small = |bytes: &[u8], size| read_inline(bytes, size, offset, &mut *buffer);
        self.shared()
            .inline_or_object(small)
            .or_else(|object| self.read_object(&*object, offset, buffer))
    }

    fn read_object(&self, object: &dyn Object, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let wanted = offset..offset.saturating_add(buffer.len() as u64);
        match self.shared().unanswered.contains(&wanted, &*self.files().clock) {
            true => Err(Errno::HOSTUNREACH.into()),
            // It may ask several servers, of which one alone is silent: nothing is noted of the others.
            false => Ok(object.read_at(offset, &mut [IoSliceMut::new(buffer)])?),
        }
    }

    /// Whether it can still be used as it was opened, and as programs here have locked it.
    ///
    /// # Errors
    ///
    /// `STALE` where it was removed, and is gone because its server did not hear of this user for too
    /// long, or where that lost with its power where the bytes are; `IO` where another one has got a
    /// lock since that a program here had of it.
    pub fn check(&self) -> Result<()> {
        self.files().metadata.check(self.number())
    }

    /// Takes away the set-group-ID bit that lends nothing, where there is one, after a user changed the
    /// bytes that is not in the file's group and has no right to keep such bits. A caller that gives the file
    /// other permissions at the same time may find them as they are here.
    ///
    /// # Errors
    ///
    /// What the metadata says.
    pub fn take_idle_set_group(&self, is_member: impl Fn(u32) -> bool) -> Result<()> {
        if !self.shared().take_idle_set_group() {
            return Ok(());
        }
        let left = self.files().node(self.number()).and_then(|node| {
            let Some(changes) = without_idle_set_group(&node, is_member) else {
                return Ok(node.has_idle_set_group());
            };
            let request = Request::Change { number: node.number, changes };
            self.files().metadata.call(&request).map(|_| false)
        });
        // The next write looks again.
        if left != Ok(false) {
            self.shared().note_idle_set_group();
        }
        left.map(drop)
    }

    /// Whether a write has to take away what lets others run the file with its owner's rights.
    pub fn lends_rights(&self) -> bool {
        self.shared().lends_rights()
    }

    /// All bytes of a file that is kept with the metadata, and has some, where those that are known
    /// here are as of what is known of the node.
    pub fn bytes_as_of(&self, node: &Node) -> Option<Vec<u8>> {
        match &*self.shared().look() {
            Content::Inline { bytes, size, changed, .. }
                // One that was made longer, by its length alone, has zeros in place of more.
                if (1..=INLINE_BYTES_LIMIT.into()).contains(size)
                    && (*size, *changed) == (node.size, node.changed) =>
            {
                let mut bytes = bytes.clone();
                bytes.resize(*size as usize, 0);
                Some(bytes)
            }
            _ => None,
        }
    }

    /// Begins a read, for a caller that goes on without its bytes; as [`Later::read_later`].
    ///
    /// [`Later::read_later`]: terrace_core::Later::read_later
    pub fn read_later(
        &self,
        offset: u64,
        bytes: usize,
        done: &mut dyn FnMut() -> ReadDone,
    ) -> Option<Begun> {
        let object = self.object()?;
        // A reader gets the reason why it cannot be used at once.
        self.check().ok()?;
        let wanted = offset..offset.saturating_add(bytes as u64);
        if self.shared().unanswered.contains(&wanted, &*self.files().clock) {
            return None;
        }
        object.later()?.read_later(offset, bytes, &mut || {
            let (done, wanted) = (done(), wanted.clone());
            let unanswered = Arc::clone(&self.shared().unanswered);
            let clock = Arc::clone(&self.files().clock);
            Box::new(move |read| {
                if let Some(Err(error)) = &read
                    && matches!(error.kind(), ErrorKind::Unreachable { .. })
                {
                    unanswered.note(wanted, clock.now_ns());
                }
                done(read);
            })
        })
    }

    /// Begins a write, for a caller that goes on before it is done; as [`Later::write_later`], but for what it
    /// returns in the end. Not one that has to take away what lends rights, nor one to what is with the
    /// metadata.
    ///
    /// [`Later::write_later`]: terrace_core::Later::write_later
    pub fn write_later(
        &self,
        offset: u64,
        data: &Arc<[u8]>,
        done: &mut dyn FnMut() -> Box<dyn FnOnce(Written) + Send>,
    ) -> Option<Begun> {
        let object = self.object()?;
        // A waiting caller gets the reason why it cannot be used.
        if self.access() == Access::Read || self.shared().owes_before_write() {
            return None;
        }
        self.check().ok()?;
        let life = self.files().metadata.life();
        // Its caller goes on before the object is stamped, or after.
        self.files().metadata.note_object_written();
        object.later()?.write_later(offset, data, &mut || {
            let done = done();
            let unanswered = Arc::clone(&self.shared().unanswered);
            let metadata = Arc::clone(&self.files().metadata);
            Box::new(move |written| {
                metadata.note_object_written();
                done(match written {
                    Some(Ok(())) => {
                        unanswered.clear();
                        match metadata.life() == life {
                            true => Written::Done,
                            false => Written::Forgotten,
                        }
                    }
                    Some(Err(error)) => Written::Unknown(error),
                    None => Written::Not,
                });
            })
        })
    }

    /// Writes at an offset. `clears_set_id` where the writer has no right to keep set-user-ID and
    /// set-group-ID bits.
    ///
    /// # Errors
    ///
    /// `BADF` where it is open for reading alone, `NOSPC`, what the tiers say; as [`File::check`].
    pub fn write(&self, offset: u64, data: &[u8], clears_set_id: bool) -> Result<()> {
        self.change_bytes(
            clears_set_id,
            &mut |object| Ok(object.write_at(offset, &[IoSlice::new(data)])?),
            Some((offset, data, false)),
            &|| Ok(true),
        )
        .map(drop)
    }

    /// Writes at an offset as much as there is room for: fewer bytes than given only where there is
    /// none for the rest, or hardly any. Returns how many.
    ///
    /// # Errors
    ///
    /// As [`File::write`]: `NOSPC` where nothing was written.
    pub fn write_some(&self, offset: u64, data: &[u8], clears_set_id: bool) -> Result<usize> {
        let write = |data: &[u8]| self.write(offset, data, clears_set_id);
        let written = as_much_as_fits(data, write, || Ok(true)).map(|(count, ())| count);
        let count = match &written {
            Ok(count) => *count,
            Err(failure) if failure.errno() == Errno::NOSPC => 0,
            Err(_) => return written,
        };
        if count == data.len() {
            return written;
        }
        // An attempt with more may have left the file longer than this, and up to there is room then:
        // readers are not to find more in the file than its writer knows of.
        let Ok(size) = self.size() else { return written };
        let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let left = left.min(data.len());
        match left > count && write(&data[..left]).is_ok() {
            true => Ok(left),
            false => written,
        }
    }

    /// Writes at the end, wherever that is when it happens, as much as there is room for. Returns how
    /// many bytes, and where they begin. It is tried again, or with less, only where the file still
    /// ends at `end`, as far as the caller knew before: what an attempt left, or others appended,
    /// would come between.
    ///
    /// # Errors
    ///
    /// As [`File::write_some`].
    pub fn append_some(&self, end: u64, data: &[u8], clears_set_id: bool) -> Result<(usize, u64)> {
        // Where others appended since the caller looked, it is not to fail for want of room that is
        // about to come back.
        let end = if self.files().sweeper.is_busy() { self.size()? } else { end };
        let may_repeat = || Ok(self.size()? == end);
        let write = |data: &[u8]| self.append(data, clears_set_id, &may_repeat);
        as_much_as_fits(data, write, may_repeat)
    }

    /// Writes at the end; where that was.
    fn append(
        &self,
        data: &[u8],
        clears_set_id: bool,
        may_repeat: &dyn Fn() -> Result<bool>,
    ) -> Result<u64> {
        let mut start = 0;
        let append = &mut |object: &dyn Object| {
            start = object.append(&[IoSlice::new(data)])?;
            Ok(())
        };
        let inline = self.change_bytes(clears_set_id, append, Some((0, data, true)), may_repeat)?;
        Ok(inline.unwrap_or(start))
    }

    /// Cuts or grows the object of the file; one that has none gets one.
    pub(super) fn set_len(&self, size: u64) -> Result<()> {
        let cut = &mut |object: &dyn Object| Ok(object.set_len(size)?);
        self.change_bytes(false, cut, None, &|| Ok(true)).map(drop)
    }

    /// Reserves room for a range, also behind the end of the file, which stays or grows as `end`
    /// says; `clears_set_id` as for [`File::write`].
    ///
    /// # Errors
    ///
    /// `NOSPC`; `OPNOTSUPP` where the bytes are kept by something that cannot promise room.
    pub fn allocate(&self, range: Range<u64>, end: End, clears_set_id: bool) -> Result<()> {
        let allocate = &mut |object: &dyn Object| Ok(object.allocate(range.clone(), end)?);
        self.change_bytes(clears_set_id, allocate, None, &|| Ok(true)).map(drop)
    }

    /// Makes a range read as zeros, and frees its room where it can; the size stays;
    /// `clears_set_id` as for [`File::write`].
    ///
    /// # Errors
    ///
    /// What the tiers say.
    pub fn punch(&self, range: Range<u64>, clears_set_id: bool) -> Result<()> {
        let punch = &mut |object: &dyn Object| Ok(object.punch(range.clone())?);
        self.change_bytes(clears_set_id, punch, None, &|| Ok(true)).map(drop)
    }

    /// Makes a range read as zeros with room for it, also behind the end of the file, which stays or
    /// grows as `end` says; `clears_set_id` as for [`File::write`].
    ///
    /// # Errors
    ///
    /// As [`File::allocate`].
    pub fn zero(&self, range: Range<u64>, end: End, clears_set_id: bool) -> Result<()> {
        let inside = range.start..range.end.min(self.size()?);
        if !inside.is_empty() {
            self.punch(inside, clears_set_id)?;
        }
        self.allocate(range, end, clears_set_id)
    }

    /// The first range of data at or after an offset, as far as is known; `None` where only a hole
    /// remains.
    ///
    /// # Errors
    ///
    /// What the tiers say.
    pub fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>> {
        self.shared().freshen(self.files())?;
        let small = |bytes: &[u8], _| {
            let end = bytes.len() as u64;
            (offset < end).then_some(offset..end)
        };
        self.shared().inline_or_object(small).or_else(|object| Ok(object.next_data(offset)?))
    }

    /// How long the file is.
    ///
    /// # Errors
    ///
    /// What the tiers say.
    pub fn size(&self) -> Result<u64> {
        self.shared().freshen(self.files())?;
        self.shared()
            .inline_or_object(|_, size| size)
            .or_else(|object| Ok(object.stat()?.size_bytes))
    }

    /// Makes the bytes survive a loss of power, and what is needed to find them.
    ///
    /// # Errors
    ///
    /// What tiers and metadata say; as [`File::check`]. `IO`, once for each use of the file, where something that was
    /// acknowledged may be lost, because a server ended before it was durable.
    pub fn sync(&self) -> Result<()> {
        // A file that outgrows the metadata meanwhile is seen below, or sees this.
        self.shared().note_durable(true);
        let bytes = self.sync_object();
        if bytes.as_ref().is_err_and(Failure::may_pass) {
            return bytes;
        }
        // Also where bytes are lost: what is lost beside them is returned with them.
        let metadata = &*self.files().metadata;
        let rest = metadata.call(&Request::Sync).and_then(|_| self.heard().tell(metadata));
        // Now it would be known that it is gone.
        self.check().and(bytes).and(rest)
    }

    /// Has the object synced, where it has one, and takes account of what that says.
    fn sync_object(&self) -> Result<()> {
        let Some(object) = self.object() else { return Ok(()) };
        if let Err(error) = object.sync() {
            let failure = Failure::from(error);
            if !failure.may_pass() && !self.files().options.is_alone {
                self.shared().replace_object(self.files(), &object, || self.heard().count());
            }
            return Err(failure);
        }
        if self.access() == Access::Write {
            let stat = object.stat()?;
            let request = Request::Settle { number: self.number(), settled: settled(stat) };
            self.files().metadata.call(&request)?;
        }
        Ok(())
    }

    /// Copies a range of another file, from an offset there to one here, into this one; the bytes
    /// copied, fewer than asked for only at the end of the other, or where there is no room for more.
    /// `clears_set_id` as for [`File::write`].
    ///
    /// # Errors
    ///
    /// As [`File::read`] and [`File::write`].
    pub fn copy_from(
        &self,
        from: &File,
        (from_offset, offset): (u64, u64),
        bytes: u64,
        clears_set_id: bool,
    ) -> Result<u64> {
        let step = COPY_BYTES.min(usize::try_from(bytes).unwrap_or(COPY_BYTES));
        let mut buffer = Buffer::zeroed(step);
        let mut done = 0;
        while done < bytes {
            let step = buffer.len().min(usize::try_from(bytes - done).unwrap_or(COPY_BYTES));
            let count = from.read(from_offset + done, &mut buffer[..step])?;
            if count == 0 {
                break;
            }
            let written = self.write_some(offset + done, &buffer[..count], clears_set_id);
            match written {
                Err(failure) if done == 0 => return Err(failure),
                // The caller goes on and gets the reason why it did not.
                Err(_) => break,
                Ok(written) => done += written as u64,
            }
        }
        Ok(done)
    }

    /// Changes the bytes: of the object, or of what is with the metadata where `small` says how; then
    /// where that was. After it found no room, the object is changed once more if it `may_repeat`.
    fn change_bytes(
        &self,
        clears_set_id: bool,
        change: &mut dyn FnMut(&dyn Object) -> Result<()>,
        small: Option<(u64, &[u8], bool)>,
        may_repeat: &dyn Fn() -> Result<bool>,
    ) -> Result<Option<u64>> {
        if self.access() == Access::Read {
            return Err(Errno::BADF.into());
        }
        self.check()?;
        if self.shared().take_capability() {
            // Before, so that what is written is not run with it.
            self.clear_capability().inspect_err(|_| self.shared().note_capability())?;
        }
        let clears_set_id = clears_set_id && self.shared().take_set_id();
        let changed = self.change_content(clears_set_id, change, small, may_repeat);
        if clears_set_id && changed.is_err() {
            self.shared().note_set_id();
        }
        // With this it may have come to light that a server had forgotten it before.
        self.check()?;
        changed
    }

    fn change_content(
        &self,
        mut clears_set_id: bool,
        change: &mut dyn FnMut(&dyn Object) -> Result<()>,
        small: Option<(u64, &[u8], bool)>,
        may_repeat: &dyn Fn() -> Result<bool>,
    ) -> Result<Option<u64>> {
        for _ in 0..TRIES_MAX {
            let object = self.object();
            if let Some(object) = object {
                if std::mem::take(&mut clears_set_id) {
                    // Before, so that what is written is not run with them.
                    self.clear_set_id()?;
                }
                let changed = self.with_room(false, &mut || change(&*object), may_repeat);
                self.files().metadata.note_object_written();
                changed?;
                // The server answers.
                self.shared().unanswered.clear();
                return Ok(None);
            }
            match small {
                Some((offset, data, at_end)) => {
                    let written = self.write_inline(offset, data, at_end, clears_set_id)?;
                    if written.is_some() {
                        return Ok(written);
                    }
                }
                None => self.move_out()?,
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// Gives it an object, where it has none.
    pub(super) fn move_out(&self) -> Result<()> {
        // What was begun is cleared before this is tried again: the room may be free by then.
        let was_awaited = self.files().sweeper.is_busy();
        self.with_room(was_awaited, &mut || self.shared().move_out(self.files()), &|| Ok(true))
    }

    /// Tries again once the room of what was removed is free, if it `may_repeat` after the first try;
    /// also where that came free meanwhile, because it `was_awaited` before.
    fn with_room(
        &self,
        was_awaited: bool,
        change: &mut dyn FnMut() -> Result<()>,
        may_repeat: &dyn Fn() -> Result<bool>,
    ) -> Result<()> {
        match change() {
            Err(failure)
                if failure.errno() == Errno::NOSPC
                    && (was_awaited || self.files().sweeper.is_busy())
                    && may_repeat()? =>
            {
                // Also where not all of it could be deleted, of which others hear: the rest gave room
                // back, or the change fails for what it failed for.
                let _ = self.files().sweeper.wait();
                change()
            }
            other => other,
        }
    }

    /// Writes to what is with the metadata, and returns where; nowhere where the bytes are, or now
    /// were moved, elsewhere.
    fn write_inline(
        &self,
        offset: u64,
        data: &[u8],
        at_end: bool,
        clears_set_id: bool,
    ) -> Result<Option<u64>> {
        let shared = self.shared();
        let number = self.number();
        // A reader meanwhile sees the bytes before or after.
        let mut content = shared.change();
        let Content::Inline { bytes, size, .. } = &mut *content else { return Ok(None) };
        let request = Request::Write { number, offset, data, at_end, clears_set_id };
        match self.files().metadata.call(&request)? {
            Reply::Node(node) => {
                let offset = if at_end { node.size - data.len() as u64 } else { offset };
                let end = offset as usize + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[offset as usize..end].copy_from_slice(data);
                *size = node.size;
                // Others may have written in front of it or beside it: what is kept stays as old as
                // it was, and a reader asks again.
                shared.hear(&node);
                Ok(Some(offset))
            }
            Reply::NotHere => {
                drop(content);
                shared.refresh(self.files())?;
                self.move_out()?;
                Ok(None)
            }
            other => Err(unexpected(&other)),
        }
    }

    fn clear_capability(&self) -> Result<()> {
        let request = Request::RemoveXattr { number: self.number(), name: CAPABILITY };
        match self.files().metadata.call(&request) {
            Err(failure) if failure.errno() != Errno::NODATA => Err(failure),
            _ => Ok(()),
        }
    }

    fn clear_set_id(&self) -> Result<()> {
        let changes = Changes { clears_set_id: true, ..Changes::default() };
        let request = Request::Change { number: self.number(), changes };
        self.files().metadata.call(&request).map(drop)
    }
}

/// Has `write` write all; where there is no room for that, about half, and so on, as long as
/// `may_repeat`.
fn as_much_as_fits<T>(
    data: &[u8],
    mut write: impl FnMut(&[u8]) -> Result<T>,
    may_repeat: impl Fn() -> Result<bool>,
) -> Result<(usize, T)> {
    let mut count = data.len();
    loop {
        match write(&data[..count]) {
            Err(failure)
                if failure.errno() == Errno::NOSPC && count > LEAST_BYTES && may_repeat()? =>
            {
                count = (count / 2).next_multiple_of(LEAST_BYTES);
            }
            written => return Ok((count, written?)),
        }
    }
}

fn read_inline(bytes: &[u8], size: u64, offset: u64, buffer: &mut [u8]) -> usize {
    let remaining = size.saturating_sub(offset);
    let count = buffer.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
    let buffer = &mut buffer[..count];
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let kept = count.min(bytes.len() - start);
    buffer[..kept].copy_from_slice(&bytes[start..start + kept]);
    buffer[kept..].fill(0);
    count
}
