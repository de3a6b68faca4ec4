// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A policy that records what it is shown and does what the test says.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use terrace_core::{
    Action, ActionKind, Actions, Backend, BackendExt, Canceller, Clock, Error, ErrorKind, Event,
    EventKind, Interest, Key, Outcome, Parameter, Placed, Placement, Placer, Policy, Result, Slot,
    SystemClock, TierIndex, View,
};
use terrace_stack::{MoveKind, Stack, Tactics};

use super::gate::Gate;
use super::world::{LONG, World, key, migrate, put};

/// What a [`Scripted`] policy was shown and is told.
#[derive(Default)]
pub(crate) struct Script {
    /// Every event, in order.
    pub(crate) events: Vec<Event>,
    /// Keys of all segments that were ever shown.
    pub(crate) keys: HashMap<(Slot, u32), (Key, u32)>,
    /// The view of the last call.
    pub(crate) view: Option<View>,
    /// Calls of `plan`.
    pub(crate) rounds: u64,
    /// What to ask for, one list a round.
    pub(crate) wishes: Vec<Vec<Wish>>,
    /// Asked for in every round, after the wishes.
    pub(crate) insists_on: Vec<Action>,
    /// The only parameter.
    pub(crate) knob: String,
    /// What was restored.
    pub(crate) restored: Option<Vec<u8>>,
    /// What contradicted the contract of `Policy`.
    pub(crate) faults: Vec<String>,
}

/// An action in terms of keys, so that tests need no slots.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// The object.
    pub(crate) key: Key,
    /// The segment.
    pub(crate) segment: u32,
    /// What to do.
    pub(crate) kind: ActionKind,
    /// Seconds that it is said to save.
    pub(crate) benefit_s: f64,
}

impl Wish {
    /// About the first segment of an object.
    pub(crate) fn new(key: &Key, kind: ActionKind) -> Self {
        Self { key: key.clone(), segment: 0, kind, benefit_s: 0.0 }
    }

    /// The same with a benefit.
    pub(crate) fn saving(self, benefit_s: f64) -> Self {
        Self { benefit_s, ..self }
    }
}

/// A step at which a scripted policy may be held or broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Placer,
    Place,
    Observe,
    Plan,
    Message,
    SetParameter,
    Save,
}

/// How a scripted policy breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breakage {
    Panic,
    /// Until the gate is opened, so that a test leaves no spinning thread behind.
    Loop,
    /// Comes back, each time, but late.
    Dawdle,
}

/// The policy.
pub(crate) struct Scripted {
    shared: Shared,
}

/// What the policy and the test share. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Shared {
    script: Arc<Mutex<Script>>,
    gate: Arc<Gate>,
    placer: Arc<dyn Placer>,
    breaks: Arc<Mutex<Option<(Step, Breakage)>>>,
    /// The optional kinds of events that the policy asks for.
    interest: Interest,
}

impl Shared {
    /// A policy that places on the first tier and asks for nothing.
    pub(crate) fn new() -> Self {
        Self::with_placer(Arc::new(PlaceOn(TierIndex(0))))
    }

    /// A policy with its own placer.
    pub(crate) fn with_placer(placer: Arc<dyn Placer>) -> Self {
        let script = Script { knob: "1".into(), ..Script::default() };
        Self {
            script: Arc::new(Mutex::new(script)),
            gate: Arc::new(Gate::default()),
            placer,
            breaks: Arc::default(),
            interest: Interest::NONE,
        }
    }

    /// The same where the policy asks for optional kinds of events.
    pub(crate) fn asking(self, interest: Interest) -> Self {
        Self { interest, ..self }
    }

    /// The policy under a name, called only by `run_policy`.
    pub(crate) fn tactics(&self, name: &str) -> Tactics {
        let mut tactics = Tactics::new(name, Box::new(Scripted { shared: self.clone() }));
        tactics.after_events = u64::MAX;
        tactics.every = Duration::from_secs(3600);
        tactics
    }

    /// What was recorded.
    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("a scripted policy does not panic inside its script")
    }

    /// What the policy asks for in its next round.
    pub(crate) fn wish(&self, wishes: Vec<Wish>) {
        self.script().wishes.push(wishes);
    }

    /// From now on the policy breaks at a step.
    pub(crate) fn break_at(&self, step: Step, breakage: Breakage) {
        if breakage == Breakage::Loop {
            self.gate.close();
        }
        *self.breaks.lock().expect("never poisoned") = Some((step, breakage));
    }

    /// The gate at which a looping policy waits.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Receipts so far, by key and segment.
    pub(crate) fn receipts(&self) -> Vec<(Key, u32, Outcome, Event)> {
        let script = self.script();
        let receipts = script.events.iter().filter(|event| event.kind == EventKind::Receipt);
        receipts
            .filter_map(|event| {
                let (key, segment) = script.keys.get(&(event.slot, event.incarnation))?;
                Some((key.clone(), *segment, event.outcome, *event))
            })
            .collect()
    }

    /// The kinds of the events of an object that are about migration, in order.
    pub(crate) fn course(&self, key: &Key) -> Vec<EventKind> {
        use EventKind::{Copied, Moved, Queued, Receipt, Uncopied};
        let script = self.script();
        let events = script.events.iter().filter(|event| {
            matches!(event.kind, Queued | Moved | Copied | Uncopied | Receipt)
                && script.keys.get(&(event.slot, event.incarnation)).is_some_and(|of| of.0 == *key)
        });
        events.map(|event| event.kind).collect()
    }

    fn pass(&self, step: Step) {
        let breaks = *self.breaks.lock().expect("never poisoned");
        match breaks {
            Some((at, Breakage::Panic)) if at == step => panic!("scripted to panic at {step:?}"),
            Some((at, Breakage::Loop)) if at == step => self.gate.pass(),
            Some((at, Breakage::Dawdle)) if at == step => {
                SystemClock::default().sleep(Duration::from_millis(10));
            }
            _ => {}
        }
    }
}

impl Policy for Scripted {
    fn placer(&self) -> Arc<dyn Placer> {
        self.shared.pass(Step::Placer);
        Arc::new(Watched { shared: self.shared.clone() })
    }

    fn interest(&self) -> Interest {
        self.shared.interest
    }

    fn observe(&mut self, view: &View, events: &[Event]) {
        self.shared.pass(Step::Observe);
        let mut script = self.shared.script();
        for event in events {
            script.note(view, event);
        }
        script.view = Some(view.clone());
    }

    fn plan(&mut self, view: &View, actions: &mut Actions) {
        self.shared.pass(Step::Plan);
        let mut script = self.shared.script();
        script.rounds += 1;
        script.view = Some(view.clone());
        let wishes = if script.wishes.is_empty() { Vec::new() } else { script.wishes.remove(0) };
        for wish in wishes {
            let found = view
                .live()
                .find(|(_, segment)| segment.key == wish.key && segment.segment == wish.segment);
            let Some((slot, segment)) = found else {
                script.faults.push(format!("no live segment in the view for {wish:?}"));
                continue;
            };
            let action = Action {
                slot,
                incarnation: segment.incarnation,
                kind: wish.kind,
                priority: 0,
                reason: "scripted".into(),
                benefit_s: wish.benefit_s,
            };
            if !actions.push(action, segment.size_bytes) {
                script.faults.push(format!("the budget refused {wish:?}"));
            }
        }
        for action in &script.insists_on {
            // A policy that asks for nonsense does not mind the budget either.
            let _ = actions.push(action.clone(), 0);
        }
    }

    fn message(&mut self, _view: &View, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
        self.shared.pass(Step::Message);
        match kind {
            "echo" => Ok(body.to_vec()),
            _ => Err(Error::new(ErrorKind::Unsupported, "answer a message").with("kind", kind)),
        }
    }

    fn canceller(&self) -> Option<Canceller> {
        let gate = Arc::clone(&self.shared.gate);
        Some(Box::new(move || gate.open()))
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![Parameter::new("knob", &self.shared.script().knob, "A number from 0 to 9.")]
    }

    fn set_parameter(&mut self, name: &str, value: &str) -> Result<()> {
        self.shared.pass(Step::SetParameter);
        if name != "knob" {
            return Err(Error::new(ErrorKind::NotFound, "set a parameter").with("name", name));
        }
        if value.len() != 1 || !value.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Error::invalid("set a parameter", "a number from 0 to 9 is expected"));
        }
        self.shared.script().knob = value.into();
        Ok(())
    }

    fn state_version(&self) -> u32 {
        7
    }

    fn save(&self, _view: &View, out: &mut Vec<u8>) {
        self.shared.pass(Step::Save);
        out.extend_from_slice(self.shared.script().knob.as_bytes());
    }

    fn restore(&mut self, _view: &View, version: u32, state: &[u8]) -> Result<()> {
        if version != 7 {
            return Err(Error::new(ErrorKind::Unsupported, "restore a state"));
        }
        self.shared.script().restored = Some(state.to_vec());
        Ok(())
    }
}

impl Script {
    /// Records an event and whether the view already agrees with it.
    fn note(&mut self, view: &View, event: &Event) {
        self.events.push(*event);
        if event.kind == EventKind::Timer {
            return;
        }
        let of = (event.slot, event.incarnation);
        let shown = view.segments.get(event.slot as usize);
        let shown = shown.filter(|segment| segment.incarnation == event.incarnation);
        if matches!(event.kind, EventKind::Create | EventKind::Present) {
            match shown {
                Some(segment) => {
                    let name = (segment.key.clone(), segment.segment);
                    if self.keys.insert(of, name).is_some() {
                        self.faults.push(format!("{of:?} began twice: {event:?}"));
                    }
                }
                // The slot may have been used again within the same batch.
                None if event.kind == EventKind::Present => {
                    self.faults.push(format!("present, but not in the view: {event:?}"));
                }
                None => {}
            }
        }
    }
}

/// Places everything on one tier.
#[derive(Debug)]
pub(crate) struct PlaceOn(pub(crate) TierIndex);

impl Placer for PlaceOn {
    fn place(&self, _new: &Placement<'_>) -> Placed {
        Placed::on(self.0)
    }
}

/// The scripted policy's placer, which can be broken too.
struct Watched {
    shared: Shared,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watched")
    }
}

impl Placer for Watched {
    fn place(&self, new: &Placement<'_>) -> Placed {
        self.shared.pass(Step::Place);
        self.shared.placer.place(new)
    }

    fn is_foreign(&self) -> bool {
        true
    }
}

/// Runs the policy until nothing moves and it has seen everything.
pub(crate) fn settle(stack: &Stack) {
    stack.run_policy().expect("the policy runs");
    assert!(stack.wait_idle(LONG), "migrations end: {:?}", stack.moves());
    stack.run_policy().expect("the policy runs");
}

/// A store of two tiers under a scripted policy.
pub(crate) fn scripted() -> (World, Stack, Shared) {
    let world = World::two();
    let shared = Shared::new();
    let stack = world.create_with(|parts| parts.tactics = Some(shared.tactics("scripted")));
    (world, stack, shared)
}

/// Whether the fallback has taken over.
pub(crate) fn is_replaced(stack: &Stack) -> bool {
    stack.policy().is_some_and(|report| report.replaced.is_some())
}

/// The fallback has taken over from the scripted policy, and says so.
pub(crate) fn assert_replaced(stack: &Stack, step: Step) {
    let report = stack.policy().expect("there is a policy");
    let replaced = report.replaced.as_deref().unwrap_or_default();
    assert!(replaced.contains("scripted"), "{step:?}: {report:?}");
    assert_ne!(report.name, "scripted", "{step:?}");
}

/// Creates, writes, reads, moves and deletes.
pub(crate) fn assert_store_works(stack: &Stack) {
    let name = key("still-works");
    put(stack, &name, &[5; 2000]);
    assert_eq!(stack.read_all(&name).expect("reads"), [5; 2000]);
    migrate(stack, &name, TierIndex(1), MoveKind::Move);
    assert_eq!(stack.read_all(&name).expect("reads"), [5; 2000]);
    stack.delete(&name).expect("deletes");
    assert_eq!(stack.read_all(&key("before")).ok().map(|data| data.len()).unwrap_or(500), 500);
}
