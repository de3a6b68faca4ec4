// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects that no file has any more.

use terrace_core::KvRange;

use super::{Tree, discard, find_node};
use crate::failure::Result;
use crate::{lock, pairs};

/// Looked at in one transaction.
const PAGE: usize = 100;

/// Most numbers that are reserved at once.
const RESERVED_MAX: u32 = 4096;

/// What was discarded.
#[derive(Default)]
pub(super) struct Discarded {
    /// How many nodes.
    pub(super) nodes: u64,
    /// Those of them whose objects are to be deleted.
    pub(super) objects: Vec<u64>,
}

impl Tree {
    /// Removes what had no name and was open when its user died. For a caller that knows that nothing is
    /// open.
    ///
    /// # Errors
    ///
    /// What the pairs say.
    pub fn discard_nameless(&self) -> Result<u64> {
        self.claims.end();
        let mut discarded = 0;
        let mut range = Some(pairs::all_nameless());
        while let Some(left) = range {
            let (page, next) = self.discard_page(&left)?;
            discarded += page.nodes;
            range = next;
        }
        Ok(discarded)
    }

    /// Discards what has no name and is not open of the first nodes of a range; what is left of that.
    pub(super) fn discard_page(&self, range: &KvRange) -> Result<(Discarded, Option<KvRange>)> {
        let mut discarded = Discarded::default();
        let page = self.kv.scan(range, PAGE)?;
        for (key, _) in &page {
            let Some(number) = pairs::number_of(key) else { continue };
            let holds = self.holds.lock(number);
            if holds.contains_key(&number) {
                continue;
            }
            let outcome = self.change(|txn| {
                txn.delete(key)?;
                match find_node(&mut *txn, number)? {
                    Some(node) if node.links == 0 => {
                        discard(txn, &node).map(|orphan| Some(orphan.has_object))
                    }
                    _ => Ok(None),
                }
            })?;
            discarded.nodes += u64::from(outcome.is_some());
            discarded.objects.extend((outcome == Some(true)).then_some(number));
        }
        let next = page.last().filter(|_| page.len() == PAGE).map(|(key, _)| range.after(key));
        Ok((discarded, next))
    }

    /// Reserves numbers for objects that are made before their files. Until a file takes one, its
    /// object counts as garbage if this process dies.
    pub(super) fn reserve(&self, count: u32) -> Result<Vec<u64>> {
        let count = count.min(RESERVED_MAX);
        let numbers: Vec<u64> = (0..count).map(|_| self.take_number()).collect::<Result<_>>()?;
        lock(&self.reserved).extend(&numbers);
        self.change(|txn| {
            numbers.iter().try_for_each(|number| Ok(txn.put(&pairs::garbage(*number), b"")?))
        })?;
        Ok(numbers)
    }

    /// Some of the objects that are to be deleted.
    pub(super) fn garbage(&self, max: u32) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        let mut range = pairs::all_garbage();
        loop {
            let page = self.kv.scan(&range, PAGE)?;
            let reserved = lock(&self.reserved);
            let numbers = page.iter().filter_map(|(key, _)| pairs::number_of(key));
            found.extend(numbers.filter(|number| !reserved.contains(number)));
            if found.len() >= max as usize {
                found.truncate(max as usize);
                return Ok(found);
            }
            match page.last() {
                Some((key, _)) if page.len() == PAGE => range = range.after(key),
                _ => return Ok(found),
            }
        }
    }

    /// Forgets objects that were deleted.
    pub(super) fn collected(&self, numbers: &[u64]) -> Result<()> {
        let mut holds = self.holds.lock_all(numbers.iter().copied());
        // Handed over by an earlier server as inodes that a client may hold, which it does not. Its close of one
        // may still arrive.
        let mut is_forgotten = |number: u64| {
            let may_be_left = self.claims.may_come_for(number);
            match holds.of(number).get_mut(&number) {
                Some(hold) => {
                    hold.is_collected |= may_be_left;
                    false
                }
                None => may_be_left,
            }
        };
        self.change(|txn| {
            numbers.iter().try_for_each(|number| {
                if is_forgotten(*number)
                    && txn.get(&pairs::nameless(*number))?.is_some()
                    && let Some(node) = find_node(&mut *txn, *number)?
                    && node.links == 0
                {
                    discard(txn, &node)?;
                    txn.delete(&pairs::nameless(*number))?;
                }
                Ok(txn.delete(&pairs::garbage(*number))?)
            })
        })?;
        drop(holds);
        let mut reserved = lock(&self.reserved);
        for number in numbers {
            reserved.remove(number);
        }
        Ok(())
    }
}
