// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attributes, ordinary and extended.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Stat, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid,
    XattrFlags,
};
use rustix::io::Errno;
use rustix::path::DecInt;

use super::Mirror;
use crate::{Attributes, Reply, SetAttr, SetTime, StatxAnswer, Timestamp};

/// Rights that a program has when it is run.
const CAPABILITY: &str = "security.capability";
/// Longest value and longest list of names (`XATTR_SIZE_MAX` of `linux/limits.h`).
const XATTR_BYTES_MAX: u32 = 65536;

impl Mirror {
    pub(super) fn attributes(&self, node: u64, handle: Option<u64>) -> Result<Attributes, Errno> {
        let stat = match handle.and_then(|handle| self.files.get(handle)) {
            Some(open) => rustix::fs::fstat(&open.file)?,
            None => rustix::fs::fstat(&self.file_of(node)?)?,
        };
        Ok(attributes_of(&stat))
    }

    pub(super) fn statx(&self, node: u64, mask: u32) -> Result<StatxAnswer, Errno> {
        let file = self.file_of(node)?;
        let mask = StatxFlags::from_bits_retain(mask) | StatxFlags::BASIC_STATS;
        let found = rustix::fs::statx(&file, "", AtFlags::EMPTY_PATH, mask)?;
        let has_created = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        let created =
            || Timestamp { seconds: found.stx_btime.tv_sec, nanoseconds: found.stx_btime.tv_nsec };
        Ok(StatxAnswer {
            attributes: attributes_of(&rustix::fs::fstat(&file)?),
            created: has_created.then(created),
            timeout: self.options.attributes_timeout,
        })
    }

    pub(super) fn set_attributes(&self, node: u64, changes: &SetAttr) -> Result<Attributes, Errno> {
        let file = self.file_of(node)?;
        if let Some(mode) = changes.mode {
            self.set_mode(&file, mode)?;
        }
        if changes.uid.is_some() || changes.gid.is_some() {
            let uid = changes.uid.map(Uid::from_raw);
            let gid = changes.gid.map(Gid::from_raw);
            rustix::fs::chownat(&file, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(bytes) = changes.size_bytes {
            match changes.handle.and_then(|handle| self.files.get(handle)) {
                Some(open) => rustix::fs::ftruncate(&open.file, bytes)?,
                None => rustix::fs::ftruncate(self.reopen(&file, OFlags::WRONLY)?, bytes)?,
            }
        }
        if changes.accessed.is_some() || changes.modified.is_some() {
            let times = Timestamps {
                last_access: time_to_set(changes.accessed),
                last_modification: time_to_set(changes.modified),
            };
            rustix::fs::utimensat(&file, "", &times, AtFlags::EMPTY_PATH)?;
        }
        if changes.kills_suid_sgid {
            self.kill_set_ids(&file)?;
        }
        Ok(attributes_of(&rustix::fs::fstat(&file)?))
    }

    /// Clears what would let a changed program run with the rights of its owner.
    pub(super) fn kill_set_ids(&self, file: &OwnedFd) -> Result<(), Errno> {
        let mode = rustix::fs::fstat(file)?.st_mode;
        let mut killed = mode & !0o4000;
        // Without the right to run it the bit means something else (mandatory locks).
        if mode & 0o010 != 0 {
            killed &= !0o2000;
        }
        if killed != mode {
            self.set_mode(file, killed)?;
        }
        // A caller that is not root may not remove it, also where it is not there.
        match rustix::fs::getxattr(path_of(file), CAPABILITY, &mut [0; 0]) {
            Ok(_) => rustix::fs::removexattr(path_of(file), CAPABILITY),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn set_mode(&self, file: &OwnedFd, mode: u32) -> Result<(), Errno> {
        let path = DecInt::from_fd(file);
        let mode = Mode::from_raw_mode(mode);
        rustix::fs::chmodat(&self.descriptors, path, mode, AtFlags::empty())
    }

    pub(super) fn set_xattr(
        &self,
        node: u64,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> Result<(), Errno> {
        let file = self.file_of(node)?;
        rustix::fs::setxattr(path_of(&file), name, value, XattrFlags::from_bits_retain(flags))
    }

    /// Answers with a value, or where there is no `name` with the names that there are.
    pub(super) fn xattr(&self, node: u64, name: Option<&[u8]>, bytes: u32, reply: Reply) {
        let mut buffer = vec![0; bytes.min(XATTR_BYTES_MAX) as usize];
        let found = self.file_of(node).and_then(|file| match name {
            Some(name) => rustix::fs::getxattr(path_of(&file), name, &mut *buffer),
            None => rustix::fs::listxattr(path_of(&file), &mut *buffer),
        });
        match found {
            // Room for nothing asks for the length.
            Ok(found) if bytes == 0 => reply.xattr_size(u32::try_from(found).unwrap_or(u32::MAX)),
            Ok(found) => reply.data(&buffer[..found]),
            Err(errno) => reply.error(errno),
        }
    }

    pub(super) fn remove_xattr(&self, node: u64, name: &[u8]) -> Result<(), Errno> {
        rustix::fs::removexattr(path_of(&*self.file_of(node)?), name)
    }
}

/// A path to a file, for calls that take no descriptor that is open as `O_PATH`.
fn path_of(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn time_to_set(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::At(time)) => {
            Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds) }
        }
    }
}

pub(super) fn attributes_of(stat: &Stat) -> Attributes {
    // Nanoseconds, modes, counts of links and devices are below 2^32 on every Linux.
    let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds: nanoseconds as u32 };
    Attributes {
        inode: stat.st_ino,
        mode: stat.st_mode,
        links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        device: stat.st_rdev as u32,
        size_bytes: stat.st_size.cast_unsigned(),
        blocks: stat.st_blocks.cast_unsigned(),
        block_bytes: u32::try_from(stat.st_blksize).unwrap_or(0),
        accessed: time(stat.st_atime, stat.st_atime_nsec),
        modified: time(stat.st_mtime, stat.st_mtime_nsec),
        changed: time(stat.st_ctime, stat.st_ctime_nsec),
    }
}
