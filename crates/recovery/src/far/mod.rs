// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checkpoint and log of a catalog in the bucket of a tier: what the level `shared` waits for, and what
//! another machine takes over.
//!
//! A commit leaves its pairs in memory ([`terrace_stack::LogPieces`]). The first caller that waits for one
//! writes everything that has come as one object, under the lock of the writer; those that come meanwhile
//! wait for the lock, and the next of them writes for all. Objects of the log are created under consecutive
//! numbers, on the condition that there is none of that name. An owner that comes next seals the log by
//! creating its end there, so that nothing is acknowledged behind it.
//!
//! Locks: `turn` (a checkpoint), then `writer`.

mod claim;
pub(crate) mod names;
pub(crate) mod owner;
pub(crate) mod read;
mod writer;

use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use terrace_backends::object::{Bucket, Conditional};
use terrace_core::{Error, ErrorKind, Result};
use terrace_stack::{FarLog, LOG_END_BYTES, LogPoint, LogSignal, read_log_end, read_log_head};

pub use self::claim::{Claim, check_owner, check_reader, claim, pinned_tier_of, why_none};
use self::claim::{Found, Place, find, sealed_by};
pub(crate) use self::claim::{OwnCatalog, own_catalog, tier_of};
use self::names::{OwnerRecord, Root, Seal, decode, encode};
use self::writer::Writer;
use crate::checkpoint::{LOG_BYTES_MIN, random};
use crate::lock;
use crate::opened::Opened;
use crate::warning::Warning;

/// How soon commits are in the log that no caller waits for.
const LOG_TICK: Duration = Duration::from_secs(1);

/// How often an open store reads the owner object.
const OWNER_TICK: Duration = Duration::from_secs(5);

/// Objects of the log before another checkpoint: a takeover reads them one by one.
const LOG_OBJECTS_MAX: u64 = 4096;

/// Bytes that wait for a bucket that takes nothing; the log ends then.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Objects that are deleted at once.
const DELETES: usize = 16;

/// Tries to replace a root that an earlier write of this owner replaces meanwhile.
const ROOT_TRIES_MAX: u32 = 3;

/// Pause between two tries of the background threads.
const PAUSE_FAILED: Duration = Duration::from_secs(5);

/// Pause of a caller whose commit waits for an earlier one that another thread is about to note.
const GAP: Duration = Duration::from_micros(200);

const OPERATION: &str = "write the shared log of the catalog";

/// The log of an open store, and the threads that write it.
pub struct Far {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Inner {
    // The store ends with its last user, not with this.
    opened: Weak<Opened>,
    tier: String,
    bucket: Bucket,
    owner: OwnerRecord,
    store_id: u128,
    writer: Mutex<Writer>,
    /// The last commit that is in the log behind a checkpoint that is there.
    acknowledged: AtomicU64,
    turn: Mutex<Turn>,
    fenced: OnceLock<String>,
    /// Whether its tier was removed.
    is_left: AtomicBool,
    signal: Arc<LogSignal>,
    stop: (Mutex<bool>, Condvar),
    warning: Warning,
}

/// The checkpoint that counts.
#[derive(Default)]
struct Turn {
    root: Option<Root>,
    /// The first object of the log that is there.
    first: u64,
    /// Checkpoints that were replaced and are not deleted yet.
    replaced: Vec<String>,
    /// Whether what earlier terms and processes left was deleted.
    is_clean: bool,
}

impl Far {
    /// Starts the threads, before the store is used.
    ///
    /// # Errors
    ///
    /// `Io` for a thread, and what the stack says of a log that goes on.
    pub fn start(opened: &Arc<Opened>, claim: Claim) -> Result<Arc<Self>> {
        let Claim { tier, bucket, owner, place } = claim;
        let inner = Arc::new(Inner {
            opened: Arc::downgrade(opened),
            tier,
            bucket,
            owner,
            store_id: opened.stack.store_id(),
            writer: Mutex::default(),
            acknowledged: AtomicU64::new(0),
            turn: Mutex::default(),
            fenced: OnceLock::new(),
            is_left: AtomicBool::new(false),
            signal: opened.stack.log_signal(),
            stop: Default::default(),
            warning: Warning::default(),
        });
        match place {
            Ok(place) => inner.go_on(opened, place)?,
            // The first checkpoint reads the bucket again.
            Err(error) => inner.warn(&error),
        }
        let far = Arc::new(Self { inner, threads: Mutex::default() });
        let log = Arc::clone(&far.inner);
        far.spawn("terrace-far-log", move || log.write_behind())?;
        let checkpoints = Arc::clone(&far.inner);
        far.spawn("terrace-far", move || checkpoints.write_checkpoints())?;
        opened.stack.set_far_log(Some(Arc::clone(&far.inner) as Arc<dyn FarLog>));
        Ok(far)
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(run)
            .map_err(|error| Error::from_io("start a thread", error))?;
        lock(&self.threads).push(thread);
        Ok(())
    }
}

impl Far {
    /// The tier in whose bucket it is.
    pub fn tier(&self) -> &str {
        &self.inner.tier
    }

    /// Why another machine owns the store now.
    pub fn fenced(&self) -> Option<String> {
        self.inner.fenced.get().cloned()
    }

    /// Waits until a checkpoint and everything that was committed are there. Errors: those of the service.
    pub fn wait_all(&self, opened: &Opened) -> Result<()> {
        if lock(&self.inner.turn).root.is_none() {
            self.inner.checkpoint(opened)?;
        }
        self.inner.wait(opened.stack.last_commit())
    }

    /// Ends the threads. Callers may still wait.
    pub fn stop(&self) {
        *lock(&self.inner.stop.0) = true;
        self.inner.stop.1.notify_all();
        self.inner.signal.set();
        for thread in lock(&self.threads).drain(..) {
            // A panic of a thread was printed.
            let _ = thread.join();
        }
    }

    /// Writes the end of the log; of a store that could not be closed, only what is left for it.
    pub fn finish(&self, opened: &Opened, is_closed: bool) {
        if self.inner.is_left.load(Ordering::Acquire) {
            return;
        }
        let (last, is_whole) = opened.stack.finish_log();
        let mut writer = lock(&self.inner.writer);
        let is_whole = is_whole && is_closed && writer.is_rooted;
        writer.take(self.inner.store_id, last.pieces, last.last);
        if is_whole {
            writer.end(self.inner.store_id, opened);
        }
        if let Err(error) = self.inner.send(&mut writer) {
            self.inner.warn(&error);
        }
    }

    /// Ends the level `shared`, and removes what is in the bucket: the tier was removed.
    pub fn leave(&self, opened: &Opened) {
        self.stop();
        self.inner.is_left.store(true, Ordering::Release);
        opened.stack.set_far_log(None);
        opened.stack.end_log("its tier is removed");
        let _alone = (lock(&self.inner.turn), lock(&self.inner.writer));
        // The objects of a store that was taken over belong to the other machine.
        let cleared = match owner::other_owner(&self.inner.bucket, &self.inner.owner) {
            Ok(None) => owner::clear(&self.inner.bucket),
            Ok(Some(error)) => Err(self.inner.fence(&error)),
            Err(error) => Err(error),
        };
        if let Err(error) = cleared {
            tracing::warn!(error = error.chain(), "the catalog's log is left in the bucket");
        }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.stop();
    }
}

impl FarLog for Inner {
    fn tier(&self) -> &str {
        &self.tier
    }

    fn wait(&self, ticket: u64) -> Result<()> {
        loop {
            self.check()?;
            if self.acknowledged.load(Ordering::Acquire) >= ticket {
                return Ok(());
            }
            let Some(opened) = self.opened.upgrade() else {
                return Err(Error::new(ErrorKind::Busy, OPERATION).because("the store is closed"));
            };
            let mut writer = lock(&self.writer);
            // Those before have written for this caller, too.
            if self.acknowledged.load(Ordering::Acquire) >= ticket {
                return Ok(());
            }
            self.write(&mut writer, &opened)?;
            let (is_rooted, last) = (writer.is_rooted, writer.last);
            drop(writer);
            if !is_rooted || !opened.stack.is_logged() && last < ticket {
                self.checkpoint(&opened)?;
            } else if last < ticket {
                opened.clock.sleep(GAP);
            }
        }
    }
}

impl Inner {
    fn check(&self) -> Result<()> {
        if self.is_left.load(Ordering::Acquire) {
            return Err(
                Error::new(ErrorKind::Unsupported, OPERATION).because("its tier was removed")
            );
        }
        match self.fenced.get() {
            None => Ok(()),
            Some(reason) => Err(Error::new(ErrorKind::Denied, OPERATION).because(reason.clone())),
        }
    }

    /// Ends everything: another machine owns the store.
    fn fence(&self, reason: &Error) -> Error {
        let text = reason.chain();
        if self.fenced.set(text.clone()).is_ok() {
            tracing::error!(
                reason = text,
                "another machine has taken the store over; nothing is served any more"
            );
        }
        if let Some(opened) = self.opened.upgrade() {
            opened.stack.fence(&text);
        }
        Error::new(ErrorKind::Denied, OPERATION).because(text)
    }

    /// The same, where a log or a root is sealed.
    fn fence_sealed(&self, term: u16) -> Error {
        let other = owner::other_owner(&self.bucket, &self.owner);
        self.fence(&other.ok().flatten().unwrap_or_else(|| sealed_by(term)))
    }

    fn warn(&self, error: &Error) {
        self.warning.log(error, "the shared log of the catalog cannot be written at the moment");
    }

    /// Goes on behind the log of the opening before, where that was ended by its close.
    fn go_on(&self, opened: &Opened, place: Place) -> Result<()> {
        let mut turn = lock(&self.turn);
        let mut writer = lock(&self.writer);
        let Place { next, root, last } = place;
        writer.next = next;
        writer.is_placed = true;
        let Some(root) = root else { return Ok(()) };
        turn.first = root.first;
        let point = last.and_then(|end| {
            let (store_id, begin) = read_log_head(&end)?;
            let tail = end.len().checked_sub(LOG_END_BYTES)?;
            let (sequence, opening) = read_log_end(&end[tail..])?;
            let is_ours = store_id == self.store_id
                && opening == opened.stack.previous_opening()
                && format!("{:016x}", begin.log) == root.log;
            is_ours.then_some(LogPoint { log: begin.log, sequence })
        });
        turn.root = Some(root);
        if let Some(point) = point {
            opened.stack.go_on_with_log(point)?;
            writer.point = point;
            writer.is_rooted = true;
        }
        Ok(())
    }

    /// Reads where the log goes on, where the opening could not.
    fn place(&self, turn: &mut Turn, writer: &mut Writer) -> Result<()> {
        if writer.is_placed {
            return Ok(());
        }
        let Place { next, root, .. } = match find(&self.bucket, &self.owner)? {
            Found::Place(place) => place,
            Found::Taken(error) => return Err(self.fence(&error)),
        };
        writer.next = next;
        writer.is_placed = true;
        turn.first = root.as_ref().map_or(0, |root| root.first);
        turn.root = root;
        Ok(())
    }

    /// Makes sure that the owner object still names this owner. A bucket that does not answer is an error.
    fn check_owner(&self) -> Result<()> {
        match owner::other_owner(&self.bucket, &self.owner)? {
            None => Ok(()),
            Some(error) => Err(self.fence(&error)),
        }
    }

    /// Writes what was committed; the caller has the writer.
    fn write(&self, writer: &mut Writer, opened: &Opened) -> Result<()> {
        let taken = opened.stack.take_log();
        writer.take(self.store_id, taken.pieces, taken.last);
        if let Some(reason) = taken.ended {
            self.warn(&Error::new(ErrorKind::Io, OPERATION).because(reason));
        }
        let sent = self.send(writer);
        if sent.is_err() && writer.queue.iter().map(Bytes::len).sum::<usize>() > WAITING_BYTES_MAX {
            // Another checkpoint has all of it.
            opened.stack.end_log("the bucket takes nothing");
            writer.queue.clear();
            writer.is_rooted = false;
        }
        sent
    }

    /// Creates the objects that wait.
    fn send(&self, writer: &mut Writer) -> Result<()> {
        self.check()?;
        while let Some(bytes) = writer.queue.front().cloned() {
            match self.bucket.create(&names::log(self.owner.term, writer.next), &bytes)? {
                Conditional::Done => {
                    writer.bytes += bytes.len() as u64;
                    writer.queue.pop_front();
                    writer.next += 1;
                }
                Conditional::Found(Some(found)) => match Seal::of(&found) {
                    Some(seal) => return Err(self.fence_sealed(seal.sealed_by_term)),
                    // Of a process that was killed while it wrote: it was not acknowledged.
                    None => writer.next += 1,
                },
                // Removed by hand.
                Conditional::Found(None) => {}
            }
        }
        if writer.is_rooted {
            self.acknowledged.fetch_max(writer.last, Ordering::AcqRel);
            self.warning.clear();
        }
        Ok(())
    }

    /// Waits; whether it is over.
    fn pause(&self, time: Duration) -> bool {
        let stop = lock(&self.stop.0);
        let waited = self.stop.1.wait_timeout_while(stop, time, |stop| !*stop);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Writes commits that no caller waits for, and reads the owner object from time to time.
    fn write_behind(&self) {
        // The opening has read the owner object.
        let mut looked_ns = self.opened.upgrade().map_or(0, |opened| opened.clock.now_ns());
        while !self.pause(LOG_TICK) {
            let Some(opened) = self.opened.upgrade() else { return };
            let written = self.write(&mut lock(&self.writer), &opened);
            if let Err(error) = written
                && self.fenced.get().is_none()
            {
                self.warn(&error);
            }
            // Also after a write, which finds a seal: a takeover creates that after it has replaced the owner object.
            let now_ns = opened.clock.now_ns();
            if Duration::from_nanos(now_ns.saturating_sub(looked_ns)) >= OWNER_TICK {
                looked_ns = now_ns;
                // Of a bucket that does not answer nothing follows.
                if let Ok(Some(error)) = owner::other_owner(&self.bucket, &self.owner) {
                    self.fence(&error);
                }
            }
            if self.fenced.get().is_some() {
                return;
            }
        }
    }

    fn write_checkpoints(&self) {
        let mut pause = Duration::ZERO;
        while !self.pause(pause) {
            pause = LOG_TICK;
            let Some(opened) = self.opened.upgrade() else { return };
            if self.fenced.get().is_some() {
                return;
            }
            if self.is_due(&opened)
                && let Err(error) = self.checkpoint(&opened)
            {
                self.warn(&error);
                pause = PAUSE_FAILED;
            }
        }
    }

    fn is_due(&self, opened: &Opened) -> bool {
        let turn = lock(&self.turn);
        let writer = lock(&self.writer);
        let Some(root) = &turn.root else { return true };
        let objects = writer.next.saturating_sub(root.first);
        !opened.stack.is_logged()
            || !writer.is_rooted
            || writer.bytes > root.bytes.max(LOG_BYTES_MIN)
            || objects > LOG_OBJECTS_MAX
    }

    /// Writes a checkpoint, unless another thread has just done so, and removes what it replaces.
    fn checkpoint(&self, opened: &Opened) -> Result<()> {
        let mut turn = lock(&self.turn);
        if !opened.stack.is_logged() || !lock(&self.writer).is_rooted || turn.root.is_none() {
            // Those that waited for the turn find it done.
        } else if !self.is_long(&turn) {
            return Ok(());
        }
        self.check()?;
        let first = {
            let mut writer = lock(&self.writer);
            self.place(&mut turn, &mut writer)?;
            self.write(&mut writer, opened)?;
            writer.bytes = 0;
            writer.next
        };
        let name = names::checkpoint(self.owner.term, random()?);
        let log = random()?;
        let mut out = BufWriter::with_capacity(1 << 20, self.bucket.writer(&name)?);
        let (_, moment) = opened.stack.checkpoint(Some(log), &mut out)?;
        out.flush().map_err(|error| Error::from_io(OPERATION, error))?;
        let out =
            out.into_inner().map_err(|error| Error::from_io(OPERATION, error.into_error()))?;
        let bytes = out.finish()?;
        // The log that begins with it is written before anything is acknowledged; a seal is found here.
        self.write(&mut lock(&self.writer), opened)?;
        self.write_root(&mut turn, Root::new(name, moment.point.log, first, bytes))?;
        // An owner that is named after it was not replaced before it, so that each takeover reads this root;
        // otherwise nothing is acknowledged, and what the root before needs stays.
        self.check_owner()?;
        {
            let mut writer = lock(&self.writer);
            // It may have ended meanwhile; then the next checkpoint counts.
            if opened.stack.is_logged_as(moment.point.log) && writer.point.log == moment.point.log {
                writer.is_rooted = true;
                self.send(&mut writer)?;
            }
        }
        // Callers have what they wait for. The next checkpoint deletes what is left.
        if let Err(error) = self.delete_replaced(&mut turn, first) {
            tracing::warn!(
                error = error.chain(),
                "old checkpoints and logs of the catalog are left in the bucket for now"
            );
        }
        Ok(())
    }

    /// Deletes what the root needs no more, of the log of this term up to the object `first`.
    fn delete_replaced(&self, turn: &mut Turn, first: u64) -> Result<()> {
        while let Some(name) = turn.replaced.last() {
            self.bucket.delete(name)?;
            turn.replaced.pop();
        }
        while turn.first < first {
            self.bucket.delete(&names::log(self.owner.term, turn.first))?;
            turn.first += 1;
        }
        if !turn.is_clean {
            turn.is_clean = self.delete_left(turn)?;
        }
        Ok(())
    }

    /// Deletes what no root needs any more: checkpoints of processes that ended before their root was there, and
    /// checkpoints and logs of the terms before. False where the store is closed meanwhile.
    ///
    /// The roots of these terms and the ends of their logs stay: they refuse what their owners still send.
    fn delete_left(&self, turn: &Turn) -> Result<bool> {
        let Some(root) = &turn.root else { return Ok(true) };
        let term = |name: &String| names::term(name).unwrap_or(u16::MAX);
        let mut left = self.bucket.list(names::CHECKPOINT)?;
        left.retain(|name| term(name) <= self.owner.term && *name != root.checkpoint);
        let logs = self.bucket.list(names::LOG)?;
        for log in logs.chunk_by(|a, b| term(a) == term(b)) {
            let (last, others) = log.split_last().expect("a chunk has a name");
            if others.is_empty() || term(last) >= self.owner.term {
                continue;
            }
            let end = self.bucket.get(last)?;
            if end.is_some_and(|end| Seal::of(&end.bytes).is_some()) {
                left.extend(others.iter().cloned());
            }
        }
        for names in left.chunks(DELETES) {
            if *lock(&self.stop.0) {
                return Ok(false);
            }
            std::thread::scope(|scope| {
                let delete = |name| scope.spawn(move || self.bucket.delete(name));
                let tasks: Vec<_> = names.iter().map(|name: &String| delete(name)).collect();
                tasks.into_iter().try_for_each(|task| task.join().expect("no panic"))
            })?;
        }
        Ok(true)
    }

    /// Writes a root in the place of the one that is there. An earlier write whose answer was lost may still be
    /// under way; it cannot be carried out any more, because each has the one before as its condition.
    fn write_root(&self, turn: &mut Turn, root: Root) -> Result<()> {
        let (name, bytes) = (names::root(self.owner.term), encode(&root));
        for _ in 0..ROOT_TRIES_MAX {
            let before = self.bucket.get(&name)?;
            // One that is damaged is replaced, too.
            let now: Option<Root> =
                before.as_ref().and_then(|before| decode(&name, &before.bytes).ok());
            if let Some(term) = now.as_ref().and_then(|now| now.sealed_by_term) {
                return Err(self.fence_sealed(term));
            }
            if now != turn.root {
                // One of these writes was carried out after all. Its log begins behind that of the root before.
                let old = std::mem::replace(&mut turn.root, now);
                turn.replaced.extend(old.map(|old| old.checkpoint));
            }
            let written = match &before {
                Some(before) => self.bucket.replace(&name, before, &bytes)?,
                None => self.bucket.create(&name, &bytes)?,
            };
            if written == Conditional::Done {
                let old = turn.root.replace(root);
                turn.replaced.extend(old.map(|old| old.checkpoint));
                return Ok(());
            }
        }
        Err(Error::new(ErrorKind::Busy, OPERATION)
            .because("the root of the catalog changes again and again")
            .with("target", self.bucket.target()))
    }

    fn is_long(&self, turn: &Turn) -> bool {
        let writer = lock(&self.writer);
        let Some(root) = &turn.root else { return true };
        writer.bytes > root.bytes.max(LOG_BYTES_MIN)
            || writer.next.saturating_sub(root.first) > LOG_OBJECTS_MAX
    }
}
