// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happens to segments, as policies see it.

use std::fmt;

use crate::TierIndex;

/// A segment's place in `View::segments`.
pub type Slot = u32;

/// The slot of events that are about no segment.
pub const SLOT_NONE: Slot = Slot::MAX;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EventKind {
    /// A segment was created.
    Create = 1,
    /// A segment existed when the policy started.
    Present = 2,
    /// A handle was opened.
    Open = 3,
    /// A handle was closed.
    Close = 4,
    /// Bytes were read.
    Read = 5,
    /// Bytes were written.
    Write = 6,
    /// The length was set to `length_bytes`.
    SetLen = 7,
    /// The segment is gone.
    Delete = 8,
    /// A migration was accepted and waits.
    Queued = 9,
    /// The primary is now on `tier`.
    Moved = 10,
    /// A clean copy is now on `tier`.
    Copied = 11,
    /// The clean copy on `tier` is gone.
    Uncopied = 12,
    /// An action has ended; `outcome` says how.
    Receipt = 13,
    /// Time has passed; about no segment.
    Timer = 14,
    /// A person forbade to move it.
    Pin = 15,
    /// A person allowed to move it again.
    Unpin = 16,
    /// A caller asked for the size and times of its object. Posted only where a policy
    /// [asks for it](Interest).
    Stat = 17,
    /// A caller asked for its object to be durable. Posted only where a policy
    /// [asks for it](Interest).
    Sync = 18,
}

impl EventKind {
    /// All of them, by their number less one.
    pub const ALL: [EventKind; 18] = [
        EventKind::Create,
        EventKind::Present,
        EventKind::Open,
        EventKind::Close,
        EventKind::Read,
        EventKind::Write,
        EventKind::SetLen,
        EventKind::Delete,
        EventKind::Queued,
        EventKind::Moved,
        EventKind::Copied,
        EventKind::Uncopied,
        EventKind::Receipt,
        EventKind::Timer,
        EventKind::Pin,
        EventKind::Unpin,
        EventKind::Stat,
        EventKind::Sync,
    ];

    /// The word that people and scripts see.
    pub fn word(self) -> &'static str {
        match self {
            EventKind::Create => "create",
            EventKind::Present => "present",
            EventKind::Open => "open",
            EventKind::Close => "close",
            EventKind::Read => "read",
            EventKind::Write => "write",
            EventKind::SetLen => "set-len",
            EventKind::Delete => "delete",
            EventKind::Queued => "queued",
            EventKind::Moved => "moved",
            EventKind::Copied => "copied",
            EventKind::Uncopied => "uncopied",
            EventKind::Receipt => "receipt",
            EventKind::Timer => "timer",
            EventKind::Pin => "pin",
            EventKind::Unpin => "unpin",
            EventKind::Stat => "stat",
            EventKind::Sync => "sync",
        }
    }
}

/// The optional kinds of events that a policy asks for. No other policy gets them, and where no
/// policy asks, an operation pays one load for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// [`EventKind::Stat`].
    pub stat: bool,
    /// [`EventKind::Sync`].
    pub sync: bool,
}

impl Interest {
    /// No optional kind.
    pub const NONE: Interest = Interest { stat: false, sync: false };

    /// Those that either asks for.
    #[must_use]
    pub fn or(self, other: Interest) -> Interest {
        Interest { stat: self.stat || other.stat, sync: self.sync || other.sync }
    }

    /// Whether events of this kind are asked for; true for those that are not optional.
    pub fn takes(self, kind: EventKind) -> bool {
        match kind {
            EventKind::Stat => self.stat,
            EventKind::Sync => self.sync,
            _ => true,
        }
    }
}

/// When an access becomes an event, seen from its I/O. Of reads, writes and the optional kinds; all
/// other events say what has become of a segment, and are posted once it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PostEvents {
    /// Once the I/O has succeeded, with what it served, from where, and how long it took. One that
    /// fails is no event.
    #[default]
    After,
    /// When the I/O is about to begin, with what is asked for and a latency of 0. One that fails is
    /// an event all the same. If a write does not end where its event says, [`EventKind::SetLen`]
    /// has the segment's length afterwards.
    Before,
}

impl PostEvents {
    /// All of them.
    pub const ALL: [PostEvents; 2] = [PostEvents::After, PostEvents::Before];

    /// As people and programs write it.
    pub fn word(self) -> &'static str {
        match self {
            PostEvents::After => "after",
            PostEvents::Before => "before",
        }
    }
}

/// How an action ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Outcome {
    /// It is done: the segment is there.
    #[default]
    Done = 0,
    /// The slot is another segment's, or none's, by now.
    Stale = 1,
    /// The segment is already there.
    Already = 2,
    /// A person pinned it.
    Pinned = 3,
    /// The target cannot keep what the segment was promised.
    TooWeak = 4,
    /// The action makes no sense: no such tier, or nothing to drop or cancel.
    Invalid = 5,
    /// Another migration of it waits or runs, or too many do.
    Busy = 6,
    /// Writers never paused long enough.
    HotWrite = 7,
    /// The target is full.
    NoSpace = 8,
    /// A tier failed.
    Io = 9,
    /// It was cancelled.
    Cancelled = 10,
    /// Only decided, not carried out: the stack runs dry.
    DryRun = 11,
}

impl Outcome {
    /// All of them, by their number.
    pub const ALL: [Outcome; 12] = [
        Outcome::Done,
        Outcome::Stale,
        Outcome::Already,
        Outcome::Pinned,
        Outcome::TooWeak,
        Outcome::Invalid,
        Outcome::Busy,
        Outcome::HotWrite,
        Outcome::NoSpace,
        Outcome::Io,
        Outcome::Cancelled,
        Outcome::DryRun,
    ];

    /// The word that people and scripts see.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Stale => "stale",
            Outcome::Already => "already",
            Outcome::Pinned => "pinned",
            Outcome::TooWeak => "too-weak",
            Outcome::Invalid => "invalid",
            Outcome::Busy => "busy",
            Outcome::HotWrite => "hot-write",
            Outcome::NoSpace => "no-space",
            Outcome::Io => "io",
            Outcome::Cancelled => "cancelled",
            Outcome::DryRun => "dry-run",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One thing that happened, or several of a kind where a full ring had to sum them up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// To which segment; `SLOT_NONE` for none.
    pub slot: Slot,
    /// To which user of the slot.
    pub incarnation: u32,
    /// The tier that served it, or that the segment is on now.
    pub tier: TierIndex,
    /// How often; more than 1 where a full ring summed up, or a reader by lease.
    pub count: u32,
    /// When, monotonic.
    pub time_ns: u64,
    /// Where in the segment.
    pub offset_bytes: u64,
    /// How much. Where `count` is more than 1: of reads the sum, of writes the extent that covers
    /// all of them. Of receipts: the bytes copied.
    pub length_bytes: u64,
    /// How long it took; summed where `count` is more than 1.
    pub latency_ns: u64,
    /// Of receipts: how the action ended.
    pub outcome: Outcome,
}

impl Event {
    /// An event about a segment with everything else zero.
    pub fn new(kind: EventKind, slot: Slot, incarnation: u32, time_ns: u64) -> Self {
        Self {
            kind,
            slot,
            incarnation,
            tier: TierIndex(0),
            count: 1,
            time_ns,
            offset_bytes: 0,
            length_bytes: 0,
            latency_ns: 0,
            outcome: Outcome::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_in_the_order_of_the_numbers() {
        for (index, kind) in EventKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index + 1);
        }
        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
        }
    }
}
