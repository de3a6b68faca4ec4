// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The server's capability table: which session holds what on which inode, and which requests wait for it.
//!
//! ```text
//!                begin                        start                     finish
//! request ──────────────────► parked ──────────────────► running ──────────────────► (granted)
//!          recall conflicting      no other session holds         grants where nothing ran beside it
//!          capabilities            what conflicts                 and no request is parked on the inode
//!
//! capability:  granted ── recall sent ──► recalled ── released ──────────────────────► gone
//!                                            └── lease after the recall, or silence ──► revoked ── released ──► gone
//! ```
//!
//! - A capability is revoked without an answer only when its holder cannot use it any more: one lease after the
//!   recall was sent, or after the last message of the session. The recall's timeout and the lease are one bound, because
//!   a client that is fenced within its lease would go on to answer from its cache.
//! - A deferred change is applied only while its session holds the capabilities under which it was acknowledged, and
//!   nothing that it builds on was refused. So revoking fences the holder, and nothing has to be remembered of it. An
//!   inode that it makes is granted to its client at the end, before anyone else can look it up.
//! - What was recalled for another session is not granted for a while ([`TableSettings::calm_ns`]).
//! - Sessions that may hold anything are on a durable list ([`Output::Remember`]). Before a capability of a session is
//!   revoked, the session is marked there as fenced ([`Output::Fence`]), until it has answered the recall. A server that
//!   starts lets those on the list reclaim that are not fenced, and waits for them. It waits for a whole lease if any is
//!   fenced: what else that one held may still be in use.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use crate::changes::Changes;
use crate::mutant::{Mutant, Mutated};
use crate::{Caps, Claim, Cover, Grant, Logged, Recall, Refused, Release, Session, Touch};

/// Grants at most that are recalled at a time to make room.
const RECALLED_MAX: usize = 64;

/// Inodes at most of which it is known that they were recalled for another session.
const CONTENDED_MAX: usize = 4096;

/// Bounds of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableSettings {
    /// Time after which a capability whose session is silent, or does not answer a recall, may be revoked. Longer
    /// than the clients' lease by the drift of clocks ([`crate::ClientSettings::lease_ns`]).
    pub lease_ns: u64,
    /// Time for which an inode is not granted after it was recalled for another session: clients that change it in
    /// turn would wait for each other each time.
    pub calm_ns: u64,
    /// Sessions at most.
    pub sessions_max: usize,
    /// Inodes on which sessions hold something, at most, each counted for each session.
    pub grants_max: usize,
    /// Requests at most that are parked or run.
    pub requests_max: usize,
}

impl Default for TableSettings {
    fn default() -> Self {
        Self {
            lease_ns: 2_000_000_000,
            calm_ns: 1_000_000_000,
            sessions_max: 4096,
            grants_max: 1 << 20,
            requests_max: 1 << 16,
        }
    }
}

/// What the caller does, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Adds a session to the durable list, or takes its mark away, before it gets any reply.
    Remember(u64),
    /// Marks a session on the durable list as fenced before anything that follows.
    Fence(u64),
    /// Takes a session from the durable list.
    Forget(u64),
    /// Sends a recall to a session.
    Recall(u64, Recall),
    /// Carries out the request with this token, then calls [`Table::finish`].
    Start(u64),
}

/// Why a table refuses a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The session has ended, or is of another server instance. The client may try to reclaim.
    UnknownSession,
    /// A bound is reached. The client repeats the request later.
    Busy,
}

/// The capabilities of all sessions.
#[derive(Debug)]
pub struct Table {
    settings: TableSettings,
    instance: u64,
    /// Grants and sessions share one count, which begins higher in each instance.
    last_number: u64,
    sessions: HashMap<u64, Known>,
    inodes: HashMap<u64, Inode>,
    requests: BTreeMap<u64, Request>,
    /// Recalls without an answer: when sent, session, inode.
    recalled: BTreeSet<(u64, u64, u64)>,
    /// Sessions and inodes by the number of their last grant.
    by_grant: BTreeMap<u64, (u64, u64)>,
    grace: Option<Grace>,
    changes: Changes,
    /// When an inode was recalled for another session, and these in the order of time.
    contended: HashMap<u64, u64>,
    contended_order: VecDeque<(u64, u64)>,
    outputs: Vec<Output>,
    pub(crate) mutated: Mutated,
}

#[derive(Debug)]
struct Grace {
    until_ns: u64,
    /// Sessions that have not reclaimed.
    missing: HashSet<u64>,
    /// Sessions that may not.
    fenced: Vec<u64>,
}

#[derive(Debug)]
struct Known {
    heard_ns: u64,
    recalls: u64,
    is_fenced: bool,
    inodes: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct Inode {
    holders: BTreeMap<u64, Held>,
    parked: BTreeSet<u64>,
    /// Requests that run; they compare the version.
    running: u32,
    /// Those of them that are changes.
    changing: u32,
    /// Changes with the start or the end of each change.
    version: u64,
    /// Sessions whose deferred changes are being applied.
    applying: Vec<u64>,
}

#[derive(Debug)]
struct Held {
    /// Empty once revoked: the session has not answered the recall yet.
    caps: Caps,
    since: u64,
    grant: u64,
    recall: Option<(Recall, u64)>,
}

#[derive(Debug)]
struct Request {
    session: u64,
    touches: Vec<Touch>,
    begun_ns: u64,
    state: State,
}

/// When a request has read an inode.
#[derive(Clone, Copy)]
enum Seen {
    /// At this version, which may be another one by now.
    Version(u64),
    /// After so many changes.
    Since(u64),
}

#[derive(Debug)]
enum State {
    Parked,
    /// With the versions of its inodes at the start, in the order of `touches`, and the count of changes then.
    Running(Vec<u64>, u64),
    /// Deferred changes of these inodes.
    Applying(Vec<u64>),
}

impl Table {
    /// The table of a server that starts. `instance` is larger than that of every instance before, and at most
    /// 2²⁴; `remembered` is the durable list, with whether each session is fenced.
    pub fn new(
        now_ns: u64,
        instance: u64,
        settings: TableSettings,
        remembered: &BTreeMap<u64, bool>,
    ) -> Self {
        let of = |fenced| remembered.iter().filter(move |one| *one.1 == fenced).map(|one| *one.0);
        let until_ns = now_ns + settings.lease_ns;
        let grace = Grace { until_ns, missing: of(false).collect(), fenced: of(true).collect() };
        Self {
            settings,
            instance,
            last_number: instance << 40,
            sessions: HashMap::new(),
            inodes: HashMap::new(),
            requests: BTreeMap::new(),
            recalled: BTreeSet::new(),
            by_grant: BTreeMap::new(),
            grace: (!remembered.is_empty()).then_some(grace),
            changes: Changes::default(),
            contended: HashMap::new(),
            contended_order: VecDeque::new(),
            outputs: Vec::new(),
            mutated: Mutated::default(),
        }
    }

    /// Takes what is to be done now.
    pub fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Begins a session; its number is larger than those before, also of earlier instances.
    ///
    /// # Errors
    ///
    /// `Busy` where there are too many, of which none is silent.
    pub fn begin_session(&mut self, now_ns: u64) -> Result<Session, Refusal> {
        if self.sessions.len() >= self.settings.sessions_max {
            let is_over = |one: &u64| {
                let asks = self.requests.values().any(|request| request.session == *one);
                self.is_silent(*one, now_ns) && !asks
            };
            let silent = self.sessions.keys().copied().find(is_over);
            self.end_session(silent.ok_or(Refusal::Busy)?);
        }
        self.last_number += 1;
        self.add_session(now_ns, self.last_number);
        self.outputs.push(Output::Remember(self.last_number));
        Ok(Session { number: self.last_number, instance: self.instance })
    }

    /// Ends a session with everything that it holds and asked for.
    pub fn end_session(&mut self, session: u64) {
        let Some(ended) = self.sessions.remove(&session) else { return };
        self.outputs.push(Output::Forget(session));
        let parked = |(token, request): (&u64, &Request)| {
            let is_its = request.session == session && matches!(request.state, State::Parked);
            is_its.then_some(*token)
        };
        let parked: Vec<u64> = self.requests.iter().filter_map(parked).collect();
        parked.into_iter().for_each(|token| self.cancel(token));
        for inode in ended.inodes {
            self.drop_held(session, inode);
            self.wake(inode);
        }
    }

    /// Ends a parked request that is not to be carried out.
    fn cancel(&mut self, token: u64) {
        let Some(request) = self.requests.remove(&token) else { return };
        for touch in &request.touches {
            self.inode(touch.inode).parked.remove(&token);
        }
        for touch in &request.touches {
            self.wake(touch.inode);
            self.tidy(touch.inode);
        }
    }

    /// Begins a session again that an instance before had, with what it held there. `session` names this instance;
    /// `decided` is the number of its last deferred change that was applied or refused, which is durable with it.
    ///
    /// # Errors
    ///
    /// `UnknownSession` where the session may not, or not any more.
    pub fn reclaim(
        &mut self,
        now_ns: u64,
        session: Session,
        claims: &[Claim],
        decided: u64,
    ) -> Result<Vec<Grant>, Refusal> {
        let session = self.number_of(session)?;
        let grace = self.grace.as_mut().ok_or(Refusal::UnknownSession)?;
        if !grace.missing.remove(&session) {
            return Err(Refusal::UnknownSession);
        }
        let waits_for_fenced = !grace.fenced.is_empty() && !self.mutated.is(Mutant::ForgetFenced);
        let is_complete = grace.missing.is_empty() && !waits_for_fenced;
        self.add_session(now_ns, session);
        let mut grants = Vec::new();
        let is_released =
            |claim: &&Claim| claim.released_behind.is_some_and(|last| last <= decided);
        let ignores = self.mutated.is(Mutant::ReclaimReleased);
        for claim in claims.iter().filter(|claim| !is_released(claim) || ignores) {
            // What others have reclaimed already wins: a server that kept the rules has granted no such pair.
            let caps = claim.caps.beside(self.held_by_others(claim.inode, session));
            grants.extend(self.give(session, claim.inode, caps, Some(claim.since)));
        }
        if is_complete {
            self.end_grace(now_ns);
        }
        Ok(grants)
    }

    /// Takes note of a message of a session; returns the session's number.
    ///
    /// # Errors
    ///
    /// `UnknownSession`.
    pub fn hear(&mut self, now_ns: u64, session: Session) -> Result<u64, Refusal> {
        let number = self.number_of(session)?;
        let known = self.sessions.get_mut(&number).ok_or(Refusal::UnknownSession)?;
        known.heard_ns = known.heard_ns.max(now_ns);
        Ok(number)
    }

    /// Begins a request of a session. It is carried out when [`Output::Start`] names its token, which no
    /// other request may have, and which is larger than those of earlier requests. `touches` names an inode once:
    /// a change also reads.
    ///
    /// # Errors
    ///
    /// `UnknownSession`, `Busy`.
    pub fn begin(
        &mut self,
        now_ns: u64,
        session: Session,
        token: u64,
        touches: Vec<Touch>,
    ) -> Result<(), Refusal> {
        let session = self.hear(now_ns, session)?;
        if self.requests.len() >= self.settings.requests_max {
            return Err(Refusal::Busy);
        }
        for touch in &touches {
            self.inode(touch.inode).parked.insert(token);
        }
        let request = Request { session, touches, begun_ns: now_ns, state: State::Parked };
        self.requests.insert(token, request);
        self.recall_for(now_ns, token);
        self.try_start(token);
        Ok(())
    }

    /// Begins to apply deferred changes of a session: which of them may be applied. They are applied at once, and the
    /// caller then calls [`Table::finish_deferred`]. The caller has checked that each change is covered by what it needs,
    /// and that the number of an inode that it makes was given to this session for that.
    ///
    /// # Errors
    ///
    /// `UnknownSession`.
    pub fn begin_deferred<O>(
        &mut self,
        now_ns: u64,
        session: Session,
        token: u64,
        changes: &[Logged<O>],
    ) -> Result<Vec<bool>, Refusal> {
        let session = self.hear(now_ns, session)?;
        let mut born = BTreeMap::new();
        let mut inodes = BTreeSet::new();
        let mut refused = Refused::default();
        let mut may_apply = Vec::with_capacity(changes.len());
        for change in changes {
            let is_born = |cover: &Cover| {
                let caps = born.get(&cover.inode);
                cover.grant == 0 && caps.is_some_and(|caps: &Caps| caps.contains(cover.caps))
            };
            let is_covered = |cover: &Cover| is_born(cover) || self.is_covered(session, cover);
            let is_new = |inode| self.held_by_others(inode, session).is_empty();
            let builds_on_refused =
                refused.concerns(change) && !self.mutated.is(Mutant::BuildOnRefused);
            let may = !builds_on_refused
                && !change.covers.is_empty()
                && change.covers.iter().all(is_covered)
                && change.born.is_none_or(|(inode, _)| is_new(inode));
            if may {
                born.extend(change.born);
                inodes.extend(change.inodes());
            } else {
                refused.note(change);
            }
            may_apply.push(may);
        }
        for number in &inodes {
            let inode = self.inode(*number);
            inode.applying.push(session);
            inode.running += 1;
            inode.changing += 1;
            inode.version += 1;
            self.changes.note(*number);
        }
        let state = State::Applying(inodes.into_iter().collect());
        self.requests
            .insert(token, Request { session, touches: Vec::new(), begun_ns: now_ns, state });
        Ok(may_apply)
    }

    /// Ends the application of deferred changes: `made` are the inodes that they have made, with what their client holds
    /// on them since. Returns the grants of these.
    pub fn finish_deferred(&mut self, now_ns: u64, token: u64, made: &[(u64, Caps)]) -> Vec<Grant> {
        let Some(Request { session, state: State::Applying(inodes), .. }) =
            self.requests.remove(&token)
        else {
            return Vec::new();
        };
        for number in &inodes {
            let inode = self.inode(*number);
            inode.running -= 1;
            inode.changing -= 1;
            inode.version += 1;
            let at = inode.applying.iter().position(|one| *one == session);
            inode.applying.swap_remove(at.expect("it was added at the start"));
            self.changes.note(*number);
        }
        let mut grants = Vec::new();
        for (number, caps) in made {
            // One that was reclaimed after a restart is granted already.
            let is_held = self.inode(*number).holders.contains_key(&session);
            if !is_held {
                let caps = caps.beside(self.held_by_others(*number, session));
                grants.extend(self.give(session, *number, caps, Some(0)));
                self.make_room(now_ns);
            }
        }
        for number in &inodes {
            // What waits for it began before it was given.
            let parked: Vec<u64> = self.inode(*number).parked.iter().copied().collect();
            parked.into_iter().for_each(|token| self.recall_for(now_ns, token));
            self.wake(*number);
            self.tidy(*number);
        }
        grants
    }

    /// Ends a request that was carried out, and grants what its client wants as far as that excludes nothing. What
    /// the reply says of these inodes is what they were at some time while the request ran.
    pub fn finish(&mut self, now_ns: u64, token: u64, wants: &[(u64, Caps)]) -> Vec<Grant> {
        let Some(Request { state: State::Running(versions, since), .. }) =
            self.requests.get(&token)
        else {
            self.cancel(token);
            return Vec::new();
        };
        let (versions, since) = (versions.clone(), *since);
        let request = self.requests.remove(&token).expect("found above");
        for touch in &request.touches {
            let inode = self.inode(touch.inode);
            inode.running -= 1;
            if touch.access.is_change() {
                inode.changing -= 1;
                inode.version += 1;
            }
        }
        let mut grants = Vec::new();
        for (number, caps) in wants {
            let mut touched = request.touches.iter().zip(&versions);
            let read = match touched.find(|(touch, _)| touch.inode == *number) {
                // Its own end is no change beside it.
                Some((touch, version)) => {
                    Seen::Version(version + u64::from(touch.access.is_change()))
                }
                None => Seen::Since(since),
            };
            grants.extend(self.grant(now_ns, request.session, *number, *caps, read));
        }
        for touch in &request.touches {
            if touch.access.is_change() {
                self.changes.note(touch.inode);
            }
            self.wake(touch.inode);
            self.tidy(touch.inode);
        }
        grants
    }

    /// Takes back what a client gives.
    ///
    /// # Errors
    ///
    /// `UnknownSession`.
    pub fn release(
        &mut self,
        now_ns: u64,
        session: Session,
        release: Release,
    ) -> Result<(), Refusal> {
        let session = self.hear(now_ns, session)?;
        let held = self.inodes.get(&release.inode).and_then(|inode| inode.holders.get(&session));
        let releases_all = self.mutated.is(Mutant::ReleaseAll);
        if held.is_some_and(|held| held.grant <= release.grant || releases_all) {
            self.drop_held(session, release.inode);
            self.wake(release.inode);
            self.remember_again(session);
        }
        Ok(())
    }

    /// Revokes what was recalled a lease ago, and ends the grace period. To be called from time to time, at least
    /// several times a lease.
    pub fn tick(&mut self, now_ns: u64) {
        let lease_ns = match self.mutated.is(Mutant::EarlyFence) {
            true => self.settings.lease_ns / 4,
            false => self.settings.lease_ns,
        };
        let is_due = |(sent_ns, session, _): &&(u64, u64, u64)| {
            now_ns >= sent_ns + lease_ns || self.is_silent(*session, now_ns)
        };
        let due: Vec<_> = self.recalled.iter().filter(is_due).copied().collect();
        for (_, session, inode) in due {
            self.revoke(session, inode);
            self.wake(inode);
        }
        if self.grace.as_ref().is_some_and(|grace| now_ns >= grace.until_ns) {
            self.end_grace(now_ns);
        }
    }

    /// How many recalls were sent to a session: its replies say so.
    pub fn recalls_sent(&self, session: u64) -> u64 {
        self.sessions.get(&session).map_or(0, |session| session.recalls)
    }

    /// The recalls that a session has not answered: sent again to one that missed any.
    pub fn unanswered(&self, session: u64) -> Vec<Recall> {
        let Some(state) = self.sessions.get(&session) else { return Vec::new() };
        let recall = |inode: &u64| Some(self.inodes.get(inode)?.holders.get(&session)?.recall?.0);
        state.inodes.iter().filter_map(recall).collect()
    }

    /// Whether a request that has begun touches all of these inodes.
    pub fn is_running_on(&self, token: u64, inodes: &BTreeSet<u64>) -> bool {
        let Some(request) = self.requests.get(&token) else { return false };
        let is_touched = |inode: &u64| request.touches.iter().any(|touch| touch.inode == *inode);
        inodes.iter().all(is_touched)
    }

    /// Whether a session holds anything on an inode. A request that changes one that its client did not name must not
    /// run then, because the client would go on to answer from its cache.
    pub fn is_held_by(&self, session: u64, inode: u64) -> bool {
        let is_held = self.inodes.get(&inode).is_some_and(|it| it.holders.contains_key(&session));
        is_held && !self.mutated.is(Mutant::ChangeUnnamed)
    }

    /// When the oldest parked request began.
    pub fn oldest_parked_ns(&self) -> Option<u64> {
        let parked = self.requests.values().filter(|one| matches!(one.state, State::Parked));
        parked.map(|request| request.begun_ns).min()
    }

    /// How many inodes sessions hold something on, and how many inodes the table knows.
    pub fn sizes(&self) -> (usize, usize) {
        (self.by_grant.len(), self.inodes.len())
    }

    fn number_of(&self, session: Session) -> Result<u64, Refusal> {
        let is_for_this = session.instance == self.instance || self.mutated.is(Mutant::AnyInstance);
        if is_for_this { Ok(session.number) } else { Err(Refusal::UnknownSession) }
    }

    fn inode(&mut self, number: u64) -> &mut Inode {
        self.inodes.entry(number).or_default()
    }

    /// Forgets an inode that is not in use.
    fn tidy(&mut self, number: u64) {
        let is_unused = |inode: &Inode| {
            inode.holders.is_empty() && inode.parked.is_empty() && inode.running == 0
        };
        if self.inodes.get(&number).is_some_and(is_unused) {
            self.inodes.remove(&number);
        }
    }

    fn add_session(&mut self, now_ns: u64, session: u64) {
        let state =
            Known { heard_ns: now_ns, recalls: 0, is_fenced: false, inodes: BTreeSet::new() };
        self.sessions.insert(session, state);
    }

    /// Whether a session's client cannot use what it holds any more.
    fn is_silent(&self, session: u64, now_ns: u64) -> bool {
        let state = self.sessions.get(&session);
        state.is_none_or(|state| now_ns >= state.heard_ns + self.settings.lease_ns)
    }

    fn held_by_others(&self, inode: u64, session: u64) -> Caps {
        let Some(inode) = self.inodes.get(&inode) else { return Caps::NONE };
        let others = inode.holders.iter().filter(|(holder, _)| **holder != session);
        others.fold(Caps::NONE, |caps, (_, held)| caps | held.caps)
    }

    /// Sends the recalls that a parked request waits for.
    fn recall_for(&mut self, now_ns: u64, token: u64) {
        if self.mutated.is(Mutant::NoRecall) {
            return;
        }
        let request = &self.requests[&token];
        let (session, touches) = (request.session, request.touches.clone());
        for touch in touches {
            let inode = self.inode(touch.inode);
            let conflicts = |(holder, held): (&u64, &Held)| {
                let is_in_the_way =
                    *holder != session && held.caps.intersects(touch.access.conflicts());
                is_in_the_way.then_some(*holder)
            };
            let holders: Vec<u64> = inode.holders.iter().filter_map(conflicts).collect();
            if !holders.is_empty() {
                self.note_contended(now_ns, touch.inode);
            }
            for holder in holders {
                self.recall(now_ns, holder, touch.inode);
            }
        }
    }

    /// Recalls everything that a session holds on an inode, once.
    fn recall(&mut self, now_ns: u64, session: u64, number: u64) {
        let inode = self.inodes.get_mut(&number);
        let Some(held) = inode.and_then(|inode| inode.holders.get_mut(&session)) else { return };
        if held.recall.is_none() {
            let Some(state) = self.sessions.get_mut(&session) else { return };
            state.recalls += 1;
            let (grant, instance) = (held.grant, self.instance);
            let recall = Recall { inode: number, grant, number: state.recalls, instance };
            held.recall = Some((recall, now_ns));
            self.recalled.insert((now_ns, session, number));
            self.outputs.push(Output::Recall(session, recall));
        }
        if self.is_silent(session, now_ns) {
            self.revoke(session, number);
        }
    }

    /// Takes away what a session does not give back. The recall stays until the session answers.
    fn revoke(&mut self, session: u64, number: u64) {
        if !self.mutated.is(Mutant::FencedMayReclaim) {
            self.fence(session);
        }
        let Some(held) = self.inode(number).holders.get_mut(&session) else { return };
        held.caps = Caps::NONE;
        if let Some((_, sent_ns)) = held.recall {
            self.recalled.remove(&(sent_ns, session, number));
        }
    }

    /// Keeps a session from reclaiming anything after a restart.
    fn fence(&mut self, session: u64) {
        if let Some(state) = self.sessions.get_mut(&session)
            && !std::mem::replace(&mut state.is_fenced, true)
        {
            self.outputs.push(Output::Fence(session));
        }
    }

    /// Lets a session reclaim again once it has answered for everything that was revoked.
    fn remember_again(&mut self, session: u64) {
        let Some(state) = self.sessions.get_mut(&session) else { return };
        let is_revoked = |inode: &u64| self.inodes[inode].holders[&session].caps.is_empty();
        if state.is_fenced && !state.inodes.iter().any(is_revoked) {
            state.is_fenced = false;
            self.outputs.push(Output::Remember(session));
        }
    }

    fn drop_held(&mut self, session: u64, number: u64) {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.inodes.remove(&number);
        }
        let Some(held) = self.inode(number).holders.remove(&session) else { return };
        self.by_grant.remove(&held.grant);
        if let Some((_, sent_ns)) = held.recall {
            self.recalled.remove(&(sent_ns, session, number));
        }
        self.tidy(number);
    }

    /// Starts what is parked on an inode and can be started.
    fn wake(&mut self, number: u64) {
        let Some(inode) = self.inodes.get(&number) else { return };
        let parked: Vec<u64> = inode.parked.iter().copied().collect();
        parked.into_iter().for_each(|token| self.try_start(token));
    }

    fn try_start(&mut self, token: u64) {
        if self.grace.is_some() && !self.mutated.is(Mutant::NoGrace) {
            return;
        }
        let Some(request) = self.requests.get(&token) else { return };
        let (session, ignores) = (request.session, self.mutated);
        let is_free = |touch: &Touch| {
            let Some(inode) = self.inodes.get(&touch.inode) else { return true };
            let is_held =
                self.held_by_others(touch.inode, session).intersects(touch.access.conflicts());
            let is_applied = inode.applying.iter().any(|one| *one != session);
            let waits = !ignores.is(Mutant::NoRecallWait) && !ignores.is(Mutant::NoRecall);
            !(is_held && waits) && (!is_applied || ignores.is(Mutant::StartBesideApply))
        };
        if !request.touches.iter().all(is_free) {
            return;
        }
        let touches = request.touches.clone();
        let start = |touch: &Touch| {
            let inode = self.inodes.entry(touch.inode).or_default();
            inode.parked.remove(&token);
            inode.running += 1;
            if touch.access.is_change() {
                inode.changing += 1;
                inode.version += 1;
                self.changes.note(touch.inode);
            }
            inode.version
        };
        let versions = touches.iter().map(start).collect();
        let state = State::Running(versions, self.changes.count());
        self.requests.get_mut(&token).expect("found above").state = state;
        self.outputs.push(Output::Start(token));
    }

    fn is_covered(&self, session: u64, cover: &Cover) -> bool {
        let held = self.inodes.get(&cover.inode).and_then(|inode| inode.holders.get(&session));
        held.is_some_and(|held| held.caps.contains(cover.caps) && cover.grant >= held.since)
            || self.mutated.is(Mutant::NoFence)
            || self.mutated.is(Mutant::NoBirth) && cover.grant == 0
    }

    /// Grants what a session may have on an inode, where that is still what it has seen.
    fn grant(
        &mut self,
        now_ns: u64,
        session: u64,
        number: u64,
        wanted: Caps,
        seen: Seen,
    ) -> Option<Grant> {
        let state = self.sessions.get(&session)?;
        let unknown = Inode::default();
        let inode = self.inodes.get(&number).unwrap_or(&unknown);
        let is_changed = inode.changing > 0
            || match seen {
                Seen::Version(version) => inode.version != version,
                Seen::Since(since) => !self.changes.is_unchanged(number, since),
            };
        let is_recalled = inode.holders.get(&session).is_some_and(|held| held.recall.is_some());
        let is_refused = state.is_fenced
            || is_recalled
            || is_changed && !self.mutated.is(Mutant::GrantBesideChange)
            || !inode.parked.is_empty() && !self.mutated.is(Mutant::GrantWhileParked);
        if is_refused {
            return None;
        }
        if self.is_calm(now_ns, number) {
            return None;
        }
        if self.by_grant.len() >= self.settings.grants_max && !inode.holders.contains_key(&session)
        {
            self.make_room(now_ns);
            return None;
        }
        let caps = wanted.beside(self.held_by_others(number, session));
        self.give(session, number, caps, None)
    }

    /// Recalls the oldest grant if there are as many as there may be.
    fn make_room(&mut self, now_ns: u64) {
        if self.by_grant.len() < self.settings.grants_max {
            return;
        }
        let Some((holder, number)) = self.by_grant.values().next().copied() else { return };
        let asks = self.requests.values().any(|request| request.session == holder);
        if self.is_silent(holder, now_ns) && !asks {
            return self.end_session(holder);
        }
        let is_free =
            |(session, number): &&(u64, u64)| self.inodes[number].holders[session].recall.is_none();
        // Where so many are recalled, some are on their way.
        let mut oldest = self.by_grant.values().take(RECALLED_MAX);
        let (holder, number) = oldest.find(is_free).copied().unwrap_or((holder, number));
        self.recall(now_ns, holder, number);
    }

    /// Whether an inode was recalled for another session so short a time ago that it is not granted.
    fn is_calm(&self, now_ns: u64, number: u64) -> bool {
        let recalled_ns = self.contended.get(&number);
        recalled_ns.is_some_and(|at_ns| now_ns < at_ns + self.settings.calm_ns)
    }

    fn note_contended(&mut self, now_ns: u64, number: u64) {
        self.contended.insert(number, now_ns);
        self.contended_order.push_back((now_ns, number));
        let is_over = |at_ns: u64, calm_ns: u64| now_ns >= at_ns + calm_ns;
        while let Some((at_ns, number)) = self.contended_order.front().copied()
            && (is_over(at_ns, self.settings.calm_ns) || self.contended_order.len() > CONTENDED_MAX)
        {
            self.contended_order.pop_front();
            if self.contended.get(&number) == Some(&at_ns) {
                self.contended.remove(&number);
            }
        }
    }

    /// Notes that a session holds something, `since` a grant of an instance before or from now on.
    fn give(&mut self, session: u64, number: u64, caps: Caps, since: Option<u64>) -> Option<Grant> {
        if caps.is_empty() {
            return None;
        }
        self.last_number += 1;
        let grant = self.last_number;
        self.sessions.get_mut(&session)?.inodes.insert(number);
        let new = Held { caps, since: since.unwrap_or(grant), grant, recall: None };
        let held = self.inodes.entry(number).or_default().holders.entry(session).or_insert(new);
        if held.grant != grant {
            self.by_grant.remove(&held.grant);
            (held.caps, held.grant) = (held.caps | caps, grant);
        }
        let caps = held.caps;
        self.by_grant.insert(grant, (session, number));
        Some(Grant { inode: number, caps, number: grant })
    }

    fn end_grace(&mut self, now_ns: u64) {
        let Some(grace) = self.grace.take() else { return };
        let mut ended: Vec<u64> = grace.missing.into_iter().chain(grace.fenced).collect();
        ended.sort_unstable();
        self.outputs.extend(ended.into_iter().map(Output::Forget));
        let parked: Vec<u64> = self.requests.keys().copied().collect();
        for token in parked {
            if matches!(self.requests[&token].state, State::Parked) {
                self.recall_for(now_ns, token);
                self.try_start(token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;

    fn table() -> Table {
        let settings = TableSettings {
            lease_ns: 1000,
            calm_ns: 0,
            sessions_max: 2,
            grants_max: 2,
            requests_max: 2,
        };
        Table::new(0, 1, settings, &BTreeMap::new())
    }

    fn read(table: &mut Table, session: Session, token: u64, inode: u64) -> Vec<Grant> {
        let touches = vec![Touch { inode, access: Access::ReadData }];
        table.begin(0, session, token, touches).expect("there is room");
        table.finish(0, token, &[(inode, Caps::READ)])
    }

    #[test]
    fn at_the_bound_the_oldest_grant_is_recalled() {
        let mut table = table();
        let session = table.begin_session(0).expect("there is room");
        assert_eq!(read(&mut table, session, 1, 7).len(), 1);
        assert_eq!(read(&mut table, session, 2, 8).len(), 1);
        table.outputs();
        assert_eq!(read(&mut table, session, 3, 9), []);
        let recalled = table.outputs().into_iter().find_map(|output| match output {
            Output::Recall(_, recall) => Some(recall),
            _ => None,
        });
        let Recall { inode, grant, .. } = recalled.expect("one must go");
        assert_eq!(inode, 7);
        table.release(0, session, Release { inode, grant }).expect("it is known");
        assert_eq!(read(&mut table, session, 4, 9).len(), 1);
        assert_eq!(table.sizes(), (2, 2), "inodes that are not in use are forgotten");
    }

    #[test]
    fn only_a_silent_session_makes_room_for_another() {
        let mut table = table();
        let first = table.begin_session(0).expect("there is room");
        let second = table.begin_session(0).expect("there is room");
        assert_eq!(table.begin_session(999), Err(Refusal::Busy));
        table.hear(999, second).expect("it is known");
        table.begin_session(1000).expect("the first one is silent");
        assert_eq!(table.hear(1000, first), Err(Refusal::UnknownSession));
    }

    #[test]
    fn parked_requests_are_bounded_and_leave_others_alone() {
        let mut table = table();
        let holder = table.begin_session(0).expect("there is room");
        let other = table.begin_session(0).expect("there is room");
        read(&mut table, holder, 1, 7);
        table.outputs();
        let write = |inode| vec![Touch { inode, access: Access::WriteData }];
        table.begin(0, other, 2, write(7)).expect("there is room");
        assert!(!table.outputs().contains(&Output::Start(2)), "it waits for the holder");
        table.begin(0, other, 3, write(8)).expect("there is room");
        assert!(table.outputs().contains(&Output::Start(3)), "it is not held");
        assert_eq!(table.begin(0, other, 4, write(9)), Err(Refusal::Busy));
        table.hear(999, holder).expect("it is known");
        table.tick(999);
        assert_eq!(table.outputs(), []);
        table.tick(1000);
        assert_eq!(table.outputs(), [Output::Fence(holder.number), Output::Start(2)]);
    }

    #[test]
    fn what_changed_beside_a_read_is_not_granted() {
        let mut table = table();
        let reader = table.begin_session(0).expect("there is room");
        let other = table.begin_session(0).expect("there is room");
        let wants = [(7, Caps::ATTR), (8, Caps::ATTR)];
        let list = vec![Touch { inode: 1, access: Access::ReadEntries }];
        let change = vec![Touch { inode: 7, access: Access::ChangeAttributes }];
        let granted = |grants: Vec<Grant>| grants.iter().map(|one| one.inode).collect::<Vec<_>>();
        table.begin(0, reader, 1, list.clone()).expect("there is room");
        table.begin(0, other, 2, change).expect("there is room");
        table.finish(0, 2, &[]);
        assert_eq!(granted(table.finish(0, 1, &wants)), [8], "the other changed since it began");
        table.begin(0, reader, 3, list).expect("there is room");
        assert_eq!(granted(table.finish(0, 3, &wants)), [7, 8], "what it read is what there is");
    }

    #[test]
    fn what_was_recalled_for_another_is_not_granted_for_a_while() {
        let mut table = table();
        table.settings.calm_ns = 100;
        let holder = table.begin_session(0).expect("there is room");
        let other = table.begin_session(0).expect("there is room");
        let [Grant { number: grant, .. }] = read(&mut table, holder, 1, 7)[..] else {
            panic!("granted")
        };
        let write = vec![Touch { inode: 7, access: Access::WriteData }];
        table.begin(0, other, 2, write).expect("there is room");
        table.release(0, holder, Release { inode: 7, grant }).expect("it is known");
        assert_eq!(table.finish(50, 2, &[(7, Caps::WRITE)]), []);
        let look = vec![Touch { inode: 7, access: Access::ReadData }];
        for (now_ns, token, is_granted) in [(99, 3, false), (100, 4, true)] {
            table.begin(now_ns, other, token, look.clone()).expect("there is room");
            assert_eq!(table.finish(now_ns, token, &[(7, Caps::READ)]).len(), is_granted.into());
        }
    }

    #[test]
    fn a_session_that_is_gone_makes_room_for_grants() {
        let mut table = table();
        let gone = table.begin_session(0).expect("there is room");
        read(&mut table, gone, 1, 7);
        read(&mut table, gone, 2, 8);
        let other = table.begin_session(1000).expect("there is room");
        table
            .begin(1000, other, 3, vec![Touch { inode: 9, access: Access::ReadData }])
            .expect("there is room");
        assert_eq!(table.finish(1000, 3, &[(9, Caps::READ)]), []);
        assert_eq!(table.sizes(), (0, 0), "the silent session is ended");
    }

    fn made(sequence: u64, covers: Vec<Cover>, born: Option<(u64, Caps)>) -> Logged<()> {
        Logged { sequence, covers, born, change: () }
    }

    #[test]
    fn what_builds_on_a_refused_change_is_refused() {
        let mut table = table();
        let session = table.begin_session(0).expect("there is room");
        let begin = vec![Touch { inode: 1, access: Access::ChangeEntries }];
        table.begin(0, session, 1, begin).expect("there is room");
        let [Grant { number: grant, .. }] = table.finish(0, 1, &[(1, Caps::DENTRIES_X)])[..] else {
            panic!("granted")
        };
        let directory = Cover { inode: 1, caps: Caps::DENTRIES_X, grant };
        let unheld = Cover { inode: 5, caps: Caps::WRITE, grant };
        let born = |inode| Cover { inode, caps: Caps::WRITE, grant: 0 };
        let changes = [
            made(1, vec![directory], Some((7, Caps::WRITE))),
            made(2, vec![born(7)], None),
            made(3, vec![born(6)], None),
            made(4, Vec::new(), None),
            made(5, vec![directory, unheld], None),
            made(6, vec![directory], Some((8, Caps::WRITE))),
            made(7, vec![born(8)], None),
            made(8, vec![born(7)], None),
        ];
        let may = table.begin_deferred(0, session, 2, &changes).expect("it is known");
        assert_eq!(may, [true, true, false, false, false, false, false, true]);
        let grants = table.finish_deferred(0, 2, &[(7, Caps::WRITE)]);
        assert_eq!(grants.iter().map(|one| one.inode).collect::<Vec<_>>(), [7]);
        // It goes on under the birth, and gets no second grant for one that it has reclaimed.
        let may = table.begin_deferred(0, session, 3, &[made(9, vec![born(7)], None)]);
        assert_eq!(may, Ok(vec![true]));
        assert_eq!(table.finish_deferred(0, 3, &[(7, Caps::WRITE)]), []);
    }

    #[test]
    fn a_parked_request_that_is_given_up_leaves_nothing() {
        let mut table = table();
        let holder = table.begin_session(0).expect("there is room");
        let other = table.begin_session(0).expect("there is room");
        read(&mut table, holder, 1, 7);
        table
            .begin(0, other, 2, vec![Touch { inode: 7, access: Access::WriteData }])
            .expect("there is room");
        assert_eq!(table.finish(0, 2, &[]), []);
        table.end_session(holder.number);
        assert_eq!(table.sizes(), (0, 0));
    }

    #[test]
    fn a_silent_session_whose_request_is_parked_makes_no_room() {
        let mut table = table();
        let holder = table.begin_session(0).expect("there is room");
        let other = table.begin_session(0).expect("there is room");
        read(&mut table, holder, 1, 7);
        let write = vec![Touch { inode: 7, access: Access::WriteData }];
        table.begin(0, other, 2, write).expect("there is room");
        table.hear(999, holder).expect("it is known");
        assert_eq!(table.begin_session(1000), Err(Refusal::Busy), "its caller waits");
    }
}
