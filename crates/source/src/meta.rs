// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attributes of a file as its source has them, and which of them tell one state of it from another.

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};
use terrace_fuse::{Attributes, Timestamp};

/// A moment: seconds since 1970 in UTC and nanoseconds.
pub type Time = (i64, u32);

/// Attributes of a file as its source has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Inode number. It tells all files of the source apart, also those on file systems mounted below it.
    pub inode: u64,
    /// Kind and permissions.
    pub mode: u32,
    /// Number of names.
    pub links: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Which device, where it is one.
    pub device: u32,
    /// The length.
    pub size_bytes: u64,
    /// Storage that it takes, in units of 512 bytes.
    pub blocks: u64,
    /// A good size for reads.
    pub block_bytes: u32,
    /// When it was last read.
    pub accessed: Time,
    /// When it was last written.
    pub modified: Time,
    /// When its attributes last changed.
    pub changed: Time,
    /// What a bucket calls this state of the object.
    pub etag: Option<String>,
}

impl Meta {
    /// From what the kernel says.
    pub fn of(stat: &Stat) -> Self {
        // Nanoseconds, modes, counts of links and devices are below 2^32 on every Linux.
        Self {
            inode: stat.st_ino,
            mode: stat.st_mode,
            links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
            uid: stat.st_uid,
            gid: stat.st_gid,
            device: stat.st_rdev as u32,
            size_bytes: stat.st_size.cast_unsigned(),
            blocks: stat.st_blocks.cast_unsigned(),
            block_bytes: u32::try_from(stat.st_blksize).unwrap_or(0),
            accessed: (stat.st_atime, stat.st_atime_nsec as u32),
            modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
            changed: (stat.st_ctime, stat.st_ctime_nsec as u32),
            etag: None,
        }
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind() == FileType::RegularFile
    }

    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }

    /// Whether both are of one file with the same bytes, as far as attributes tell. Owner and permissions may differ:
    /// of a bucket they are those of the mount, and a change of a file changes a time.
    ///
    /// A `write` changes the time of modification, and setting that back changes the other one. Two writes do
    /// not: one within the same tick of the clock (`is_modified_within`), and a store to a mapped page
    /// that is dirty already. A store after the page was written back changes the time again.
    pub fn is_same_state(&self, other: &Self) -> bool {
        self.inode == other.inode
            && self.kind() == other.kind()
            && self.size_bytes == other.size_bytes
            && self.modified == other.modified
            && self.changed == other.changed
            && self.etag == other.etag
    }

    /// Whether it is the file or directory that was seen, with the same owner and permissions: the kernel checks them
    /// by what was seen, and the source is asked with the rights of the mount.
    pub(crate) fn admits_as(&self, seen: &Self) -> bool {
        let of = |meta: &Self| (meta.inode, meta.mode, meta.uid, meta.gid);
        of(self) == of(seen)
    }

    /// Whether what the kernel knows as one inode stays one: regular files and links only as long as their bytes do
    /// not change, so that no page of one state is read by a program that opened another, and no link leads where it
    /// led before.
    pub(crate) fn is_same_inode(&self, other: &Self) -> bool {
        let has_bytes =
            |meta: &Self| matches!(meta.kind(), FileType::RegularFile | FileType::Symlink);
        match has_bytes(self) || has_bytes(other) {
            true => self.is_same_state(other),
            false => self.inode == other.inode && self.kind() == other.kind(),
        }
    }

    /// Whether it was modified at most so long before a moment, in nanoseconds since 1970, or after it.
    ///
    /// Clocks of file systems are coarse: a file may be modified again without another time. The tag of an object is
    /// another one for each state, so it was not modified in this sense.
    pub(crate) fn is_modified_within(&self, span_ns: u64, wall_ns: u64) -> bool {
        if self.etag.is_some() {
            return false;
        }
        let (seconds, nanoseconds) = self.modified;
        let modified_ns = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        modified_ns + i128::from(span_ns) > i128::from(wall_ns)
    }

    pub(crate) fn attributes(&self) -> Attributes {
        let time = |(seconds, nanoseconds): Time| Timestamp { seconds, nanoseconds };
        Attributes {
            inode: self.inode,
            mode: self.mode,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            device: self.device,
            size_bytes: self.size_bytes,
            blocks: self.blocks,
            block_bytes: self.block_bytes,
            accessed: time(self.accessed),
            modified: time(self.modified),
            changed: time(self.changed),
        }
    }
}
