// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One process of a simulated client: two programs over a [`Client`], which asks again what is not answered.

use std::collections::{BTreeMap, HashMap};

use terrace_core::Random;
use terrace_testkit::history::{Action, Answer, Event};

use super::model::{
    Ask, Body, Change, DIRECTORIES, Data, Ended, Entry, FILES, MS, NAMES, Op, Register, TAGS, Tell,
    file_caps,
};
use crate::mutant::Mutated;
use crate::{Access, Caps, Client, ClientSettings, Grant, LogSettings, Session, Touch};

const RETRY_NS: u64 = 150 * MS;
const RENEW_NS: u64 = 200 * MS;
/// Files that programs go on with.
const KNOWN_MAX: usize = 4;

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
        TAGS + self.last_tag
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
        for (at, action) in &deferred.undo {
            self.add(*at, deferred.start, *action, None);
        }
    }

    fn note(&mut self, op: Op, start: u64, ended: Ended) {
        let answer = match ended {
            Ended::Done | Ended::Replaced => Some(Answer::Done),
            Ended::Found(tag) => Some(Answer::Found(tag)),
            Ended::Entry(entry, _) => Some(Answer::Found(entry.tag)),
            Ended::Missing => Some(Answer::Missing),
            Ended::Exists => Some(Answer::Exists),
            Ended::LeadsTo(_) | Ended::Unknown | Ended::Lost => None,
        };
        self.counts.unknown += u64::from(ended == Ended::Unknown);
        match op {
            Op::Lookup(at) => {
                self.add(at, start, Action::Read, answer);
                if let Ended::Entry(Entry { inode, .. }, Some(bytes)) = ended {
                    let answer = Some(Answer::Found(bytes));
                    self.add(Register(inode, 0), start, Action::Read, answer);
                }
            }
            Op::Create(at, tag) => {
                self.add(at, start, Action::Create(tag), answer);
                if ended != Ended::Exists {
                    self.add(Register(tag, 0), start, Action::Create(0), answer);
                }
            }
            Op::Remove(at) => self.add(at, start, Action::Delete, answer),
            Op::Rename(from, to, tag) => {
                self.add(from, start, Action::Delete, answer);
                if matches!(ended, Ended::Replaced | Ended::Unknown) {
                    self.add(to, start, Action::Write(tag), answer);
                }
                if matches!(ended, Ended::Done | Ended::Unknown) {
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
    /// The inodes that it changes.
    inodes: Vec<u64>,
    start: u64,
    undo: Vec<(Register, Action)>,
}

#[derive(Clone, Debug)]
struct Running {
    op: Op,
    start: u64,
    phase: Phase,
    /// The files that it changes, as far as they are known.
    files: Vec<u64>,
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

type Core = Client<Data, Change>;

pub(super) struct Process {
    state: State,
    core: Option<Core>,
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
    /// Files that programs have found or made.
    known: Vec<u64>,
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
            programs: [None, None],
            asked: BTreeMap::new(),
            flush: None,
            renewed_ns: 0,
            deferred: HashMap::new(),
            losses: HashMap::new(),
            is_strict,
            mutated,
            out: Vec::new(),
            instance: 0,
            known: Vec::new(),
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
        let op = choose(random, history, &self.known);
        let start = history.now();
        self.programs[program] = Some(Running { op, start, phase: Phase::New, files: Vec::new() });
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
        let entry = |core: &mut Core, at: Register, caps| {
            Some(core.get(now_ns, at.0, caps)?.entries().get(&at.1).copied())
        };
        let name = |at: Register| (at.0, both);
        let (under, change, undo) = match op {
            Op::Lookup(at) => {
                let Some(entry) = entry(core, at, Caps::DENTRIES)? else {
                    return Some(Ended::Missing);
                };
                let file = core.get(now_ns, entry.inode, Caps::READ);
                return Some(Ended::Entry(entry, file.map(Data::bytes)));
            }
            Op::Read(file) => {
                return Some(Ended::Found(core.get(now_ns, file, Caps::READ)?.bytes()));
            }
            Op::Create(at, tag) => {
                if entry(core, at, both)?.is_some() {
                    return Some(Ended::Exists);
                }
                let undo = vec![(at, Action::Delete), (Register(tag, 0), Action::Delete)];
                (vec![name(at)], Change::Create(at, tag, 0), undo)
            }
            Op::Remove(at) => {
                let Some(Entry { tag, inode }) = entry(core, at, both)? else {
                    return Some(Ended::Missing);
                };
                let under = vec![name(at), (inode, Caps::WRITE)];
                (under, Change::Remove(at, inode), vec![(at, Action::Create(tag))])
            }
            Op::Rename(from, to, tag) => {
                let (old, replaced) = (entry(core, from, both)?, entry(core, to, both)?);
                let Some(old) = old else { return Some(Ended::Missing) };
                let mut under = vec![name(from), (old.inode, Caps::WRITE)];
                under.extend((to.0 != from.0).then(|| name(to)));
                under.extend(replaced.map(|replaced| (replaced.inode, Caps::WRITE)));
                let moved = Entry { tag, inode: old.inode };
                let back = replaced.map_or(Action::Delete, |replaced| Action::Write(replaced.tag));
                let undo = vec![(from, Action::Create(old.tag)), (to, back)];
                let replaced = replaced.map(|replaced| replaced.inode);
                (under, Change::Rename(from, to, moved, replaced), undo)
            }
            Op::Write(file, tag) => {
                let before = core.get(now_ns, file, Caps::WRITE)?.bytes();
                let amended = core.amend(now_ns, (file, Caps::WRITE), |change, data, _| {
                    let bytes = match change {
                        Change::Create(_, _, bytes) | Change::Write(_, bytes) => bytes,
                        _ => return None,
                    };
                    *bytes = tag;
                    Change::Write(file, tag).apply(file, data);
                    Some(3)
                });
                if amended.is_ok() {
                    history.counts.deferred += 1;
                    return Some(Ended::Done);
                }
                let undo = vec![(Register(file, 0), Action::Write(before))];
                (vec![(file, Caps::WRITE)], Change::Write(file, tag), undo)
            }
            Op::Fsync(_) => return None,
        };
        let born = change.born().map(|(inode, data)| (inode, file_caps(), data));
        let apply = |inode, data: &mut Data| _ = change.apply(inode, data);
        let sequence = core.defer(now_ns, &under, (change, 1), born, apply).ok()?;
        let made = change.born().map(|(inode, _)| inode);
        let inodes = under.iter().map(|(inode, _)| *inode).chain(made).collect();
        self.deferred.insert(sequence, Deferred { inodes, start, undo });
        history.counts.deferred += 1;
        let replaces = matches!(change, Change::Rename(.., Some(_)));
        Some(if replaces { Ended::Replaced } else { Ended::Done })
    }

    fn end(&mut self, program: usize, ended: Ended, history: &mut History) {
        if let Some(running) = self.programs[program].take() {
            self.note_known(running.op, ended);
            history.note(running.op, running.start, ended);
        }
    }

    /// Notes a file that programs may use from now on.
    fn note_known(&mut self, op: Op, ended: Ended) {
        let file = match (op, ended) {
            (_, Ended::Entry(entry, _)) => entry.inode,
            (Op::Create(_, tag), Ended::Done) => tag,
            _ => return,
        };
        self.known.push(file);
        if self.known.len() > KNOWN_MAX {
            self.known.remove(0);
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
                let mut cached = |at: Register| {
                    let entries = core.get(now_ns, at.0, Caps::DENTRIES)?.entries();
                    entries.get(&at.1).map(|entry| entry.inode)
                };
                let changed = running.op.changes_files_of();
                running.files.extend(changed.into_iter().filter_map(&mut cached));
                let mut touches = running.op.touches(|_| None);
                for file in &running.files {
                    if !touches.iter().any(|touch| touch.inode == *file) {
                        touches.push(Touch { inode: *file, access: Access::ChangeAttributes });
                    }
                }
                core.begin(id, &touches);
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
                if is_lost != (losses > 0) {
                    history.wrong =
                        Some(format!("{losses} lost changes of {inode}, reported: {is_lost}"));
                }
                self.end(program, if is_lost { Ended::Lost } else { Ended::Done }, history);
                continue;
            }
            let is_cached = !self.is_strict;
            let files = running.files.clone();
            self.ask(now_ns, id, Ask::Op(op, is_cached, files));
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
        let is_stale = |inode: &u64| {
            let there = inodes.get(inode);
            core.known(now_ns, *inode).is_some_and(|known| Some(known) != there)
        };
        let all: Vec<u64> = inodes.keys().copied().chain(self.known.iter().copied()).collect();
        all.into_iter().find(is_stale)
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
                let core = core.expect("it has asked");
                let is_current = match ended {
                    Ended::Entry(entry, _) => core.is_current(id, entry.inode),
                    _ => true,
                };
                core.finish(now_ns, id, recalls_sent, &granted, merge);
                let ended = match ended {
                    Ended::Entry(entry, _) if !is_current => {
                        let file = core.get(now_ns, entry.inode, Caps::READ);
                        Ended::Entry(entry, file.map(Data::bytes))
                    }
                    ended => ended,
                };
                let is_its = |one: &Option<Running>| {
                    one.as_ref().is_some_and(|one| one.phase == Phase::Sent(id))
                };
                let program = self.programs.iter().position(is_its);
                let program = program.expect("a program waits for it");
                match (ended, &mut self.programs[program]) {
                    (Ended::LeadsTo(file), Some(running)) => {
                        running.files.push(file);
                        running.phase = Phase::New;
                    }
                    _ => self.end(program, ended, history),
                }
            }
            Body::Flushed(are_applied, grants) if self.flush == Some(id) => {
                let core = core.expect("it has asked");
                core.renew(now_ns, asked.first_ns, recalls_sent);
                let sent: Vec<u64> = core.unanswered_flush().map_or(Vec::new(), |flush| {
                    flush.changes.iter().map(|logged| logged.sequence).collect()
                });
                let refused: Vec<u64> =
                    core.flushed(&are_applied, &grants).iter().map(|one| one.sequence).collect();
                self.flush = None;
                self.note_lost(refused.into_iter(), history);
                sent.iter().for_each(|sequence| _ = self.deferred.remove(sequence));
            }
            Body::Flushed(..) => {}
            Body::Renewed(recalls) => {
                let core = core.expect("it has asked");
                recalls.into_iter().for_each(|recall| core.recall(recall));
                core.catch_up(core.session().instance, recalls_sent);
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
            let Some(Running { op, phase, start, files }) = running.clone() else { continue };
            match phase {
                Phase::Sent(id) if op.is_change() => {
                    core.abandon(id);
                    history.note(op, start, Ended::Unknown);
                    *running = None;
                }
                Phase::Sent(id) | Phase::Begun(id) => {
                    core.abandon(id);
                    *running = Some(Running { op, start, phase: Phase::New, files });
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
                for inode in &deferred.inodes {
                    *self.losses.entry(*inode).or_default() += 1;
                }
                history.undo(&deferred);
            }
        }
    }
}

fn settings() -> ClientSettings {
    let log = LogSettings {
        changes_max: 6,
        bytes_max: 100,
        age_ns_max: 100 * MS,
        batch_max: 3,
        batch_bytes_max: 5,
    };
    ClientSettings { lease_ns: 875 * MS, held_max: 4, log }
}

fn choose(random: &mut Random, history: &mut History, known: &[u64]) -> Op {
    let directory = |random: &mut Random| DIRECTORIES[random.below(2) as usize];
    let register =
        |random: &mut Random| Register(directory(random), random.below(NAMES.into()) as u8);
    let file = match known {
        [] => FILES[random.below(2) as usize],
        _ if random.chance(0.4) => FILES[random.below(2) as usize],
        _ => known[random.below(known.len() as u64) as usize],
    };
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
