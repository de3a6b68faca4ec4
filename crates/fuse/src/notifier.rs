// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a file system tells the kernel without being asked.

use std::io::{self, IoSlice};
use std::sync::{Arc, Weak};

use rustix::io::Errno;

use crate::device::Device;
use crate::record::{HEADER_BYTES, Record, header};

/// `enum fuse_notify_code` of `linux/fuse.h`.
const INVAL_INODE: i32 = 2;
const INVAL_ENTRY: i32 = 3;
const STORE: i32 = 4;
const DELETE: i32 = 6;
/// `FUSE_EXPIRE_ONLY` of `linux/fuse.h`.
const EXPIRE_ONLY: u32 = 1;

/// Tells the kernel that what it has cached is no longer true.
///
/// What the kernel does not know (any more) is no error. A call may wait for requests about the
/// same node or directory, so it must not be made while one of those is being handled.
///
/// # Errors
///
/// `ENOTCONN` after the end of the session or of the mount; `EINVAL` for what makes no sense.
#[derive(Clone, Debug)]
pub struct Notifier {
    device: Weak<Device>,
}

impl Notifier {
    pub(crate) fn new(device: &Arc<Device>) -> Self {
        Self { device: Arc::downgrade(device) }
    }

    /// Attributes of a node have changed, and what it contains from `offset` on for `length`
    /// bytes; 0 means to the end. A negative `offset` means that only attributes have changed.
    pub fn inval_inode(&self, node: u64, offset: i64, length: i64) -> io::Result<()> {
        let mut record = Record::<24>::new();
        record.u64(node).i64(offset).i64(length);
        self.send(INVAL_INODE, &[IoSlice::new(record.bytes())])
    }

    /// A name means something else or nothing any more.
    pub fn inval_entry(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        self.send_entry(parent, name, 0)
    }

    /// A name is to be looked up again when it is next used; what is mounted or open below it
    /// stays. Needs `InitFlags::HAS_EXPIRE_ONLY`.
    pub fn expire_entry(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        self.send_entry(parent, name, EXPIRE_ONLY)
    }

    /// A name that meant `child` was removed; watchers of the directory are notified.
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> io::Result<()> {
        let mut record = Record::<24>::new();
        record.u64(parent).u64(child).u32(length(name)?);
        self.send(DELETE, &[IoSlice::new(record.bytes()), IoSlice::new(name), IoSlice::new(&[0])])
    }

    /// Puts `data` into the kernel's cache of a node.
    pub fn store(&self, node: u64, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut record = Record::<24>::new();
        record.u64(node).u64(offset).u32(length(data)?);
        self.send(STORE, &[IoSlice::new(record.bytes()), IoSlice::new(data)])
    }

    fn send_entry(&self, parent: u64, name: &[u8], flags: u32) -> io::Result<()> {
        let mut record = Record::<16>::new();
        record.u64(parent).u32(length(name)?).u32(flags);
        let parts = [IoSlice::new(record.bytes()), IoSlice::new(name), IoSlice::new(&[0])];
        self.send(INVAL_ENTRY, &parts)
    }

    fn send(&self, code: i32, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let device = self.device.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let length = u32::try_from(HEADER_BYTES + bytes).map_err(|_| Errno::INVAL)?;
        let header = header(length, code, 0);
        let mut message = [IoSlice::new(&[]); 4];
        message[0] = IoSlice::new(header.bytes());
        message[1..=parts.len()].copy_from_slice(parts);
        match device.write(&message[..=parts.len()]) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::NODEV) => Err(io::ErrorKind::NotConnected.into()),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn length(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(|_| Errno::INVAL.into())
}
