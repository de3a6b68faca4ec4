// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a trace is made of.

use terrace_core::{
    Action, Event, Figures, Key, Persistency, SegmentView, Slot, TierView, Watermarks,
};

/// One entry of a trace, in the order in which it was written.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// Something happened.
    Access(Access),
    /// All live segments follow, each as a [`State`]: a reader that keeps a view begins a new one.
    Snapshot(Snapshot),
    /// A segment, as it is in the view from here on.
    State(State),
    /// The policy was called.
    Round(Round),
    /// The policy asked for something in the round before.
    Decision(Action),
    /// The policy is another one, or of another mind, from here on.
    Policy(PolicyChange),
}

/// One event, with what only the stack knows about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// What happened, exactly as the policy is shown it.
    pub event: Event,
    /// What it waited for.
    pub waits: Waits,
}

/// Parts of a latency that were not spent in the tier's backend. They are summed like the latency
/// where a full ring summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// At the guard, while a switch had it closed.
    pub guard_ns: u64,
    /// In the stack: to find room, and to take back what a write makes wrong.
    pub stack_ns: u64,
}

impl Waits {
    /// What is left of a latency: the time in the tier's backend.
    pub fn device_ns(self, latency_ns: u64) -> u64 {
        latency_ns.saturating_sub(self.guard_ns).saturating_sub(self.stack_ns)
    }
}

/// What a slot stands for while it has one incarnation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The number of the object in its store.
    pub object_id: u64,
    /// The index of the segment in its object.
    pub segment: u32,
    /// Where the segment begins in its object.
    pub start_bytes: u64,
    /// What the object is called.
    pub name: ObjectName,
}

/// A key, or what is left of it where names are hashed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ObjectName {
    /// The key itself.
    Key(Key),
    /// A keyed hash: equal for equal keys of one recording, and no way back.
    Hash(u128),
}

/// The namespace of keys that stand for hashed names.
pub const HASHED_NAMESPACE: &str = "hashed";

impl ObjectName {
    /// A key to show: the hash in hexadecimal, in the namespace `hashed`, where there is no other.
    pub fn key(&self) -> Key {
        match self {
            ObjectName::Key(key) => key.clone(),
            ObjectName::Hash(hash) => Key::new(HASHED_NAMESPACE, &format!("{hash:032x}"))
                .expect("32 hexadecimal digits are a legal name"),
        }
    }
}

/// What does not change about a tier between two rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Tier {
    /// Its name in the configuration; of a very long one the beginning.
    pub name: String,
    /// What it can do.
    pub figures: Figures,
    /// Its fill levels.
    pub watermarks: Watermarks,
    /// The strongest level it gives.
    pub persistency: Persistency,
}

impl Tier {
    /// The lasting part of a tier in a view.
    pub fn of(view: &TierView) -> Self {
        Self {
            name: view.name.clone(),
            figures: view.figures,
            watermarks: view.watermarks,
            persistency: view.persistency,
        }
    }

    /// The tier as a view shows it in a state.
    pub fn view(&self, state: &TierState) -> TierView {
        TierView {
            name: self.name.clone(),
            figures: self.figures,
            watermarks: self.watermarks,
            persistency: self.persistency,
            used_bytes: state.used_bytes,
            reserved_bytes: state.reserved_bytes,
            copy_bytes: state.copy_bytes,
            garbage_bytes: state.garbage_bytes,
            incoming_bytes: state.incoming_bytes,
            outgoing_bytes: state.outgoing_bytes,
            utilisation: state.utilisation,
            is_writable: state.is_writable,
        }
    }
}

/// What changes about a tier from round to round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierState {
    /// Bytes of primaries.
    pub used_bytes: u64,
    /// Bytes promised to growing objects and running migrations.
    pub reserved_bytes: u64,
    /// Bytes of clean copies.
    pub copy_bytes: u64,
    /// Bytes that are superseded and not yet deleted.
    pub garbage_bytes: u64,
    /// Bytes of the migrations to this tier that wait or run.
    pub incoming_bytes: u64,
    /// Bytes of the migrations from this tier that wait or run.
    pub outgoing_bytes: u64,
    /// Share of the last interval in which applications kept the tier busy, 0 to 1.
    pub utilisation: f64,
    /// Whether the tier takes new data.
    pub is_writable: bool,
}

impl TierState {
    /// The changing part of a tier in a view.
    pub fn of(view: &TierView) -> Self {
        Self {
            used_bytes: view.used_bytes,
            reserved_bytes: view.reserved_bytes,
            copy_bytes: view.copy_bytes,
            garbage_bytes: view.garbage_bytes,
            incoming_bytes: view.incoming_bytes,
            outgoing_bytes: view.outgoing_bytes,
            utilisation: view.utilisation,
            is_writable: view.is_writable,
        }
    }
}

/// The beginning of a new view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// When, monotonic.
    pub time_ns: u64,
    /// How many slots the view has, dead ones included.
    pub slots: u32,
}

/// A segment, as it is in the view from here on: a reader puts it into its slot.
///
/// Comes in a snapshot, before the `Create` of the segment, and after an event where the stack
/// knew better than [`terrace_core::View::apply`].
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// Its slot.
    pub slot: Slot,
    /// Everything that a policy sees of it.
    pub view: SegmentView,
}

/// One call of the policy.
///
/// It was shown all accesses since the round or the policy's change before, in order, then a
/// `Timer` of [`Round::now_ns`]; then it was asked for a plan. What it asked for follows, as
/// [`Record::Decision`]s.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// Counts the calls since the policy's thread started.
    pub number: u64,
    /// Monotonic time of the view.
    pub now_ns: u64,
    /// How many events it was shown, the timer not counted: a check for readers.
    pub events: u64,
    /// How many decisions follow.
    pub actions: u64,
    /// Bytes that its actions might move.
    pub budget_bytes: u64,
    /// Actions that it might ask for.
    pub budget_actions: u64,
    /// The tiers in the view, by index.
    pub tiers: Vec<TierState>,
}

/// A policy that is another one, or of another mind, from here on.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyChange {
    /// Monotonic time of the view.
    pub now_ns: u64,
    /// What changed it.
    pub cause: Cause,
    /// The policy's name.
    pub name: String,
    /// Its parameters with their values after the change.
    pub parameters: Vec<ParameterValue>,
    /// The seed of its view.
    pub seed: u64,
    /// The tiers in the view, by index.
    pub tiers: Vec<TierState>,
}

/// What changed a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A new policy took over a state, where it was given one, and was shown all segments.
    Start(Option<SavedState>),
    /// The recording began while the policy ran: what it knew is not in the trace.
    Running,
    /// A parameter was set.
    Parameter(ParameterValue),
    /// A message came.
    Message {
        /// Its kind.
        kind: String,
        /// Its body.
        body: Vec<u8>,
    },
    /// The policy before failed, and the built-in fallback took over, without being shown
    /// anything.
    Fallback {
        /// How it failed.
        why: String,
    },
}

/// A parameter of a policy and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterValue {
    /// Its name in the configuration.
    pub name: String,
    /// Its value, in readable units.
    pub value: String,
}

/// A state that a policy saved and another run of it took over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedState {
    /// The version that the policy gave it.
    pub version: u32,
    /// The state.
    pub bytes: Vec<u8>,
}

/// What a file says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// The store.
    pub store_id: u128,
    /// When the recording was started: the same in all its files. Nanoseconds since 1970.
    pub started_wall_ns: u64,
    /// The number of the file, which is also its name.
    pub number: u64,
    /// A point in time by both clocks: nanoseconds since 1970 …
    pub wall_ns: u64,
    /// … and monotonic, as all times in records.
    pub monotonic_ns: u64,
    /// Whether names are hashed.
    pub has_hashed_names: bool,
    /// Whether the policy's inputs and decisions are recorded.
    pub has_decisions: bool,
    /// Files of this directory that were deleted so far to keep the bound.
    pub deleted_files: u64,
    /// Records that were in them.
    pub deleted_records: u64,
    /// Records of this recording before this file that the disk was too slow for.
    pub lost_records: u64,
    /// In order of preference: the place in this list is the tier's index.
    pub tiers: Vec<Tier>,
}

impl Head {
    /// Nanoseconds since 1970 of a time in a record.
    pub fn wall_of(&self, monotonic_ns: u64) -> u64 {
        self.wall_ns.wrapping_add(monotonic_ns.wrapping_sub(self.monotonic_ns))
    }

    /// The time in a record of nanoseconds since 1970; 0 where that was before the clock began.
    pub fn monotonic_of(&self, wall_ns: u64) -> u64 {
        let since = i128::from(wall_ns) - i128::from(self.wall_ns) + i128::from(self.monotonic_ns);
        u64::try_from(since.max(0)).unwrap_or(u64::MAX)
    }
}
