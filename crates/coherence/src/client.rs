// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The client's side: what it holds, what it knows by that, and what it has deferred.
//!
//! ```text
//! inode:   unknown ── reply with a grant ──► held ── recall ──► recalled ── flushed ── release ──► unknown
//!                                            │  ▲                  (answers nothing, defers nothing)
//!             own change begins: data forgotten│  │ reply brings data
//!                                            ▼  │
//!                                       held without data
//! ```
//!
//! - The cache answers only while the lease lasts. A reply renews it from the time at which its request was sent,
//!   and only if every recall that the server had sent by then is known: so a capability whose recall was lost
//!   expires here before the server revokes it.
//! - A reply does not make anything cached if its grant was recalled before it came, or if an own change of the
//!   inode ran or was deferred beside it: replies and recalls of several connections come in any order.
//! - One log has all deferred changes in order. A recall is answered with the message that flushes the last change
//!   under the recalled capability. A request is sent when everything is flushed that was deferred before it began on
//!   the inodes that it touches, and nothing is deferred meanwhile on the inodes that it changes.
//! - A deferred change may make an inode, on which the client holds everything from then on: it is new to all others. The
//!   server grants that with the flush.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::changes::Changes;
use crate::log::Log;
use crate::mutant::{Mutant, Mutated};
use crate::{Caps, Claim, Cover, Grant, LogSettings, Logged, Recall, Release, Session, Touch};

/// Inodes whose last grant that was given back is remembered.
const FLOORS_MAX: usize = 1024;

/// Bounds of a client.
#[derive(Clone, Copy, Debug)]
pub struct ClientSettings {
    /// Time for which a renewal lasts. Shorter than [`crate::TableSettings::lease_ns`] by more than clocks drift apart
    /// meanwhile.
    pub lease_ns: u64,
    /// Inodes at most on which it holds anything.
    pub held_max: usize,
    /// Bounds of its log.
    pub log: LogSettings,
}

impl Default for ClientSettings {
    fn default() -> Self {
        // An eighth below the server's 2 s. Quartz clocks drift by 10⁻⁴.
        Self { lease_ns: 1_750_000_000, held_max: 1 << 17, log: LogSettings::default() }
    }
}

/// A message that the server applies as one transaction, and answers with whether each change was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flush<O> {
    /// Deferred changes, in order.
    pub changes: Vec<Logged<O>>,
    /// What the client gives back behind them.
    pub releases: Vec<Release>,
}

/// Why a change cannot be deferred: the caller sends it as a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What a client holds, knows and has deferred in a session. `D` is what it knows of an inode, `O` a deferred change.
#[derive(Debug)]
pub struct Client<D, O> {
    settings: ClientSettings,
    session: Session,
    held: HashMap<u64, Held<D>>,
    /// Inodes that requests on their way touch.
    busy: HashMap<u64, Busy>,
    requests: HashMap<u64, Request<D>>,
    changes: Changes,
    /// By inode, the last grant that was given back.
    floors: HashMap<u64, u64>,
    /// The same for inodes that are not in `floors`.
    floor: u64,
    /// All recalls up to this number are known, …
    recalls_known: u64,
    /// … and these.
    recalls_later: BTreeSet<u64>,
    valid_until_ns: u64,
    log: Log<O>,
    flush: Option<Flush<O>>,
    releases: Vec<Release>,
    /// Inodes that are given back once nothing of them is in the log.
    recalled: BTreeSet<u64>,
    /// Inodes of which deferred changes were lost, and not reported.
    lost: HashSet<u64>,
    uses: u64,
    /// Inodes that are held by their last use.
    by_use: BTreeMap<u64, u64>,
    pub(crate) mutated: Mutated,
}

#[derive(Debug)]
struct Held<D> {
    caps: Caps,
    /// The first and the last grant of what is held without a gap; 0 of an inode that this client has made, and of
    /// which no grant is known.
    since: u64,
    grant: u64,
    data: Option<D>,
    recalled: Option<u64>,
    last_use: u64,
}

#[derive(Debug, Default)]
struct Busy {
    requests: u32,
    changing: u32,
    version: u64,
}

#[derive(Debug)]
struct Request<D> {
    /// Sequence number of the last change that was deferred before it on what it touches.
    behind: u64,
    sent_ns: Option<u64>,
    touches: Vec<(Touch, u64)>,
    /// How many changes there were when it began.
    since: u64,
    /// What was known of the inodes that it changes, with the grant since which they were held.
    before: HashMap<u64, (u64, D)>,
}

impl<D: Default, O: Clone> Client<D, O> {
    /// A client that holds nothing in a session that has begun.
    pub fn new(session: Session, settings: ClientSettings) -> Self {
        Self {
            settings,
            session,
            held: HashMap::new(),
            busy: HashMap::new(),
            requests: HashMap::new(),
            changes: Changes::default(),
            floors: HashMap::new(),
            floor: 0,
            recalls_known: 0,
            recalls_later: BTreeSet::new(),
            valid_until_ns: 0,
            log: Log::behind(0, settings.log),
            flush: None,
            releases: Vec::new(),
            recalled: BTreeSet::new(),
            lost: HashSet::new(),
            uses: 0,
            by_use: BTreeMap::new(),
            mutated: Mutated::default(),
        }
    }

    /// The session as messages name it.
    pub fn session(&self) -> Session {
        self.session
    }

    /// What is known of an inode for certain by these capabilities; `None` where the server must be asked.
    pub fn get(&mut self, now_ns: u64, inode: u64, caps: Caps) -> Option<&D> {
        self.usable(now_ns, inode, caps)?.data.as_ref()
    }

    /// Defers a change under exclusive capabilities, each inode named once; returns its sequence number. `apply` does to
    /// what is known of each of these inodes what the change does. The change may make an inode, whose number no other
    /// client can have.
    ///
    /// # Errors
    ///
    /// [`Full`] where a capability is not held, what it takes is not known, or the log is full.
    pub fn defer(
        &mut self,
        now_ns: u64,
        under: &[(u64, Caps)],
        (change, bytes): (O, usize),
        born: Option<(u64, Caps, D)>,
        mut apply: impl FnMut(u64, &mut D),
    ) -> Result<u64, Full> {
        if !self.log.has_room(bytes) {
            self.log.want(self.log.last());
            return Err(Full);
        }
        let mut covers = Vec::with_capacity(under.len());
        for (inode, caps) in under {
            let held = self.usable(now_ns, *inode, *caps).filter(|held| held.data.is_some());
            let grant = held.ok_or(Full)?.grant;
            covers.push(Cover { inode: *inode, caps: *caps, grant });
        }
        for (inode, _) in under {
            let data = self.held.get_mut(inode).and_then(|held| held.data.as_mut());
            apply(*inode, data.expect("it was found above"));
            self.note_own_change(*inode);
        }
        let child = born.as_ref().map(|(inode, caps, _)| (*inode, *caps));
        self.log.add(now_ns, covers, child, (change, bytes));
        if let Some((inode, caps, data)) = born {
            self.hold(Grant { inode, caps, number: 0 });
            self.held.get_mut(&inode).expect("it is held now").data = Some(data);
            self.note_own_change(inode);
        }
        while self.held.len() > self.settings.held_max && self.evict() {}
        Ok(self.log.last())
    }

    /// Changes the last deferred change of an inode instead of deferring another one, if it is not sent yet. `amend`
    /// gets that change, what is known of the inode, and by how much the change may grow; it returns by how many bytes it
    /// has grown, or `None` where it is unchanged.
    ///
    /// # Errors
    ///
    /// [`Full`] where that is not possible.
    pub fn amend(
        &mut self,
        now_ns: u64,
        (inode, caps): (u64, Caps),
        amend: impl FnOnce(&mut O, &mut D, usize) -> Option<usize>,
    ) -> Result<(), Full> {
        if self.usable(now_ns, inode, caps).is_none() {
            return Err(Full);
        }
        let data = self.held.get_mut(&inode).and_then(|held| held.data.as_mut()).ok_or(Full)?;
        let (change, room) = self.log.unsent(inode).ok_or(Full)?;
        let bytes = amend(change, data, room).ok_or(Full)?;
        self.log.grow(inode, bytes);
        self.note_own_change(inode);
        Ok(())
    }

    /// What is read from the server beside a change that is made here may be older.
    fn note_own_change(&mut self, inode: u64) {
        self.changes.note(inode);
        if let Some(busy) = self.busy.get_mut(&inode) {
            busy.version += 1;
        }
    }

    /// Has everything that was deferred sent as soon as possible; returns the number of the last change of that.
    pub fn flush_all(&mut self) -> u64 {
        self.log.want(self.log.last());
        self.log.last()
    }

    /// The number of the last deferred change whose fate is known, with all before it.
    pub fn settled(&self) -> u64 {
        self.log.settled()
    }

    /// Whether deferred changes under a capability of this inode were lost: true once for each loss.
    pub fn take_loss(&mut self, inode: u64) -> bool {
        self.lost.remove(&inode)
    }

    /// Begins a request, behind everything that was deferred so far on what it touches: it may be sent when
    /// [`Client::may_send`] says so. Its message names what it changes: where a name leads to another inode at the
    /// server, on which this session holds anything, the request has to begin again with that. What its changes touch is not known, and nothing is deferred there, until the
    /// request is [finished](Client::finish).
    pub fn begin(&mut self, id: u64, touches: &[Touch]) {
        let mut versions = Vec::new();
        let mut before = HashMap::new();
        for touch in touches {
            let busy = self.busy.entry(touch.inode).or_default();
            busy.requests += 1;
            if touch.access.is_change() {
                busy.changing += 1;
                busy.version += 1;
                self.changes.note(touch.inode);
                if let Some(held) = self.held.get_mut(&touch.inode)
                    && let Some(data) = held.data.take()
                {
                    before.insert(touch.inode, (held.since, data));
                }
            }
            versions.push((*touch, busy.version));
        }
        let behind = touches.iter().filter_map(|touch| self.log.last_of(touch.inode)).max();
        let (behind, since) = (behind.unwrap_or(0), self.changes.count());
        self.log.want(behind);
        let request = Request { behind, sent_ns: None, touches: versions, since, before };
        self.requests.insert(id, request);
    }

    /// Whether everything is flushed that was deferred before a request began on what it touches. The first time that
    /// it is, the request is sent now.
    pub fn may_send(&mut self, now_ns: u64, id: u64) -> bool {
        let settled = self.log.settled();
        let Some(request) = self.requests.get_mut(&id) else { return false };
        if settled < request.behind && !self.mutated.is(Mutant::NoBarrier) {
            return false;
        }
        request.sent_ns.get_or_insert(now_ns);
        true
    }

    /// Ends a request that is answered: the server says how many recalls it had sent, and what it grants. `merge`
    /// adds to what is known of a granted inode what the reply says of it, as it was at some time while the request
    /// ran; of an inode that the request has changed, to what was known before it.
    pub fn finish(
        &mut self,
        now_ns: u64,
        id: u64,
        recalls_sent: u64,
        grants: &[Grant],
        mut merge: impl FnMut(&Grant, &mut D),
    ) {
        let Some(mut request) = self.requests.remove(&id) else { return };
        if let Some(sent_ns) = request.sent_ns {
            self.renew(now_ns, sent_ns, recalls_sent);
        }
        let mut may_cache = HashMap::new();
        for (touch, version) in request.touches {
            let Some(busy) = self.busy.get_mut(&touch.inode) else { continue };
            busy.requests -= 1;
            let is_alone = busy.changing == u32::from(touch.access.is_change());
            may_cache.insert(touch.inode, busy.version == version && is_alone);
            if touch.access.is_change() {
                busy.changing -= 1;
                busy.version += 1;
                self.changes.note(touch.inode);
            }
            if busy.requests == 0 {
                self.busy.remove(&touch.inode);
            }
        }
        for grant in grants {
            let floor = self.floors.get(&grant.inode).copied().unwrap_or(self.floor);
            if grant.number <= floor && !self.mutated.is(Mutant::NoFloor) {
                continue;
            }
            let is_certain = match may_cache.get(&grant.inode) {
                Some(is_certain) => *is_certain,
                None => self.is_unchanged(grant.inode, request.since),
            };
            let before = request.before.remove(&grant.inode);
            self.hold(*grant);
            if (is_certain || self.mutated.is(Mutant::CacheBesideOwnChange))
                && let Some(held) = self.held.get_mut(&grant.inode)
            {
                let kept = before.filter(|(since, _)| *since == held.since);
                let known = kept.map(|(_, data)| data).unwrap_or_default();
                merge(grant, held.data.get_or_insert(known));
            }
        }
        while self.held.len() > self.settings.held_max && self.evict() {}
    }

    /// Whether no change of an inode runs or is deferred, and none was since the count of changes was this.
    fn is_unchanged(&self, inode: u64, since: u64) -> bool {
        let is_changing = self.busy.get(&inode).is_some_and(|busy| busy.changing > 0)
            || self.log.has_change_of(inode, 0) && !self.mutated.is(Mutant::CacheBesideDeferred);
        !is_changing && self.changes.is_unchanged(inode, since)
    }

    /// Whether the reply to a request, which is not finished yet, has every change of this client of an inode that
    /// the request did not name. Else the caller has what is cached, or asks again.
    pub fn is_current(&self, id: u64, inode: u64) -> bool {
        self.requests.get(&id).is_some_and(|request| self.is_unchanged(inode, request.since))
    }

    /// Ends a request that is not sent, or that the server will not answer because it or the session has ended.
    pub fn abandon(&mut self, id: u64) {
        self.finish(0, id, u64::MAX, &[], |_, _| {});
    }

    /// Renews the lease by the reply to a request without touches.
    pub fn renew(&mut self, now_ns: u64, sent_ns: u64, recalls_sent: u64) {
        let sent_ns = if self.mutated.is(Mutant::LeaseFromReply) { now_ns } else { sent_ns };
        if recalls_sent <= self.recalls_known || self.mutated.is(Mutant::RenewBesideRecall) {
            self.valid_until_ns = self.valid_until_ns.max(sent_ns + self.settings.lease_ns);
        }
    }

    /// Until when the cache answers, unless the lease is renewed.
    pub fn valid_until_ns(&self) -> u64 {
        self.valid_until_ns
    }

    /// Takes note that a server instance has sent all recalls up to this number that are not answered, again.
    pub fn catch_up(&mut self, instance: u64, recalls_sent: u64) {
        if instance != self.session.instance {
            return;
        }
        self.recalls_known = self.recalls_known.max(recalls_sent);
        self.recalls_later.retain(|number| *number > recalls_sent);
        while self.recalls_later.remove(&(self.recalls_known + 1)) {
            self.recalls_known += 1;
        }
    }

    /// Takes note of a recall, the first time or again. One of an instance in which the client has not reclaimed yet is
    /// sent again.
    pub fn recall(&mut self, recall: Recall) {
        if recall.instance != self.session.instance {
            return;
        }
        if recall.number > self.recalls_known {
            self.recalls_later.insert(recall.number);
            while self.recalls_later.remove(&(self.recalls_known + 1)) {
                self.recalls_known += 1;
            }
        }
        self.raise_floor(recall.inode, recall.grant);
        let release = Release { inode: recall.inode, grant: recall.grant };
        // What was granted since is not recalled, and the answer to this one was lost.
        let held = self.held.get_mut(&recall.inode).filter(|held| held.grant <= recall.grant);
        match held {
            Some(held) if self.log.has_change_of(recall.inode, 0) => {
                held.recalled = Some(recall.grant);
                self.recalled.insert(recall.inode);
                self.log.want(self.log.last_of(recall.inode).unwrap_or(0));
                if self.mutated.is(Mutant::ReleaseBeforeFlush) {
                    self.releases.push(release);
                }
            }
            Some(_) => {
                self.drop_held(recall.inode);
                self.releases.push(release);
            }
            None => self.releases.push(release),
        }
    }

    /// Has nothing cached by this grant of an inode, or an earlier one, whose reply comes later.
    fn raise_floor(&mut self, inode: u64, grant: u64) {
        let floor = self.floors.entry(inode).or_insert(self.floor);
        *floor = grant.max(*floor);
        if self.floors.len() > FLOORS_MAX {
            let highest = self.floors.drain().map(|(_, floor)| floor).max();
            self.floor = self.floor.max(highest.unwrap_or(0));
        }
    }

    /// What is given back now. One that gets lost is asked for by the recall, again.
    pub fn releases(&mut self) -> Vec<Release> {
        std::mem::take(&mut self.releases)
    }

    /// The next message with deferred changes, if one is due and none is unanswered.
    pub fn next_flush(&mut self, now_ns: u64) -> Option<&Flush<O>> {
        if self.flush.is_some() {
            return None;
        }
        let changes = self.log.next_batch(now_ns)?;
        // What has no changes behind these is given back with them.
        let sent = self.log.sent();
        let releases = self.recalled_behind(sent);
        Some(self.flush.insert(Flush { changes, releases }))
    }

    /// The message that is not answered, to be repeated.
    pub fn unanswered_flush(&self) -> Option<&Flush<O>> {
        self.flush.as_ref()
    }

    /// What is recalled of which nothing is in the log behind the first changes.
    fn recalled_behind(&self, changes: usize) -> Vec<Release> {
        let is_due = |inode: &u64| {
            let grant = self.held.get(inode)?.recalled?;
            let is_flushed = !self.log.has_change_of(*inode, changes);
            is_flushed.then_some(Release { inode: *inode, grant })
        };
        self.recalled.iter().filter_map(is_due).collect()
    }

    /// Ends a flush that is answered: whether each change was applied, and what the server grants of the inodes that
    /// they made. Returns the changes that it refused.
    pub fn flushed(&mut self, are_applied: &[bool], grants: &[Grant]) -> Vec<Logged<O>> {
        let Some(flush) = self.flush.take() else { return Vec::new() };
        for release in flush.releases {
            let held = self.held.get(&release.inode);
            if held.is_some_and(|held| held.recalled == Some(release.grant)) {
                self.drop_held(release.inode);
            }
        }
        for grant in grants {
            match self.held.get_mut(&grant.inode) {
                Some(held) => held.grant = held.grant.max(grant.number),
                None => self.releases.push(Release { inode: grant.inode, grant: grant.number }),
            }
        }
        let mut refused = Vec::new();
        for (logged, is_applied) in self.log.settle(are_applied) {
            logged.inodes().for_each(|inode| self.changes.note(inode));
            let born = logged.born.map(|(inode, _)| inode);
            if let Some(inode) = born {
                self.end_birth(inode, is_applied);
            }
            if !is_applied {
                refused.push(logged);
            }
        }
        // Some of them may still be held: what is known of them has what was refused.
        let building = self.log.refused().flat_map(Logged::inodes);
        let mut unknown: HashSet<u64> = building.collect();
        unknown.extend(refused.iter().flat_map(Logged::inodes));
        unknown.into_iter().for_each(|inode| self.forget(inode));
        if !self.mutated.is(Mutant::KeepRecalled) {
            // Their last change was under way when the recall came.
            for release in self.recalled_behind(0) {
                self.drop_held(release.inode);
                self.releases.push(release);
            }
        }
        self.note_lost(&refused);
        refused
    }

    /// Goes on without an inode that was not made, or of which nothing is granted.
    fn end_birth(&mut self, inode: u64, is_made: bool) {
        let Some(grant) = self.held.get(&inode).map(|held| held.grant) else { return };
        // A server that was restarted grants it with what is reclaimed.
        if is_made && grant > 0 {
            return;
        }
        self.drop_held(inode);
        if grant > 0 {
            self.releases.push(Release { inode, grant });
        }
    }

    fn forget(&mut self, inode: u64) {
        self.note_own_change(inode);
        if let Some(held) = self.held.get_mut(&inode) {
            held.data = None;
        }
        self.requests.values_mut().for_each(|request| _ = request.before.remove(&inode));
    }

    /// What the client holds, for a server that has restarted.
    pub fn claims(&self) -> Vec<Claim> {
        let released_behind = |inode: u64, held: &Held<D>| {
            let flush = self.flush.as_ref()?;
            // Unless it was granted again since.
            let is_its = |one: &Release| one.inode == inode && held.recalled == Some(one.grant);
            let is_released = flush.releases.iter().any(is_its);
            flush.changes.last().filter(|_| is_released).map(|logged| logged.sequence)
        };
        let claim = |(inode, held): (&u64, &Held<D>)| Claim {
            inode: *inode,
            caps: held.caps,
            since: held.since,
            released_behind: released_behind(*inode, held),
        };
        self.held.iter().map(claim).collect()
    }

    /// Continues with the next server instance, which grants this of what was claimed with a request that was sent
    /// at `sent_ns`. All other requests are abandoned before.
    pub fn reclaimed(&mut self, now_ns: u64, sent_ns: u64, instance: u64, grants: &[Grant]) {
        self.session.instance = instance;
        (self.recalls_known, self.valid_until_ns) = (0, 0);
        self.recalls_later.clear();
        self.releases.clear();
        self.recalled.clear();
        let granted: HashMap<u64, &Grant> = grants.iter().map(|one| (one.inode, one)).collect();
        let by_use = &mut self.by_use;
        self.held.retain(|inode, held| {
            let Some(grant) = granted.get(inode) else {
                by_use.remove(&held.last_use);
                return false;
            };
            (held.caps, held.grant) = (grant.caps, grant.number);
            // What was recalled before is free again.
            held.recalled = None;
            true
        });
        // A flush is repeated without what it gave back: that was by grants of the server before.
        if let Some(flush) = &mut self.flush {
            flush.releases.clear();
        }
        self.renew(now_ns, sent_ns, 0);
    }

    /// Begins a new session after the old one has ended; returns the deferred changes that are lost, or of which
    /// that is not known.
    pub fn restart(&mut self, session: Session) -> Vec<Logged<O>> {
        let lost = self.log.clear();
        let mut reported = std::mem::take(&mut self.lost);
        reported.extend(lost.iter().flat_map(Logged::inodes));
        // Callers may wait for a sequence number of before.
        let log = Log::behind(self.log.last(), self.settings.log);
        let mutated = self.mutated;
        *self = Self { lost: reported, mutated, log, ..Self::new(session, self.settings) };
        if self.mutated.is(Mutant::NoLossReport) {
            self.lost.clear();
        }
        lost
    }

    /// Inodes held, and changes deferred.
    pub fn sizes(&self) -> (usize, u64) {
        (self.held.len(), self.log.last() - self.log.settled())
    }

    /// What the client would answer for an inode without deferred changes: the simulation compares it with the server.
    #[cfg(test)]
    pub(crate) fn known(&mut self, now_ns: u64, inode: u64) -> Option<&D> {
        if self.log.has_change_of(inode, 0) {
            return None;
        }
        self.usable(now_ns, inode, Caps::NONE)?.data.as_ref()
    }

    fn note_lost(&mut self, refused: &[Logged<O>]) {
        if !self.mutated.is(Mutant::NoLossReport) {
            self.lost.extend(refused.iter().flat_map(Logged::inodes));
        }
    }

    fn usable(&mut self, now_ns: u64, inode: u64, caps: Caps) -> Option<&mut Held<D>> {
        let is_valid = now_ns < self.valid_until_ns || self.mutated.is(Mutant::NoLease);
        let is_changing = self.busy.get(&inode).is_some_and(|busy| busy.changing > 0);
        let held = self.held.get_mut(&inode).filter(|_| is_valid && !is_changing)?;
        let is_usable = held.caps.contains(caps) && held.recalled.is_none();
        if is_usable && !caps.is_empty() {
            self.by_use.remove(&held.last_use);
            self.uses += 1;
            held.last_use = self.uses;
            self.by_use.insert(self.uses, inode);
        }
        is_usable.then_some(held)
    }

    fn hold(&mut self, grant: Grant) {
        self.uses += 1;
        let new = Held {
            caps: grant.caps,
            since: grant.number,
            grant: grant.number,
            data: None,
            recalled: None,
            last_use: self.uses,
        };
        let held = self.held.entry(grant.inode).or_insert(new);
        if held.last_use == self.uses {
            self.by_use.insert(self.uses, grant.inode);
        }
        if held.recalled.is_some_and(|recalled| recalled < grant.number) {
            // The server has what was recalled; the answer that says so is on its way.
            (held.since, held.caps, held.recalled) = (grant.number, Caps::NONE, None);
            held.data = None;
            self.recalled.remove(&grant.inode);
        }
        held.caps = held.caps | grant.caps;
        held.grant = held.grant.max(grant.number);
    }

    fn drop_held(&mut self, inode: u64) {
        if let Some(held) = self.held.remove(&inode) {
            self.by_use.remove(&held.last_use);
            self.recalled.remove(&inode);
        }
    }

    /// Gives back what was used least recently and has no deferred change; whether there was any.
    fn evict(&mut self) -> bool {
        let is_free = |inode: &&u64| {
            self.held[*inode].recalled.is_none() && !self.log.has_change_of(**inode, 0)
        };
        let Some(inode) = self.by_use.values().find(is_free).copied() else { return false };
        let release = Release { inode, grant: self.held[&inode].grant };
        self.drop_held(inode);
        self.raise_floor(release.inode, release.grant);
        self.releases.push(release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;

    const SESSION: Session = Session { number: 1, instance: 1 };

    fn client() -> Client<u8, u8> {
        let log = LogSettings { changes_max: 2, ..LogSettings::default() };
        Client::new(SESSION, ClientSettings { held_max: 1, log, ..ClientSettings::default() })
    }

    fn read(client: &mut Client<u8, u8>, id: u64, inode: u64) {
        client.begin(id, &[Touch { inode, access: Access::ReadData }]);
        assert!(client.may_send(0, id));
    }

    fn finish(client: &mut Client<u8, u8>, id: u64, grant: Grant) {
        client.finish(0, id, 0, &[grant], |_, _| {});
    }

    fn grant(inode: u64, number: u64) -> Grant {
        Grant { inode, caps: Caps::READ | Caps::WRITE, number }
    }

    #[test]
    fn a_late_grant_behind_an_eviction_is_not_cached() {
        let mut client = client();
        read(&mut client, 1, 7);
        read(&mut client, 2, 7);
        read(&mut client, 3, 8);
        finish(&mut client, 2, grant(7, 6));
        assert!(client.get(0, 7, Caps::READ).is_some());
        finish(&mut client, 3, grant(8, 7));
        assert_eq!(client.releases(), [Release { inode: 7, grant: 6 }], "only one is held");
        finish(&mut client, 1, grant(7, 5));
        assert!(client.get(0, 7, Caps::READ).is_none(), "the server takes it for given back");
    }

    #[test]
    fn a_full_log_defers_nothing_until_it_is_flushed() {
        let mut client = client();
        read(&mut client, 1, 7);
        finish(&mut client, 1, grant(7, 5));
        let defer = |client: &mut Client<u8, u8>| {
            client.defer(0, &[(7, Caps::WRITE)], (1, 1), None, |_, data| *data += 1)
        };
        assert_eq!([1, 2].map(|_| defer(&mut client)), [Ok(1), Ok(2)]);
        assert_eq!(defer(&mut client), Err(Full));
        assert_eq!(client.get(0, 7, Caps::READ), Some(&2));
        let sent = client.next_flush(0).map(|flush| flush.changes.len());
        assert_eq!(sent, Some(2), "a full log is flushed at once");
        assert!(client.next_flush(0).is_none(), "one message at a time");
        assert!(client.flushed(&[true, false], &[]).len() == 1 && client.take_loss(7));
        assert_eq!(defer(&mut client), Err(Full), "what was refused was known of it");
        read(&mut client, 2, 7);
        finish(&mut client, 2, grant(7, 6));
        assert_eq!(defer(&mut client), Ok(3));
    }

    #[test]
    fn what_a_change_left_is_known_by_what_was_known_before() {
        let mut client = client();
        read(&mut client, 1, 7);
        client.finish(0, 1, 0, &[grant(7, 5)], |_, data| *data = 3);
        let write = [Touch { inode: 7, access: Access::WriteData }];
        client.begin(2, &write);
        assert!(client.may_send(0, 2) && client.get(0, 7, Caps::READ).is_none(), "it changes");
        client.finish(0, 2, 0, &[grant(7, 6)], |_, data| *data += 1);
        assert_eq!(client.get(0, 7, Caps::READ), Some(&4));
        // Given back and granted again meanwhile: others may have changed it.
        client.begin(3, &write);
        client.may_send(0, 3);
        client.recall(Recall { inode: 7, grant: 6, number: 1, instance: 1 });
        client.finish(0, 3, 1, &[grant(7, 7)], |_, data| *data += 1);
        assert_eq!(client.get(0, 7, Caps::READ), Some(&1));
    }

    #[test]
    fn an_inode_that_only_the_reply_names_is_known_unless_it_changed_beside_it() {
        for is_changed in [false, true] {
            let mut client = client();
            client.begin(1, &[]);
            client.may_send(0, 1);
            if is_changed {
                client.forget(7);
            }
            client.finish(0, 1, 0, &[grant(7, 5)], |_, data| *data = 3);
            assert_eq!(client.get(0, 7, Caps::READ).is_some(), !is_changed);
        }
    }

    #[test]
    fn a_recall_that_was_answered_before_it_came_does_not_end_the_lease() {
        let mut client = client();
        read(&mut client, 1, 7);
        client.finish(0, 1, 1, &[grant(7, 5)], |_, _| {});
        assert_eq!(client.get(0, 7, Caps::READ), None, "a recall is missing");
        client.catch_up(2, 1);
        assert_eq!(client.get(0, 7, Caps::READ), None, "of another instance");
        client.catch_up(1, 1);
        read(&mut client, 2, 7);
        client.finish(0, 2, 1, &[grant(7, 6)], |_, _| {});
        assert!(client.get(0, 7, Caps::READ).is_some());
    }
}
