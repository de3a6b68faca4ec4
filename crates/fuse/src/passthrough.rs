// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that the kernel reads and writes in place of those of the mount.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Weak};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::device::Device;
use crate::ioctls;

/// Registers files with the kernel, which then reads and writes them without asking.
#[derive(Clone, Debug)]
pub struct Passthrough {
    device: Weak<Device>,
}

impl Passthrough {
    pub(crate) fn new(device: &Arc<Device>) -> Self {
        Self { device: Arc::downgrade(device) }
    }

    /// Registers `file`, which may be closed afterwards.
    ///
    /// Writes through the mount clear set-id bits of `file`, whatever process writes: the kernel
    /// does not ask the file system to, and writes with the rights of this call.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SYS_ADMIN`, `ELOOP` where `file` itself is on a stacked file system,
    /// `EOPNOTSUPP` where its file system cannot, `ENOTCONN` after the session.
    pub fn open(&self, file: BorrowedFd<'_>) -> io::Result<BackingId> {
        let device = self.device.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        let number = without_fsetid(|| ioctls::open_backing(device.as_fd(), file))?;
        Ok(BackingId { device: Weak::clone(&self.device), number })
    }

    /// Why the kernel can pass through no file of a directory; `None` where it can, or where that cannot be tried.
    pub fn refusal(&self, directory: &Path) -> Option<String> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR).ok()?;
        let error = self.open(file.as_fd()).err()?;
        Some(match Errno::from_io_error(&error) {
            Some(Errno::LOOP) => "it is on overlayfs or another stacked file system".into(),
            Some(Errno::PERM) => "the kernel does that for root alone (CAP_SYS_ADMIN)".into(),
            _ => error.to_string(),
        })
    }
}

/// Runs `act` in this thread without the right to leave set-id bits on what is written.
fn without_fsetid<T>(act: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let sets = rustix::thread::capabilities(None)?;
    let effective = sets.effective - CapabilitySet::FSETID;
    rustix::thread::set_capabilities(None, CapabilitySets { effective, ..sets })?;
    let result = act();
    // What is permitted can always be made effective again.
    rustix::thread::set_capabilities(None, sets)?;
    result
}

/// A registered file. Dropping it takes back the registration; files that were opened with it
/// keep what they have.
#[derive(Debug)]
pub struct BackingId {
    device: Weak<Device>,
    pub(crate) number: i32,
}

impl Drop for BackingId {
    fn drop(&mut self) {
        if let Some(device) = self.device.upgrade() {
            // Fails only where the connection has ended, and all registrations with it.
            let _ = ioctls::close_backing(device.as_fd(), self.number);
        }
    }
}
