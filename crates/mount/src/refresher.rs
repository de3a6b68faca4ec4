// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes that are answered once the kernel has dropped what it had cached of their place.
//!
//! Dropping waits for reads of the same pages, which the threads that serve the kernel answer: so
//! none of them waits for it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use terrace_fuse::{Notifier, Reply};

/// Answers writes, in the order in which they come.
pub(crate) struct Refresher {
    /// Until the end.
    sender: Option<Sender<Written>>,
    thread: Option<JoinHandle<()>>,
}

/// A write that is to be answered.
pub(crate) struct Written {
    pub(crate) node: u64,
    pub(crate) offset: u64,
    /// What the kernel is to drop there; 0 for all behind.
    pub(crate) length: u64,
    /// What is answered.
    pub(crate) bytes: u32,
    pub(crate) reply: Reply,
}

impl Refresher {
    /// # Errors
    ///
    /// Where no thread can be started.
    pub(crate) fn new(notifier: Notifier) -> std::io::Result<Self> {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("mount-refresher".into());
        let thread = thread.spawn(move || run(&notifier, &receiver))?;
        Ok(Self { sender: Some(sender), thread: Some(thread) })
    }

    pub(crate) fn answer(&self, written: Written) {
        if let Some(sender) = &self.sender {
            // Without the thread the kernel hears EIO.
            let _ = sender.send(written);
        }
    }
}

impl Drop for Refresher {
    fn drop(&mut self) {
        self.sender = None;
        // A thread that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn run(notifier: &Notifier, receiver: &Receiver<Written>) {
    for Written { node, offset, length, bytes, reply } in receiver {
        if let Err(error) = notifier.inval_inode(node, offset as i64, length as i64) {
            tracing::debug!(%error, "cannot tell the kernel that bytes changed");
        }
        reply.written(bytes);
    }
}
