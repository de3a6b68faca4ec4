// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connection to the kernel, and the requests on it that are interrupted.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::ioctls;

pub(crate) const PATH: &str = "/dev/fuse";

/// One descriptor of a connection. A request is answered on the one that it was read from.
#[derive(Debug)]
pub(crate) struct Device {
    file: OwnedFd,
    pub(crate) interrupts: Arc<Interrupts>,
}

impl Device {
    pub(crate) fn new(file: OwnedFd) -> Self {
        Self { file, interrupts: Arc::default() }
    }

    /// Another descriptor of the same connection, with a queue of its own in the kernel, so that
    /// two threads do not contend.
    pub(crate) fn another(&self) -> io::Result<Self> {
        let file = rustix::fs::open(PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        ioctls::clone_device(file.as_fd(), self.file.as_fd())?;
        Ok(Self { file, interrupts: Arc::clone(&self.interrupts) })
    }

    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(&self.file, buffer)
    }

    /// Writes one message; the kernel takes all of it or fails.
    pub(crate) fn write(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        rustix::io::writev(&self.file, parts).map(|_| ())
    }

    /// Whether the file system is gone, unmounted or aborted. Does not wait.
    pub(crate) fn is_disconnected(&self) -> bool {
        let mut descriptors = [PollFd::new(&self.file, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let polled = rustix::event::poll(&mut descriptors, Some(&at_once));
        polled.is_ok() && descriptors[0].revents().contains(PollFlags::ERR)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Requests whose callers stopped waiting for them.
///
/// Those that were answered before their interrupt came stay here until newer ones push them out.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    /// Length of `uniques`, so that an answer looks at one word where nothing was interrupted.
    count: AtomicUsize,
    uniques: Mutex<VecDeque<u64>>,
}

/// More than threads of this machine wait at one time: the oldest are late ones, which were
/// answered.
const INTERRUPTS_MAX: usize = 1024;

impl Interrupts {
    pub(crate) fn add(&self, unique: u64) {
        let mut uniques = self.uniques();
        if uniques.contains(&unique) {
            return;
        }
        if uniques.len() == INTERRUPTS_MAX {
            uniques.pop_front();
        }
        uniques.push_back(unique);
        self.count.store(uniques.len(), Ordering::Release);
    }

    pub(crate) fn contains(&self, unique: u64) -> bool {
        self.count.load(Ordering::Acquire) != 0 && self.uniques().contains(&unique)
    }

    pub(crate) fn remove(&self, unique: u64) {
        if self.count.load(Ordering::Acquire) != 0 {
            let mut uniques = self.uniques();
            uniques.retain(|other| *other != unique);
            self.count.store(uniques.len(), Ordering::Release);
        }
    }

    fn uniques(&self) -> MutexGuard<'_, VecDeque<u64>> {
        // Every change is one call of the queue, so that a panic elsewhere leaves it whole.
        self.uniques.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_is_kept_until_the_request_is_answered() {
        let interrupts = Interrupts::default();
        assert!(!interrupts.contains(4));
        interrupts.add(4);
        interrupts.add(4);
        interrupts.add(6);
        assert!(interrupts.contains(4));
        interrupts.remove(4);
        assert!(!interrupts.contains(4));
        assert!(interrupts.contains(6));
    }

    #[test]
    fn late_interrupts_are_bounded_and_the_newest_kept() {
        let interrupts = Interrupts::default();
        for unique in 0..=INTERRUPTS_MAX as u64 {
            interrupts.add(unique);
        }
        assert!(!interrupts.contains(0));
        assert!(interrupts.contains(1));
        assert!(interrupts.contains(INTERRUPTS_MAX as u64));
        assert_eq!(interrupts.uniques().len(), INTERRUPTS_MAX);
    }
}
