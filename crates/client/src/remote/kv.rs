// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Key-value pairs of a server.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use terrace_core::{
    Error, ErrorKind, KV_KEY_BYTES_MAX, KV_VALUE_BYTES_MAX, Kv, KvRange, Pair, Persistency, Result,
    Semantics, Ticket, Txn,
};
use terrace_wire::{
    Commit, Look, LookFor, Operation, Outcome, Seen, check_short, digest_pairs, digest_value,
};

use super::core::Core;
use super::request::{Message, odd};
use super::unexpected;
use crate::deadline;

/// Most bytes of the values that a transaction writes.
const COMMIT_BYTES_MAX: usize = 32 << 20;

/// Most bytes of the keys that a transaction reads and writes.
const COMMIT_HEAD_BYTES_MAX: usize = 1 << 20;

/// Where the life of the session is in a ticket. A server that is started anew counts its commits
/// from the beginning; a ticket of before says nothing to it.
const LIFE_SHIFT: u32 = 44;

/// The key-value pairs of a namespace on a server.
///
/// A transaction runs here, over values that the server sends; when it ends the server commits it
/// if everything it read is still so, and it runs again otherwise.
#[derive(Clone)]
pub struct RemoteKv {
    core: Arc<Core>,
    namespace: String,
}

impl RemoteKv {
    pub(super) fn new(core: Arc<Core>, namespace: &str) -> Self {
        Self { core, namespace: namespace.into() }
    }

    fn ask(&self, operation: Operation, semantics: &Semantics) -> Result<(Outcome, Vec<u8>)> {
        check_short("namespace", self.namespace.len())?;
        self.core.ask_one(operation, &[], semantics)
    }

    /// Reads many values with one round trip for each thousand or so.
    ///
    /// # Errors
    ///
    /// As [`Kv::get`]; the first that fails.
    pub fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        /// Keys of one request.
        const TOGETHER_MAX: usize = 1000;
        let mut values = Vec::with_capacity(keys.len());
        for keys in keys.chunks(TOGETHER_MAX) {
            let mut operations = Vec::with_capacity(keys.len());
            for key in keys {
                check_key(key)?;
                let (namespace, key) = (self.namespace.clone(), key.to_vec());
                operations.push(Operation::KvGet { namespace, key });
            }
            let message = Message::request(&operations, &[], &Semantics::default());
            let (outcomes, payload) = self.core.ask(&message)?.outcomes(keys.len())?;
            let mut rest = &payload[..];
            for outcome in outcomes {
                values.push(value_of(outcome, &mut rest)?);
            }
        }
        Ok(values)
    }

    /// Changes pairs with one commit; `None` removes. Returns how many of those were there.
    ///
    /// # Errors
    ///
    /// As [`Kv::transact`]; `Unsupported` for a level that the server cannot give.
    pub fn apply(
        &self,
        changes: &[(&[u8], Option<&[u8]>)],
        persistency: Persistency,
    ) -> Result<usize> {
        let mut operations = Vec::with_capacity(changes.len());
        let mut parts = Vec::new();
        for (key, value) in changes {
            check_key(key)?;
            let (namespace, key) = (self.namespace.clone(), key.to_vec());
            operations.push(match value {
                Some(value) => {
                    check_value(value)?;
                    parts.push(*value);
                    Operation::KvPut { namespace, key, value_bytes: value.len() as u32 }
                }
                None => Operation::KvDelete { namespace, key },
            });
        }
        let semantics = Semantics::at_level(persistency);
        let message = Message::request(&operations, &parts, &semantics);
        let (outcomes, _) = self.core.ask(&message)?.outcomes(changes.len())?;
        let mut removed = 0;
        for outcome in outcomes {
            match outcome {
                Outcome::Failed(failure) => return Err(failure.into_error()),
                Outcome::Removed(was_there) => removed += usize::from(was_there),
                _ => {}
            }
        }
        Ok(removed)
    }

    /// Before a transaction runs again: the more often others were faster, the more they are given
    /// way.
    ///
    /// # Errors
    ///
    /// `Busy` after the deadline.
    fn pause(&self, conflicts: u32, deadline_ns: u64) -> Result<()> {
        const PAUSE_MIN: Duration = Duration::from_micros(100);
        const PAUSE_MAX: Duration = Duration::from_millis(20);
        if self.core.clock.now_ns() >= deadline_ns {
            return Err(Error::new(ErrorKind::Busy, "run a transaction")
                .because("others changed what it reads each time, until the deadline")
                .with("conflicts", conflicts)
                .with("server", &self.core.target));
        }
        // The first time that another client was faster mostly is the last one, too.
        if conflicts > 1 {
            let longer = 1 << (conflicts - 2).min(16);
            let _spending = deadline::Spending::begin(&*self.core.clock);
            self.core.clock.sleep((PAUSE_MIN * longer).min(PAUSE_MAX));
        }
        Ok(())
    }

    /// The part of a ticket that tells the life of the session.
    fn ticket(&self, life: u64, ticket: u64) -> Ticket {
        Ticket(life << LIFE_SHIFT | ticket)
    }
}

impl Kv for RemoteKv {
    fn target(&self) -> &str {
        &self.core.target
    }

    fn persistency(&self) -> Persistency {
        self.core.capability().persistency
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        let operation = Operation::KvGet { namespace: self.namespace.clone(), key: key.to_vec() };
        let (outcome, payload) = self.ask(operation, &Semantics::default())?;
        value_of(outcome, &mut &payload[..])
    }

    fn scan(&self, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        let mut pairs = Vec::new();
        let mut range = short(range);
        while pairs.len() < max {
            let operation = Operation::KvScan {
                namespace: self.namespace.clone(),
                range: range.clone(),
                max: u32::try_from(max - pairs.len()).unwrap_or(u32::MAX),
            };
            let (outcome, payload) = self.ask(operation, &Semantics::default())?;
            let (page, is_cut) = pairs_of(outcome, &payload)?;
            pairs.extend(page);
            match pairs.last() {
                Some((key, _)) if is_cut => range = range.after(key),
                _ => break,
            }
        }
        Ok(pairs)
    }

    fn transact(&self, body: &mut dyn FnMut(&mut dyn Txn) -> Result<()>) -> Result<Ticket> {
        let deadline_ns = self.core.deadline_ns();
        for conflicts in 0.. {
            if conflicts > 0 {
                self.pause(conflicts, deadline_ns)?;
            }
            let life = self.core.life();
            let mut run = Run::new(self);
            let ended = body(&mut run);
            if run.has_conflict {
                continue;
            }
            ended?;
            let (commit, values) = run.commit()?;
            let parts: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            let operation = Operation::KvCommit(Box::new(commit));
            // As durable as the engine makes it by itself; for more there is the ticket.
            let semantics = Semantics::at_level(Persistency::None);
            match self.core.ask_one(operation, &parts, &semantics)?.0 {
                Outcome::Ticket(ticket) => return Ok(self.ticket(life, ticket)),
                Outcome::Conflict => {}
                _ => return unexpected(),
            }
        }
        unreachable!("so many conflicts take longer than any deadline")
    }

    fn wait(&self, ticket: Ticket) -> Result<()> {
        if ticket == Ticket::default() {
            return Ok(());
        }
        let life = ticket.0 >> LIFE_SHIFT;
        let number = ticket.0 & ((1 << LIFE_SHIFT) - 1);
        let namespace = self.namespace.clone();
        if life == self.core.life() {
            let wait = Operation::KvWait { namespace, ticket: number };
            self.ask(wait, &Semantics::default())?;
        }
        // Asked after the server answered: it may have been started anew while it was.
        if life != self.core.life() {
            return Err(Error::new(ErrorKind::Io, "wait for a commit")
                .because(
                    "the server was started anew since: it may be lost; look, and commit again",
                )
                .with("server", &self.core.target));
        }
        Ok(())
    }
}

/// One run of a transaction.
struct Run<'a> {
    kv: &'a RemoteKv,
    /// What was read.
    values: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    seen: Seen,
    /// Bytes of keys in what was read.
    seen_bytes: usize,
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Whether something that was read has changed: the run is in vain.
    has_conflict: bool,
}

impl<'a> Run<'a> {
    fn new(kv: &'a RemoteKv) -> Self {
        Self {
            kv,
            values: BTreeMap::new(),
            seen: Seen::default(),
            seen_bytes: 0,
            writes: BTreeMap::new(),
            has_conflict: false,
        }
    }

    /// Reads from the state that everything before was read from.
    fn look(&mut self, what: LookFor) -> Result<(Outcome, Vec<u8>)> {
        check_room("keys", self.seen_bytes, COMMIT_HEAD_BYTES_MAX)?;
        let (namespace, seen) = (self.kv.namespace.clone(), self.seen.clone());
        let look = Operation::KvLook(Box::new(Look { namespace, seen, what }));
        let answer = self.kv.ask(look, &Semantics::default())?;
        if answer.0 == Outcome::Conflict {
            self.has_conflict = true;
            return Err(Error::new(ErrorKind::Stale, "read within a transaction"));
        }
        Ok(answer)
    }

    /// The message of the commit, and the values that it writes.
    fn commit(self) -> Result<(Commit, Vec<Vec<u8>>)> {
        let mut values = Vec::new();
        let mut writes = Vec::new();
        for (key, value) in self.writes {
            writes.push((key, value.as_ref().map(|value| value.len() as u32)));
            values.extend(value);
        }
        let keys_bytes: usize = writes.iter().map(|(key, _)| key.len() + PLACE_BYTES).sum();
        check_room("keys", self.seen_bytes + keys_bytes, COMMIT_HEAD_BYTES_MAX)?;
        check_room("values", values.iter().map(Vec::len).sum(), COMMIT_BYTES_MAX)?;
        let namespace = self.kv.namespace.clone();
        Ok((Commit { namespace, seen: self.seen, writes }, values))
    }
}

/// Room that a key takes in a message, beside its own bytes.
const PLACE_BYTES: usize = 32;

fn check_room(part: &'static str, bytes: usize, bytes_max: usize) -> Result<()> {
    if bytes > bytes_max {
        return Err(Error::invalid("commit", "the transaction is too large for the network")
            .with("part", part)
            .with("bytes", bytes)
            .with("bytes_max", bytes_max));
    }
    Ok(())
}

impl Txn for Run<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        if let Some(written) = self.writes.get(key) {
            return Ok(written.clone());
        }
        if let Some(read) = self.values.get(key) {
            return Ok(read.clone());
        }
        let (outcome, payload) = self.look(LookFor::Key(key.to_vec()))?;
        let value = value_of(outcome, &mut &payload[..])?;
        self.seen_bytes += key.len() + PLACE_BYTES;
        self.seen.reads.push((key.to_vec(), digest_value(value.as_deref())));
        self.values.insert(key.to_vec(), value.clone());
        Ok(value)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        check_value(value)?;
        self.writes.insert(key.to_vec(), Some(value.to_vec()));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        check_key(key)?;
        self.writes.insert(key.to_vec(), None);
        Ok(())
    }

    fn scan(&mut self, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        // What this run deletes or replaces takes the place of as many that are stored.
        let want = max.saturating_add(self.writes.len());
        let range = short(range);
        let mut stored: Vec<Pair> = Vec::new();
        let mut rest = range.clone();
        let mut is_whole = false;
        while stored.len() < want {
            let asked = u32::try_from(want - stored.len()).unwrap_or(u32::MAX);
            let (outcome, payload) = self.look(LookFor::Range(rest.clone(), asked))?;
            let (page, is_cut) = pairs_of(outcome, &payload)?;
            // A page that is cut has no more pairs than came; a whole one would have had them.
            let seen_max = if is_cut { page.len() as u32 } else { asked };
            self.seen.scans.push((rest.clone(), seen_max, digest_pairs(&page)));
            self.seen_bytes += 2 * (KV_KEY_BYTES_MAX + PLACE_BYTES);
            stored.extend(page);
            match stored.last() {
                Some((key, _)) if is_cut => rest = rest.after(key),
                _ => {
                    is_whole = stored.len() < want;
                    break;
                }
            }
        }
        // Behind the last that was read nothing is known, so nothing of it is returned.
        let last = stored.last().filter(|_| !is_whole).map(|(key, _)| key.clone());
        let mut merged: BTreeMap<Vec<u8>, Vec<u8>> = stored.into_iter().collect();
        for (key, value) in &self.writes {
            let is_known = last.as_ref().is_none_or(|last| key <= last);
            match value {
                Some(value) if contains(&range, key) && is_known => {
                    merged.insert(key.clone(), value.clone());
                }
                Some(_) => {}
                None => {
                    merged.remove(key);
                }
            }
        }
        Ok(merged.into_iter().take(max).collect())
    }
}

fn contains(range: &KvRange, key: &[u8]) -> bool {
    let is_after = match &range.start {
        Bound::Included(start) => key >= start.as_slice(),
        Bound::Excluded(start) => key > start.as_slice(),
        Bound::Unbounded => true,
    };
    let is_before = match &range.end {
        Bound::Included(end) => key <= end.as_slice(),
        Bound::Excluded(end) => key < end.as_slice(),
        Bound::Unbounded => true,
    };
    is_after && is_before
}

/// The same keys with bounds that are not longer than keys are: cut, a bound lies between the same
/// keys if it is the first to be left out, or the first to be taken.
fn short(range: &KvRange) -> KvRange {
    let cut = |key: &[u8]| key[..KV_KEY_BYTES_MAX].to_vec();
    let start = match &range.start {
        // A key that is not longer than its own beginning is before it.
        Bound::Included(key) | Bound::Excluded(key) if key.len() > KV_KEY_BYTES_MAX => {
            Bound::Excluded(cut(key))
        }
        other => other.clone(),
    };
    let end = match &range.end {
        Bound::Included(key) | Bound::Excluded(key) if key.len() > KV_KEY_BYTES_MAX => {
            Bound::Included(cut(key))
        }
        other => other.clone(),
    };
    KvRange { start, end }
}

fn check_key(key: &[u8]) -> Result<()> {
    if key.is_empty() || key.len() > KV_KEY_BYTES_MAX {
        return Err(Error::invalid("use a pair", "the length of its key is not allowed")
            .with("key_bytes", key.len())
            .with("key_bytes_max", KV_KEY_BYTES_MAX));
    }
    Ok(())
}

fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > KV_VALUE_BYTES_MAX {
        return Err(Error::invalid("write a pair", "its value is too long")
            .with("value_bytes", value.len())
            .with("value_bytes_max", KV_VALUE_BYTES_MAX));
    }
    Ok(())
}

fn value_of(outcome: Outcome, payload: &mut &[u8]) -> Result<Option<Vec<u8>>> {
    match outcome {
        Outcome::Value(None) => Ok(None),
        Outcome::Value(Some(length)) => Ok(Some(take(payload, length as usize)?.to_vec())),
        Outcome::Failed(failure) => Err(failure.into_error()),
        _ => unexpected(),
    }
}

fn pairs_of(outcome: Outcome, payload: &[u8]) -> Result<(Vec<Pair>, bool)> {
    let Outcome::Pairs { lengths_bytes, is_cut } = outcome else { return unexpected() };
    let mut rest = payload;
    let mut pairs = Vec::with_capacity(lengths_bytes.len());
    for (key_bytes, value_bytes) in lengths_bytes {
        let key = take(&mut rest, usize::from(key_bytes))?.to_vec();
        pairs.push((key, take(&mut rest, value_bytes as usize)?.to_vec()));
    }
    Ok((pairs, is_cut))
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8]> {
    let (now, later) =
        bytes.split_at_checked(count).ok_or_else(|| odd("its payload is too short"))?;
    *bytes = later;
    Ok(now)
}
