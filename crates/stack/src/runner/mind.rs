// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A policy with its view: what one round does, and what happens when the policy fails.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use terrace_core::units::format_duration;
use terrace_core::{
    Action, ActionKind, Actions, Error, ErrorKind, Event, EventKind, Interest, Outcome, Parameter,
    Placer, Policy, Result, SLOT_NONE, SegmentView, Slot, TierIndex, TierSet, View, panic_text,
};
use terrace_policies::calls::Call;
use terrace_trace::{Cause, ParameterValue, SavedState, Tier, Writer};

use super::witness::Witness;
use super::{recording, tier_views};
use crate::Tactics;
use crate::catalog::map::Write;
use crate::migrate::notices::EventTeller;
use crate::report::{DecisionReport, ParameterReport, PolicyReport};
use crate::shadow::{ACTIONS_MAX, DECISIONS_MAX, Newcomer, Post, Shadow, describe};
use crate::shared::Shared;
use crate::shared::desk::{Command, Reply};
use crate::shared::moves::{MoveRequest, MoveWish};
use crate::shared::placing::{Published, Standing};
use crate::watch::ring::Change;

/// Wishes for tiers or slots that never existed, until a policy counts as broken …
const NONSENSE_MAX: u64 = 10_000;

/// … and rounds one after another in which all that it wished for makes no sense.
const NONSENSE_ROUNDS_MAX: u32 = 20;

/// A policy is left alone for so many times as long as its last round took, so that one that takes
/// long leaves the processors to the store …
const REST_TIMES: u64 = 49;

/// … but not for longer than this, in nanoseconds.
const REST_NS_MAX: u64 = 10_000_000;

/// The policy, what it sees, and what became of its wishes.
pub(crate) struct Mind {
    tactics: Tactics,
    /// The optional kinds of events that it asked for.
    interest: Interest,
    /// Of its placers.
    standing: Arc<Standing>,
    view: View,
    /// Numbers of objects, by slot.
    objects: Vec<u64>,
    replaced: Option<String>,
    /// Of whichever policies decided, for traces.
    rounds: u64,
    counts: Counts,
    decisions: VecDeque<(Slot, u32, DecisionReport)>,
    /// Receipts that the next round shows: of what ended at once, which never reached the mover.
    refused: Vec<Event>,
    /// When the policy has rested from its last round.
    rests_until_ns: u64,
}

/// What the policy that decides has done since it took over.
#[derive(Default)]
struct Counts {
    rounds: u64,
    events: u64,
    /// Events that full rings had summed up before that, of all policies.
    coalesced_before: u64,
    actions: u64,
    nonsense: u64,
    /// The latest rounds with wishes of which none makes sense.
    nonsense_rounds: u32,
    outcomes: BTreeMap<&'static str, u64>,
    /// Whose migrations wait or run; others come back as receipts, too.
    queued: HashSet<(Slot, u32)>,
}

impl Counts {
    fn new(shared: &Shared) -> Self {
        Self { coalesced_before: shared.mailbox.coalesced(), ..Self::default() }
    }

    /// What the policy keeps doing that no sane one does.
    fn broken(&self) -> Option<String> {
        if self.nonsense > NONSENSE_MAX {
            return Some(format!("asked for nonsense {} times", self.nonsense));
        }
        let rounds = self.nonsense_rounds;
        (rounds >= NONSENSE_ROUNDS_MAX)
            .then(|| format!("asked for nothing but nonsense in {rounds} rounds"))
    }

    fn end(&mut self, outcome: Outcome) {
        *self.outcomes.entry(outcome.word()).or_default() += 1;
    }
}

/// The built-in policy that takes over.
pub(crate) const FALLBACK: &str = "pinned";

/// The built-in policy that takes over: new objects to the first tier with room, nothing moves.
pub(crate) fn fallback(shared: &Shared) -> Tactics {
    let view = View::new(tier_views(shared), 0);
    let policy = terrace_policies::create(FALLBACK, &view, &[])
        .expect("the built-in fallback takes no parameters");
    Tactics::new(FALLBACK, policy)
}

impl Mind {
    /// A policy over everything that is in the catalog now.
    pub(crate) fn new(shared: &Shared, tactics: Tactics, replaced: Option<String>) -> Result<Self> {
        shared.mailbox.after_events.store(tactics.after_events.max(1), Ordering::Relaxed);
        // What was posted before is in the catalog; what is posted from here on comes again.
        let missed = shared.mailbox.take(u64::MAX).len() as u64;
        if let Some(writer) = crate::lock(&shared.recording).writer()
            && missed > 0
        {
            writer.lose(missed);
        }
        if missed > 0 {
            shared.benefits.clear();
            shared.desk.with_shadow(|shadow| {
                shadow
                    .end("the policy beside it was replaced, and events were lost; begin it again");
            });
        }
        let mut view = View::new(tier_views(shared), shared.settings.seed);
        view.now_ns = shared.clock.now_ns();
        let mut objects = Vec::new();
        load_segments(shared, &mut view, &mut objects)?;
        Ok(Self {
            tactics,
            interest: Interest::NONE,
            standing: Arc::default(),
            view,
            objects,
            replaced,
            rounds: 0,
            counts: Counts::new(shared),
            decisions: VecDeque::new(),
            refused: Vec::new(),
            rests_until_ns: 0,
        })
    }

    pub(crate) fn rests_until_ns(&self) -> u64 {
        self.rests_until_ns
    }

    pub(crate) fn every(&self) -> Duration {
        self.tactics.every
    }

    pub(crate) fn call_time_max(&self) -> Duration {
        self.tactics.call_time_max
    }

    /// Calls the policy; one that panics is replaced.
    fn call<T>(
        &mut self,
        shared: &Shared,
        turn: u64,
        call: Call,
        what: impl FnOnce(&mut dyn Policy, &View) -> T,
    ) -> Option<T> {
        shared.desk.call_begins(call, shared.clock.now_ns());
        let (policy, view) = (&mut self.tactics.policy, &self.view);
        let result = catch_unwind(AssertUnwindSafe(|| what(&mut **policy, view)));
        shared.desk.call_ends(turn);
        match result {
            // The watchdog gave the turn to another thread meanwhile: nothing of this counts.
            Ok(_) if !shared.desk.is_turn(turn) => None,
            Ok(value) => Some(value),
            Err(panic) => {
                let text = panic_text(&*panic);
                if shared.desk.is_turn(turn) {
                    self.replace(shared, format!("{}: panicked: {text}", self.tactics.name));
                }
                None
            }
        }
    }

    fn replace(&mut self, shared: &Shared, why: String) {
        let next = fallback(shared);
        self.tactics.policy = next.policy;
        self.tactics.name = next.name;
        self.replaced = Some(why.clone());
        self.counts = Counts::new(shared);
        tracing::warn!(why, "the policy was replaced by {FALLBACK}");
        shared.tell_policy(&self.tactics.name, "replaced", || why.clone());
        self.record_policy(shared, self.tactics.policy.parameters(), Cause::Fallback { why });
        self.standing = Arc::default();
        self.set_posting(shared, Interest::NONE);
        self.publish_placer(shared, self.tactics.policy.placer());
        self.publish_report(shared, None);
    }

    /// Has accesses posted as this policy and the one in its shadow want them.
    fn set_posting(&mut self, shared: &Shared, interest: Interest) {
        self.interest = interest;
        let beside = shared.desk.with_shadow(Shadow::interest).unwrap_or(Interest::NONE);
        shared.posting.set(interest.or(beside), self.tactics.post_events);
    }

    /// Shows the policy what exists, and takes its first placer.
    pub(crate) fn introduce(&mut self, shared: &Shared, turn: u64) {
        if shared.desk.is_turn(turn) {
            shared.desk.set_canceller(self.tactics.policy.canceller());
        }
        let saved = shared.catalog.policy_state(&self.tactics.name).ok().flatten();
        let parts = saved.as_deref().and_then(|saved| saved.split_first_chunk::<4>());
        self.record_start(shared, turn, parts);
        if let Some((version, state)) = parts {
            let version = u32::from_le_bytes(*version);
            // A state that cannot be read means starting without one.
            self.call(shared, turn, Call::Restore, |policy, view| {
                policy.restore(view, version, state).is_ok()
            });
        }
        let now_ns = self.view.now_ns;
        let present: Vec<_> = self
            .view
            .live()
            .map(|(slot, segment)| Event {
                tier: segment.tier,
                length_bytes: segment.size_bytes,
                ..Event::new(EventKind::Present, slot, segment.incarnation, now_ns)
            })
            .collect();
        self.call(shared, turn, Call::Observe, |policy, view| policy.observe(view, &present));
        self.publish(shared, turn);
    }

    /// One round: take what happened, show it, ask what to do.
    pub(crate) fn round(&mut self, shared: &Arc<Shared>, turn: u64) {
        if let Some(why) = self.standing.failure() {
            self.replace(shared, format!("{}: {why}", self.tactics.name));
        }
        let mut created = shared.desk.with_shadow(|_| VecDeque::new());
        let mut events = self.take_events(shared, created.as_mut());
        let now_ns = shared.clock.now_ns();
        self.view.now_ns = now_ns;
        let mut tiers = tier_views(shared);
        // A tier that was added is shown to a policy that was made for it; `swap` brings one.
        tiers.truncate(self.view.tiers.len());
        self.view.tiers = tiers;
        if let Some(created) = created {
            self.show_shadow(shared, &events, created);
        }
        // Some may be there for the policy in the shadow alone.
        events.retain(|event| self.interest.takes(event.kind));
        events.push(Event::new(EventKind::Timer, SLOT_NONE, 0, now_ns));
        self.rounds += 1;
        self.counts.rounds += 1;
        self.counts.events += events.len() as u64;
        if self
            .call(shared, turn, Call::Observe, |policy, view| policy.observe(view, &events))
            .is_none()
        {
            return;
        }
        for event in &events {
            if event.kind == EventKind::Delete {
                shared.slots.recycle(event.slot);
            }
        }
        let room = shared.mover.room(shared).min(ACTIONS_MAX);
        let budget = (self.tactics.round_bytes, room);
        let mut actions = Actions::with_budget(self.tactics.round_bytes, room);
        let planned = self.call(shared, turn, Call::Plan, |policy, view| {
            policy.plan(view, &mut actions);
        });
        let ended_ns = shared.clock.now_ns();
        let took_ns = ended_ns.saturating_sub(now_ns);
        self.rests_until_ns = ended_ns + took_ns.saturating_mul(REST_TIMES).min(REST_NS_MAX);
        if planned.is_some() {
            let actions = actions.into_list();
            if let Some(writer) = crate::lock(&shared.recording).decisions() {
                self.witness().round(writer, self.rounds, &events, budget, &actions);
            }
            let asked = actions.len();
            let refused = actions.into_iter().filter(|action| !self.carry_out(shared, action));
            let refused = refused.count();
            if asked > 0 {
                let rounds = &mut self.counts.nonsense_rounds;
                *rounds = if refused == asked { *rounds + 1 } else { 0 };
            }
            if let Some(what) = self.counts.broken() {
                self.replace(shared, format!("{}: {what}", self.tactics.name));
            }
            self.publish(shared, turn);
        }
        recording::tick(shared, now_ns);
    }

    /// Shows the policy in the shadow what happened.
    fn show_shadow(&self, shared: &Shared, events: &[Event], created: VecDeque<Newcomer>) {
        let timer = Event::new(EventKind::Timer, SLOT_NONE, 0, self.view.now_ns);
        let post = Post {
            now_ns: self.view.now_ns,
            wall_ns: shared.clock.wall_ns(),
            tiers: self.view.tiers.clone(),
            events: events.iter().copied().chain([timer]).collect(),
            created,
        };
        shared.desk.with_shadow(|shadow| shadow.show(post));
    }

    /// Takes what was posted into the view; `new` gets the segments that were created.
    fn take_events(
        &mut self,
        shared: &Shared,
        mut new: Option<&mut VecDeque<Newcomer>>,
    ) -> Vec<Event> {
        let settled = shared.mailbox.take_settled();
        let changes = shared.mailbox.take(shared.clock.now_ns());
        let mut events = Vec::with_capacity(changes.len() + self.refused.len() + 1);
        let refused = std::mem::take(&mut self.refused);
        // Held over all of it: a question about the recording waits a few milliseconds.
        let mut recording = crate::lock(&shared.recording);
        let mut watching = EventTeller::new(shared);
        let mut benefits = shared.benefits.taker(!shared.posting.is_ahead());
        let refused = refused.into_iter().map(|event| (Change::of(event), true));
        let changes = changes.into_iter().map(|change| (change, false));
        for (change, is_refusal) in changes.chain(refused) {
            let event = change.posted.event;
            if let Some(created) = change.created {
                if let Some(new) = &mut new {
                    new.push_back((created.view.clone(), created.size_hint_bytes));
                }
                insert(&mut self.view, event.slot, created.view);
                note_object(&mut self.objects, event.slot, created.object_id);
                self.record_state(recording.decisions(), &event);
            }
            if let Some(writer) = recording.writer() {
                self.witness().access(writer, &change.posted);
            }
            benefits.take(&self.view, &self.objects, &change.posted);
            self.view.apply(&event);
            if let Some(watching) = &mut watching {
                watching.take(&self.view, &event);
            }
            if event.count > 1 && matches!(event.kind, EventKind::Write | EventKind::SetLen) {
                // Summed up apart from each other, these have lost their order.
                refresh_size(shared, &mut self.view, event.slot);
                self.record_state(recording.decisions(), &event);
            }
            if event.kind == EventKind::Receipt {
                // The receipt of one action must not hide that another still runs.
                if let Some(segment) = self.view.segments.get_mut(event.slot as usize) {
                    segment.is_moving = segment.is_live && shared.mover.is_moving(event.slot);
                }
                self.record_state(recording.decisions(), &event);
                if !is_refusal {
                    self.note_outcome(&event);
                }
            }
            events.push(event);
        }
        for (slot, incarnation) in settled {
            let Some(&SegmentView { tier, size_bytes, .. }) = self.view.segment(slot, incarnation)
            else {
                continue;
            };
            refresh_size(shared, &mut self.view, slot);
            let length_bytes = self.view.segments[slot as usize].size_bytes;
            if length_bytes != size_bytes {
                let now_ns = shared.clock.now_ns();
                let event = Event::new(EventKind::SetLen, slot, incarnation, now_ns);
                let event = Event { tier, length_bytes, ..event };
                self.record_state(recording.decisions(), &event);
                events.push(event);
            }
        }
        events
    }

    fn witness(&self) -> Witness<'_> {
        Witness { view: &self.view, objects: &self.objects }
    }

    /// Records the segment of an event as it is, where the event alone does not tell.
    fn record_state(&self, writer: Option<&mut Writer>, event: &Event) {
        let segment = self.view.segments.get(event.slot as usize);
        if let (Some(writer), Some(segment)) = (writer, segment) {
            self.witness().state(writer, event.slot, segment, event.time_ns);
        }
    }

    /// Records that the policy starts, with everything that it is given.
    fn record_start(&mut self, shared: &Shared, turn: u64, saved: Option<(&[u8; 4], &[u8])>) {
        if crate::lock(&shared.recording).decisions().is_none() {
            return;
        }
        if let Some(why) = self.replaced.clone() {
            self.record_policy(shared, Vec::new(), Cause::Fallback { why });
        }
        let Some(parameters) =
            self.call(shared, turn, Call::Parameters, |policy, _| policy.parameters())
        else {
            return;
        };
        let state = saved.map(|(version, state)| SavedState {
            version: u32::from_le_bytes(*version),
            bytes: state.into(),
        });
        self.record_snapshot(shared, parameters, Cause::Start(state));
    }

    fn record_snapshot(&self, shared: &Shared, parameters: Vec<Parameter>, cause: Cause) {
        if let Some(writer) = crate::lock(&shared.recording).decisions() {
            self.witness().snapshot(writer);
        }
        self.record_policy(shared, parameters, cause);
    }

    fn record_policy(&self, shared: &Shared, parameters: Vec<Parameter>, cause: Cause) {
        if let Some(writer) = crate::lock(&shared.recording).decisions() {
            let (name, seed) = (&self.tactics.name, shared.settings.seed);
            self.witness().policy(writer, name, seed, parameters, cause);
        }
    }

    /// Records that the policy was changed from outside.
    fn record_change(&mut self, shared: &Shared, turn: u64, cause: Cause) {
        if crate::lock(&shared.recording).decisions().is_none() {
            return;
        }
        if let Some(parameters) =
            self.call(shared, turn, Call::Parameters, |policy, _| policy.parameters())
        {
            self.record_policy(shared, parameters, cause);
        }
    }

    /// Records a trace from here on.
    fn record(
        &mut self,
        shared: &Shared,
        turn: u64,
        writer: Writer,
        tactics: Option<Tactics>,
    ) -> Result<()> {
        let has_decisions = writer.settings().has_decisions;
        recording::install(shared, writer)?;
        match tactics {
            Some(next) if has_decisions => self.swap(shared, turn, next).ok_or_else(failed)?,
            _ if has_decisions => {
                if let Some(now) =
                    self.call(shared, turn, Call::Parameters, |policy, _| policy.parameters())
                {
                    self.record_snapshot(shared, now, Cause::Running);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Notes how an action ended that had begun.
    fn note_outcome(&mut self, event: &Event) {
        if !self.counts.queued.remove(&(event.slot, event.incarnation)) {
            return;
        }
        self.counts.end(event.outcome);
        let mine = self.decisions.iter_mut().find(|(slot, incarnation, decision)| {
            (*slot, *incarnation) == (event.slot, event.incarnation) && decision.outcome == "queued"
        });
        if let Some((_, _, decision)) = mine {
            decision.outcome = event.outcome.word().into();
        }
    }

    /// Does what the policy wants, where that can be; whether it makes sense.
    fn carry_out(&mut self, shared: &Arc<Shared>, action: &Action) -> bool {
        let is_nonsense = self.is_nonsense(shared, action);
        self.counts.actions += 1;
        self.counts.nonsense += u64::from(is_nonsense);
        // Cancelling is done when it was asked for; what was cancelled has its own receipt.
        let ended = match (self.submit(shared, action), action.kind) {
            (Err(outcome), _) => Some(outcome),
            (Ok(()), ActionKind::Cancel) => Some(Outcome::Done),
            (Ok(()), _) => None,
        };
        let segment = self.view.segments.get(action.slot as usize);
        let decision = DecisionReport {
            wall_ns: shared.clock.wall_ns(),
            key: segment.map_or_else(|| "?".into(), |segment| segment.key.to_string()),
            segment: segment.map_or(0, |segment| segment.segment),
            what: describe(action.kind, |tier| shared.tiers.get(tier).map(|it| it.name.clone())),
            reason: action.reason.clone(),
            outcome: ended.map_or("queued", Outcome::word).into(),
        };
        self.decisions.push_back((action.slot, action.incarnation, decision));
        if self.decisions.len() > DECISIONS_MAX {
            self.decisions.pop_front();
        }
        let Some(outcome) = ended else {
            self.counts.queued.insert((action.slot, action.incarnation));
            return true;
        };
        self.counts.end(outcome);
        let now_ns = shared.clock.now_ns();
        self.refused.push(Event {
            outcome,
            ..Event::new(EventKind::Receipt, action.slot, action.incarnation, now_ns)
        });
        !is_nonsense && outcome != Outcome::Invalid
    }

    fn is_nonsense(&self, shared: &Shared, action: &Action) -> bool {
        let tier = match action.kind {
            ActionKind::Move { to } | ActionKind::Promote { to } | ActionKind::Copy { to } => to,
            ActionKind::DropCopy { tier } => tier,
            ActionKind::Cancel => TierIndex(0),
        };
        let has_slot = (action.slot as usize) < self.view.segments.len();
        !has_slot || tier.index() >= shared.tiers.len()
    }

    fn submit(&self, shared: &Arc<Shared>, action: &Action) -> Result<(), Outcome> {
        let segment = self.view.segment(action.slot, action.incarnation).ok_or(Outcome::Stale)?;
        let (wish, to) = match action.kind {
            ActionKind::Move { to } => (MoveWish::Move, to),
            ActionKind::Promote { to } => (MoveWish::Promote, to),
            ActionKind::Copy { to } => (MoveWish::Copy, to),
            ActionKind::DropCopy { tier } => (MoveWish::DropCopy, tier),
            ActionKind::Cancel => {
                let slot = (action.slot, action.incarnation);
                let found = shared.mover.cancel_segment(shared, slot);
                return if found { Ok(()) } else { Err(Outcome::Invalid) };
            }
        };
        if to.index() >= shared.tiers.len() {
            return Err(Outcome::Invalid);
        }
        if self.tactics.is_dry_run {
            return Err(Outcome::DryRun);
        }
        let request = MoveRequest {
            key: segment.key.clone(),
            segment: segment.segment,
            wish,
            to,
            priority: action.priority,
            reason: action.reason.clone(),
            by: format!("policy {}", self.tactics.name),
            benefit_s: action.benefit_s,
            slot: Some((action.slot, action.incarnation)),
        };
        shared.mover.submit(shared, request).map(drop)
    }

    /// Does what a caller asked for.
    pub(crate) fn obey(
        &mut self,
        shared: &Arc<Shared>,
        turn: u64,
        command: Command,
    ) -> Result<Reply> {
        let reply = match command {
            // A round has just run, with everything that happened before the command.
            Command::Run => Vec::new(),
            Command::Policy(next) => {
                self.swap(shared, turn, *next).ok_or_else(failed)?;
                shared.tell_policy(&self.tactics.name, "policy", String::new);
                Vec::new()
            }
            Command::Parameter(name, value) => {
                let told = format!("{name}={value}");
                let set = |policy: &mut dyn Policy, _: &View| policy.set_parameter(&name, &value);
                let set = self.call(shared, turn, Call::SetParameter, set).ok_or_else(failed)?;
                let cause = Cause::Parameter(ParameterValue { name, value });
                self.record_change(shared, turn, cause);
                set?;
                shared.tell_policy(&self.tactics.name, "parameter", || told);
                Vec::new()
            }
            Command::DryRun(is_dry_run) => {
                self.tactics.is_dry_run = is_dry_run;
                let word = if is_dry_run { "on" } else { "off" };
                shared.tell_policy(&self.tactics.name, "dry-run", || word.into());
                Vec::new()
            }
            Command::Shadow(tactics) => {
                let name = tactics.as_ref().map_or_else(String::new, |it| it.name.clone());
                let start = |tactics: Box<Tactics>| {
                    Shadow::start(*tactics, self.view.clone(), shared.clock.wall_ns())
                };
                shared.desk.set_shadow(tactics.map(start).transpose()?);
                self.set_posting(shared, self.interest);
                shared.tell_policy(&self.tactics.name, "shadow", || name);
                Vec::new()
            }
            Command::Calls(after_events, every) => {
                if let Some(count) = after_events {
                    self.tactics.after_events = count;
                    shared.mailbox.after_events.store(count, Ordering::Relaxed);
                }
                self.tactics.every = every.unwrap_or(self.tactics.every);
                let (count, every) = (self.tactics.after_events, self.tactics.every);
                shared.tell_policy(&self.tactics.name, "calls", || {
                    format!("after {count} events, every {}", format_duration(every))
                });
                Vec::new()
            }
            Command::Message(kind, body) => {
                let tell =
                    |policy: &mut dyn Policy, view: &View| policy.message(view, &kind, &body);
                let reply = self.call(shared, turn, Call::Message, tell).ok_or_else(failed)?;
                self.record_change(shared, turn, Cause::Message { kind, body });
                let reply = reply?;
                // What a message asks for is done now, not at the next round.
                self.round(shared, turn);
                reply
            }
            Command::Record(writer, tactics) => {
                self.record(shared, turn, *writer, tactics.map(|tactics| *tactics))?;
                Vec::new()
            }
            Command::Stop => {
                self.save(shared, turn);
                Vec::new()
            }
        };
        self.publish(shared, turn);
        Ok(reply)
    }

    /// Goes on with another policy. `None` where the one before hung in its last call, so that the
    /// fallback decides on another thread.
    fn swap(&mut self, shared: &Shared, turn: u64, next: Tactics) -> Option<()> {
        self.save(shared, turn);
        if !shared.desk.is_turn(turn) {
            return None;
        }
        shared.mailbox.after_events.store(next.after_events.max(1), Ordering::Relaxed);
        shared.desk.set_call_time_max(next.call_time_max);
        self.tactics = next;
        self.standing = Arc::default();
        self.view.tiers = tier_views(shared);
        if let Some(writer) = crate::lock(&shared.recording).writer() {
            writer.set_tiers(self.view.tiers.iter().map(Tier::of).collect());
        }
        self.replaced = None;
        self.counts = Counts::new(shared);
        self.decisions.clear();
        self.introduce(shared, turn);
        shared.desk.is_turn(turn).then_some(())
    }

    fn save(&mut self, shared: &Shared, turn: u64) {
        let state = self.call(shared, turn, Call::Save, |policy, view| {
            let mut out = policy.state_version().to_le_bytes().to_vec();
            policy.save(view, &mut out);
            out
        });
        if let Some(state) = state {
            // A state that is lost costs warm-up, no data.
            let _ = shared.catalog.commit(&[Write::PolicyState(&self.tactics.name, state)]);
        }
    }

    /// Publishes the placer and the report.
    fn publish(&mut self, shared: &Shared, turn: u64) {
        let mind = self.call(shared, turn, Call::Publish, |policy, _| {
            (policy.placer(), policy.parameters(), policy.interest())
        });
        if let Some((placer, parameters, interest)) = mind {
            self.set_posting(shared, interest);
            self.publish_placer(shared, placer);
            self.publish_report(shared, Some(parameters));
        }
    }

    fn publish_placer(&self, shared: &Shared, placer: Arc<dyn Placer>) {
        shared.placer.store(Arc::new(Published::new(placer, &self.standing)));
    }

    fn publish_report(&self, shared: &Shared, parameters: Option<Vec<terrace_core::Parameter>>) {
        let parameters = parameters.unwrap_or_else(|| self.tactics.policy.parameters());
        shared.desk.set_report(PolicyReport {
            name: self.tactics.name.clone(),
            replaced: self.replaced.clone(),
            is_dry_run: self.tactics.is_dry_run,
            after_events: self.tactics.after_events,
            every_ns: self.tactics.every.as_nanos() as u64,
            post_events: self.tactics.post_events.word().into(),
            parameters: parameters.into_iter().map(ParameterReport::from).collect(),
            rounds: self.counts.rounds,
            events: self.counts.events,
            coalesced_events: self.counts.coalesced_before,
            actions: self.counts.actions,
            outcomes: self
                .counts
                .outcomes
                .iter()
                .map(|(word, count)| ((*word).into(), *count))
                .collect(),
            decisions: self.decisions.iter().map(|(_, _, decision)| decision.clone()).collect(),
        });
    }
}

/// Puts every segment of the catalog into the view.
fn load_segments(shared: &Shared, view: &mut View, objects: &mut Vec<u64>) -> Result<()> {
    let (now_ns, wall_ns) = (shared.clock.now_ns(), shared.clock.wall_ns());
    shared.catalog.for_each(&mut |key, record| {
        // A damaged record is reported by `fsck`; a policy cannot do anything about it.
        let Ok(record) = record else { return Ok(()) };
        let in_memory = shared.entries.peek(&key);
        let created_ns = now_ns.saturating_sub(wall_ns.saturating_sub(record.created_ns));
        for one in &record.segments {
            let (slot, incarnation) = shared.slots.assign(record.object_id, one.number);
            let copies = one.copies.iter().map(|copy| copy.tier);
            let mut segment = SegmentView {
                key: key.clone(),
                segment: one.number,
                incarnation,
                is_live: true,
                start_bytes: one.start_bytes,
                size_bytes: one.length_bytes,
                tier: one.primary.tier,
                copies: copies.fold(TierSet::default(), TierSet::with),
                opens: 0,
                is_moving: shared.mover.is_moving(slot),
                is_pinned: record.is_pinned,
                persistency: record.persistency,
                hint: record.hint,
                created_ns,
                last_read_ns: 0,
                last_write_ns: 0,
                last_close_ns: 0,
            };
            if let Some(entry) = &in_memory {
                segment.opens = entry.opens.load(Ordering::Acquire);
                let live = entry.segments.load();
                if let Some(found) = live.iter().find(|other| other.number == one.number) {
                    segment.size_bytes = found.length();
                }
            }
            insert(view, slot, segment);
            note_object(objects, slot, record.object_id);
        }
        Ok(())
    })
}

/// Takes a segment's length from where it is kept.
fn refresh_size(shared: &Shared, view: &mut View, slot: Slot) {
    let Some(segment) = view.segments.get_mut(slot as usize) else { return };
    // An error here comes back where it can be returned.
    let Ok(Some(entry)) = shared.borrow_entry(&segment.key) else { return };
    let live = entry.segments.load();
    let is_same = |other: &&Arc<crate::memory::entry::Segment>| {
        (other.slot, other.incarnation) == (slot, segment.incarnation)
    };
    if let Some(found) = live.iter().find(is_same) {
        segment.size_bytes = found.length();
    }
}

/// Puts a segment into its slot; slots whose segments come later are dead until then.
fn insert(view: &mut View, slot: Slot, segment: SegmentView) {
    while view.segments.len() < slot as usize {
        let dead = SegmentView { is_live: false, ..segment.clone() };
        view.segments.push(dead);
    }
    view.insert(slot, segment);
}

/// Notes the number of the object of a slot.
fn note_object(objects: &mut Vec<u64>, slot: Slot, object_id: u64) {
    let index = slot as usize;
    if objects.len() <= index {
        objects.resize(index + 1, 0);
    }
    objects[index] = object_id;
}

/// Of a call that a policy did not survive.
fn failed() -> Error {
    Error::new(ErrorKind::Io, "reach the policy")
        .because("it failed and was replaced; see terrace policy show")
}
