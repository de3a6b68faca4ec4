// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The structs of `terrace_policy.h` in Rust: the host and the Rust binding share them.
//!
//! The header (`crates/policies/include/terrace_policy.h`) is the manual; names, order and meaning
//! of every field are there. A test of the host compares each size and offset with the C compiler's.

use std::ffi::c_void;
use std::ptr;

/// The version of the binary interface.
pub const ABI_VERSION: u32 = 1;
/// The symbol that a library exports; an [`Entry`].
pub const ENTRY_SYMBOL: &str = "terrace_policy_entry";
/// The slot of events that are about no segment.
pub const SLOT_NONE: u32 = u32::MAX;
/// The size hint of an object whose application gave none.
pub const SIZE_UNKNOWN: u64 = u64::MAX;
/// Most starts in a layout of steps.
pub const STARTS_MAX: usize = 8;
/// A reason is cut after this many bytes.
pub const REASON_BYTES_MAX: usize = 200;
/// A text from a library that claims to be longer is damaged.
pub const TEXT_BYTES_MAX: usize = 65536;
/// Most bytes that `publish` writes.
pub const PUBLISHED_BYTES_MAX: usize = 1 << 20;
/// Most bytes that `message` answers.
pub const REPLY_BYTES_MAX: usize = 16 << 20;
/// Most bytes that `save` writes.
pub const STATE_BYTES_MAX: usize = 256 << 20;
/// Most bytes of an error text.
pub const ERROR_BYTES_MAX: usize = 4096;
/// Most parameters of a policy.
pub const PARAMETERS_MAX: usize = 256;

/// `terrace_status`.
pub mod status {
    /// It worked.
    pub const OK: i32 = 0;
    /// The request is wrong.
    pub const INVALID: i32 = 1;
    /// No parameter has this name.
    pub const NOT_FOUND: i32 = 2;
    /// The kind of message or the version of the state is not known.
    pub const UNSUPPORTED: i32 = 3;
    /// The state is damaged.
    pub const CORRUPT: i32 = 4;
    /// The budget or a bound is used up.
    pub const FULL: i32 = 5;
    /// The instance cannot go on.
    pub const FAILED: i32 = 6;
}

/// `terrace_action_kind`.
pub mod action {
    /// Move the primary.
    pub const MOVE: u32 = 1;
    /// Move the primary and keep the old location as a clean copy.
    pub const PROMOTE: u32 = 2;
    /// Make a clean copy.
    pub const COPY: u32 = 3;
    /// Drop a clean copy.
    pub const DROP_COPY: u32 = 4;
    /// Cancel the migration.
    pub const CANCEL: u32 = 5;
}

/// `terrace_event_kind`.
pub mod event {
    /// A segment was created.
    pub const CREATE: u32 = 1;
    /// A segment existed when the policy started.
    pub const PRESENT: u32 = 2;
    /// A handle was opened.
    pub const OPEN: u32 = 3;
    /// A handle was closed.
    pub const CLOSE: u32 = 4;
    /// Bytes were read.
    pub const READ: u32 = 5;
    /// Bytes were written.
    pub const WRITE: u32 = 6;
    /// The length was set.
    pub const SET_LEN: u32 = 7;
    /// The segment is gone.
    pub const DELETE: u32 = 8;
    /// A migration was accepted and waits.
    pub const QUEUED: u32 = 9;
    /// The primary is on another tier.
    pub const MOVED: u32 = 10;
    /// A clean copy was made.
    pub const COPIED: u32 = 11;
    /// A clean copy is gone.
    pub const UNCOPIED: u32 = 12;
    /// An action has ended.
    pub const RECEIPT: u32 = 13;
    /// Time has passed.
    pub const TIMER: u32 = 14;
    /// A person forbade to move it.
    pub const PIN: u32 = 15;
    /// A person allowed to move it again.
    pub const UNPIN: u32 = 16;
    /// A caller asked for size and times; only with [`crate::interest::STAT`].
    pub const STAT: u32 = 17;
    /// A caller asked for its object to be durable; only with [`crate::interest::SYNC`].
    pub const SYNC: u32 = 18;
}

/// `terrace_interest`.
pub mod interest {
    /// Events of kind [`crate::event::STAT`].
    pub const STAT: u32 = 1;
    /// Events of kind [`crate::event::SYNC`].
    pub const SYNC: u32 = 2;
}

/// `terrace_outcome`.
pub mod outcome {
    /// The segment is there.
    pub const DONE: u32 = 0;
    /// The slot is another segment's, or none's, by now.
    pub const STALE: u32 = 1;
    /// It was there already.
    pub const ALREADY: u32 = 2;
    /// A person pinned it.
    pub const PINNED: u32 = 3;
    /// The target cannot keep what the segment was promised.
    pub const TOO_WEAK: u32 = 4;
    /// No such tier, or nothing to drop or cancel.
    pub const INVALID: u32 = 5;
    /// Another migration of it waits or runs, or too many do.
    pub const BUSY: u32 = 6;
    /// Writers never paused long enough.
    pub const HOT_WRITE: u32 = 7;
    /// The target is full.
    pub const NO_SPACE: u32 = 8;
    /// A tier failed.
    pub const IO: u32 = 9;
    /// It was cancelled.
    pub const CANCELLED: u32 = 10;
    /// Only decided: the store runs dry.
    pub const DRY_RUN: u32 = 11;
}

/// `terrace_temperature`.
pub mod temperature {
    /// Nothing is known.
    pub const UNKNOWN: u32 = 0;
    /// The application will touch it again soon.
    pub const HOT: u32 = 1;
    /// It will not.
    pub const COLD: u32 = 2;
}

/// `terrace_layout`.
pub mod layout {
    /// One segment.
    pub const ONE: u32 = 0;
    /// Segments of one size.
    pub const FIXED: u32 = 1;
    /// Segments that begin at given offsets.
    pub const STEPS: u32 = 2;
}

/// `terrace_text`.
#[allow(missing_docs, reason = "the header documents the fields")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Text {
    pub bytes: *const u8,
    pub length: usize,
}

impl Text {
    /// Points at `text`, which has to outlive it.
    pub const fn new(text: &str) -> Self {
        Self { bytes: text.as_ptr(), length: text.len() }
    }

    /// No text.
    pub const EMPTY: Text = Text { bytes: ptr::null(), length: 0 };
}

/// `terrace_sink`.
#[allow(missing_docs, reason = "the header documents the fields")]
#[derive(Debug)]
#[repr(C)]
pub struct Sink {
    pub struct_bytes: u32,
    pub reserved: u32,
    pub write: unsafe extern "C" fn(*mut Sink, *const c_void, usize) -> i32,
    pub host: *mut c_void,
}

/// `terrace_tier`.
#[allow(missing_docs, reason = "the header documents the fields")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Tier {
    pub name: Text,
    pub capacity_bytes: u64,
    pub latency_ns: u64,
    pub read_bytes_per_s: f64,
    pub write_bytes_per_s: f64,
    pub idle_w: f64,
    pub active_w: f64,
    pub low: f64,
    pub high: f64,
    pub critical: f64,
    pub used_bytes: u64,
    pub reserved_bytes: u64,
    pub copy_bytes: u64,
    pub garbage_bytes: u64,
    pub incoming_bytes: u64,
    pub outgoing_bytes: u64,
    pub utilisation: f64,
    pub parallelism: u32,
    pub persistency: u8,
    pub is_writable: u8,
    pub reserved: [u8; 2],
}

/// `terrace_prices`.
#[allow(missing_docs, reason = "the header documents the fields")]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Prices {
    pub per_1000_write_requests: f64,
    pub per_1000_read_requests: f64,
    pub per_gb_month: f64,
    pub per_gb_read: f64,
    pub reserved: [f64; 4],
}

/// `terrace_segment`.
#[allow(missing_docs, reason = "the header documents the fields")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Segment {
    pub key: Text,
    pub namespace_length: u32,
    pub segment: u32,
    pub start_bytes: u64,
    pub size_bytes: u64,
    pub created_ns: u64,
    pub last_read_ns: u64,
    pub last_write_ns: u64,
    pub last_close_ns: u64,
    pub incarnation: u32,
    pub copies: u32,
    pub opens: u32,
    pub tier: u8,
    pub persistency: u8,
    pub temperature: u8,
    pub is_live: u8,
    pub is_moving: u8,
    pub is_pinned: u8,
    pub reserved: [u8; 6],
}

/// `terrace_view`.
#[allow(missing_docs, reason = "the header documents the fields")]
#[derive(Debug)]
#[repr(C)]
pub struct View {
    pub struct_bytes: u32,
    pub tier_count: u32,
    pub now_ns: u64,
    pub tiers: *const Tier,
    pub segments: *const Segment,
    pub segment_count: usize,
    pub random: unsafe extern "C" fn(*const View) -> u64,
    pub host: *mut c_void,
    pub prices: *const Prices,
}

/// `terrace_event`.
#[allow(missing_docs, reason = "the header documents the fields")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Event {
    pub kind: u32,
    pub slot: u32,
    pub incarnation: u32,
    pub count: u32,
    pub time_ns: u64,
    pub offset_bytes: u64,
    pub length_bytes: u64,
    pub latency_ns: u64,
    pub tier: u32,
    pub outcome: u32,
}

/// `terrace_action`.
#[allow(missing_docs, reason = "the header documents the fields")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Action {
    pub struct_bytes: u32,
    pub kind: u32,
    pub slot: u32,
    pub incarnation: u32,
    pub tier: u32,
    pub priority: i32,
    pub benefit_s: f64,
    pub reason: Text,
}

/// `terrace_actions`.
#[allow(missing_docs, reason = "the header documents the fields")]
#[derive(Debug)]
#[repr(C)]
pub struct Actions {
    pub struct_bytes: u32,
    pub count_left: u32,
    pub bytes_left: u64,
    pub push: unsafe extern "C" fn(*mut Actions, *const Action) -> i32,
    pub host: *mut c_void,
}

/// `terrace_placement`.
#[allow(missing_docs, reason = "the header documents the fields")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Placement {
    pub struct_bytes: u32,
    pub segment: u32,
    pub key: Text,
    pub namespace_length: u32,
    pub temperature: u32,
    pub size_hint_bytes: u64,
    pub start_bytes: u64,
}

/// `terrace_placed`.
#[allow(missing_docs, reason = "the header documents the fields")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Placed {
    pub struct_bytes: u32,
    pub tier: u32,
    pub layout: u32,
    pub start_count: u32,
    pub segment_bytes: u64,
    pub starts_bytes: [u64; STARTS_MAX],
}

/// `terrace_parameters`.
#[allow(missing_docs, reason = "the header documents the fields")]
#[derive(Debug)]
#[repr(C)]
pub struct Parameters {
    pub struct_bytes: u32,
    pub reserved: u32,
    pub add: unsafe extern "C" fn(*mut Parameters, Text, Text, Text) -> i32,
    pub host: *mut c_void,
}

/// `terrace_policy_api`. The functions that the header requires are `Option`s too, so that a NULL
/// from a library is a value that can be looked at.
#[allow(missing_docs, reason = "the header documents the fields")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Api {
    pub abi_version: u32,
    pub struct_bytes: u32,
    pub name: Text,
    pub create: Option<Create>,
    pub destroy: Option<Destroy>,
    pub observe: Option<Observe>,
    pub plan: Option<Plan>,
    pub publish: Option<Publish>,
    pub place: Option<Place>,
    pub message: Option<Message>,
    pub parameters: Option<ListParameters>,
    pub set_parameter: Option<SetParameter>,
    pub save: Option<Save>,
    pub restore: Option<Restore>,
    pub state_version: u32,
    pub interest: u32,
}

/// The type of [`ENTRY_SYMBOL`]: takes the host's version.
pub type Entry = unsafe extern "C" fn(u32) -> *const Api;
/// Takes view, instance to fill in, error.
pub type Create = unsafe extern "C" fn(*const View, *mut *mut c_void, *mut Sink) -> i32;
/// Takes the instance.
pub type Destroy = unsafe extern "C" fn(*mut c_void);
/// Takes instance, view, events and their count.
pub type Observe = unsafe extern "C" fn(*mut c_void, *const View, *const Event, usize) -> i32;
/// Takes instance, view, actions.
pub type Plan = unsafe extern "C" fn(*mut c_void, *const View, *mut Actions) -> i32;
/// Takes instance, published bytes to write.
pub type Publish = unsafe extern "C" fn(*const c_void, *mut Sink) -> i32;
/// Takes published bytes and their count, placement, answer to fill in.
pub type Place = unsafe extern "C" fn(*const c_void, usize, *const Placement, *mut Placed) -> i32;
/// Takes instance, view, kind, body and its length, reply, error.
pub type Message = unsafe extern "C" fn(
    *mut c_void,
    *const View,
    Text,
    *const c_void,
    usize,
    *mut Sink,
    *mut Sink,
) -> i32;
/// Takes instance, list to fill in.
pub type ListParameters = unsafe extern "C" fn(*const c_void, *mut Parameters) -> i32;
/// Takes instance, name, value, error.
pub type SetParameter = unsafe extern "C" fn(*mut c_void, Text, Text, *mut Sink) -> i32;
/// Takes instance, view, state to write.
pub type Save = unsafe extern "C" fn(*const c_void, *const View, *mut Sink) -> i32;
/// Takes instance, view, version, state and its length, error.
pub type Restore =
    unsafe extern "C" fn(*mut c_void, *const View, u32, *const c_void, usize, *mut Sink) -> i32;
