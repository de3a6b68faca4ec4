// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Making, moving and removing names.

use rustix::io::Errno;
use terrace_fs::{Kind, Made, RenameHow};
use terrace_fuse::{Reply, Request};

use super::{Answering, Front, Result, number_of};

/// Flags of `renameat2(2)`.
const NOREPLACE: u32 = 1;
const EXCHANGE: u32 = 1 << 1;
const WHITEOUT: u32 = 1 << 2;

impl Front {
    pub(super) fn make_link(
        &self,
        request: &Request<'_>,
        name: &[u8],
        target: &[u8],
        reply: &mut Answering,
    ) -> Result<()> {
        let made = Made { target, ..made(request, Kind::Symlink, 0o777, 0) };
        let node = self.files.make(number_of(request.node), name, made)?;
        reply.with(|reply| reply.entry(&self.entry(&node)))
    }

    pub(super) fn make_node(
        &self,
        request: &Request<'_>,
        name: &[u8],
        mode: u32,
        device: u32,
        umask: u32,
        reply: &mut Answering,
    ) -> Result<()> {
        // `mknod` without a kind makes a file.
        let kind = if mode & 0o170_000 == 0 { Some(Kind::File) } else { Kind::from_mode(mode) };
        let kind = kind.ok_or(Errno::INVAL)?;
        let made = Made { device, ..made(request, kind, mode & 0o7777, umask) };
        let node = self.files.make(number_of(request.node), name, made)?;
        self.pin_new(&node);
        if self.is_shared && kind.is_directory() {
            self.aliases.make(request.node, name, node.number);
        }
        reply.with(|reply| reply.entry(&self.entry(&node)))
    }

    pub(super) fn link(
        &self,
        number: u64,
        directory: u64,
        name: &[u8],
        reply: &mut Answering,
    ) -> Result<()> {
        let node = self.files.link(number, directory, name)?;
        reply.with(|reply| reply.entry(&self.entry(&node)))
    }

    pub(super) fn remove(
        &self,
        directory: u64,
        name: &[u8],
        is_directory: bool,
        reply: &mut Answering,
    ) -> Result<()> {
        match self.goes_on && !is_directory {
            true => self.files.remove_later(directory, name)?,
            false => self.files.remove(directory, name, is_directory)?,
        }
        reply.with(Reply::empty)
    }

    pub(super) fn rename(
        &self,
        request: &Request<'_>,
        name: &[u8],
        to: (u64, &[u8]),
        flags: u32,
        reply: &mut Answering,
    ) -> Result<()> {
        if flags & !(NOREPLACE | EXCHANGE | WHITEOUT) != 0 {
            return Err(Errno::INVAL.into());
        }
        let how = RenameHow {
            keeps_existing: flags & NOREPLACE != 0,
            exchanges: flags & EXCHANGE != 0,
            leaves_whiteout: flags & WHITEOUT != 0,
        };
        let ends = [(request.node, name), to];
        let [from, to] = ends.map(|(directory, name)| (number_of(directory), name));
        self.files.rename_keeping(from, to, how, (request.uid, request.gid))?;
        if self.is_shared {
            self.aliases.rename(ends[0], ends[1], how.exchanges);
        }
        reply.with(Reply::empty)
    }

    /// Notes that the kernel has dropped so many references to a node (`FORGET`), by so many names
    /// of it that it got.
    pub(super) fn forget(&self, id: u64, names: u64) {
        let number = number_of(id);
        if self.is_shared {
            let is_known = self.aliases.forget(id, names);
            self.seen.forget(number, names);
            if is_known {
                return;
            }
        }
        // No caller waits for an answer.
        if let Err(failure) = self.files.forget(number) {
            super::log(number, &failure);
        }
    }
}

/// Something that the caller makes.
pub(super) fn made<'a>(
    request: &Request<'_>,
    kind: Kind,
    permissions: u32,
    umask: u32,
) -> Made<'a> {
    Made { kind, permissions, umask, user: request.uid, group: request.gid, ..Made::default() }
}
