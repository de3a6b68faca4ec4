// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A policy in the shadow of the one that decides: it is shown the same, in a world where its own
//! decisions are carried out, and what applications would have waited for is added up for both.
//!
//! It has a thread for itself. Nothing that it does, or fails to do, reaches the store.

mod score;
mod world;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};

use terrace_core::{
    ActionKind, Actions, Canceller, Error, Event, Interest, Result, SegmentView, TierIndex,
    TierView, View, panic_text,
};

use self::world::World;
use crate::Tactics;
use crate::report::{DecisionReport, ParameterReport, ShadowReport};

/// Decisions that are kept for people.
pub(crate) const DECISIONS_MAX: usize = 256;

/// Actions of one round of a policy, also of one that decides.
pub(crate) const ACTIONS_MAX: usize = 100_000;

/// Rounds that a shadow may be behind.
const BEHIND_MAX: usize = 256;

/// A segment that was created, and the size that its application announced.
pub(crate) type Newcomer = (SegmentView, Option<u64>);

/// What happened since the round before.
pub(crate) struct Post {
    pub(crate) now_ns: u64,
    pub(crate) wall_ns: u64,
    pub(crate) tiers: Vec<TierView>,
    pub(crate) events: Vec<Event>,
    /// The segments that `Create` events are about, in their order.
    pub(crate) created: VecDeque<Newcomer>,
}

/// A shadow, as the thread of the policy that decides has it.
pub(crate) struct Shadow {
    posts: SyncSender<Post>,
    report: Arc<Mutex<ShadowReport>>,
    canceller: Option<Canceller>,
    interest: Interest,
}

impl Shadow {
    /// Begins with everything as `view` shows it.
    pub(crate) fn start(tactics: Tactics, view: View, wall_ns: u64) -> Result<Self> {
        let (posts, taken) = sync_channel(BEHIND_MAX);
        let report = ShadowReport {
            name: tactics.name.clone(),
            since_wall_ns: wall_ns,
            ..ShadowReport::default()
        };
        let report = Arc::new(Mutex::new(report));
        let canceller = tactics.policy.canceller();
        let interest = tactics.policy.interest();
        let life = Life {
            tactics,
            world: World::new(view),
            report: Arc::clone(&report),
            outcomes: BTreeMap::new(),
        };
        std::thread::Builder::new()
            .name("terrace-shadow".into())
            .spawn(move || life.run(&taken))
            .map_err(|error| Error::from_io("start the shadow's thread", error))?;
        Ok(Self { posts, report, canceller, interest })
    }

    /// The optional kinds of events that it asks for, until it has ended.
    pub(crate) fn interest(&self) -> Interest {
        match crate::lock(&self.report).ended {
            Some(_) => Interest::NONE,
            None => self.interest,
        }
    }

    /// Shows it what happened; never waits.
    pub(crate) fn show(&self, post: Post) {
        if let Err(TrySendError::Full(_)) = self.posts.try_send(post) {
            self.end(&format!("it fell {BEHIND_MAX} rounds behind"));
        }
    }

    /// Lets it decide no longer; the first reason stays.
    pub(crate) fn end(&self, why: &str) {
        crate::lock(&self.report).ended.get_or_insert_with(|| why.into());
        self.cancel();
    }

    fn cancel(&self) {
        if let Some(cancel) = &self.canceller {
            cancel();
        }
    }

    pub(crate) fn report(&self) -> ShadowReport {
        crate::lock(&self.report).clone()
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// What the thread has.
struct Life {
    tactics: Tactics,
    world: World,
    report: Arc<Mutex<ShadowReport>>,
    outcomes: BTreeMap<&'static str, u64>,
}

impl Life {
    /// Until its sender is dropped, or the policy fails.
    fn run(mut self, posts: &Receiver<Post>) {
        let lived = catch_unwind(AssertUnwindSafe(|| {
            self.introduce();
            while let Ok(post) = posts.recv() {
                // What came too late to be sent is missing in between.
                if crate::lock(&self.report).ended.is_some() {
                    return;
                }
                // Its policy was made for those that there were.
                if post.tiers.len() != self.world.tier_count() {
                    let why = "the store has other tiers now; begin it again".into();
                    crate::lock(&self.report).ended = Some(why);
                    return;
                }
                self.round(post);
            }
        }));
        if let Err(panic) = lived {
            let why = format!("panicked: {}", panic_text(&*panic));
            crate::lock(&self.report).ended.get_or_insert(why);
        }
    }

    fn introduce(&mut self) {
        let present = self.world.present();
        let policy = &mut self.tactics.policy;
        policy.observe(&self.world.view, &present);
        self.world.set_placer(policy.placer());
        self.publish(Vec::new(), 0);
    }

    fn round(&mut self, post: Post) {
        let wall_ns = post.wall_ns;
        let shown = post.events.len() as u64;
        let events = self.world.take(post);
        for receipt in events.iter().filter(|event| event.kind == terrace_core::EventKind::Receipt)
        {
            *self.outcomes.entry(receipt.outcome.word()).or_default() += 1;
        }
        let policy = &mut self.tactics.policy;
        policy.observe(&self.world.view, &events);
        let mut actions = Actions::with_budget(self.tactics.round_bytes, ACTIONS_MAX);
        policy.plan(&self.world.view, &mut actions);
        self.world.set_placer(policy.placer());
        let names: Vec<_> = self.world.view.tiers.iter().map(|tier| tier.name.clone()).collect();
        let mut decisions = Vec::new();
        for action in actions.into_list() {
            let segment = self.world.view.segments.get(action.slot as usize);
            let (key, number) =
                segment.map_or_else(|| ("?".into(), 0), |one| (one.key.to_string(), one.segment));
            let refused = self.world.carry_out(&action);
            decisions.push(DecisionReport {
                wall_ns,
                key,
                segment: number,
                what: describe(action.kind, |tier| names.get(tier.index()).cloned()),
                reason: action.reason,
                outcome: refused.map_or("queued", |outcome| outcome.word()).into(),
            });
        }
        self.publish(decisions, shown);
    }

    fn publish(&mut self, decisions: Vec<DecisionReport>, shown: u64) {
        let parameters = self.tactics.policy.parameters().into_iter();
        let mut report = crate::lock(&self.report);
        report.rounds += u64::from(shown > 0);
        report.events += shown;
        report.actions += decisions.len() as u64;
        report.parameters = parameters.map(ParameterReport::from).collect();
        report.outcomes =
            self.outcomes.iter().map(|(word, count)| ((*word).into(), *count)).collect();
        (report.actual, report.shadow) = self.world.sides();
        report.decisions.extend(decisions);
        let old = report.decisions.len().saturating_sub(DECISIONS_MAX);
        report.decisions.drain(..old);
    }
}

/// What an action wants, in words.
pub(crate) fn describe(kind: ActionKind, name: impl Fn(TierIndex) -> Option<String>) -> String {
    let name = |tier: TierIndex| name(tier).unwrap_or_else(|| format!("tier {tier}"));
    match kind {
        ActionKind::Move { to } => format!("move to {}", name(to)),
        ActionKind::Promote { to } => format!("promote to {}", name(to)),
        ActionKind::Copy { to } => format!("copy to {}", name(to)),
        ActionKind::DropCopy { tier } => format!("drop copy on {}", name(tier)),
        ActionKind::Cancel => "cancel".into(),
    }
}
