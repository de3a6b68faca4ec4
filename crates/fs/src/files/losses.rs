// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is lost of files and directories that are open; each handle returns it once.
//!
//! As Linux has it of its own file systems (`errseq_t`): a file that is opened after a loss was returned
//! does not return that one any more; a handle that was open before does, also where others returned it first. An
//! unreported loss is returned to the next opener, also where the file was not open meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use terrace_core::{Error, ErrorKind};

use crate::failure::{Failure, Result};
use crate::lock;
use crate::metadata::Metadata;

/// Bounds the nodes that are not open and have an unreported loss: those with the
/// greatest numbers, which are the newest.
const UNHEARD_MAX: usize = 65_536;

/// Losses by the number of the node, as long as that is open, or one is unreported.
#[derive(Default)]
pub(super) struct Losses {
    nodes: Mutex<Nodes>,
}

#[derive(Default)]
struct Nodes {
    open: HashMap<u64, Weak<Mutex<Count>>>,
    /// Of those that are not open.
    unheard: BTreeMap<u64, Count>,
}

/// The losses of a node.
#[derive(Clone, Copy, Default)]
struct Count {
    known: u64,
    /// So many of the first of them were returned.
    heard: u64,
}

impl Losses {
    /// For a new handle of a node.
    pub(super) fn open(self: &Arc<Self>, number: u64) -> Heard {
        let mut nodes = lock(&self.nodes);
        let known = nodes.open.get(&number).and_then(Weak::upgrade);
        let count = known.unwrap_or_else(|| {
            let count = Arc::new(Mutex::new(nodes.unheard.remove(&number).unwrap_or_default()));
            nodes.open.insert(number, Arc::downgrade(&count));
            count
        });
        drop(nodes);
        let heard = AtomicU64::new(lock(&count).heard);
        Heard { number, losses: Arc::clone(self), count, heard }
    }
}

/// The losses that a handle of a node has returned.
pub struct Heard {
    number: u64,
    losses: Arc<Losses>,
    /// Locked from when one is found until it is counted, so that no sync succeeds before it counts.
    count: Arc<Mutex<Count>>,
    heard: AtomicU64,
}

impl Heard {
    /// Tells of what is lost, as far as a sync found that has ended.
    pub(super) fn tell(&self, metadata: &dyn Metadata) -> Result<()> {
        let mut count = lock(&self.count);
        count.known += u64::from(metadata.take_loss(Some(self.number)));
        count.heard = count.known;
        match self.heard.swap(count.known, Ordering::AcqRel) < count.known {
            true => Err(failure()),
            false => Ok(()),
        }
    }

    /// Counts a loss that was found otherwise.
    pub(super) fn count(&self) {
        lock(&self.count).known += 1;
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        let mut nodes = lock(&self.losses.nodes);
        // While these are locked: no other thread finds it, and of two that drop it one is the last.
        if let Ok(count) = Arc::try_unwrap(mem::take(&mut self.count)) {
            nodes.open.remove(&self.number);
            let count = count.into_inner().unwrap_or_else(PoisonError::into_inner);
            if count.heard < count.known {
                nodes.unheard.insert(self.number, count);
                if nodes.unheard.len() > UNHEARD_MAX {
                    nodes.unheard.pop_first();
                }
            }
        }
    }
}

/// What the caller gets of a loss.
pub(super) fn failure() -> Failure {
    Error::new(ErrorKind::Io, "sync")
        .because(
            "since this was changed a server was started anew, or what was put off could not be done: \
             changes may be lost; make them again",
        )
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Reply, Request};

    /// Metadata that lost something so many times.
    struct Losing(AtomicU64);

    impl Metadata for Losing {
        fn call(&self, _: &Request<'_>) -> Result<Reply> {
            Ok(Reply::Done)
        }

        fn take_loss(&self, of: Option<u64>) -> bool {
            assert_eq!(of, Some(7));
            let less = |left: u64| left.checked_sub(1);
            self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
        }
    }

    #[test]
    fn each_who_had_it_open_hears_of_a_loss_once() {
        let (losses, metadata) = (Arc::new(Losses::default()), Losing(AtomicU64::new(1)));
        let (first, second) = (losses.open(7), losses.open(7));
        first.tell(&metadata).expect_err("it is found");
        let third = losses.open(7);
        third.tell(&metadata).expect("it was opened after somebody heard of it");
        first.tell(&metadata).expect("it was told");
        second.tell(&metadata).expect_err("it was not told");
        second.tell(&metadata).expect("it was told");
        metadata.0.store(1, Ordering::Release);
        for heard in [&first, &second, &third] {
            heard.tell(&metadata).expect_err("one more");
            heard.tell(&metadata).expect("it was told");
        }
    }

    #[test]
    fn what_nobody_heard_of_the_next_one_does() {
        let (losses, metadata) = (Arc::new(Losses::default()), Losing(AtomicU64::new(0)));
        let first = losses.open(7);
        first.count();
        let second = losses.open(7);
        drop(first);
        drop(second);
        let third = losses.open(7);
        third.tell(&metadata).expect_err("nobody heard of it");
        third.tell(&metadata).expect("it was told");
        third.count();
        let fourth = losses.open(7);
        third.tell(&metadata).expect_err("one more");
        fourth.tell(&metadata).expect_err("it was open before anybody heard");
        losses.open(7).tell(&metadata).expect("others heard of it");
    }

    #[test]
    fn what_nobody_has_open_is_not_remembered_once_somebody_heard() {
        let losses = Arc::new(Losses::default());
        let (first, second) = (losses.open(7), losses.open(7));
        drop(first);
        assert_eq!(lock(&losses.nodes).open.len(), 1);
        second.count();
        second.tell(&Losing(AtomicU64::new(0))).expect_err("it is told");
        drop(second);
        let nodes = lock(&losses.nodes);
        assert!(nodes.open.is_empty() && nodes.unheard.is_empty());
    }
}
