// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What decides where objects live.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::{Event, Hint, Interest, Key, Layout, Result, Slot, TierIndex, View};

/// Decides where segments live.
///
/// Pure: no I/O, no clock, no threads, no unseeded randomness, deterministic iteration. The same
/// code runs live, in shadow beside another policy, and in replay.
///
/// # Contract
///
/// - Every event is observed, in order, after [`View::apply`] took it into the view.
/// - Segments that exist when a policy starts are shown as [`EventKind::Present`](crate::EventKind::Present) events.
/// - What `plan` asks for is a wish: the stack validates every action, and each comes back as one
///   [`EventKind::Receipt`](crate::EventKind::Receipt) event, also when it is refused.
/// - A policy that panics or overruns its time is replaced by the built-in fallback.
pub trait Policy: Send {
    /// The answer to creates, which never wait for the policy. Asked for again after every
    /// `plan`, `message` and `set_parameter`.
    fn placer(&self) -> Arc<dyn Placer>;

    /// The optional kinds of events that it wants; asked for again as [`Policy::placer`] is. It is
    /// shown no others.
    fn interest(&self) -> Interest {
        Interest::NONE
    }

    /// Takes note of what happened, oldest first.
    fn observe(&mut self, view: &View, events: &[Event]);

    /// Proposes actions, most useful first, until [`Actions::push`] says that the budget is used.
    fn plan(&mut self, view: &View, actions: &mut Actions);

    /// Answers a message from a user or an application.
    ///
    /// # Errors
    ///
    /// `Invalid` for a body it cannot read, `Unsupported` for a kind it does not know.
    fn message(&mut self, view: &View, kind: &str, body: &[u8]) -> Result<Vec<u8>>;

    /// The parameters with their values as they are now.
    fn parameters(&self) -> Vec<Parameter>;

    /// Changes a parameter while running.
    ///
    /// # Errors
    ///
    /// `NotFound` for a parameter it does not have, `Invalid` with what would be right.
    fn set_parameter(&mut self, name: &str, value: &str) -> Result<()>;

    /// Version of the state that `save` writes.
    fn state_version(&self) -> u32;

    /// Writes the state for restart and hot swap. Slots may differ after a restart, so state that
    /// lasts names segments by key.
    fn save(&self, view: &View, out: &mut Vec<u8>);

    /// Takes over a state that [`Policy::save`] of the same policy wrote.
    ///
    /// # Errors
    ///
    /// `Unsupported` for another version, `Corrupt`; the policy then starts empty.
    fn restore(&mut self, view: &View, version: u32, state: &[u8]) -> Result<()>;

    /// Makes a call that hangs come back with a panic or an error, from another thread; the policy
    /// is of no use afterwards. `None` where nothing can.
    fn canceller(&self) -> Option<Canceller> {
        None
    }
}

/// Ends whichever call of a policy is under way.
pub type Canceller = Box<dyn Fn() + Send + Sync>;

/// The text of a panic: of what a policy that fails says.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

/// Answers creates in under a microsecond from an owned snapshot of the policy's mind. A policy
/// whose placer panics, or takes too long, is replaced by the built-in fallback.
pub trait Placer: Send + Sync + fmt::Debug {
    /// Chooses the tier for a new segment. Where that tier is full the stack goes on to the next.
    fn place(&self, new: &Placement<'_>) -> Placed;

    /// Whether this runs code from outside, which may not come back. A stack then has it called by
    /// another thread, and goes on without an answer that takes too long.
    fn is_foreign(&self) -> bool {
        false
    }
}

/// What a placer knows about a new segment.
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a> {
    /// The object.
    pub key: &'a Key,
    /// Advice from the application.
    pub hint: Hint,
    /// The size that the object will have, where the application gave it.
    pub size_hint_bytes: Option<u64>,
    /// 0 for a new object, else the number of the segment that a growing object needs.
    pub segment: u32,
    /// Where the segment begins in the object.
    pub start_bytes: u64,
}

/// A placer's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The tier.
    pub tier: TierIndex,
    /// How a new object is cut; ignored for later segments.
    pub layout: Layout,
}

impl Placed {
    /// A whole object on one tier.
    pub fn on(tier: TierIndex) -> Self {
        Self { tier, layout: Layout::One }
    }
}

/// What a policy wants done to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionKind {
    /// Move the primary to a tier. Where a clean copy is there already, it becomes the primary.
    Move {
        /// Where to.
        to: TierIndex,
    },
    /// Move the primary to a tier and keep the old location as a clean copy.
    Promote {
        /// Where to.
        to: TierIndex,
    },
    /// Make a clean copy on a tier.
    Copy {
        /// Where to.
        to: TierIndex,
    },
    /// Drop the clean copy on a tier.
    DropCopy {
        /// Where.
        tier: TierIndex,
    },
    /// Cancel the migration of the segment that waits or runs.
    Cancel,
}

/// One wish of a policy, with its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// The segment.
    pub slot: Slot,
    /// The user of the slot that was meant.
    pub incarnation: u32,
    /// What to do.
    pub kind: ActionKind,
    /// Higher first; 0 is the usual.
    pub priority: i32,
    /// For people: shown by `explain`.
    pub reason: String,
    /// Seconds that the policy expects to save; 0 where it frees room.
    pub benefit_s: f64,
}

/// The list that a policy fills, within a budget.
#[derive(Debug)]
pub struct Actions {
    list: Vec<Action>,
    bytes_left: u64,
    count_left: usize,
}

impl Actions {
    /// An empty list with this much room.
    pub fn with_budget(bytes: u64, count: usize) -> Self {
        Self { list: Vec::new(), bytes_left: bytes, count_left: count }
    }

    /// Takes an action that moves `bytes`; false when the budget does not allow it, which is
    /// the sign to stop.
    #[must_use]
    pub fn push(&mut self, action: Action, bytes: u64) -> bool {
        if self.count_left == 0 || bytes > self.bytes_left {
            return false;
        }
        self.count_left -= 1;
        self.bytes_left -= bytes;
        self.list.push(action);
        true
    }

    /// Bytes that may still be moved in this round.
    pub fn bytes_left(&self) -> u64 {
        self.bytes_left
    }

    /// Actions that may still be asked for in this round.
    pub fn count_left(&self) -> usize {
        self.count_left
    }

    /// The actions, most useful first.
    pub fn into_list(self) -> Vec<Action> {
        self.list
    }

    /// The actions so far.
    pub fn list(&self) -> &[Action] {
        &self.list
    }
}

/// A setting of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name in the configuration.
    pub name: String,
    /// Its value now, in readable units.
    pub value: String,
    /// One sentence: what it does, in which unit, and its bounds.
    pub description: String,
    /// Its values, where the policy says so in a form for programs.
    pub bounds: Option<Bounds>,
}

/// The values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bounds {
    /// Numbers from the first to the second.
    Numbers(f64, f64),
    /// Whole numbers from the first to the second.
    Whole(i64, i64),
    /// `on` and `off`.
    Switch,
}

impl Parameter {
    /// A parameter from its three texts.
    pub fn new(name: &str, value: impl fmt::Display, description: &str) -> Self {
        Self {
            name: name.into(),
            value: value.to_string(),
            description: description.into(),
            bounds: None,
        }
    }
}
