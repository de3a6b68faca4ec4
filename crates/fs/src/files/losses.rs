// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is lost of files and directories that are open, for each who has one open to hear of it once.
//!
//! As Linux has it of its own file systems (`errseq_t`): who opens a file after somebody heard of a loss
//! hears of that one no more, who had it open before does, also where others heard of it first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use terrace_core::{Error, ErrorKind};

use crate::failure::{Failure, Result};
use crate::lock;
use crate::metadata::Metadata;

/// Losses by the number of the node, as long as somebody has that open.
#[derive(Default)]
pub(super) struct Losses {
    open: Mutex<HashMap<u64, Weak<Mutex<u64>>>>,
}

impl Losses {
    /// For one who opens a node.
    pub(super) fn open(self: &Arc<Self>, number: u64) -> Heard {
        let mut open = lock(&self.open);
        let known = open.get(&number).and_then(Weak::upgrade);
        let count = known.unwrap_or_default();
        open.insert(number, Arc::downgrade(&count));
        drop(open);
        let heard = AtomicU64::new(*lock(&count));
        Heard { number, losses: Arc::clone(self), count, heard }
    }
}

/// Which losses one who has a node open has heard of.
pub struct Heard {
    number: u64,
    losses: Arc<Losses>,
    /// How many there were since anybody opened it. Locked from when one is found until it is counted,
    /// so that nobody finds nothing before it counts.
    count: Arc<Mutex<u64>>,
    heard: AtomicU64,
}

impl Heard {
    /// Tells of what is lost, as far as a sync found that has ended.
    pub(super) fn tell(&self, metadata: &dyn Metadata) -> Result<()> {
        let mut count = lock(&self.count);
        *count += u64::from(metadata.take_loss(Some(self.number)));
        match self.heard.swap(*count, Ordering::AcqRel) < *count {
            true => Err(failure()),
            false => Ok(()),
        }
    }
}

impl Heard {
    /// Counts a loss that was found otherwise, which whoever found it tells his user of.
    pub(super) fn count(&self) {
        *lock(&self.count) += 1;
    }

    /// The same where he hears of it in another way.
    pub(super) fn count_for_others(&self) {
        let mut count = lock(&self.count);
        *count += 1;
        self.heard.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        let mut open = lock(&self.losses.open);
        // Nobody else finds it while that is locked.
        if Arc::strong_count(&self.count) == 1 {
            open.remove(&self.number);
        }
    }
}

/// What whoever hears of a loss is told.
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
    fn who_hears_of_a_loss_otherwise_does_not_hear_of_it_again() {
        let (losses, metadata) = (Arc::new(Losses::default()), Losing(AtomicU64::new(0)));
        let (first, second) = (losses.open(7), losses.open(7));
        first.count_for_others();
        first.tell(&metadata).expect("it was told");
        second.tell(&metadata).expect_err("it was not told");
        second.tell(&metadata).expect("it was told");
        second.count();
        first.count_for_others();
        first.tell(&metadata).expect_err("of the other one it was not told");
    }

    #[test]
    fn what_nobody_has_open_is_not_remembered() {
        let losses = Arc::new(Losses::default());
        let (first, second) = (losses.open(7), losses.open(7));
        drop(first);
        assert_eq!(lock(&losses.open).len(), 1);
        drop(second);
        assert!(lock(&losses.open).is_empty());
    }
}
