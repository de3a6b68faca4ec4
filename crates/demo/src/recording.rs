// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was seen during one run: every access, every migration, the fill of the tiers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use terrace_core::{
    Actions, Canceller, Clock, Event, EventKind, Interest, Outcome, Parameter, Placer, Policy,
    Result, Slot, SystemClock, View,
};

/// Everything that was seen during one run; times count from its start.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Recording {
    /// Names of the tiers in order of preference.
    pub(crate) tiers: Vec<String>,
    /// In the order in which they were created.
    pub(crate) objects: Vec<ObjectRecord>,
    /// In order of time.
    pub(crate) fill: Vec<FillSample>,
    /// What the policy learned, in order of time.
    pub(crate) changes: Vec<Change>,
    /// What the application did when.
    pub(crate) phases: Vec<Phase>,
}

/// One object from its creation on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ObjectRecord {
    /// `namespace/name`.
    pub(crate) key: String,
    /// When it was created.
    pub(crate) created_s: f64,
    /// Where it was placed.
    pub(crate) placed_on: usize,
    /// Accesses in order of time.
    pub(crate) marks: Vec<Mark>,
    /// Migrations that were carried out, in order of time.
    pub(crate) moves: Vec<MoveRecord>,
}

/// One access.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Mark {
    /// When it ended.
    pub(crate) at_s: f64,
    /// What it was.
    pub(crate) kind: MarkKind,
    /// The tier that served it.
    pub(crate) tier: usize,
}

/// Kinds of accesses that are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MarkKind {
    /// Bytes were written.
    Write,
    /// Bytes were read.
    Read,
}

/// One migration that was carried out.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MoveRecord {
    /// When the new location became valid.
    pub(crate) at_s: f64,
    /// The tier it left.
    pub(crate) from: usize,
    /// The tier it went to.
    pub(crate) to: usize,
    /// The reason that the policy gave.
    pub(crate) reason: String,
}

/// How full the tiers were at one moment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FillSample {
    /// When.
    pub(crate) at_s: f64,
    /// Everything that took room, by tier.
    pub(crate) taken_bytes: Vec<u64>,
}

/// A value that the policy deduced took over.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Change {
    /// When.
    pub(crate) at_s: f64,
    /// What, in words.
    pub(crate) words: String,
}

/// A part of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Phase {
    /// What the application did.
    pub(crate) name: String,
    /// When it began.
    pub(crate) start_s: f64,
    /// When it ended.
    pub(crate) end_s: f64,
}

impl Recording {
    /// Migrations that were carried out.
    pub(crate) fn moves(&self) -> usize {
        self.objects.iter().map(|object| object.moves.len()).sum()
    }
}

/// Watches a policy from outside; clones share what they have seen.
#[derive(Clone)]
pub(crate) struct Recorder {
    seen: Arc<Mutex<Seen>>,
}

struct Seen {
    /// Started with the run.
    clock: SystemClock,
    /// Add it to the stack's time for the time of `clock`; the smallest that was measured,
    /// because a call can only be late.
    offset_ns: i64,
    objects: Vec<Raw>,
    /// By slot: the object in it and its incarnation.
    slots: Vec<Option<(u32, usize)>>,
    /// By slot: the reason of the action that was asked for last.
    reasons: Vec<(Slot, u32, String)>,
}

/// An object with times as the stack gives them.
struct Raw {
    key: String,
    created_ns: u64,
    placed_on: usize,
    tier: usize,
    marks: Vec<(u64, MarkKind, usize)>,
    moves: Vec<(u64, usize, usize, String)>,
}

impl Recorder {
    /// Starts the time of a run.
    pub(crate) fn new() -> Self {
        let seen = Seen {
            clock: SystemClock::default(),
            offset_ns: i64::MAX,
            objects: Vec::new(),
            slots: Vec::new(),
            reasons: Vec::new(),
        };
        Self { seen: Arc::new(Mutex::new(seen)) }
    }

    /// Puts the recorder around a policy.
    pub(crate) fn wrap(&self, inner: Box<dyn Policy>) -> Box<dyn Policy> {
        Box::new(Recorded { inner, seen: self.seen.clone() })
    }

    /// Seconds since the start.
    pub(crate) fn elapsed_s(&self) -> f64 {
        lock(&self.seen).now_s()
    }

    /// Seconds since the start of a time that the stack gave.
    pub(crate) fn at_s(&self, time_ns: u64) -> f64 {
        lock(&self.seen).at_s(time_ns)
    }

    /// The objects that were seen so far, in the order in which they were created.
    pub(crate) fn objects(&self) -> Vec<ObjectRecord> {
        let seen = lock(&self.seen);
        let at_s = |time_ns| seen.at_s(time_ns);
        let objects = seen.objects.iter().map(|raw| ObjectRecord {
            key: raw.key.clone(),
            created_s: at_s(raw.created_ns),
            placed_on: raw.placed_on,
            marks: raw
                .marks
                .iter()
                .map(|&(time_ns, kind, tier)| Mark { at_s: at_s(time_ns), kind, tier })
                .collect(),
            moves: raw
                .moves
                .iter()
                .map(|(time_ns, from, to, reason)| MoveRecord {
                    at_s: at_s(*time_ns),
                    from: *from,
                    to: *to,
                    reason: reason.clone(),
                })
                .collect(),
        });
        objects.collect()
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    // Every method leaves `Seen` whole, so it is sound even after a panic elsewhere.
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seen {
    fn now_s(&self) -> f64 {
        self.clock.now_ns() as f64 * 1e-9
    }

    fn at_s(&self, time_ns: u64) -> f64 {
        (time_ns as i64).saturating_add(self.offset_ns).max(0) as f64 * 1e-9
    }

    fn synchronise(&mut self, now_ns: u64) {
        let elapsed_ns = self.clock.now_ns() as i64;
        self.offset_ns = self.offset_ns.min(elapsed_ns - now_ns as i64);
    }

    fn note(&mut self, view: &View, event: &Event) {
        let slot = event.slot as usize;
        let Some(segment) = view.segments.get(slot) else { return };
        if matches!(event.kind, EventKind::Create | EventKind::Present) {
            self.slots.resize(self.slots.len().max(slot + 1), None);
            self.slots[slot] = Some((event.incarnation, self.objects.len()));
            self.objects.push(Raw {
                key: segment.key.to_string(),
                created_ns: event.time_ns,
                placed_on: event.tier.index(),
                tier: event.tier.index(),
                marks: Vec::new(),
                moves: Vec::new(),
            });
            return;
        }
        let known = self.slots.get(slot).copied().flatten();
        let Some((_, object)) = known.filter(|(user, _)| *user == event.incarnation) else {
            return;
        };
        let raw = &mut self.objects[object];
        match event.kind {
            EventKind::Write => {
                raw.marks.push((event.time_ns, MarkKind::Write, event.tier.index()))
            }
            EventKind::Read => raw.marks.push((event.time_ns, MarkKind::Read, event.tier.index())),
            EventKind::Moved => {
                let asked = self
                    .reasons
                    .iter()
                    .position(|(at, user, _)| (*at, *user) == (event.slot, event.incarnation));
                let reason = asked.map(|at| self.reasons.swap_remove(at).2).unwrap_or_default();
                raw.moves.push((event.time_ns, raw.tier, event.tier.index(), reason));
                raw.tier = event.tier.index();
            }
            EventKind::Receipt if event.outcome != Outcome::Done => {
                self.reasons
                    .retain(|(at, user, _)| (*at, *user) != (event.slot, event.incarnation));
            }
            _ => {}
        }
    }
}

/// A policy that is watched; it decides exactly as the one inside.
struct Recorded {
    inner: Box<dyn Policy>,
    seen: Arc<Mutex<Seen>>,
}

impl Policy for Recorded {
    fn placer(&self) -> Arc<dyn Placer> {
        self.inner.placer()
    }

    fn interest(&self) -> Interest {
        self.inner.interest()
    }

    fn observe(&mut self, view: &View, events: &[Event]) {
        {
            let mut seen = lock(&self.seen);
            seen.synchronise(view.now_ns);
            for event in events {
                seen.note(view, event);
            }
        }
        self.inner.observe(view, events);
    }

    fn plan(&mut self, view: &View, actions: &mut Actions) {
        let before = actions.list().len();
        self.inner.plan(view, actions);
        let mut seen = lock(&self.seen);
        for action in &actions.list()[before..] {
            seen.reasons.push((action.slot, action.incarnation, action.reason.clone()));
        }
    }

    fn message(&mut self, view: &View, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
        self.inner.message(view, kind, body)
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.inner.parameters()
    }

    fn set_parameter(&mut self, name: &str, value: &str) -> Result<()> {
        self.inner.set_parameter(name, value)
    }

    fn state_version(&self) -> u32 {
        self.inner.state_version()
    }

    fn save(&self, view: &View, out: &mut Vec<u8>) {
        self.inner.save(view, out);
    }

    fn restore(&mut self, view: &View, version: u32, state: &[u8]) -> Result<()> {
        self.inner.restore(view, version, state)
    }

    fn canceller(&self) -> Option<Canceller> {
        self.inner.canceller()
    }
}
