// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ends a mount from elsewhere than where it is served.

use std::io;
use std::sync::{Arc, Weak};

use crate::device::Device;
use crate::mount::Mounted;

/// Ends a mount, and with it [`Session::serve`], from another thread.
///
/// Not from a thread that handles a request: the kernel may have to write back first.
///
/// [`Session::serve`]: crate::Session::serve
#[derive(Clone, Debug)]
pub struct Unmounter {
    device: Weak<Device>,
    mounted: Arc<Mounted>,
}

impl Unmounter {
    pub(crate) fn new(device: &Arc<Device>, mounted: Arc<Mounted>) -> Self {
        Self { device: Arc::downgrade(device), mounted }
    }

    /// Unmounts; does nothing where it is unmounted already.
    ///
    /// # Errors
    ///
    /// `EBUSY` where it is in use: nothing has changed then.
    pub fn unmount(&self) -> io::Result<()> {
        self.unmount_unless_gone(false)
    }

    /// Takes the mount out of the tree. Processes that use it still can, and are served until done.
    pub fn unmount_lazily(&self) -> io::Result<()> {
        self.unmount_unless_gone(true)
    }

    fn unmount_unless_gone(&self, is_lazy: bool) -> io::Result<()> {
        // Without a device the session is over, and has unmounted.
        match self.device.upgrade() {
            Some(device) if !device.is_disconnected() => self.mounted.unmount(is_lazy),
            _ => Ok(()),
        }
    }
}
