// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bytes of a tier: never more than its capacity.

use std::sync::atomic::{AtomicU64, Ordering};

/// What bytes on a tier are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Primaries.
    Used,
    /// Promised to growing objects and running migrations.
    Reserved,
    /// Clean copies.
    Copy,
    /// Superseded and not yet deleted.
    Garbage,
    /// Of versions: superseded or deleted, and kept for a time.
    Kept,
}

/// Accounts for a tier's bytes. Bytes enter with [`Account::take`], change their class with
/// [`Account::turn`] and leave with [`Account::free`]; their sum exceeds the limit of `take` only
/// while bytes leave.
#[derive(Debug, Default)]
pub(crate) struct Account {
    taken: AtomicU64,
    classes: [AtomicU64; 5],
}

impl Account {
    /// Takes `bytes` if no more than `limit_bytes` are taken then.
    pub(crate) fn take(&self, class: Class, bytes: u64, limit_bytes: u64) -> bool {
        let fits = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= limit_bytes);
        let taken = self.taken.fetch_update(Ordering::AcqRel, Ordering::Relaxed, fits).is_ok();
        if taken {
            self.of(class).fetch_add(bytes, Ordering::AcqRel);
        }
        taken
    }

    /// Takes `bytes` that are on the medium already, whatever the limit.
    pub(crate) fn found(&self, class: Class, bytes: u64) {
        self.taken.fetch_add(bytes, Ordering::AcqRel);
        self.of(class).fetch_add(bytes, Ordering::AcqRel);
    }

    /// Changes the class of bytes.
    pub(crate) fn turn(&self, from: Class, to: Class, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.of(to).fetch_add(bytes, Ordering::AcqRel);
        self.of(from).fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Gives bytes back. A thread that finds none of a class any more finds their room.
    pub(crate) fn free(&self, class: Class, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.taken.fetch_sub(bytes, Ordering::AcqRel);
        self.of(class).fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Bytes of a class now.
    pub(crate) fn bytes(&self, class: Class) -> u64 {
        self.of(class).load(Ordering::Acquire)
    }

    /// All bytes now.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Acquire)
    }

    fn of(&self, class: Class) -> &AtomicU64 {
        &self.classes[class as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_never_takes_more_than_its_limit() {
        let account = Account::default();
        assert!(account.take(Class::Reserved, 60, 100));
        assert!(!account.take(Class::Used, 41, 100));
        assert!(!account.take(Class::Used, u64::MAX, 100));
        account.turn(Class::Reserved, Class::Used, 60);
        account.turn(Class::Used, Class::Garbage, 20);
        assert_eq!([Class::Used, Class::Garbage].map(|class| account.bytes(class)), [40, 20]);
        account.free(Class::Garbage, 20);
        assert_eq!(account.taken(), 40);
    }
}
