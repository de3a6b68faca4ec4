// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Key-value operations of a request.

use terrace_core::{Buffer, Kv, KvRange, Pair, Persistency, Result, Semantics, Ticket, Txn};
use terrace_wire::{Commit, Look, LookFor, Operation, Outcome, PairsDigest, Seen, digest_value};

/// Most pairs of one page of a scan, and the bytes from which on it takes no further pair.
const PAGE_PAIRS_MAX: usize = 1000;
const PAGE_PAIRS_BYTES: usize = 4 << 20;

/// The namespace whose pairs an operation changes.
pub(crate) fn changes(operation: &Operation) -> Option<&String> {
    match operation {
        Operation::KvPut { namespace, .. } | Operation::KvDelete { namespace, .. } => {
            Some(namespace)
        }
        _ => None,
    }
}

/// Changes pairs with one commit: all or none.
pub(crate) fn change(
    kv: &dyn Kv,
    operations: &[Operation],
    payload: &mut &[u8],
    semantics: Semantics,
) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    let mut rest = *payload;
    let ticket = kv.transact(&mut |txn| {
        // It may be run again.
        outcomes.clear();
        rest = payload;
        for operation in operations {
            outcomes.push(match operation {
                Operation::KvPut { key, value_bytes, .. } => {
                    let (value, later) = rest.split_at(*value_bytes as usize);
                    rest = later;
                    txn.put(key, value)?;
                    Outcome::Done
                }
                Operation::KvDelete { key, .. } => {
                    let was_there = txn.get(key)?.is_some();
                    txn.delete(key)?;
                    Outcome::Removed(was_there)
                }
                other => unreachable!("{other:?} changes no pair"),
            });
        }
        Ok(())
    })?;
    *payload = rest;
    if semantics.persistency >= Persistency::Storage {
        kv.wait(ticket)?;
    }
    Ok(outcomes)
}

/// Reads a page of pairs into the payload.
pub(crate) fn scan(
    kv: &dyn Kv,
    range: &KvRange,
    max: usize,
    payload: &mut Buffer,
) -> Result<Outcome> {
    page(&mut |range, max| kv.scan(range, max), range, max, payload)
}

/// Reads a page of pairs into the payload.
fn page(
    scan: &mut dyn FnMut(&KvRange, usize) -> Result<Vec<Pair>>,
    range: &KvRange,
    max: usize,
    payload: &mut Buffer,
) -> Result<Outcome> {
    let mut lengths_bytes = Vec::new();
    let is_cut = walk(scan, range, max, &mut |pairs| {
        for (key, value) in pairs {
            payload.extend_from_slice(key);
            payload.extend_from_slice(value);
            lengths_bytes.push((key.len() as u16, value.len() as u32));
        }
    })?;
    Ok(Outcome::Pairs { lengths_bytes, is_cut })
}

/// Shows the pairs of a page, few at a time: they may be large, and a page is not to be much larger
/// than its bound. Returns whether there are more of the `max` that are wanted.
fn walk(
    scan: &mut dyn FnMut(&KvRange, usize) -> Result<Vec<Pair>>,
    range: &KvRange,
    max: usize,
    show: &mut dyn FnMut(&[Pair]),
) -> Result<bool> {
    const STEP_PAIRS: usize = 64;
    let asked = max.min(PAGE_PAIRS_MAX);
    let (mut count, mut bytes) = (0, 0);
    let mut range = range.clone();
    loop {
        let want = (asked - count).min(STEP_PAIRS);
        let found = scan(&range, want)?;
        count += found.len();
        bytes += found.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        show(&found);
        if let Some((key, _)) = found.last() {
            range = range.after(key);
        }
        if found.len() < want || count == max {
            return Ok(false);
        }
        if count == asked || bytes >= PAGE_PAIRS_BYTES {
            return Ok(true);
        }
    }
}

/// Reads within a transaction, if what it read before is still so.
pub(crate) fn look(kv: &dyn Kv, look: &Look, payload: &mut Buffer) -> Result<Outcome> {
    let start = payload.len();
    let mut outcome = Outcome::Conflict;
    kv.transact(&mut |txn| {
        // It may be run again.
        payload.truncate(start);
        outcome = match is_current(txn, &look.seen)? {
            false => Outcome::Conflict,
            true => match &look.what {
                LookFor::Key(key) => Outcome::Value(txn.get(key)?.map(|value| {
                    payload.extend_from_slice(&value);
                    value.len() as u32
                })),
                LookFor::Range(range, max) => {
                    page(&mut |range, max| txn.scan(range, max), range, *max as usize, payload)?
                }
            },
        };
        Ok(())
    })?;
    Ok(outcome)
}

/// Commits a transaction if what it read is still so; `None` where it is not.
pub(crate) fn commit(kv: &dyn Kv, commit: &Commit, data: &[u8]) -> Result<Option<Ticket>> {
    let mut is_committed = false;
    let ticket = kv.transact(&mut |txn| {
        is_committed = is_current(txn, &commit.seen)?;
        if !is_committed {
            return Ok(());
        }
        let mut rest = data;
        for (key, value_bytes) in &commit.writes {
            match value_bytes {
                Some(value_bytes) => {
                    let (value, later) = rest.split_at(*value_bytes as usize);
                    rest = later;
                    txn.put(key, value)?;
                }
                None => txn.delete(key)?,
            }
        }
        Ok(())
    })?;
    Ok(is_committed.then_some(ticket))
}

/// Whether everything that a transaction read is still so.
fn is_current(txn: &mut dyn Txn, seen: &Seen) -> Result<bool> {
    for (key, digest) in &seen.reads {
        if digest_value(txn.get(key)?.as_deref()) != *digest {
            return Ok(false);
        }
    }
    for (range, max, digest) in &seen.scans {
        let mut now = PairsDigest::default();
        let scan = &mut |range: &KvRange, max| txn.scan(range, max);
        // What was seen was one page: where there is more than that, something has changed.
        let is_more = walk(scan, range, *max as usize, &mut |pairs| now.add(pairs))?;
        if is_more || now.end() != *digest {
            return Ok(false);
        }
    }
    Ok(true)
}
