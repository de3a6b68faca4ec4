// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The three calls of `/dev/fuse` that are neither a read nor a write.
#![allow(unsafe_code, reason = "rustix offers ioctls as unsafe only (docs/adr/0015)")]

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Result;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl, opcode};

/// `FUSE_DEV_IOC_MAGIC` of `linux/fuse.h`.
const GROUP: u8 = 229;
const CLONE: Opcode = opcode::read::<u32>(GROUP, 0);
const BACKING_OPEN: Opcode = opcode::write::<BackingMap>(GROUP, 1);
const BACKING_CLOSE: Opcode = opcode::write::<u32>(GROUP, 2);

/// Makes `fresh`, a newly opened `/dev/fuse`, one more descriptor of the connection of `device`.
pub(crate) fn clone_device(fresh: BorrowedFd<'_>, device: BorrowedFd<'_>) -> Result<()> {
    let number = device.as_raw_fd().cast_unsigned();
    // SAFETY: `FUSE_DEV_IOC_CLONE` reads one `u32`, a descriptor, which is open during the call.
    unsafe { ioctl(fresh, Setter::<CLONE, u32>::new(number)) }
}

/// Registers `file` to be read and written in place of files of the mount; returns its number.
pub(crate) fn open_backing(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Result<i32> {
    let map = BackingMap { descriptor: file.as_raw_fd(), flags: 0, padding: 0 };
    // SAFETY: `BackingOpen` is what `FUSE_DEV_IOC_BACKING_OPEN` takes, see below.
    unsafe { ioctl(device, BackingOpen(map)) }
}

/// Gives back a number of [`open_backing`].
pub(crate) fn close_backing(device: BorrowedFd<'_>, number: i32) -> Result<()> {
    // SAFETY: `FUSE_DEV_IOC_BACKING_CLOSE` reads one `u32`.
    unsafe { ioctl(device, Setter::<BACKING_CLOSE, u32>::new(number.cast_unsigned())) }
}

/// `struct fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    descriptor: i32,
    flags: u32,
    padding: u64,
}

struct BackingOpen(BackingMap);

// SAFETY: the kernel reads one `BackingMap` from the pointer, writes nothing to it, and returns a
// number (fs/fuse/dev.c, `fuse_dev_ioctl_backing_open`).
unsafe impl Ioctl for BackingOpen {
    type Output = i32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        BACKING_OPEN
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(number: IoctlOutput, _: *mut c_void) -> Result<i32> {
        Ok(number)
    }
}
