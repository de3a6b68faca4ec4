// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One instance of the simulated server: the table, and requests that are carried out some time after they start.

use std::collections::HashMap;

use super::model::{Ask, Body, Change, Data, Durable, Ended, MS, Op, Tell};
use crate::mutant::{Mutant, Mutated};
use crate::{
    Caps, Grant, Logged, Output, Refusal, Refused, Release, Session, Table, TableSettings,
};

/// Something that happens in the server later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The transaction of a request.
    Commit(u64),
    /// The end of it.
    Finish(u64),
}

pub(super) struct Server {
    pub(super) table: Table,
    last_token: u64,
    work: HashMap<u64, Work>,
    /// Replies of each session by the number of the request: `None` while it is carried out. So are repeated
    /// requests by the sessions of `terrace-server`.
    replies: HashMap<(u64, u64), Option<(usize, Body)>>,
    /// A deferred change that was acknowledged, and whose client cannot have known what was there.
    pub(super) unfit: Option<Change>,
    /// Whether there is no room for some deferred changes.
    has_faults: bool,
    mutated: Mutated,
}

struct Work {
    client: usize,
    named: Session,
    session: u64,
    id: u64,
    kind: Kind,
}

enum Kind {
    Op {
        op: Op,
        is_cached: bool,
        named: Vec<u64>,
        read: Option<(Ended, Durably)>,
    },
    Flush {
        fresh: Vec<(Logged<Change>, bool)>,
        all: Vec<u64>,
        releases: Vec<Release>,
        /// What was made.
        made: Vec<(u64, Caps)>,
    },
}

/// The inodes as a request found or left them.
type Durably = Vec<(u64, Data)>;

/// What an instance wants of the world.
#[derive(Default)]
pub(super) struct Wanted {
    pub(super) tell: Vec<(usize, u64, Tell)>,
    pub(super) steps: Vec<Step>,
}

pub(super) fn settings() -> TableSettings {
    TableSettings {
        lease_ns: 1000 * MS,
        calm_ns: 20 * MS,
        sessions_max: 8,
        grants_max: 9,
        requests_max: 100,
    }
}

impl Server {
    /// Starts the next instance.
    pub(super) fn start(
        now_ns: u64,
        durable: &mut Durable,
        has_faults: bool,
        mutated: Mutated,
    ) -> Self {
        durable.instances += 1;
        let mut table = Table::new(now_ns, durable.instances, settings(), &durable.remembered);
        table.mutated = mutated;
        let (work, replies) = (HashMap::new(), HashMap::new());
        Self { table, last_token: 0, work, replies, unfit: None, has_faults, mutated }
    }

    /// Carries out a message of a client with this session, or 0, and this number.
    pub(super) fn take(
        &mut self,
        now_ns: u64,
        durable: &mut Durable,
        (client, session, id): (usize, Session, u64),
        ask: Ask,
    ) -> Wanted {
        let mut wanted = Wanted::default();
        let named = session;
        let session = named.number;
        match self.replies.get(&(session, id)) {
            Some(None) => return wanted,
            Some(Some((client, body))) if !matches!(ask, Ask::Renew) => {
                let reply = Tell::Reply(id, self.table.recalls_sent(session), body.clone());
                wanted.tell.push((*client, session, reply));
                return wanted;
            }
            _ => {}
        }
        self.last_token += 1;
        let token = self.last_token;
        let body = match ask {
            Ask::Hello => match self.table.begin_session(now_ns) {
                Ok(new) => Some(Ok(Body::Session(new))),
                Err(refusal) => Some(Err(refusal)),
            },
            Ask::Reclaim(claims) => {
                let decided = durable.decided.get(&session).map_or(0, |one| one.last);
                Some(self.table.reclaim(now_ns, named, &claims, decided).map(Body::Granted))
            }
            Ask::Renew => Some(
                self.table
                    .hear(now_ns, named)
                    .map(|_| Body::Renewed(self.table.unanswered(session))),
            ),
            Ask::Release(releases) => {
                for release in releases {
                    _ = self.table.release(now_ns, named, release);
                }
                None
            }
            Ask::Op(op, is_cached, named_file) => {
                let touches = op.touches(|at| durable.file(at));
                match self.table.begin(now_ns, named, token, touches) {
                    Ok(()) => {
                        let kind = Kind::Op { op, is_cached, named: named_file, read: None };
                        self.work.insert(token, Work { client, named, session, id, kind });
                        self.replies.insert((session, id), None);
                        None
                    }
                    Err(refusal) => Some(Err(refusal)),
                }
            }
            Ask::Flush(changes, releases) => {
                let decided = durable.decided.entry(session).or_default();
                let last = if self.mutated.is(Mutant::NoSequence) { 0 } else { decided.last };
                let fresh: Vec<_> =
                    changes.iter().filter(|one| one.sequence > last).cloned().collect();
                match self.table.begin_deferred(now_ns, named, token, &fresh) {
                    Ok(may_apply) => {
                        let all = changes.iter().map(|one| one.sequence).collect();
                        let fresh = fresh.into_iter().zip(may_apply).collect();
                        let kind = Kind::Flush { fresh, all, releases, made: Vec::new() };
                        self.work.insert(token, Work { client, named, session, id, kind });
                        self.replies.insert((session, id), None);
                        wanted.steps.push(Step::Commit(token));
                        None
                    }
                    Err(refusal) => Some(Err(refusal)),
                }
            }
        };
        self.carry_outputs(durable, &mut wanted);
        match body {
            // The client asks again.
            None | Some(Err(Refusal::Busy)) => {}
            Some(Err(Refusal::UnknownSession)) => {
                wanted.tell.push((
                    client,
                    session,
                    Tell::Reply(id, 0, Body::UnknownSession(durable.instances)),
                ));
            }
            Some(Ok(body)) => {
                self.replies.insert((session, id), Some((client, body.clone())));
                let reply = Tell::Reply(id, self.table.recalls_sent(session), body);
                wanted.tell.push((client, session, reply));
            }
        }
        wanted
    }

    /// Whether a step is of deferred changes whose session has not answered a recall.
    pub(super) fn is_of_recalled(&self, step: Step) -> bool {
        let (Step::Commit(token) | Step::Finish(token)) = step;
        let work = self.work.get(&token).filter(|work| matches!(work.kind, Kind::Flush { .. }));
        work.is_some_and(|work| !self.table.unanswered(work.session).is_empty())
    }

    /// Whether a step ends the application of deferred changes.
    pub(super) fn ends_flush(&self, step: Step) -> bool {
        let Step::Finish(token) = step else { return false };
        self.work.get(&token).is_some_and(|work| matches!(work.kind, Kind::Flush { .. }))
    }

    pub(super) fn tick(&mut self, now_ns: u64, durable: &mut Durable) -> Wanted {
        let mut wanted = Wanted::default();
        self.table.tick(now_ns);
        self.carry_outputs(durable, &mut wanted);
        wanted
    }

    pub(super) fn step(&mut self, now_ns: u64, durable: &mut Durable, step: Step) -> Wanted {
        let mut wanted = Wanted::default();
        match step {
            Step::Commit(token) => {
                if self.commit(now_ns, durable, token) {
                    wanted.steps.push(Step::Finish(token));
                }
            }
            Step::Finish(token) => self.finish(now_ns, durable, token, &mut wanted),
        }
        self.carry_outputs(durable, &mut wanted);
        wanted
    }

    /// Whether it is carried out; else it begins again.
    fn commit(&mut self, now_ns: u64, durable: &mut Durable, token: u64) -> bool {
        let Some(work) = self.work.get_mut(&token) else { return false };
        match &mut work.kind {
            Kind::Op { op, read, named, .. } => {
                let mut changed =
                    op.changes_files_of().into_iter().filter_map(|at| durable.file(at));
                let is_unnamed = |file: &u64| {
                    !named.contains(file) && self.table.is_held_by(work.session, *file)
                };
                if let Some(file) = changed.find(is_unnamed) {
                    *read = Some((Ended::LeadsTo(file), Vec::new()));
                    return true;
                }
                // Names may lead elsewhere by now.
                let touches = op.touches(|at| durable.file(at));
                let inodes = touches.iter().map(|touch| touch.inode).collect();
                if !self.table.is_running_on(token, &inodes) {
                    self.table.finish(now_ns, token, &[]);
                    self.last_token += 1;
                    let work = self.work.remove(&token).expect("found above");
                    let begun = self.table.begin(now_ns, work.named, self.last_token, touches);
                    match begun {
                        Ok(()) => _ = self.work.insert(self.last_token, work),
                        // The client asks again.
                        Err(_) => _ = self.replies.remove(&(work.session, work.id)),
                    }
                    return false;
                }
                let ended = op.carry_out(&mut durable.inodes);
                let made = match (*op, ended) {
                    (Op::Create(_, tag), Ended::Done) => Some(tag),
                    _ => None,
                };
                let of = |inode: u64| Some((inode, durable.inodes.get(&inode)?.clone()));
                *read = Some((ended, inodes.into_iter().chain(made).filter_map(of).collect()));
            }
            Kind::Flush { fresh, made, .. } => {
                let mut refused = Refused::default();
                for (logged, may_apply) in fresh {
                    let decided = durable.decided.entry(work.session).or_default();
                    // A copy of the message may have come first.
                    if logged.sequence <= decided.last && !self.mutated.is(Mutant::NoSequence) {
                        continue;
                    }
                    // There is no room, now and then.
                    let has_room =
                        !self.has_faults || !(logged.sequence + work.session).is_multiple_of(23);
                    let builds_on_refused =
                        refused.concerns(logged) && !self.mutated.is(Mutant::BuildOnRefused);
                    let is_applied = *may_apply && has_room && !builds_on_refused;
                    decided.last = decided.last.max(logged.sequence);
                    decided.are_applied.insert(logged.sequence, is_applied);
                    if !is_applied {
                        refused.note(logged);
                    } else if durable.apply(logged) {
                        made.extend(logged.born);
                    } else {
                        self.unfit = Some(logged.change);
                    }
                }
            }
        }
        true
    }

    fn finish(&mut self, now_ns: u64, durable: &Durable, token: u64, wanted: &mut Wanted) {
        let Some(Work { client, named, session, id, kind }) = self.work.remove(&token) else {
            return;
        };
        let body = match kind {
            Kind::Op { op, is_cached, read, .. } => {
                let (ended, inodes) = read.expect("it is committed");
                let wants: Vec<_> = inodes
                    .iter()
                    .map(|(inode, _)| *inode)
                    .filter(|_| is_cached)
                    .map(|inode| (inode, op.wants(inode)))
                    .collect();
                let grants = self.table.finish(now_ns, token, &wants);
                let with_data = |grant: Grant| {
                    let of = inodes.iter().find(|(inode, _)| *inode == grant.inode);
                    (grant, of.expect("only what was read is granted").1.clone())
                };
                Body::Ended(ended, grants.into_iter().map(with_data).collect())
            }
            Kind::Flush { all, releases, made, .. } => {
                let grants = self.table.finish_deferred(now_ns, token, &made);
                for release in releases {
                    _ = self.table.release(now_ns, named, release);
                }
                let decided = &durable.decided[&session].are_applied;
                let are_applied = all.iter().map(|sequence| decided[sequence]).collect();
                Body::Flushed(are_applied, grants)
            }
        };
        self.replies.insert((session, id), Some((client, body.clone())));
        let reply = Tell::Reply(id, self.table.recalls_sent(session), body);
        wanted.tell.push((client, session, reply));
    }

    fn carry_outputs(&mut self, durable: &mut Durable, wanted: &mut Wanted) {
        for output in self.table.outputs() {
            match output {
                Output::Remember(session) => _ = durable.remembered.insert(session, false),
                Output::Fence(session) => _ = durable.remembered.insert(session, true),
                Output::Forget(session) => _ = durable.remembered.remove(&session),
                Output::Recall(session, recall) => {
                    wanted.tell.push((usize::MAX, session, Tell::Recall(recall)));
                }
                Output::Start(token) => wanted.steps.push(Step::Commit(token)),
            }
        }
    }
}
