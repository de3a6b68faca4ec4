// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory for payloads, bounded over all connections.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace_core::{Error, ErrorKind, Result};

/// How many bytes connections may hold together.
pub(crate) struct Buffers {
    free_bytes: Mutex<usize>,
    returned: Condvar,
    bytes_max: usize,
    wait_max: Duration,
}

/// A part of it, given back when this is dropped.
pub(crate) struct Room {
    buffers: Arc<Buffers>,
    bytes: usize,
}

impl Buffers {
    pub(crate) fn new(bytes_max: usize, wait_max: Duration) -> Self {
        Self { free_bytes: Mutex::new(bytes_max), returned: Condvar::new(), bytes_max, wait_max }
    }

    /// Waits for room, for a while.
    ///
    /// # Errors
    ///
    /// `Busy` where others hold it for too long, `Invalid` for more than there is at all.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Result<Room> {
        if bytes > self.bytes_max {
            return Err(Error::invalid("serve a request", "it needs more memory than there is")
                .with("bytes", bytes)
                .with("bytes_max", self.bytes_max));
        }
        let is_full = |free: &mut usize| *free < bytes;
        let (mut free, waited) = self
            .returned
            .wait_timeout_while(self.free(), self.wait_max, is_full)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() && *free < bytes {
            return Err(Error::new(ErrorKind::Busy, "serve a request")
                .because("other requests use the memory for payloads")
                .with("bytes", bytes)
                .with("bytes_max", self.bytes_max));
        }
        *free -= bytes;
        drop(free);
        Ok(Room { buffers: Arc::clone(self), bytes })
    }

    fn free(&self) -> MutexGuard<'_, usize> {
        self.free_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        *self.buffers.free() += self.bytes;
        self.buffers.returned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_comes_back() {
        let buffers = Arc::new(Buffers::new(10, Duration::from_millis(1)));
        let room = buffers.take(8).expect("free");
        assert_eq!(buffers.take(3).err().expect("full").kind(), ErrorKind::Busy);
        drop(room);
        let _room = buffers.take(10).expect("free again");
        assert_eq!(buffers.take(11).err().expect("too much").kind(), ErrorKind::Invalid);
    }
}
