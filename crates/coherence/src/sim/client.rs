// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One process of a simulated client: two programs over a [`Client`], which asks again what is not answered.

use std::collections::{BTreeMap, HashMap};

use terrace_core::Random;
use terrace_testkit::history::{Action, Answer, Event};

use super::model::{
    Ask, Body, Change, DIRECTORIES, Data, Ended, FILES, MS, NAMES, Op, Register, Tell,
};
use crate::mutant::Mutated;
use crate::{Caps, Client, ClientSettings, Grant, LogSettings, Session};

const RETRY_NS: u64 = 150 * MS;
const RENEW_NS: u64 = 200 * MS;

/// What all clients did to each register, what came of it, and what was lost without a report.
#[derive(Default)]
pub(super) struct History {
    pub(super) events: Vec<(Register, Event)>,
    moment: u64,
    last_tag: u64,
    last_id: u64,
    pub(super) counts: Counts,
    pub(super) wrong: Option<String>,
}

/// How often something happened, so that a test can say that it did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) local: u64,
    pub(super) deferred: u64,
    pub(super) recalls: u64,
    pub(super) lost: u64,
    pub(super) reclaims: u64,
    pub(super) unknown: u64,
}

impl History {
    pub(super) fn now(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    pub(super) fn tag(&mut self) -> u64 {
        self.last_tag += 1;
        self.last_tag
    }

    fn id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(super) fn add(&mut self, at: Register, start: u64, action: Action, answer: Option<Answer>) {
        let end = self.now();
        self.events.push((at, Event { start, end, action, answer }));
    }

    /// Notes what a change that was lost made undone.
    fn undo(&mut self, deferred: &Deferred) {
        self.counts.lost += 1;
        self.add(deferred.at, deferred.start, deferred.undo, None);
    }

    fn note(&mut self, op: Op, start: u64, ended: Ended) {
        let answer = match ended {
            Ended::Done => Some(Answer::Done),
            Ended::Found(tag) => Some(Answer::Found(tag)),
            Ended::Missing => Some(Answer::Missing),
            Ended::Exists => Some(Answer::Exists),
            Ended::Unknown | Ended::Lost => None,
        };
        self.counts.unknown += u64::from(ended == Ended::Unknown);
        match op {
            Op::Lookup(at) => self.add(at, start, Action::Read, answer),
            Op::Create(at, tag) => self.add(at, start, Action::Create(tag), answer),
            Op::Remove(at) => self.add(at, start, Action::Delete, answer),
            Op::Rename(from, to, tag) => {
                if ended != Ended::Exists {
                    self.add(from, start, Action::Delete, answer);
                }
                if ended != Ended::Missing {
                    self.add(to, start, Action::Create(tag), answer);
                }
            }
            Op::Read(file) => self.add(Register(file, 0), start, Action::Read, answer),
            Op::Write(file, tag) => self.add(Register(file, 0), start, Action::Write(tag), answer),
            Op::Fsync(_) => {}
        }
    }
}

/// A change that was acknowledged and is not with the server, as far as the client knows.
struct Deferred {
    at: Register,
    start: u64,
    undo: Action,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    op: Op,
    start: u64,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waits for a session.
    New,
    /// Waits for a flush.
    Begun(u64),
    Sent(u64),
}

struct Asked {
    ask: Ask,
    first_ns: u64,
    last_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Greeting(u64),
    Active,
    Reclaiming(u64),
}

pub(super) struct Process {
    state: State,
    core: Option<Client<Data, Change>>,
    programs: [Option<Running>; 2],
    /// Without an answer, by number.
    asked: BTreeMap<u64, Asked>,
    flush: Option<u64>,
    renewed_ns: u64,
    deferred: HashMap<u64, Deferred>,
    /// Losses by inode without a report.
    losses: HashMap<u64, u64>,
    /// Wants no capabilities.
    is_strict: bool,
    mutated: Mutated,
    /// What is to be sent: session, number, message.
    pub(super) out: Vec<(Session, u64, Ask)>,
    /// The server instance that a reclaim is for.
    instance: u64,
}

impl Process {
    pub(super) fn start(
        now_ns: u64,
        history: &mut History,
        is_strict: bool,
        mutated: Mutated,
    ) -> Self {
        let mut process = Self {
            state: State::Active,
            core: None,
            programs: [None; 2],
            asked: BTreeMap::new(),
            flush: None,
            renewed_ns: 0,
            deferred: HashMap::new(),
            losses: HashMap::new(),
            is_strict,
            mutated,
            out: Vec::new(),
            instance: 0,
        };
        process.greet(now_ns, history);
        process
    }

    /// Kills the process: what it deferred may be lost, and the outcome of its requests is unknown.
    pub(super) fn kill(self, history: &mut History) {
        for running in self.programs.into_iter().flatten() {
            history.note(running.op, running.start, Ended::Unknown);
        }
        self.deferred.values().for_each(|deferred| history.undo(deferred));
    }

    pub(super) fn session(&self) -> Option<Session> {
        self.core.as_ref().map(Client::session)
    }

    /// Whether nothing is on its way.
    pub(super) fn is_idle(&self) -> bool {
        let is_flushed = self.core.as_ref().is_none_or(|core| core.sizes().1 == 0);
        self.programs.iter().all(Option::is_none) && is_flushed
    }

    pub(super) fn is_free(&self, program: usize) -> bool {
        self.programs[program].is_none()
    }

    /// A program does something at random.
    pub(super) fn act(
        &mut self,
        now_ns: u64,
        program: usize,
        random: &mut Random,
        history: &mut History,
    ) {
        let op = choose(random, history);
        let start = history.now();
        self.programs[program] = Some(Running { op, start, phase: Phase::New });
        match self.answer(now_ns, op, start, history) {
            Some(ended) => {
                history.counts.local += 1;
                self.end(program, ended, history);
            }
            None => {
                self.proceed(now_ns, history);
                self.send(now_ns, history);
            }
        }
    }

    /// Answers without the server, if the client may.
    fn answer(&mut self, now_ns: u64, op: Op, start: u64, history: &mut History) -> Option<Ended> {
        // Without a session nothing is held.
        if matches!(self.state, State::Greeting(_)) {
            return None;
        }
        let core = self.core.as_mut()?;
        let both = Caps::DENTRIES | Caps::DENTRIES_X;
        let (at, change, undo) = match op {
            Op::Lookup(at) => {
                let entries = core.get(now_ns, at.0, Caps::DENTRIES)?.entries();
                return Some(entries.get(&at.1).map_or(Ended::Missing, |tag| Ended::Found(*tag)));
            }
            Op::Read(file) => {
                return Some(Ended::Found(core.get(now_ns, file, Caps::READ)?.bytes()));
            }
            Op::Create(at, tag) => {
                if core.get(now_ns, at.0, both)?.entries().contains_key(&at.1) {
                    return Some(Ended::Exists);
                }
                (at, Change::Create(at, tag), Action::Delete)
            }
            Op::Remove(at) => match core.get(now_ns, at.0, both)?.entries().get(&at.1) {
                None => return Some(Ended::Missing),
                Some(tag) => (at, Change::Remove(at), Action::Create(*tag)),
            },
            Op::Write(file, tag) => {
                let before = core.get(now_ns, file, Caps::WRITE)?.bytes();
                (Register(file, 0), Change::Write(file, tag), Action::Write(before))
            }
            Op::Rename(..) | Op::Fsync(_) => return None,
        };
        let caps = if matches!(op, Op::Write(..)) { Caps::WRITE } else { both };
        let apply = |data: &mut Data| _ = data.apply(change);
        let sequence = core.defer(now_ns, (at.0, caps), (change, 1), apply).ok()?;
        self.deferred.insert(sequence, Deferred { at, start, undo });
        history.counts.deferred += 1;
        Some(Ended::Done)
    }

    fn end(&mut self, program: usize, ended: Ended, history: &mut History) {
        if let Some(running) = self.programs[program].take() {
            history.note(running.op, running.start, ended);
        }
    }

    /// Begins what waited for a session, and sends what waited for a flush.
    fn proceed(&mut self, now_ns: u64, history: &mut History) {
        for program in 0..self.programs.len() {
            let Some(core) = self.core.as_mut().filter(|_| self.state == State::Active) else {
                return;
            };
            let Some(running) = &mut self.programs[program] else { continue };
            if running.phase == Phase::New {
                let id = history.id();
                core.begin(id, &running.op.touches());
                running.phase = Phase::Begun(id);
            }
            let (Phase::Begun(id), op) = (running.phase, running.op) else { continue };
            if !core.may_send(now_ns, id) {
                continue;
            }
            running.phase = Phase::Sent(id);
            if let Op::Fsync(inode) = op {
                core.abandon(id);
                let is_lost = core.take_loss(inode);
                let losses = self.losses.remove(&inode).unwrap_or(0);
                if !is_lost && losses > 0 {
                    history.wrong =
                        Some(format!("{losses} lost changes of {inode} are not reported"));
                }
                self.end(program, if is_lost { Ended::Lost } else { Ended::Done }, history);
                continue;
            }
            let wants = if self.is_strict { Vec::new() } else { wants(op) };
            self.ask(now_ns, id, Ask::Op(op, wants));
        }
    }

    fn ask(&mut self, now_ns: u64, id: u64, ask: Ask) {
        self.out.push((self.named(&ask), id, ask.clone()));
        self.asked.insert(id, Asked { ask, first_ns: now_ns, last_ns: now_ns });
    }

    /// The session that a message names.
    fn named(&self, ask: &Ask) -> Session {
        let none = Session { number: 0, instance: 0 };
        let session = self.session().unwrap_or(none);
        match ask {
            Ask::Hello => none,
            Ask::Reclaim(_) => Session { instance: self.instance, ..session },
            _ => session,
        }
    }

    fn greet(&mut self, now_ns: u64, history: &mut History) {
        let id = history.id();
        self.state = State::Greeting(id);
        self.asked.clear();
        self.ask(now_ns, id, Ask::Hello);
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, now_ns: u64, history: &mut History) {
        let mut due = Vec::new();
        for (id, asked) in &mut self.asked {
            if now_ns >= asked.last_ns + RETRY_NS {
                asked.last_ns = now_ns;
                due.push((*id, asked.ask.clone()));
            }
        }
        for (id, ask) in due {
            self.out.push((self.named(&ask), id, ask));
        }
        if self.state == State::Active {
            if now_ns >= self.renewed_ns + RENEW_NS {
                self.renewed_ns = now_ns;
                self.asked.retain(|_, asked| !matches!(asked.ask, Ask::Renew));
                let id = history.id();
                self.ask(now_ns, id, Ask::Renew);
            }
            self.proceed(now_ns, history);
            self.send(now_ns, history);
        }
    }

    fn send(&mut self, now_ns: u64, history: &mut History) {
        let Some(core) = self.core.as_mut().filter(|_| self.state == State::Active) else { return };
        let releases = core.releases();
        let flush = core.next_flush(now_ns).cloned();
        if !releases.is_empty() {
            let id = history.id();
            let ask = Ask::Release(releases);
            self.out.push((self.named(&ask), id, ask));
        }
        if let Some(flush) = flush {
            let id = history.id();
            self.flush = Some(id);
            self.ask(now_ns, id, Ask::Flush(flush.changes, flush.releases));
        }
    }

    /// An inode for which the client would answer what the server does not have.
    pub(super) fn stale(&mut self, now_ns: u64, inodes: &BTreeMap<u64, Data>) -> Option<u64> {
        let core = self.core.as_mut().filter(|_| !matches!(self.state, State::Greeting(_)))?;
        let is_stale =
            |inode: &u64| core.known(now_ns, *inode).is_some_and(|known| known != &inodes[inode]);
        inodes.keys().copied().find(is_stale)
    }

    pub(super) fn take(&mut self, now_ns: u64, tell: Tell, history: &mut History) {
        match tell {
            Tell::Recall(recall) => {
                history.counts.recalls += 1;
                if let Some(core) = &mut self.core {
                    core.recall(recall);
                }
            }
            Tell::Reply(id, recalls_sent, body) => {
                if let Some(asked) = self.asked.remove(&id) {
                    self.take_reply(now_ns, (id, asked, recalls_sent), body, history);
                }
            }
        }
        self.proceed(now_ns, history);
        self.send(now_ns, history);
    }

    fn take_reply(
        &mut self,
        now_ns: u64,
        (id, asked, recalls_sent): (u64, Asked, u64),
        body: Body,
        history: &mut History,
    ) {
        let core = self.core.as_mut();
        match body {
            Body::Session(session) => {
                let lost = match core {
                    Some(core) => core.restart(session),
                    None => {
                        let mut core = Client::new(session, settings());
                        core.mutated = self.mutated;
                        self.core = Some(core);
                        Vec::new()
                    }
                };
                self.note_lost(lost.into_iter().map(|logged| logged.sequence), history);
                // The new session counts from 1 again.
                self.deferred.clear();
                self.flush = None;
                self.state = State::Active;
            }
            Body::Granted(grants) => {
                let core = core.expect("it has claimed");
                core.reclaimed(now_ns, asked.first_ns, self.instance, &grants);
                history.counts.reclaims += 1;
                self.state = State::Active;
                let flush = core.unanswered_flush().cloned();
                if let Some(flush) = flush {
                    let id = history.id();
                    self.flush = Some(id);
                    self.ask(now_ns, id, Ask::Flush(flush.changes, flush.releases));
                }
            }
            Body::Ended(ended, grants) => {
                let data: BTreeMap<u64, &Data> =
                    grants.iter().map(|(grant, data)| (grant.number, data)).collect();
                let granted: Vec<Grant> = grants.iter().map(|(grant, _)| *grant).collect();
                let merge = |grant: &Grant, known: &mut Data| known.clone_from(data[&grant.number]);
                core.expect("it has asked").finish(now_ns, id, recalls_sent, &granted, merge);
                let is_its =
                    |one: &Option<Running>| one.is_some_and(|one| one.phase == Phase::Sent(id));
                let program = self.programs.iter().position(is_its);
                self.end(program.expect("a program waits for it"), ended, history);
            }
            Body::Flushed(are_applied) if self.flush == Some(id) => {
                let core = core.expect("it has asked");
                core.renew(now_ns, asked.first_ns, recalls_sent);
                let sent: Vec<u64> = core.unanswered_flush().map_or(Vec::new(), |flush| {
                    flush.changes.iter().map(|logged| logged.sequence).collect()
                });
                let refused: Vec<u64> =
                    core.flushed(&are_applied).iter().map(|logged| logged.sequence).collect();
                self.flush = None;
                self.note_lost(refused.into_iter(), history);
                sent.iter().for_each(|sequence| _ = self.deferred.remove(sequence));
            }
            Body::Flushed(_) => {}
            Body::Renewed(recalls) => {
                let core = core.expect("it has asked");
                recalls.into_iter().for_each(|recall| core.recall(recall));
                core.renew(now_ns, asked.first_ns, recalls_sent);
            }
            Body::UnknownSession(instance) => {
                self.take_unknown(now_ns, instance, history);
            }
        }
    }

    /// The server does not know the session: it was restarted, or has ended the session.
    fn take_unknown(&mut self, now_ns: u64, instance: u64, history: &mut History) {
        let Some(core) = self.core.as_mut() else { return };
        for running in &mut self.programs {
            let Some(Running { op, phase, start }) = *running else { continue };
            match phase {
                Phase::Sent(id) if op.is_change() => {
                    core.abandon(id);
                    history.note(op, start, Ended::Unknown);
                    *running = None;
                }
                Phase::Sent(id) | Phase::Begun(id) => {
                    core.abandon(id);
                    *running = Some(Running { op, start, phase: Phase::New });
                }
                Phase::New => {}
            }
        }
        self.asked.clear();
        self.flush = None;
        match self.state {
            State::Reclaiming(_) if instance == self.instance => self.greet(now_ns, history),
            _ => {
                self.instance = instance;
                let claims = core.claims();
                let id = history.id();
                self.state = State::Reclaiming(id);
                self.ask(now_ns, id, Ask::Reclaim(claims));
            }
        }
    }

    fn note_lost(&mut self, sequences: impl Iterator<Item = u64>, history: &mut History) {
        for sequence in sequences {
            if let Some(deferred) = self.deferred.remove(&sequence) {
                *self.losses.entry(deferred.at.0).or_default() += 1;
                history.undo(&deferred);
            }
        }
    }
}

fn settings() -> ClientSettings {
    let log = LogSettings { changes_max: 6, bytes_max: 100, age_ns_max: 100 * MS, batch_max: 3 };
    ClientSettings { lease_ns: 875 * MS, held_max: 3, log }
}

fn wants(op: Op) -> Vec<(u64, Caps)> {
    let caps = match op {
        Op::Lookup(_) => Caps::DENTRIES,
        Op::Create(..) | Op::Remove(_) | Op::Rename(..) => Caps::DENTRIES | Caps::DENTRIES_X,
        Op::Read(_) => Caps::READ,
        _ => Caps::READ | Caps::WRITE,
    };
    op.touches().into_iter().map(|touch| (touch.inode, caps)).collect()
}

fn choose(random: &mut Random, history: &mut History) -> Op {
    let directory = |random: &mut Random| DIRECTORIES[random.below(2) as usize];
    let register =
        |random: &mut Random| Register(directory(random), random.below(NAMES.into()) as u8);
    let file = FILES[random.below(2) as usize];
    match random.below(20) {
        0..=4 => Op::Lookup(register(random)),
        5..=8 => Op::Create(register(random), history.tag()),
        9..=11 => Op::Remove(register(random)),
        12 => {
            let (from, to) = (register(random), register(random));
            if from == to { Op::Lookup(to) } else { Op::Rename(from, to, history.tag()) }
        }
        13..=15 => Op::Read(file),
        16..=18 => Op::Write(file, history.tag()),
        _ => Op::Fsync(if random.chance(0.5) { file } else { directory(random) }),
    }
}
