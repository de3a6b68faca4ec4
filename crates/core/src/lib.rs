// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words and traits of Terrace: what every other crate speaks.
//!
//! Start with [`Backend`] (a place that keeps bytes), [`Kv`] (transactional key-value pairs)
//! and [`Policy`] (what decides where objects live).

mod backend;
mod buffer;
mod clock;
mod error;
mod event;
mod extent;
mod failpoint;
mod identity;
mod key;
mod kv;
mod latencies;
mod later;
mod lease;
mod policy;
mod random;
mod semantics;
mod tier;
pub mod units;
mod view;

pub use backend::{
    Access, Backend, BackendExt, Capability, Create, Cursor, Draft, End, FileSystem, HeldGrowth,
    LABEL_BYTES_MAX, Object, ObjectExt, ObjectFile, Op, Open, Page, Reply, Request, Space, Stat,
    TierBackend, Writes, execute_each, execute_strictly, with_object,
};
pub use buffer::Buffer;
pub use clock::{Clock, SystemClock};
pub use error::{Applied, Error, ErrorKind, Result};
pub use event::{Event, EventKind, Interest, Outcome, PostEvents, SLOT_NONE, Slot};
pub use extent::{check_extent, check_range};
pub use failpoint::{Failpoints, Watcher};
pub use identity::{Identity, Role, Superblock};
pub use key::{Key, NAME_BYTES_MAX, NAMESPACE_BYTES_MAX};
pub use kv::{KV_KEY_BYTES_MAX, KV_VALUE_BYTES_MAX, Kv, KvExt, KvRange, Pair, Ticket, Txn};
pub use latencies::{Latencies, LatencyReport};
pub use later::{Begun, Later, ReadDone, WriteDone};
pub use lease::{FileLease, GenerationWord, ReadSummary, WORD_BYTES};
pub use policy::{
    Action, ActionKind, Actions, Bounds, Canceller, Parameter, Placed, Placement, Placer, Policy,
    panic_text,
};
pub use random::Random;
pub use semantics::{
    ATOMIC_BYTES_MAX, Atomicity, BatchOrdering, Concurrency, Consistency, Hint, Layout,
    Persistency, Semantics, Temperature,
};
pub use tier::{TierIndex, TierSet};
pub use view::{Figures, Prices, SegmentView, TierView, View, Watermarks};
