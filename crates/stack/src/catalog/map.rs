// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The durable map key → object record → segment records, and what else the stack must remember.
//!
//! Every key starts with one byte that says what it is; `docs/formats/catalog.md` has the table.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use arc_swap::ArcSwapOption;
use terrace_core::{Key, Kv, KvExt, KvRange, Persistency, Result, Superblock, Ticket, Txn};

use crate::catalog::changes::{Changes, LogPieces, Noted, Noting};
use crate::catalog::codec::{Reader, Writer, corrupt};
use crate::catalog::format::{APPLICATION, GARBAGE, scoped};
use crate::catalog::header::Header;
use crate::catalog::log::LogPoint;
use crate::catalog::low_space::Thrifty;
use crate::catalog::record::{Place, Record, TierNumbers};
use crate::catalog::touched::Touched;
use crate::catalog::versions::{self, Keeping};

pub(crate) const HEADER_KEY: &[u8] = b"h";
pub(crate) const OBJECT: u8 = b'o';
const HISTORY: u8 = b'y';
const POLICY_STATE: u8 = b'p';
const SUPERBLOCK_KEY: &[u8] = b"s";

const GARBAGE_VERSION: u8 = 1;
const SUPERBLOCK_VERSION: u8 = 1;

/// Numbers that are reserved in the catalog at a time: one durable commit per this many creates.
const NUMBERS_RESERVED: u64 = 1 << 20;

/// Room for the changes of one commit: a file with its object and its name.
const RECORD_BYTES: usize = 512;

/// A superseded file that waits to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GarbageRow {
    pub(crate) object_id: u64,
    pub(crate) segment: u32,
    pub(crate) place: Place,
    pub(crate) bytes: u64,
}

impl GarbageRow {
    pub(crate) fn encode(&self, tiers: &TierNumbers) -> Vec<u8> {
        let mut out = Writer::new(GARBAGE_VERSION);
        out.u8(tiers.number(self.place.tier)).u64(self.object_id);
        out.u32(self.segment).u64(self.place.file).u64(self.bytes);
        out.finish()
    }

    pub(crate) fn decode(bytes: &[u8], tiers: &TierNumbers) -> Result<Self> {
        let mut input = Reader::new(bytes, GARBAGE_VERSION, "garbage")?;
        let number = input.u8()?;
        let Some(tier) = tiers.index(number) else {
            return Err(input.wrong("it names a tier that the configuration does not have"));
        };
        let (object_id, segment) = (input.u64()?, input.u32()?);
        let place = Place { tier, file: input.u64()?, generation: 0, epoch: 0 };
        let row = GarbageRow { object_id, segment, place, bytes: input.u64()? };
        input.finish()?;
        Ok(row)
    }
}

impl Record {
    /// All its files as garbage.
    pub(crate) fn garbage(&self) -> impl Iterator<Item = GarbageRow> + '_ {
        let object_id = self.object_id;
        self.segments.iter().flat_map(move |segment| {
            let (number, bytes) = (segment.number, segment.length_bytes);
            segment.places().map(move |place| GarbageRow {
                object_id,
                segment: number,
                place: *place,
                bytes,
            })
        })
    }
}

pub(crate) fn encode_superblock(superblock: &Superblock) -> Vec<u8> {
    let mut out = Writer::new(SUPERBLOCK_VERSION);
    out.u128(superblock.store_id).text(&superblock.tier).u32(superblock.format_version);
    out.u64(superblock.feature_bits).u64(superblock.epoch);
    out.finish()
}

pub(crate) fn decode_superblock(bytes: &[u8]) -> Result<Superblock> {
    let mut input = Reader::new(bytes, SUPERBLOCK_VERSION, "superblock")?;
    let superblock = Superblock {
        store_id: input.u128()?,
        tier: input.text()?,
        format_version: input.u32()?,
        feature_bits: input.u64()?,
        epoch: input.u64()?,
        frames: None,
    };
    input.finish()?;
    Ok(superblock)
}

/// The catalog of one store.
pub(crate) struct Catalog {
    kv: Arc<dyn Kv>,
    pub(crate) tiers: TierNumbers,
    header: Mutex<Header>,
    next_number: AtomicU64,
    number_limit: AtomicU64,
    last_ticket: AtomicU64,
    /// Whether a commit failed: it may have been written all the same.
    has_failed: AtomicBool,
    /// Whether the last commit failed in the engine; logged once.
    is_failing: AtomicBool,
    /// Whether a backup is being made. Held shared over every commit, so that none is in flight
    /// while it changes.
    pub(crate) is_watched: RwLock<bool>,
    /// What was written while a backup was being made.
    pub(crate) touched: Mutex<Touched>,
    /// One copy at a time: each has what was touched to itself.
    pub(crate) copying: Mutex<()>,
    /// What a log is to say.
    changes: Changes,
    /// Which tiers keep superseded files.
    pub(crate) keeping: ArcSwapOption<Keeping>,
}

impl Catalog {
    /// Reads the header; `None` where there is no store.
    pub(crate) fn header_of(kv: &dyn Kv) -> Result<Option<Header>> {
        kv.get(HEADER_KEY)?.map(|bytes| Header::decode(&bytes)).transpose()
    }

    /// Writes the first header, durably.
    pub(crate) fn create(kv: &dyn Kv, header: &Header) -> Result<()> {
        let ticket = kv.put(HEADER_KEY, &header.encode())?;
        kv.wait(ticket)
    }

    /// Wraps an engine whose header was read and checked.
    pub(crate) fn new(kv: Arc<dyn Kv>, header: Header, tiers: TierNumbers) -> Self {
        let next = header.next_number;
        Self {
            kv,
            tiers,
            header: Mutex::new(header),
            next_number: AtomicU64::new(next),
            number_limit: AtomicU64::new(next),
            last_ticket: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            is_failing: AtomicBool::new(false),
            is_watched: RwLock::new(false),
            touched: Mutex::default(),
            copying: Mutex::default(),
            changes: Changes::default(),
            keeping: ArcSwapOption::empty(),
        }
    }

    /// A copy of the header.
    pub(crate) fn header(&self) -> Header {
        self.header.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the header, durably.
    pub(crate) fn change_header(&self, change: impl FnOnce(&mut Header)) -> Result<()> {
        let mut header = self.header.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = header.clone();
        change(&mut next);
        // The lock is held over the I/O: header writes are rare and must not overtake each other.
        let value = next.encode();
        let ticket = self.transact(&mut |txn| txn.put(HEADER_KEY, &value))?;
        self.kv.wait(ticket)?;
        *header = next;
        Ok(())
    }

    /// Lets numbers below `limit` be used: the header that reserves them is durable.
    pub(crate) fn allow_numbers(&self, limit: u64) {
        self.number_limit.store(limit, Ordering::Release);
    }

    /// A number that this store has never used, for object ids, files and generations.
    pub(crate) fn number(&self) -> Result<u64> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        // The limit only grows, and it grows durably before a number beyond it is given out.
        while number >= self.number_limit.load(Ordering::Acquire) {
            self.change_header(|header| {
                header.next_number = header.next_number.max(number) + NUMBERS_RESERVED;
            })?;
            self.number_limit.store(self.header().next_number, Ordering::Release);
        }
        Ok(number)
    }

    /// Reads an object's record.
    pub(crate) fn get(&self, key: &Key) -> Result<Option<Record>> {
        let bytes = self.kv.get(&object_key(key))?;
        let decode = |bytes: Vec<u8>| Record::decode(&bytes, &self.tiers);
        bytes.map(decode).transpose().map_err(|error| error.with("key", key))
    }

    /// Commits changes together.
    pub(crate) fn commit(&self, changes: &[Write<'_>]) -> Result<Ticket> {
        self.commit_noting(self.keeping.load().as_deref(), changes)
    }

    /// Commits changes that end no value of an object: no version is noted.
    pub(crate) fn commit_unnoted(&self, changes: &[Write<'_>]) -> Result<Ticket> {
        self.commit_noting(None, changes)
    }

    fn commit_noting(&self, keeping: Option<&Keeping>, changes: &[Write<'_>]) -> Result<Ticket> {
        let result = self.transact(&mut |txn| {
            if let Some(keeping) = keeping {
                self.note_versions(keeping, txn, changes)?;
            }
            for change in changes {
                change.apply(&self.tiers, txn)?;
            }
            Ok(())
        });
        let ticket = result.inspect_err(|_| self.has_failed.store(true, Ordering::Release))?;
        self.last_ticket.fetch_max(ticket.0, Ordering::AcqRel);
        Ok(ticket)
    }

    /// Notes versions of the objects that `changes` are about.
    fn note_versions(
        &self,
        keeping: &Keeping,
        txn: &mut dyn Txn,
        changes: &[Write<'_>],
    ) -> Result<()> {
        for change in changes {
            let (key, new) = match change {
                Write::Put(key, record) if !record.is_draft => (*key, Some(*record)),
                Write::Remove(key, record) if !record.is_draft && !is_put(changes, key) => {
                    (*key, None)
                }
                _ => continue,
            };
            let Some(bytes) = txn.get(&object_key(key))? else { continue };
            // A damaged record is reported by `fsck`, and replaced as ever.
            let Ok(old) = Record::decode(&bytes, &self.tiers) else { continue };
            versions::note(keeping, &self.tiers, txn, key, &old, new)?;
        }
        Ok(())
    }

    /// Commits what depends on what is there.
    pub(crate) fn commit_with(
        &self,
        body: &mut dyn FnMut(&mut dyn Txn) -> Result<()>,
    ) -> Result<()> {
        let ticket = self.transact(body)?;
        self.last_ticket.fetch_max(ticket.0, Ordering::AcqRel);
        Ok(())
    }

    /// Every commit goes through here, so that a backup gets it, and the log reports where none
    /// is taken any more.
    fn transact(&self, body: &mut dyn FnMut(&mut dyn Txn) -> Result<()>) -> Result<Ticket> {
        let mut is_agreed = false;
        let result = self.carry_out(&mut |txn| {
            is_agreed = false;
            body(txn)?;
            is_agreed = true;
            Ok(())
        });
        match &result {
            Ok(_) => {
                if self.is_failing.load(Ordering::Relaxed) {
                    self.is_failing.store(false, Ordering::Relaxed);
                }
            }
            // What the body refused is nothing of the engine.
            Err(error) if is_agreed && !self.is_failing.swap(true, Ordering::Relaxed) => {
                tracing::error!(
                    error = error.chain(),
                    "the catalog takes no changes: see that its disk is well and has room; where \
                     requests fail all the same, start the process that has the store open again"
                );
            }
            Err(_) => {}
        }
        result
    }

    fn carry_out(&self, body: &mut dyn FnMut(&mut dyn Txn) -> Result<()>) -> Result<Ticket> {
        let is_watched = self.is_watched.read().unwrap_or_else(PoisonError::into_inner);
        let (is_logged, is_finished) = (self.changes.is_on(), self.changes.is_finished());
        if !*is_watched && !is_logged && !is_finished {
            return self.kv.transact(body);
        }
        let mut noted = Noted {
            keys: is_watched.then(Vec::new),
            record: is_logged.then(|| Vec::with_capacity(RECORD_BYTES)),
            is_finished,
            ..Noted::default()
        };
        let mut is_agreed = false;
        let result = self.kv.transact(&mut |txn| {
            is_agreed = false;
            noted.clear();
            body(&mut Noting { txn, noted: &mut noted })?;
            is_agreed = true;
            Ok(())
        });
        // Also of a commit that failed: it may have been written all the same.
        if let Some(keys) = noted.keys {
            crate::lock(&self.touched).note(keys);
        }
        match (&result, noted.record) {
            (Ok(ticket), Some(record)) if noted.has_written => self.changes.note(ticket.0, record),
            (Err(_), Some(_)) if is_agreed && noted.has_written => {
                self.changes.stop("a commit failed, and may have been written all the same");
            }
            _ => {}
        }
        result
    }

    /// The ticket of the last commit; no other is in flight.
    pub(crate) fn last_ticket_now(&self) -> Result<u64> {
        // One that changes nothing has that of the one before.
        Ok(self.kv.transact(&mut |_| Ok(()))?.0)
    }

    /// Keeps changes for a log that ended at `point` and says everything so far.
    pub(crate) fn go_on_with_log(&self, point: LogPoint) -> Result<()> {
        let alone = self.is_watched.write().unwrap_or_else(PoisonError::into_inner);
        self.changes.go_on(point, self.last_ticket_now()?);
        drop(alone);
        // That of this opening was written before: there may be tiers that the log does not know.
        self.rewrite_header().map(drop)
    }

    /// Commits the header unchanged: a record for the log where there is no other.
    pub(crate) fn rewrite_header(&self) -> Result<Ticket> {
        // Held over the commit, as by every change of it.
        let header = crate::lock(&self.header);
        let value = header.encode();
        self.transact(&mut |txn| txn.put(HEADER_KEY, &value))
    }

    /// The changes that are kept for a log.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Ends changes of pairs. Returns what a log has not been given yet, and whether it
    /// has everything with that.
    pub(crate) fn finish_log(&self) -> (LogPieces, bool) {
        let _alone = self.is_watched.write().unwrap_or_else(PoisonError::into_inner);
        self.changes.finish()
    }

    /// Whether a commit failed since the store was opened. Such a one may have been written all the
    /// same, so that rows of garbage may name files that are in use.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Whether the engine did not take the last commit.
    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    /// Waits until a commit is durable.
    pub(crate) fn wait(&self, ticket: Ticket) -> Result<()> {
        self.changes.note_wait();
        self.kv.wait(ticket)
    }

    /// Waits until every commit so far is durable.
    pub(crate) fn wait_all(&self) -> Result<()> {
        self.changes.note_wait();
        self.kv.wait(Ticket(self.last_ticket.load(Ordering::Acquire)))
    }

    /// The strongest level that a commit reaches.
    pub(crate) fn persistency(&self) -> Persistency {
        self.kv.persistency()
    }

    /// Up to `max` keys of a namespace with a prefix, after `after`.
    pub(crate) fn list(
        &self,
        namespace: &str,
        prefix: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<Key>> {
        let range = KvRange::prefix(&scoped(OBJECT, namespace, prefix.as_bytes()));
        let range = match after {
            Some(name) => range.rest_after(&scoped(OBJECT, namespace, name.as_bytes())),
            None => range,
        };
        let pairs = self.kv.scan(&range, max)?;
        pairs.iter().map(|(key, _)| parse_object_key(key)).collect()
    }

    /// The ticket of the last commit.
    pub(crate) fn last_commit(&self) -> u64 {
        self.last_ticket.load(Ordering::Acquire)
    }

    /// The namespaces that hold objects: one short scan each.
    pub(crate) fn namespaces(&self) -> Result<Vec<String>> {
        namespaces_of(&*self.kv, OBJECT)
    }

    /// The namespaces that hold pairs of the application: one short scan each.
    pub(crate) fn application_namespaces(&self) -> Result<Vec<String>> {
        application_namespaces(&*self.kv)
    }

    /// Calls `each` for every object. A record that cannot be read is given as its error.
    pub(crate) fn for_each(
        &self,
        each: &mut dyn FnMut(Key, Result<Record>) -> Result<()>,
    ) -> Result<()> {
        self.kv.for_each(KvRange::prefix(&[OBJECT]), &mut |key, value| {
            let key = parse_object_key(key)?;
            let record =
                Record::decode(value, &self.tiers).map_err(|error| error.with("key", &key));
            each(key, record)
        })
    }

    /// Up to `max` objects behind `after`, of one namespace or of all.
    pub(crate) fn page(
        &self,
        namespace: Option<&str>,
        after: Option<&Key>,
        max: usize,
    ) -> Result<ObjectPage> {
        let prefix = namespace.map_or(vec![OBJECT], |namespace| scoped(OBJECT, namespace, b""));
        let range = KvRange::prefix(&prefix);
        let range = after.map_or_else(|| range.clone(), |key| range.after(&object_key(key)));
        let pairs = self.kv.scan(&range, max)?;
        let is_last = pairs.len() < max;
        let object = |(key, value): (Vec<u8>, Vec<u8>)| {
            let key = parse_object_key(&key)?;
            let record = Record::decode(&value, &self.tiers);
            let record = record.map_err(|error| error.with("key", &key));
            Ok((key, record))
        };
        Ok(ObjectPage { objects: pairs.into_iter().map(object).collect::<Result<_>>()?, is_last })
    }

    /// All pairs of a kind that others know the format of; for kinds that are few.
    pub(crate) fn rows(&self, kind: u8) -> Result<Vec<terrace_core::Pair>> {
        let mut rows = Vec::new();
        self.kv.for_each(KvRange::prefix(&[kind]), &mut |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            Ok(())
        })?;
        Ok(rows)
    }

    /// All files that wait to be deleted.
    pub(crate) fn garbage(&self) -> Result<Vec<GarbageRow>> {
        let mut rows = Vec::new();
        self.kv.for_each(KvRange::prefix(&[GARBAGE]), &mut |_, value| {
            rows.push(GarbageRow::decode(value, &self.tiers)?);
            Ok(())
        })?;
        Ok(rows)
    }

    /// What was written about a segment's moves, newest last.
    pub(crate) fn history(&self, object_id: u64, segment: u32) -> Result<Option<Vec<u8>>> {
        self.kv.get(&history_key(object_id, segment))
    }

    /// What a store that has this one as a tier wrote about it.
    pub(crate) fn superblock(&self) -> Result<Option<Superblock>> {
        self.kv.get(SUPERBLOCK_KEY)?.map(|bytes| decode_superblock(&bytes)).transpose()
    }

    /// Replaces that, durably.
    pub(crate) fn set_superblock(&self, superblock: &Superblock) -> Result<()> {
        let value = encode_superblock(superblock);
        let ticket = self.transact(&mut |txn| txn.put(SUPERBLOCK_KEY, &value))?;
        self.kv.wait(ticket)
    }

    /// The saved state of a policy.
    pub(crate) fn policy_state(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.kv.get(&policy_key(name))
    }

    /// Reads one of the application's values.
    pub(crate) fn application_get(&self, namespace: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.kv.get(&scoped(APPLICATION, namespace, key))
    }

    /// Changes the application's pairs together; `None` removes. Returns how many of those to be
    /// removed were there.
    pub(crate) fn application_apply(
        &self,
        namespace: &str,
        changes: &[PairChange<'_>],
    ) -> Result<(usize, Ticket)> {
        let mut removed = 0;
        let ticket = self.application_transact(&mut |txn| {
            removed = 0;
            for (key, value) in changes {
                let full = scoped(APPLICATION, namespace, key);
                match value {
                    Some(value) => txn.put(&full, value)?,
                    None => {
                        removed += usize::from(txn.get(&full)?.is_some());
                        txn.delete(&full)?;
                    }
                }
            }
            Ok(())
        })?;
        Ok((removed, ticket))
    }

    /// Runs a transaction over full keys, which [`application_prefix`] begins. Where the disk is all
    /// but full, it may not add more than it takes away.
    pub(crate) fn application_transact(
        &self,
        body: &mut dyn FnMut(&mut dyn Txn) -> Result<()>,
    ) -> Result<Ticket> {
        let has_room = self.kv.has_room();
        let ticket = self.transact(&mut |txn| {
            if has_room {
                return body(txn);
            }
            let mut thrifty = Thrifty::new(txn);
            body(&mut thrifty)?;
            thrifty.check()
        })?;
        self.last_ticket.fetch_max(ticket.0, Ordering::AcqRel);
        Ok(ticket)
    }

    /// The engine, for reading.
    pub(crate) fn kv(&self) -> &dyn Kv {
        &*self.kv
    }

    /// A page of the application's pairs.
    pub(crate) fn application_scan(
        &self,
        namespace: &str,
        prefix: &[u8],
        after: Option<&[u8]>,
        max: usize,
    ) -> Result<Vec<terrace_core::Pair>> {
        let range = KvRange::prefix(&scoped(APPLICATION, namespace, prefix));
        let range = match after {
            Some(key) => range.rest_after(&scoped(APPLICATION, namespace, key)),
            None => range,
        };
        let head = scoped(APPLICATION, namespace, b"").len();
        let pairs = self.kv.scan(&range, max)?;
        Ok(pairs.into_iter().map(|(key, value)| (key[head..].to_vec(), value)).collect())
    }
}

/// Some objects. A record that cannot be read is given as its error.
pub(crate) struct ObjectPage {
    pub(crate) objects: Vec<(Key, Result<Record>)>,
    /// No more follow.
    pub(crate) is_last: bool,
}

/// One of the application's keys with its new value; `None` removes it.
pub type PairChange<'a> = (&'a [u8], Option<&'a [u8]>);

/// One change of the catalog.
pub(crate) enum Write<'a> {
    /// Replaces an object's record; that of a draft are rows of garbage for its files.
    Put(&'a Key, &'a Record),
    /// The same where the value of the object stays what it is, in one file less: that is no version.
    PutSame(&'a Key, &'a Record),
    /// Removes an object's record, if it is no draft, and the histories of its segments.
    Remove(&'a Key, &'a Record),
    /// Notes a file that is to be deleted.
    Garbage(GarbageRow),
    /// Forgets a file that was deleted.
    GarbageGone(&'a GarbageRow),
    /// Replaces or removes a segment's history.
    History(u64, u32, Option<Vec<u8>>),
    /// Replaces a policy's state.
    PolicyState(&'a str, Vec<u8>),
    /// Replaces or removes a pair whose key and format others know.
    Row(Vec<u8>, Option<Vec<u8>>),
}

impl Write<'_> {
    pub(crate) fn apply(&self, tiers: &TierNumbers, txn: &mut dyn Txn) -> Result<()> {
        match self {
            Write::Put(_, record) | Write::PutSame(_, record) if record.is_draft => record
                .garbage()
                .try_for_each(|row| txn.put(&garbage_key(row.place.file), &row.encode(tiers))),
            Write::Put(key, record) | Write::PutSame(key, record) => {
                txn.put(&object_key(key), &record.encode(tiers))
            }
            Write::Remove(key, record) => {
                for segment in &record.segments {
                    txn.delete(&history_key(record.object_id, segment.number))?;
                }
                if record.is_draft { Ok(()) } else { txn.delete(&object_key(key)) }
            }
            Write::Garbage(row) => txn.put(&garbage_key(row.place.file), &row.encode(tiers)),
            Write::GarbageGone(row) => txn.delete(&garbage_key(row.place.file)),
            Write::History(object_id, segment, Some(bytes)) => {
                txn.put(&history_key(*object_id, *segment), bytes)
            }
            Write::History(object_id, segment, None) => {
                txn.delete(&history_key(*object_id, *segment))
            }
            Write::PolicyState(name, bytes) => txn.put(&policy_key(name), bytes),
            Write::Row(key, Some(bytes)) => txn.put(key, bytes),
            Write::Row(key, None) => txn.delete(key),
        }
    }
}

fn object_key(key: &Key) -> Vec<u8> {
    scoped(OBJECT, key.namespace(), key.name().as_bytes())
}

/// Whether one of the changes is the record of a key.
fn is_put(changes: &[Write<'_>], key: &Key) -> bool {
    changes.iter().any(
        |change| matches!(change, Write::Put(other, record) if *other == key && !record.is_draft),
    )
}

/// The namespaces that hold pairs of the application, in a catalog that is not open as a store.
pub(crate) fn application_namespaces(kv: &dyn Kv) -> Result<Vec<String>> {
    namespaces_of(kv, APPLICATION)
}

fn namespaces_of(kv: &dyn Kv, kind: u8) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut range = KvRange::prefix(&[kind]);
    while let Some((key, _)) = kv.scan(&range, 1)?.first() {
        let namespace = namespace_of(key)?;
        let inside = KvRange::prefix(&scoped(kind, &namespace, b""));
        range.start = match inside.end {
            std::ops::Bound::Excluded(end) => std::ops::Bound::Included(end),
            other => other,
        };
        names.push(namespace);
    }
    Ok(names)
}

/// What the keys of all pairs of an application's namespace begin with.
pub(crate) fn application_prefix(namespace: &str) -> Vec<u8> {
    scoped(APPLICATION, namespace, b"")
}

fn namespace_of(key: &[u8]) -> Result<String> {
    let wrong = || corrupt("pair", "its key has no namespace");
    let end = key.iter().position(|byte| *byte == 0).ok_or_else(wrong)?;
    Ok(std::str::from_utf8(&key[1..end]).map_err(|_| wrong())?.into())
}

fn parse_object_key(bytes: &[u8]) -> Result<Key> {
    let wrong = || corrupt("object", "its key has no namespace and name");
    let text = std::str::from_utf8(&bytes[1..]).map_err(|_| wrong())?;
    let (namespace, name) = text.split_once('\0').ok_or_else(wrong)?;
    Key::new(namespace, name)
}

/// The key of the row of a file that is to be deleted.
pub(crate) fn garbage_key(file: u64) -> [u8; 9] {
    let mut key = [GARBAGE; 9];
    key[1..].copy_from_slice(&file.to_be_bytes());
    key
}

fn history_key(object_id: u64, segment: u32) -> [u8; 13] {
    let mut key = [HISTORY; 13];
    key[1..9].copy_from_slice(&object_id.to_be_bytes());
    key[9..].copy_from_slice(&segment.to_be_bytes());
    key
}

fn policy_key(name: &str) -> Vec<u8> {
    // A library's path may be longer than a key.
    let mut end = name.len().min(400);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    [&[POLICY_STATE], &name.as_bytes()[..end]].concat()
}
