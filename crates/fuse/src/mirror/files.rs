// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open files and directories.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FallocateFlags, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use rustix::path::DecInt;

use super::Mirror;
use super::nodes::Node;
use crate::{
    Attributes, BackingId, CopyFileRange, DirectoryBuffer, Entry, Opened, OpenedFlags, Reply,
    Request,
};

/// Entries are read from below in pieces of this. More costs more than it saves: what the kernel
/// has no room for is read again.
const ENTRIES_BYTES: usize = 8192;
/// Values of `linux/fs.h`.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) file: OwnedFd,
    _node: InUse,
    /// Kept while the file is open, so that all opens of a node have the same.
    _backing: Option<Arc<BackingId>>,
}

/// A node that is open, or about to be: its descriptor stays.
#[derive(Debug)]
struct InUse(Arc<Node>);

impl InUse {
    fn new(node: Arc<Node>) -> Self {
        node.opens.fetch_add(1, Ordering::AcqRel);
        Self(node)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.opens.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Locked from positioning to reading.
#[derive(Debug)]
pub(super) struct OpenDirectory(Mutex<OwnedFd>);

const CACHE_LINE_BYTES: usize = 64;

thread_local! {
    /// What a thread reads into; as long as the longest read that it had to do.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Mirror {
    /// The same file, open for more than finding it.
    pub(super) fn reopen(&self, file: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = DecInt::from_fd(file);
        rustix::fs::openat(&self.descriptors, path, flags | OFlags::CLOEXEC, Mode::empty())
    }

    pub(super) fn open_file(&self, node: u64, flags: u32, kills_set_ids: bool, reply: Reply) {
        let open = || {
            let node = InUse::new(self.nodes.get(node)?);
            let found = self.nodes.file(&node.0)?;
            let file = self.reopen(&found, self.flags_below(flags))?;
            if kills_set_ids {
                self.kill_set_ids(&found)?;
            }
            Ok((file, node))
        };
        match open() {
            Ok((file, node)) => self.with_opened(file, node, |opened| reply.opened(opened)),
            Err(errno) => reply.error(errno),
        }
    }

    pub(super) fn create_file(
        &self,
        request: &Request<'_>,
        name: &[u8],
        flags: u32,
        mode: u32,
        kills_set_ids: bool,
        reply: Reply,
    ) {
        let create = || {
            let parent = self.nodes.get(request.node)?;
            let parent_file = self.nodes.file(&parent)?;
            let flags = self.flags_below(flags) | OFlags::CREATE | OFlags::NOFOLLOW;
            let mode = Mode::from_raw_mode(mode);
            let file = rustix::fs::openat(&parent_file, name, flags, mode)?;
            // The kernel has the directory locked, so that the name is still this file's, unless
            // another process works in the directory below.
            let entry = self.find(&parent, &parent_file, name)?;
            let entry = self.give_away(request, entry)?;
            let node = InUse::new(self.nodes.get(entry.node)?);
            if kills_set_ids {
                self.kill_set_ids(&file)?;
            }
            Ok((file, node, entry))
        };
        self.reply_created(create(), reply);
    }

    pub(super) fn create_unnamed(
        &self,
        request: &Request<'_>,
        flags: u32,
        mode: u32,
        reply: Reply,
    ) {
        let create = || {
            let parent = self.file_of(request.node)?;
            let flags = self.flags_below(flags).difference(OFlags::CREATE) | OFlags::TMPFILE;
            let mode = Mode::from_raw_mode(mode);
            let file = rustix::fs::openat(&parent, ".", flags, mode)?;
            let path = DecInt::from_fd(&file);
            let only_path = OFlags::PATH | OFlags::CLOEXEC;
            let found = rustix::fs::openat(&self.descriptors, path, only_path, Mode::empty())?;
            let entry = self.give_away(request, self.entry(found, None)?)?;
            Ok((file, InUse::new(self.nodes.get(entry.node)?), entry))
        };
        self.reply_created(create(), reply);
    }

    fn reply_created(&self, made: Result<(OwnedFd, InUse, Entry), Errno>, reply: Reply) {
        match made {
            Ok((file, node, entry)) => {
                self.with_opened(file, node, |opened| reply.created(&entry, opened));
            }
            Err(errno) => reply.error(errno),
        }
    }

    /// How a file is opened below.
    fn flags_below(&self, flags: u32) -> OFlags {
        // Direct I/O goes past the kernel's cache of the mount; below, memory is not aligned.
        let mut flags = OFlags::from_bits_retain(flags)
            .difference(OFlags::DIRECT | OFlags::NOFOLLOW)
            .union(OFlags::CLOEXEC);
        if self.options.writes_back {
            // What is written back goes to where it belongs, and parts of pages are read first.
            flags.remove(OFlags::APPEND);
            if flags.contains(OFlags::WRONLY) {
                flags = flags.difference(OFlags::WRONLY) | OFlags::RDWR;
            }
        }
        flags
    }

    /// Remembers an open file, and hands `send` what the kernel gets of it.
    fn with_opened(&self, file: OwnedFd, node: InUse, send: impl FnOnce(&Opened<'_>)) {
        let backing = self.backing(&node.0, &file);
        let handle = self.files.add(OpenFile { file, _node: node, _backing: backing.clone() });
        let flags =
            if self.options.keeps_cache { OpenedFlags::KEEP_CACHE } else { OpenedFlags::NONE };
        send(&Opened { handle, flags, backing: backing.as_deref() });
    }

    /// What the opens of a node are passed through to. Where that cannot be had the kernel asks
    /// for reads and writes, which is slower and not wrong.
    fn backing(&self, node: &Node, file: &OwnedFd) -> Option<Arc<BackingId>> {
        let passthrough = self.passthrough.as_ref()?;
        let mut kept = node.backing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(backing) = kept.upgrade() {
            return Some(backing);
        }
        let backing = Arc::new(passthrough.open(file.as_fd()).ok()?);
        *kept = Arc::downgrade(&backing);
        Some(backing)
    }

    pub(super) fn read(&self, handle: u64, offset: u64, bytes: u32, reply: Reply) {
        let Some(open) = self.files.get(handle) else {
            return reply.error(Errno::BADF);
        };
        BUFFER.with_borrow_mut(|buffer| {
            let bytes = bytes as usize;
            if buffer.len() < bytes + CACHE_LINE_BYTES {
                buffer.resize(bytes + CACHE_LINE_BYTES, 0);
            }
            // Elsewhere some processors copy at a fraction of their rate.
            let start = buffer.as_ptr().align_offset(CACHE_LINE_BYTES);
            let buffer = &mut buffer[start..start + bytes];
            match rustix::io::pread(&open.file, &mut *buffer, offset) {
                Ok(count) => reply.data(&buffer[..count]),
                Err(errno) => reply.error(errno),
            }
        });
    }

    pub(super) fn write(
        &self,
        handle: u64,
        offset: u64,
        data: &[u8],
        kills_set_ids: bool,
    ) -> Result<u32, Errno> {
        let open = self.files.get(handle).ok_or(Errno::BADF)?;
        if kills_set_ids {
            self.kill_set_ids(&open.file)?;
        }
        let mut written = 0;
        while written < data.len() {
            match rustix::io::pwrite(&open.file, &data[written..], offset + written as u64)? {
                0 => return Err(Errno::IO),
                count => written += count,
            }
        }
        Ok(u32::try_from(written).expect("a request is shorter than 4 GiB"))
    }

    pub(super) fn sync_file(&self, handle: u64, is_data_only: bool) -> Result<(), Errno> {
        sync(&self.files.get(handle).ok_or(Errno::BADF)?.file, is_data_only)
    }

    pub(super) fn sync_file_system(&self, node: u64) -> Result<(), Errno> {
        rustix::fs::syncfs(self.reopen(&*self.file_of(node)?, OFlags::RDONLY)?)
    }

    pub(super) fn allocate(
        &self,
        handle: u64,
        offset: u64,
        length: u64,
        mode: u32,
    ) -> Result<(), Errno> {
        let open = self.files.get(handle).ok_or(Errno::BADF)?;
        rustix::fs::fallocate(&open.file, FallocateFlags::from_bits_retain(mode), offset, length)
    }

    pub(super) fn seek(&self, handle: u64, offset: u64, whence: u32) -> Result<u64, Errno> {
        let open = self.files.get(handle).ok_or(Errno::BADF)?;
        let from = match whence {
            SEEK_DATA => SeekFrom::Data(offset),
            SEEK_HOLE => SeekFrom::Hole(offset),
            _ => return Err(Errno::INVAL),
        };
        rustix::fs::seek(&open.file, from)
    }

    pub(super) fn copy(&self, range: &CopyFileRange) -> Result<u64, Errno> {
        if range.flags != 0 {
            return Err(Errno::INVAL);
        }
        let source = self.files.get(range.handle).ok_or(Errno::BADF)?;
        let target = self.files.get(range.target_handle).ok_or(Errno::BADF)?;
        let (mut from, mut to) = (range.offset, range.target_offset);
        let length = usize::try_from(range.length).unwrap_or(usize::MAX);
        let copied = rustix::fs::copy_file_range(
            &source.file,
            Some(&mut from),
            &target.file,
            Some(&mut to),
            length,
        )?;
        Ok(copied as u64)
    }

    pub(super) fn open_directory(&self, node: u64) -> Result<Opened<'static>, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let file = self.reopen(&*self.file_of(node)?, flags)?;
        let handle = self.directories.add(OpenDirectory(Mutex::new(file)));
        Ok(Opened { handle, ..Opened::default() })
    }

    pub(super) fn read_directory(
        &self,
        handle: u64,
        offset: u64,
        bytes: u32,
    ) -> Result<DirectoryBuffer, Errno> {
        let mut entries = DirectoryBuffer::new(bytes);
        self.each_entry(handle, offset, |found| {
            let mode = found.file_type().as_raw_mode();
            let name = found.file_name().to_bytes();
            Ok(entries.add(found.ino(), found.next_entry_cookie(), mode, name))
        })?;
        Ok(entries)
    }

    pub(super) fn read_directory_plus(
        &self,
        node: u64,
        handle: u64,
        offset: u64,
        bytes: u32,
    ) -> Result<DirectoryBuffer, Errno> {
        let parent = self.nodes.get(node)?;
        let parent_file = self.nodes.file(&parent)?;
        let mut entries = DirectoryBuffer::new(bytes);
        let read = self.each_entry(handle, offset, |found| {
            let name = found.file_name().to_bytes();
            if !entries.fits_plus(name) {
                return Ok(false);
            }
            // What was removed since, and what is this or the directory above, has no node.
            let mode = found.file_type().as_raw_mode();
            let attributes = Attributes { inode: found.ino(), mode, ..Attributes::default() };
            let unknown = Entry { attributes, ..Entry::default() };
            let entry = match name {
                b"." | b".." => unknown,
                _ => match self.find(&parent, &parent_file, name) {
                    Err(Errno::NOENT) => unknown,
                    entry => entry?,
                },
            };
            Ok(entries.add_plus(&entry, found.next_entry_cookie(), name))
        });
        // The kernel must learn of inodes that were looked up; the error comes again.
        if entries.is_empty() { read.map(|()| entries) } else { Ok(entries) }
    }

    /// Hands `take` the entries from `offset` on, until it returns false.
    fn each_entry(
        &self,
        handle: u64,
        offset: u64,
        mut take: impl FnMut(&rustix::fs::RawDirEntry<'_>) -> Result<bool, Errno>,
    ) -> Result<(), Errno> {
        let open = self.directories.get(handle).ok_or(Errno::BADF)?;
        let file = open.0.lock().unwrap_or_else(PoisonError::into_inner);
        rustix::fs::seek(&*file, SeekFrom::Start(offset))?;
        let mut space = [MaybeUninit::uninit(); ENTRIES_BYTES];
        let mut entries = RawDir::new(&*file, &mut space);
        while let Some(entry) = entries.next() {
            if !take(&entry?)? {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn sync_directory(&self, handle: u64, is_data_only: bool) -> Result<(), Errno> {
        let open = self.directories.get(handle).ok_or(Errno::BADF)?;
        let file = open.0.lock().unwrap_or_else(PoisonError::into_inner);
        sync(&file, is_data_only)
    }
}

fn sync(file: &OwnedFd, is_data_only: bool) -> Result<(), Errno> {
    if is_data_only { rustix::fs::fdatasync(file) } else { rustix::fs::fsync(file) }
}
