// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names: finding, making, removing, renaming.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dev, FileType, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;
use rustix::path::DecInt;

use super::Mirror;
use super::attributes::attributes_of;
use super::nodes::Node;
use crate::{Entry, Request};

impl Mirror {
    /// Finds a name; the kernel then knows its node once more.
    pub(super) fn lookup(&self, parent: u64, name: &[u8]) -> Result<Entry, Errno> {
        let parent = self.nodes.get(parent)?;
        let parent_file = self.nodes.file(&parent)?;
        self.find(&parent, &parent_file, name)
    }

    pub(super) fn find(
        &self,
        parent: &Arc<Node>,
        parent_file: &OwnedFd,
        name: &[u8],
    ) -> Result<Entry, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(parent_file, name, flags, Mode::empty())?;
        self.entry(file, Some((parent, name)))
    }

    /// The entry of a file that is open as `O_PATH`, and was found in a directory by a name.
    pub(super) fn entry(
        &self,
        file: OwnedFd,
        found: Option<(&Arc<Node>, &[u8])>,
    ) -> Result<Entry, Errno> {
        let stat = rustix::fs::fstat(&file)?;
        let node = self.nodes.remember(file, &stat, found);
        Ok(Entry {
            node: node.number,
            generation: 0,
            attributes: attributes_of(&stat),
            entry_timeout: self.options.entry_timeout,
            attributes_timeout: self.options.attributes_timeout,
        })
    }

    pub(super) fn read_link(&self, node: u64) -> Result<CString, Errno> {
        rustix::fs::readlinkat(&self.file_of(node)?, "", Vec::new())
    }

    pub(super) fn make_link(
        &self,
        request: &Request<'_>,
        name: &[u8],
        target: &[u8],
    ) -> Result<Entry, Errno> {
        let parent = self.file_of(request.node)?;
        rustix::fs::symlinkat(target, &parent, name)?;
        self.find_made(request, name)
    }

    pub(super) fn make_node(
        &self,
        request: &Request<'_>,
        name: &[u8],
        mode: u32,
        device: u32,
    ) -> Result<Entry, Errno> {
        let parent = self.file_of(request.node)?;
        let kind = FileType::from_raw_mode(mode);
        let permissions = Mode::from_raw_mode(mode);
        rustix::fs::mknodat(&parent, name, kind, permissions, Dev::from(device))?;
        self.find_made(request, name)
    }

    pub(super) fn make_directory(
        &self,
        request: &Request<'_>,
        name: &[u8],
        mode: u32,
    ) -> Result<Entry, Errno> {
        let parent = self.file_of(request.node)?;
        rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode))?;
        self.find_made(request, name)
    }

    fn find_made(&self, request: &Request<'_>, name: &[u8]) -> Result<Entry, Errno> {
        let entry = self.lookup(request.node, name)?;
        self.give_away(request, entry)
    }

    /// Gives what was made to the caller, or forgets it.
    pub(super) fn give_away(&self, request: &Request<'_>, entry: Entry) -> Result<Entry, Errno> {
        let given = self.change_owner(request, entry);
        if given.is_err() {
            self.nodes.forget(entry.node, 1);
        }
        given
    }

    fn change_owner(&self, request: &Request<'_>, entry: Entry) -> Result<Entry, Errno> {
        let made = &entry.attributes;
        // Where the directory has the set-group-id bit the group is the directory's already.
        let parent = || rustix::fs::fstat(&self.file_of(request.node)?);
        let keeps_group = made.gid == request.gid || parent()?.st_mode & 0o2000 != 0;
        if made.uid == request.uid && keeps_group {
            return Ok(entry);
        }
        let file = self.file_of(entry.node)?;
        let gid = (!keeps_group).then(|| Gid::from_raw(request.gid));
        let uid = Some(Uid::from_raw(request.uid));
        rustix::fs::chownat(&file, "", uid, gid, AtFlags::EMPTY_PATH)?;
        Ok(Entry { attributes: attributes_of(&rustix::fs::fstat(&file)?), ..entry })
    }

    pub(super) fn unlink(&self, parent: u64, name: &[u8], is_dir: bool) -> Result<(), Errno> {
        let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(&self.file_of(parent)?, name, flags)
    }

    pub(super) fn rename(
        &self,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        flags: u32,
    ) -> Result<(), Errno> {
        let flags = RenameFlags::from_bits_retain(flags);
        let (parent, new_parent) = (self.file_of(parent)?, self.file_of(new_parent)?);
        rustix::fs::renameat_with(&parent, name, &new_parent, new_name, flags)
    }

    pub(super) fn link(&self, target: u64, parent: u64, name: &[u8]) -> Result<Entry, Errno> {
        let (target, parent) = (self.file_of(target)?, self.nodes.get(parent)?);
        let parent_file = self.nodes.file(&parent)?;
        let path = DecInt::from_fd(&target);
        let follow = AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(&self.descriptors, path, &parent_file, name, follow)?;
        self.find(&parent, &parent_file, name)
    }
}
