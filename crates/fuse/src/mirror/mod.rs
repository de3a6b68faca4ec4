// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file system that does nothing: every operation is passed on to a directory.
//!
//! What it costs is what the protocol costs, so it is the yardstick for others.

mod attributes;
mod files;
mod names;
mod nodes;
mod table;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::{
    Entry, FileSystem, FileSystemStatus, InitFlags, Operation, Passthrough, Reply, Request, Wanted,
};
use files::{OpenDirectory, OpenFile};
use nodes::Nodes;
use table::Table;

/// What the kernel may keep of a [`Mirror`], and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorOptions {
    /// How long a name may be believed.
    pub entry_timeout: Duration,
    /// How long attributes may be believed.
    pub attributes_timeout: Duration,
    /// How long it may be believed that there is no such name.
    pub negative_timeout: Duration,
    /// What is in the kernel's cache stays when a file is opened again.
    pub keeps_cache: bool,
    /// The kernel collects writes.
    pub writes_back: bool,
    /// The kernel reads and writes the files of the directory without asking.
    pub passes_through: bool,
}

impl Default for MirrorOptions {
    fn default() -> Self {
        Self {
            entry_timeout: Duration::from_secs(1),
            attributes_timeout: Duration::from_secs(1),
            negative_timeout: Duration::ZERO,
            keeps_cache: false,
            writes_back: false,
            passes_through: false,
        }
    }
}

/// Shows a directory at another place.
///
/// It acts as the process that it runs in, which should be root, and gives what it makes to the
/// caller. Permissions are the kernel's to check: mount with `default_permissions`. The umask of
/// the process should be 0, as the kernel has applied that of the caller. Locks are the kernel's,
/// seen by all callers on the same mount.
///
/// It keeps a descriptor for every directory that the kernel knows, and for other files up to half
/// of what the process may open; beyond that a file is looked for where it was found.
#[derive(Debug)]
pub struct Mirror {
    options: MirrorOptions,
    passthrough: Option<Passthrough>,
    nodes: Nodes,
    files: Table<OpenFile>,
    directories: Table<OpenDirectory>,
    /// `/proc/self/fd`, through which a node is opened for more than finding it.
    descriptors: OwnedFd,
}

impl Mirror {
    /// What to mount a mirror with.
    pub fn wanted(options: &MirrorOptions) -> Wanted {
        let mut wanted = Wanted::default();
        wanted.flags |= InitFlags::ATOMIC_O_TRUNC
            | InitFlags::DO_READDIRPLUS
            | InitFlags::READDIRPLUS_AUTO
            | InitFlags::ASYNC_DIO
            | InitFlags::CACHE_SYMLINKS
            | InitFlags::HANDLE_KILLPRIV_V2
            | InitFlags::NO_EXPORT_SUPPORT;
        if options.writes_back {
            wanted.flags |= InitFlags::WRITEBACK_CACHE;
        }
        if options.passes_through {
            wanted.flags |= InitFlags::PASSTHROUGH;
            wanted.max_stack_depth = 1;
        }
        wanted
    }

    /// Shows `source`. `passthrough` is that of the session, for `passes_through`.
    pub fn open(
        source: &Path,
        options: MirrorOptions,
        passthrough: Option<Passthrough>,
    ) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, source, flags, Mode::empty())?;
        Ok(Self {
            options,
            passthrough: passthrough.filter(|_| options.passes_through),
            nodes: Nodes::new(root)?,
            files: Table::new(1),
            directories: Table::new(1),
            descriptors: rustix::fs::openat(CWD, "/proc/self/fd", flags, Mode::empty())?,
        })
    }

    /// The file of a node, open as `O_PATH`.
    fn file_of(&self, node: u64) -> Result<Arc<OwnedFd>, Errno> {
        self.nodes.file(&self.nodes.get(node)?)
    }

    fn file_system_status(&self, node: u64) -> Result<FileSystemStatus, Errno> {
        let found = rustix::fs::fstatvfs(&self.file_of(node)?)?;
        let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Ok(FileSystemStatus {
            blocks: found.f_blocks,
            blocks_free: found.f_bfree,
            blocks_available: found.f_bavail,
            files: found.f_files,
            files_free: found.f_ffree,
            block_bytes: short(found.f_bsize),
            fragment_bytes: short(found.f_frsize),
            name_bytes_max: short(found.f_namemax),
        })
    }
}

impl FileSystem for Mirror {
    fn handle(&self, request: &Request<'_>, reply: Reply) {
        let node = request.node;
        match request.operation.clone() {
            Operation::Lookup { name } => match self.lookup(node, name) {
                Err(Errno::NOENT) if !self.options.negative_timeout.is_zero() => {
                    reply.entry(&Entry::negative(self.options.negative_timeout));
                }
                found => answer(reply, found, |reply, entry| reply.entry(&entry)),
            },
            Operation::Forget { count } => self.nodes.forget(node, count),
            Operation::BatchForget(forgets) => {
                forgets.for_each(|(node, count)| self.nodes.forget(node, count));
            }
            Operation::GetAttr { handle } => {
                let found = self.attributes(node, handle);
                let timeout = self.options.attributes_timeout;
                answer(reply, found, |reply, found| reply.attributes(&found, timeout));
            }
            Operation::Statx { mask, .. } => {
                answer(reply, self.statx(node, mask), |reply, found| reply.statx(&found));
            }
            Operation::SetAttr(changes) => {
                let changed = self.set_attributes(node, &changes);
                let timeout = self.options.attributes_timeout;
                answer(reply, changed, |reply, found| reply.attributes(&found, timeout));
            }
            Operation::ReadLink => {
                answer(reply, self.read_link(node), |reply, target| reply.data(target.as_bytes()));
            }
            Operation::SymLink { name, target } => {
                let made = self.make_link(request, name, target);
                answer(reply, made, |reply, entry| reply.entry(&entry));
            }
            Operation::MkNod { name, mode, device, .. } => {
                let made = self.make_node(request, name, mode, device);
                answer(reply, made, |reply, entry| reply.entry(&entry));
            }
            Operation::MkDir { name, mode, .. } => {
                let made = self.make_directory(request, name, mode);
                answer(reply, made, |reply, entry| reply.entry(&entry));
            }
            Operation::Unlink { name } => done(reply, self.unlink(node, name, false)),
            Operation::RmDir { name } => done(reply, self.unlink(node, name, true)),
            Operation::Rename { name, new_parent, new_name, flags } => {
                done(reply, self.rename(node, name, new_parent, new_name, flags));
            }
            Operation::Link { target, new_name } => {
                let linked = self.link(target, node, new_name);
                answer(reply, linked, |reply, entry| reply.entry(&entry));
            }
            Operation::Open { flags, kills_suid_sgid } => {
                self.open_file(node, flags, kills_suid_sgid, reply);
            }
            Operation::Create { name, flags, mode, kills_suid_sgid, .. } => {
                self.create_file(request, name, flags, mode, kills_suid_sgid, reply);
            }
            Operation::TmpFile { flags, mode, .. } => {
                self.create_unnamed(request, flags, mode, reply);
            }
            Operation::Read { handle, offset, bytes, .. } => {
                self.read(handle, offset, bytes, reply);
            }
            Operation::Write { handle, offset, data, kills_suid_sgid, .. } => {
                let written = self.write(handle, offset, data, kills_suid_sgid);
                answer(reply, written, |reply, bytes| reply.written(bytes));
            }
            Operation::StatFs => {
                let found = self.file_system_status(node);
                answer(reply, found, |reply, status| reply.file_system_status(&status));
            }
            Operation::Release { handle, .. } => {
                self.files.remove(handle);
                reply.empty();
            }
            Operation::Fsync { handle, is_data_only } => {
                done(reply, self.sync_file(handle, is_data_only));
            }
            Operation::SetXattr { name, value, flags, .. } => {
                done(reply, self.set_xattr(node, name, value, flags));
            }
            Operation::GetXattr { name, bytes } => self.xattr(node, Some(name), bytes, reply),
            Operation::ListXattr { bytes } => self.xattr(node, None, bytes, reply),
            Operation::RemoveXattr { name } => done(reply, self.remove_xattr(node, name)),
            Operation::OpenDir { .. } => {
                answer(reply, self.open_directory(node), |reply, opened| reply.opened(&opened));
            }
            Operation::ReadDir { handle, offset, bytes } => {
                let read = self.read_directory(handle, offset, bytes);
                answer(reply, read, |reply, entries| reply.directory(&entries));
            }
            Operation::ReadDirPlus { handle, offset, bytes } => {
                let read = self.read_directory_plus(node, handle, offset, bytes);
                answer(reply, read, |reply, entries| reply.directory(&entries));
            }
            Operation::ReleaseDir { handle } => {
                self.directories.remove(handle);
                reply.empty();
            }
            Operation::FsyncDir { handle, is_data_only } => {
                done(reply, self.sync_directory(handle, is_data_only));
            }
            Operation::SyncFs => done(reply, self.sync_file_system(node)),
            Operation::Fallocate { handle, offset, length, mode } => {
                done(reply, self.allocate(handle, offset, length, mode));
            }
            Operation::Seek { handle, offset, whence } => {
                let found = self.seek(handle, offset, whence);
                answer(reply, found, |reply, offset| reply.offset(offset));
            }
            Operation::CopyFileRange(range) => {
                answer(reply, self.copy(&range), |reply, bytes| reply.copied(bytes));
            }
            // The kernel then does without, and does not ask again: closing needs no work, what
            // may be done is checked by it, and locks it keeps itself.
            _ => reply.error(Errno::NOSYS),
        }
    }

    fn interrupt(&self, _: u64) {
        // No operation waits for anything but the directory below.
    }

    fn unmounted(&self) {}
}

fn answer<T>(reply: Reply, result: Result<T, Errno>, send: impl FnOnce(Reply, T)) {
    match result {
        Ok(value) => send(reply, value),
        Err(errno) => reply.error(errno),
    }
}

fn done(reply: Reply, result: Result<(), Errno>) {
    answer(reply, result, |reply, ()| reply.empty());
}
