// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Structs of `linux/fuse.h` as bytes.

use std::time::Duration;

use crate::answer::{Attributes, Entry, FileSystemStatus, Opened, StatxAnswer};
use crate::flags::OpenedFlags;
use crate::request::{Lock, LockKind};

/// `STATX_BASIC_STATS` and `STATX_BTIME` of `linux/stat.h`.
const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

pub(crate) const ENTRY_BYTES: usize = 128;

pub(crate) const HEADER_BYTES: usize = 16;

/// A struct of `N` bytes that is filled from its beginning. Padding is what is never written.
#[derive(Debug)]
pub(crate) struct Record<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Record<N> {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; N], length: 0 }
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.put(&value.to_ne_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_ne_bytes())
    }

    pub(crate) fn i32(&mut self, value: i32) -> &mut Self {
        self.put(&value.to_ne_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_ne_bytes())
    }

    pub(crate) fn i64(&mut self, value: i64) -> &mut Self {
        self.put(&value.to_ne_bytes())
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
        self
    }

    /// The struct, with zeros where nothing was put.
    pub(crate) fn bytes(&self) -> &[u8; N] {
        &self.bytes
    }

    fn attributes(&mut self, attributes: &Attributes) -> &mut Self {
        self.u64(attributes.inode)
            .u64(attributes.size_bytes)
            .u64(attributes.blocks)
            .i64(attributes.accessed.seconds)
            .i64(attributes.modified.seconds)
            .i64(attributes.changed.seconds)
            .u32(attributes.accessed.nanoseconds)
            .u32(attributes.modified.nanoseconds)
            .u32(attributes.changed.nanoseconds)
            .u32(attributes.mode)
            .u32(attributes.links)
            .u32(attributes.uid)
            .u32(attributes.gid)
            .u32(attributes.device)
            .u32(attributes.block_bytes)
            .u32(0)
    }
}

/// `struct fuse_out_header`.
pub(crate) fn header(length: u32, error: i32, unique: u64) -> Record<HEADER_BYTES> {
    let mut record = Record::new();
    record.u32(length).i32(error).u64(unique);
    record
}

/// `struct fuse_entry_out`.
pub(crate) fn entry(entry: &Entry) -> Record<ENTRY_BYTES> {
    let mut record = Record::new();
    record
        .u64(entry.node)
        .u64(entry.generation)
        .u64(entry.entry_timeout.as_secs())
        .u64(entry.attributes_timeout.as_secs())
        .u32(entry.entry_timeout.subsec_nanos())
        .u32(entry.attributes_timeout.subsec_nanos())
        .attributes(&entry.attributes);
    record
}

/// `struct fuse_attr_out`.
pub(crate) fn attributes(attributes: &Attributes, timeout: Duration) -> Record<104> {
    let mut record = Record::new();
    record.u64(timeout.as_secs()).u32(timeout.subsec_nanos()).u32(0).attributes(attributes);
    record
}

/// `struct fuse_open_out`.
pub(crate) fn opened(opened: &Opened<'_>) -> Record<16> {
    let mut flags = opened.flags;
    if opened.backing.is_some() {
        flags = (flags & OpenedFlags::WITH_PASSTHROUGH) | OpenedFlags::PASSTHROUGH;
    }
    let mut record = Record::new();
    record.u64(opened.handle).u32(flags.0).i32(opened.backing.map_or(0, |backing| backing.number));
    record
}

/// `struct fuse_statfs_out`.
pub(crate) fn file_system_status(status: &FileSystemStatus) -> Record<80> {
    let fragment_bytes = match status.fragment_bytes {
        0 => status.block_bytes,
        bytes => bytes,
    };
    let mut record = Record::new();
    record
        .u64(status.blocks)
        .u64(status.blocks_free)
        .u64(status.blocks_available)
        .u64(status.files)
        .u64(status.files_free)
        .u32(status.block_bytes)
        .u32(status.name_bytes_max)
        .u32(fragment_bytes);
    record
}

/// `struct fuse_lk_out`.
pub(crate) fn lock(lock: &Lock) -> Record<24> {
    let kind = match lock.kind {
        LockKind::Read => 0,
        LockKind::Write => 1,
        LockKind::Unlock => 2,
    };
    let mut record = Record::new();
    record.u64(lock.start).u64(lock.end).u32(kind).u32(lock.pid);
    record
}

/// `struct fuse_statx_out`.
pub(crate) fn statx(answer: &StatxAnswer) -> Record<288> {
    let attributes = &answer.attributes;
    let created = answer.created.unwrap_or_default();
    let mask = STATX_BASIC_STATS | answer.created.map_or(0, |_| STATX_BTIME);
    // The kernel's `new_encode_dev`, taken apart again.
    let major = (attributes.device >> 8) & 0xfff;
    let minor = (attributes.device & 0xff) | ((attributes.device >> 12) & 0xfff00);
    let mut record = Record::new();
    record
        .u64(answer.timeout.as_secs())
        .u32(answer.timeout.subsec_nanos())
        .u32(0)
        .u64(0)
        .u64(0)
        .u32(mask)
        .u32(attributes.block_bytes)
        .u64(0)
        .u32(attributes.links)
        .u32(attributes.uid)
        .u32(attributes.gid)
        // Kinds and permissions are the lower half of a mode.
        .u16((attributes.mode & 0xffff) as u16)
        .u16(0)
        .u64(attributes.inode)
        .u64(attributes.size_bytes)
        .u64(attributes.blocks)
        .u64(0);
    for time in [attributes.accessed, created, attributes.changed, attributes.modified] {
        record.i64(time.seconds).u32(time.nanoseconds).u32(0);
    }
    record.u32(major).u32(minor);
    record
}
