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
//!   under the recalled capability. A request is sent when everything that was deferred before it began is flushed,
//!   and nothing is deferred meanwhile on the inodes that it changes.

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
    /// Sequence number of the last change that was deferred before it.
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
            log: Log::new(settings.log),
            flush: None,
            releases: Vec::new(),
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

    /// Defers a change under an exclusive capability, and applies it to what is known of the inode; returns its
    /// sequence number.
    ///
    /// # Errors
    ///
    /// [`Full`] where the capability is not held, what it takes is not known, or the log is full.
    pub fn defer(
        &mut self,
        now_ns: u64,
        (inode, caps): (u64, Caps),
        (change, bytes): (O, usize),
        apply: impl FnOnce(&mut D),
    ) -> Result<u64, Full> {
        if !self.log.has_room(bytes) {
            self.log.want(self.log.last());
            return Err(Full);
        }
        let held = self.usable(now_ns, inode, caps).ok_or(Full)?;
        let grant = held.grant;
        apply(held.data.as_mut().ok_or(Full)?);
        if let Some(busy) = self.busy.get_mut(&inode) {
            busy.version += 1;
        }
        self.log.add(now_ns, Cover { inode, caps, grant }, change, bytes);
        Ok(self.log.last())
    }

    /// Whether deferred changes under a capability of this inode were lost: true once for each loss.
    pub fn take_loss(&mut self, inode: u64) -> bool {
        self.lost.remove(&inode)
    }

    /// Begins a request, behind everything that was deferred so far: it may be sent when
    /// [`Client::may_send`] says so. What its changes touch is not known, and nothing is deferred there, until the
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
        self.log.want(self.log.last());
        let (behind, since) = (self.log.last(), self.changes.count());
        let request = Request { behind, sent_ns: None, touches: versions, since, before };
        self.requests.insert(id, request);
    }

    /// Whether everything is flushed that was deferred before a request began. The first time that it is, the
    /// request is sent now.
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

    /// Whether no change of an inode runs, and none did since the count of changes was this.
    fn is_unchanged(&self, inode: u64, since: u64) -> bool {
        let is_changing = self.busy.get(&inode).is_some_and(|busy| busy.changing > 0);
        !is_changing && self.changes.is_unchanged(inode, since)
    }

    /// Changes what is known of an inode by a capability, as the server will, before anything else is asked.
    pub fn modify<T>(
        &mut self,
        now_ns: u64,
        inode: u64,
        caps: Caps,
        change: impl FnOnce(&mut D) -> Option<T>,
    ) -> Option<T> {
        let data = self.usable(now_ns, inode, caps)?.data.as_mut()?;
        let changed = change(data)?;
        if let Some(busy) = self.busy.get_mut(&inode) {
            busy.version += 1;
        }
        self.changes.note(inode);
        Some(changed)
    }

    /// Forgets what is known of an inode that a request has changed which did not name it.
    pub fn forget(&mut self, inode: u64) {
        self.changes.note(inode);
        if let Some(busy) = self.busy.get_mut(&inode) {
            busy.version += 1;
        }
        if let Some(held) = self.held.get_mut(&inode) {
            held.data = None;
        }
    }

    /// Forgets what is known of all inodes, where it is not known which of them a request changes.
    pub fn forget_all(&mut self) {
        self.changes.note_any();
        self.busy.values_mut().for_each(|busy| busy.version += 1);
        self.held.values_mut().for_each(|held| held.data = None);
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

    /// Takes note that the server has sent all recalls up to this number that are not answered, again.
    pub fn catch_up(&mut self, recalls_sent: u64) {
        self.recalls_known = self.recalls_known.max(recalls_sent);
        self.recalls_later.retain(|number| *number > recalls_sent);
        while self.recalls_later.remove(&(self.recalls_known + 1)) {
            self.recalls_known += 1;
        }
    }

    /// Takes note of a recall, the first time or again.
    pub fn recall(&mut self, recall: Recall) {
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
            Some(held) if self.log.covers(recall.inode, 0) => {
                held.recalled = Some(recall.grant);
                self.log.want(self.log.last());
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
        let is_due = |(inode, held): (&u64, &Held<D>)| {
            let grant = held.recalled.filter(|_| !self.log.covers(*inode, sent))?;
            Some(Release { inode: *inode, grant })
        };
        let releases = self.held.iter().filter_map(is_due).collect();
        Some(self.flush.insert(Flush { changes, releases }))
    }

    /// The message that is not answered, to be repeated.
    pub fn unanswered_flush(&self) -> Option<&Flush<O>> {
        self.flush.as_ref()
    }

    /// Ends a flush that is answered; returns the changes that the server refused.
    pub fn flushed(&mut self, are_applied: &[bool]) -> Vec<Logged<O>> {
        let Some(flush) = self.flush.take() else { return Vec::new() };
        for release in flush.releases {
            if self
                .held
                .get(&release.inode)
                .is_some_and(|held| held.recalled == Some(release.grant))
            {
                self.drop_held(release.inode);
            }
        }
        let settled = self.log.settle().into_iter().zip(are_applied);
        let refused: Vec<_> =
            settled.filter(|(_, is_applied)| !**is_applied).map(|(logged, _)| logged).collect();
        self.note_lost(&refused);
        refused
    }

    /// What the client holds, for a server that has restarted.
    pub fn claims(&self) -> Vec<Claim> {
        let released_behind = |inode: u64| {
            let flush = self.flush.as_ref()?;
            let is_released = flush.releases.iter().any(|release| release.inode == inode);
            flush.changes.last().filter(|_| is_released).map(|logged| logged.sequence)
        };
        let claim = |(inode, held): (&u64, &Held<D>)| Claim {
            inode: *inode,
            caps: held.caps,
            since: held.since,
            released_behind: released_behind(*inode),
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
        reported.extend(lost.iter().map(|logged| logged.cover.inode));
        let mutated = self.mutated;
        *self = Self { lost: reported, mutated, ..Self::new(session, self.settings) };
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
        if self.log.covers(inode, 0) {
            return None;
        }
        self.usable(now_ns, inode, Caps::NONE)?.data.as_ref()
    }

    fn note_lost(&mut self, refused: &[Logged<O>]) {
        if !self.mutated.is(Mutant::NoLossReport) {
            self.lost.extend(refused.iter().map(|logged| logged.cover.inode));
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
        }
        held.caps = held.caps | grant.caps;
        held.grant = held.grant.max(grant.number);
    }

    fn drop_held(&mut self, inode: u64) {
        if let Some(held) = self.held.remove(&inode) {
            self.by_use.remove(&held.last_use);
        }
    }

    /// Gives back what was used least recently and has no deferred change; whether there was any.
    fn evict(&mut self) -> bool {
        let is_free =
            |inode: &&u64| self.held[*inode].recalled.is_none() && !self.log.covers(**inode, 0);
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
            client.defer(0, (7, Caps::WRITE), (1, 1), |data| *data += 1)
        };
        assert_eq!([1, 2].map(|_| defer(&mut client)), [Ok(1), Ok(2)]);
        assert_eq!(defer(&mut client), Err(Full));
        assert_eq!(client.get(0, 7, Caps::READ), Some(&2));
        let sent = client.next_flush(0).map(|flush| flush.changes.len());
        assert_eq!(sent, Some(2), "a full log is flushed at once");
        assert!(client.next_flush(0).is_none(), "one message at a time");
        assert!(client.flushed(&[true, false]).len() == 1 && client.take_loss(7));
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
        client.recall(Recall { inode: 7, grant: 6, number: 1 });
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
            client.forget_all();
            assert_eq!(client.get(0, 7, Caps::READ), None);
        }
    }

    #[test]
    fn a_recall_that_was_answered_before_it_came_does_not_end_the_lease() {
        let mut client = client();
        read(&mut client, 1, 7);
        client.finish(0, 1, 1, &[grant(7, 5)], |_, _| {});
        assert_eq!(client.get(0, 7, Caps::READ), None, "a recall is missing");
        client.catch_up(1);
        read(&mut client, 2, 7);
        client.finish(0, 2, 1, &[grant(7, 6)], |_, _| {});
        assert!(client.get(0, 7, Caps::READ).is_some());
    }

    #[test]
    fn what_a_client_changes_ahead_of_the_server_is_not_undone_by_an_answer_from_before() {
        let mut client = client();
        read(&mut client, 1, 7);
        client.finish(0, 1, 0, &[grant(7, 5)], |_, data| *data = 3);
        client.begin(2, &[]);
        client.may_send(0, 2);
        let more = |data: &mut u8| {
            *data += 1;
            Some(*data)
        };
        assert_eq!(client.modify(0, 7, Caps::READ, more), Some(4));
        client.finish(0, 2, 0, &[grant(7, 6)], |_, data| *data = 3);
        assert_eq!(client.get(0, 7, Caps::READ), Some(&4));
        assert_eq!(client.modify(0, 8, Caps::READ, more), None, "nothing is held");
        assert_eq!(client.modify(client.valid_until_ns(), 7, Caps::READ, more), None);
    }
}
