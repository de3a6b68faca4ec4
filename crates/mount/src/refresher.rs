// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes and locks that are answered once the kernel has dropped the pages that it cached of their range.
//!
//! To drop a page the kernel waits for reads of it, which the threads that serve the kernel answer: so
//! only some of these wait for it, and a thread of its own where more would have to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;
use terrace_fuse::{Notifier, Reply};

/// How often a full queue is tried again before its thread counts as blocked, and how long apart.
const TRIES_MAX: u32 = 200;
const TRY_PAUSE: Duration = Duration::from_millis(1);

/// Answers them.
pub(crate) struct Refresher {
    notifier: Notifier,
    bounds: Bounds,
    /// Callers that wait for the kernel.
    waiting: AtomicUsize,
    queue: Arc<Queue>,
    /// Until the end.
    sender: Option<Sender<Task>>,
    thread: Option<JoinHandle<()>>,
}

/// How many requests wait at a time. Each may hold one of the kernel's slots for background requests; all
/// together must leave some, because the reads that they wait for may need one.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// Those for which the calling thread waits.
    pub(crate) calling_max: usize,
    /// Those for which the refresher's thread does.
    pub(crate) queued_max: usize,
}

/// State of the queue, shared by the thread and its callers.
#[derive(Default)]
struct Queue {
    /// Answers that wait for their range.
    answers: AtomicUsize,
    /// Whether nothing of a full queue was done for `TRIES_MAX` pauses, and nothing since.
    is_blocked: AtomicBool,
}

/// A range of a file that the kernel is to drop from its cache.
#[derive(Clone, Copy)]
pub(crate) struct Stale {
    pub(crate) node: u64,
    pub(crate) offset: u64,
    /// 0 for everything from `offset` on.
    pub(crate) length: u64,
}

/// How a request is answered.
enum Answer {
    Written(u32),
    Failed(Errno),
    Empty,
}

struct Task {
    range: Stale,
    /// Sent once the range is dropped.
    answer: Option<(Answer, Reply)>,
}

impl Refresher {
    /// # Errors
    ///
    /// Where no thread can be started.
    pub(crate) fn new(notifier: Notifier, bounds: Bounds) -> std::io::Result<Self> {
        let (sender, receiver) = channel();
        let queue = Arc::<Queue>::default();
        let (used, shared) = (notifier.clone(), Arc::clone(&queue));
        let thread = thread::Builder::new().name("mount-refresher".into());
        let thread = thread.spawn(move || run(&used, &receiver, &shared))?;
        let (sender, thread) = (Some(sender), Some(thread));
        Ok(Self { notifier, bounds, waiting: AtomicUsize::new(0), queue, sender, thread })
    }

    /// Has a range dropped, and then the write to it answered.
    pub(crate) fn answer(&self, range: Stale, bytes: u32, reply: Reply) {
        self.wait_for(range, Answer::Written(bytes), reply);
    }

    /// Has a range dropped, and then the write answered that may have changed some of it before it failed.
    pub(crate) fn refuse(&self, range: Stale, errno: Errno, reply: Reply) {
        self.wait_for(range, Answer::Failed(errno), reply);
    }

    /// Has everything of a node dropped, and then the lock of it answered.
    pub(crate) fn answer_lock(&self, node: u64, reply: Reply) {
        self.wait_for(Stale { node, offset: 0, length: 0 }, Answer::Empty, reply);
    }

    /// Has a range dropped, of which the kernel may hold pages for writes that are not answered yet.
    pub(crate) fn refresh(&self, range: Stale) {
        self.send(Task { range, answer: None });
    }

    fn wait_for(&self, range: Stale, answer: Answer, reply: Reply) {
        if enter(&self.waiting, self.bounds.calling_max) {
            // Without a read of the range this returns at once, sooner than another thread would begin.
            drop_cached(&self.notifier, range);
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            answer.send(reply);
        } else if self.queue.enter(self.bounds.queued_max) {
            // Without the thread the kernel gets EIO.
            self.send(Task { range, answer: Some((answer, reply)) });
        } else {
            // The read that the thread waits for may need the slot that this request holds.
            answer.send(reply);
            self.refresh(range);
        }
    }

    fn send(&self, task: Task) {
        if let Some(sender) = &self.sender {
            let _ = sender.send(task);
        }
    }
}

impl Queue {
    /// Takes a place for an answer, and waits for one where all are taken; false where the thread is
    /// blocked.
    fn enter(&self, answers_max: usize) -> bool {
        for _ in 0..TRIES_MAX {
            if enter(&self.answers, answers_max) {
                return true;
            }
            if self.is_blocked.load(Ordering::Acquire) {
                return false;
            }
            thread::park_timeout(TRY_PAUSE);
        }
        self.is_blocked.store(true, Ordering::Release);
        false
    }

    /// Gives a place back.
    fn leave(&self) {
        self.answers.fetch_sub(1, Ordering::AcqRel);
        self.is_blocked.store(false, Ordering::Release);
    }
}

/// Takes one of `max` places; false where all are taken.
fn enter(taken: &AtomicUsize, max: usize) -> bool {
    let more = |taken| (taken < max).then_some(taken + 1);
    taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
}

impl Answer {
    fn send(self, reply: Reply) {
        match self {
            Self::Written(bytes) => reply.written(bytes),
            Self::Failed(errno) => reply.error(errno),
            Self::Empty => reply.empty(),
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

fn run(notifier: &Notifier, receiver: &Receiver<Task>, queue: &Queue) {
    for Task { range, answer } in receiver {
        drop_cached(notifier, range);
        if let Some((answer, reply)) = answer {
            queue.leave();
            answer.send(reply);
        }
    }
}

fn drop_cached(notifier: &Notifier, Stale { node, offset, length }: Stale) {
    if let Err(error) = notifier.inval_inode(node, offset as i64, length as i64) {
        tracing::debug!(%error, "cannot tell the kernel that bytes changed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_waits_until_its_thread_is_blocked() {
        let queue = Arc::<Queue>::default();
        assert!(queue.enter(2) && queue.enter(2));
        thread::scope(|scope| {
            let entered = scope.spawn(|| queue.enter(2));
            queue.leave();
            assert!(entered.join().expect("no panic"), "a place was given back");
        });
        assert!(!queue.enter(2), "no place was given back for long");
        assert!(queue.is_blocked.load(Ordering::Acquire));
        assert!(!queue.enter(2), "at once");
        queue.leave();
        assert!(queue.enter(2), "the thread goes on");
    }
}
