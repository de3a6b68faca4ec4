// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks that are held here, by node: each write asks whether there is one of its own, and others may
//! be many.

use std::collections::HashMap;

use terrace_fs::{Locked, OwnLocks};

/// Node, owner, and whether it is of `flock`.
pub(super) type Whose = (u64, u64, bool);

/// What is held; nothing of a node, or by an owner, that holds no range.
#[derive(Default)]
pub(super) struct Locks(HashMap<u64, HashMap<(u64, bool), OwnLocks>>);

impl Locks {
    /// Takes note of a lock that was taken, changed or given back.
    pub(super) fn set(&mut self, (number, owner, is_flock): Whose, locked: &Locked) {
        let of_node = self.0.entry(number).or_default();
        let own = of_node.entry((owner, is_flock)).or_default();
        own.set(locked);
        if own.is_empty() {
            of_node.remove(&(owner, is_flock));
        }
        if of_node.is_empty() {
            self.0.remove(&number);
        }
    }

    /// Whether anybody holds any of a node.
    pub(super) fn is_locked(&self, number: u64) -> bool {
        self.0.contains_key(&number)
    }

    /// All that is held: of one owner ranges that do not meet.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Whose, Locked)> {
        self.0.iter().flat_map(|(number, of_node)| {
            of_node.iter().flat_map(move |((owner, is_flock), own)| {
                own.iter().map(move |locked| ((*number, *owner, *is_flock), locked))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::Random;
    use terrace_fs::{LockKind, LockRange};

    use super::*;

    /// The same in one list that is gone through from end to end: a byte an entry.
    #[derive(Default)]
    struct Linear(Vec<(Whose, u64, LockKind)>);

    impl Linear {
        fn set(&mut self, whose: Whose, LockRange { start, end, kind }: LockRange) {
            self.0.retain(|(of, byte, _)| *of != whose || !(start..=end).contains(byte));
            if kind != LockKind::Unlock {
                self.0.extend((start..=end).map(|byte| (whose, byte, kind)));
            }
        }

        fn is_locked(&self, number: u64) -> bool {
            self.0.iter().any(|((of, ..), ..)| *of == number)
        }

        fn bytes(&self) -> Vec<(Whose, u64, bool)> {
            in_order(self.0.iter().map(|(whose, byte, kind)| (*whose, *byte, *kind)))
        }
    }

    fn in_order(bytes: impl Iterator<Item = (Whose, u64, LockKind)>) -> Vec<(Whose, u64, bool)> {
        let mut bytes: Vec<_> =
            bytes.map(|(whose, byte, kind)| (whose, byte, kind == LockKind::Write)).collect();
        bytes.sort_unstable();
        bytes
    }

    #[test]
    fn what_is_locked_is_the_same_as_in_one_list() {
        const NODES: u64 = 4;
        const BYTES: u64 = 12;
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let (mut locks, mut linear) = (Locks::default(), Linear::default());
            for step in 0..300 {
                let whose = (random.below(NODES), random.below(3), random.below(2) == 0);
                let start = random.below(BYTES);
                let end = start + random.below(BYTES - start);
                let kinds = [LockKind::Read, LockKind::Write, LockKind::Unlock, LockKind::Unlock];
                let kind = kinds[random.below(4) as usize];
                // Often all of it, so that nodes are free again.
                let (start, end) = match kind == LockKind::Unlock && random.below(2) == 0 {
                    true => (0, BYTES),
                    false => (start, end),
                };
                let range = LockRange { start, end, kind };
                locks.set(whose, &Locked { range, process: 1 });
                linear.set(whose, range);
                for number in 0..NODES {
                    let expected = linear.is_locked(number);
                    assert_eq!(locks.is_locked(number), expected, "{seed} {step} {number}");
                }
                let held = locks.iter().flat_map(|(whose, Locked { range, .. })| {
                    (range.start..=range.end).map(move |byte| (whose, byte, range.kind))
                });
                assert_eq!(in_order(held), linear.bytes(), "{seed} {step}");
            }
        }
    }
}
