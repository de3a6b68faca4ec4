// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stack's public face.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use terrace_core::{
    Clock, Error, ErrorKind, EventKind, Key, Kv, Outcome, Pair, Persistency, Result, Ticket,
    TierIndex,
};

use crate::catalog::changes::{LogPieces, LogSignal};
use crate::catalog::far_log::FarLog;
use crate::catalog::log::{LogPoint, Opening};
use crate::catalog::map::{Catalog, PairChange, Write as Change};
use crate::front::backup::{self, BackupMoment};
use crate::front::keeper::{self, Threads};
use crate::front::{add, remove};
use crate::memory::holds::HELD;
use crate::migrate::{drain, history};
use crate::pairs::Pairs;
use crate::recover::rebuild::{self, RebuildOptions};
use crate::recover::{check, open};
use crate::report::{
    BackupReport, CheckReport, Explanation, Health, LedgerReport, MigrationsReport, MoveReport,
    PolicyReport, RebuildReport, SegmentReport, ShadowReport, TierLatencies, TierReport,
};
use crate::runner;
use crate::runner::recording;
use crate::shared::Shared;
use crate::shared::moves::{MoveRequest, MoveWish};
use crate::tiers::account::Class;
use crate::tiers::list::TierState;
use crate::tiers::parts::{Parts, Tactics, Tier};

/// Many tiers as one backend. Cloning is cheap; all clones are the same stack.
///
/// When the last clone is dropped the stack is closed as well as can be; call [`Stack::close`] to
/// hear of errors.
#[derive(Clone)]
pub struct Stack {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    threads: Threads,
    notes: Vec<String>,
}

/// What a migration does with the old location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MoveKind {
    /// Drop it.
    Move,
    /// Keep it as a clean copy.
    Promote,
    /// Leave the primary and make a clean copy on the target.
    Copy,
}

/// Names a migration that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MoveTicket(pub u64);

impl Drop for Inner {
    fn drop(&mut self) {
        let _ = keeper::close(&self.shared, &self.threads);
    }
}

impl Stack {
    /// Makes a new, empty store and returns its id: superblocks on fresh tiers and the catalog's
    /// header.
    ///
    /// # Errors
    ///
    /// `Exists` where a tier or the catalog is in use already, `Unsupported` for a durable tier
    /// that keeps no identities.
    pub fn create(parts: &Parts) -> Result<u128> {
        let store_id = Self::new_id(&*parts.clock);
        Self::create_with_id(parts, store_id)?;
        Ok(store_id)
    }

    /// An id for [`Stack::create_with_id`]. No other store has it.
    pub fn new_id(clock: &dyn Clock) -> u128 {
        open::new_store_id(clock)
    }

    /// [`Stack::create`] with the id of [`Stack::new_id`]. After an error the id tells the superblocks that were
    /// written from those of other stores.
    ///
    /// # Errors
    ///
    /// As [`Stack::create`].
    pub fn create_with_id(parts: &Parts, store_id: u128) -> Result<()> {
        open::create(parts, store_id)
    }

    /// Whether a catalog has a store in it: its header is written last, also where it is made anew.
    ///
    /// # Errors
    ///
    /// What the catalog says.
    pub fn exists(catalog: &dyn Kv) -> Result<bool> {
        Ok(Catalog::header_of(catalog)?.is_some())
    }

    /// The id of the store in a catalog; `None` without one.
    ///
    /// # Errors
    ///
    /// What the catalog says.
    pub fn id_of(catalog: &dyn Kv) -> Result<Option<u128>> {
        Ok(Catalog::header_of(catalog)?.map(|header| header.store_id))
    }

    /// Makes the catalog of a store anew from what its tiers hold, in `parts.catalog`, which must
    /// be empty; the store must not be open. `progress` gets the files done and their total.
    ///
    /// # Errors
    ///
    /// `Exists` for a catalog that is not empty, `Denied` for tiers of different stores or a saved
    /// catalog of another, `Stale` for a tier that is empty or was last written before the others,
    /// `Io` for one that is offline. The store's files are as they were then, but for marks that were wrong.
    pub fn rebuild(
        parts: &Parts,
        options: &RebuildOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<RebuildReport> {
        rebuild::run(parts, options, progress)
    }

    /// Opens: recovers what a crash left, starts the policy and the migrator.
    ///
    /// # Errors
    ///
    /// `NotFound` without a store, `Denied` for a tier of another store or swapped tiers, `Stale`
    /// for an old copy of a tier or the catalog, `Invalid` where a tier that holds objects is
    /// missing. Nothing was changed then.
    pub fn open(mut parts: Parts) -> Result<Stack> {
        let (shared, mut notes) = open::open(&mut parts)?;
        let is_writing = shared.check_writable("open").is_ok();
        let threads = Threads::default();
        if is_writing && let Some(settings) = parts.recording.take() {
            let begun = recording::begin(&shared, settings);
            if let Err(error) = begun.and_then(|writer| recording::install(&shared, writer)) {
                // A trace is not worth a store that does not open.
                notes.push(format!("no trace is recorded: {}", error.chain()));
            }
        }
        let stack = Stack { inner: Arc::new(Inner { shared, threads, notes }) };
        if is_writing {
            let shared = &stack.inner.shared;
            if !shared.is_bare {
                let tactics = parts.tactics.take().unwrap_or_else(|| runner::none(shared));
                runner::start(shared, tactics)?;
                // The first placer is the policy's own.
                let _ = runner::run_now(shared);
            }
            keeper::start(shared, &stack.inner.threads)?;
        }
        Ok(stack)
    }

    /// Stops policy and migrations, makes everything durable and marks the store clean. Objects
    /// that are still open fail from then on.
    ///
    /// # Errors
    ///
    /// What a tier or the catalog says; the next opening then recovers.
    pub fn close(&self) -> Result<()> {
        keeper::close(&self.inner.shared, &self.inner.threads)
    }

    /// What opening did, one line each, for people.
    pub fn opening_notes(&self) -> Vec<String> {
        self.inner.notes.clone()
    }

    /// All tiers in order of preference.
    pub fn tiers(&self) -> Vec<TierReport> {
        let shared = &self.inner.shared;
        let present = shared.tiers.indexed().filter(|(_, tier)| !tier.is_retired());
        present.map(|(index, tier)| tier_report(shared, index, tier)).collect()
    }

    /// A tier by name.
    ///
    /// # Errors
    ///
    /// `NotFound` lists the names there are.
    pub fn tier(&self, name: &str) -> Result<TierIndex> {
        let tiers = &self.inner.shared.tiers;
        tiers.find(name).map(|(tier, _)| tier).ok_or_else(|| {
            let names: Vec<_> = tiers.present().map(|tier| tier.name.as_str()).collect();
            Error::new(ErrorKind::NotFound, "find a tier")
                .because(format!("there is no tier {name:?}; there are {}", names.join(", ")))
        })
    }

    /// Adds an empty tier; it is the least preferred one until the store is opened with its parts
    /// in another order. `tactics` is the policy over the tiers with the new one, as in [`Parts`]:
    /// it takes over from the one that runs, with its state where both have the same name.
    ///
    /// # Errors
    ///
    /// `Exists` for a tier in use or a name that the store has, `Busy` with 32 tiers (those that
    /// were removed since the opening count) or where the policy does not answer, which leaves the
    /// tier added, `Unsupported` for a durable tier that keeps no identities and for a store of one
    /// tier that was opened without a policy, `Denied`, `Io`.
    pub fn add_tier(&self, tier: Tier, tactics: Option<Tactics>) -> Result<()> {
        add::add(&self.inner.shared, tier, tactics)
    }

    /// Whether it was opened with one tier and no policy: its tiers change only while it is closed.
    pub fn has_fixed_tiers(&self) -> bool {
        self.inner.shared.is_bare
    }

    /// Begins to empty a tier, while the store is in use: nothing new is put there, its clean copies
    /// are dropped, and its primaries move to other tiers, those of pinned objects too, which stay
    /// pinned. Goes on after a restart; [`TierReport::drain`] says how far it is, and what cannot
    /// move. Done already is no error.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Invalid` where no other tier takes new data, `Unsupported` for a store of one
    /// tier that was opened without a policy, `Denied`, `Io`.
    pub fn drain_tier(&self, name: &str) -> Result<()> {
        drain::begin(&self.inner.shared, name, self.tier(name)?)
    }

    /// Ends the drain of a tier; what has moved stays where it is now. Errors: `NotFound`,
    /// `Denied`, `Io`.
    pub fn undrain_tier(&self, name: &str) -> Result<()> {
        drain::cancel(&self.inner.shared, self.tier(name)?)
    }

    /// Removes a tier that holds nothing. Its backend stays open until the store is closed.
    ///
    /// # Errors
    ///
    /// `Invalid` for a tier that holds something, with figures, and for the only tier; `NotFound`,
    /// `Busy`, `Corrupt` (a damaged record may name it), `Unsupported` for a store of one tier that
    /// was opened without a policy, `Denied`, `Io`.
    pub fn remove_tier(&self, name: &str) -> Result<()> {
        remove::remove(&self.inner.shared, name, self.tier(name)?)
    }

    /// Everything about an object.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Corrupt`, `Io`.
    pub fn explain(&self, key: &Key) -> Result<Explanation> {
        let shared = &self.inner.shared;
        let entry = self.find(key, "explain")?;
        for segment in entry.segments.load().iter() {
            // What cannot be found out is reported as it was.
            let _ = shared.measure(&entry, segment);
        }
        let name = |tier: TierIndex| shared.tier(tier).name.clone();
        let mut segments = Vec::new();
        for segment in entry.segments.load().iter() {
            let location = segment.location.load();
            let place = location.primary.place;
            let moving = shared.mover.of_segment(entry.object_id, segment.number);
            segments.push(SegmentReport {
                segment: segment.number,
                start_bytes: segment.start_bytes,
                size_bytes: segment.length(),
                allocated_bytes: segment.amount(),
                packed: shared.tier(place.tier).capability.packed,
                promised_bytes: segment.reach() - segment.length(),
                tier: name(place.tier),
                copies: location.copies.iter().map(|copy| name(copy.place.tier)).collect(),
                generation: place.generation,
                stored_as: location.primary.key.to_string(),
                path: shared.tier(place.tier).path_of.map(|of| of(&location.primary.key)),
                moving: moving.map(|one| one.report(shared)),
                held: segment.holds.word().map(Into::into),
                history: history::explain(shared, &entry, segment, place.tier)?,
            });
        }
        // A tier that is offline has no times to tell.
        let modified_ns = shared.stat_entry(&entry).map_or(0, |stat| stat.modified_ns);
        Ok(Explanation {
            key: key.to_string(),
            object_id: entry.object_id,
            size_bytes: entry.length(),
            created_ns: entry.created_ns,
            modified_ns,
            persistency: entry.persistency().word().into(),
            is_pinned: entry.is_pinned.load(Ordering::Acquire),
            opens: entry.opens.load(Ordering::Acquire),
            segments,
            ledger: entry.ledger.report(),
        })
    }

    /// Queues migrations of all segments of an object that are not there yet; one ticket each.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Denied` (pinned), `Busy` (moving already), `Unsupported` (the tier cannot keep
    /// what the object was promised), `Invalid`.
    pub fn migrate(
        &self,
        key: &Key,
        to: TierIndex,
        kind: MoveKind,
        priority: i32,
        reason: &str,
    ) -> Result<Vec<MoveTicket>> {
        let wish = match kind {
            MoveKind::Move => MoveWish::Move,
            MoveKind::Promote => MoveWish::Promote,
            MoveKind::Copy => MoveWish::Copy,
        };
        self.submit(key, to, wish, priority, reason)
    }

    /// Drops the clean copies of an object on a tier. Errors as [`Stack::migrate`].
    pub fn drop_copy(&self, key: &Key, tier: TierIndex) -> Result<()> {
        let entry = self.find(key, "drop a copy")?;
        self.inner.shared.check_writable("drop a copy")?;
        let mut found = false;
        for segment in entry.segments.load_full().iter() {
            found |= self.inner.shared.drop_copy(&entry, segment, tier)?;
            self.inner.shared.look_packed(&entry, segment);
        }
        if found {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NotFound, "drop a copy")
            .because("the object has no clean copy there")
            .with("key", key))
    }

    fn submit(
        &self,
        key: &Key,
        to: TierIndex,
        wish: MoveWish,
        priority: i32,
        reason: &str,
    ) -> Result<Vec<MoveTicket>> {
        let shared = &self.inner.shared;
        shared.check_writable("migrate")?;
        if shared.is_bare {
            return Err(Error::new(ErrorKind::Invalid, "migrate").because("the store has one tier"));
        }
        let is_closed = |tier: &&TierState| tier.offline.is_none() && !tier.takes_data();
        if let Some(tier) = shared.tiers.get(to).filter(is_closed) {
            return Err(Error::invalid("migrate", "the tier is drained: it takes nothing new")
                .with("tier", &tier.name));
        }
        let entry = self.find(key, "migrate")?;
        let mut tickets = Vec::new();
        for segment in entry.segments.load_full().iter() {
            let request = MoveRequest {
                key: key.clone(),
                segment: segment.number,
                wish,
                to,
                priority,
                reason: reason.into(),
                by: "user".into(),
                benefit_s: 0.0,
                slot: None,
            };
            match shared.mover.submit(shared, request) {
                Ok(id) => tickets.push(MoveTicket(id)),
                Err(Outcome::Already) => {}
                Err(Outcome::Busy) if segment.holds.is_held() => {
                    let error = Error::new(ErrorKind::Busy, "migrate").because(HELD);
                    return Err(error.with("key", key));
                }
                Err(outcome) => {
                    let error = refusal(outcome).with("key", key);
                    let promised = entry.persistency();
                    return Err(match shared.tiers.get(to).filter(|tier| !tier.keeps(promised)) {
                        Some(tier) if outcome == Outcome::TooWeak => error
                            .with("promised", promised)
                            .with("tier", &tier.name)
                            .with("strongest", tier.capability.persistency),
                        _ => error,
                    });
                }
            }
        }
        Ok(tickets)
    }

    /// Waits for a migration up to `timeout`; `None` when it has not ended by then.
    ///
    /// # Errors
    ///
    /// `NotFound` for one that is unknown or ended long ago.
    pub fn wait(&self, ticket: MoveTicket, timeout: Duration) -> Result<Option<MoveReport>> {
        let shared = &self.inner.shared;
        match shared.mover.wait(ticket.0, timeout) {
            Some((ended, true)) => Ok(Some(ended.report(shared))),
            Some((_, false)) => Ok(None),
            None => Err(unknown_move(ticket)),
        }
    }

    /// Migrations that wait or run, then the last that ended.
    pub fn moves(&self) -> Vec<MoveReport> {
        let shared = &self.inner.shared;
        shared.mover.all().iter().map(|one| one.report(shared)).collect()
    }

    /// Cancels one migration.
    ///
    /// # Errors
    ///
    /// `NotFound` where it is unknown or has ended.
    pub fn cancel(&self, ticket: MoveTicket) -> Result<()> {
        match self.inner.shared.mover.cancel(&self.inner.shared, ticket.0) {
            true => Ok(()),
            false => Err(unknown_move(ticket)),
        }
    }

    /// Cancels all that wait or run; returns how many.
    pub fn cancel_all(&self) -> usize {
        self.inner.shared.mover.cancel_all(&self.inner.shared)
    }

    /// Blocks until no migration waits or runs, up to `timeout`; false where it ran out.
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        self.inner.shared.mover.wait_idle(timeout)
    }

    /// Forbids to move an object; kept in the catalog. Errors: `NotFound`, `Denied`, `Io`.
    pub fn pin(&self, key: &Key) -> Result<()> {
        self.set_pin(key, true)
    }

    /// Allows it again. Errors: `NotFound`, `Denied`, `Io`.
    pub fn unpin(&self, key: &Key) -> Result<()> {
        self.set_pin(key, false)
    }

    fn set_pin(&self, key: &Key, is_pinned: bool) -> Result<()> {
        let shared = &self.inner.shared;
        shared.check_writable("pin")?;
        let entry = self.find(key, "pin")?;
        let changes = crate::lock(&entry.changes);
        entry.check_exists("pin")?;
        let before = entry.is_pinned.swap(is_pinned, Ordering::AcqRel);
        let ticket = shared.catalog.commit(&[Change::Put(&entry.key, &entry.record_now())]);
        if ticket.is_err() {
            entry.is_pinned.store(before, Ordering::Release);
        }
        let ticket = ticket?;
        drop(changes);
        let kind = if is_pinned { EventKind::Pin } else { EventKind::Unpin };
        for segment in entry.segments.load().iter() {
            shared.post_change(kind, segment, segment.location.load().primary.place.tier);
        }
        shared.catalog.wait(ticket)
    }

    /// The policy now; `None` where none was configured.
    pub fn policy(&self) -> Option<PolicyReport> {
        runner::report(&self.inner.shared)
    }

    /// Swaps the policy at a batch boundary. Each policy keeps its state under its name.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a store of one tier that was opened without a policy; `Busy` where the
    /// policy does not answer.
    pub fn set_policy(&self, tactics: Tactics) -> Result<()> {
        runner::set_policy(&self.inner.shared, tactics)
    }

    /// Goes on as a stack without a policy does: new objects go to the first tier with room, and
    /// stay. Errors: as [`Stack::set_policy`].
    pub fn unset_policy(&self) -> Result<()> {
        self.set_policy(runner::none(&self.inner.shared))
    }

    /// Changes a parameter of the running policy. Errors: `NotFound`, `Invalid`, `Busy`.
    pub fn set_parameter(&self, name: &str, value: &str) -> Result<()> {
        runner::set_parameter(&self.inner.shared, name, value)
    }

    /// Lets a policy decide in the shadow of the one that does: it is shown the same, nothing of it
    /// is carried out, and [`Stack::shadow`] says what would have come of it. In place of one that
    /// was there; `None` ends it.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a store of one tier that was opened without a policy; `Busy` where the
    /// policy does not answer.
    pub fn set_shadow(&self, tactics: Option<Tactics>) -> Result<()> {
        runner::set_shadow(&self.inner.shared, tactics)
    }

    /// What the policy in the shadow would have done; `None` where there is none.
    pub fn shadow(&self) -> Option<ShadowReport> {
        runner::shadow(&self.inner.shared)
    }

    /// Switches dry run on or off: decisions are recorded, not carried out.
    pub fn set_dry_run(&self, is_dry_run: bool) -> Result<()> {
        runner::set_dry_run(&self.inner.shared, is_dry_run)
    }

    /// Changes when the policy is called. Errors: `Invalid` for zero, `Busy`.
    pub fn set_calls(&self, after_events: Option<u64>, every: Option<Duration>) -> Result<()> {
        runner::set_calls(&self.inner.shared, after_events, every)
    }

    /// Sends a message to the policy and returns its reply. Errors: the policy's, `Busy`.
    pub fn message(&self, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
        runner::message(&self.inner.shared, kind, body)
    }

    /// Calls the policy now with everything that happened so far; its actions are queued when
    /// this returns.
    pub fn run_policy(&self) -> Result<()> {
        keeper::measure_utilisation(&self.inner.shared);
        runner::run_now(&self.inner.shared)
    }

    /// Checks catalog, accounts and media against each other; with `verify` reads all bytes.
    /// `progress` gets the objects done and their total now and then. Changes nothing.
    pub fn check(&self, verify: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        check::run(&self.inner.shared, verify, progress)
    }

    /// Writes the catalog to `out` as of one moment near the end of the call, while the store is in
    /// use: where every object is, and everything that only the catalog knows. `progress` gets the
    /// pairs done. [`crate::read_backup`] reads it.
    pub fn backup(
        &self,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(u64),
    ) -> Result<BackupReport> {
        backup::write(&self.inner.shared, None, out, progress).map(|(report, _)| report)
    }

    /// Writes a backup, and keeps what changes since its moment for a log behind it: the one that is
    /// written already goes on in another file, where there is none it has the number `log`. None is
    /// kept where that is `None`.
    ///
    /// # Errors
    ///
    /// As [`Stack::backup`]; a log that was to begin with it does not.
    pub fn checkpoint(
        &self,
        log: Option<u64>,
        out: &mut dyn Write,
    ) -> Result<(BackupReport, BackupMoment)> {
        backup::write(&self.inner.shared, log, out, &mut |_| {})
    }

    /// Keeps changes for the log that ended at `point`, where that says everything so far.
    pub fn go_on_with_log(&self, point: LogPoint) -> Result<()> {
        self.inner.shared.catalog.go_on_with_log(point)
    }

    /// Set when there is something for [`Stack::take_log`].
    pub fn log_signal(&self) -> Arc<LogSignal> {
        Arc::clone(self.inner.shared.catalog.changes().signal())
    }

    /// What is to be written to the log since the last call.
    pub fn take_log(&self) -> LogPieces {
        self.inner.shared.catalog.changes().take()
    }

    /// Whether changes are kept for a log.
    pub fn is_logged(&self) -> bool {
        self.inner.shared.catalog.changes().is_on()
    }

    /// Whether changes are kept for the log of this number.
    pub fn is_logged_as(&self, log: u64) -> bool {
        self.inner.shared.catalog.changes().is_of(log)
    }

    /// Keeps no more changes: the log cannot be written.
    pub fn end_log(&self, reason: &'static str) {
        self.inner.shared.catalog.changes().stop(reason);
    }

    /// Whether a thread has waited until commits are durable since the last call.
    pub fn was_log_awaited(&self) -> bool {
        self.inner.shared.catalog.changes().was_awaited()
    }

    /// Has the level `shared` given by a log on a shared tier; `None` takes that away.
    pub fn set_far_log(&self, far: Option<Arc<dyn FarLog>>) {
        self.inner.shared.set_far(far);
    }

    /// Refuses everything from now on, because another machine has taken the store over.
    pub fn fence(&self, reason: &str) {
        self.inner.shared.fence(reason);
    }

    /// The last of a closed store for its log, and whether that says everything then.
    pub fn finish_log(&self) -> (LogPieces, bool) {
        self.inner.shared.catalog.finish_log()
    }

    /// Which opening of the store this is.
    pub fn opening(&self) -> Opening {
        let header = self.inner.shared.catalog.header();
        Opening { epoch: header.epoch, opened_ns: header.opened_ns }
    }

    /// Which was the one before, where it was closed and all that was done in it was durable then;
    /// else, and of a catalog that was made anew since, none that ever was.
    pub fn previous_opening(&self) -> Opening {
        self.inner.shared.previous_opening
    }

    /// Whether what some tier holds is gone when the process ends.
    pub fn has_volatile_tiers(&self) -> bool {
        self.inner.shared.tiers.iter().any(TierState::is_volatile)
    }

    /// Where time went over all tiers.
    pub fn ledger(&self) -> LedgerReport {
        let tiers = self.inner.shared.tiers.iter();
        tiers.fold(LedgerReport::default(), |sum, tier| sum.plus(&tier.ledger.report()))
    }

    /// How long operations and waits took, and what failed, by tier. Takes no lock.
    pub fn latencies(&self) -> Vec<TierLatencies> {
        let tiers = self.inner.shared.tiers.present();
        tiers.map(|tier| tier.ledger.latencies(&tier.name)).collect()
    }

    /// How migrations ended, and what they took.
    pub fn migrations(&self) -> MigrationsReport {
        let shared = &self.inner.shared;
        let name = |tier: TierIndex| shared.tier(tier).name.clone();
        shared.mover.endings.report(name, || shared.mover.submitted())
    }

    /// What is wrong with the store.
    pub fn health(&self) -> Health {
        let shared = &self.inner.shared;
        Health {
            is_broken: shared.is_broken.load(Ordering::Acquire),
            has_failed_sync: shared.has_failed_sync.load(Ordering::Acquire),
            lacks_room: !shared.catalog.kv().has_room(),
        }
    }

    /// The number of the store, the same at all times.
    pub fn store_id(&self) -> u128 {
        self.inner.shared.store_id
    }

    /// The application's pairs of a namespace, with transactions.
    ///
    /// # Errors
    ///
    /// `Invalid` for a namespace that cannot be.
    pub fn kv(&self, namespace: &str) -> Result<Arc<dyn Kv>> {
        check_namespace(namespace)?;
        Ok(Arc::new(Pairs::new(&self.inner.shared, namespace)))
    }

    /// A number that is higher after each change of the catalog.
    pub fn last_commit(&self) -> u64 {
        self.inner.shared.catalog.last_commit()
    }

    /// The namespaces that hold key-value pairs of applications.
    pub fn kv_namespaces(&self) -> Result<Vec<String>> {
        self.inner.shared.catalog.application_namespaces()
    }

    /// Reads one of the application's key-value pairs.
    pub fn kv_get(&self, namespace: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_namespace(namespace)?;
        self.inner.shared.catalog.application_get(namespace, key)
    }

    /// Writes one, as durable as `persistency` says when this returns.
    ///
    /// # Errors
    ///
    /// `Invalid` for a namespace, key or value that is too long, `Unsupported` for a level that
    /// the catalog's engine cannot give, `Denied`, `NoSpace`, `Io`.
    pub fn kv_put(
        &self,
        namespace: &str,
        key: &[u8],
        value: &[u8],
        persistency: Persistency,
    ) -> Result<()> {
        self.kv_apply(namespace, &[(key, Some(value))], persistency).map(drop)
    }

    /// Removes one; whether it was there. Errors as [`Stack::kv_put`].
    pub fn kv_remove(&self, namespace: &str, key: &[u8], persistency: Persistency) -> Result<bool> {
        Ok(self.kv_apply(namespace, &[(key, None)], persistency)? > 0)
    }

    /// Changes pairs of a namespace in their order and with one commit: all of them or none, also
    /// after a crash. `None` removes a pair. Returns how many of those to be removed were there.
    /// Errors as [`Stack::kv_put`].
    pub fn kv_apply(
        &self,
        namespace: &str,
        changes: &[PairChange<'_>],
        persistency: Persistency,
    ) -> Result<usize> {
        self.check_kv(namespace, changes, persistency)?;
        let catalog = &self.inner.shared.catalog;
        let (removed, ticket) = catalog.application_apply(namespace, changes)?;
        self.kv_wait(ticket, persistency)?;
        Ok(removed)
    }

    /// Up to `max` pairs whose keys start with `prefix`, in order, after `after`.
    pub fn kv_scan(
        &self,
        namespace: &str,
        prefix: &[u8],
        after: Option<&[u8]>,
        max: usize,
    ) -> Result<Vec<Pair>> {
        check_namespace(namespace)?;
        self.inner.shared.catalog.application_scan(namespace, prefix, after, max)
    }

    fn check_kv(
        &self,
        namespace: &str,
        changes: &[PairChange<'_>],
        level: Persistency,
    ) -> Result<()> {
        let shared = &self.inner.shared;
        shared.check_writable("change a pair")?;
        check_namespace(namespace)?;
        if changes.iter().any(|(key, _)| key.is_empty()) {
            return Err(Error::invalid("change a pair", "the key is empty"));
        }
        if level > shared.catalog.persistency() && !shared.is_shareable() {
            return Err(Error::new(ErrorKind::Unsupported, "change a pair")
                .because("the catalog's engine cannot keep what is asked for")
                .with("persistency", level));
        }
        Ok(())
    }

    fn kv_wait(&self, ticket: Ticket, persistency: Persistency) -> Result<()> {
        let level = persistency.max(self.inner.shared.settings.persistency);
        self.inner.shared.wait_for(ticket, level)
    }

    fn find(&self, key: &Key, operation: &'static str) -> Result<Arc<crate::memory::entry::Entry>> {
        self.inner
            .shared
            .borrow_entry(key)?
            .ok_or_else(|| Error::new(ErrorKind::NotFound, operation).with("key", key))
    }
}

fn check_namespace(namespace: &str) -> Result<()> {
    // The rules for namespaces of objects hold for those of pairs.
    Key::new(namespace, "k").map(drop)
}

fn refusal(outcome: Outcome) -> Error {
    let (kind, reason) = match outcome {
        Outcome::Pinned => (ErrorKind::Denied, "the object is pinned"),
        Outcome::Busy => (ErrorKind::Busy, "it is being migrated already, or too many wait"),
        Outcome::TooWeak => {
            (ErrorKind::Unsupported, "the tier cannot keep what the object was promised")
        }
        Outcome::Stale => (ErrorKind::NotFound, "the object is gone"),
        Outcome::Cancelled => (ErrorKind::Busy, "the store is closing"),
        Outcome::Io => (ErrorKind::Io, "the tier is offline"),
        _ => (ErrorKind::Invalid, "this makes no sense for the object as it is"),
    };
    Error::new(kind, "migrate").because(reason)
}

fn unknown_move(ticket: MoveTicket) -> Error {
    Error::new(ErrorKind::NotFound, "find a migration")
        .because("it is unknown, or ended long ago")
        .with("id", ticket.0)
}

fn tier_report(shared: &Shared, index: TierIndex, tier: &TierState) -> TierReport {
    let finite = |rate: f64| rate.is_finite().then_some(rate);
    let figures = &tier.figures;
    let ledger = tier.ledger.report();
    let open_ns = shared.clock.now_ns().saturating_sub(shared.opened_clock_ns);
    let busy_ns = ledger.device_ns + ledger.move_device_ns + ledger.sync_ns;
    let busy_ns = (busy_ns / u64::from(figures.parallelism.max(1))).min(open_ns);
    let extra_w = (figures.active_w - figures.idle_w).max(0.0);
    let capacity = figures.capacity_bytes;
    TierReport {
        name: tier.name.clone(),
        target: tier.backend.target().into(),
        offline: tier.offline.clone(),
        is_writable: tier.takes_data(),
        drain: drain::report(shared, index),
        persistency: tier.capability.persistency.word().into(),
        writes: tier.capability.writes.word().into(),
        packed: tier.capability.packed,
        capacity_bytes: (capacity != u64::MAX).then_some(capacity),
        used_bytes: tier.account.bytes(Class::Used),
        reserved_bytes: tier.account.bytes(Class::Reserved),
        copy_bytes: tier.account.bytes(Class::Copy),
        garbage_bytes: tier.account.bytes(Class::Garbage),
        kept_bytes: tier.account.bytes(Class::Kept),
        keep_deleted_ns: tier.keep_deleted_ns,
        segments: tier.segments.load(Ordering::Relaxed),
        latency_ns: figures.latency_ns,
        read_bytes_per_s: finite(figures.read_bytes_per_s),
        write_bytes_per_s: finite(figures.write_bytes_per_s),
        idle_w: figures.idle_w,
        active_w: figures.active_w,
        price_per_1000_write_requests: figures.prices.per_1000_write_requests,
        price_per_1000_read_requests: figures.prices.per_1000_read_requests,
        price_per_gb_month: figures.prices.per_gb_month,
        price_per_gb_read: figures.prices.per_gb_read,
        watermarks: [tier.watermarks.low, tier.watermarks.high, tier.watermarks.critical],
        ledger,
        modelled_energy_j: figures.idle_w * open_ns as f64 * 1e-9 + extra_w * busy_ns as f64 * 1e-9,
    }
}
