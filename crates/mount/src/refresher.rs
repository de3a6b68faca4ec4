// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes and locks that are answered once the kernel has dropped what it had cached of their place.
//!
//! Dropping waits for reads of the same pages, which the threads that serve the kernel answer: so
//! none of them waits for it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use terrace_fuse::{Notifier, Reply};

/// Answers them, in the order in which they come.
pub(crate) struct Refresher {
    /// Until the end.
    sender: Option<Sender<Task>>,
    thread: Option<JoinHandle<()>>,
}

/// A place of a file that the kernel is to drop.
#[derive(Clone, Copy)]
pub(crate) struct Stale {
    pub(crate) node: u64,
    pub(crate) offset: u64,
    /// 0 for all behind.
    pub(crate) length: u64,
}

/// What is done behind each other.
enum Task {
    /// The write there is answered with so many bytes once the place is dropped.
    Answer(Stale, u32, Reply),
    /// The lock of this node is answered once all of it is dropped.
    AnswerLock(u64, Reply),
    Refresh(Stale),
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

    /// Has a place dropped, and then the write to it answered.
    pub(crate) fn answer(&self, place: Stale, bytes: u32, reply: Reply) {
        // Without the thread the kernel hears EIO.
        self.send(Task::Answer(place, bytes, reply));
    }

    /// Has everything of a node dropped, and then the lock of it answered.
    pub(crate) fn answer_lock(&self, node: u64, reply: Reply) {
        self.send(Task::AnswerLock(node, reply));
    }

    /// Has a place dropped, of which the kernel may hold pages for writes that are not answered yet.
    pub(crate) fn refresh(&self, place: Stale) {
        self.send(Task::Refresh(place));
    }

    fn send(&self, task: Task) {
        if let Some(sender) = &self.sender {
            let _ = sender.send(task);
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

fn run(notifier: &Notifier, receiver: &Receiver<Task>) {
    for task in receiver {
        match task {
            Task::Answer(place, bytes, reply) => {
                drop_cached(notifier, place);
                reply.written(bytes);
            }
            Task::AnswerLock(node, reply) => {
                drop_cached(notifier, Stale { node, offset: 0, length: 0 });
                reply.empty();
            }
            Task::Refresh(place) => drop_cached(notifier, place),
        }
    }
}

fn drop_cached(notifier: &Notifier, Stale { node, offset, length }: Stale) {
    if let Err(error) = notifier.inval_inode(node, offset as i64, length as i64) {
        tracing::debug!(%error, "cannot tell the kernel that bytes changed");
    }
}
