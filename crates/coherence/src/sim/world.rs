// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Three clients, a server and the network between them, in virtual time: everything follows from the seed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use terrace_core::Random;
use terrace_testkit::history::{Action, Answer, is_linearizable};

use super::client::{Counts, History, Process};
use super::model::{Ask, Data, Durable, MS, Register, Tell};
use super::server::{Server, Step, Wanted, settings};
use crate::Session;
use crate::mutant::Mutated;

const CLIENTS: usize = 3;
/// Two connections of each client; messages keep their order on each.
const CONNECTIONS: u64 = 2;
/// The slowest transaction.
const SLOW_MS: u64 = 1_200;
/// On a good network no request is parked for longer.
const PARKED_MS_MAX: u64 = 150;
/// Until then programs and faults go on.
const BUSY_NS: u64 = 6_000 * MS;
/// Then everything must end within this time.
const REST_NS: u64 = 6_000 * MS;

#[derive(Clone, Debug)]
enum Event {
    ToServer { client: usize, life: u64, session: Session, id: u64, ask: Ask },
    ToClient { client: usize, life: u64, session: u64, tell: Tell },
    Program { client: usize, program: usize },
    ClientTick(usize),
    ServerTick,
    Step { instance: u64, step: Step },
    Fault,
    Crash,
    Mend(usize),
    Start,
}

/// A clock that runs at its own rate.
#[derive(Clone, Copy)]
struct Clock {
    offset_ns: u64,
    rate_ppm: u64,
}

impl Clock {
    /// At a rate that differs from the true one by at most 2 %.
    fn new(random: &mut Random) -> Self {
        let rate_ppm = 980_000 + random.below(40_001);
        Self { offset_ns: random.below(1 << 40), rate_ppm }
    }

    fn at(self, now_ns: u64) -> u64 {
        self.offset_ns + now_ns * self.rate_ppm / 1_000_000
    }
}

struct Host {
    process: Option<Process>,
    clock: Clock,
    paused_until_ns: u64,
    down_until_ns: u64,
    /// Changes whenever its connections break: what was on its way is lost.
    life: u64,
    is_strict: bool,
    last_arrival_ns: HashMap<(u64, bool), u64>,
}

pub(super) struct World {
    random: Random,
    now_ns: u64,
    events: BTreeMap<(u64, u64), Event>,
    last_event: u64,
    hosts: Vec<Host>,
    server: Option<Server>,
    server_clock: Clock,
    durable: Durable,
    /// Which client has a session.
    owners: HashMap<u64, usize>,
    history: History,
    has_faults: bool,
    mutated: Mutated,
}

impl World {
    /// Runs the world of a seed.
    ///
    /// # Errors
    ///
    /// What is wrong with what the clients saw.
    pub(super) fn run(seed: u64, has_faults: bool, mutated: Mutated) -> Result<Counts, String> {
        let mut random = Random::new(seed);
        let strict =
            if random.chance(0.3) { random.below(CLIENTS as u64) as usize } else { CLIENTS };
        let host = |number: usize| Host {
            process: None,
            clock: Clock::new(&mut random),
            paused_until_ns: 0,
            down_until_ns: 0,
            life: 0,
            is_strict: number == strict,
            last_arrival_ns: HashMap::new(),
        };
        let hosts = (0..CLIENTS).map(host).collect();
        let server_clock = Clock::new(&mut random);
        let mut world = Self {
            random,
            now_ns: 0,
            events: BTreeMap::new(),
            last_event: 0,
            hosts,
            server: None,
            server_clock,
            durable: Durable::new(),
            owners: HashMap::new(),
            history: History::default(),
            has_faults,
            mutated,
        };
        world.go()
    }

    fn go(&mut self) -> Result<Counts, String> {
        for file in super::model::FILES {
            let start = self.history.now();
            self.history.add(Register(file, 0), start, Action::Create(0), Some(Answer::Done));
        }
        self.at(0, Event::Start);
        self.at(0, Event::ServerTick);
        for client in 0..CLIENTS {
            self.start_client(client);
            self.at(0, Event::ClientTick(client));
            (0..2).for_each(|program| self.at(1, Event::Program { client, program }));
        }
        if self.has_faults {
            self.at(100 * MS, Event::Fault);
        }
        while let Some(((now_ns, _), event)) = self.events.pop_first() {
            self.now_ns = now_ns;
            if now_ns > BUSY_NS && self.is_at_rest() {
                return self.check();
            }
            if now_ns > BUSY_NS + REST_NS {
                return Err("an operation or a flush does not end".into());
            }
            let is_tick = matches!(event, Event::ClientTick(_) | Event::ServerTick);
            self.happen(event);
            if !is_tick {
                self.find_stale();
            }
            if let Some(wrong) = self.history.wrong.take() {
                return Err(wrong);
            }
        }
        Err("nothing is left to happen".into())
    }

    /// Compares what clients that run would answer with what the server has.
    fn find_stale(&mut self) {
        for (client, host) in self.hosts.iter_mut().enumerate() {
            let (now_ns, inodes) = (host.clock.at(self.now_ns), &self.durable.inodes);
            let process = host.process.as_mut().filter(|_| self.now_ns >= host.paused_until_ns);
            if let Some(inode) = process.and_then(|process| process.stale(now_ns, inodes)) {
                self.history.wrong = Some(format!("client {client} has stale data of {inode}"));
            }
        }
    }

    fn at(&mut self, now_ns: u64, event: Event) {
        self.last_event += 1;
        self.events.insert((now_ns, self.last_event), event);
    }

    fn happen(&mut self, event: Event) {
        let is_busy = self.now_ns < BUSY_NS;
        // A stopped process does nothing, and its messages wait.
        if let Event::ToClient { client, .. }
        | Event::Program { client, .. }
        | Event::ClientTick(client) = event
            && self.now_ns < self.hosts[client].paused_until_ns
        {
            let until_ns = self.hosts[client].paused_until_ns;
            return self.at(until_ns, event);
        }
        match event {
            Event::ToServer { client, life, session, id, ask } => {
                if life == self.hosts[client].life {
                    let (now_ns, durable) = (self.server_clock.at(self.now_ns), &mut self.durable);
                    let server = self.server.as_mut();
                    let wanted = server
                        .map(|server| server.take(now_ns, durable, (client, session, id), ask));
                    self.carry_out(wanted.unwrap_or_default());
                }
            }
            Event::ToClient { client, life, session, tell } => {
                self.tell(client, life, session, tell);
            }
            Event::Program { client, program } => {
                if is_busy {
                    let thinks_ns = self.some_ns(300, 40);
                    self.at(self.now_ns + thinks_ns + MS, Event::Program { client, program });
                    self.with_client(client, |process, now_ns, random, history| {
                        if process.is_free(program) {
                            process.act(now_ns, program, random, history);
                        }
                    });
                }
            }
            Event::ClientTick(client) => {
                self.at(self.now_ns + 15 * MS, Event::ClientTick(client));
                self.with_client(client, |process, now_ns, _, history| {
                    process.tick(now_ns, history)
                });
            }
            Event::ServerTick => {
                self.at(self.now_ns + 10 * MS, Event::ServerTick);
                let (now_ns, durable) = (self.server_clock.at(self.now_ns), &mut self.durable);
                let Some(server) = &mut self.server else { return };
                let wanted = server.tick(now_ns, durable);
                let bound_ns = match self.has_faults {
                    // One lease for the grace period, one for what was reclaimed in it, and a slow transaction.
                    true => 2 * settings().lease_ns + (SLOW_MS + 100) * MS,
                    // A recall, what the holder had sent before it, what it has to send, and transactions.
                    false => PARKED_MS_MAX * MS,
                };
                if server.table.oldest_parked_ns().is_some_and(|begun| now_ns > begun + bound_ns) {
                    self.history.wrong = Some("a request is parked for too long".into());
                }
                self.carry_out(wanted);
            }
            Event::Step { instance, step } => {
                self.provoke(step);
                let (now_ns, durable) = (self.server_clock.at(self.now_ns), &mut self.durable);
                let Some(server) = &mut self.server else { return };
                if instance == durable.instances {
                    let wanted = server.step(now_ns, durable, step);
                    if let Some(change) = server.unfit {
                        self.history.wrong =
                            Some(format!("{change:?} was deferred, and does not fit"));
                    }
                    self.carry_out(wanted);
                }
            }
            Event::Fault if is_busy => {
                let next_ns = self.now_ns + self.random.below(1_200) * MS;
                self.at(next_ns, Event::Fault);
                self.fault();
            }
            Event::Crash if is_busy => {
                let down_ns = self.random.below(50) * MS;
                self.crash(down_ns);
            }
            Event::Fault | Event::Crash => {}
            Event::Mend(client) => self.hosts[client].life += 1,
            Event::Start => {
                let now_ns = self.server_clock.at(self.now_ns);
                let (durable, has_faults) = (&mut self.durable, self.has_faults);
                self.server = Some(Server::start(now_ns, durable, has_faults, self.mutated));
            }
        }
    }

    /// So many milliseconds at most, mostly far fewer.
    fn some_ns(&mut self, most: u64, mostly: u64) -> u64 {
        let bound = if self.random.chance(0.3) { most } else { mostly };
        self.random.below(bound) * MS
    }

    /// How long a transaction or the end of it takes: longer where a holder is about to be fenced, so that both
    /// meet.
    fn step_ns(&mut self, step: Step) -> u64 {
        let is_recalled = self.server.as_ref().is_some_and(|server| server.is_of_recalled(step));
        let is_slow = self.has_faults && is_recalled && self.random.chance(0.3);
        self.random.below(if is_slow { SLOW_MS } else { 4 }) * MS
    }

    /// Restarts the server soon, where that meets what a client does not know yet.
    fn provoke(&mut self, step: Step) {
        let is_fenced = self.durable.remembered.values().any(|is_fenced| *is_fenced);
        let is_flush_end = self.server.as_ref().is_some_and(|server| server.ends_flush(step));
        if self.has_faults && is_flush_end && self.random.chance(0.02)
            || self.has_faults && is_fenced && self.random.chance(0.05)
        {
            let at_ns = self.now_ns + self.random.below(30) * MS;
            self.at(at_ns, Event::Crash);
        }
    }

    fn crash(&mut self, down_ns: u64) {
        if self.server.take().is_some() {
            self.hosts.iter_mut().for_each(|host| host.life += 1);
            self.at(self.now_ns + down_ns, Event::Start);
        }
    }

    fn fault(&mut self) {
        let client = self.random.below(CLIENTS as u64) as usize;
        let long_ns = self.some_ns(2_500, 300);
        let until_ns = self.now_ns + long_ns;
        match self.random.below(8) {
            0..=2 => {
                let host = &mut self.hosts[client];
                (host.life, host.down_until_ns) = (host.life + 1, until_ns);
                self.at(until_ns, Event::Mend(client));
            }
            3..=4 => self.hosts[client].paused_until_ns = until_ns,
            5..=6 => self.crash(long_ns / 4),
            _ => self.start_client(client),
        }
    }

    /// Starts a process, and kills the one before.
    fn start_client(&mut self, client: usize) {
        let host = &mut self.hosts[client];
        if let Some(process) = host.process.take() {
            process.kill(&mut self.history);
        }
        // Of the old process nothing is read any more; what it sent arrives.
        let now_ns = host.clock.at(self.now_ns);
        let process = Process::start(now_ns, &mut self.history, host.is_strict, self.mutated);
        host.process = Some(process);
        self.send_asks(client);
    }

    fn with_client(
        &mut self,
        client: usize,
        act: impl FnOnce(&mut Process, u64, &mut Random, &mut History),
    ) {
        let host = &mut self.hosts[client];
        let now_ns = host.clock.at(self.now_ns);
        let process = host.process.as_mut().expect("there is always one");
        act(process, now_ns, &mut self.random, &mut self.history);
        if let Some(session) = process.session() {
            self.owners.insert(session.number, client);
        }
        self.send_asks(client);
    }

    fn tell(&mut self, client: usize, life: u64, session: u64, tell: Tell) {
        let host = &self.hosts[client];
        let is_its = session == 0
            || host.process.as_ref().and_then(Process::session).map(|one| one.number)
                == Some(session);
        if life == host.life && is_its {
            self.with_client(client, |process, now_ns, _, history| {
                process.take(now_ns, tell, history)
            });
        }
    }

    /// When a message arrives that is sent now on one of a client's connections; never while it is down.
    fn arrival(&mut self, client: usize, is_to_server: bool) -> Option<u64> {
        let connection = self.random.below(CONNECTIONS);
        let slow = self.has_faults && self.random.chance(0.03);
        let delay_ns = 100_000 + self.random.below(if slow { 400 } else { 12 }) * MS;
        let host = &mut self.hosts[client];
        if self.now_ns < host.down_until_ns {
            return None;
        }
        let last_ns = host.last_arrival_ns.entry((connection, is_to_server)).or_default();
        *last_ns = (*last_ns).max(self.now_ns + delay_ns);
        Some(*last_ns)
    }

    fn send_asks(&mut self, client: usize) {
        let process = self.hosts[client].process.as_mut().expect("there is always one");
        for (session, id, ask) in std::mem::take(&mut process.out) {
            if let Some(at_ns) = self.arrival(client, true) {
                let life = self.hosts[client].life;
                self.at(at_ns, Event::ToServer { client, life, session, id, ask });
            }
        }
    }

    fn carry_out(&mut self, wanted: Wanted) {
        let instance = self.durable.instances;
        for step in wanted.steps {
            let at_ns = self.now_ns + self.step_ns(step);
            self.at(at_ns, Event::Step { instance, step });
        }
        for (client, session, tell) in wanted.tell {
            let is_hello = matches!(tell, Tell::Reply(_, _, super::model::Body::Session(_)));
            let owner = if client == usize::MAX {
                self.owners.get(&session).copied()
            } else {
                Some(client)
            };
            let Some(client) = owner else { continue };
            if let Some(at_ns) = self.arrival(client, false) {
                let life = self.hosts[client].life;
                let session = if is_hello { 0 } else { session };
                self.at(at_ns, Event::ToClient { client, life, session, tell });
            }
        }
    }

    fn is_at_rest(&self) -> bool {
        let is_idle = |host: &Host| host.process.as_ref().is_some_and(Process::is_idle);
        self.server.is_some() && self.hosts.iter().all(is_idle)
    }

    fn check(&mut self) -> Result<Counts, String> {
        let start = self.history.now();
        let there: BTreeSet<u64> = self.durable.inodes.keys().copied().collect();
        for (inode, data) in std::mem::take(&mut self.durable.inodes) {
            match data {
                Data::File(tag, _) => {
                    let at = Register(inode, 0);
                    self.history.add(at, start, Action::Read, Some(Answer::Found(tag)));
                }
                Data::Entries(entries) => {
                    for name in 0..super::model::NAMES {
                        let found = entries.get(&name);
                        let answer =
                            found.map_or(Answer::Missing, |entry| Answer::Found(entry.tag));
                        self.history.add(Register(inode, name), start, Action::Read, Some(answer));
                    }
                }
            }
        }
        let of_files = |at: &Register| at.0 >= super::model::TAGS;
        let files: BTreeSet<Register> =
            self.history.events.iter().map(|one| one.0).filter(of_files).collect();
        for at in files.into_iter().filter(|at| !there.contains(&at.0)) {
            self.history.add(at, start, Action::Read, Some(Answer::Missing));
        }
        let mut by_register: BTreeMap<Register, Vec<_>> = BTreeMap::new();
        for (at, event) in std::mem::take(&mut self.history.events) {
            by_register.entry(at).or_default().push(event);
        }
        for (at, events) in by_register {
            if !is_linearizable(&events) {
                let events: Vec<String> = events.iter().map(|one| format!("{one:?}")).collect();
                return Err(format!(
                    "no order explains what happened to {at:?}:\n{}",
                    events.join("\n")
                ));
            }
        }
        Ok(self.history.counts)
    }
}
