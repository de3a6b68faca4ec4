// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time model: a trace on tiers in virtual time, with a policy that moves what lies on them.

mod bill;
mod clients;
mod device;
#[cfg(test)]
pub(crate) mod hanging;
mod lives;
mod mind;
mod mover;
mod pages;
mod population;
mod recent;
mod report;
mod store;
mod stories;
mod tally;
#[cfg(test)]
mod tests;
mod traffic;
mod watchdog;

use std::sync::Arc;
use std::time::Duration;

use terrace_core::{
    Action, Event, EventKind, Key, Outcome, Persistency, Policy, PostEvents, Result, TierIndex,
    TierView, View,
};

use self::bill::Bill;
use self::clients::Clients;
pub use self::device::{Burst, Cached, Character, Switch};
use self::device::{Job, Work};
pub use self::mind::Observer;
use self::mind::{Mind, Pace};
use self::mover::{Effects, Manners, Mover};
use self::pages::Pages;
pub use self::population::Population;
pub use self::recent::Recent;
use self::recent::{User, Uses};
pub use self::report::{Latencies, TierTimed, Timed, Usage};
use self::store::{INCARNATION, Part, Store, Tier};
use self::stories::Stories;
pub use self::stories::{MoveStory, Story};
use self::tally::Tally;
pub use self::traffic::{Served, Traffic};
use self::watchdog::Watch;
use crate::read::{NAMESPACE, Trace};
use crate::request::{Operation, Request};

/// How often a store measures how busy applications keep its tiers.
const UTILISATION_NS: u64 = 50_000_000;

/// Between two calls of `progress`.
const PROGRESS_REQUESTS: u64 = 10_000;

/// The job that nothing waits for.
const UNAWAITED: Job = Job::MAX;

const SECOND_NS: f64 = 1e9;

/// A tier of the model.
#[derive(Clone, Debug)]
pub struct TimedTier {
    /// As a policy is shown it, empty.
    pub view: TierView,
    /// What it has beside that.
    pub character: Character,
    /// How much faster memory gives what was used a moment ago: that of the machine in front of it, or
    /// its own.
    pub recent: Recent,
}

/// How a trace is replayed in virtual time. Defaults are those of a store.
#[derive(Clone, Debug)]
pub struct TimedOptions {
    /// In order of preference; at least one.
    pub tiers: Vec<TimedTier>,
    /// The policy is asked after so many events, …
    pub after_events: u64,
    /// … and this often.
    pub every: Duration,
    /// When a request becomes an event for the policy: once it is answered, or when it begins.
    pub post_events: PostEvents,
    /// Most bytes that one round may ask to move.
    pub round_bytes: u64,
    /// Migrations that run at once from one tier to another.
    pub move_threads: usize,
    /// Most bytes per second that all migrations together read; `None` without a bound.
    pub move_bytes_per_s: Option<f64>,
    /// Whether migrations wait while applications keep a tier busy.
    pub move_yields: bool,
    /// Whether requests come when they came, whatever became of those before.
    pub is_open_loop: bool,
    /// What the machine keeps of what was read from and written to tiers that have
    /// [`Character::cached`]; 0 for nothing.
    pub page_cache_bytes: u64,
    /// Processors of the machine, which requests, migrations and clients that think for a moment
    /// share; `None` for as many as they like.
    pub processors: Option<u32>,
    /// What every write survives: tiers that cannot give it take nothing.
    pub persistency: Persistency,
    /// Where objects are that the trace does not make.
    pub present_on: TierIndex,
    /// Of the only chance that a policy may use.
    pub seed: u64,
    /// Objects whose whole history is returned.
    pub followed: Vec<u64>,
    /// How long the policy may take to come back from a call, in real time. What a policy that does
    /// decides has nothing to do with it.
    pub call_time_max: Duration,
}

/// Replays traces in virtual time.
#[derive(Clone, Debug)]
pub struct TimedReplay {
    options: TimedOptions,
}

impl TimedOptions {
    /// These tiers, and everything else as a store has it by itself; what is there before the trace
    /// begins lies on the least preferred tier.
    pub fn new(tiers: Vec<TimedTier>) -> Self {
        let present_on = TierIndex(tiers.len().saturating_sub(1) as u8);
        Self {
            tiers,
            after_events: 1000,
            every: Duration::from_secs(1),
            post_events: PostEvents::After,
            round_bytes: u64::MAX,
            move_threads: 4,
            move_bytes_per_s: None,
            move_yields: true,
            is_open_loop: false,
            page_cache_bytes: 0,
            processors: None,
            persistency: Persistency::None,
            present_on,
            seed: 0,
            followed: Vec::new(),
            call_time_max: Duration::from_secs(60),
        }
    }

    /// The tiers as a policy sees them first: for making one.
    pub fn view(&self) -> View {
        View::new(self.tiers.iter().map(|tier| tier.view.clone()).collect(), self.seed)
    }
}

impl TimedReplay {
    /// A replay with these options.
    pub fn new(options: TimedOptions) -> Self {
        Self { options }
    }

    /// Replays a trace, whose population was read before, with a policy that was made for
    /// [`TimedOptions::view`]. `progress` is called with the number of requests answered since the
    /// call before.
    ///
    /// The same trace, options and policy come to the same, wherever and however often. A policy that
    /// hangs is left behind with a thread, unless it has a canceller.
    ///
    /// # Errors
    ///
    /// Those of [`Trace::read`]; `Io` where the policy does not come back from a call.
    ///
    /// # Panics
    ///
    /// Where the policy does.
    pub fn run(
        &self,
        population: impl Into<Arc<Population>>,
        trace: Trace,
        policy: Box<dyn Policy>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Timed> {
        self.run_observed(population, trace, policy, None, progress)
    }

    /// As [`TimedReplay::run`], and shows an observer what the policy is shown and what it asks for. What comes of the
    /// replay is the same.
    ///
    /// # Errors
    ///
    /// As [`TimedReplay::run`].
    ///
    /// # Panics
    ///
    /// As [`TimedReplay::run`].
    pub fn run_observed(
        &self,
        population: impl Into<Arc<Population>>,
        mut trace: Trace,
        policy: Box<dyn Policy>,
        observer: Option<Box<dyn Observer>>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Timed> {
        let watch = Arc::new(Watch::new(self.options.call_time_max, policy.canceller()));
        let (options, population) = (self.options.clone(), population.into());
        let watched = Arc::clone(&watch);
        let replay = move |progress: &mut dyn FnMut(u64)| {
            let mut run = Run::new(&options, &population, &mut trace, (policy, observer), watched)?;
            run.go(progress)?;
            Ok(run.report())
        };
        watchdog::run(&watch, replay, progress)?
    }
}

struct Run<'a> {
    options: &'a TimedOptions,
    population: &'a Population,
    clients: Clients<'a>,
    store: Store,
    mover: Mover,
    mind: Mind,
    pages: Option<Pages>,
    /// Where it matters how long ago bytes were used.
    uses: Option<Uses>,
    flights: Vec<Option<Flight>>,
    /// Numbers of flights that are over.
    landed: Vec<usize>,
    /// Jobs of flights that waited for a migration which has ended.
    over: Vec<Job>,
    measured_ns: u64,
    /// How busy applications had kept each tier until then.
    measured_s: Vec<f64>,
    tally: Tally,
    bill: Bill,
    stories: Stories,
}

/// A request that is being answered.
struct Flight {
    lane: usize,
    object: u32,
    kind: EventKind,
    began_ns: u64,
    /// Jobs that it waits for.
    outstanding: usize,
    parts: Vec<(Part, TierIndex)>,
}

impl<'a> Run<'a> {
    fn new(
        options: &'a TimedOptions,
        population: &'a Population,
        trace: &'a mut Trace,
        (policy, observer): (Box<dyn Policy>, Option<Box<dyn Observer>>),
        watch: Arc<Watch>,
    ) -> Result<Self> {
        let pace = Pace {
            after_events: options.after_events.max(1),
            every_ns: (options.every.as_nanos() as u64).max(1),
            round_bytes: options.round_bytes,
        };
        let manners = Manners {
            threads: options.move_threads.max(1),
            bytes_per_s: options.move_bytes_per_s,
            yields: options.move_yields,
        };
        let mut mind = Mind::new(policy, observer, watch, options.view(), pace);
        let keeps = options.page_cache_bytes > 0;
        let tier = |tier: &TimedTier| Tier::new(tier, keeps);
        let tiers = options.tiers.iter().map(tier);
        let mut store = Store::new(tiers.collect(), mind.placer(), options.persistency);
        for (number, known) in population.all().iter().enumerate() {
            if let Some(bytes) = known.present_bytes {
                let tier = known.present_on.unwrap_or(options.present_on);
                let number = number as u32;
                store.present(number, population.named(number)?, bytes, tier);
            }
        }
        mind.introduce(&mut store.told);
        store.placer = mind.placer();
        let names = options.tiers.iter().map(|tier| tier.view.name.clone());
        let tiers = names.map(|name| TierTimed { name, ..TierTimed::default() }).collect();
        let tally = Tally::new(tiers);
        let followed = options.followed.iter().map(|id| (*id, population.number(*id)));
        let mut stories = Stories::new(followed);
        stories.look(&store);
        Ok(Self {
            options,
            population,
            clients: Clients::new(trace, options.is_open_loop),
            store,
            mover: Mover::new(manners),
            mind,
            uses: Some(Uses::of(options.tiers.iter().map(|tier| &tier.recent)))
                .filter(Uses::matters),
            pages: (options.page_cache_bytes > 0).then(|| Pages::new(options.page_cache_bytes)),
            flights: Vec::new(),
            landed: Vec::new(),
            over: Vec::new(),
            measured_ns: 0,
            measured_s: vec![0.0; options.tiers.len()],
            tally,
            bill: Bill::new(options.tiers.iter().map(|tier| &tier.character)),
            stories,
        })
    }

    /// Until the last request is answered.
    fn go(&mut self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let mut told = 0;
        loop {
            let request_ns = self.clients.next_ns()?;
            if request_ns.is_none() && self.landed.len() == self.flights.len() {
                progress(self.tally.requests - told);
                return Ok(());
            }
            if let Some(processors) = self.options.processors {
                let thinking = self.clients.thinking();
                self.store.share_processors(f64::from(processors.max(1)), thinking);
            }
            let devices_ns = self.store.tiers.iter().filter_map(Tier::next_ns).min();
            let moments = [request_ns, devices_ns, self.mover.next_ns()];
            let round_ns = self.mind.next_round_ns();
            let now_ns = moments.into_iter().flatten().min().unwrap_or(round_ns).min(round_ns);
            let stored = self.store.tiers.iter().map(Tier::stored_bytes);
            self.bill.pass(now_ns, stored);
            self.store.now_ns = now_ns;
            self.devices_go_on(now_ns)?;
            self.measure(now_ns);
            if self.mover.next_ns().is_some_and(|pause_ns| pause_ns <= now_ns) {
                let mut effects = Effects::default();
                self.mover.run(&mut self.store, &mut effects);
                self.carry_out(effects);
            }
            if self.mind.is_full(now_ns) || now_ns >= round_ns {
                self.round(now_ns);
            } else if request_ns.is_some_and(|request_ns| request_ns <= now_ns)
                && let Some((lane, request)) = self.clients.take()?
            {
                self.begin(lane, &request)?;
            }
            while let Some(job) = self.over.pop() {
                self.part_is_over((job / 2) as usize)?;
            }
            self.bill.take(&mut self.store);
            if self.tally.requests - told >= PROGRESS_REQUESTS {
                progress(self.tally.requests - told);
                told = self.tally.requests;
            }
        }
    }

    /// Lets all devices work until now.
    fn devices_go_on(&mut self, now_ns: u64) -> Result<()> {
        // All of them before any job ends: what that begins elsewhere begins now.
        self.store.tiers.iter_mut().for_each(|tier| tier.advance(now_ns));
        for index in 0..self.store.tiers.len() {
            while let Some(job) = self.store.tiers[index].end() {
                if job == UNAWAITED {
                    continue;
                }
                match job % 2 {
                    0 => self.part_is_over((job / 2) as usize)?,
                    _ => {
                        let mut effects = Effects::default();
                        self.mover.go_on(&mut self.store, job / 2, &mut effects);
                        self.carry_out(effects);
                    }
                }
            }
        }
        Ok(())
    }

    /// Begins to answer a request.
    fn begin(&mut self, lane: usize, request: &Request) -> Result<()> {
        let Some(object) = self.population.number(request.object) else {
            // It came between the two readings of a trace that grows.
            return self.answer(lane);
        };
        if !request.operation.is_access() {
            self.live(object, request)?;
            return self.answer(lane);
        }
        let (offset_bytes, bytes) = (request.offset_bytes, request.length_bytes);
        let mut parts = Vec::with_capacity(1);
        let is_write = request.operation == Operation::Write;
        let number = self.landed.pop().unwrap_or(self.flights.len());
        let (mut is_first, mut outstanding) = (false, 0);
        if is_write {
            if self.store.slots(object).is_empty() {
                self.store.create(object, self.population.named(object)?);
                is_first = true;
            }
            // One without bytes changes nothing, not even the length.
            if bytes > 0 {
                let range = offset_bytes..offset_bytes.saturating_add(bytes);
                outstanding = self.recall(object, range, number as Job * 2);
                self.store.write(object, offset_bytes, bytes, &mut parts);
            }
        } else {
            self.store.parts(object, offset_bytes, bytes, &mut parts);
        }
        let now_ns = self.store.now_ns;
        self.mind.tell(&mut self.store.told, now_ns);
        let is_followed = self.stories.follows(object);
        if is_followed {
            self.stories.look(&self.store);
            self.stories.begun(object, is_write);
        }
        let kind = if is_write { EventKind::Write } else { EventKind::Read };
        let mut flight =
            Flight { lane, object, kind, began_ns: now_ns, outstanding, parts: Vec::new() };
        let mut is_cached = !parts.is_empty() && !is_write;
        for part in parts {
            let segment = self.store.segment(part.slot);
            let tier = if is_write { segment.tier } else { self.store.serving(part.slot) };
            if is_write && let Some(id) = segment.moving {
                self.mover.note_write(id, part.bytes);
            }
            flight.parts.push((part, tier));
            flight.outstanding += 1;
            let work = Work {
                is_write,
                requests: 1,
                bytes: part.bytes,
                at: (part.slot, part.offset_bytes),
                is_foreground: true,
                is_first,
                is_synced: false,
                is_switch: false,
                user: lane as User,
                share: 1.0,
            };
            if is_followed && let Some(before) = self.stories.before(part.slot) {
                let would_s = self.store.tier(before).device.would_take_s(work);
                self.stories.would_take(number, part.slot, would_s);
            }
            is_cached &= self.ask(tier, number as Job * 2, work);
            self.tally.served(tier, work);
        }
        self.tally.cached_requests += u64::from(is_cached);
        self.bill.opened(object);
        let waits = flight.outstanding > 0;
        if self.options.post_events == PostEvents::Before {
            self.note(&flight, 0);
        }
        if number == self.flights.len() {
            self.flights.push(None);
        }
        self.flights[number] = Some(flight);
        if waits { Ok(()) } else { self.land(number) }
    }

    /// Asks a tier for something; whether the machine had it in memory.
    fn ask(&mut self, tier: TierIndex, job: Job, work: Work) -> bool {
        self.tally.traffic.note(self.store.now_ns, tier, work);
        let size_bytes = self.store.segment(work.at.0).size_bytes;
        let asked = &mut self.store.tiers[tier.index()];
        if work.is_switch {
            asked.begin_switch(job, work);
            return false;
        }
        let file = (work.at.0, tier);
        let mut from_memory = work;
        if let Some(uses) = &mut self.uses {
            let share = uses.touch(work.user, file, work.at.1, work.bytes, &asked.recent);
            from_memory.share = if work.is_write { 1.0 } else { share };
        }
        let (Some(pages), Some(memory)) = (&mut self.pages, &mut asked.memory) else {
            self.bill.work(tier, &work, size_bytes);
            asked.device.begin(job, if asked.is_memory { from_memory } else { work });
            return false;
        };
        let missed_bytes = pages.touch(file, work.at.1, work.bytes);
        // Migrations wait for the device.
        let takes_write = asked.takes_writes && work.is_foreground;
        if if work.is_write { takes_write } else { missed_bytes == 0 } {
            memory.begin(job, from_memory);
            return !work.is_write;
        }
        let bytes = if work.is_write { work.bytes } else { missed_bytes };
        let work = Work { bytes, ..work };
        self.bill.work(tier, &work, size_bytes);
        asked.device.begin(job, work);
        false
    }

    fn part_is_over(&mut self, number: usize) -> Result<()> {
        let flight = self.flights[number].as_mut().expect("a job belongs to a flight");
        flight.outstanding -= 1;
        if flight.outstanding > 0 { Ok(()) } else { self.land(number) }
    }

    /// A request is answered.
    fn land(&mut self, number: usize) -> Result<()> {
        let flight = self.flights[number].take().expect("it was under way");
        self.landed.push(number);
        self.bill.closed(flight.object, self.store.slots(flight.object));
        let now_ns = self.store.now_ns;
        let latency_ns = now_ns - flight.began_ns;
        self.tally.answered(flight.kind, latency_ns, now_ns);
        self.stories.landed(number, latency_ns as f64 / SECOND_NS);
        if self.options.post_events == PostEvents::After {
            self.note(&flight, latency_ns);
        }
        self.answer(flight.lane)
    }

    /// Has the policy see the parts of a request.
    fn note(&mut self, flight: &Flight, latency_ns: u64) {
        for (part, tier) in &flight.parts {
            if !self.store.segment(part.slot).is_live {
                continue;
            }
            self.mind.note(Event {
                tier: *tier,
                offset_bytes: part.offset_bytes,
                length_bytes: part.bytes,
                latency_ns,
                ..Event::new(flight.kind, part.slot, INCARNATION, flight.began_ns)
            });
        }
    }

    /// Has the next request of a lane follow.
    fn answer(&mut self, lane: usize) -> Result<()> {
        match self.options.is_open_loop {
            // It does not wait for this one.
            true => Ok(()),
            false => self.clients.answered(lane, self.store.now_ns),
        }
    }

    /// Asks the policy.
    fn round(&mut self, now_ns: u64) {
        let tiers = self.store.tiers.iter().map(|tier| tier.view.clone());
        let actions = self.mind.round(now_ns, tiers, self.mover.room());
        let mut effects = Effects::default();
        for action in &actions {
            self.submit(action, &mut effects);
        }
        self.mover.run(&mut self.store, &mut effects);
        self.carry_out(effects);
        self.store.placer = self.mind.placer();
        self.note_course(now_ns);
    }

    fn submit(&mut self, action: &Action, effects: &mut Effects) {
        let now_ns = self.store.now_ns;
        let submitted = match self.mind.knows(action) {
            true => {
                let how = (action.kind, action.priority);
                self.mover.submit(&mut self.store, action.slot, how, effects)
            }
            false => Err(Outcome::Stale),
        };
        self.mind.tell(&mut self.store.told, now_ns);
        let event = |kind| Event::new(kind, action.slot, action.incarnation, now_ns);
        self.stories.asked(&self.store, action, submitted.err());
        match submitted {
            Ok(()) => self.mind.note(event(EventKind::Queued)),
            Err(outcome) => {
                self.tally.note_outcome(outcome);
                self.mind.refuse(Event { outcome, ..event(EventKind::Receipt) });
            }
        }
    }

    /// Does what migrations ask for, until nothing is left to be done now.
    fn carry_out(&mut self, mut effects: Effects) {
        loop {
            let now_ns = self.store.now_ns;
            self.mind.tell(&mut self.store.told, now_ns);
            for asked in effects.asked.drain(..) {
                let job = asked.id.map_or(UNAWAITED, |id| id * 2 + 1);
                self.ask(asked.tier, job, asked.work);
            }
            if effects.ended.is_empty() {
                return;
            }
            for ended in effects.ended.drain(..) {
                self.tally.moved(&ended);
                self.bill.moved(&ended, self.store.segment(ended.slot).object);
                self.over.extend(ended.awaited);
                self.stories.ended(now_ns, &ended);
                self.mind.note(Event {
                    tier: ended.to,
                    outcome: ended.outcome,
                    length_bytes: ended.copied_bytes,
                    ..Event::new(EventKind::Receipt, ended.slot, INCARNATION, now_ns)
                });
            }
            // The jobs that waited for the end of these.
            self.mover.run(&mut self.store, &mut effects);
        }
    }

    /// Computes how busy applications kept each tier since the last time.
    fn measure(&mut self, now_ns: u64) {
        let passed_ns = now_ns - self.measured_ns;
        if passed_ns < UTILISATION_NS {
            return;
        }
        for (tier, before_s) in self.store.tiers.iter_mut().zip(&mut self.measured_s) {
            let busy_s = tier.foreground_s();
            let share = (busy_s - *before_s) / (passed_ns as f64 / SECOND_NS);
            tier.view.utilisation = share.clamp(0.0, 1.0);
            *before_s = busy_s;
        }
        self.measured_ns = now_ns;
    }

    fn note_course(&mut self, now_ns: u64) {
        let held = self.store.tiers.iter().map(|tier| tier.view.taken_bytes());
        for (tally, held) in self.tally.tiers.iter_mut().zip(held.clone()) {
            tally.most_bytes = tally.most_bytes.max(held);
        }
        self.tally.course.note(now_ns as f64 / SECOND_NS, held);
    }

    fn report(mut self) -> Timed {
        self.note_course(self.store.now_ns);
        self.mind.end();
        let tally = self.tally;
        let makespan_s = tally.last_answer_ns as f64 / SECOND_NS;
        let mut tiers = tally.tiers;
        let given = self.store.tiers.iter().zip(&self.options.tiers).zip(self.bill.usages());
        for (timed, ((tier, given), usage)) in tiers.iter_mut().zip(given) {
            let figures = given.view.figures;
            timed.usage = usage;
            timed.cost = usage.cost(&figures.prices);
            timed.busy_s = tier.device.busy_s();
            timed.joules =
                figures.idle_w * makespan_s + (figures.active_w - figures.idle_w) * timed.busy_s;
        }
        let joules = tiers.iter().map(|tier| tier.joules).sum::<f64>();
        let cost = tiers.iter().map(|tier| tier.cost).sum();
        let outcomes = tally.outcomes.into_iter().map(|(word, count)| (word.into(), count));
        Timed {
            makespan_s,
            requests: tally.requests,
            reads: tally.reads.latencies(),
            writes: tally.writes.latencies(),
            tiers,
            migrated_bytes: tally.migrated_bytes,
            migrations: tally.migrations,
            actions: self.mind.actions,
            rounds: self.mind.rounds,
            outcomes: outcomes.collect(),
            joules,
            edp_js: joules * makespan_s,
            cost,
            cached_requests: tally.cached_requests,
            action_hash: self.mind.action_hash(),
            fill: tally.course.into_points(),
            traffic: tally.traffic.into_traffic(),
            stories: self.stories.into_list(),
        }
    }
}

/// The key of an object of which a trace tells a number alone: that which a policy sees.
///
/// # Errors
///
/// None, as numbers are short.
pub fn trace_key(id: u64) -> Result<Key> {
    Key::new(NAMESPACE, &format!("{id:016x}"))
}
