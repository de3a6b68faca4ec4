// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asks policies what they would have done with a trace.
//!
//! [`Trace`] reads requests from traces of many kinds; [`CacheReplay`] sends them through caches that
//! give up objects in different orders; [`TimedReplay`] has a policy move them between tiers in
//! virtual time; [`Tuner`] searches parameters for them, [`Shadows`] try some beside a store that runs; [`convert`] writes
//! what was read; [`Profile`] sums it up.
//! `docs/reference/replay.md` is the page for users.

mod belady;
mod cache;
mod cut;
mod format;
mod input;
mod lanes;
mod objects;
mod order;
mod profile;
mod read;
mod request;
mod timed;
mod tune;
mod write;

pub use cache::{CacheReplay, Capacity, Counts, Outcome, Wish};
pub use cut::Cut;
pub use format::Format;
pub use lanes::read_lanes;
pub use order::Order;
pub use profile::{Profile, Sum, Window};
pub use read::{Columns, Lived, LivedTier, Options, Trace, objects_named};
pub use request::{Operation, Request};
pub use timed::{
    Burst, Cached, Character, Latencies, MoveStory, Observer, Population, Recent, Served, Story,
    Switch, TierTimed, Timed, TimedOptions, TimedReplay, TimedTier, Traffic, Usage, trace_key,
};
pub use tune::{
    Candidate, Foreseen, MakePolicy, Objective, OpenTrace, Score, Shadows, TierFill, TuneOptions,
    Tuned, Tuner, Value, rails,
};
pub use write::{Converted, WRITABLE, convert};
